//! What stops, and the pods that end with it.

use super::*;

#[test]
fn pods_of_a_deleted_job_that_nothing_ends_are_unadmitted() {
    let running = json!({"metadata": {"annotations": {"sluice.dev/held": null, "sluice.dev/admission": RECORD}},
        "spec": {"suspend": false}});
    let mut deleted = running.clone();
    deleted["metadata"]["deletionTimestamp"] = json!("2026-11-21T09:00:00Z");
    deleted["metadata"]["finalizers"] = json!(["example.com/keep"]);
    let left = |events: Vec<Event>| {
        events.into_iter().find_map(|event| match event {
            Event::PodApplied(pod) => Some((pod.workload, pod.unadmitted.map(|facts| facts.replacement))),
            _ => None,
        })
    };
    let unadmitted = Some((None, Some(Replacement::Held)));

    let mut mirror = labelled();
    mirror.take(saw_job(1, running));
    mirror.take(saw_pod(2, "Running"));
    assert_eq!(left(mirror.take(saw_job(3, deleted.clone()))), unadmitted);
    let pod = WorkloadId::of_unadmitted(&PodId("pod".into()));
    assert!(mirror.unadmitted(&pod).is_some(), "it can be evicted");

    let mut mirror = labelled();
    mirror.take(saw_job(1, deleted));
    assert_eq!(left(mirror.take(saw_pod(2, "Running"))), unadmitted, "in either order");

    let mut ending = pod_seen(3, "Running");
    ending.ending = true;
    let seen = mirror.take(Change::Pod(Seen::Object("pod".into(), ending)));
    assert_eq!(left(seen).and_then(|(owner, _)| owner), Some(WorkloadId("job".into())), "it ends");
}

#[test]
fn a_pod_that_is_deleted_with_a_longer_grace_than_any_cap_is_overlong() {
    let overlong = |own: u64, given: u64| {
        let mut mirror = labelled();
        let object = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "pod", "resourceVersion": "2",
                "deletionTimestamp": "2026-11-21T09:00:00Z", "deletionGracePeriodSeconds": given},
            "spec": {"nodeName": "n1", "containers": [], "terminationGracePeriodSeconds": own},
        });
        let seen = pod(&serde_json::from_value(object).expect("a pod"));
        mirror.take(Change::Pod(Seen::Object("pod".into(), seen)));
        mirror.overlong().map(|(_, most)| most.as_secs()).next()
    };
    let cap = Caps::default().grace.as_secs();
    assert_eq!(overlong(30, 31_536_000), Some(cap));
    assert_eq!(overlong(30, cap), None, "as long as a workload may ask for");
    assert_eq!(overlong(2 * cap, 2 * cap), None, "stored before the cap");
    assert_eq!(overlong(2 * cap, 3 * cap), Some(2 * cap));
}

/// A Job that was admitted at `RECORD`; `suspended` is what its controller says.
fn admitted(suspended: Option<bool>) -> Value {
    json!({
        "metadata": {"annotations": {"sluice.dev/admission": RECORD}},
        "spec": {"suspend": false},
        "status": {"conditions": suspended.map(|said| vec![condition(said)])},
    })
}

/// The same Job after its eviction.
fn evicted(active: u32, terminating: u32, suspended: Option<bool>) -> Value {
    json!({
        "metadata": {"annotations": {"sluice.dev/admission": RECORD, "sluice.dev/eviction": EVICTED}},
        "status": {"active": active, "terminating": terminating,
            "conditions": suspended.map(|said| vec![condition(said)])},
    })
}

/// The condition `Suspended` of a Job controller with a clock that is far ahead.
fn condition(said: bool) -> Value {
    let status = if said { "True" } else { "False" };
    json!({"type": "Suspended", "status": status, "lastTransitionTime": "2026-11-21T09:30:00Z"})
}

#[test]
fn a_stopped_job_is_restored_when_it_has_no_pods_left() {
    let mut mirror = labelled();
    mirror.take(saw_pod(1, "Running"));
    let restorable = |mirror: &Mirror| mirror.restorable(Time(0)).count();
    mirror.take(saw_job(2, admitted(Some(false))));
    mirror.take(saw_job(3, evicted(1, 0, Some(true))));
    assert_eq!(restorable(&mirror), 0, "not confirmed");
    mirror.take(saw_job(4, evicted(0, 1, Some(true))));
    assert_eq!(restorable(&mirror), 0, "a pod is ending");
    mirror.take(saw_job(5, evicted(0, 0, Some(true))));
    assert_eq!(restorable(&mirror), 0, "the pod is still seen");
    assert_eq!(mirror.pods_of(&WorkloadId("job".into())), ["j-0".into()]);
    assert!(matches!(mirror.take(saw_pod(6, "Failed"))[..], [Event::PodRemoved(_)]));
    assert_eq!(restorable(&mirror), 1);
    mirror.take(saw_job(7, json!({})));
    assert_eq!(restorable(&mirror), 0, "queued again");
}

