//! Jobs with pods in every state on the way to their nodes.

use serde_json::{Value, json};

use super::*;
use crate::api::affinity::pinned;
use crate::api::names;
use crate::cluster::mirror::Change;
use crate::cluster::reduce::node::node;
use crate::cluster::table::Seen;
use crate::cluster::target::{job::job, pod::pod};
use crate::engine::types::Time;

const GPU: &str = "nvidia.com/gpu";

fn decode<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object")
}

/// Nodes of four GPUs each, closed where the name ends in an exclamation mark.
fn with_nodes(names: &[&str]) -> Mirror {
    let mut mirror = Mirror::default();
    for written in names {
        let name = written.trim_end_matches('!');
        let seen = node(&decode(json!({
            "metadata": {"name": name},
            "spec": {"unschedulable": name != *written},
            "status": {"allocatable": {GPU: "4"}, "conditions": [{"type": "Ready", "status": "True"}]},
        })));
        mirror.take(Change::Node(Seen::Object(name.into(), seen)));
    }
    mirror
}

/// A Job of pods with one GPU each, admitted to these nodes.
fn admitted(mirror: &mut Mirror, nodes: &[(&str, u32)], spec: Value) -> WorkloadId {
    let places: serde_json::Map<String, Value> =
        nodes.iter().map(|(node, pods)| ((*node).to_owned(), json!(pods))).collect();
    let pods: u32 = nodes.iter().map(|(_, pods)| pods).sum();
    let record = json!({"pool": "default", "nodes": places, "pods": pods, "borrowed": false,
        "at": "2026-11-21T08:00:00Z", "done": ""});
    let mut object = json!({
        "metadata": {"name": "j", "namespace": "ns", "uid": "job", "resourceVersion": "1",
            "annotations": {names::HELD: "true", names::ADMISSION: record.to_string()}},
        "spec": {"suspend": false, "parallelism": pods, "template": {"spec": {
            "schedulingGates": [{"name": names::GATE_PLACEMENT}],
            "containers": [{"name": "c", "resources": {"limits": {GPU: 1}}}]}}},
    });
    json_patch::merge(&mut object, &json!({"spec": spec}));
    let seen = job(&decode(object), Time(0));
    mirror.take(Change::Job(Seen::Object("job".into(), seen)));
    WorkloadId("job".into())
}

/// A pod of the Job, gated unless `change` removes the gate.
fn has_pod(mirror: &mut Mirror, name: &str, change: Value) {
    let mut object = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": true}]},
        "spec": {"containers": [], "schedulingGates": [{"name": names::GATE_PLACEMENT}]},
        "status": {"phase": "Pending"},
    });
    json_patch::merge(&mut object, &change);
    mirror.take(Change::Pod(Seen::Object(name.into(), pod(&decode(object)))));
}

fn bound(node: &str) -> Value {
    json!({"spec": {"nodeName": node, "schedulingGates": null}})
}

fn aimed(node: &str) -> Value {
    json!({"spec": {"affinity": pinned(None, &[node]), "schedulingGates": null}})
}

fn refused(node: &str) -> Value {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no free ports"});
    let mut pod = aimed(node);
    pod["status"]["conditions"] = json!([condition]);
    pod
}

fn ending(node: &str) -> Value {
    let mut pod = bound(node);
    pod["metadata"] = json!({"deletionTimestamp": "2026-11-21T09:00:00Z"});
    pod
}

fn due(mirror: &Mirror) -> Duties {
    duties(mirror, &WorkloadId("job".into()), &BTreeMap::new(), false)
}

fn seats(of: &[(&str, &str)]) -> Vec<(Name, Name)> {
    of.iter().map(|(pod, node)| ((*pod).into(), (*node).into())).collect()
}

fn counts(of: &[(&str, u32)]) -> BTreeMap<Name, u32> {
    of.iter().map(|(node, pods)| ((*node).into(), *pods)).collect()
}

/// The bound and the stuck pods by node, with the obstacle and how long it may last.
type Trouble = (BTreeMap<Name, u32>, BTreeMap<Name, u32>, String, Duration);

