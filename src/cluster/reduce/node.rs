//! A node as the engine sees it.

use super::super::wire;
use super::name;
use super::shape::{names, offered};
use crate::engine::types::{Node, Taint};

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
    }
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
