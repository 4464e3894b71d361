//! How many pods of each shape that somebody waits with find room now.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::placement::waiting::WaitingWorkload;
use crate::state::cluster::ClusterState;
use crate::types::PodShape;
use crate::types::ids::{HeadroomId, PoolId};
use crate::types::vector::Vector;

/// The room for every shape that was asked for.
#[derive(Clone, Debug, Default)]
pub struct Headroom {
    index: BTreeMap<(PoolId, Arc<PodShape>), HeadroomId>,
    headroom: BTreeMap<HeadroomId, FitCount>,
    next: HeadroomId,
    /// The version of the nodes by which the totals are right.
    seen: u64,
}

/// The room for one shape in one pool.
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

/// A shape of which more pods, or fewer, find room than before.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Which.
    pub room: HeadroomId,
    /// How many pods found room before.
    pub before: u64,
    /// How many pods find room now.
    pub total: u64,
}

impl Headroom {
    /// Where the room for a candidate's pods is kept.
    pub fn index_of(&mut self, state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId) -> HeadroomId {
        let key = (pool, Arc::clone(&waiting.shape));
        if let Some(room) = self.index.get(&key) {
            return *room;
        }
        let (shape, need) = (Arc::clone(&waiting.shape), waiting.need.clone());
        let mut room = FitCount { pool, shape, need, total: 0 };
        room.total = room.count(state);
        let index = self.next;
        self.next = self.next.next();
        self.headroom.insert(index, room);
        self.index.insert(key, index);
        index
    }

    /// How many pods find room now.
    #[must_use]
    pub fn total(&self, room: HeadroomId) -> u64 {
        self.headroom.get(&room).map_or(0, |room| room.total)
    }

    /// The pool in which that is.
    #[must_use]
    pub fn pool(&self, room: HeadroomId) -> Option<PoolId> {
        self.headroom.get(&room).map(|room| room.pool)
    }

    /// Every shape, with its pool.
    pub fn iter(&self) -> impl Iterator<Item = (HeadroomId, PoolId)> {
        self.headroom.iter().map(|(index, room)| (*index, room.pool))
    }

    /// Works in what happened to nodes; the shapes for which that changed something.
    pub fn catch_up(&mut self, state: &ClusterState) -> Vec<Change> {
        let version = state.nodes.version();
        if version == self.seen {
            return Vec::new();
        }
        self.seen = version;
        let mut changes = Vec::new();
        for (index, room) in &mut self.headroom {
            let total = room.count(state);
            let before = std::mem::replace(&mut room.total, total);
            if before != total {
                changes.push(Change { room: *index, before, total });
            }
        }
        changes
    }

    /// Forgets the shapes that nobody waits with.
    pub fn retain(&mut self, used: impl Fn(HeadroomId) -> bool) {
        if self.headroom.keys().any(|room| !used(*room)) {
            self.headroom.retain(|room, _| used(*room));
            self.index.retain(|_, room| used(*room));
        }
    }
}
