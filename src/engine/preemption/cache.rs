//! Results that the searches for one preemptor share, follow-up searches included: they depend on the pool and the
//! actual state only, not on assumptions.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use crate::queue::class::Demand;
use crate::queue::pending::Pending;
use crate::state::cluster::ClusterState;
use crate::state::quotas::Hypothetical;
use crate::types::ids::{PoolId, TeamId};
use crate::types::vector::Vector;

/// The shared results, computed on first use.
#[derive(Default)]
pub struct Cache {
    guaranteed_waiting: OnceCell<Vec<WaitingGroup>>,
}

impl Cache {
    /// The waiting workloads that the guarantees of their own teams would hold, grouped by request.
    pub fn guaranteed_waiting(
        &self,
        cluster: &ClusterState,
        pending: &Pending,
        pool: PoolId,
    ) -> &[WaitingGroup] {
        self.guaranteed_waiting.get_or_init(|| {
            let quotas = &cluster.quotas;
            let groups = pending.potential_preemptors().filter_map(|(wanted, first, mut teams)| {
                let total = cluster.at(first)?.least_total();
                teams.any(|team| quotas.own_guarantee_holds(pool, team, &total)).then(|| WaitingGroup {
                    wanted: wanted.clone(),
                    total,
                    teams: OnceCell::new(),
                })
            });
            groups.collect()
        })
    }
}

/// Waiting workloads with the same request, some of which the guarantees of their teams would hold.
#[derive(Debug)]
pub struct WaitingGroup {
    /// The request that they share.
    pub wanted: Demand,
    /// The resources that each of them must have.
    total: Vector,
    /// Their teams, computed on first use.
    teams: OnceCell<GroupTeams>,
}

/// The teams of a group with own guarantees that hold one more workload of the group.
#[derive(Debug, Default)]
struct GroupTeams {
    /// By root team.
    all: BTreeMap<TeamId, Vec<TeamId>>,
    /// By root team, those that are within guarantee at every level.
    within_guarantee: BTreeMap<TeamId, Vec<TeamId>>,
}

impl WaitingGroup {
    fn group_teams(&self, cluster: &ClusterState, pending: &Pending, pool: PoolId) -> &GroupTeams {
        self.teams.get_or_init(|| {
            let quotas = &cluster.quotas;
            let mut teams = GroupTeams::default();
            for team in pending.potential_preemptor_teams(&self.wanted) {
                let root = quotas.team(team).path.last().copied();
                let Some(root) = root.filter(|_| quotas.own_guarantee_holds(pool, team, &self.total)) else {
                    continue;
                };
                teams.all.entry(root).or_default().push(team);
                if quotas.within_guarantee(pool, team, &self.total, &Hypothetical::new()) {
                    teams.within_guarantee.entry(root).or_default().push(team);
                }
            }
            teams
        })
    }

    /// The teams with own guarantees that hold one more workload of the group.
    pub fn teams(
        &self,
        cluster: &ClusterState,
        pending: &Pending,
        pool: PoolId,
    ) -> impl Iterator<Item = TeamId> {
        self.group_teams(cluster, pending, pool).all.values().flatten().copied()
    }

    /// The teams for which one more workload of the group is within guarantee under the hypothetical changes.
    pub fn teams_within_guarantee<'s>(
        &'s self,
        cluster: &'s ClusterState,
        pending: &Pending,
        pool: PoolId,
        hypothetical: &'s Hypothetical,
    ) -> impl Iterator<Item = TeamId> + 's {
        let teams = self.group_teams(cluster, pending, pool);
        // The answer is known for the roots without a hypothetical change.
        let unchanged = teams.within_guarantee.iter().filter(|(root, _)| !hypothetical.contains_key(root));
        let changed = hypothetical.keys().filter_map(|root| teams.all.get(root)).flatten();
        let within_guarantee =
            move |team: &&TeamId| cluster.quotas.within_guarantee(pool, **team, &self.total, hypothetical);
        unchanged.flat_map(|(_, teams)| teams).chain(changed.filter(within_guarantee)).copied()
    }
}
