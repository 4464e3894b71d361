//! Patches applied to the objects they are meant for.

mod pods;
mod sizes;

use std::collections::BTreeMap;

use kube::core::ObjectMeta;
use serde_json::Value;

use super::job::job;
use super::marks::Requests;
use super::pod::{delete_first, pod};
use super::*;
use crate::api::affinity::{REQUIRED_TERMS, pinned};
use crate::api::names;
use crate::cluster::patch::is_versioned;
use crate::engine::types::{Admission, Observed, Time};

fn term(expression: &str) -> Value {
    json!({"matchExpressions": [{"key": expression, "operator": "Exists"}]})
}

fn required(terms: &Value) -> Value {
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

fn pin(node: &str) -> Value {
    json!([{"key": "metadata.name", "operator": "In", "values": [node]}])
}

fn record(nodes: &[&str]) -> Record {
    Record {
        pool: "p".into(),
        nodes: nodes.iter().map(|node| ((*node).to_owned(), 1)).collect::<BTreeMap<_, _>>(),
        pods: 1,
        borrowed: false,
        at: "2026-11-21T08:00:00Z".parse().expect("a time"),
        wanted: None,
        share: None,
        spared: false,
        unfunded: false,
        group: None,
        done: None,
        failed: 0,
        room: String::new(),
    }
}

fn held(affinity: &Value) -> Value {
    let mut object = json!({
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "5",
            "annotations": {"sluice.dev/held": "true", "mine": "kept"}},
        "spec": {"suspend": true, "template": {"spec": {"containers": []}}},
    });
    if !affinity.is_null() {
        object["spec"]["template"]["spec"]["affinity"] = affinity.clone();
    }
    object
}

/// A Job as it is read, with its version and its state.
fn read(object: &Value) -> (Managed, u64, Observed) {
    let seen = job(&serde_json::from_value(object.clone()).expect("a Job"), Time(0));
    let managed = *seen.managed.expect("managed");
    let state = managed.workload.state.clone();
    (managed, seen.version, state)
}

/// The patch on the object itself.
fn patch_of(operation: Operation) -> Patch {
    match operation {
        Operation::Patch(patch) => patch,
        other => panic!("not a patch of the object: {other:?}"),
    }
}

/// The patch on the status.
fn status_patch_of(operation: Operation) -> Patch {
    match operation {
        Operation::PatchStatus(patch) => patch,
        other => panic!("not a patch of the status: {other:?}"),
    }
}

fn spread(nodes: &[(&str, u32)]) -> Record {
    let pods = nodes.iter().map(|(_, pods)| pods).sum();
    let nodes = nodes.iter().map(|(node, pods)| ((*node).to_owned(), *pods)).collect();
    Record { nodes, pods, ..record(&[]) }
}

#[test]
fn the_pin_is_anded_into_every_term_of_the_user() {
    assert_eq!(
        pinned(None, &["n1", "n2"]),
        required(&json!([{"matchFields": pin("n1")}, {"matchFields": pin("n2")}]))
    );
    let user = required(&json!([term("a"), term("b"), {}]));
    let with = |expression: &str, node: &str| {
        let mut with = term(expression);
        with["matchFields"] = pin(node);
        with
    };
    assert_eq!(
        pinned(Some(&user), &["n1", "n2"]),
        required(&json!([with("a", "n1"), with("a", "n2"), with("b", "n1"), with("b", "n2"), {}])),
        "and the term that matches nothing matches nothing still"
    );
}

