//! Counts of devices on nodes, in workloads and in pods.

use serde_json::{Value, json};

use super::*;
use crate::cluster::mirror::{Change, Mirror};
use crate::cluster::reduce;
use crate::cluster::reduce::team::NamespaceSeen;
use crate::cluster::target;
use crate::directory::Membership;
use crate::engine::types::amount::describe;
use crate::engine::types::{Event, Time};

const GPU: &str = "device.attributes['d'].type == 'gpu'";

fn class(name: &str, resource: Option<&str>, selector: &str) -> Change {
    let selectors = Some(vec![selector.to_owned()]);
    let seen = DeviceClassSeen { resource: resource.map(Name::from), selectors };
    Change::Devices(News::Class(Seen::Object(name.into(), seen)))
}

/// A slice of the node's own pool, with `gpus` GPUs and one device that is not a GPU.
fn slice(name: &str, node: &str, generation: i64, of: i64, gpus: usize) -> Change {
    let device = |kind: &str, index: usize| json!({"name": format!("{kind}-{index}"), "attributes": {"type": {"string": kind}}});
    let mut devices: Vec<Value> = (0..gpus).map(|index| device("gpu", index)).collect();
    devices.push(device("nic", 0));
    let object = json!({"metadata": {"name": name}, "spec": {
        "driver": "d", "nodeName": node, "devices": devices,
        "pool": {"name": node, "generation": generation, "resourceSliceCount": of},
    }});
    let seen = reduce::claims::slice(&serde_json::from_value(object).expect("a slice"));
    Change::Devices(News::Slice(Seen::Object(name.into(), seen)))
}

fn node(name: &str, allocatable: Value) -> Change {
    let object = json!({"metadata": {"name": name}, "status": {"allocatable": allocatable}});
    let seen = reduce::node::node(&serde_json::from_value(object).expect("a node"));
    Change::Node(Seen::Object(name.into(), seen))
}

fn template(name: &str, asked: &[(&str, u64)]) -> Change {
    let asked = asked.iter().map(|(class, count)| (Name::from(*class), *count)).collect();
    Change::Devices(News::Template(Seen::Object(key("ns", name), TemplateSeen { asked: Ok(asked) })))
}

fn claim(name: &str, asked: &[(&str, u64)], carrier: &str) -> Change {
    let asked = asked.iter().map(|(class, count)| (Name::from(*class), *count)).collect();
    let seen = ClaimSeen { asked: Ok(asked), carrier: Some(carrier.into()) };
    Change::Devices(News::Claim(Seen::Object(key("ns", name), seen)))
}

fn job(annotations: Value, suspend: bool, claims: Value, limits: Value) -> Change {
    let object = json!({
        "metadata": {"name": "j", "namespace": "ns", "uid": "job", "annotations": annotations},
        "spec": {"suspend": suspend, "template": {"spec": {
            "containers": [{"resources": {"limits": limits}}], "resourceClaims": claims,
        }}},
    });
    let seen = target::job::job(&serde_json::from_value(object).expect("a Job"), Time(0));
    Change::Job(Seen::Object(seen.uid.clone(), seen))
}

fn held(claims: Value, limits: Value) -> Change {
    job(json!({"sluice.dev/held": "true"}), true, claims, limits)
}

fn pod(uid: &str, claims: Value, made: Value) -> Change {
    let object = json!({
        "metadata": {"name": uid, "namespace": "ns", "uid": uid},
        "spec": {"nodeName": "n0", "containers": [{"resources": {"requests": {"cpu": 1}}}], "resourceClaims": claims},
        "status": {"resourceClaimStatuses": made},
    });
    let seen = target::pod::pod(&serde_json::from_value(object).expect("a pod"));
    Change::Pod(Seen::Object(seen.uid.clone(), seen))
}

fn labelled() -> Mirror {
    let mut mirror = Mirror::default();
    let membership = Some(Membership { team: "vision".into(), queue: None });
    mirror.take(Change::Namespace(Seen::Object(
        "ns".into(),
        NamespaceSeen { name: "ns".into(), membership, since: None },
    )));
    mirror
}

/// The amounts in the last event: of a node, a workload or a pod.
fn amounts(events: &[Event]) -> String {
    match events.last() {
        None => "nothing new".to_owned(),
        Some(Event::NodeApplied(node)) => format!("{} offers {}", node.name, describe(&node.allocatable)),
        Some(Event::PodApplied(pod)) => format!("{} holds {}", pod.id.0, describe(&pod.requests)),
        Some(Event::WorkloadApplied(workload)) => match &workload.state {
            Observed::Unready(Unready::Uncounted(why)) => why.to_string(),
            _ => format!("asks for {}", describe(&workload.shape.requests)),
        },
        Some(other) => format!("{other:?}"),
    }
}

