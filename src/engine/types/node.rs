//! Pools, nodes, and the constraints by which pods select nodes.

use std::collections::BTreeMap;

use crate::types::amount::ResourceList;
use crate::types::name::Name;
use crate::types::time::Time;

/// The pool of all nodes that no [`Pool`] selects.
pub const DEFAULT_POOL: &str = "default";

/// The resource in which a pool with weights counts all its kinds of devices together; quotas may list it.
pub const CURRENCY: &str = "sluice.dev/gpu";

/// A set of nodes with quotas of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: Name,
    /// The labels of its nodes. If several pools match a node, it belongs to the first by name. Without labels
    /// the pool has no nodes.
    pub node_selector: BTreeMap<Name, Name>,
    /// Node labels that name topology domains, outermost first.
    pub topology: Vec<Name>,
    /// The worth of one unit of a resource in the pool's currency ([`CURRENCY`]), where the pool has one.
    pub weights: ResourceList,
}

impl Pool {
    /// Whether its labels select a node. An object may describe the default pool; it selects no node and holds the rest.
    #[must_use]
    pub fn selects(&self, node: &Node) -> bool {
        !self.node_selector.is_empty()
            && self.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
    }
}

/// A node and its allocatable resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Name,
    /// Its labels.
    pub labels: BTreeMap<Name, Name>,
    /// Allocatable amounts, pod slots (`pods`) included.
    pub allocatable: ResourceList,
    /// Its taints with effect NoSchedule or NoExecute.
    pub taints: Vec<Taint>,
    /// Whether new pods may be bound to it: Ready and not cordoned.
    pub schedulable: bool,
    /// Since when it has not answered; `None` while it answers.
    pub unreachable: Option<Time>,
}

/// The taints that Kubernetes gives a node that is not Ready, or does not answer, and takes off again once it is.
const NOT_READY: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

impl Node {
    /// Whether a taint says that it is not Ready. Kubernetes marks a cordoned node with another one.
    #[must_use]
    pub fn is_not_ready(&self) -> bool {
        self.taints.iter().any(|taint| NOT_READY.contains(&&*taint.key))
    }
}

/// A taint that repels pods without a matching toleration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    /// Its key.
    pub key: Name,
    /// Its value; empty when it has none.
    pub value: Name,
    /// `NoSchedule` or `NoExecute`.
    pub effect: Name,
}

/// A toleration of a pod; a missing field means the same as in Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Toleration {
    /// The taint's key; `None` tolerates every key.
    pub key: Option<Name>,
    /// The value it must have; `None` tolerates any (operator Exists).
    pub value: Option<Name>,
    /// The effect it tolerates; `None` tolerates every effect.
    pub effect: Option<Name>,
}

/// One requirement on a node's label or field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    /// The label's key, or the field (`metadata.name`) when it stands in [`NodeTerm::fields`].
    pub key: Name,
    /// How the values are compared.
    pub operator: Operator,
    /// The values to compare with.
    pub values: Vec<Name>,
}

/// The operators of node selector requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    /// The value is one of those listed.
    In,
    /// The value is none of those listed, or the label is absent.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The value is an integer greater than the one listed.
    Gt,
    /// The value is an integer less than the one listed.
    Lt,
}

/// One term of a required node affinity: all requirements must hold. Terms are alternatives.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeTerm {
    /// Requirements on labels.
    pub labels: Vec<Requirement>,
    /// Requirements on fields; only `metadata.name` exists.
    pub fields: Vec<Requirement>,
}
