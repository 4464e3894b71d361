//! Engine events of single changes.

use serde_json::{Value, json};

use super::*;
use crate::cluster::reduce::node::node;
use crate::cluster::reduce::team::team;
use crate::cluster::target::job::job;
use crate::cluster::target::pod::{PodSeen, pod};
use crate::directory::Membership;
use crate::engine::types::{PodId, Replacement, SETTLE, Time, Unready, Workload};

const RECORD: &str = r#"{"pool":"p","nodes":{"n1":1},"pods":1,"borrowed":false,"at":"2026-11-21T08:00:00Z"}"#;
const EVICTED: &str = r#"{"at":"2026-11-21T09:00:00Z","for":"b/y","reason":"Reclaimed"}"#;

fn job_seen(version: u32, patch: Value) -> JobSeen {
    let mut object = json!({
        "metadata": {"name": "j", "namespace": "ns", "uid": "job", "resourceVersion": version.to_string(),
            "annotations": {"sluice.dev/held": "true"}},
        "spec": {"suspend": true, "template": {"spec": {"containers": []}}},
    });
    json_patch::merge(&mut object, &patch);
    job(&serde_json::from_value(object).expect("a Job"), Time(0))
}

fn saw_job(version: u32, patch: Value) -> Change {
    let seen = job_seen(version, patch);
    Change::Job(Seen::Object(seen.uid.clone(), seen))
}

fn saw_pod(version: u32, phase: &str) -> Change {
    Change::Pod(Seen::Object("pod".into(), pod_seen(version, phase)))
}

/// A pod of the Job.
fn pod_seen(version: u32, phase: &str) -> PodSeen {
    let owner =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": true}]);
    let object = json!({
        "metadata": {"name": "j-0", "namespace": "ns", "uid": "pod", "resourceVersion": version.to_string(),
            "ownerReferences": owner},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": phase},
    });
    pod(&serde_json::from_value(object).expect("a pod"))
}

fn saw_namespace(team: Option<&str>) -> Change {
    let membership = team.map(|team| Membership { team: team.into(), queue: Some("night".into()) });
    Change::Namespace(Seen::Object("ns".into(), NamespaceSeen { name: "ns".into(), membership, since: None }))
}

/// The workload of the only event.
fn applied(events: &[Event]) -> &Workload {
    match events {
        [Event::WorkloadApplied(workload)] => workload,
        other => panic!("not one workload: {other:?}"),
    }
}

fn labelled() -> Mirror {
    let mut mirror = Mirror::default();
    assert!(mirror.take(saw_namespace(Some("vision"))).is_empty());
    mirror
}

#[test]
fn a_job_belongs_to_the_team_of_its_namespace() {
    let mut mirror = labelled();
    let events = mirror.take(saw_job(1, json!({})));
    let workload = applied(&events);
    assert_eq!((&*workload.team, workload.queue.as_deref()), ("vision", Some("night")));
    let events = mirror.take(saw_namespace(Some("speech")));
    assert_eq!(&*applied(&events).team, "speech");
    assert!(matches!(mirror.take(saw_namespace(None))[..], [Event::WorkloadRemoved(_)]));
    let events = mirror.take(saw_namespace(Some("vision")));
    assert_eq!(&*applied(&events).team, "vision");
}

#[test]
fn a_namespace_without_a_team_is_left_alone() {
    let mut mirror = Mirror::default();
    assert!(mirror.take(saw_job(1, json!({}))).is_empty());
    assert!(mirror.take(Change::Job(Seen::Deleted("job".into()))).is_empty());
}

#[test]
fn priority_follows_the_classes() {
    let mut mirror = labelled();
    mirror.take(saw_job(1, json!({})));
    let class = |name: &str, value, global_default| {
        let stands_for = None;
        let seen = Class { uid: name.into(), value, global_default, preempts: true, stands_for };
        Change::Class(Seen::Object(name.into(), seen))
    };
    let events = mirror.take(class("usual", 50, true));
    assert_eq!(applied(&events).priority, 50);
    let spec = json!({"spec": {"template": {"spec": {"priorityClassName": "high"}}}});
    let events = mirror.take(saw_job(2, spec));
    assert_eq!(applied(&events).priority, 0, "a class that does not exist yet");
    let events = mirror.take(class("high", 900, false));
    assert_eq!(applied(&events).priority, 900);

    assert!(mirror.take_changed_classes() && !mirror.take_changed_classes());
    let spec = json!({"spec": {"template": {"spec": {"priorityClassName": "sluice-high"}}}});
    mirror.take(saw_job(3, spec));
    let id = WorkloadId("job".into());
    let priority = |mirror: &Mirror| mirror.workload(&id).map(|(managed, _)| managed.workload.priority);
    assert_eq!(priority(&mirror), Some(900), "the twin is not made yet");
    assert!(mirror.names_class("sluice-high") && !mirror.names_class("high"));
}

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

