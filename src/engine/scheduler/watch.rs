//! What a nomination waits for, so that it is looked at again only once that has changed: of thousands, most are as they were in
//! the cycle before.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::state::cluster::ClusterState;
use crate::types::PodShape;
use crate::types::ids::{NodeId, PoolId, WorkloadIndex};
use crate::types::vector::Vector;

/// What the wait of a nomination rests on.
#[derive(Clone, Debug)]
pub struct Watch {
    workloads: SmallVec<[WorkloadIndex; 2]>,
    nodes: SmallVec<[NodeId; 2]>,
    enough: Option<u64>,
    /// The last revisions of a workload and of a node when it was looked at.
    seen: (u64, u64),
}

impl Watch {
    /// A wait that rests on workloads and nodes as they are now, and on fewer than `enough` pods of its kind fitting in its pool.
    pub fn new(
        state: &ClusterState,
        workloads: impl Iterator<Item = WorkloadIndex>,
        nodes: impl Iterator<Item = NodeId>,
        enough: Option<u64>,
    ) -> Self {
        let seen = (state.last_revision(), state.nodes.last_revision());
        Self { workloads: workloads.collect(), nodes: nodes.collect(), enough, seen }
    }

    /// Whether all that it rests on is as it was. `fitting` says how many pods of its kind fit in its pool now.
    pub fn holds(&self, state: &ClusterState, fitting: impl FnOnce() -> u64) -> bool {
        let (workload, node) = self.seen;
        self.workloads.iter().all(|index| state.revision(*index) <= workload)
            && self.nodes.iter().all(|index| state.nodes.revision(*index) <= node)
            && (state.nodes.last_revision() == node || self.enough.is_none_or(|enough| fitting() < enough))
    }
}

/// How many pods of a kind fit in a pool now, kept from one nomination to the next, which often is of the same kind.
#[derive(Debug, Default)]
pub struct FittingPods {
    kind: Option<(PoolId, Arc<PodShape>)>,
    fits: u64,
}

impl FittingPods {
    /// How many pods of that kind fit.
    pub fn of(&mut self, state: &ClusterState, pool: PoolId, shape: &Arc<PodShape>, need: &Vector) -> u64 {
        if !self.kind.as_ref().is_some_and(|(known, kind)| *known == pool && Arc::ptr_eq(kind, shape)) {
            self.fits = state.nodes.fitting(pool, shape, need, |fitting| fitting.totals().now);
            self.kind = Some((pool, Arc::clone(shape)));
        }
        self.fits
    }
}
