//! What stays free because idle guarantees are not lent in full (`lendable`).

use std::collections::BTreeMap;

use crate::state::quotas::hypothetical::Hypothetical;
use crate::state::quotas::tree::QuotaTree;
use crate::state::quotas::usage::QuotaUsage;
use crate::types::ids::{PoolId, TeamId};
use crate::types::vector::Vector;

impl QuotaTree {
    /// Whether a team of the pool does not lend its guarantee in full.
    #[must_use]
    pub fn has_reserves(&self, pool: PoolId) -> bool {
        self.reserves[pool]
    }

    /// The capacity that must stay free because idle guarantees are not lent in full, once `team` holds
    /// `amount` more and after hypothetical changes. The reserve of a parent covers those of its children.
    ///
    /// What a team uses is not idle, whatever runs there: a workload larger than the guarantee takes what is kept free for the
    /// team when it starts, so it has it while it runs. Work within guarantee beside it gets its capacity from borrowers (law 2).
    #[must_use]
    pub fn reserve_after(
        &self,
        pool: PoolId,
        team: TeamId,
        amount: &Vector,
        hypothetical: &Hypothetical,
    ) -> Vector {
        self.reserve(pool, team, amount, |quota_usage, at, index| {
            quota_usage.after(index, hypothetical.change(at, index), 0)
        })
    }

    /// The same while no other work runs.
    #[must_use]
    pub fn reserve_when_idle(&self, pool: PoolId, team: TeamId, amount: &Vector) -> Vector {
        self.reserve(pool, team, amount, |_, _, _| 0)
    }

    /// The reserve when `team` holds `amount` beside what `used` says of each level.
    fn reserve(
        &self,
        pool: PoolId,
        team: TeamId,
        amount: &Vector,
        used: impl Fn(&QuotaUsage, TeamId, usize) -> i64,
    ) -> Vector {
        let path = &self.teams[team].path;
        let own = |at: TeamId| {
            let quota_usage = &self.quota_usages[pool][at];
            let mut reserve = Vector::default();
            for (index, lendable) in &quota_usage.lendable {
                let more = if path.contains(&at) { amount.get(*index) } else { 0 };
                let reserved = quota_usage.guaranteed.get(*index).saturating_sub(*lendable);
                let left = reserved.saturating_sub(used(quota_usage, at, *index).saturating_add(more));
                reserve.set(*index, left.max(0));
            }
            reserve
        };
        // Children before parents: the reserve of a team is at least the sum of those below it.
        let mut below: BTreeMap<TeamId, Vector> = BTreeMap::new();
        let mut by_depth: Vec<TeamId> = TeamId::first(self.teams.len()).collect();
        by_depth.sort_by_key(|at| std::cmp::Reverse(self.teams[*at].path.len()));
        let mut total = Vector::default();
        for at in by_depth {
            let mut reserve = own(at);
            if let Some(children) = below.remove(&at) {
                for (index, milli) in children.entries() {
                    reserve.set(index, reserve.get(index).max(milli));
                }
            }
            match self.teams[at].path.get(1) {
                Some(parent) => below.entry(*parent).or_default().add(&reserve, 1),
                None => total.add(&reserve, 1),
            }
        }
        total
    }
}