#[test]
fn a_controller_that_may_not_have_seen_the_admission_confirms_no_stop() {
    let id = WorkloadId("job".into());
    let leaves = |mirror: &Mirror| match mirror.workload(&id).map(|(managed, _)| &managed.workload.state) {
        Some(Observed::Leaving { since, stopped, .. }) => (*since, *stopped),
        other => panic!("not leaving: {other:?}"),
    };
    let noted = Time("2026-11-21T09:00:00Z".parse::<jiff::Timestamp>().expect("a time").as_millisecond());
    let queued = |said| json!({"status": {"conditions": [condition(said)]}});
    let stopped = || evicted(0, 0, Some(true));
    let again = RECORD.replace("T08:00", "T08:30");
    let with_record = |mut job: Value| {
        job["metadata"]["annotations"]["sluice.dev/admission"] = json!(again);
        job
    };
    for (why, versions, confirmed) in [
        ("it said otherwise", vec![admitted(Some(true)), admitted(Some(false)), stopped()], true),
        ("it had said nothing yet", vec![json!({}), admitted(None), stopped()], true),
        ("it still says so", vec![queued(true), admitted(Some(true)), stopped()], false),
        ("the first list has it so", vec![stopped()], false),
        ("a new list has it so", vec![queued(true), stopped()], false),
        ("it said otherwise in the run before", vec![admitted(Some(false)), with_record(stopped())], false),
        (
            "it confirmed the stop before",
            vec![admitted(Some(false)), stopped(), with_record(admitted(Some(true))), with_record(stopped())],
            false,
        ),
        (
            "it says otherwise after the stop",
            vec![admitted(Some(true)), stopped(), evicted(2, 0, Some(false)), stopped()],
            true,
        ),
        ("it confirms it twice", vec![admitted(Some(false)), stopped(), evicted(0, 1, Some(true))], true),
    ] {
        let mut mirror = labelled();
        for (version, job) in (1..).zip(versions) {
            mirror.take(saw_job(version, job));
        }
        let (since, stops) = leaves(&mirror);
        assert_eq!(stops, confirmed, "{why}");
        assert_eq!(
            since,
            if confirmed { noted } else { Time(0) },
            "{why}: by the note, else by the own clock"
        );
        if !confirmed {
            let restorable = |now| mirror.restorable(now).count();
            assert_eq!((restorable(Time(0)), restorable(Time(0).after(SETTLE))), (0, 1), "{why}");
        }
    }
}

#[test]
fn law_1_a_stop_is_confirmed_once_the_pods_that_the_controller_counts_were_seen() {
    let id = WorkloadId("job".into());
    let stopped = |mirror: &Mirror| match mirror.workload(&id).map(|(managed, _)| &managed.workload.state) {
        Some(Observed::Leaving { stopped, .. }) => *stopped,
        other => panic!("not leaving: {other:?}"),
    };
    // The watch of pods is behind: the controller has made and deleted a pod that is not cached yet.
    let mut mirror = labelled();
    mirror.take(saw_job(1, admitted(Some(false))));
    mirror.take(saw_job(2, evicted(0, 1, Some(true))));
    assert!(!stopped(&mirror), "only the record charges the pod");
    mirror.take(saw_pod(3, "Running"));
    mirror.take(saw_job(4, evicted(0, 1, Some(true))));
    assert!(stopped(&mirror), "the pod is charged by itself");

    // A pod may be gone before its controller says that it counts none any more.
    let mut mirror = labelled();
    mirror.take(saw_job(1, admitted(Some(false))));
    mirror.take(saw_pod(2, "Running"));
    mirror.take(saw_job(3, evicted(1, 0, None)));
    mirror.take(saw_pod(4, "Failed"));
    mirror.take(saw_job(5, evicted(0, 1, Some(true))));
    assert!(stopped(&mirror), "the cache knew the pod");
}
