//! The expected ends of what holds quota at a level, in order. Many owners wait for the same level of a team above theirs, so these
//! are counted once for all of them.

use std::collections::BTreeMap;

use crate::scheduler::reservations::Level;
use crate::types::Time;
use crate::types::ids::PoolId;

/// One resource at a level in a pool; all pools for a queue.
pub type LevelResource = (Option<PoolId>, Level, usize);

/// Expected ends, the earliest first, with the amounts in thousandths that end then.
pub type Ends = Vec<(Time, i64)>;

/// The ends at levels, for as long as nothing changes on which they depend.
#[derive(Clone, Debug, Default)]
pub struct LevelEnds {
    /// The revisions of the workloads and of the timeline, and the time.
    seen: (u64, u64, Time),
    known: BTreeMap<LevelResource, Ends>,
}

impl LevelEnds {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.known.clear();
    }

    /// The ends at a level, which `count` counts unless they are known from the same revisions and time.
    pub fn at(&mut self, of: LevelResource, seen: (u64, u64, Time), count: impl FnOnce() -> Ends) -> &Ends {
        if self.seen != seen {
            self.known.clear();
            self.seen = seen;
        }
        self.known.entry(of).or_insert_with(count)
    }
}