fn trouble(duties: Duties) -> Option<Trouble> {
    duties.trouble.map(|(astray, grace)| (astray.there, astray.stuck, astray.message, grace))
}

#[test]
fn waiting_pods_take_the_free_nodes() {
    let mut mirror = with_nodes(&["a", "b"]);
    let id = admitted(&mut mirror, &[("a", 2), ("b", 2)], json!({}));
    has_pod(&mut mirror, "p0", bound("a"));
    has_pod(&mut mirror, "p1", json!({}));
    has_pod(&mut mirror, "p2", aimed("b"));
    has_pod(&mut mirror, "p3", json!({}));
    assert_eq!(due(&mirror).seats, seats(&[("p1", "a"), ("p3", "b")]));
    let under_way = BTreeMap::from([("p3".into(), "a".into())]);
    let others = duties(&mirror, &id, &under_way, false);
    assert_eq!(others.seats, seats(&[("p1", "b")]), "a node that is being written counts");
    assert_eq!((others.remakes, others.trouble), (vec![], None));
}

#[test]
fn a_pod_with_an_index_goes_to_its_own_node_and_an_ending_pod_needs_none() {
    let mut mirror = with_nodes(&["a", "b"]);
    admitted(&mut mirror, &[("a", 1), ("b", 1)], json!({"completionMode": "Indexed"}));
    let numbered = json!({"metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": "1"}}});
    has_pod(&mut mirror, "p1", numbered);
    assert_eq!(due(&mirror).seats, seats(&[("p1", "b")]));
    has_pod(&mut mirror, "p2", ending("a"));
    has_pod(&mut mirror, "p3", json!({}));
    assert_eq!(due(&mirror).seats, seats(&[("p1", "b"), ("p3", "a")]));
    mirror.take(Change::Node(Seen::Deleted("b".into())));
    mirror.take(Change::Pod(Seen::Deleted("p3".into())));
    let duties = due(&mirror);
    assert_eq!(duties.seats, [], "node a is planned for another index");
    assert_eq!(duties.trouble.map(|(astray, _)| astray.stuck), Some(counts(&[("b", 1)])));
}

#[test]
fn a_pod_without_a_way_is_reported_unless_another_is_about_to_end_there() {
    let mut mirror = with_nodes(&["a", "b"]);
    admitted(&mut mirror, &[("a", 1), ("b", 1)], json!({}));
    has_pod(&mut mirror, "p0", bound("a"));
    has_pod(&mut mirror, "p1", aimed("b"));
    assert_eq!(trouble(due(&mirror)), None, "kube-scheduler has no message yet");
    has_pod(&mut mirror, "p2", refused("b"));
    mirror.take(Change::Pod(Seen::Deleted("p1".into())));
    let reported = (counts(&[("a", 1)]), counts(&[("b", 1)]), "no free ports".to_owned(), GRACE);
    assert_eq!(trouble(due(&mirror)), Some(reported));
    has_pod(&mut mirror, "old", ending("b"));
    assert_eq!(trouble(due(&mirror)), None);
}

#[test]
fn a_closed_or_missing_node_takes_no_pod() {
    for (nodes, said) in [(vec!["a", "b!"], "cordoned"), (vec!["a"], "gone")] {
        for change in [json!({}), aimed("b")] {
            let mut mirror = with_nodes(&nodes);
            admitted(&mut mirror, &[("a", 1), ("b", 1)], json!({}));
            has_pod(&mut mirror, "p0", bound("a"));
            has_pod(&mut mirror, "p1", change);
            let duties = due(&mirror);
            assert_eq!(duties.seats, []);
            let (there, stuck, message, grace) = trouble(duties).expect("it cannot go there");
            assert_eq!((there, stuck), (counts(&[("a", 1)]), counts(&[("b", 1)])));
            assert!(message.contains(said), "{message}");
            assert_eq!(grace, GRACE_CLOSED);
        }
    }
}

