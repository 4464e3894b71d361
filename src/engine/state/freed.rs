//! Hypothetical changes of capacity on nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::capacity::devices::Holder;
use crate::capacity::space::Space;
use crate::state::nodes::NodeTable;
use crate::types::ids::NodeId;
use crate::types::vector::Vector;
use crate::types::{Profile, WorkloadId};

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
    /// The needs of added pods, with their profile and number.
    taken: Vec<(Vector, Option<Arc<Profile>>, u32)>,
    /// The needs of pods that start before the others are gone, with their number.
    joined: Vec<(Vector, u32)>,
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

    /// Assumes that `pods` pods are added to a node; without a profile no constraint looks at them.
    pub fn take(&mut self, node: NodeId, need: &Vector, profile: Option<&Arc<Profile>>, pods: u32) {
        let change = self.0.entry(node).or_default();
        change.net.add(need, -i64::from(pods));
        change.taken.push((need.clone(), profile.cloned(), pods));
    }

    /// Assumes that `pods` pods start on a node now, before any others are gone: their fractions get the devices that they would
    /// get now. No constraint looks at them.
    pub fn join(&mut self, node: NodeId, need: &Vector, pods: u32) {
        let change = self.0.entry(node).or_default();
        change.net.add(need, -i64::from(pods));
        change.joined.push((need.clone(), pods));
    }

    /// The holders of pods that are assumed to be gone from a node, with their number.
    pub fn gone(&self, node: NodeId) -> &[(Holder, u32)] {
        self.0.get(&node).map_or(&[], |change| &change.gone)
    }

    /// The profiles of pods that are assumed to be added to a node, with their number.
    pub fn added(&self, node: NodeId) -> impl Iterator<Item = (&Profile, u32)> {
        let taken = self.0.get(&node).into_iter().flat_map(|change| &change.taken);
        taken.filter_map(|(_, profile, pods)| Some((profile.as_deref()?, *pods)))
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
        for (need, pods) in &change.joined {
            let demand = nodes.demand(need);
            space.take_on(&demand, *pods, &nodes.get(node).devices_for(&demand, *pods));
        }
        for (need, _, pods) in &change.taken {
            space.take(&nodes.demand(need), *pods);
        }
        Some(space)
    }
}
