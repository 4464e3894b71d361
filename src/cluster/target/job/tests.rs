//! Jobs in every state of their life.

use serde_json::{Value, json};

use super::*;
use crate::api::record::time;
use crate::engine::types::amount::{Amount, describe};

const NOW: Time = Time(1_800_000_000_000);
const RECORD: &str =
    r#"{"pool":"a100","nodes":{"n1":2},"pods":2,"borrowed":true,"at":"2026-11-21T08:00:00Z"}"#;
const EVICTED: &str = r#"{"at":"2026-11-21T09:00:00.700Z","for":"b/y","reason":"Reclaimed"}"#;

/// A queued Job of 2 pods, changed by merging `patch` into it.
fn seen(patch: Value) -> JobSeen {
    let mut object = json!({
        "metadata": {
            "name": "train", "namespace": "vision", "uid": "u1", "resourceVersion": "17",
            "creationTimestamp": "2026-11-21T07:00:00Z",
            "labels": {"sluice.dev/queue": "training"},
            "annotations": {"sluice.dev/held": "true"},
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        },
        "spec": {
            "suspend": true, "parallelism": 2, "completions": 4,
            "template": {"spec": {
                "priorityClassName": "high",
                "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
            }},
        },
    });
    json_patch::merge(&mut object, &patch);
    job(&serde_json::from_value(object).expect("a Job"), NOW)
}

fn state(patch: Value) -> Option<Observed> {
    seen(patch).managed.map(|managed| managed.workload.state.clone())
}

#[test]
fn a_held_job_is_queued_with_its_requests() {
    let seen = seen(json!({"metadata": {"annotations": {
        "sluice.dev/pool": "a100, h100", "sluice.dev/time-limit": "1h30m",
    }}}));
    assert_eq!((&*seen.uid, seen.version), ("u1", 17));
    let managed = seen.managed.expect("managed");
    assert_eq!(managed.own_queue.as_deref(), Some("training"));
    assert_eq!(managed.class.as_deref(), Some("high"));
    let workload = managed.workload;
    assert_eq!(workload.state, Observed::Queued);
    assert_eq!(workload.pods, 2);
    assert_eq!(workload.pools, ["a100".into(), "h100".into()]);
    assert_eq!(workload.time_limit, Some(std::time::Duration::from_secs(5400)));
    assert_eq!(workload.submitted, time("2026-11-21T07:00:00Z".parse().expect("a time")));
    assert_eq!(workload.shape.requests.len(), 1);
}

#[test]
fn a_job_runs_no_more_pods_than_it_still_has_to_complete() {
    for (why, patch, expected) in [
        ("parallelism", json!({}), 2),
        (
            "numbers that no difference can hold",
            json!({"spec": {"completions": i64::MIN}, "status": {"succeeded": 1}}),
            0,
        ),
        ("pods left to succeed", json!({"status": {"succeeded": 3}}), 1),
        ("no completions", json!({"spec": {"completions": null}}), 2),
        ("one by default", json!({"spec": {"parallelism": null}}), 1),
        ("all done", json!({"status": {"succeeded": 4}}), 0),
    ] {
        assert_eq!(seen(patch).managed.expect("managed").workload.pods, expected, "{why}");
    }
}

#[test]
fn the_state_follows_the_protocol() {
    let marks = |held: Option<&str>, record: Option<&str>, eviction: Option<&str>| json!({"sluice.dev/held": held, "sluice.dev/admission": record, "sluice.dev/eviction": eviction});
    let with = |suspend: bool, annotations: Value| {
        state(json!({"metadata": {"annotations": annotations}, "spec": {"suspend": suspend}}))
    };
    assert_eq!(with(true, marks(Some("true"), None, None)), Some(Observed::Queued));
    assert_eq!(with(true, marks(Some("true"), None, Some(EVICTED))), Some(Observed::Queued));
    assert_eq!(with(true, marks(None, None, None)), Some(Observed::OnHold));
    assert_eq!(with(false, marks(None, None, None)), None, "it runs without an admission");
    assert!(
        matches!(with(false, marks(Some("true"), Some(RECORD), None)), Some(Observed::Admitted(a)) if a.borrowed)
    );
    assert_eq!(state(json!({"spec": {"parallelism": 0}})), Some(Observed::OnHold), "nothing to admit");
}

