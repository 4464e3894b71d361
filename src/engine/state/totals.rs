//! Totals per team and pool of held and preemptible resources, so a decision need not visit every running
//! workload.

use std::collections::{BTreeMap, BTreeSet};

use crate::state::holders::Newest;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::WorkloadId;
use crate::types::ids::{PoolId, Priority, TeamId, WorkloadIndex};
use crate::types::vector::Vector;

/// The contribution of one workload to the totals.
#[derive(Clone, Debug)]
pub struct Contribution {
    quota_usage: (PoolId, TeamId),
    priority: Priority,
    newest: Newest,
    /// It runs, and no decision about it is pending.
    runs: bool,
    /// It may be evicted.
    preemptible: bool,
    /// Its usage, except terminating pods.
    held: Vector,
    /// The smallest part that can be reclaimed, if it runs or is about to and may be evicted or shrunk.
    least: Option<Vector>,
}

impl Contribution {
    /// The contribution of a workload in its present state; `None` when it holds nothing.
    #[must_use]
    pub fn of(info: &WorkloadInfo, priority: Priority, preemptible: bool) -> Option<Self> {
        if info.usage.pods == 0 {
            return None;
        }
        let runs = matches!(info.phase, Phase::Running(_));
        let stays = runs || matches!(info.phase, Phase::Starting(_) | Phase::Resizing { .. });
        let held = info.staying_total();
        let shrinks = info.workload.resizable && info.usage.staying_pods() > info.least_pods();
        let least = || if shrinks { info.need.clone() } else { held.clone() };
        Some(Self {
            quota_usage: (info.usage.pool, info.team),
            priority,
            newest: Newest::of(info),
            runs,
            preemptible,
            least: (stays && preemptible).then(least),
            held,
        })
    }
}

/// The totals of one team in one pool.
#[derive(Clone, Debug, Default)]
struct Sums {
    /// The usage of running workloads, by priority, with their number.
    running: BTreeMap<Priority, (usize, Vector)>,
    /// The same for preemptible ones.
    evictable: BTreeMap<Priority, (usize, Vector)>,
    /// Workloads that may be evicted or shrunk, the newest first.
    reclaimable: BTreeSet<Newest>,
    /// Their usage, by priority, with their number.
    reclaimable_sums: BTreeMap<Priority, (usize, Vector)>,
    /// The distinct smallest parts that can be reclaimed from one of these, with the number of workloads for
    /// each.
    parts: BTreeMap<Vec<(usize, i64)>, (usize, Vector)>,
}

/// The totals of every team in every pool.
#[derive(Clone, Debug, Default)]
pub struct UsageTotals(BTreeMap<(PoolId, TeamId), Sums>);

impl UsageTotals {
    /// Adds a contribution.
    pub fn add(&mut self, contribution: &Contribution) {
        let sums = self.0.entry(contribution.quota_usage).or_default();
        let add = |sums: &mut BTreeMap<Priority, (usize, Vector)>| {
            let (count, held) = sums.entry(contribution.priority).or_default();
            *count += 1;
            held.add(&contribution.held, 1);
        };
        if contribution.runs {
            add(&mut sums.running);
            if contribution.preemptible {
                add(&mut sums.evictable);
            }
        }
        if let Some(least) = &contribution.least {
            sums.reclaimable.insert(contribution.newest.clone());
            add(&mut sums.reclaimable_sums);
            let part = sums.parts.entry(least.nonzero().collect());
            part.or_insert_with(|| (0, least.clone())).0 += 1;
        }
    }

