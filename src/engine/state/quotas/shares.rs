//! Fair shares: the borrowed capacity of each team relative to others, and whether a change is fairer (law
//! 5).

use std::collections::BTreeSet;
use std::time::Duration;

use crate::state::quotas::tree::{Hypothetical, QuotaTree, Share};
use crate::types::Name;
use crate::types::ids::{PoolId, TeamId};
use crate::types::ratio::{self, Ratio};
use crate::types::vector::Vector;

/// The part of past usage that is left after `elapsed`, in units of 2⁻³².
fn remaining(elapsed: Duration, half_life: Duration) -> i128 {
    let (elapsed, half_life) = (elapsed.as_millis(), half_life.as_millis().max(1));
    let whole = u32::try_from(elapsed / half_life).unwrap_or(u32::MAX);
    let within = ((elapsed % half_life) << 31) / half_life;
    let remaining = ((1_u128 << 32) - within).checked_shr(whole).unwrap_or(0);
    i128::try_from(remaining).unwrap_or(0)
}

impl QuotaTree {
    /// The team's share of borrowed capacity once evictions end, with its past usage.
    #[must_use]
    pub fn share(&self, pool: PoolId, team: TeamId) -> Share {
        let past = |at: &TeamId| &self.quota_usages[pool][*at].past;
        self.teams[team].path.iter().rev().map(|at| self.level_share_and(pool, *at, None, past(at))).collect()
    }

    /// Updates the past borrowed usage: after each half-life half of it is left (in between, linearly), and
    /// the present usage takes the place of the rest.
    pub fn accrue(&mut self, elapsed: Duration, half_life: Duration) {
        let remaining = remaining(elapsed, half_life);
        for quota_usage in self.quota_usages.iter_mut().flatten() {
            quota_usage.accrue(remaining);
        }
    }

    /// Takes over what a team had borrowed in a pool by a time that is `elapsed` ago; since then it has borrowed what it
    /// borrows now.
    pub fn adopt_past(
        &mut self,
        pool: &Name,
        team: &Name,
        past: &Vector,
        elapsed: Duration,
        half_life: Duration,
    ) {
        let (pool, team) = (self.intern_pool(pool), self.intern_team(team));
        let quota_usage = &mut self.quota_usages[pool][team];
        (quota_usage.past, quota_usage.past_rest) = (past.clone(), Vector::default());
        quota_usage.accrue(remaining(elapsed, half_life));
    }

    /// The share that orders a borrowing workload of that team, or the share with `more`. A team of weight 0
    /// comes after every other, even while it has no usage.
    #[must_use]
    pub fn queue_share(&self, pool: PoolId, team: TeamId, more: Option<&Vector>) -> Share {
        let weightless = |at: &TeamId| self.teams[*at].team.as_ref().is_some_and(|team| team.weight == 0);
        let level = |at: &TeamId| {
            let past = &self.quota_usages[pool][*at].past;
            if weightless(at) { Ratio::INFINITE } else { self.level_share_and(pool, *at, more, past) }
        };
        self.teams[team].path.iter().rev().map(level).collect()
    }

    /// Whether the shares after `after` are fairer than those after `before`, see [`ratio::fairer`].
    #[must_use]
    pub fn fairer_than(&self, pool: PoolId, before: &Hypothetical, after: &Hypothetical) -> bool {
        let changed: BTreeSet<TeamId> = before.keys().chain(after.keys()).copied().collect();
        let shares = |hypothetical: &Hypothetical| {
            changed.iter().map(|at| self.level_share(pool, *at, hypothetical.get(at))).collect()
        };
        ratio::fairer(shares(before), shares(after))
    }

    /// Whether one of the team's shares is infinite after a change. Such a team cannot preempt for its
    /// borrowing: teams of weight 0 borrow only the capacity that no other team requests.
    #[must_use]
    pub fn is_weightless(&self, pool: PoolId, team: TeamId, after: &Hypothetical) -> bool {
        self.teams[team].path.iter().any(|at| self.level_share(pool, *at, after.get(at)).is_infinite())
    }

    /// The share of one team, without those above it, after a hypothetical change.
    #[must_use]
    pub fn level_share(&self, pool: PoolId, team: TeamId, change: Option<&Vector>) -> Ratio {
        let nothing = Vector::default();
        match change {
            None => {
                self.quota_usages[pool][team].share_or(|| self.level_share_and(pool, team, None, &nothing))
            }
            change => self.level_share_and(pool, team, change, &nothing),
        }
    }

    /// The same, with `more` borrowed capacity.
    fn level_share_and(&self, pool: PoolId, team: TeamId, change: Option<&Vector>, more: &Vector) -> Ratio {
        let capacity = &self.capacity[pool];
        let quota_usage = &self.quota_usages[pool][team];
        let weight = self.teams[team].team.as_ref().map_or(1, |team| team.weight);
        let resources = quota_usage
            .held
            .len()
            .max(quota_usage.nominated.len())
            .max(change.map_or(0, Vector::len))
            .max(more.len());
        let positive = |milli: i64| u128::try_from(milli).unwrap_or(0);
        (0..resources)
            .filter(|index| capacity.get(*index) > 0)
            .map(|index| {
                let usage = quota_usage.after(index, change.map_or(0, |change| change.get(index)), 0);
                let borrowed = positive(quota_usage.borrowed(index, usage)) + positive(more.get(index));
                Ratio::new(borrowed, positive(capacity.get(index)) * u128::from(weight))
            })
            .max()
            .unwrap_or(Ratio::ZERO)
    }
}
