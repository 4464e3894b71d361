//! Room that is imagined to be different from what it is.

use std::collections::BTreeMap;

use crate::capacity::devices::Holder;
use crate::capacity::space::Space;
use crate::state::nodes::NodeTable;
use crate::types::WorkloadId;
use crate::types::ids::NodeId;
use crate::types::vector::Vector;

/// Room that a decision imagines to be free besides what is, or to be taken.
#[derive(Clone, Debug, Default)]
pub struct Freed(BTreeMap<NodeId, Change>);

/// What is imagined to be different on one node.
#[derive(Clone, Debug, Default)]
struct Change {
    /// What becomes free, less what is taken.
    net: Vector,
    /// What becomes free.
    given: Vector,
    /// Whose pods go, and how many.
    gone: Vec<(Holder, u32)>,
    /// The needs of pods that come, and how many.
    taken: Vec<(Vector, u32)>,
}

impl Freed {
    /// Nothing is different.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Only what is different on one node.
    #[must_use]
    pub fn on(&self, node: NodeId) -> Self {
        Self(self.0.get(&node).map(|change| (node, change.clone())).into_iter().collect())
    }

    /// Imagines that so many pods of a workload that are not about to leave are gone from a node.
    pub fn give(&mut self, node: NodeId, id: &WorkloadId, need: &Vector, pods: u32) {
        let change = self.0.entry(node).or_default();
        change.net.add(need, i64::from(pods));
        change.given.add(need, i64::from(pods));
        change.gone.push((Holder::Workload(id.clone()), pods));
    }

    /// Takes back that so many pods of a workload are gone from a node, as was imagined of them.
    pub fn keep(&mut self, node: NodeId, id: &WorkloadId, need: &Vector, pods: u32) {
        let Some(change) = self.0.get_mut(&node) else { return };
        change.net.add(need, -i64::from(pods));
        change.given.add(need, -i64::from(pods));
        change.gone.retain(|(holder, _)| *holder != Holder::Workload(id.clone()));
    }

    /// Imagines that so many pods come to a node.
    pub fn take(&mut self, node: NodeId, need: &Vector, pods: u32) {
        let change = self.0.entry(node).or_default();
        change.net.add(need, -i64::from(pods));
        change.taken.push((need.clone(), pods));
    }

    /// What is free on a node besides what is, less what is taken.
    #[must_use]
    pub fn get(&self, node: &NodeId) -> Option<&Vector> {
        self.0.get(node).map(|change| &change.net)
    }

    /// The nodes on which something is imagined to be different.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.0.keys().copied()
    }

    /// The room of a node once everything has settled and this has come true.
    #[must_use]
    pub fn room(&self, nodes: &NodeTable, node: NodeId) -> Option<Space> {
        let change = self.0.get(&node)?;
        let mut space = nodes.get(node).settled_without(&change.given, &change.gone);
        for (need, pods) in &change.taken {
            space.take(&nodes.demand(need), *pods);
        }
        Some(space)
    }
}