#[test]
fn a_node_offers_the_devices_of_complete_pools_in_their_newest_generation() {
    let mut mirror = Mirror::default();
    mirror.take(class("gpu", Some("example.com/gpu"), GPU));
    mirror.take(slice("s0", "n0", 1, 1, 2));
    let mut after = |change| amounts(&mirror.take(change));
    assert_eq!(after(node("n0", json!({"cpu": 4}))), "n0 offers cpu 4, example.com/gpu 2");
    assert_eq!(after(node("n0", json!({"cpu": 4}))), "nothing new");
    assert_eq!(after(slice("s0", "n0", 2, 2, 3)), "n0 offers cpu 4", "one of two slices is missing");
    assert_eq!(after(slice("s1", "n0", 2, 2, 1)), "n0 offers cpu 4, example.com/gpu 4");
    assert_eq!(
        after(slice("s2", "n0", 3, 1, 8)),
        "n0 offers cpu 4, example.com/gpu 8",
        "the rest is out of date"
    );
    let gone = Change::Devices(News::Slice(Seen::Deleted("s2".into())));
    assert_eq!(after(gone), "n0 offers cpu 4, example.com/gpu 4");
    assert_eq!(
        after(node("n0", json!({"cpu": 4, "example.com/gpu": 1}))),
        "n0 offers cpu 4, example.com/gpu 1"
    );
    assert_eq!(after(slice("s3", "n0", 4, 1, 8)), "nothing new", "an amount in the node's own list stays");
}

#[test]
fn classes_define_which_devices_count_and_as_which_resource() {
    let mut mirror = Mirror::default();
    mirror.take(slice("s0", "n0", 1, 1, 2));
    let mut after = |change| amounts(&mirror.take(change));
    assert_eq!(after(node("n0", json!({"cpu": 4}))), "n0 offers cpu 4", "no class, no devices");
    assert_eq!(after(class("gpu", None, GPU)), "n0 offers cpu 4, deviceclass.resource.kubernetes.io/gpu 2");
    assert_eq!(after(class("gpu", Some("x/gpu"), GPU)), "n0 offers cpu 4, x/gpu 2");
    let any = after(class("any", None, "device.driver == 'd'"));
    assert_eq!(any, "n0 offers cpu 4, deviceclass.resource.kubernetes.io/any 3, x/gpu 2", "counted for each");
    assert_eq!(
        after(class("any", Some("x/gpu"), "device.driver == 'd'")),
        "n0 offers cpu 4, x/gpu 3",
        "or once"
    );
    assert_eq!(
        after(class("any", None, "unheardOf(device)")),
        "n0 offers cpu 4, x/gpu 2",
        "logged, not counted"
    );
    let gone = Change::Devices(News::Class(Seen::Deleted("gpu".into())));
    assert_eq!(after(gone), "n0 offers cpu 4");
}

#[test]
fn a_job_requests_the_devices_of_its_claims() {
    let mut mirror = labelled();
    let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
    let mut after = |change| amounts(&mirror.take(change));
    assert_eq!(after(held(claims.clone(), json!({"cpu": 2}))), "there is no ResourceClaimTemplate t");
    assert_eq!(after(template("t", &[("gpu", 2)])), "there is no DeviceClass gpu");
    assert_eq!(after(class("gpu", Some("x/gpu"), GPU)), "asks for cpu 2, x/gpu 2");
    assert_eq!(after(held(claims, json!({"cpu": 2, "x/gpu": 1}))), "asks for cpu 2, x/gpu 3", "both ways");
    let gone = Change::Devices(News::Template(Seen::Deleted(key("ns", "t"))));
    assert_eq!(after(gone), "there is no ResourceClaimTemplate t");
    assert_eq!(after(template("t", &[("gpu", 4)])), "asks for cpu 2, x/gpu 5");
    let shared = json!([{"name": "gpu", "resourceClaimName": "c"}]);
    assert!(after(held(shared, json!({}))).starts_with("ResourceClaim c is shared between pods"));
}

#[test]
fn a_class_requested_by_its_own_name_counts_as_its_resource() {
    let mut mirror = labelled();
    let mut after = |change| amounts(&mirror.take(change));
    let by_class = "deviceclass.resource.kubernetes.io/gpu";
    assert_eq!(after(held(json!([]), json!({by_class: 1}))), format!("asks for {by_class} 1"));
    assert_eq!(after(class("gpu", Some("x/gpu"), GPU)), "asks for x/gpu 1");
}

#[test]
fn a_running_job_keeps_its_count_when_its_template_is_deleted() {
    let mut mirror = labelled();
    mirror.take(class("gpu", Some("x/gpu"), GPU));
    mirror.take(template("t", &[("gpu", 2)]));
    let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
    let record = r#"{"pool":"p","nodes":{"n0":1},"pods":1,"borrowed":false,"at":"2026-11-21T08:00:00Z"}"#;
    let marks = json!({"sluice.dev/held": "true", "sluice.dev/admission": record});
    let running = || job(marks.clone(), false, claims.clone(), json!({"cpu": 1}));
    assert_eq!(amounts(&mirror.take(running())), "asks for cpu 1, x/gpu 2");
    let gone = Change::Devices(News::Template(Seen::Deleted(key("ns", "t"))));
    assert_eq!(amounts(&mirror.take(gone)), "nothing new");
    assert_eq!(amounts(&mirror.take(running())), "nothing new");
}