#[test]
fn a_job_has_stopped_if_its_controller_says_so_and_counts_no_active_pods() {
    let leaving = |status: &str, active: i64| {
        let seen = seen(json!({
            "metadata": {"annotations": {"sluice.dev/admission": RECORD, "sluice.dev/eviction": EVICTED}},
            "status": {"active": active, "conditions": [
                {"type": "Suspended", "status": status, "lastTransitionTime": "2026-11-21T09:00:01Z"},
            ]},
        }));
        let managed = seen.managed.expect("managed");
        match &managed.workload.state {
            Observed::Leaving { stopped, .. } => (*stopped, managed.facts.suspension),
            other => panic!("not leaving: {other:?}"),
        }
    };
    assert_eq!(leaving("True", 0), (true, Suspension::Old));
    assert_eq!(leaving("True", 1), (false, Suspension::Old), "pods are still active");
    assert_eq!(leaving("False", 0), (false, Suspension::None));
}

#[test]
fn a_running_job_that_its_user_suspends_is_stopping() {
    let annotations = json!({"sluice.dev/held": null, "sluice.dev/admission": RECORD});
    let seen = seen(json!({"metadata": {"annotations": annotations}})).managed.expect("managed");
    assert!(matches!(seen.workload.state, Observed::Leaving { since: NOW, stopped: false, .. }));
    assert!(!seen.facts.held);
}

#[test]
fn an_ending_job_is_finished() {
    for kind in ["Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"] {
        let conditions = json!({"status": {"conditions": [{"type": kind, "status": "True"}]}});
        assert_eq!(state(conditions), Some(Observed::Finished), "{kind}");
    }
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-11-21T09:00:00Z"}});
    assert_eq!(state(deleted), Some(Observed::Finished), "deleted");
    let not_true = json!({"status": {"conditions": [{"type": "Failed", "status": "False"}]}});
    assert_eq!(state(not_true), Some(Observed::Queued));
}

#[test]
fn a_stopped_job_that_its_controller_cannot_end_gets_a_start() {
    let record =
        r#"{"pool":"default","nodes":{"n":1},"pods":1,"borrowed":false,"at":"2026-11-21T09:00:00Z"}"#;
    let of = |status: Value| {
        let mut object = json!({
            "metadata": {"annotations": {"sluice.dev/held": null, "sluice.dev/admission": record}},
            "spec": {"suspend": true}, "status": {"conditions": [{
                "type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": "2026-11-21T09:00:05Z",
            }]},
        });
        json_patch::merge(&mut object, &status);
        let managed = seen(object).managed.expect("managed");
        assert_eq!(managed.workload.state, Observed::Finished);
        managed.cannot_end().then(|| serde_json::to_value(managed.add_start_time(17)).expect("JSON"))
    };
    let start = |at: &str| Some(json!({"op": "add", "path": "/status/startTime", "value": at}));
    let patch = of(json!({})).expect("it cannot end");
    assert_eq!(patch.get(2).cloned(), start("2026-11-21T09:00:00Z"), "{patch}");
    let early = json!({"status": {"conditions": [
        {"type": "FailureTarget", "status": "True", "lastTransitionTime": "2026-11-21T08:59:59Z"},
    ]}});
    let patch = of(early).expect("it cannot end");
    assert_eq!(patch.get(2).cloned(), start("2026-11-21T08:59:59Z"), "no start after the end: {patch}");

    assert_eq!(of(json!({"status": {"startTime": "2026-11-21T09:00:00Z"}})), None);
    assert_eq!(of(json!({"spec": {"suspend": false}})), None, "its controller gives it one");
    assert_eq!(of(json!({"metadata": {"deletionTimestamp": "2026-11-21T09:00:09Z"}})), None);
    let over = json!({"status": {"conditions": [
        {"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-21T09:00:05Z"},
    ]}});
    assert_eq!(of(over), None);
}

