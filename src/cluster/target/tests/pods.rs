//! Patches of pods: those without a Job, and those of a Job that get their nodes one by one.

use super::*;

fn pod_facts(managed: &Managed) -> &PodFacts {
    match &managed.target {
        Target::Pod(pod) => pod,
        other => panic!("not a pod: {other:?}"),
    }
}

#[test]
fn a_bare_pod_fails_by_its_kubelet_or_before_it_has_one() {
    let why = Failure { reason: "MaxRuntime", message: "too long", at: Timestamp::UNIX_EPOCH };
    let seen = |object: &Value| {
        let seen = pod(&serde_json::from_value(object.clone()).expect("a pod"));
        (seen.managed.expect("managed"), seen.version)
    };
    let object = |patch: Value| {
        let mut object = json!({"metadata": {"name": "p", "uid": "u", "resourceVersion": "5"}, "spec": {"containers": []}});
        json_patch::merge(&mut object, &patch);
        object
    };
    let mut waits =
        object(json!({"status": {}, "spec": {"schedulingGates": [{"name": names::GATE_ADMISSION}]}}));
    let (managed, version) = seen(&waits);
    json_patch::patch(&mut waits, &status_patch_of(managed.fail(version, &why))).expect("the patch applies");
    assert_eq!(waits["status"], json!({"phase": "Failed", "reason": "MaxRuntime", "message": "too long"}));
    let managed = seen(&waits).0;
    assert_eq!(managed.workload.state, Observed::Finished);
    assert_eq!(managed.facts.failure.as_deref(), Some("MaxRuntime"));

    let text = serde_json::to_string(&record(&["n1"])).expect("a record");
    let mut runs = object(json!({"metadata": {"annotations": {names::ADMISSION: text}}}));
    let (managed, version) = seen(&runs);
    json_patch::patch(&mut runs, &patch_of(managed.fail(version, &why))).expect("the patch applies");
    assert_eq!(runs["spec"]["activeDeadlineSeconds"], 1);
    let state = &seen(&runs).0.workload.state;
    assert!(matches!(state, Observed::Leaving { since: Time(0), stopped: true, .. }), "{state:?}");
}