#[test]
fn an_irrelevant_change_causes_no_event() {
    let mut mirror = labelled();
    mirror.take(saw_job(1, json!({})));
    assert!(mirror.take(saw_job(2, json!({"status": {"ready": 1}}))).is_empty());
    let seen = mirror.workload(&WorkloadId("job".into())).map(|(_, version)| version);
    assert_eq!(seen, Some(2), "but the next patch requires the new version");
}

#[test]
fn a_late_watch_event_does_not_revert_an_own_write() {
    let mut mirror = labelled();
    mirror.take(saw_job(1, json!({})));
    let admitted =
        json!({"metadata": {"annotations": {"sluice.dev/admission": RECORD}}, "spec": {"suspend": false}});
    let events = mirror.take_own_job(job_seen(7, admitted.clone()));
    assert!(matches!(applied(&events).state, Observed::Admitted(_)));
    assert!(mirror.take(saw_job(3, json!({"status": {"ready": 1}}))).is_empty(), "from before the write");
    assert!(mirror.take(saw_job(7, admitted)).is_empty(), "the write itself");
    assert!(matches!(mirror.take(Change::Job(Seen::Deleted("job".into())))[..], [Event::WorkloadRemoved(_)]));
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
fn pods_missing_from_a_new_list_are_removed() {
    let mut mirror = labelled();
    mirror.take(saw_pod(1, "Running"));
    mirror.take(Change::Pod(Seen::ListBegins));
    assert!(matches!(mirror.take(Change::Pod(Seen::ListEnds))[..], [Event::PodRemoved(_)]));
    assert!(mirror.pods_of(&WorkloadId("job".into())).is_empty());
}

#[test]
fn the_directory_is_complete_once_all_its_lists_are() {
    let mut mirror = labelled();
    assert!(mirror.directory().is_some_and(|directory| !directory.complete));
    assert!(mirror.directory().is_none(), "nothing changed");
    for seen in [
        Change::Team(Seen::ListEnds),
        Change::Pool(Seen::ListEnds),
        Change::Namespace(Seen::ListEnds),
        Change::Class(Seen::ListEnds),
    ] {
        mirror.take(seen);
    }
    assert!(
        mirror.directory().is_some_and(|directory| !directory.complete),
        "whether PodGroups are served is unknown"
    );
    mirror.take(Change::PodGroups(true));
    let directory = mirror.directory().expect("changed");
    assert!(directory.complete && directory.pod_groups);
    assert_eq!(directory.namespaces.len(), 1);
}

#[test]
fn a_gpu_fraction_of_a_pod_that_requests_a_whole_device_counts_as_one() {
    let caps = Caps { assumed_fractions: true, ..Caps::default() };
    let mut mirror = labelled().capped(caps);
    let containers = json!([{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]);
    let asks = |version, containers: Value| {
        saw_job(
            version,
            json!({
                "metadata": {"annotations": {"sluice.dev/gpu-fraction": "0.5"}},
                "spec": {"template": {"spec": {"containers": containers}}},
            }),
        )
    };
    let gpus = |events: Vec<Event>| applied(&events).shape.requests["nvidia.com/gpu"].to_string();
    assert_eq!(gpus(mirror.take(asks(1, containers))), "1");
    assert_eq!(gpus(mirror.take(asks(2, json!([])))), "500m");

    let mut strict = labelled();
    let whole = json!([{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]);
    assert_eq!(gpus(strict.take(asks(1, whole))), "1");
    let waits = applied(&strict.take(asks(2, json!([])))).state.clone();
    assert!(
        matches!(&waits, Observed::Unready(Unready::Uncounted(why)) if why.contains("would get no GPU")),
        "{waits:?}"
    );
}

#[test]
fn the_places_of_pods_outlive_the_cache_as_long_as_their_jobs_exist() {
    let record = RECORD.replacen('{', r#"{"done":"","#, 1);
    let admitted = json!({
        "metadata": {"annotations": {"sluice.dev/admission": record}},
        "spec": {"suspend": false, "completionMode": "Indexed", "template": {"spec": {
            "schedulingGates": [{"name": "sluice.dev/placement"}]}}},
    });
    let mut first = labelled();
    let places = first.places().clone();
    first.take(saw_job(1, admitted.clone()));
    let known = || places.of("job").is_some_and(|seats| seats.node_of(0).is_some());
    assert!(known());
    let list = |listed: Option<Value>| {
        let mut next = Mirror::new(Kinds::default(), places.clone());
        next.take(Change::Job(Seen::ListBegins));
        assert!(known(), "the list may have it");
        listed.map(|change| next.take(saw_job(2, change)));
        next.take(Change::Job(Seen::ListEnds));
    };
    list(Some(admitted));
    assert!(known());
    list(None);
    assert!(!known(), "it is deleted");
    first.take(saw_job(3, json!({})));
    assert!(!known(), "it waits again");
}

/// A pod of the Job, with the given index.
fn saw_gang_pod(version: u32, number: u32, patch: Value) -> Change {
    let owner =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": true}]);
    let mut object = json!({
        "metadata": {"name": format!("j-{number}"), "namespace": "ns", "uid": format!("pod-{number}"),
            "resourceVersion": version.to_string(), "ownerReferences": owner},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    json_patch::merge(&mut object, &patch);
    let seen = pod(&serde_json::from_value(object).expect("a pod"));
    Change::Pod(Seen::Object(seen.uid.clone(), seen))
}

/// The reported numbers of ready and succeeded pods of the Job.
fn ready_pods(events: &[Event]) -> Option<(u32, u32)> {
    events.iter().find_map(|event| match event {
        Event::PodsReady(pods) if &*pods.workload.0 == "job" => Some((pods.ready, pods.succeeded)),
        _ => None,
    })
}

#[test]
fn the_ready_pods_of_a_gang_are_reported() {
    let record = r#"{"pool":"p","nodes":{"n1":3},"pods":3,"borrowed":false,"at":"2026-11-21T08:00:00Z"}"#;
    let admitted = json!({
        "metadata": {"annotations": {"sluice.dev/admission": record}},
        "spec": {"suspend": false, "parallelism": 3, "completions": 3},
    });
    let mut mirror = labelled();
    assert_eq!(ready_pods(&mirror.take(saw_gang_pod(1, 0, json!({})))), None, "its Job is not known yet");
    assert_eq!(ready_pods(&mirror.take(saw_job(2, admitted))), Some((1, 0)));
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    assert_eq!(ready_pods(&mirror.take(saw_gang_pod(3, 1, not_ready))), None, "nothing has changed");
    assert_eq!(ready_pods(&mirror.take(saw_gang_pod(4, 1, json!({})))), Some((2, 0)));
    assert_eq!(
        ready_pods(&mirror.take(saw_gang_pod(5, 1, json!({"metadata": {"labels": {"a": "b"}}})))),
        None
    );
    let succeeded = json!({"status": {"phase": "Succeeded"}});
    assert_eq!(ready_pods(&mirror.take(saw_gang_pod(6, 0, succeeded.clone()))), Some((1, 1)));
    assert_eq!(ready_pods(&mirror.take(saw_gang_pod(7, 0, succeeded))), None, "once");
    let ending = json!({"metadata": {"deletionTimestamp": "2026-11-21T09:00:00Z"}});
    assert_eq!(ready_pods(&mirror.take(saw_gang_pod(8, 1, ending))), Some((0, 1)), "it is about to end");
}

#[test]
fn the_readiness_of_a_single_pod_is_not_reported() {
    let mut mirror = labelled();
    let admitted = json!({
        "metadata": {"annotations": {"sluice.dev/admission": RECORD}}, "spec": {"suspend": false},
    });
    assert_eq!(ready_pods(&mirror.take(saw_job(1, admitted))), None);
    assert_eq!(ready_pods(&mirror.take(saw_gang_pod(2, 0, json!({})))), None);
}

#[test]
fn a_gang_with_succeeded_pods_is_known_in_every_state_of_its_job() {
    let two = RECORD.replace(r#"1},"pods":1"#, r#"2},"pods":2"#);
    let one = json!({"succeeded": 1});
    let noted = json!({"uncountedTerminatedPods": {"succeeded": ["pod"]}});
    for (state, suspend, record, status, thinned) in [
        ("it waits, with fewer completions than pods at once", true, "", json!({}), false),
        ("it is admitted", false, &*two, json!({"uncountedTerminatedPods": {}}), false),
        ("a success is counted", false, &*two, one.clone(), true),
        ("a success is noted", false, &*two, noted, true),
        ("it is stopped", true, &*two, one.clone(), true),
        ("it waits: its next pods may exist before its admission is seen", true, "", one.clone(), true),
        ("it is admitted with the rest", false, RECORD, one, true),
    ] {
        // As a restarted replica, which knows no pod that has ended.
        let mut mirror = labelled();
        let places = mirror.directory().expect("changed").places;
        mirror.take(saw_job(
            1,
            json!({
                "metadata": {"annotations": {"sluice.dev/admission": record}},
                "spec": {"suspend": suspend, "parallelism": 3, "completions": 2, "template": {"spec": {
                    "schedulingGroup": {"podGroupName": "sluice-j-0815"}}}},
                "status": status,
            }),
        ));
        assert_eq!(places.thinned("job"), thinned, "{state}");
        mirror.take(saw_job(2, json!({})));
        assert!(!places.thinned("job"), "it names no PodGroup");
    }
}

#[test]
fn a_succeeded_pod_counts_before_the_status_of_its_job_shows_it() {
    let mut mirror = labelled();
    let places = mirror.directory().expect("changed").places;
    mirror.take(saw_gang(1, false));
    mirror.take(saw_pod(2, "Running"));
    assert!(!places.thinned("job"));
    mirror.take(saw_pod(3, "Succeeded"));
    mirror.take(saw_gang(4, false));
    assert!(places.thinned("job"));
}

#[test]
fn a_pod_that_an_eviction_ends_without_an_error_has_not_succeeded() {
    let mut mirror = labelled();
    let places = mirror.directory().expect("changed").places;
    mirror.take(saw_gang(1, false));
    mirror.take(saw_pod(2, "Running"));
    mirror.take(saw_gang(3, true));
    let mut ended = pod_seen(4, "Succeeded");
    ended.ending = true;
    mirror.take(Change::Pod(Seen::Object("pod".into(), ended)));
    assert!(!places.thinned("job"), "all its pods start again");
}

/// A Job of a gang with one pod so far, admitted or stopped.
fn saw_gang(version: u32, stopped: bool) -> Change {
    let group = json!({"schedulingGroup": {"podGroupName": "sluice-j-0815"}});
    saw_job(
        version,
        json!({
            "metadata": {"annotations": {"sluice.dev/admission": RECORD}},
            "spec": {"suspend": stopped, "template": {"spec": group}},
        }),
    )
}

#[test]
fn a_replay_has_the_last_event_of_everything_in_a_team() {
    let status = json!({"decayedAt": "2026-11-21T08:00:00Z", "runLengthsAt": "2026-11-21T08:00:00Z",
        "runLengths": [{"queue": "train", "milliDevices": 8000, "runs": 2, "seconds": [60, 90]}],
        "pools": [{"pool": "p", "decayedUsage": {"nvidia.com/gpu": "3"}}]});
    let vision = json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Team",
        "metadata": {"name": "vision"}, "spec": {}, "status": status});
    let vision = team(&serde_json::from_value(vision).expect("a Team")).expect("readable");
    let n1 = node(&serde_json::from_value(json!({"metadata": {"name": "n1"}})).expect("a node"));
    let two = RECORD.replace(":1", ":2");
    let admitted = json!({"metadata": {"annotations": {"sluice.dev/admission": two}},
        "spec": {"suspend": false, "parallelism": 2}});
    let elsewhere = json!({"metadata": {"uid": "elsewhere", "namespace": "elsewhere"}});
    let mut mirror = Mirror::default();
    let mut last: BTreeMap<String, Event> = BTreeMap::new();
    for change in [
        saw_namespace(Some("vision")),
        Change::Team(Seen::Object("vision".into(), vision)),
        Change::Node(Seen::Object("n1".into(), n1)),
        saw_job(1, json!({})),
        saw_job(2, elsewhere),
        saw_job(3, admitted),
        saw_pod(4, "Pending"),
        saw_pod(5, "Running"),
    ] {
        for event in mirror.take(change) {
            last.insert(format!("{:?}", std::mem::discriminant(&event)), event);
        }
    }
    assert_eq!(last.len(), 7, "team, past usage, run lengths, node, Job, pod and ready pods: {last:?}");
    let replayed = mirror.replay();
    assert_eq!(replayed.len(), last.len(), "{replayed:?}");
    let text = |event: &Event| format!("{event:?}");
    let replayed: BTreeSet<String> = replayed.iter().map(text).collect();
    assert_eq!(replayed, last.values().map(text).collect());
}
