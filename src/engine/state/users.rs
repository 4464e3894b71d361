//! The usage of users, for teams that rank workloads by the usage of their users.

use std::collections::{BTreeMap, BTreeSet};

use crate::types::Name;
use crate::types::ids::{PoolId, TeamId};
use crate::types::vector::Vector;

/// A user within a team.
pub type UserOf = (TeamId, Name);

/// A user's dominant share of a pool (Ghodsi et al., NSDI 2011), in units of 2⁻³², rounded down.
pub type UserShare = u64;

/// The usage of each user, without terminating pods and with nominations.
#[derive(Clone, Debug, Default)]
pub struct Users {
    held: BTreeMap<UserOf, BTreeMap<PoolId, Vector>>,
    /// Users with a changed usage since the last call of [`Users::take_dirty`].
    dirty: BTreeSet<UserOf>,
}

impl Users {
    /// Adds `amount` × `times` to a user's usage in a pool.
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

    /// The user's dominant share: the largest ratio of usage to `capacity` over all resources.
    #[must_use]
    pub fn share(&self, user: &UserOf, pool: PoolId, capacity: &Vector) -> UserShare {
        let Some(held) = self.held.get(user).and_then(|pools| pools.get(&pool)) else { return 0 };
        let shares = held.nonzero().filter_map(|(index, milli)| {
            let (milli, all) = (u128::try_from(milli).ok()?, u128::try_from(capacity.get(index)).ok()?);
            let share = (milli << 32).checked_div(all)?;
            Some(UserShare::try_from(share).unwrap_or(UserShare::MAX))
        });
        shares.max().unwrap_or(0)
    }

    /// Clears all usage, before every workload is charged again.
    pub fn clear(&mut self) {
        let users = std::mem::take(&mut self.held);
        self.dirty.extend(users.into_keys());
    }

    /// Marks every user dirty, because a change of capacity changes all shares.
    pub fn mark_all_dirty(&mut self) {
        self.dirty.extend(self.held.keys().cloned());
    }

    /// Marks users as changed.
    pub fn mark_dirty(&mut self, mut users: BTreeSet<UserOf>) {
        self.dirty.append(&mut users);
    }

    /// The users with a changed usage since the last call.
    pub fn take_dirty(&mut self) -> BTreeSet<UserOf> {
        std::mem::take(&mut self.dirty)
    }
}
