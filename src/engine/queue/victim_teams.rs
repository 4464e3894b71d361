//! The teams of a pool with workloads that may be evicted, in the order in which a preemptor searches them.
//!
//! Every search needs the order of all teams, and an event changes the shares of a few: the order is kept, and only the
//! teams under a root with changed usage are placed again.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::state::cluster::ClusterState;
use crate::state::quotas::Hypothetical;
use crate::types::ids::{PoolId, TeamId};
use crate::types::ratio::Ratio;

/// The order in which teams are searched for candidates: the preemptor's own team first, then the largest shares.
pub type TeamOrder = (bool, Reverse<Ratio>, TeamId);

/// The teams of a pool with reclaimable workloads, without hypothetical changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VictimTeams {
    /// All of them by root team, with their places in the order.
    by_root: BTreeMap<TeamId, BTreeMap<TeamId, Option<TeamOrder>>>,
    /// Those with every level beyond its guarantee, with their root teams. A preemptor under another root may preempt
    /// them.
    beyond_guarantee: BTreeSet<(TeamOrder, TeamId)>,
}

impl VictimTeams {
    /// The teams as they are now.
    #[must_use]
    pub fn of(state: &ClusterState, pool: PoolId) -> Self {
        let mut teams = Self::default();
        for team in state.totals.reclaimable_teams(pool) {
            teams.place(state, pool, team);
        }
        teams
    }

    /// Places a team again that has other workloads, and every other team under its root: their shares have changed.
    pub fn refresh(&mut self, state: &ClusterState, pool: PoolId, changed: &BTreeSet<TeamId>) {
        let roots: BTreeSet<TeamId> = changed.iter().map(|team| state.quotas.root_of(*team)).collect();
        let mut stale = changed.clone();
        stale.extend(roots.iter().filter_map(|root| self.by_root.get(root)).flat_map(BTreeMap::keys));
        for team in stale {
            self.remove(state.quotas.root_of(team), team);
            if state.totals.count(pool, team) > 0 {
                self.place(state, pool, team);
            }
        }
    }

    fn place(&mut self, state: &ClusterState, pool: PoolId, team: TeamId) {
        let (quotas, path) = (&state.quotas, &state.quotas.team(team).path);
        let root = quotas.root_of(team);
        let beyond = quotas.each_beyond_guarantee(pool, path.iter().copied(), &Hypothetical::new());
        let order = beyond.then(|| {
            let largest = path.iter().map(|at| quotas.level_share(pool, *at, None)).max();
            (true, Reverse(largest.unwrap_or(Ratio::ZERO)), team)
        });
        self.beyond_guarantee.extend(order.map(|order| (order, root)));
        self.by_root.entry(root).or_default().insert(team, order);
    }

    fn remove(&mut self, root: TeamId, team: TeamId) {
        let Some(teams) = self.by_root.get_mut(&root) else { return };
        if let Some(order) = teams.remove(&team).flatten() {
            self.beyond_guarantee.remove(&(order, root));
        }
        if teams.is_empty() {
            self.by_root.remove(&root);
        }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = TeamId> {
        self.by_root.values().flat_map(BTreeMap::keys).copied()
    }

    /// Those under a root team.
    pub fn under(&self, root: TeamId) -> impl Iterator<Item = TeamId> {
        self.by_root.get(&root).into_iter().flat_map(BTreeMap::keys).copied()
    }

    /// Those with every level beyond its guarantee, in order, with their root teams.
    pub fn beyond_guarantee(&self) -> impl Iterator<Item = (TeamOrder, TeamId)> {
        self.beyond_guarantee.iter().copied()
    }
}
