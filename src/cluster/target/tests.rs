//! Patches applied to the objects they are meant for.

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

fn pod_facts(managed: &Managed) -> &PodFacts {
    match &managed.target {
        Target::Pod(pod) => pod,
        other => panic!("not a pod: {other:?}"),
    }
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

        let note = Eviction {
            at: "2026-11-21T09:00:00Z".parse().expect("a time"),
            preemptor: "b/y".into(),
            reason: "Reclaimed".into(),
        };
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

/// The bytes of all annotations, as the API server counts them.
fn annotated(object: &Value) -> usize {
    let all = object["metadata"]["annotations"].as_object().expect("annotations");
    all.iter().map(|(key, text)| key.len() + text.as_str().map_or(0, str::len)).sum()
}

#[test]
fn a_job_full_of_annotations_can_be_stopped_and_shrunk() {
    let mut object = held(&Value::Null);
    object["spec"]["parallelism"] = json!(4);
    object["metadata"]["annotations"]["sluice.dev/min-parallelism"] = json!("1");
    let (known, version, _) = read(&object);
    let patch = known.admit(version, &spread(&[("n1", 2), ("n2", 2)]), Grant::All, Pin::Template);
    json_patch::patch(&mut object, &patch).expect("the patch applies");
    let full = annotated(&object);
    let (known, version, _) = read(&object);
    let made = |patch: &Patch| {
        let mut object = object.clone();
        json_patch::patch(&mut object, patch).expect("the patch applies");
        assert!(annotated(&object) <= full, "{object}");
        object
    };

    let long = Eviction { preemptor: format!("{0}/{0}", "n".repeat(63)), ..eviction("Reclaimed") };
    let [short, bare] = known.smaller_evictions(version, &long).try_into().expect("two patches");
    let mut stopped = made(&short);
    let (known_now, version_now, state) = read(&stopped);
    assert!(matches!(state, Observed::Leaving { .. }));
    assert_eq!(known_now.facts.eviction.as_ref().map(|note| &*note.reason), Some("Reclaimed"));
    json_patch::patch(&mut stopped, &known_now.restore(version_now)).expect("the patch applies");
    assert_eq!(read(&stopped).2, Observed::Queued, "it is queued again");

    let (without, _, state) = read(&made(&bare));
    assert!(matches!(state, Observed::Leaving { .. }) && without.workload.hold, "as if by its user");

    let fewer = spread(&[("n1", 1)]);
    let (shrunk, _, state) = read(&made(&known.smaller_resize(version, &fewer).expect("a Job")));
    assert!(matches!(state, Observed::Admitted(admission) if admission.pods == 1));
    assert_eq!(shrunk.job().map(|job| (job.parallelism, job.wanted)), Some((1, 1)));
}

fn spread(nodes: &[(&str, u32)]) -> Record {
    let pods = nodes.iter().map(|(_, pods)| pods).sum();
    let nodes = nodes.iter().map(|(node, pods)| ((*node).to_owned(), *pods)).collect();
    Record { nodes, pods, ..record(&[]) }
}

fn eviction(reason: &str) -> Eviction {
    let at = "2026-11-21T09:00:00Z".parse().expect("a time");
    Eviction { at, preemptor: String::new(), reason: reason.into() }
}

#[test]
fn an_elastic_job_has_its_users_parallelism_back_when_it_is_restored() {
    let mut object = held(&Value::Null);
    object["metadata"]["annotations"]["sluice.dev/min-parallelism"] = json!("1");
    object["spec"]["parallelism"] = json!(4);
    let before = object.clone();
    let pods = |object: &Value| {
        let seen = job(&serde_json::from_value(object.clone()).expect("a Job"), Time(0));
        let workload = seen.managed.expect("managed").workload;
        (workload.pods, workload.min_pods, workload.resizable)
    };
    let admitted = |object: &Value| match read(object).2 {
        Observed::Admitted(admission) => admission.pods,
        other => panic!("not admitted: {other:?}"),
    };
    let apply = |object: &mut Value, patch: &Patch| json_patch::patch(object, patch).expect("it applies");
    assert_eq!(pods(&object), (4, Some(1), true));

    // It starts small, grows and shrinks again; the user's parallelism stays the same.
    let (known, version, _) = read(&object);
    apply(&mut object, &known.admit(version, &spread(&[("n1", 2)]), Grant::Part, Pin::Template));
    assert_eq!((object["spec"]["parallelism"].as_u64(), admitted(&object)), (Some(2), 2));
    for (grant, granted, written) in [(Grant::Part, 3, 3), (Grant::All, 4, 4), (Grant::Part, 1, 1)] {
        let (known, version, _) = read(&object);
        let patch = known.resize(version, &spread(&[("n1", granted)]), grant);
        apply(&mut object, &patch);
        assert_eq!(object["spec"]["parallelism"], written);
        assert_eq!((admitted(&object), pods(&object)), (granted, (4, Some(1), true)));
        assert!(json_patch::patch(&mut object.clone(), &patch).is_err(), "it applies once");
    }

    // While it runs its pods can only go to nodes in its template.
    let seen = job(&serde_json::from_value(object.clone()).expect("a Job"), Time(0));
    let terms = seen.managed.expect("managed").workload.shape.node_terms;
    assert_eq!(terms[0].fields[0].values, ["n1".into()]);

    // Its user may lower the parallelism for good.
    let mut lowered = object.clone();
    json_patch::merge(&mut lowered, &json!({"spec": {"parallelism": 0}}));
    assert_eq!(pods(&lowered).0, 0);

    let (known, version, _) = read(&object);
    apply(&mut object, &patch_of(known.evict(version, &eviction("NodeLost"))));
    assert_eq!(pods(&object).0, 4);
    let (known, version, _) = read(&object);
    apply(&mut object, &known.restore(version));
    let note = object["metadata"]["annotations"]["sluice.dev/eviction"].clone();
    assert_eq!(note, json!(r#"{"at":"2026-11-21T09:00:00Z","reason":"NodeLost"}"#), "without a preemptor");
    assert_eq!((object["spec"].clone(), read(&object).2), (expected_spec(&before), Observed::Queued));
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

/// A restored template has a null affinity where the user's had no such field.
fn expected_spec(before: &Value) -> Value {
    let mut spec = before["spec"].clone();
    spec["template"]["spec"]["affinity"] = Value::Null;
    spec
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
    let state = seen(&runs).0.workload.state;
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

#[test]
fn the_size_of_the_pods_follows_the_admission_and_is_the_first_again_after_restoring() {
    let choices = json!([
        {"share": "1", "limits": {"nvidia.com/gpu": "1"}},
        {"share": "0.4", "limits": {"nvidia.com/mig-3g.20gb": "1"}},
        {"share": "0.1", "limits": {}},
    ]);
    let limits = json!({"cpu": "4", "nvidia.com/gpu": 1});
    let mut before = held(&Value::Null);
    before["metadata"]["annotations"]["sluice.dev/gpu-sizes"] = choices.to_string().into();
    before["spec"]["template"]["spec"]["containers"] =
        json!([{"name": "c", "resources": {"limits": limits}}]);
    let limits =
        |object: &Value| object["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"].clone();
    for (share, expected) in [
        (None, json!({"cpu": "4", "nvidia.com/gpu": 1})),
        (Some("0.4"), json!({"cpu": "4", "nvidia.com/mig-3g.20gb": "1"})),
        (Some("0.1"), json!({"cpu": "4"})),
    ] {
        let mut object = before.clone();
        let (known, version, _) = read(&object);
        let granted = Record { share: share.map(ToOwned::to_owned), ..record(&["n1"]) };
        let patch = known.admit(version, &granted, Grant::All, Pin::Template);
        json_patch::patch(&mut object, &patch).expect("the patch applies");
        assert_eq!(limits(&object), expected, "{share:?}");

        let seen = job(&serde_json::from_value(object.clone()).expect("a Job"), Time(0));
        let workload = seen.managed.expect("managed").workload;
        let Observed::Admitted(admission) = &workload.state else { panic!("{:?}", workload.state) };
        assert_eq!(admission.share.map(crate::api::sizes::written).as_deref(), share);
        assert_eq!(workload.shape.requests["nvidia.com/gpu"].as_milli(), 1000, "the most wanted size stays");
        assert_eq!(workload.sizes.len(), 3);
        let held = workload.requests();
        let gpu = held.get("nvidia.com/gpu").map(|amount| amount.as_milli());
        let mig = held.get("nvidia.com/mig-3g.20gb").map(|amount| amount.as_milli());
        let expected = match share {
            None => (Some(1000), None),
            Some("0.4") => (None, Some(1000)),
            Some(_) => (Some(100), None),
        };
        assert_eq!((gpu, mig), expected);

        object["spec"]["suspend"] = true.into();
        let (known, version, _) = read(&object);
        json_patch::patch(&mut object, &known.restore(version)).expect("the patch applies");
        let again = limits(&object);
        assert_eq!(again["cpu"], "4");
        assert_eq!(again["nvidia.com/gpu"].as_str().unwrap_or("1"), "1");
        assert_eq!(again.as_object().map(serde_json::Map::len), Some(2));
    }
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
