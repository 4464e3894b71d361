//! How many pods of each shape that somebody waits with find room now.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::books::Books;
use super::candidate::Candidate;
use super::forest::PoolIx;
use super::model::PodShape;
use super::vector::Vector;

/// Index of a shape in a pool in [`Rooms`].
pub type RoomIx = usize;

/// The room for every shape that was asked for.
#[derive(Clone, Debug, Default)]
pub struct Rooms {
    index: BTreeMap<(PoolIx, Arc<PodShape>), RoomIx>,
    rooms: BTreeMap<RoomIx, Room>,
    next: RoomIx,
    /// The version of the nodes by which the totals are right.
    seen: u64,
}

/// The room for one shape in one pool.
#[derive(Clone, Debug)]
struct Room {
    pool: PoolIx,
    shape: Arc<PodShape>,
    need: Vector,
    total: u64,
}

impl Room {
    fn count(&self, books: &Books) -> u64 {
        books.nodes.fitting(self.pool, &self.shape, &self.need, |fitting| fitting.totals().now)
    }
}

/// A shape of which more pods, or fewer, find room than before.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Which.
    pub room: RoomIx,
    /// How many pods found room before.
    pub before: u64,
    /// How many pods find room now.
    pub total: u64,
}

impl Rooms {
    /// Where the room for a candidate's pods is kept.
    pub fn index_of(&mut self, books: &Books, candidate: &Candidate, pool: PoolIx) -> RoomIx {
        let key = (pool, Arc::clone(&candidate.shape));
        if let Some(room) = self.index.get(&key) {
            return *room;
        }
        let (shape, need) = (Arc::clone(&candidate.shape), candidate.need.clone());
        let mut room = Room { pool, shape, need, total: 0 };
        room.total = room.count(books);
        let index = self.next;
        self.next += 1;
        self.rooms.insert(index, room);
        self.index.insert(key, index);
        index
    }

    /// How many pods find room now.
    #[must_use]
    pub fn total(&self, room: RoomIx) -> u64 {
        self.rooms.get(&room).map_or(0, |room| room.total)
    }

    /// The pool in which that is.
    #[must_use]
    pub fn pool(&self, room: RoomIx) -> Option<PoolIx> {
        self.rooms.get(&room).map(|room| room.pool)
    }

    /// Every shape, with its pool.
    pub fn iter(&self) -> impl Iterator<Item = (RoomIx, PoolIx)> {
        self.rooms.iter().map(|(index, room)| (*index, room.pool))
    }

    /// Works in what happened to nodes; the shapes for which that changed something.
    pub fn catch_up(&mut self, books: &Books) -> Vec<Change> {
        let version = books.nodes.version();
        if version == self.seen {
            return Vec::new();
        }
        self.seen = version;
        let mut changes = Vec::new();
        for (index, room) in &mut self.rooms {
            let total = room.count(books);
            let before = std::mem::replace(&mut room.total, total);
            if before != total {
                changes.push(Change { room: *index, before, total });
            }
        }
        changes
    }

    /// Forgets the shapes that nobody waits with.
    pub fn retain(&mut self, used: impl Fn(RoomIx) -> bool) {
        if self.rooms.keys().any(|room| !used(*room)) {
            self.rooms.retain(|room, _| used(*room));
            self.index.retain(|_, room| used(*room));
        }
    }
}