    /// Removes a contribution that was added.
    pub fn remove(&mut self, contribution: &Contribution) {
        let Some(sums) = self.0.get_mut(&contribution.quota_usage) else { return };
        let subtract = |sums: &mut BTreeMap<Priority, (usize, Vector)>| {
            if let Some((count, held)) = sums.get_mut(&contribution.priority) {
                *count -= 1;
                held.add(&contribution.held, -1);
                if *count == 0 {
                    sums.remove(&contribution.priority);
                }
            }
        };
        if contribution.runs {
            subtract(&mut sums.running);
            if contribution.preemptible {
                subtract(&mut sums.evictable);
            }
        }
        if let Some(least) = &contribution.least {
            sums.reclaimable.remove(&contribution.newest);
            subtract(&mut sums.reclaimable_sums);
            let part: Vec<(usize, i64)> = least.nonzero().collect();
            if let Some((count, _)) = sums.parts.get_mut(&part) {
                *count -= 1;
                if *count == 0 {
                    sums.parts.remove(&part);
                }
            }
        }
        if sums.running.is_empty() && sums.reclaimable.is_empty() {
            self.0.remove(&contribution.quota_usage);
        }
    }

    /// Clears all totals before they are built again.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The lowest priority among the reclaimable workloads of a team.
    #[must_use]
    pub fn lowest(&self, pool: PoolId, team: TeamId) -> Option<Priority> {
        self.0.get(&(pool, team))?.reclaimable_sums.first_key_value().map(|(priority, _)| *priority)
    }

    /// The teams with reclaimable workloads.
    pub fn reclaimable_teams(&self, pool: PoolId) -> impl Iterator<Item = TeamId> {
        let teams = self.0.range((pool, TeamId::MIN)..=(pool, TeamId::MAX));
        teams.filter(|(_, sums)| !sums.reclaimable.is_empty()).map(|((_, team), _)| *team)
    }

    /// The number of reclaimable workloads of a team.
    #[must_use]
    pub fn count(&self, pool: PoolId, team: TeamId) -> usize {
        self.0.get(&(pool, team)).map_or(0, |sums| sums.reclaimable.len())
    }

    /// The reclaimable workloads of a team, the newest first.
    pub fn reclaimable(
        &self,
        pool: PoolId,
        team: TeamId,
    ) -> impl DoubleEndedIterator<Item = (&WorkloadId, WorkloadIndex)> {
        let sums = self.0.get(&(pool, team)).into_iter();
        sums.flat_map(|sums| &sums.reclaimable).map(|newest| (&newest.id, newest.index))
    }

    /// The distinct smallest parts that can be reclaimed from one workload of a team.
    pub fn parts(&self, pool: PoolId, team: TeamId) -> impl Iterator<Item = &Vector> {
        let sums = self.0.get(&(pool, team)).into_iter();
        sums.flat_map(|sums| sums.parts.values()).map(|(_, part)| part)
    }

    /// The usage of a team's reclaimable workloads with a lower priority.
    #[must_use]
    pub fn reclaimable_below(&self, pool: PoolId, team: TeamId, priority: Priority) -> Vector {
        self.0.get(&(pool, team)).map_or_else(Vector::default, |sums| below(&sums.reclaimable_sums, priority))
    }

    /// Whether a workload is reclaimable.
    #[must_use]
    pub fn is_reclaimable(&self, info: &WorkloadInfo) -> bool {
        let sums = self.0.get(&(info.usage.pool, info.team));
        sums.is_some_and(|sums| sums.reclaimable.contains(&Newest::of(info)))
    }

    /// The usage of a team's running workloads with a lower priority.
    #[must_use]
    pub fn running_below(&self, pool: PoolId, team: TeamId, priority: Priority) -> Vector {
        self.0.get(&(pool, team)).map_or_else(Vector::default, |sums| below(&sums.running, priority))
    }

    /// The usage of a team's preemptible running workloads with a lower priority.
    #[must_use]
    pub fn evictable_below(&self, pool: PoolId, team: TeamId, priority: Priority) -> Vector {
        self.0.get(&(pool, team)).map_or_else(Vector::default, |sums| below(&sums.evictable, priority))
    }
}

fn below(sums: &BTreeMap<Priority, (usize, Vector)>, priority: Priority) -> Vector {
    let mut total = Vector::default();
    for (_, held) in sums.range(..priority).map(|(_, sum)| sum) {
        total.add(held, 1);
    }
    total
}
