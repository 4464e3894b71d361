//! The place of a pod of an Indexed Job, by its number, from what is known of the Job's admission.
//!
//! The pods of a Job that get their places one by one are made with a gate. Where the number tells the
//! place, it is written in here and the gate taken away, before the pod is ever stored. Whatever is not known
//! in time keeps its gate, and the leader lets it go.

use serde_json::Value;

use super::super::object::annotation;
use super::super::patch::Editor;
use super::super::view::View;
use crate::api::affinity::pinned;
use crate::api::names;

/// The annotation in which the Job controller writes a pod's number.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// Whether a pod waits for its place.
pub fn waits(pod: &Value) -> bool {
    gates(pod).iter().any(is_ours)
}

/// Lets a pod that its Job's controller makes go to its place, if that is known.
pub fn place(view: &View<'_>, editor: &mut Editor) {
    let pod = editor.object();
    let node = annotation(pod, INDEX).and_then(|index| index.parse().ok()).and_then(|index| {
        let job = owner(pod)?;
        view.places(job)?.node_of(index).cloned()
    });
    let Some(node) = node else { return };
    let affinity = pod["spec"].get("affinity");
    let led = pinned(affinity, &[&node]);
    let others: Vec<Value> = gates(pod).iter().filter(|gate| !is_ours(gate)).cloned().collect();
    editor.set(&["spec", "affinity"], led);
    if others.is_empty() {
        editor.remove(&["spec", "schedulingGates"]);
    } else {
        editor.set(&["spec", "schedulingGates"], Value::Array(others));
    }
}

fn gates(pod: &Value) -> &[Value] {
    pod["spec"]["schedulingGates"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn is_ours(gate: &Value) -> bool {
    gate["name"] == names::GATE_PLACEMENT
}

/// The UID of the Job that makes a pod.
fn owner(pod: &Value) -> Option<&str> {
    let owners = pod["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true && owner["kind"] == "Job")?["uid"].as_str()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::api::record::Record;
    use crate::api::seats::Seats;
    use crate::directory::Directory;
    use crate::webhook::testing::{Ask, ask, directory, with};

    const JOBS: &str = "system:serviceaccount:kube-system:job-controller";

    fn pod(index: u32, spec: Value) -> Value {
        let made = json!({
            "kind": "Pod",
            "metadata": {"generateName": "train-", "namespace": "ns", "annotations": {INDEX: index.to_string()},
                "ownerReferences": [{"kind": "Job", "name": "train", "uid": "job", "controller": true}]},
            "spec": {"containers": [], "schedulingGates": [{"name": "sluice.dev/placement"}]},
        });
        with(made, json!({"spec": spec}))
    }

    /// One pod on `a`, two on `b`.
    fn seats() -> Seats {
        Seats::of(&Record {
            pool: "p".into(),
            nodes: [("a".into(), 1), ("b".into(), 2)].into(),
            pods: 3,
            borrowed: false,
            at: "2026-11-21T08:00:00Z".parse().expect("a time"),
            wanted: None,
            share: None,
            group: None,
            done: Some(String::new()),
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
    async fn a_numbered_pod_goes_to_its_place_at_once() {
        for (index, node) in [(0, "a"), (1, "b"), (2, "b")] {
            let made = stored(index, json!({})).await;
            assert!(made["spec"].get("schedulingGates").is_none(), "{made}");
            assert_eq!(made["spec"]["affinity"], pinned(None, &[node]));
        }
    }

    #[tokio::test]
    async fn what_the_user_asks_of_nodes_and_foreign_gates_stay() {
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
    async fn a_pod_without_a_place_of_its_own_waits_for_the_leader() {
        let beyond = pod(3, json!({}));
        let answer = ask(Ask { user: JOBS, directory: knowing(), ..Ask::create(beyond) }).await;
        assert!(answer.allowed && !answer.patched, "more pods than granted");
        let unknown = Ask { user: JOBS, ..Ask::create(pod(0, json!({}))) };
        let answer = ask(unknown).await;
        assert!(answer.allowed && !answer.patched, "the admission has not been seen");
        let mut plain = pod(0, json!({}));
        plain["metadata"]["annotations"] = json!({});
        let answer = ask(Ask { user: JOBS, directory: knowing(), ..Ask::create(plain) }).await;
        assert!(answer.allowed && !answer.patched, "it has no number");
    }

    #[tokio::test]
    async fn a_pod_may_come_before_the_answer_to_its_jobs_admission() {
        let known = directory();
        known.places.expect(&"job".into(), seats());
        let create = |directory: &Directory| Ask {
            user: JOBS,
            directory: directory.clone(),
            ..Ask::create(pod(1, json!({})))
        };
        assert_eq!(ask(create(&known)).await.object["spec"]["affinity"], pinned(None, &["b"]));
        // What the record says counts more than what it was expected to say.
        known.places.put(&"job".into(), Some(&Arc::default()));
        assert!(!ask(create(&known)).await.patched);
        known.places.put(&"job".into(), None);
        known.places.settled(&"job".into());
        assert!(!ask(create(&known)).await.patched, "it was not admitted after all");
    }

    #[tokio::test]
    async fn only_the_job_controller_makes_pods_that_need_no_other_gate() {
        let answer = ask(Ask { directory: knowing(), ..Ask::create(pod(0, json!({}))) }).await;
        let gates = json!([{"name": "sluice.dev/placement"}, {"name": "sluice.dev/admission"}]);
        assert_eq!(answer.object["spec"]["schedulingGates"], gates, "a user's own is held as any other");
    }
}