#[test]
fn a_pod_on_its_way_to_an_unplanned_node_is_replaced() {
    let mut mirror = with_nodes(&["a", "b", "c"]);
    admitted(&mut mirror, &[("a", 1), ("c", 1)], json!({}));
    has_pod(&mut mirror, "p0", bound("a"));
    has_pod(&mut mirror, "p1", refused("b"));
    let remake = |pod: &str, lost| vec![Remake { pod: pod.into(), lost }];
    let duties = due(&mirror);
    assert_eq!((duties.remakes, duties.trouble), (remake("p1", false), None));
    has_pod(&mut mirror, "p2", json!({}));
    assert_eq!(due(&mirror).remakes, [], "its controller is about to delete one");
    mirror.take(Change::Pod(Seen::Deleted("p1".into())));
    assert_eq!(due(&mirror).seats, seats(&[("p2", "c")]));

    mirror.take(Change::Node(Seen::Deleted("a".into())));
    assert_eq!(due(&mirror).remakes, [], "while the record has it there, the engine decides");
    let mut mirror = with_nodes(&["b", "c"]);
    admitted(&mut mirror, &[("b", 1), ("c", 1)], json!({}));
    has_pod(&mut mirror, "p0", bound("a"));
    has_pod(&mut mirror, "p2", bound("c"));
    assert_eq!(due(&mirror).remakes, remake("p0", true));
}

#[test]
fn pods_that_run_elsewhere_are_reported_or_replaced_if_a_decision_moved_them() {
    let mut mirror = with_nodes(&["a", "b", "c"]);
    let id = admitted(&mut mirror, &[("a", 1), ("c", 1)], json!({}));
    has_pod(&mut mirror, "p0", bound("a"));
    has_pod(&mut mirror, "p1", bound("b"));
    let there = counts(&[("a", 1), ("b", 1)]);
    assert_eq!(trouble(due(&mirror)), Some((there, counts(&[]), String::new(), GRACE)));
    let moved = duties(&mirror, &id, &BTreeMap::new(), true);
    assert_eq!(moved.remakes, [Remake { pod: "p1".into(), lost: false }]);
    assert_eq!(moved.trouble, None);
}

#[test]
fn the_template_pins_where_that_is_enough() {
    let pinned_by = |nodes: &[(&str, u32)], gpus: u32, spec: Value, annotations: Value, granted: u32| {
        let mirror = with_nodes(&["a", "b"]);
        let mut object = json!({
            "metadata": {"name": "j", "namespace": "ns", "uid": "job", "annotations": {names::HELD: "true"}},
            "spec": {"suspend": true, "parallelism": 4, "template": {"spec": {
                "containers": [{"name": "c", "resources": {"limits": {GPU: gpus}}}]}}},
        });
        json_patch::merge(&mut object, &json!({"spec": spec, "metadata": {"annotations": annotations}}));
        let managed = job(&decode(object), Time(0)).managed.expect("managed");
        let admission = Admission {
            pool: "default".into(),
            nodes: counts(nodes),
            pods: granted,
            borrowed: false,
            share: None,
            spared: false,
            unfunded: false,
            at: Time(0),
        };
        pin(&mirror, &managed, &admission)
    };
    let (none, by_number) = (json!({}), json!({"completionMode": "Indexed"}));
    let elastic = json!({"sluice.dev/min-parallelism": "1"});
    for (why, pin, expected) in [
        ("one node", pinned_by(&[("a", 4)], 1, by_number.clone(), none.clone(), 4), Pin::Template),
        ("full nodes", pinned_by(&[("a", 2), ("b", 2)], 2, none.clone(), none.clone(), 4), Pin::Template),
        ("uneven", pinned_by(&[("a", 3), ("b", 1)], 1, none.clone(), none.clone(), 4), Pin::OneByOne),
        (
            "indexes, which cost nothing and let pods be replaced one by one",
            pinned_by(&[("a", 2), ("b", 2)], 2, by_number.clone(), none.clone(), 4),
            Pin::OneByOne,
        ),
        ("elastic, with all", pinned_by(&[("a", 4)], 1, none.clone(), elastic.clone(), 4), Pin::OneByOne),
        ("elastic, may grow", pinned_by(&[("a", 2)], 1, none, elastic.clone(), 2), Pin::OneByOne),
        ("elastic with indexes", pinned_by(&[("a", 4)], 1, by_number, elastic, 4), Pin::OneByOne),
    ] {
        assert_eq!(pin, expected, "{why}");
    }
}
