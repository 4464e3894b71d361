//! What those who run might yield to a claimant, team by team: bounds that tell without a search when
//! none can find anything.

use std::collections::{BTreeMap, BTreeSet};

use crate::state::cluster::ClusterState;
use crate::state::quotas::Hypothetical;
use crate::types::ids::{PoolId, Priority, TeamId};
use crate::types::ratio::Ratio;

/// The bounds for every team in every pool.
#[derive(Clone, Debug, Default)]
pub struct Reclaimable {
    teams: BTreeMap<(PoolId, TeamId), Team>,
    /// The shares of teams of which something can be taken, and of those above them.
    shares: BTreeMap<PoolId, BTreeSet<(Ratio, TeamId)>>,
}

/// What is known of one team in one pool.
#[derive(Clone, Debug, Default)]
struct Team {
    /// The lowest priority of those that run and may be evicted.
    lowest: Option<Priority>,
    /// Whether one of them may be taken whole without leaving the team below its guarantee.
    lends: bool,
    /// How many teams on or below it lend.
    lenders: usize,
    /// Its share as it stands in the list, if it does.
    listed: Option<Ratio>,
}

impl Reclaimable {
    /// The lowest priority of those of the team that run and may be evicted.
    #[must_use]
    pub fn lowest(&self, pool: PoolId, team: TeamId) -> Option<Priority> {
        self.teams.get(&(pool, team)).and_then(|team| team.lowest)
    }

    /// The largest share of a team of which something can be taken, those of a path aside.
    #[must_use]
    pub fn largest(&self, pool: PoolId, path: &[TeamId]) -> Option<Ratio> {
        let shares = self.shares.get(&pool)?;
        shares.iter().rev().find(|(_, team)| !path.contains(team)).map(|(share, _)| *share)
    }

    /// Looks at a team anew; the share up to which claims may have become possible.
    pub fn refresh(&mut self, state: &ClusterState, pool: PoolId, team: TeamId) -> Option<Ratio> {
        let lowest = state.totals.lowest(pool, team);
        let nothing = Hypothetical::new();
        let own = [team];
        let lends = state.totals.parts(pool, team).any(|least| {
            state.quotas.beyond_guarantee(pool, &own, least, &nothing)
                && !state.quotas.would_fall_below_guarantee(pool, &own, least, &nothing)
        });
        let known = self.teams.entry((pool, team)).or_default();
        known.lowest = lowest;
        let before = std::mem::replace(&mut known.lends, lends);
        let mut largest = None;
        for at in state.quotas.team(team).path.clone() {
            let known = self.teams.entry((pool, at)).or_default();
            match (before, lends) {
                (false, true) => known.lenders += 1,
                (true, false) => known.lenders -= 1,
                _ => {}
            }
            let share = (known.lenders > 0).then(|| state.quotas.level_share(pool, at, None));
            let shares = self.shares.entry(pool).or_default();
            if let Some(old) = known.listed {
                shares.remove(&(old, at));
            }
            known.listed = share;
            shares.extend(share.map(|share| (share, at)));
            largest = largest.max(share);
        }
        largest
    }

    /// Forgets everything, and looks at every team that holds something anew.
    pub fn rebuild(&mut self, state: &ClusterState) {
        *self = Self::default();
        let pools: Vec<PoolId> = state.quotas.pools().map(|(_, pool)| pool).collect();
        for pool in pools {
            for team in state.teams_holding(pool) {
                self.refresh(state, pool, team);
            }
        }
    }
}
