//! Sends pods to the nodes of their admission.
//!
//! A pod of an Indexed Job with a placement gate gets its node by its index. The node is written in and the gate
//! removed before the pod is stored. If the node is not known in time the gate stays, and the leader releases the pod.
//! A pod with the annotation `sluice.dev/nodes` gets those nodes as a node affinity.

use serde_json::Value;

use super::context::Context;
use super::object::{annotation, job_of};
use crate::api::affinity::{REQUIRED_TERMS, pinned};
use crate::api::names;
use crate::kinds::{Pointer, nodes_of};

/// The annotation with a pod's index, written by the Job controller.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Whether a pod has the placement gate.
pub fn has_gate(pod: &Value) -> bool {
    gates(pod).iter().any(is_placement_gate)
}

/// Writes the node of a Job's pod and removes its placement gate, if the node is known.
pub fn place(context: &mut Context<'_>) {
    let pod = context.object();
    let node = annotation(pod, INDEX).and_then(|index| index.parse().ok()).and_then(|index| {
        let job = job_of(pod)?;
        context.view.places(job)?.node_of(index).cloned()
    });
    let Some(node) = node else { return };
    let affinity = pinned(pod["spec"].get("affinity"), &[&node]);
    let others: Vec<Value> = gates(pod).iter().filter(|gate| !is_placement_gate(gate)).cloned().collect();
    context.draft.set(&Pointer::to(["spec", "affinity"]), affinity);
    let gates = Pointer::to(["spec", "schedulingGates"]);
    if others.is_empty() {
        context.draft.remove(&gates);
    } else {
        context.draft.set(&gates, Value::Array(others));
    }
}

/// Turns the annotation with the nodes of a pod into a node affinity, once.
pub fn apply_annotation(context: &mut Context<'_>) {
    let Some(nodes) = annotation(context.submitted, names::NODES) else { return };
    let nodes: Vec<&str> = nodes_of(nodes).collect();
    let affinity = &context.object()["spec"]["affinity"];
    let terms = affinity.pointer(REQUIRED_TERMS).and_then(Value::as_array);
    let names_node = |term: &Value| {
        let fields = term["matchFields"].as_array().into_iter().flatten();
        fields.into_iter().any(|field| field["key"] == "metadata.name")
    };
    if nodes.is_empty() || terms.is_some_and(|terms| terms.iter().all(names_node)) {
        return;
    }
    let affinity = pinned(Some(affinity), &nodes);
    context.draft.set(&Pointer::to(["spec", "affinity"]), affinity);
}

fn gates(pod: &Value) -> &[Value] {
    pod["spec"]["schedulingGates"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn is_placement_gate(gate: &Value) -> bool {
    gate["name"] == names::GATE_PLACEMENT
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::api::record::Record;
    use crate::api::seats::Seats;
    use crate::directory::Directory;
    use crate::webhook::test_client::{Ask, ask, directory, with};

    const JOBS: &str = "system:serviceaccount:kube-system:job-controller";

    fn pod(index: u32, spec: Value) -> Value {
        let made = json!({
            "kind": "Pod",
            "metadata": {"generateName": "train-", "namespace": "ns", "annotations": {INDEX: index.to_string()},
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job", "controller": true}]},
            "spec": {"containers": [], "schedulingGates": [{"name": "sluice.dev/placement"}]},
        });
        with(made, json!({"spec": spec}))
    }

    /// An admission of one pod on `a` and two on `b`.
    fn seats() -> Seats {
        Seats::of(&Record {
            pool: "p".into(),
            nodes: [("a".into(), 1), ("b".into(), 2)].into(),
            pods: 3,
            borrowed: false,
            at: "2026-11-21T08:00:00Z".parse().expect("a time"),
            wanted: None,
            share: None,
            spared: false,
            unfunded: false,
            group: None,
            done: Some(String::new()),
            failed: 0,
            room: String::new(),
        })
    }

    /// A directory that knows the Job.
    fn knowing() -> Directory {
        let directory = directory();
        directory.places.put(&"job".into(), Some(&Arc::new(seats())));
        directory
    }

    async fn stored(index: u32, spec: Value) -> Value {
        let answer = ask(Ask { user: JOBS, directory: knowing(), ..Ask::create(pod(index, spec)) }).await;
        assert!(answer.allowed, "{}", answer.message);
        answer.object
    }

    #[tokio::test]
    async fn a_pod_with_an_index_gets_its_node_at_create() {
        for (index, node) in [(0, "a"), (1, "b"), (2, "b")] {
            let made = stored(index, json!({})).await;
            assert!(made["spec"].get("schedulingGates").is_none(), "{made}");
            assert_eq!(made["spec"]["affinity"], pinned(None, &[node]));
        }
    }

    #[tokio::test]
    async fn the_users_affinity_and_other_gates_stay() {
        let zone = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]});
        let affinity = json!({
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [zone]}},
        });
        let gates = json!([{"name": "example.com/other"}, {"name": "sluice.dev/placement"}]);
        let spec = json!({"affinity": affinity, "nodeSelector": {"gpu": "yes"}, "schedulingGates": gates});
        let made = stored(0, spec).await;
        assert_eq!(made["spec"]["affinity"], pinned(Some(&affinity), &["a"]));
        assert_eq!(made["spec"]["nodeSelector"], json!({"gpu": "yes"}));
        assert_eq!(made["spec"]["schedulingGates"], json!([{"name": "example.com/other"}]));
    }

    #[tokio::test]
    async fn a_pod_without_a_known_node_keeps_its_gate() {
        let beyond = pod(3, json!({}));
        let answer = ask(Ask { user: JOBS, directory: knowing(), ..Ask::create(beyond) }).await;
        assert!(answer.allowed && !answer.patched, "more pods than granted");
        let unknown = Ask { user: JOBS, ..Ask::create(pod(0, json!({}))) };
        let answer = ask(unknown).await;
        assert!(answer.allowed && !answer.patched, "the admission has not been seen");
        let mut plain = pod(0, json!({}));
        plain["metadata"]["annotations"] = json!({});
        let answer = ask(Ask { user: JOBS, directory: knowing(), ..Ask::create(plain) }).await;
        assert!(answer.allowed && !answer.patched, "it has no index");
    }

    #[tokio::test]
    async fn a_pod_may_be_created_before_the_admission_is_confirmed() {
        let known = directory();
        known.places.expect(&"job".into(), seats());
        let create = |directory: &Directory| Ask {
            user: JOBS,
            directory: directory.clone(),
            ..Ask::create(pod(1, json!({})))
        };
        assert_eq!(ask(create(&known)).await.object["spec"]["affinity"], pinned(None, &["b"]));
        // The record overrides the expectation.
        known.places.put(&"job".into(), Some(&Arc::default()));
        assert!(!ask(create(&known)).await.patched);
        known.places.put(&"job".into(), None);
        known.places.settled(&"job".into());
        assert!(!ask(create(&known)).await.patched, "it was not admitted after all");
    }

    #[tokio::test]
    async fn a_pod_that_a_user_creates_gets_the_admission_gate_too() {
        let answer = ask(Ask { directory: knowing(), ..Ask::create(pod(0, json!({}))) }).await;
        let gates = json!([{"name": "sluice.dev/placement"}, {"name": "sluice.dev/admission"}]);
        assert_eq!(answer.object["spec"]["schedulingGates"], gates, "both gates");
    }
}
