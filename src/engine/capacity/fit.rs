//! Whether a node admits a pod: selectors, required affinity, taints.
//!
//! The rules are kube-scheduler's: node selector and affinity as in `NodeAffinity`, taints as in
//! `TaintToleration`. Only the effects NoSchedule and NoExecute keep a pod away.

use crate::types::{Name, Node, NodeTerm, Operator, PodShape, Requirement, Taint, Toleration};

/// Whether the labels and taints of `node` admit pods of `shape`, whatever its free capacity.
#[must_use]
pub fn admits(node: &Node, shape: &PodShape) -> bool {
    selects(node, shape) && tolerates_all(&shape.tolerations, &node.taints)
}

/// The same for a closed node once it is open again: the taints that Kubernetes gives it will be gone then.
#[must_use]
pub fn admits_once_open(node: &Node, shape: &PodShape) -> bool {
    let lasts = |taint: &&Taint| !taint.key.starts_with("node.kubernetes.io/");
    selects(node, shape) && tolerates_all(&shape.tolerations, node.taints.iter().filter(lasts))
}

/// Whether the selector and the required affinity of a shape select a node.
fn selects(node: &Node, shape: &PodShape) -> bool {
    shape.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
        && (shape.node_terms.is_empty() || shape.node_terms.iter().any(|term| term_holds(term, node)))
}

fn term_holds(term: &NodeTerm, node: &Node) -> bool {
    // A term without requirements selects no node, as the API documents.
    !(term.labels.is_empty() && term.fields.is_empty())
        && term.labels.iter().all(|r| requirement_holds(r, node.labels.get(&r.key)))
        && term.fields.iter().all(|r| {
            let value = (&*r.key == "metadata.name").then_some(&node.name);
            requirement_holds(r, value)
        })
}

/// Whether a value, or its absence, satisfies a requirement.
#[must_use]
pub fn requirement_holds(requirement: &Requirement, value: Option<&Name>) -> bool {
    let listed = || value.is_some_and(|v| requirement.values.contains(v));
    let compare = |wanted: fn(&i64, &i64) -> bool| {
        let number = |text: &Name| text.parse::<i64>().ok();
        match (value.and_then(number), requirement.values.first().and_then(number)) {
            (Some(have), Some(bound)) => wanted(&have, &bound),
            _ => false,
        }
    };
    match requirement.operator {
        Operator::In => listed(),
        Operator::NotIn => !listed(),
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => compare(i64::gt),
        Operator::Lt => compare(i64::lt),
    }
}

/// Whether a pod with these tolerations may be on a node with these taints.
#[must_use]
pub fn tolerates_all<'a>(tolerations: &[Toleration], taints: impl IntoIterator<Item = &'a Taint>) -> bool {
    taints.into_iter().all(|taint| tolerations.iter().any(|t| tolerates(t, taint)))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let matches =
        |wanted: &Option<Name>, actual: &Name| wanted.as_ref().is_none_or(|wanted| wanted == actual);
    matches(&toleration.key, &taint.key)
        && matches(&toleration.value, &taint.value)
        && matches(&toleration.effect, &taint.effect)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::amount::ResourceList;

    fn node(labels: &[(&str, &str)], taints: &[(&str, &str, &str)]) -> Node {
        Node {
            name: "n0".into(),
            labels: labels.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            allocatable: ResourceList::new(),
            taints: taints
                .iter()
                .map(|(k, v, e)| Taint { key: (*k).into(), value: (*v).into(), effect: (*e).into() })
                .collect(),
            schedulable: true,
            unreachable: None,
        }
    }

    fn requirement(key: &str, operator: Operator, values: &[&str]) -> Requirement {
        Requirement { key: key.into(), operator, values: values.iter().map(|v| (*v).into()).collect() }
    }

    #[test]
    fn requirements_follow_the_api() {
        let node = node(&[("zone", "a"), ("gen", "5")], &[]);
        for (label, operator, values, expected) in [
            ("zone", Operator::In, vec!["a", "b"], true),
            ("zone", Operator::In, vec!["b"], false),
            ("rack", Operator::In, vec!["a"], false),
            ("zone", Operator::NotIn, vec!["a"], false),
            ("rack", Operator::NotIn, vec!["a"], true),
            ("zone", Operator::Exists, vec![], true),
            ("rack", Operator::Exists, vec![], false),
            ("rack", Operator::DoesNotExist, vec![], true),
            ("gen", Operator::Gt, vec!["4"], true),
            ("gen", Operator::Gt, vec!["5"], false),
            ("gen", Operator::Lt, vec!["6"], true),
            ("zone", Operator::Lt, vec!["6"], false),
        ] {
            let term = NodeTerm { labels: vec![requirement(label, operator, &values)], fields: vec![] };
            assert_eq!(term_holds(&term, &node), expected, "{label} {operator:?} {values:?}");
        }
    }

    #[test]
    fn terms_are_alternatives_and_an_empty_one_selects_nothing() {
        let node = node(&[("zone", "a")], &[]);
        let by_name = |name| NodeTerm {
            labels: vec![],
            fields: vec![requirement("metadata.name", Operator::In, &[name])],
        };
        let shape = |terms| PodShape { node_terms: terms, ..PodShape::default() };
        assert!(admits(&node, &shape(vec![])));
        assert!(admits(&node, &shape(vec![by_name("other"), by_name("n0")])));
        assert!(!admits(&node, &shape(vec![by_name("other")])));
        assert!(!admits(&node, &shape(vec![NodeTerm::default()])));
    }

    #[test]
    fn the_taints_of_a_closed_node_go_when_it_opens() {
        let closed = ("node.kubernetes.io/unschedulable", "", "NoSchedule");
        let shape = PodShape::default();
        assert!(!admits(&node(&[], &[closed]), &shape));
        assert!(admits_once_open(&node(&[], &[closed]), &shape));
        assert!(!admits_once_open(&node(&[], &[closed, ("gpu", "yes", "NoSchedule")]), &shape));
    }

    #[test]
    fn a_taint_needs_a_toleration() {
        let node = node(&[], &[("gpu", "yes", "NoSchedule")]);
        let shape = |key: Option<&str>, value: Option<&str>, effect: Option<&str>| PodShape {
            tolerations: vec![Toleration {
                key: key.map(Into::into),
                value: value.map(Into::into),
                effect: effect.map(Into::into),
            }],
            ..PodShape::default()
        };
        assert!(!admits(&node, &PodShape::default()));
        assert!(admits(&node, &shape(None, None, None)));
        assert!(admits(&node, &shape(Some("gpu"), None, Some("NoSchedule"))));
        assert!(admits(&node, &shape(Some("gpu"), Some("yes"), None)));
        assert!(!admits(&node, &shape(Some("gpu"), Some("no"), None)));
        assert!(!admits(&node, &shape(Some("gpu"), None, Some("NoExecute"))));
        assert!(!admits(&node, &shape(Some("cpu"), None, None)));
    }
}
