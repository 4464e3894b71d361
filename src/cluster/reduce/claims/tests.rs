//! Claims, templates and slices, converted.

use serde_json::{Value, json};

use super::*;
use crate::cluster::wire;

fn spec(requests: Value) -> Value {
    json!({"devices": {"requests": requests}})
}

fn of_template(requests: Value) -> Asked {
    let object = json!({"metadata": {"name": "t"}, "spec": {"spec": spec(requests)}});
    template(&serde_json::from_value(object).expect("a template")).asked
}

#[test]
fn exact_requests_add_up_by_class() {
    let asked = of_template(json!([
        {"name": "a", "exactly": {"deviceClassName": "gpu"}},
        {"name": "b", "exactly": {"deviceClassName": "nic", "allocationMode": "ExactCount", "count": 2}},
        {"name": "look", "exactly": {"deviceClassName": "gpu", "adminAccess": true}},
    ]));
    assert_eq!(asked, Ok(vec![("gpu".into(), 1), ("nic".into(), 2)]));
}

#[test]
fn a_request_without_a_fixed_number_says_why() {
    for (request, why) in [
        (json!({"name": "a", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}), "all devices"),
        (json!({"name": "a", "firstAvailable": [{"name": "x", "deviceClassName": "gpu"}]}), "alternatives"),
        (json!({"name": "a", "exactly": {"deviceClassName": "gpu", "allocationMode": "Some"}}), "mode Some"),
    ] {
        let asked = of_template(json!([request])).expect_err("it has no number");
        assert!(asked.contains(why), "{asked}");
    }
}

#[test]
fn an_allocated_claim_counts_by_its_devices() {
    let requests = json!([
        {"name": "any", "firstAvailable": [
            {"name": "large", "deviceClassName": "h100"}, {"name": "small", "deviceClassName": "a100"}]},
        {"name": "all", "exactly": {"deviceClassName": "nic", "allocationMode": "All"}},
        {"name": "look", "exactly": {"deviceClassName": "nic", "adminAccess": true}},
    ]);
    let result = |request: &str, device: &str| json!({"request": request, "driver": "d", "pool": "p", "device": device});
    let mut look = result("look", "n0");
    look["adminAccess"] = true.into();
    let mut object = json!({"metadata": {"name": "c"}, "spec": spec(requests)});
    let read = |object: &Value| claim(&serde_json::from_value(object.clone()).expect("a claim"));
    assert!(read(&object).asked.is_err(), "nothing is allocated yet");
    object["status"] = json!({
        "allocation": {"devices": {"results": [result("any/small", "g0"), result("all", "n0"), result("all", "n1"), look]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u1"}, {"resource": "pods", "name": "q", "uid": "u2"}],
    });
    let seen = read(&object);
    assert_eq!(seen.asked, Ok(vec![("a100".into(), 1), ("nic".into(), 1), ("nic".into(), 1)]));
    assert_eq!(seen.carrier.as_deref(), Some("u1"));
}

#[test]
fn a_pod_claims_from_templates_and_by_name() {
    let pod: wire::Pod = serde_json::from_value(json!({
        "metadata": {"name": "p"},
        "spec": {"resourceClaims": [
            {"name": "own", "resourceClaimTemplateName": "t"}, {"name": "ours", "resourceClaimName": "c"}]},
        "status": {"resourceClaimStatuses": [{"name": "own", "resourceClaimName": "p-own-x1"}]},
    }))
    .expect("a pod");
    let own = PodClaim { template: Some("t".into()), shared: None, made: Some("p-own-x1".into()) };
    let ours = PodClaim { template: None, shared: Some("c".into()), made: None };
    assert_eq!(claims(&pod.spec, Some(&pod.status)), [own, ours]);
}

#[test]
fn only_pods_with_claims_or_class_resources_are_counted_again() {
    let list =
        |name: &str| ResourceList::from([(Name::from(name), crate::engine::types::amount::Amount::units(1))]);
    assert_eq!(Claims::of_template(&"a".into(), vec![Vec::new()], &list("nvidia.com/gpu"), &[]), None);
    let by_class = list("deviceclass.resource.kubernetes.io/gpu");
    assert!(Claims::of_template(&"a".into(), vec![Vec::new()], &by_class, &[]).is_some());
}

#[test]
fn a_slice_keeps_the_devices_that_can_be_allocated() {
    let object = json!({"metadata": {"name": "s"}, "spec": {
        "driver": "d", "nodeName": "n0", "pool": {"name": "n0", "generation": 3, "resourceSliceCount": 2},
        "devices": [
            {"name": "good", "attributes": {"type": {"string": "gpu"}, "index": {"int": 2}},
                "capacity": {"memory": {"value": "80Gi"}}, "taints": [{"key": "k", "effect": "None"}]},
            {"name": "broken", "taints": [{"key": "k", "effect": "NoExecute"}]},
            {"name": "part", "consumesCounters": [{"counterSet": "c", "counters": {"memory": {"value": "10Gi"}}}]},
        ],
    }});
    let seen = slice(&serde_json::from_value(object).expect("a slice"));
    assert_eq!((&*seen.pool.0, seen.generation, seen.of, seen.node.as_deref()), ("d", 3, 2, Some("n0")));
    assert_eq!(seen.devices.len(), 2);
    assert_eq!(
        seen.devices[1].takes[&("c".to_owned(), "memory".to_owned())],
        Amount::parse("10Gi").expect("10Gi")
    );
    assert_eq!(seen.devices[0].attributes["type"], Attribute::Text("gpu".into()));
    assert_eq!(seen.devices[0].capacity["memory"], "80Gi");
}
