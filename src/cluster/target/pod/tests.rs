//! Pods in every state of their life.

use serde_json::{Value, json};

use super::*;

fn seen(patch: Value) -> PodSeen {
    let mut object = json!({
        "metadata": {"name": "p", "namespace": "vision", "uid": "u1", "resourceVersion": "3"},
        "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": "Pending"},
    });
    json_patch::merge(&mut object, &patch);
    pod(&serde_json::from_value(object).expect("a pod"))
}

fn owned() -> Value {
    json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": true}])
}

#[test]
fn an_unmanaged_pod_counts_once_it_is_bound() {
    assert!(seen(json!({})).holds.is_none());
    let bound = seen(json!({"spec": {"nodeName": "n1"}})).holds.expect("holds");
    assert_eq!((bound.workload, bound.node.as_deref()), (None, Some("n1")));
}

#[test]
fn a_pod_of_a_job_counts_from_the_start_to_the_end() {
    let owner = json!({"metadata": {"ownerReferences": owned()}});
    let waiting = seen(owner.clone()).holds.expect("holds");
    assert_eq!(waiting.workload, Some(WorkloadId("job".into())));
    for phase in ["Succeeded", "Failed"] {
        let mut ended = owner.clone();
        ended["status"] = json!({"phase": phase});
        assert!(seen(ended).holds.is_none(), "{phase}");
    }
    let mut ending = owner;
    ending["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z".into();
    assert!(seen(ending).holds.is_some(), "a terminating pod still holds its devices");
}

#[test]
fn a_bare_pod_asks_for_what_it_holds_until_it_has_ended() {
    let record = r#"{"pool":"p","nodes":{"n1":1},"pods":1,"borrowed":false,"at":"2026-11-21T08:00:00Z"}"#;
    let asks = |patch: Value| {
        let mut object = json!({
            "metadata": {"annotations": {names::ADMISSION: record}}, "spec": {"nodeName": "n1"},
        });
        json_patch::merge(&mut object, &patch);
        let workload = seen(object).managed.expect("managed").workload;
        (workload.state == Observed::Finished, workload.shape.requests.contains_key("cpu"))
    };
    assert_eq!(asks(json!({})), (false, true));
    assert_eq!(asks(json!({"metadata": {"deletionTimestamp": "2026-11-21T09:00:00Z"}})), (true, true));
    assert_eq!(asks(json!({"status": {"phase": "Failed"}})), (true, false));
}

#[test]
fn a_bare_pod_that_is_deleted_while_it_runs_has_neither_succeeded_nor_failed() {
    let record = r#"{"pool":"p","nodes":{"n1":1},"pods":1,"borrowed":false,"at":"2026-11-21T08:00:00Z"}"#;
    let succeeded = |phase: &str, ended: &str, deleted: Option<&str>| {
        let conditions = json!([{"type": "Ready", "status": "False", "lastTransitionTime": ended}]);
        let mut object = json!({
            "metadata": {"annotations": {names::ADMISSION: record}}, "spec": {"nodeName": "n1"},
            "status": {"phase": phase, "conditions": conditions},
        });
        if let Some(over) = deleted {
            let deletion = json!({"deletionTimestamp": over, "deletionGracePeriodSeconds": 30});
            json_patch::merge(&mut object, &json!({"metadata": deletion}));
        }
        seen(object).managed.expect("managed").facts.past.expect("it has ended").succeeded
    };
    let (at, before) = ("2026-11-21T09:00:00Z", "2026-11-21T08:59:59Z");
    // Deleted at 09:00:00.
    let deleted = Some("2026-11-21T09:00:30Z");
    for (phase, succeeds) in [("Failed", false), ("Succeeded", true)] {
        assert_eq!(succeeded(phase, at, None), Some(succeeds));
        assert_eq!(succeeded(phase, before, deleted), Some(succeeds), "it had ended before");
        assert_eq!(succeeded(phase, "2026-11-21T09:00:04Z", deleted), None);
    }
    assert_eq!(succeeded("Failed", at, deleted), None);
    assert_eq!(succeeded("Succeeded", at, deleted), Some(true));
}

#[test]
fn a_fraction_that_a_user_writes_on_a_pod_of_a_job_is_not_believed() {
    let containers = json!([{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]);
    let pod = seen(json!({
        "metadata": {"ownerReferences": owned(), "annotations": {names::GPU_FRACTION: "0.1"}},
        "spec": {"nodeName": "n1", "containers": containers},
    }));
    assert!(pod.managed.is_none());
    let holds = pod.holds.expect("holds");
    assert_eq!(holds.requests["nvidia.com/gpu"].to_string(), "1");
}

#[test]
fn a_pod_that_waits_for_another_of_its_gang_is_refused_by_no_node() {
    for (message, refused) in [
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", true),
        ("pod group is unschedulable, waiting for minCount pods from a gang to be scheduled", false),
    ] {
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": message});
        let waits = json!({"metadata": {"ownerReferences": owned()}, "status": {"conditions": [condition]}});
        let way = seen(waits).way.expect("it has no node yet");
        assert_eq!(way.refused.is_some(), refused, "{message}");
    }
}

#[test]
fn a_gated_pod_is_a_workload_that_waits() {
    let gates = json!([{"name": names::GATE_ADMISSION}, {"name": "example.com/other"}]);
    let gated = seen(json!({"spec": {"schedulingGates": gates, "priority": 7, "priorityClassName": "x"}}));
    assert!(gated.holds.is_none());
    let managed = gated.managed.expect("managed");
    assert_eq!(managed.workload.state, Observed::Queued);
    assert_eq!((managed.workload.priority, managed.class), (7, None));
    assert!(!managed.workload.resumable);
    let Target::Pod(pod) = &managed.target else { panic!("not a pod") };
    assert_eq!(pod.gates.len(), 2);
}

#[test]
fn only_its_user_makes_a_pod_preemptible() {
    let gates = json!([{"name": names::GATE_ADMISSION}]);
    for (text, expected) in [("true", true), ("false", false), ("yes", false)] {
        let notes = json!({names::PREEMPTIBLE: text});
        let seen = seen(json!({"metadata": {"annotations": notes}, "spec": {"schedulingGates": gates}}));
        assert_eq!(seen.managed.expect("managed").workload.expendable, expected, "{text}");
    }
}

#[test]
fn an_admitted_pod_holds_its_resources_until_it_ends() {
    let record = r#"{"pool":"p","nodes":{"n1":1},"pods":1,"borrowed":false,"at":"2026-11-21T08:00:00Z"}"#;
    let marks = json!({"metadata": {"annotations": {names::ADMISSION: record}}});
    let running = seen(marks.clone());
    assert!(running.holds.is_some());
    let state = &running.managed.expect("managed").workload.state;
    assert!(matches!(state, Observed::Admitted(_)));
    let mut ended = marks;
    ended["status"] = json!({"phase": "Failed"});
    let ended = seen(ended);
    assert!(ended.holds.is_none());
    assert_eq!(ended.managed.expect("managed").workload.state, Observed::Finished);
}
