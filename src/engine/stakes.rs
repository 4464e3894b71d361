//! What those who run hold and might yield, team by team, as sums: so that nobody need look at each of
//! them to know what all of them come to.

use std::collections::{BTreeMap, BTreeSet};

use super::books::{Books, Place};
use super::entry::{Entry, Phase};
use super::forest::{PoolIx, TeamIx};
use super::holders::Newest;
use super::model::WorkloadId;
use super::rules::{preemptible, priority_of};
use super::vector::Vector;

/// The queue's priority, then the workload's own.
pub type Priority = (i32, i32);

/// What one workload adds to the sums.
#[derive(Clone, Debug)]
pub struct Stake {
    account: (PoolIx, TeamIx),
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

impl Stake {
    /// The stake of a workload as it stands; `None` when it holds nothing.
    #[must_use]
    pub fn of(books: &Books, entry: &Entry) -> Option<Self> {
        if entry.charge.pods == 0 {
            return None;
        }
        let runs = matches!(entry.phase, Phase::Running(_));
        let stays = runs || matches!(entry.phase, Phase::Starting(_) | Phase::Resizing { .. });
        let (preemptible, held) = (preemptible(books, entry), entry.keeps());
        let shrinks = entry.workload.resizable && entry.charge.staying_pods() > entry.least_pods();
        let least = || if shrinks { entry.need.clone() } else { held.clone() };
        Some(Self {
            account: (entry.charge.pool, entry.team),
            priority: priority_of(books, entry),
            newest: Newest::of(entry),
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
    yielding: BTreeSet<Newest>,
    priorities: BTreeMap<Priority, usize>,
    /// The different least parts that can be had of one of these, with how many have each.
    parts: BTreeMap<Vec<(usize, i64)>, (usize, Vector)>,
}

/// The sums of every team in every pool.
#[derive(Clone, Debug, Default)]
pub struct Stakes(BTreeMap<(PoolIx, TeamIx), Sums>);

impl Stakes {
    /// Takes a stake in.
    pub fn add(&mut self, stake: &Stake) {
        let sums = self.0.entry(stake.account).or_default();
        let sum = |sums: &mut BTreeMap<Priority, (usize, Vector)>| {
            let (count, held) = sums.entry(stake.priority).or_default();
            *count += 1;
            held.add(&stake.held, 1);
        };
        if stake.runs {
            sum(&mut sums.running);
            if stake.preemptible {
                sum(&mut sums.evictable);
            }
        }
        if let Some(least) = &stake.least {
            sums.yielding.insert(stake.newest.clone());
            *sums.priorities.entry(stake.priority).or_default() += 1;
            let part = sums.parts.entry(least.nonzero().collect());
            part.or_insert_with(|| (0, least.clone())).0 += 1;
        }
    }

    /// Takes out a stake that was taken in.
    pub fn remove(&mut self, stake: &Stake) {
        let Some(sums) = self.0.get_mut(&stake.account) else { return };
        let less = |sums: &mut BTreeMap<Priority, (usize, Vector)>| {
            if let Some((count, held)) = sums.get_mut(&stake.priority) {
                *count -= 1;
                held.add(&stake.held, -1);
                if *count == 0 {
                    sums.remove(&stake.priority);
                }
            }
        };
        if stake.runs {
            less(&mut sums.running);
            if stake.preemptible {
                less(&mut sums.evictable);
            }
        }
        if let Some(least) = &stake.least {
            sums.yielding.remove(&stake.newest);
            if let Some(count) = sums.priorities.get_mut(&stake.priority) {
                *count -= 1;
                if *count == 0 {
                    sums.priorities.remove(&stake.priority);
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
        if sums.running.is_empty() && sums.yielding.is_empty() {
            self.0.remove(&stake.account);
        }
    }

    /// Forgets all, before everything is taken in anew.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The lowest priority of those of a team that might yield something.
    #[must_use]
    pub fn lowest(&self, pool: PoolIx, team: TeamIx) -> Option<Priority> {
        self.0.get(&(pool, team))?.priorities.first_key_value().map(|(priority, _)| *priority)
    }

    /// The teams of which somebody might yield something.
    pub fn yielding_teams(&self, pool: PoolIx) -> impl Iterator<Item = TeamIx> {
        let teams = self.0.range((pool, TeamIx::MIN)..=(pool, TeamIx::MAX));
        teams.filter(|(_, sums)| !sums.yielding.is_empty()).map(|((_, team), _)| *team)
    }

    /// How many of a team might yield something.
    #[must_use]
    pub fn count(&self, pool: PoolIx, team: TeamIx) -> usize {
        self.0.get(&(pool, team)).map_or(0, |sums| sums.yielding.len())
    }

    /// Those of a team that might yield something, the newest first.
    pub fn yielding(
        &self,
        pool: PoolIx,
        team: TeamIx,
    ) -> impl DoubleEndedIterator<Item = (&WorkloadId, Place)> {
        let sums = self.0.get(&(pool, team)).into_iter();
        sums.flat_map(|sums| &sums.yielding).map(|newest| (&newest.id, newest.place))
    }

    /// The different least parts that can be had of one of a team.
    pub fn parts(&self, pool: PoolIx, team: TeamIx) -> impl Iterator<Item = &Vector> {
        let sums = self.0.get(&(pool, team)).into_iter();
        sums.flat_map(|sums| sums.parts.values()).map(|(_, part)| part)
    }

    /// What those of a team hold that run with a lower priority.
    #[must_use]
    pub fn running_below(&self, pool: PoolIx, team: TeamIx, priority: Priority) -> Vector {
        self.0.get(&(pool, team)).map_or_else(Vector::default, |sums| below(&sums.running, priority))
    }

    /// What those of a team hold that run with a lower priority and may be evicted.
    #[must_use]
    pub fn evictable_below(&self, pool: PoolIx, team: TeamIx, priority: Priority) -> Vector {
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
