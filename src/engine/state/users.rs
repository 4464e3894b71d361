//! What the users of a team hold, for teams in which users take turns.

use std::collections::{BTreeMap, BTreeSet};

use crate::types::Name;
use crate::types::ids::{PoolId, TeamId};
use crate::types::vector::Vector;

/// Whose something is: the team, and the user in it.
pub type UserOf = (TeamId, Name);

/// A user's dominant share of a pool (Ghodsi et al., NSDI 2011), in units of 2⁻³², rounded down.
pub type Part = u64;

/// What each user holds, for good: without what is about to leave, with what has been promised.
#[derive(Clone, Debug, Default)]
pub struct Users {
    held: BTreeMap<UserOf, BTreeMap<PoolId, Vector>>,
    /// Those who hold something else than when this was last asked.
    dirty: BTreeSet<UserOf>,
}

impl Users {
    /// Adds `amount` × `times` to what a user holds in a pool.
    pub fn hold(&mut self, user: &UserOf, pool: PoolId, amount: &Vector, times: i64) {
        let pools = self.held.entry(user.clone()).or_default();
        let held = pools.entry(pool).or_default();
        held.add(amount, times);
        if held.nonzero().next().is_none() {
            pools.remove(&pool);
        }
        if pools.is_empty() {
            self.held.remove(user);
        }
        self.dirty.insert(user.clone());
    }

    /// The largest part of what a pool of that capacity offers of anything that a user holds there.
    #[must_use]
    pub fn part(&self, user: &UserOf, pool: PoolId, capacity: &Vector) -> Part {
        let Some(held) = self.held.get(user).and_then(|pools| pools.get(&pool)) else { return 0 };
        let parts = held.nonzero().filter_map(|(index, milli)| {
            let (milli, all) = (u128::try_from(milli).ok()?, u128::try_from(capacity.get(index)).ok()?);
            let part = (milli << 32).checked_div(all)?;
            Some(Part::try_from(part).unwrap_or(Part::MAX))
        });
        parts.max().unwrap_or(0)
    }

    /// Forgets what everybody holds, before everything is charged anew.
    pub fn clear(&mut self) {
        let users = std::mem::take(&mut self.held);
        self.dirty.extend(users.into_keys());
    }

    /// Lets everybody be asked about again, for what a part is worth has changed.
    pub fn mark_all_dirty(&mut self) {
        self.dirty.extend(self.held.keys().cloned());
    }

    /// Those who hold something else than when this was last asked.
    pub fn take_dirty(&mut self) -> BTreeSet<UserOf> {
        std::mem::take(&mut self.dirty)
    }
}
