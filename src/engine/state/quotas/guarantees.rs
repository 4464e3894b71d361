//! Limits and guarantees: whether a team may use more.
//!
//! ```text
//!   limits                over_limit_now, over_limit           of a team on the path, now or once evictions end
//!                         over_queue_limit                     of a queue, over all pools
//!   guarantees, law 2     within_guarantee                     of its team and all above hold it: it may reclaim
//!                         within_guarantee_by_exchange         the same where its victims make up for levels above
//!                         own_guarantee_holds, .._would_hold   of its team holds it, whatever is above
//!   never preempted       holds_fixed, .._now                  the guarantees hold it beside other such work, once pods have
//!                                                              ended or while they end
//!                         may_hold_fixed                       it may ask for it at all
//! ```
//!
//! Whether a team may lose usage is in `protection.rs`, what it does not lend in `reserves.rs`.

use crate::state::quotas::hypothetical::{Account, Hypothetical};
use crate::state::quotas::tree::QuotaTree;
use crate::state::quotas::usage::QuotaUsage;
use crate::types::ids::{PoolId, TeamId};
use crate::types::vector::{Resources, Vector};
use crate::types::{Name, Queue};

/// How guarantees hold a workload once its victims are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// The guarantee of its own team does not.
    Lacking,
    /// That of its team does, and each level above stays within its guarantee or uses no more than before.
    Full,
    /// That of its team does, and this level above, the lowest such, would use more than its guarantee and more than before.
    Beyond(TeamId),
}

impl QuotaTree {
    /// The first team on the path with a limit that does not allow `amount` more now, and the resource. The present usage and
    /// the usage once evictions end must both stay within the limit (law 1).
    #[must_use]
    pub fn over_limit_now(&self, pool: PoolId, team: TeamId, amount: &Vector) -> Option<(TeamId, usize)> {
        self.first_over_limit(pool, team, amount, |quota_usage, _, index| {
            quota_usage.held.get(index).max(quota_usage.after(index, 0, 0))
        })
    }

    /// The first team on the path with a limit that does not allow `amount` more once evictions end and after hypothetical
    /// changes, and the resource.
    #[must_use]
    pub fn over_limit(
        &self,
        pool: PoolId,
        team: TeamId,
        amount: &Vector,
        hypothetical: &Hypothetical,
    ) -> Option<(TeamId, usize)> {
        self.first_over_limit(pool, team, amount, |quota_usage, at, index| {
            quota_usage.after(index, hypothetical.change(at, index), 0)
        })
    }

    /// The first team on the path with a limit that does not allow `amount` more beside what is `used` of it, and the resource.
    fn first_over_limit(
        &self,
        pool: PoolId,
        team: TeamId,
        amount: &Vector,
        used: impl Fn(&QuotaUsage, TeamId, usize) -> i64,
    ) -> Option<(TeamId, usize)> {
        self.teams[team].path.iter().find_map(|at| {
            let quota_usage = &self.quota_usages[pool][*at];
            quota_usage.limit.iter().find_map(|(index, cap)| {
                let more = amount.get(*index);
                let over = more > 0 && used(quota_usage, *at, *index).saturating_add(more) > *cap;
                over.then_some((*at, *index))
            })
        })
    }

    /// Whether a team on the path uses more than its limit of a resource in `amount`, once evictions end and after
    /// hypothetical changes.
    #[must_use]
    pub fn exceeds_limit(
        &self,
        pool: PoolId,
        team: TeamId,
        amount: &Vector,
        hypothetical: &Hypothetical,
    ) -> bool {
        self.teams[team].path.iter().any(|at| {
            let quota_usage = &self.quota_usages[pool][*at];
            quota_usage.limit.iter().any(|(index, cap)| {
                let change = hypothetical.change(*at, *index);
                let used = quota_usage.held.get(*index).saturating_sub(quota_usage.terminating.get(*index));
                amount.get(*index) > 0 && used.saturating_add(change) > *cap
            })
        })
    }

