//! Hypothetical changes of capacity on nodes.

use std::collections::BTreeMap;

use crate::capacity::devices::Holder;
use crate::capacity::space::Space;
use crate::state::nodes::NodeTable;
use crate::types::WorkloadId;
use crate::types::ids::NodeId;
use crate::types::vector::Vector;

/// Capacity that a decision assumes to be freed or taken.
#[derive(Clone, Debug, Default)]
pub struct Freed(BTreeMap<NodeId, Change>);

/// The assumed changes on one node.
#[derive(Clone, Debug, Default)]
struct Change {
    /// The freed amount, less the taken amount.
    net: Vector,
    /// The freed amount.
    freed: Vector,
    /// The holders of pods that are gone, with their number.
    gone: Vec<(Holder, u32)>,
    /// The needs of added pods, with their number.
    taken: Vec<(Vector, u32)>,
}

impl Freed {
    /// No change.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The changes on one node only.
    #[must_use]
    pub fn on(&self, node: NodeId) -> Self {
        Self(self.0.get(&node).map(|change| (node, change.clone())).into_iter().collect())
    }

    /// Assumes that `pods` pods of a workload, which are not terminating, are gone from a node.
    pub fn give(&mut self, node: NodeId, id: &WorkloadId, need: &Vector, pods: u32) {
        let change = self.0.entry(node).or_default();
        change.net.add(need, i64::from(pods));
        change.freed.add(need, i64::from(pods));
        change.gone.push((Holder::Workload(id.clone()), pods));
    }

    /// Reverts the assumption that these pods of a workload are gone from a node.
    pub fn revert(&mut self, node: NodeId, id: &WorkloadId, need: &Vector, pods: u32) {
        let Some(change) = self.0.get_mut(&node) else { return };
        change.net.add(need, -i64::from(pods));
        change.freed.add(need, -i64::from(pods));
        change.gone.retain(|(holder, _)| *holder != Holder::Workload(id.clone()));
    }

    /// Assumes that `pods` pods are added to a node.
    pub fn take(&mut self, node: NodeId, need: &Vector, pods: u32) {
        let change = self.0.entry(node).or_default();
        change.net.add(need, -i64::from(pods));
        change.taken.push((need.clone(), pods));
    }

    /// The freed amount on a node, less the taken amount.
    #[must_use]
    pub fn get(&self, node: &NodeId) -> Option<&Vector> {
        self.0.get(node).map(|change| &change.net)
    }

    /// The nodes with an assumed change.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.0.keys().copied()
    }

    /// The free capacity of a node once everything has settled and these changes hold.
    #[must_use]
    pub fn settled_space(&self, nodes: &NodeTable, node: NodeId) -> Option<Space> {
        let change = self.0.get(&node)?;
        let mut space = nodes.get(node).settled_without(&change.freed, &change.gone);
        for (need, pods) in &change.taken {
            space.take(&nodes.demand(need), *pods);
        }
        Some(space)
    }
}
