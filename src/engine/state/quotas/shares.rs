//! Fair shares: the borrowed capacity of each team relative to others, and whether a change is fairer (law
//! 5).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::state::quotas::hypothetical::Hypothetical;
use crate::state::quotas::tree::{QuotaTree, Share};
use crate::types::ids::{PoolId, TeamId};
use crate::types::ratio::{self, Ratio};
use crate::types::vector::Vector;
use crate::types::{Name, Time};

impl QuotaTree {
    /// The team's share of borrowed capacity once evictions end, with its past usage.
    #[must_use]
    pub fn share(&self, pool: PoolId, team: TeamId) -> Share {
        let past = |at: &TeamId| self.quota_usages[pool][*at].past.counted();
        self.teams[team].path.iter().rev().map(|at| self.level_share_and(pool, *at, None, past(at))).collect()
    }

    /// Lets past borrowed usage decay from `last`, the time of the last step, to `now`.
    pub fn accrue(&mut self, last: Time, now: Time, half_life: Duration) {
        for quota_usage in self.quota_usages.iter_mut().flatten() {
            let borrowed = quota_usage.borrowed_now();
            quota_usage.past.accrue(&borrowed, last, now, half_life);
        }
    }

    /// Takes note of what the status of a team says about its past usage. With `adopt`, the engine's own value goes on from
    /// there. What the status does not list is zero.
    pub fn note_written(
        &mut self,
        team: &Name,
        pools: &BTreeMap<PoolId, Vector>,
        times: (Time, Time),
        half_life: Duration,
        adopt: bool,
    ) {
        let (team, (at, now)) = (self.intern_team(team), times);
        for pool in PoolId::first(self.quota_usages.len()) {
            let quota_usage = &mut self.quota_usages[pool][team];
            let written = pools.get(&pool).cloned().unwrap_or_default();
            if adopt {
                let borrowed = quota_usage.borrowed_now();
                quota_usage.past.adopt(&written, &borrowed, at, now, half_life);
            }
            quota_usage.past.note_written(written, at, now, half_life);
        }
    }

    /// The share that orders a borrowing workload of that team, or the share with `more`. A team of weight 0
    /// comes after every other, even while it has no usage.
    #[must_use]
    pub fn queue_share(&self, pool: PoolId, team: TeamId, more: Option<&Vector>) -> Share {
        let weightless = |at: &TeamId| self.teams[*at].team.as_ref().is_some_and(|team| team.weight == 0);
        let level = |at: &TeamId| {
            let past = self.quota_usages[pool][*at].past.counted();
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