    /// The first resource of which the limit of a queue does not allow `amount` more.
    #[must_use]
    pub fn over_queue_limit(
        &self,
        team: TeamId,
        queue: &Queue,
        amount: &Vector,
        resources: &Resources,
    ) -> Option<usize> {
        let held = self.queue_held.get(&(team, queue.name.clone()));
        amount.nonzero().map(|(index, _)| index).find(|index| {
            queue.limit.get(resources.name(*index)).is_some_and(|cap| {
                held.map_or(0, |held| held.get(*index)).saturating_add(amount.get(*index)) > cap.as_milli()
            })
        })
    }

    /// What a queue uses of a resource over all pools, ending pods included.
    #[must_use]
    pub fn used_of_queue(&self, team: TeamId, queue: &Name, resource: usize) -> i64 {
        self.queue_held.get(&(team, queue.clone())).map_or(0, |held| held.get(resource))
    }

    /// Whether the team and every team above it stay within their guarantees with `amount` more and the
    /// hypothetical changes (law 2). Only requested resources count, and the team's own guarantee must cover
    /// at least one of them.
    #[must_use]
    pub fn within_guarantee(
        &self,
        pool: PoolId,
        team: TeamId,
        amount: &Vector,
        hypothetical: &Hypothetical,
    ) -> bool {
        self.within_guarantee_by_exchange(pool, team, amount, (hypothetical, hypothetical)) == Exchange::Full
    }

    /// Whether a workload is within guarantee once victims are gone: `before` are the hypothetical changes without their end,
    /// `after` those with it. Above the team a level may use more than its guarantee where it uses no more than before: what
    /// its teams take from each other is no matter for the others.
    #[must_use]
    pub fn within_guarantee_by_exchange(
        &self,
        pool: PoolId,
        team: TeamId,
        amount: &Vector,
        (before, after): (&Hypothetical, &Hypothetical),
    ) -> Exchange {
        let holds = |at: TeamId| {
            let quota_usage = &self.quota_usages[pool][at];
            quota_usage.governed().all(|(index, guaranteed)| {
                let more = amount.get(index);
                let change = after.change(at, index).saturating_sub(before.change(at, index));
                more == 0
                    || counted(quota_usage, at, index, after).saturating_add(more) <= guaranteed
                    || at != team && change.saturating_add(more) <= 0
            })
        };
        if !self.quota_usages[pool][team].covers_any(amount) || self.is_spent(team) || !holds(team) {
            return Exchange::Lacking;
        }
        let beyond = self.teams[team].path.iter().find(|at| !holds(**at));
        beyond.map_or(Exchange::Full, |at| Exchange::Beyond(*at))
    }

    /// Whether `amount` could be within guarantee if no other work ran.
    #[must_use]
    pub fn could_be_within_guarantee(&self, pool: PoolId, team: TeamId, amount: &Vector) -> bool {
        self.quota_usages[pool][team].covers_any(amount)
            && !self.teams[team].path.iter().any(|at| self.quota_usages[pool][*at].is_smaller_than(amount))
    }

    /// Whether the work of the team that is never preempted stays within its guarantee and those above it with `amount`
    /// more; its preemptible work does not count (law 2). What asks for nothing that a quota of the pool lists is not
    /// limited.
    #[must_use]
    pub fn holds_fixed(&self, pool: PoolId, team: TeamId, amount: &Vector) -> bool {
        self.may_hold_fixed(pool, team, amount)
            && !self.is_spent(team)
            && self.holds_beside(pool, team, amount, QuotaUsage::fixed)
    }

    /// Whether the guarantees on the path hold `amount` also while pods of such work end, so that it may start at once: until they are
    /// gone, nothing can give another team its guarantee (law 2).
    #[must_use]
    pub fn holds_fixed_now(&self, pool: PoolId, team: TeamId, amount: &Vector) -> bool {
        self.holds_beside(pool, team, amount, QuotaUsage::fixed_now)
    }

    /// Whether the guarantees on the path hold `amount` beside what is `used` of them.
    fn holds_beside(
        &self,
        pool: PoolId,
        team: TeamId,
        amount: &Vector,
        used: fn(&QuotaUsage, usize) -> i64,
    ) -> bool {
        self.teams[team].path.iter().all(|at| {
            let quota_usage = &self.quota_usages[pool][*at];
            quota_usage.governed().all(|(index, guaranteed)| {
                let more = amount.get(index);
                more == 0 || used(quota_usage, index).saturating_add(more) <= guaranteed
            })
        })
    }

