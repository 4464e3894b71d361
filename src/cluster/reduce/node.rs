//! A node as the engine sees it.

use super::super::wire;
use super::shape::{names, offered};
use super::{instant, name};
use crate::engine::types::{Node, Taint, Time};

/// Converts a node.
#[must_use]
pub fn node(node: &wire::Node) -> Node {
    let ready = node.status.conditions.as_deref().unwrap_or_default();
    let ready = ready.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let taints = node.spec.taints.as_deref().unwrap_or_default().iter();
    Node {
        name: name(node.metadata.name.as_ref()),
        labels: names(node.metadata.labels.as_ref()),
        allocatable: offered(node.status.allocatable.as_ref()),
        taints: taints
            .filter(|taint| matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute"))
            .map(|taint| Taint {
                key: taint.key.as_str().into(),
                value: taint.value.as_deref().unwrap_or_default().into(),
                effect: taint.effect.as_str().into(),
            })
            .collect(),
        schedulable: ready && node.spec.unschedulable != Some(true),
        unreachable: unreachable(node),
    }
}

/// The taint that Kubernetes sets on a node which does not answer, and takes off again when it does. While most nodes of
/// a zone do not answer, it sets none, because then the network is at fault rather than the nodes.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// Since when a node has not answered.
fn unreachable(node: &wire::Node) -> Option<Time> {
    let mut taints = node.spec.taints.iter().flatten();
    let taint = taints.find(|taint| taint.key == UNREACHABLE && taint.effect == "NoExecute")?;
    let mut conditions = node.status.conditions.iter().flatten();
    let changed = || conditions.find(|condition| condition.type_ == "Ready")?.last_transition_time.as_ref();
    taint.time_added.as_ref().or_else(changed).map(instant)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: Value, ready: &str) -> Node {
        let object = json!({
            "metadata": {"name": "n1", "labels": {"zone": "a"}},
            "spec": spec,
            "status": {
                "allocatable": {"cpu": "4", "pods": 110},
                "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}],
            },
        });
        node(&serde_json::from_value(object).expect("a node"))
    }

    #[test]
    fn a_node_takes_pods_when_ready_and_not_cordoned() {
        assert!(read(json!({}), "True").schedulable);
        assert!(!read(json!({}), "Unknown").schedulable);
        assert!(!read(json!({"unschedulable": true}), "True").schedulable);
    }

    #[test]
    fn a_node_that_is_not_ready_is_told_from_a_cordoned_one_by_its_taints() {
        let tainted = |key: &str| {
            read(json!({"unschedulable": true, "taints": [{"key": key, "effect": "NoSchedule"}]}), "True")
        };
        assert!(tainted("node.kubernetes.io/not-ready").is_not_ready());
        assert!(tainted(UNREACHABLE).is_not_ready());
        assert!(!tainted("node.kubernetes.io/unschedulable").is_not_ready());
    }

    #[test]
    fn a_node_that_does_not_answer_has_the_time_of_its_taint() {
        let taint = |effect: &str| json!({"taints": [{"key": UNREACHABLE, "effect": effect, "timeAdded": "1970-01-01T00:01:00Z"}]});
        assert_eq!(read(taint("NoExecute"), "Unknown").unreachable, Some(Time(60_000)));
        assert_eq!(read(taint("NoSchedule"), "Unknown").unreachable, None);
        assert_eq!(
            read(json!({}), "Unknown").unreachable,
            None,
            "the API server may be cut off from all nodes"
        );
    }

    #[test]
    fn a_node_keeps_the_taints_that_repel_pods() {
        let node = read(
            json!({"taints": [
                {"key": "gpu", "value": "a", "effect": "NoSchedule"},
                {"key": "soft", "effect": "PreferNoSchedule"},
                {"key": "gone", "effect": "NoExecute"},
            ]}),
            "True",
        );
        assert_eq!(node.taints.iter().map(|t| &*t.key).collect::<Vec<_>>(), ["gpu", "gone"]);
        assert_eq!(node.allocatable.len(), 2);
        assert_eq!(node.labels.len(), 1);
    }
}