#[test]
fn a_pod_uses_the_devices_allocated_to_its_claims() {
    let mut mirror = labelled();
    mirror.take(class("gpu", Some("x/gpu"), GPU));
    mirror.take(template("t", &[("gpu", 2)]));
    let own = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
    let made = json!([{"name": "gpu", "resourceClaimName": "p-gpu-1"}]);
    let mut after = |change| amounts(&mirror.take(change));
    assert_eq!(after(pod("p", own.clone(), json!([]))), "p holds cpu 1, x/gpu 2");
    assert_eq!(after(pod("p", own, made)), "nothing new", "the claim itself is not known yet");
    assert_eq!(after(claim("p-gpu-1", &[("gpu", 3)], "p")), "p holds cpu 1, x/gpu 3");
    let gone = Change::Devices(News::Template(Seen::Deleted(key("ns", "t"))));
    assert_eq!(after(gone), "nothing new", "the claim says it all");
    // A shared claim is charged to its first pod.
    let shared = || json!([{"name": "gpu", "resourceClaimName": "c"}]);
    assert_eq!(after(claim("c", &[("gpu", 1)], "q")), "nothing new");
    assert_eq!(after(pod("q", shared(), json!([]))), "q holds cpu 1, x/gpu 1");
    assert_eq!(after(pod("r", shared(), json!([]))), "r holds cpu 1");
    let events = mirror.take(claim("c", &[("gpu", 1)], "r"));
    assert_eq!(
        (amounts(&events[..1]), amounts(&events)),
        ("q holds cpu 1".to_owned(), "r holds cpu 1, x/gpu 1".to_owned())
    );
}

#[test]
fn a_group_waits_for_the_template_of_its_pods() {
    let mut mirror = labelled();
    mirror.take(class("gpu", Some("x/gpu"), GPU));
    let object = json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "p", "labels": {"sluice.dev/group": "g"},
            "annotations": {"sluice.dev/group-size": "1"}},
        "spec": {"containers": [], "schedulingGates": [{"name": "sluice.dev/admission"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
    });
    let seen = target::pod::pod(&serde_json::from_value(object).expect("a pod"));
    let mut after = |change| amounts(&mirror.take(change));
    assert_eq!(after(Change::Pod(Seen::Object("p".into(), seen))), "there is no ResourceClaimTemplate t");
    assert_eq!(after(template("t", &[("gpu", 1)])), "asks for x/gpu 1");
}

#[test]
fn devices_that_share_counters_count_if_all_can_be_allocated_at_once() {
    let mut mirror = Mirror::default();
    mirror.take(class("gpu", Some("x/gpu"), GPU));
    mirror.take(class("part", Some("x/part"), "device.attributes['d'].type == 'part'"));
    let seen = |spec: Value| {
        let mut spec = spec;
        spec["driver"] = "d".into();
        spec["nodeName"] = "n0".into();
        spec["pool"] = json!({"name": "n0", "generation": 1, "resourceSliceCount": 2});
        let object = json!({"metadata": {"name": "s"}, "spec": spec});
        reduce::claims::slice(&serde_json::from_value(object).expect("a slice"))
    };
    let taken =
        |set: &str, memory: &str| json!([{"counterSet": set, "counters": {"memory": {"value": memory}}}]);
    let device = |kind: &str, number: usize, set: &str, memory: &str| {
        let name = format!("{kind}-{number}");
        json!({"name": name, "attributes": {"type": {"string": kind}}, "consumesCounters": taken(set, memory)})
    };
    let set = |name: &str| json!({"name": name, "counters": {"memory": {"value": "80Gi"}}});
    let devices = json!([
        device("gpu", 0, "g0", "80Gi"),
        device("gpu", 1, "g1", "80Gi"),
        device("part", 0, "g0", "40Gi"),
        device("part", 1, "g0", "40Gi"),
        device("part", 2, "g0", "20Gi"),
        device("part", 3, "g1", "40Gi"),
    ]);
    for (name, spec) in
        [("s0", json!({"sharedCounters": [set("g0"), set("g1")]})), ("s1", json!({"devices": devices}))]
    {
        mirror.take(Change::Devices(News::Slice(Seen::Object(name.into(), seen(spec)))));
    }
    // The first GPU cannot be split into all of its partitions at once.
    assert_eq!(amounts(&mirror.take(node("n0", json!({"cpu": 4})))), "n0 offers cpu 4, x/gpu 2, x/part 1");
}
