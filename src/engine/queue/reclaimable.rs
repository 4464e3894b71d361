//! Bounds on the usage that preemption can take from each team.
//!
//! The bounds show without a search that a preemptor can find no victim.

use std::collections::{BTreeMap, BTreeSet};

use crate::queue::victim_teams::VictimTeams;
use crate::state::cluster::ClusterState;
use crate::state::quotas::{Hypothetical, Protection};
use crate::types::ids::{PoolId, Priority, TeamId};
use crate::types::ratio::Ratio;

/// The bounds for every team in every pool.
#[derive(Clone, Debug, Default)]
pub struct Reclaimable {
    teams: BTreeMap<(PoolId, TeamId), Team>,
    /// The shares of the teams with reclaimable usage, and of the teams above them.
    shares: BTreeMap<PoolId, Shares>,
    /// The same shares for each team with others below it, of these.
    below: BTreeMap<(PoolId, TeamId), Shares>,
    /// The teams with reclaimable usage in the order in which they are searched.
    victims: BTreeMap<PoolId, VictimTeams>,
}

/// Teams by share.
type Shares = BTreeSet<(Ratio, TeamId)>;

/// The largest of these shares, without those of the teams of a path.
fn largest(shares: &Shares, path: &[TeamId]) -> Option<Ratio> {
    shares.iter().rev().find(|(_, team)| !path.contains(team)).map(|(share, _)| *share)
}

/// Lists a team with another share than until now.
fn list(shares: &mut Shares, team: TeamId, old: Option<Ratio>, new: Option<Ratio>) {
    if let Some(old) = old {
        shares.remove(&(old, team));
    }
    shares.extend(new.map(|share| (share, team)));
}

/// The bounds of one team in one pool.
#[derive(Clone, Debug, Default)]
struct Team {
    /// The lowest priority of its running workloads that may be evicted.
    lowest: Option<Priority>,
    /// Whether one of these can be evicted whole while the team keeps its guarantee.
    borrows: bool,
    /// How many teams at or below this team borrow in that sense.
    borrowers: usize,
    /// Its share in the list of shares, if it is listed.
    listed: Option<Ratio>,
}

impl Reclaimable {
    /// The lowest priority of the team's running workloads that may be evicted.
    #[must_use]
    pub fn lowest(&self, pool: PoolId, team: TeamId) -> Option<Priority> {
        self.teams.get(&(pool, team)).and_then(|team| team.lowest)
    }

    /// The largest share of a team with reclaimable usage, without the teams of a path.
    #[must_use]
    pub fn largest(&self, pool: PoolId, path: &[TeamId]) -> Option<Ratio> {
        largest(self.shares.get(&pool)?, path)
    }

    /// The largest such share below a team.
    #[must_use]
    pub fn largest_below(&self, pool: PoolId, above: TeamId, path: &[TeamId]) -> Option<Ratio> {
        largest(self.below.get(&(pool, above))?, path)
    }

    /// The teams of a pool with reclaimable workloads; `None` if there are none.
    #[must_use]
    pub fn victims(&self, pool: PoolId) -> Option<&VictimTeams> {
        self.victims.get(&pool)
    }

    /// Whether the order of the teams of a pool is the one that would be found now.
    #[must_use]
    pub fn is_current(&self, state: &ClusterState, pool: PoolId) -> bool {
        let found = VictimTeams::of(state, pool);
        self.victims(pool).map_or(found == VictimTeams::default(), |known| *known == found)
    }

    /// Brings the order of the teams up to date after changes of these.
    pub fn reorder(&mut self, state: &ClusterState, changed: &BTreeSet<(PoolId, TeamId)>) {
        let mut pools: BTreeMap<PoolId, BTreeSet<TeamId>> = BTreeMap::new();
        for (pool, team) in changed {
            pools.entry(*pool).or_default().insert(*team);
        }
        for (pool, teams) in pools {
            self.victims.entry(pool).or_default().refresh(state, pool, &teams);
        }
    }

    /// Updates the bounds of a team. Returns the share up to which preemption may have become possible.
    pub fn refresh(&mut self, state: &ClusterState, pool: PoolId, team: TeamId) -> Option<Ratio> {
        let lowest = state.totals.lowest(pool, team);
        let nothing = Hypothetical::new();
        // What is larger than the guarantee is protected with the whole usage, the rest with less.
        let own = Protection { levels: &[team], oversize: &[team], from_borrower: true };
        let borrows = state.totals.parts(pool, team).any(|least| {
            state.quotas.beyond_guarantee(pool, own, least, &nothing)
                && !state.quotas.would_fall_below_guarantee(pool, own, least, &nothing)
        });
        let known = self.teams.entry((pool, team)).or_default();
        known.lowest = lowest;
        let before = std::mem::replace(&mut known.borrows, borrows);
        let mut largest = None;
        for level in state.quotas.team(team).path.clone() {
            let known = self.teams.entry((pool, level)).or_default();
            match (before, borrows) {
                (false, true) => known.borrowers += 1,
                (true, false) => known.borrowers -= 1,
                _ => {}
            }
            let share = (known.borrowers > 0).then(|| state.quotas.level_share(pool, level, None));
            let old = std::mem::replace(&mut known.listed, share);
            list(self.shares.entry(pool).or_default(), level, old, share);
            for above in state.quotas.team(level).path.iter().skip(1) {
                list(self.below.entry((pool, *above)).or_default(), level, old, share);
            }
            largest = largest.max(share);
        }
        largest
    }

    /// Recomputes the bounds of every team with usage.
    pub fn rebuild(&mut self, state: &ClusterState) {
        *self = Self::default();
        let pools: Vec<PoolId> = state.quotas.pools().map(|(_, pool)| pool).collect();
        for pool in pools {
            for team in state.teams_holding(pool) {
                self.refresh(state, pool, team);
            }
            self.victims.insert(pool, VictimTeams::of(state, pool));
        }
    }
}