#[test]
fn a_finished_job_asks_for_what_its_last_pods_hold_until_they_have_gone() {
    let asks = |metadata: Value, status: Value| {
        let containers = json!([{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "2"}}}]);
        let spec = json!({"suspend": false, "template": {"spec": {"containers": containers}}});
        let mut metadata = metadata;
        metadata["annotations"] = json!({"sluice.dev/held": null, "sluice.dev/admission": RECORD});
        let seen = seen(json!({"metadata": metadata, "spec": spec, "status": status}));
        let workload = seen.managed.expect("managed").workload;
        assert_eq!(workload.state, Observed::Finished);
        workload.shape.requests.get("nvidia.com/gpu").map(ToString::to_string)
    };
    let failing = |counts: Value| {
        let mut status = json!({"conditions": [{"type": "FailureTarget", "status": "True"}]});
        json_patch::merge(&mut status, &counts);
        asks(json!({}), status)
    };
    assert_eq!(failing(json!({"active": 1})).as_deref(), Some("2"));
    assert_eq!(failing(json!({"terminating": 1})).as_deref(), Some("2"));
    assert_eq!(failing(json!({"failed": 1})), None);
    let deleted = json!({"deletionTimestamp": "2026-11-21T09:00:00Z"});
    assert_eq!(asks(deleted, json!({})).as_deref(), Some("2"));
}

#[test]
fn the_users_affinity_is_distinguished_from_sluices_own() {
    let affinity = |node: &str| {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
        ]}}})
    };
    let template = |node: &str| json!({"template": {"spec": {"affinity": affinity(node)}}});
    let node_of = |seen: JobSeen| {
        let shape = Arc::clone(&seen.managed.expect("managed").workload.shape);
        shape.node_terms.first().map(|term| term.fields[0].values[0].to_string())
    };
    assert_eq!(node_of(seen(json!({"spec": template("users")}))).as_deref(), Some("users"));
    let admitted =
        json!({"metadata": {"annotations": {"sluice.dev/admission": RECORD}}, "spec": template("ours")});
    assert_eq!(node_of(seen(admitted.clone())), None);
    let mut both = admitted;
    both["metadata"]["annotations"]["sluice.dev/user-affinity"] = affinity("users").to_string().into();
    assert_eq!(node_of(seen(both)).as_deref(), Some("users"));
}

#[test]
fn the_requests_of_its_user_reach_the_engine() {
    let notes = |notes: Value| seen(json!({"metadata": {"annotations": notes}})).managed.expect("managed");
    let workload = notes(json!({
        "sluice.dev/min-parallelism": "1",
        "sluice.dev/topology-required": "rack",
        "sluice.dev/topology-preferred": "zone",
        "sluice.dev/user": "alice",
    }))
    .workload;
    assert_eq!(workload.min_pods, Some(1));
    assert_eq!(workload.topology.required.as_deref(), Some("rack"));
    assert_eq!(workload.topology.preferred.as_deref(), Some("zone"));
    assert_eq!(workload.user.as_deref(), Some("alice"));
    assert_eq!(
        notes(json!({"sluice.dev/min-parallelism": "3"})).workload.min_pods,
        Some(2),
        "no more than all"
    );
    let malformed = notes(json!({
        "sluice.dev/min-parallelism": "none", "sluice.dev/topology-required": " ", "sluice.dev/gpu-fraction": "1",
    }));
    assert_eq!((malformed.workload.min_pods, &malformed.workload.topology.required), (None, &None));
    assert_eq!(malformed.workload.shape.requests["nvidia.com/gpu"], Amount::units(1));
}

#[test]
fn a_gpu_fraction_replaces_the_one_device_that_a_pod_requests() {
    let asked = |limits: Value, fraction: &str| {
        let containers = json!([{"name": "c", "resources": {"limits": limits}}]);
        let patch = json!({
            "metadata": {"annotations": {"sluice.dev/gpu-fraction": fraction}},
            "spec": {"template": {"spec": {"containers": containers}}},
        });
        let managed = *seen(patch).managed.expect("managed");
        (describe(&managed.workload.shape.requests), managed.facts.whole_device)
    };
    let whole = |device: &str| Some((device.into(), Amount::units(1)));
    for (limits, fraction, expected, device) in [
        (json!({"nvidia.com/gpu": 1}), "0.5", "nvidia.com/gpu 500m", whole("nvidia.com/gpu")),
        (json!({"amd.com/gpu": 1}), "0.25", "amd.com/gpu 250m", whole("amd.com/gpu")),
        (json!({"cpu": 1}), "0.3,0.6", "cpu 1, nvidia.com/gpu 300m", None),
        (json!({"nvidia.com/gpu": 2}), "0.5", "nvidia.com/gpu 2", None),
    ] {
        assert_eq!(asked(limits, fraction), (expected.to_owned(), device), "{fraction}");
    }
}

