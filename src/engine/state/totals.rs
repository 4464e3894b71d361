//! What those who run hold and might yield, team by team, as sums: so that nobody need look at each of
//! them to know what all of them come to.

use std::collections::{BTreeMap, BTreeSet};

use crate::state::holders::Newest;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::WorkloadId;
use crate::types::ids::{PoolId, Priority, TeamId, WorkloadIndex};
use crate::types::vector::Vector;

/// What one workload adds to the sums.
#[derive(Clone, Debug)]
pub struct Contribution {
    quota_usage: (PoolId, TeamId),
    priority: Priority,
    newest: Newest,
    /// It runs, and no decision about it is under way.
    runs: bool,
    /// It may be evicted.
    preemptible: bool,
    /// All that it holds.
    held: Vector,
    /// The least that can be taken of it, if it runs or is about to and may be evicted or made smaller.
    least: Option<Vector>,
}

impl Contribution {
    /// The stake of a workload as it stands; `None` when it holds nothing.
    #[must_use]
    pub fn of(info: &WorkloadInfo, priority: Priority, preemptible: bool) -> Option<Self> {
        if info.usage.pods == 0 {
            return None;
        }
        let runs = matches!(info.phase, Phase::Running(_));
        let stays = runs || matches!(info.phase, Phase::Starting(_) | Phase::Resizing { .. });
        let held = info.keeps();
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

/// The sums of one team in one pool.
#[derive(Clone, Debug, Default)]
struct Sums {
    /// What those hold that run, by priority, with their number.
    running: BTreeMap<Priority, (usize, Vector)>,
    /// The same of those that may be evicted.
    evictable: BTreeMap<Priority, (usize, Vector)>,
    /// Those that might yield something, the newest first, and how many by priority.
    reclaimable: BTreeSet<Newest>,
    priorities: BTreeMap<Priority, usize>,
    /// The different least parts that can be had of one of these, with how many have each.
    parts: BTreeMap<Vec<(usize, i64)>, (usize, Vector)>,
}

/// The sums of every team in every pool.
#[derive(Clone, Debug, Default)]
pub struct UsageTotals(BTreeMap<(PoolId, TeamId), Sums>);

impl UsageTotals {
    /// Takes a stake in.
    pub fn add(&mut self, contribution: &Contribution) {
        let sums = self.0.entry(contribution.quota_usage).or_default();
        let sum = |sums: &mut BTreeMap<Priority, (usize, Vector)>| {
            let (count, held) = sums.entry(contribution.priority).or_default();
            *count += 1;
            held.add(&contribution.held, 1);
        };
        if contribution.runs {
            sum(&mut sums.running);
            if contribution.preemptible {
                sum(&mut sums.evictable);
            }
        }
        if let Some(least) = &contribution.least {
            sums.reclaimable.insert(contribution.newest.clone());
            *sums.priorities.entry(contribution.priority).or_default() += 1;
            let part = sums.parts.entry(least.nonzero().collect());
            part.or_insert_with(|| (0, least.clone())).0 += 1;
        }
    }

    /// Takes out a stake that was taken in.
    pub fn remove(&mut self, contribution: &Contribution) {
        let Some(sums) = self.0.get_mut(&contribution.quota_usage) else { return };
        let less = |sums: &mut BTreeMap<Priority, (usize, Vector)>| {
            if let Some((count, held)) = sums.get_mut(&contribution.priority) {
                *count -= 1;
                held.add(&contribution.held, -1);
                if *count == 0 {
                    sums.remove(&contribution.priority);
                }
            }
        };
        if contribution.runs {
            less(&mut sums.running);
            if contribution.preemptible {
                less(&mut sums.evictable);
            }
        }
        if let Some(least) = &contribution.least {
            sums.reclaimable.remove(&contribution.newest);
            if let Some(count) = sums.priorities.get_mut(&contribution.priority) {
                *count -= 1;
                if *count == 0 {
                    sums.priorities.remove(&contribution.priority);
                }
            }
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

    /// Forgets all, before everything is taken in anew.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The lowest priority of those of a team that might yield something.
    #[must_use]
    pub fn lowest(&self, pool: PoolId, team: TeamId) -> Option<Priority> {
        self.0.get(&(pool, team))?.priorities.first_key_value().map(|(priority, _)| *priority)
    }

    /// The teams of which somebody might yield something.
    pub fn yielding_teams(&self, pool: PoolId) -> impl Iterator<Item = TeamId> {
        let teams = self.0.range((pool, TeamId::MIN)..=(pool, TeamId::MAX));
        teams.filter(|(_, sums)| !sums.reclaimable.is_empty()).map(|((_, team), _)| *team)
    }

    /// How many of a team might yield something.
    #[must_use]
    pub fn count(&self, pool: PoolId, team: TeamId) -> usize {
        self.0.get(&(pool, team)).map_or(0, |sums| sums.reclaimable.len())
    }

    /// Those of a team that might yield something, the newest first.
    pub fn reclaimable(
        &self,
        pool: PoolId,
        team: TeamId,
    ) -> impl DoubleEndedIterator<Item = (&WorkloadId, WorkloadIndex)> {
        let sums = self.0.get(&(pool, team)).into_iter();
        sums.flat_map(|sums| &sums.reclaimable).map(|newest| (&newest.id, newest.place))
    }

    /// The different least parts that can be had of one of a team.
    pub fn parts(&self, pool: PoolId, team: TeamId) -> impl Iterator<Item = &Vector> {
        let sums = self.0.get(&(pool, team)).into_iter();
        sums.flat_map(|sums| sums.parts.values()).map(|(_, part)| part)
    }

    /// What those of a team hold that run with a lower priority.
    #[must_use]
    pub fn running_below(&self, pool: PoolId, team: TeamId, priority: Priority) -> Vector {
        self.0.get(&(pool, team)).map_or_else(Vector::default, |sums| below(&sums.running, priority))
    }

    /// What those of a team hold that run with a lower priority and may be evicted.
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
