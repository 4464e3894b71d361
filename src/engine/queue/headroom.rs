//! How many pods of each shape fit now, for the shapes of waiting workloads.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::placement::waiting::WaitingWorkload;
use crate::state::cluster::ClusterState;
use crate::types::PodShape;
use crate::types::ids::{HeadroomId, PoolId};
use crate::types::vector::Vector;

/// The headroom of every shape that was asked for.
#[derive(Clone, Debug, Default)]
pub struct Headroom {
    index: BTreeMap<(PoolId, Arc<PodShape>), HeadroomId>,
    counts: BTreeMap<HeadroomId, FitCount>,
    next: HeadroomId,
    /// The version of the nodes that the totals were counted with.
    seen: u64,
}

/// How many pods of one shape fit in one pool.
#[derive(Clone, Debug)]
struct FitCount {
    pool: PoolId,
    shape: Arc<PodShape>,
    need: Vector,
    total: u64,
}

impl FitCount {
    fn count(&self, state: &ClusterState) -> u64 {
        state.nodes.fitting(self.pool, &self.shape, &self.need, |fitting| fitting.totals().now)
    }
}

/// A change of the headroom of one shape.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// The shape and pool.
    pub shape: HeadroomId,
    /// How many pods fitted before.
    pub before: u64,
    /// How many pods fit now.
    pub total: u64,
}

impl Headroom {
    /// The index of the headroom for a workload's pods. A new shape is counted at once.
    pub fn index_of(&mut self, state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId) -> HeadroomId {
        let key = (pool, Arc::clone(&waiting.shape));
        if let Some(index) = self.index.get(&key) {
            return *index;
        }
        let (shape, need) = (Arc::clone(&waiting.shape), waiting.need.clone());
        let mut count = FitCount { pool, shape, need, total: 0 };
        count.total = count.count(state);
        let index = self.next;
        self.next = self.next.next();
        self.counts.insert(index, count);
        self.index.insert(key, index);
        index
    }

    /// How many pods fit now.
    #[must_use]
    pub fn total(&self, shape: HeadroomId) -> u64 {
        self.counts.get(&shape).map_or(0, |count| count.total)
    }

    /// The pool of an index.
    #[must_use]
    pub fn pool(&self, shape: HeadroomId) -> Option<PoolId> {
        self.counts.get(&shape).map(|count| count.pool)
    }

    /// Recounts after node changes. Returns the shapes with a changed headroom.
    pub fn catch_up(&mut self, state: &ClusterState) -> Vec<Change> {
        let version = state.nodes.version();
        if version == self.seen {
            return Vec::new();
        }
        self.seen = version;
        let mut changes = Vec::new();
        for (index, count) in &mut self.counts {
            let total = count.count(state);
            let before = std::mem::replace(&mut count.total, total);
            if before != total {
                changes.push(Change { shape: *index, before, total });
            }
        }
        changes
    }

    /// Drops the shapes that are not `used`.
    pub fn retain(&mut self, used: impl Fn(HeadroomId) -> bool) {
        if self.counts.keys().any(|shape| !used(*shape)) {
            self.counts.retain(|shape, _| used(*shape));
            self.index.retain(|_, shape| used(*shape));
        }
    }
}
