//! Patches applied to the objects they are meant for.

use std::collections::BTreeMap;

use super::*;
use crate::cluster::reduce::{job::job, pod::pod};
use crate::engine::model::{Observed, Time};

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

fn facts(object: &Value) -> (Facts, u64, Observed) {
    let seen = job(&serde_json::from_value(object.clone()).expect("a Job"), Time(0));
    let managed = seen.managed.expect("managed");
    (managed.facts, seen.version, managed.workload.state)
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
        required(&json!([with("a", "n1"), with("a", "n2"), with("b", "n1"), with("b", "n2")])),
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
    let both = super::pinned(Some(&fields), &["n2"]);
    let fields = both.pointer(&format!("{REQUIRED_TERMS}/0/matchFields")).expect("fields");
    assert_eq!(fields.as_array().map(Vec::len), Some(2), "a pin of the user's own stays");
}

#[test]
fn a_job_goes_through_admission_and_eviction_and_is_its_users_again() {
    for affinity in [Value::Null, required(&json!([term("a")])), json!({"podAffinity": {"x": [1, 2]}})] {
        let before = held(&affinity);
        let mut object = before.clone();

        let (known, version, _) = facts(&object);
        let patch = admit(WorkloadKind::Job, &known, version, &record(&["n1", "n2"]));
        json_patch::patch(&mut object, &patch).expect("the patch applies");
        assert_eq!(object["spec"]["suspend"], false);
        let (known, version, state) = facts(&object);
        assert!(matches!(&state, Observed::Admitted(admission) if admission.nodes.len() == 2));
        assert_eq!(known.user_affinity.is_some(), !affinity.is_null());

        let note = Eviction {
            at: "2026-11-21T09:00:00Z".parse().expect("a time"),
            claimant: "b/y".into(),
            reason: "Reclaimed".into(),
        };
        json_patch::patch(&mut object, &evict(&known, version, &note)).expect("the patch applies");
        let (known, version, state) = facts(&object);
        assert!(matches!(state, Observed::Leaving { stopped: false, .. }));

        json_patch::patch(&mut object, &restore(&known, version)).expect("the patch applies");
        let (known, version, state) = facts(&object);
        assert_eq!(state, Observed::Queued);
        let template = &object["spec"]["template"]["spec"];
        assert_eq!(template["affinity"], affinity, "exactly what the user wrote");
        assert_eq!(object["metadata"]["annotations"]["mine"], "kept");

        let patch = admit(WorkloadKind::Job, &known, version, &record(&["n3"]));
        json_patch::patch(&mut object, &patch).expect("the patch applies");
        assert!(object["metadata"]["annotations"].get("sluice.dev/eviction").is_none());
    }
}

#[test]
fn what_its_user_stopped_is_not_queued_again() {
    let mut object = held(&Value::Null);
    let (known, version, _) = facts(&object);
    let patch = admit(WorkloadKind::Job, &known, version, &record(&["n1"]));
    json_patch::patch(&mut object, &patch).expect("the patch applies");
    object["spec"]["suspend"] = json!(true);
    let (known, version, _) = facts(&object);
    json_patch::patch(&mut object, &restore(&known, version)).expect("the patch applies");
    assert_eq!(facts(&object).2, Observed::OnHold);
}

#[test]
fn a_patch_insists_on_what_it_was_decided_on() {
    let mut object = held(&Value::Null);
    let (known, _, _) = facts(&object);
    for patch in [admit(WorkloadKind::Job, &known, 41, &record(&["n"])), restore(&known, 41)] {
        let first = serde_json::to_value(&patch.0[0]).expect("an operation");
        assert_eq!(first, json!({"op": "add", "path": "/metadata/resourceVersion", "value": "41"}));
    }
    object["metadata"]["generation"] = json!(3);
    let (known, version, _) = facts(&object);
    let patch = admit(WorkloadKind::Job, &known, version, &record(&["n"]));
    object["metadata"]["resourceVersion"] = json!("99");
    assert!(json_patch::patch(&mut object.clone(), &patch).is_ok(), "only its status has changed");
    let mut namesake = object.clone();
    namesake["metadata"]["uid"] = json!("another");
    assert!(json_patch::patch(&mut namesake, &patch).is_err(), "it only has its name");
    object["metadata"]["generation"] = json!(4);
    assert!(json_patch::patch(&mut object, &patch).is_err(), "its spec has changed");
}

#[test]
fn a_bare_pod_loses_only_our_gate() {
    for annotations in [Value::Null, json!({"mine": "kept"})] {
        let mut object = json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "resourceVersion": "5"},
            "spec": {"containers": [], "schedulingGates": [
                {"name": names::GATE_ADMISSION}, {"name": "example.com/other"}]},
        });
        if !annotations.is_null() {
            object["metadata"]["annotations"] = annotations;
        }
        let seen = pod(&serde_json::from_value(object.clone()).expect("a pod"));
        let managed = seen.managed.expect("managed");
        let patch = admit(WorkloadKind::Pod, &managed.facts, seen.version, &record(&["n1"]));
        json_patch::patch(&mut object, &patch).expect("the patch applies");
        assert_eq!(object["spec"]["schedulingGates"], json!([{"name": "example.com/other"}]));
        assert_eq!(object["spec"]["affinity"], pinned(None, &["n1"]));
        let after = pod(&serde_json::from_value(object).expect("a pod")).managed.expect("managed");
        assert!(matches!(after.workload.state, Observed::Admitted(_)));
        assert_eq!(after.facts.user_affinity, None, "it cannot be queued again");
    }
}

#[test]
fn a_patch_that_does_not_apply_is_told_from_an_invalid_result() {
    let answer = |code: u16, reason: &str, details: Value| -> Status {
        serde_json::from_value(
            json!({"status": "Failure", "code": code, "reason": reason, "message": "m", "details": details}),
        )
        .expect("a status")
    };
    let cause =
        json!({"reason": "FieldValueInvalid", "message": "field is immutable", "field": "spec.template"});
    let invalid = json!({"name": "j", "group": "batch", "kind": "Job", "causes": [cause]});
    assert!(does_not_apply(&answer(422, "Invalid", json!({}))), "as Kubernetes 1.36 answers");
    assert!(!does_not_apply(&answer(409, "Conflict", json!({"name": "j"}))));
    assert!(!does_not_apply(&answer(422, "Invalid", invalid)));
    assert!(!does_not_apply(&answer(403, "Forbidden", json!({"name": "j"}))));
}
