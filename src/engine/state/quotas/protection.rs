//! Whether a team may lose usage to a preemptor of another team (law 3).
//!
//! ```text
//!   beyond_guarantee               each level that would protect it holds more than its guarantee: it is borrowed
//!   would_fall_below_guarantee     a level has less than its guarantee without it: it goes last
//!   one_beyond_guarantee_without   a level holds more than its guarantee even without it
//!   each_beyond_guarantee          of a team and not of a workload: whether it is worth a look
//! ```

use crate::state::quotas::hypothetical::{Hypothetical, Protection};
use crate::state::quotas::tree::QuotaTree;
use crate::types::ids::{PoolId, TeamId};
use crate::types::vector::Vector;

impl QuotaTree {
    /// The part of the path of `of` that a preemptor of team `by` must respect: all levels below their lowest
    /// common ancestor.
    pub fn levels_below_common<'a>(&'a self, of: TeamId, by: TeamId) -> impl Iterator<Item = TeamId> + 'a {
        let above = &self.teams[by].path;
        self.teams[of].path.iter().copied().take_while(move |at| !above.contains(at))
    }

    /// Whether each level holds more than its guarantee of a resource in `amount`, so `amount` may be reclaimed from
    /// the workload. A level without a guarantee, or with one that is smaller than the workload, protects nothing; nor does one
    /// below a level that guarantees more to the teams below it than it has, and holds more than that (law 2).
    #[must_use]
    pub fn beyond_guarantee(
        &self,
        pool: PoolId,
        protection: Protection<'_>,
        amount: &Vector,
        hypothetical: &Hypothetical,
    ) -> bool {
        let mut protects = false;
        for at in protection.levels {
            let quota_usage = &self.quota_usages[pool][*at];
            // What asks for nothing that the guarantee covers is borrowed where the level borrows anything.
            let asks_for_any = quota_usage.covers_any(amount);
            let beyond = |(index, guaranteed): (usize, i64)| {
                if asks_for_any {
                    amount.get(index) > 0
                        && self.protected(pool, *at, index, protection, hypothetical) > guaranteed
                } else {
                    quota_usage.running(index, hypothetical.change(*at, index)) > guaranteed
                }
            };
            let is_beyond =
                !quota_usage.has_guarantee() || protection.exempts(*at) || quota_usage.governed().any(beyond);
            protects = !is_beyond || protects && !quota_usage.promises_too_much();
        }
        !protects
    }

    /// The usage of a level that its guarantee protects, after hypothetical changes.
    fn protected(
        &self,
        pool: PoolId,
        at: TeamId,
        index: usize,
        protection: Protection<'_>,
        hypothetical: &Hypothetical,
    ) -> i64 {
        let quota_usage = &self.quota_usages[pool][at];
        if protection.is_whole(at) {
            quota_usage.running(index, hypothetical.change(at, index))
        } else {
            let change = hypothetical.change(at, index).saturating_sub(hypothetical.oversize(at, index));
            quota_usage.running_counted(index, change)
        }
    }

    /// Whether each of `levels`, from below, holds more of any resource than its guarantee, or a level above it does that
    /// guarantees more to the teams below it than it has.
    #[must_use]
    pub fn each_beyond_guarantee(
        &self,
        pool: PoolId,
        levels: impl Iterator<Item = TeamId>,
        hypothetical: &Hypothetical,
    ) -> bool {
        let mut protects = false;
        for at in levels {
            let quota_usage = &self.quota_usages[pool][at];
            let is_beyond = match hypothetical.get(&at) {
                None => quota_usage.is_beyond_guarantee(),
                Some(change) => quota_usage.would_be_beyond_guarantee(change),
            };
            protects = !is_beyond || protects && !quota_usage.promises_too_much();
        }
        !protects
    }

    /// Whether one level that has a guarantee would still hold more than it, of a resource in `amount`, without
    /// `amount`; or its guarantee is smaller than the workload, and so protects no part of it.
    #[must_use]
    pub fn one_beyond_guarantee_without(
        &self,
        pool: PoolId,
        protection: Protection<'_>,
        amount: &Vector,
        hypothetical: &Hypothetical,
    ) -> bool {
        protection.levels.iter().any(|at| {
            let beyond = |(index, guaranteed): (usize, i64)| {
                let (less, used) =
                    (amount.get(index), self.protected(pool, *at, index, protection, hypothetical));
                less > 0 && used.saturating_sub(less) > guaranteed
            };
            protection.exempts(*at) || self.quota_usages[pool][*at].governed().any(beyond)
        })
    }

    /// Whether one level would fall below its guarantee without `amount` of the workload.
    #[must_use]
    pub fn would_fall_below_guarantee(
        &self,
        pool: PoolId,
        protection: Protection<'_>,
        amount: &Vector,
        hypothetical: &Hypothetical,
    ) -> bool {
        protection.levels.iter().filter(|at| !protection.exempts(**at)).any(|at| {
            let below = |(index, guaranteed): (usize, i64)| {
                let (less, used) =
                    (amount.get(index), self.protected(pool, *at, index, protection, hypothetical));
                less > 0 && used.saturating_sub(less) < guaranteed
            };
            self.quota_usages[pool][*at].governed().any(below)
        })
    }
}