#[test]
fn a_finished_job_has_the_length_of_its_last_run() {
    let ran = |annotations: Value, status: Value| {
        let seen = seen(json!({"metadata": {"annotations": annotations}, "status": status}));
        seen.managed.expect("managed").workload.ran.map(|ran| ran.as_secs())
    };
    let admitted = || json!({"sluice.dev/admission": RECORD});
    let status = |kind: &str, completed: Option<&str>| {
        json!({
            "startTime": "2026-11-21T08:00:00Z", "completionTime": completed,
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": "2026-11-21T08:02:00Z"}],
        })
    };
    assert_eq!(ran(admitted(), status("Complete", Some("2026-11-21T08:01:30Z"))), Some(90));
    assert_eq!(ran(admitted(), status("Failed", None)), Some(120));
    assert_eq!(ran(admitted(), status("Suspended", None)), None, "it has not ended");
    assert_eq!(ran(json!({}), status("Failed", None)), None, "it never ran");
}

#[test]
fn a_job_whose_pods_are_of_a_pod_group_keeps_its_parallelism() {
    let of_group = |name: &str, completions: Value| {
        seen(json!({
            "metadata": {"annotations": {"sluice.dev/min-parallelism": "1"}},
            "spec": {"completions": completions, "template": {"spec": {"schedulingGroup": {"podGroupName": name}}}},
        }))
        .managed
        .expect("managed")
    };
    for (completions, together) in [(json!(2), true), (Value::Null, true), (json!(4), false)] {
        let managed = of_group("sluice-train-0815", completions.clone());
        assert_eq!(managed.workload.min_pods, None);
        assert!(!managed.workload.resizable, "the API server would refuse it");
        let expected = Gang { group: "sluice-train-0815".into(), together, thinned: false };
        assert_eq!(managed.gang(), Some(&expected), "{completions}");
    }
    let own = of_group("train", json!(2));
    assert_eq!((own.gang(), own.workload.min_pods), (None, None), "its user creates that one");
}

#[test]
fn the_start_time_is_cleared_only_while_the_job_is_suspended_and_has_no_pods() {
    let suspended = json!([{"type": "Suspended", "status": "True"}]);
    let of = |suspend: bool, status: Value| {
        let object = json!({
            "metadata": {"name": "train", "namespace": "vision", "uid": "u1", "resourceVersion": "17"},
            "spec": {"suspend": suspend}, "status": status,
        });
        unstart(&serde_json::from_value(object).expect("a Job"), &"u1".into())
    };
    let started = json!({"startTime": "2026-11-21T08:00:00Z", "conditions": suspended, "terminating": 1});
    let Unstart::Patch(patch) = of(true, started.clone()) else { panic!("it is not cleared") };
    let expected = json!([
        {"op": "add", "path": "/metadata/resourceVersion", "value": "17"},
        {"op": "test", "path": "/metadata/uid", "value": "u1"},
        {"op": "remove", "path": "/status/startTime"},
    ]);
    assert_eq!(serde_json::to_value(patch).expect("JSON"), expected);
    assert_eq!(of(false, started.clone()), Unstart::Resumed);
    assert_eq!(of(true, json!({"conditions": suspended})), Unstart::NeverRan);
    for (field, value) in [("active", json!(1)), ("conditions", json!([]))] {
        let mut stopping = started.clone();
        stopping[field] = value;
        assert_eq!(of(true, stopping), Unstart::Stopping, "{field}");
    }
    let other = serde_json::from_value(json!({"metadata": {"uid": "u2"}, "spec": {"suspend": true}}));
    assert_eq!(unstart(&other.expect("a Job"), &"u1".into()), Unstart::Resumed);
}
