//! The pods of gangs: which are ready, and which have succeeded.

use super::*;

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
