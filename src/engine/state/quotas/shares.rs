//! Shares of the surplus: what each team has of it, and whether a change makes them fairer.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::state::quotas::{Hypothetical, QuotaTree, Share};
use crate::types::ids::{PoolId, TeamId};
use crate::types::ratio::{self, Ratio};
use crate::types::vector::Vector;

impl QuotaTree {
    /// The team's share of the surplus as things will be once evictions end, and what it had before.
    #[must_use]
    pub fn share(&self, pool: PoolId, team: TeamId) -> Share {
        let past = |at: &TeamId| &self.quota_usages[pool][*at].past;
        self.teams[team].path.iter().rev().map(|at| self.level_share_and(pool, *at, None, past(at))).collect()
    }

    /// Lets time pass over what was held of the surplus: of what was before, half is left after every
    /// half-life (in between, what lies on the straight line), and what is held now takes its place.
    pub fn accrue(&mut self, elapsed: Duration, half_life: Duration) {
        let (elapsed, half_life) = (elapsed.as_millis(), half_life.as_millis().max(1));
        let whole = u32::try_from(elapsed / half_life).unwrap_or(u32::MAX);
        // The part that is left, in units of 2⁻³².
        let within = ((elapsed % half_life) << 31) / half_life;
        let kept = ((1_u128 << 32) - within).checked_shr(whole).unwrap_or(0);
        let kept = i128::try_from(kept).unwrap_or(0);
        for quota_usage in self.quota_usages.iter_mut().flatten() {
            for index in 0..quota_usage.held.len().max(quota_usage.past.len()) {
                let now = i128::from(quota_usage.surplus(index, quota_usage.held.get(index)));
                let before = i128::from(quota_usage.past.get(index));
                let past = (before * kept + now * ((1_i128 << 32) - kept)) >> 32;
                quota_usage.past.set(index, i64::try_from(past).unwrap_or(i64::MAX));
            }
        }
    }

    /// The share that a claim on the surplus of that team queues with, or would have with `more`: a team
    /// of weight 0 stands behind every other, even while it has nothing.
    #[must_use]
    pub fn standing(&self, pool: PoolId, team: TeamId, more: Option<&Vector>) -> Share {
        let weightless = |at: &TeamId| self.teams[*at].team.as_ref().is_some_and(|team| team.weight == 0);
        let level = |at: &TeamId| {
            let past = &self.quota_usages[pool][*at].past;
            if weightless(at) { Ratio::INFINITE } else { self.level_share_and(pool, *at, more, past) }
        };
        self.teams[team].path.iter().rev().map(level).collect()
    }

    /// Whether the changes `after` make the shares of the surplus fairer than those `before`, see
    /// [`ratio::fairer`].
    #[must_use]
    pub fn fairer_than(&self, pool: PoolId, before: &Hypothetical, after: &Hypothetical) -> bool {
        let dirty: BTreeSet<TeamId> = before.keys().chain(after.keys()).copied().collect();
        let shares = |hypothetical: &Hypothetical| {
            dirty.iter().map(|at| self.level_share(pool, *at, hypothetical.get(at))).collect()
        };
        ratio::fairer(shares(before), shares(after))
    }

    /// Whether one of the team's shares is infinite after a change. Such a claim takes from nobody:
    /// teams of weight 0 have what no other team asks for.
    #[must_use]
    pub fn is_weightless(&self, pool: PoolId, team: TeamId, after: &Hypothetical) -> bool {
        self.teams[team].path.iter().any(|at| self.level_share(pool, *at, after.get(at)).is_infinite())
    }

    /// One team's own share, without those above it, after an imagined change.
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

    /// The same with so much more of the surplus.
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
                let usage = quota_usage.settled(index) + change.map_or(0, |change| change.get(index));
                let surplus = positive(quota_usage.surplus(index, usage)) + positive(more.get(index));
                Ratio::new(surplus, positive(capacity.get(index)) * u128::from(weight))
            })
            .max()
            .unwrap_or(Ratio::ZERO)
    }
}