    /// Whether the guarantees on its path hold `amount`, of work that is never preempted, beside all other such work there, and
    /// cover any of it.
    #[must_use]
    pub fn guarantees_fixed(&self, pool: PoolId, team: TeamId, amount: &Vector) -> bool {
        self.quota_usages[pool][team].covers_any(amount) && self.holds_fixed(pool, team, amount)
    }

    /// Whether work of the team that is never preempted may ask for `amount` at all: its guarantee covers a resource of it,
    /// or no quota of the pool lists any.
    #[must_use]
    pub fn may_hold_fixed(&self, pool: PoolId, team: TeamId, amount: &Vector) -> bool {
        let own = &self.quota_usages[pool][team];
        own.covers_any(amount) || !amount.nonzero().any(|(index, _)| self.listed[pool].contains(&index))
    }

    /// Whether nothing is left of a budget of the team or of one above it: no guarantee counts for what starts then.
    fn is_spent(&self, team: TeamId) -> bool {
        self.budgets.is_spent(&self.teams[team].path)
    }

    /// The levels of a team's path with guarantees in the pool.
    #[must_use]
    pub fn guaranteed_levels(&self, pool: PoolId, team: TeamId) -> Vec<TeamId> {
        let path = self.teams[team].path.iter().copied();
        path.filter(|at| self.quota_usages[pool][*at].has_guarantee()).collect()
    }

    /// Whether a team uses less than its guarantee of some resource.
    #[must_use]
    pub fn has_idle_guarantee(&self, pool: PoolId, team: TeamId) -> bool {
        let own = &self.quota_usages[pool][team];
        own.governed().any(|(index, guaranteed)| own.counted(index, 0, 0) < guaranteed)
    }

    /// Whether the team's own guarantee, without those above it, covers `amount` more.
    #[must_use]
    pub fn own_guarantee_holds(&self, pool: PoolId, team: TeamId, amount: &Vector) -> bool {
        let own = &self.quota_usages[pool][team];
        own.covers_any(amount)
            && !self.is_spent(team)
            && own.governed().all(|(index, guaranteed)| {
                let more = amount.get(index);
                more == 0 || own.counted(index, 0, more) <= guaranteed
            })
    }

    /// The same after hypothetical changes.
    #[must_use]
    pub fn own_guarantee_would_hold(
        &self,
        pool: PoolId,
        team: TeamId,
        amount: &Vector,
        hypothetical: &Hypothetical,
    ) -> bool {
        let asked = |index: usize| amount.get(index) > 0;
        let own = &self.quota_usages[pool][team];
        own.governed().any(|(index, _)| asked(index))
            && !self.is_spent(team)
            && own.governed().filter(|(index, _)| asked(*index)).all(|(index, guaranteed)| {
                counted(own, team, index, hypothetical).saturating_add(amount.get(index)) <= guaranteed
            })
    }

    /// The levels of a team's path with guarantees in the pool that are smaller than `least`, the smallest size of a
    /// preemptible workload.
    #[must_use]
    pub fn smaller_than(&self, pool: PoolId, team: TeamId, least: &Vector) -> Vec<TeamId> {
        let path = self.teams[team].path.iter().copied();
        path.filter(|at| self.quota_usages[pool][*at].is_smaller_than(least)).collect()
    }

    /// Adds `amount` × `times` to the hypothetical usage of a team and all teams above it.
    pub fn assume<'a>(
        &self,
        hypothetical: &mut Hypothetical,
        account: impl Into<Account<'a>>,
        amount: &Vector,
        times: i64,
    ) {
        let account: Account<'a> = account.into();
        for at in &self.teams[account.team].path {
            hypothetical.add(*at, amount, times, account.oversize.contains(at));
        }
    }
}

/// The usage that counts against the guarantee of a team, after hypothetical changes.
fn counted(quota_usage: &QuotaUsage, at: TeamId, index: usize, hypothetical: &Hypothetical) -> i64 {
    let change = hypothetical.change(at, index).saturating_sub(hypothetical.oversize(at, index));
    quota_usage.counted(index, change, 0)
}
