//! Which free capacity of a node counts for a placement.

use crate::capacity::space::{Demand, Space};
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::types::ids::NodeId;
use crate::types::vector::Vector;

/// Which capacity counts as free.
#[derive(Clone, Copy, Debug)]
pub enum Capacity<'a> {
    /// Capacity that can be used at once: neither held by pods nor masked for a nomination or reservation.
    Now,
    /// Capacity that is free once evictions under way and the given hypothetical evictions have ended, and
    /// preemptors have taken their nominated capacity.
    Settled(&'a Freed),
    /// Capacity that no pods hold, nominated capacity included.
    Unheld,
    /// The whole capacity that the nodes offer, as if no pods ran.
    Empty,
}

/// How many pods fit on one node, topology aside.
#[must_use]
pub fn capacity_for(state: &ClusterState, node: NodeId, need: &Vector, capacity: Capacity<'_>) -> u32 {
    fits_on(state, node, &state.nodes.demand(need), capacity)
}

/// How many pods of a prepared demand fit on one node, topology aside.
#[must_use]
pub fn fits_on(state: &ClusterState, node: NodeId, demand: &Demand, capacity: Capacity<'_>) -> u32 {
    with_space(state, node, capacity, |space| space.fits(demand))
}

/// Calls `work` with the free capacity of a node.
pub(super) fn with_space<T>(
    state: &ClusterState,
    node: NodeId,
    capacity: Capacity<'_>,
    work: impl FnOnce(&Space) -> T,
) -> T {
    let info = state.nodes.get(node);
    match capacity {
        Capacity::Now => work(info.now()),
        Capacity::Settled(freed) => match freed.settled_space(&state.nodes, node) {
            Some(space) => work(&space),
            None => work(info.settled()),
        },
        Capacity::Unheld => work(info.unheld()),
        Capacity::Empty => work(info.empty()),
    }
}