#[test]
fn the_pin_leaves_the_rest_of_the_affinity_alone() {
    let user = json!({
        "podAntiAffinity": {"x": 1},
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1}]},
    });
    let pinned = pinned(Some(&user), &["n1"]);
    assert_eq!(pinned["podAntiAffinity"], user["podAntiAffinity"]);
    assert_eq!(
        pinned["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"],
        user["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    );
    let fields = required(&json!([{"matchFields": pin("n1")}]));
    let both = crate::api::affinity::pinned(Some(&fields), &["n2"]);
    let fields = both.pointer(&format!("{REQUIRED_TERMS}/0/matchFields")).expect("fields");
    assert_eq!(fields.as_array().map(Vec::len), Some(2), "a pin of the user's own stays");
}

#[test]
fn a_job_has_its_users_template_back_after_admission_and_eviction() {
    let affinities = [Value::Null, required(&json!([term("a")])), json!({"podAffinity": {"x": [1, 2]}})];
    for (affinity, pin) in
        affinities.into_iter().flat_map(|one| [(one.clone(), Pin::Template), (one, Pin::OneByOne)])
    {
        let before = held(&affinity);
        let mut object = before.clone();

        let (known, version, _) = read(&object);
        let patch = known.admit(version, &record(&["n1", "n2"]), Grant::All, pin);
        json_patch::patch(&mut object, &patch).expect("the patch applies");
        assert_eq!(object["spec"]["suspend"], false);
        let (known, version, state) = read(&object);
        assert!(matches!(&state, Observed::Admitted(admission) if admission.nodes.len() == 2));
        assert_eq!(known.job().expect("a Job").user_affinity.is_some(), !affinity.is_null());

        let note = Eviction { preemptor: "b/y".into(), ..eviction("Reclaimed") };
        json_patch::patch(&mut object, &patch_of(known.evict(version, &note))).expect("the patch applies");
        let (known, version, state) = read(&object);
        assert!(matches!(state, Observed::Leaving { stopped: false, .. }));

        json_patch::patch(&mut object, &known.restore(version)).expect("the patch applies");
        let (known, version, state) = read(&object);
        assert_eq!(state, Observed::Queued);
        let template = &object["spec"]["template"]["spec"];
        assert_eq!(template["affinity"], affinity, "exactly as the user wrote it");
        assert_eq!(template["schedulingGates"], Value::Null);
        assert_eq!(object["metadata"]["annotations"]["mine"], "kept");

        let patch = known.admit(version, &record(&["n3"]), Grant::All, Pin::Template);
        json_patch::patch(&mut object, &patch).expect("the patch applies");
        assert!(object["metadata"]["annotations"].get("sluice.dev/eviction").is_none());
    }
}

fn eviction(reason: &str) -> Eviction {
    let at = "2026-11-21T09:00:00Z".parse().expect("a time");
    Eviction::new(at, reason)
}

#[test]
fn an_eviction_for_a_fair_share_is_known_until_the_next_run_has_ended() {
    let metadata = |annotations: Value| -> ObjectMeta {
        serde_json::from_value(json!({"name": "x", "uid": "u", "annotations": annotations}))
            .expect("metadata")
    };
    let evicted_for_fair_share = |reason: &str| {
        let metadata =
            metadata(json!({"sluice.dev/eviction": serde_json::to_string(&eviction(reason)).expect("JSON")}));
        Requests::read(&metadata, None).evicted_for_fair_share
    };
    assert!(evicted_for_fair_share("FairShare"));
    assert!(!evicted_for_fair_share("Reclaimed"));
    assert!(!Requests::read(&metadata(json!({"sluice.dev/eviction": "{"})), None).evicted_for_fair_share);
    let admission = Admission { spared: true, ..Admission::from(&record(&["n1"])) };
    assert!(Admission::from(&Record::from(&admission)).spared);
}

#[test]
fn a_job_fails_in_its_status_with_a_reason() {
    let why = Failure {
        reason: "MaxWait",
        message: "too long",
        at: "2026-11-21T09:00:00.5Z".parse().expect("a time"),
    };
    let target = json!({
        "type": "FailureTarget", "status": "True", "reason": "MaxWait", "message": "too long",
        "lastProbeTime": "2026-11-21T09:00:00Z", "lastTransitionTime": "2026-11-21T09:00:00Z",
    });
    let suspended = json!({"type": "Suspended", "status": "True"});
    for (status, after) in [
        (json!({}), json!({"startTime": "2026-11-21T09:00:00Z", "conditions": [target]})),
        (
            json!({"startTime": "2026-11-21T08:00:00Z", "conditions": [suspended]}),
            json!({"startTime": "2026-11-21T08:00:00Z", "conditions": [suspended, target]}),
        ),
    ] {
        let mut object = held(&Value::Null);
        object["metadata"]["generation"] = json!(3);
        object["status"] = status;
        let (known, version, _) = read(&object);
        let patch = status_patch_of(known.fail(version, &why));
        assert!(is_versioned(&patch), "its controller writes its status too");
        json_patch::patch(&mut object, &patch).expect("the patch applies");
        assert_eq!(object["status"], after);
        let (known, _, state) = read(&object);
        assert_eq!((state, known.facts.failure.as_deref()), (Observed::Finished, Some("MaxWait")));
    }
}

#[test]
fn a_job_that_its_user_suspended_is_not_queued_again() {
    let mut object = held(&Value::Null);
    let (known, version, _) = read(&object);
    let patch = known.admit(version, &record(&["n1"]), Grant::All, Pin::Template);
    json_patch::patch(&mut object, &patch).expect("the patch applies");
    object["spec"]["suspend"] = json!(true);
    let (known, version, _) = read(&object);
    json_patch::patch(&mut object, &known.restore(version)).expect("the patch applies");
    assert_eq!(read(&object).2, Observed::OnHold);
}

#[test]
fn a_patch_applies_only_to_the_object_it_was_decided_on() {
    let mut object = held(&Value::Null);
    let (known, _, _) = read(&object);
    for patch in [known.admit(41, &record(&["n"]), Grant::All, Pin::Template), known.restore(41)] {
        let first = serde_json::to_value(&patch.0[0]).expect("an operation");
        assert_eq!(first, json!({"op": "add", "path": "/metadata/resourceVersion", "value": "41"}));
    }
    object["metadata"]["generation"] = json!(3);
    let (known, version, _) = read(&object);
    let patch = known.admit(version, &record(&["n"]), Grant::All, Pin::Template);
    object["metadata"]["resourceVersion"] = json!("99");
    assert!(json_patch::patch(&mut object.clone(), &patch).is_ok(), "only its status has changed");
    let mut namesake = object.clone();
    namesake["metadata"]["uid"] = json!("another");
    assert!(json_patch::patch(&mut namesake, &patch).is_err(), "another object of the same name");
    object["metadata"]["generation"] = json!(4);
    assert!(json_patch::patch(&mut object, &patch).is_err(), "its spec has changed");
}

#[test]
fn a_template_changed_by_its_user_is_counted_as_it_is_written() {
    let choices = json!([{"share": "1", "limits": {"nvidia.com/gpu": "1"}}, {"share": "0.4", "limits": {}}]);
    let mut object = held(&Value::Null);
    object["metadata"]["annotations"]["sluice.dev/gpu-sizes"] = choices.to_string().into();
    let containers = json!([{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]);
    object["spec"]["template"]["spec"]["containers"] = containers;
    let seen = job(&serde_json::from_value(object).expect("a Job"), Time(0));
    let managed = seen.managed.expect("managed");
    assert!(managed.workload.sizes.is_empty() && managed.job().expect("a Job").sizes.is_none());
    assert_eq!(managed.workload.shape.requests["nvidia.com/gpu"].as_milli(), 4000);
}