#[test]
fn a_pod_to_be_deleted_first_is_not_ready() {
    let marks = delete_first(Timestamp::UNIX_EPOCH, "why");
    let kinds: Vec<_> = marks["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|condition| (condition["type"].as_str(), condition["status"].as_str()))
        .collect();
    assert_eq!(kinds, [(Some("DisruptionTarget"), Some("True")), (Some("Ready"), Some("False"))]);
}

#[test]
fn a_job_whose_pods_get_their_nodes_one_by_one_makes_them_with_a_gate() {
    let affinity = required(&json!([term("a")]));
    let mut object = held(&affinity);
    object["spec"]["completionMode"] = json!("Indexed");
    object["status"] = json!({"completedIndexes": "0-1", "failedIndexes": "4"});
    let own = json!({"name": "example.com/own"});
    object["spec"]["template"]["spec"]["schedulingGates"] = json!([own]);
    let (known, version, _) = read(&object);
    let wanted = spread(&[("n1", 2), ("n2", 1)]);
    let patch = known.admit(version, &wanted, Grant::All, Pin::OneByOne);
    json_patch::patch(&mut object, &patch).expect("the patch applies");
    let template = &object["spec"]["template"]["spec"];
    assert_eq!(template["affinity"], affinity, "the pods get their nodes later");
    assert_eq!(template["schedulingGates"], json!([own, {"name": names::GATE_PLACEMENT}]));
    assert!(object["metadata"]["annotations"].get(names::USER_AFFINITY).is_none());
    let (known, version, _) = read(&object);
    let nodes = |indexes: [u32; 4]| {
        let seats = known.seats().expect("each pod has its node");
        indexes.map(|index| seats.node_of(index).map_or("none", |node| &**node))
    };
    assert_eq!(nodes([2, 3, 5, 6]), ["n1", "n1", "n2", "none"], "the rest had ended before");

    let resized = known.resize(version, &spread(&[("n1", 1), ("n3", 2)]), Grant::All);
    json_patch::patch(&mut object, &resized).expect("the patch applies");
    let (known, version, _) = read(&object);
    let seats = known.seats().expect("its pods still get their nodes");
    assert_eq!(seats.node_of(2), None, "but not by their indexes, which may be on any node now");

    json_patch::patch(&mut object, &patch_of(known.evict(version, &eviction("NotPlaced"))))
        .expect("it applies");
    let (known, version, _) = read(&object);
    json_patch::patch(&mut object, &known.restore(version)).expect("the patch applies");
    assert_eq!(object["spec"]["template"]["spec"]["schedulingGates"], json!([own]));
}

#[test]
fn a_pod_gets_its_node_when_its_gate_is_removed() {
    let affinity = required(&json!([term("a"), {}]));
    let mut object = json!({
        "metadata": {"name": "j-0", "namespace": "ns", "uid": "p", "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}]},
        "spec": {"containers": [], "affinity": affinity, "schedulingGates": [
            {"name": "example.com/other"}, {"name": names::GATE_PLACEMENT}]},
    });
    let seen = pod(&serde_json::from_value(object.clone()).expect("a pod"));
    let way = seen.way.expect("a pod of a Job");
    assert!(way.waits() && way.aim.is_none());
    let patch = way.place(&seen.uid, "n1");
    json_patch::patch(&mut object, &patch).expect("the patch applies");
    assert_eq!(object["spec"]["schedulingGates"], json!([{"name": "example.com/other"}]));
    assert_eq!(object["spec"]["affinity"], pinned(Some(&affinity), &["n1"]));
    assert!(json_patch::patch(&mut object.clone(), &patch).is_err(), "it applies once");
    let after = pod(&serde_json::from_value(object).expect("a pod")).way.expect("a pod of a Job");
    assert_eq!((after.waits(), after.aim.as_deref()), (false, Some("n1")));
}

#[test]
fn a_bare_pod_loses_only_sluices_gate() {
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
        let patch = managed.admit(seen.version, &record(&["n1"]), Grant::All, Pin::Template);
        json_patch::patch(&mut object, &patch).expect("the patch applies");
        assert_eq!(object["spec"]["schedulingGates"], json!([{"name": "example.com/other"}]));
        assert_eq!(object["spec"]["affinity"], pinned(None, &["n1"]));
        let after = pod(&serde_json::from_value(object).expect("a pod")).managed.expect("managed");
        assert!(matches!(after.workload.state, Observed::Admitted(_)));
        assert_eq!(pod_facts(&after).user_affinity, None, "it cannot be queued again");
    }
}

/// A Job that is deleted with `--cascade=orphan` leaves pods that have no node yet with the gate of their placement.
#[test]
fn a_gated_pod_that_has_lost_its_job_waits_by_itself() {
    let mut object = json!({
        "metadata": {"name": "j-0", "namespace": "ns", "uid": "p", "resourceVersion": "5", "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true}]},
        "spec": {"containers": [], "schedulingGates": [
            {"name": names::GATE_PLACEMENT}, {"name": "example.com/other"}]},
    });
    let seen = |object: &Value| pod(&serde_json::from_value(object.clone()).expect("a pod"));
    assert!(seen(&object).managed.is_none(), "it is its Job's");
    object["metadata"]["ownerReferences"] = Value::Null;
    let orphan = seen(&object);
    assert!(orphan.way.is_none() && orphan.holds.is_none());
    let managed = orphan.managed.expect("managed");
    assert_eq!(managed.workload.state, Observed::Queued);
    let patch = managed.admit(orphan.version, &record(&["n1"]), Grant::All, Pin::Template);
    json_patch::patch(&mut object, &patch).expect("the patch applies");
    assert_eq!(object["spec"]["schedulingGates"], json!([{"name": "example.com/other"}]));
    assert!(matches!(seen(&object).managed.expect("managed").workload.state, Observed::Admitted(_)));
}
