//! Stored objects above a cap: they wait with the cap as their reason, and little of them is kept. What was admitted
//! stays charged.

use kube::core::DynamicObject;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::api::caps::Caps;
use crate::api::names;
use crate::cluster::target::custom::custom;
use crate::cluster::target::job::job;
use crate::cluster::target::pod::pod;
use crate::cluster::target::{Managed, Pin};
use crate::engine::types::{Observed, Time, Unready};
use crate::kinds::Kinds;

fn terms(prefix: &str, many: usize) -> Value {
    let term = |index: usize| json!({"matchExpressions": [{"key": format!("{prefix}{index}"), "operator": "Exists"}]});
    let terms: Vec<Value> = (0..many).map(term).collect();
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

fn limits(many: usize) -> Value {
    let limits: serde_json::Map<String, Value> =
        (0..many).map(|index| (format!("x.y/r{index}"), "1".into())).collect();
    json!({"containers": [{"resources": {"limits": limits}}]})
}

fn gates(many: usize) -> Value {
    json!({"containers": [], "schedulingGates": (0..many).map(|index| json!({"name": format!("g{index}")})).collect::<Vec<_>>()})
}

fn held(spec: Value) -> Value {
    json!({"metadata": {"uid": "u", "annotations": {names::HELD: "true"}}, "spec": spec})
}

fn job_of(template: Value) -> Value {
    held(json!({"suspend": true, "parallelism": 1, "template": {"spec": template}}))
}

fn read_job(object: Value) -> Managed {
    let mut managed =
        job(&serde_json::from_value(object).expect("a Job"), Time(0)).managed.expect("it is held");
    managed.keep_within(&Caps::default());
    *managed
}

fn read_pod(mut spec: Value) -> Managed {
    let gate = json!({"name": names::GATE_ADMISSION});
    match spec["schedulingGates"].as_array_mut() {
        Some(gates) => gates.push(gate),
        None => spec["schedulingGates"] = json!([gate]),
    }
    let object = json!({"metadata": {"uid": "u"}, "spec": spec});
    let mut managed = pod(&serde_json::from_value(object).expect("a pod")).managed.expect("it is gated");
    managed.keep_within(&Caps::default());
    *managed
}

fn read_set(roles: Vec<Value>) -> Managed {
    let kinds = Kinds::default();
    let watched = kinds.watched().iter().find(|watched| watched.resource.kind == "JobSet").expect("JobSet");
    let mut object = held(json!({"suspend": true, "replicatedJobs": roles}));
    object["apiVersion"] = "jobset.x-k8s.io/v1alpha2".into();
    object["kind"] = "JobSet".into();
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    let mut managed = custom(watched, &object, Time(0)).managed.expect("it is held");
    managed.keep_within(&Caps::default());
    *managed
}

fn role(name: &str, pod: &Value) -> Value {
    json!({"name": name, "template": {"spec": {"template": {"spec": pod}}}})
}

/// The reason for which it waits; `None` if it is queued.
fn reason(managed: &Managed) -> Option<String> {
    match &managed.workload.state {
        Observed::Queued => None,
        Observed::Unready(Unready::Uncounted(why)) => Some(why.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stored_object_above_a_cap_waits_with_that_reason() {
    let affine = |many| json!({"containers": [], "affinity": terms("k", many)});
    for (at, over, flag) in [
        (affine(64), affine(65), "--max-affinity-terms"),
        (limits(32), limits(33), "--max-resource-names"),
        (gates(16), gates(17), "--max-scheduling-gates"),
    ] {
        for read in [|spec| read_job(job_of(spec)), read_pod] {
            assert_eq!(reason(&read(at.clone())), None);
            let waits = read(over.clone());
            assert!(reason(&waits).is_some_and(|why| why.ends_with(flag)), "{flag}: {waits:?}");
            assert!(format!("{waits:?}").len() < 2_000, "little is kept: {waits:?}");
        }
        let set = |pod: &Value| read_set(vec![role("a", pod)]);
        assert_eq!(reason(&set(&at)), None);
        assert!(reason(&set(&over)).is_some_and(|why| why.ends_with(flag)), "{flag}");
    }
    for (pods, over) in [(10_000, false), (10_001, true), (2_147_483_647, true)] {
        let mut object = job_of(limits(1));
        object["spec"]["parallelism"] = pods.into();
        let waits = read_job(object);
        assert_eq!(reason(&waits).is_some(), over, "{pods} pods");
        assert!(waits.workload.pods <= 10_000);
    }
}

#[test]
fn an_admitted_job_above_a_cap_is_charged_as_it_was_admitted() {
    let record = json!({"pool": "default", "nodes": {"n": 1}, "pods": 1, "borrowed": false, "at": "2026-11-22T00:00:00Z"});
    let mut object = job_of(limits(40));
    object["spec"]["suspend"] = false.into();
    object["metadata"]["annotations"] = json!({names::HELD: "true", names::ADMISSION: record.to_string()});
    let runs = read_job(object);
    assert!(matches!(runs.workload.state, Observed::Admitted(_)), "{:?}", runs.workload.state);
    assert_eq!(runs.workload.shape.requests.len(), 40);
}

#[test]
fn terms_are_repeated_for_no_more_nodes_than_an_admission_may_write() {
    let with = |many| read_job(job_of(json!({"containers": [], "affinity": terms("k", many)})));
    assert_eq!(with(64).too_many_terms(31, Pin::Template), None);
    assert_eq!(
        with(64).too_many_terms(32, Pin::Template).as_deref(),
        Some(
            "its 64 node affinity terms on 32 nodes make 2048, more than the 2000 that an admission may write"
        )
    );
    assert_eq!(with(64).too_many_terms(32, Pin::OneByOne), None, "each pod gets one node");
    assert_eq!(with(0).too_many_terms(1250, Pin::Template), None);
    let values: Vec<String> = (0..900).map(|value| format!("{value:060}")).collect();
    let term = json!({"matchExpressions": [{"key": "k", "operator": "In", "values": values}]});
    let large = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}});
    let large = read_job(job_of(json!({"containers": [], "affinity": large})));
    assert_eq!(large.too_many_terms(10, Pin::Template), None);
    assert!(large.too_many_terms(100, Pin::Template).is_some_and(|why| why.contains("bytes of affinity")));
}

#[test]
fn the_terms_of_roles_are_never_multiplied_beyond_what_could_be_written() {
    let pod = |prefix: &str| json!({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}], "affinity": terms(prefix, 3000)});
    let waits = read_set(vec![role("a", &pod("a")), role("b", &pod("b"))]);
    assert_eq!(
        reason(&waits).as_deref(),
        Some("it has 9000000 required node affinity terms, more than the 64 of --max-affinity-terms")
    );
    assert!(format!("{waits:?}").len() < 3_000, "{waits:?}");
    // One term each, with many values: few terms, and too many requirements.
    let values: Vec<String> = (0..9000).map(|value| value.to_string()).collect();
    let one = |key: &str| {
        let term = json!({"matchExpressions": [{"key": key, "operator": "In", "values": values}]});
        let many: Vec<&Value> = std::iter::repeat_n(&term, 2).collect();
        json!({"containers": [], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": many}}}})
    };
    let waits = read_set(vec![role("a", &one("a")), role("b", &one("b"))]);
    assert!(reason(&waits).is_some_and(|why| why.contains("requirements")), "{:?}", reason(&waits));
}

#[test]
fn the_requests_of_pods_that_ride_along_are_multiplied_and_not_added_one_by_one() {
    let gpu = json!({"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]});
    let cpu = json!({"containers": [{"resources": {"requests": {"cpu": "1"}}}]});
    let mut many = role("launcher", &cpu);
    many["replicas"] = 4_000_000_000u32.into();
    let waits = read_set(vec![role("worker", &gpu), many]);
    assert_eq!(reason(&waits).as_deref(), Some("it has 4000000001 pods, more than the 10000 of --max-pods"));
}

/// A JSON value that is about where and what the fields of a pod are.
fn near_real() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!("1")),
        Just(json!("9E99")),
        Just(json!("-1")),
        "[a-z./0-9]{0,12}".prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "containers",
        "initContainers",
        "resources",
        "requests",
        "limits",
        "affinity",
        "nodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms",
        "matchExpressions",
        "matchFields",
        "key",
        "operator",
        "values",
        "tolerations",
        "nodeSelector",
        "schedulingGates",
        "name",
        "overhead",
        "resourceClaims",
        "restartPolicy",
        "terminationGracePeriodSeconds",
        "cpu",
        "nvidia.com/gpu",
        "replicas",
        "template",
        "spec",
        "parallelism",
        "completions",
        "replicatedJobs",
        "suspend",
    ]);
    leaf.prop_recursive(8, 200, 12, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..12).prop_map(Value::from),
            prop::collection::btree_map(key.clone().prop_map(str::to_owned), inner, 0..10)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whatever_a_user_writes_is_read_in_bounded_space(spec in near_real(), roles in prop::collection::vec(near_real(), 0..6)) {
        let object = json!({"metadata": {"uid": "u", "annotations": {names::HELD: "true"}}, "spec": spec});
        let size = |managed: &Managed| format!("{managed:?}").len();
        let most = 20_000 + 20 * object.to_string().len();
        if let Ok(written) = serde_json::from_value(object.clone()) {
            let mut seen = job(&written, Time(0));
            if let Some(managed) = seen.managed.as_deref_mut() {
                managed.keep_within(&Caps::default());
                prop_assert!(size(managed) < most);
                prop_assert!(managed.workload.pods <= 10_000 || reason(managed).is_none());
            }
        }
        if let Ok(written) = serde_json::from_value(object) {
            let seen = pod(&written);
            if let Some(mut managed) = seen.managed {
                managed.keep_within(&Caps::default());
                prop_assert!(size(&managed) < most);
            }
        }
        let written: usize = roles.iter().map(|role| role.to_string().len()).sum();
        let managed = read_set(roles);
        prop_assert!(size(&managed) < 20_000 + 20 * written);
    }
}

#[test]
fn a_stored_workload_without_room_for_its_record_waits() {
    let noted = |bytes: usize, affinity: usize| {
        let spec = json!({"containers": [], "affinity": {"nodeAffinity": {"x": "x".repeat(affinity)}}});
        let mut object = job_of(spec);
        object["metadata"]["annotations"]["n"] = "x".repeat(bytes).into();
        reason(&read_job(object))
    };
    assert_eq!(noted(130_000, 60_000), None);
    for (bytes, affinity) in [(196_700, 10), (140_000, 60_000)] {
        let why = noted(bytes, affinity).expect("it waits");
        assert!(
            why.contains("bytes of annotations and affinity, more than the 196608 of one object"),
            "{why}"
        );
    }
}
