//! How long workloads ran: what has ended says how long those that run may still take.
//!
//! Runs are remembered by team, queue and number of devices, the latest few of each. Asked about a
//! workload that has been running for some time, only runs that lasted longer count: their first decile,
//! their median and their ninth decile are the early, the likely and the late end. A kind of which too
//! few such runs are known is answered by the coarser kind above it; if none is left, the end cannot be
//! predicted.
//!
//! Of runs with a time limit the part of it is remembered that they took: limits that are always
//! twice too long, or always exact, are so again. The limit itself is the late end.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::state::cluster::ClusterState;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::{Name, Time};

/// How many runs of a kind are remembered.
const REMEMBERED: usize = 64;
/// The fewest runs that say anything.
const FEWEST: usize = 4;
/// The fewest runs that say when another one ends.
const TELLING: usize = 32;

/// What runs have in common; what is absent is left open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    team: Name,
    queue: Option<Name>,
    /// Thousandths of devices over all pods.
    devices: Option<i64>,
}

/// The latest runs of a kind: milliseconds, or millionths of their limits.
#[derive(Clone, Debug, Default)]
struct Runs {
    recent: VecDeque<u64>,
    sorted: Vec<u64>,
}

impl Runs {
    fn add(&mut self, run: u64) {
        if self.recent.len() == REMEMBERED
            && let Some(oldest) = self.recent.pop_front()
        {
            self.sorted.remove(self.sorted.partition_point(|known| *known < oldest));
        }
        self.recent.push_back(run);
        self.sorted.insert(self.sorted.partition_point(|known| *known < run), run);
    }

    /// The runs longer than `elapsed`, the shortest first.
    fn beyond(&self, elapsed: u64) -> &[u64] {
        &self.sorted[self.sorted.partition_point(|known| *known <= elapsed)..]
    }
}

/// How long a run takes in all, counted from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// One in ten of those like it takes no longer.
    pub early: Duration,
    /// Half of those like it take no longer.
    pub likely: Duration,
    /// It takes no longer than its limit, or, without one, nine of ten like it take no longer.
    pub late: Duration,
    /// Of how many runs like it that is known.
    pub runs: usize,
}

impl Length {
    /// Whether it says when a workload ends: so many runs like it are known, and of each ten eight took as long as
    /// the others but for a twentieth. What varies more is good for an estimate, but nothing to reserve room by.
    #[must_use]
    pub fn tells(&self) -> bool {
        self.runs >= TELLING && self.late.saturating_mul(20) <= self.early.saturating_mul(21)
    }
}

/// The runs that have ended.
#[derive(Clone, Debug, Default)]
pub struct RunTimes {
    runs: BTreeMap<Kind, Runs>,
    /// The same for those that had a limit, in millionths of it.
    parts: BTreeMap<Kind, Runs>,
}

impl RunTimes {
    /// Remembers how long a workload ran that has just ended, if that is known: its object says so, or
    /// it `was` running until now.
    pub fn learn(&mut self, state: &ClusterState, info: &WorkloadInfo, was: Option<&Phase>, now: Time) {
        let seen = match was {
            Some(Phase::Running(admission) | Phase::Resizing { to: admission, .. }) => {
                Some(now.since(admission.at))
            }
            _ => None,
        };
        let Some(ran) = info.workload.ran.or(seen) else { return };
        let part = limit(state, info).map(|limit| part_of(ran, limit));
        for kind in kinds(state, info) {
            if let Some(part) = part {
                self.parts.entry(kind.clone()).or_default().add(part);
            }
            self.runs.entry(kind).or_default().add(millis(ran));
        }
    }

    /// How long a workload runs that has been running for `elapsed`; `None` when that cannot be said.
    #[must_use]
    pub fn length(&self, state: &ClusterState, info: &WorkloadInfo, elapsed: Duration) -> Option<Length> {
        let kinds = kinds(state, info);
        // Whoever runs beyond its limit is not bound by it.
        let Some(limit) = limit(state, info).filter(|limit| *limit > elapsed) else {
            let (runs, deciles) = deciles(&self.runs, &kinds, millis(elapsed))?;
            let [early, likely, late] = deciles.map(Duration::from_millis);
            return Some(Length { early, likely, late, runs });
        };
        let parts = deciles(&self.parts, &kinds, part_of(elapsed, limit));
        let (runs, [early, likely, _]) = parts.map_or((0, [limit; 3]), |(runs, parts)| {
            // No sooner than at once, rounded as the parts are.
            let length = |part: u64| part_to(part, limit).clamp(elapsed, limit);
            (runs, parts.map(length))
        });
        Some(Length { early, likely, late: limit, runs })
    }
}

/// How many are longer than `elapsed`, and their first, fifth and ninth decile, of the closest kind of which
/// enough is known.
fn deciles(known: &BTreeMap<Kind, Runs>, kinds: &[Kind], elapsed: u64) -> Option<(usize, [u64; 3])> {
    let mut longer = kinds.iter().filter_map(|kind| known.get(kind)).map(|runs| runs.beyond(elapsed));
    let longer = longer.find(|runs| runs.len() >= FEWEST)?;
    Some((longer.len(), [1, 5, 9].map(|decile| quantile(longer, decile, 10))))
}

/// The part that a run is of a limit, in millionths.
fn part_of(run: Duration, limit: Duration) -> u64 {
    let part = run.as_millis().saturating_mul(1_000_000) / limit.as_millis().max(1);
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// So many millionths of a limit.
fn part_to(part: u64, limit: Duration) -> Duration {
    let length = limit.as_millis().saturating_mul(u128::from(part)) / 1_000_000;
    Duration::from_millis(u64::try_from(length).unwrap_or(u64::MAX))
}

/// The kinds a workload's run is of, the closest first.
fn kinds(state: &ClusterState, info: &WorkloadInfo) -> [Kind; 3] {
    let team = info.workload.team.clone();
    let queue = state.queue_of(info).ok().map(|queue| queue.name.clone());
    let total = info.total();
    let devices = total.nonzero().filter(|(index, _)| state.resources.is_device(*index)).map(|(_, m)| m);
    let devices = Some(devices.sum());
    [
        Kind { team: team.clone(), queue: queue.clone(), devices },
        Kind { team: team.clone(), queue, devices: None },
        Kind { team, queue: None, devices: None },
    ]
}

/// How long a workload may run at most: what it says itself, else what its queue says, and never
/// longer than its queue lets anything run.
#[must_use]
pub fn limit(state: &ClusterState, info: &WorkloadInfo) -> Option<Duration> {
    let queue = state.queue_of(info).ok();
    let said = info.workload.time_limit.or_else(|| queue.and_then(|queue| queue.default_time_limit));
    let most = queue.and_then(|queue| queue.max_runtime);
    [said, most].into_iter().flatten().min()
}

/// The smallest of the sorted values that `numerator` of `denominator` of them do not exceed.
fn quantile(sorted: &[u64], numerator: usize, denominator: usize) -> u64 {
    let rank = (sorted.len() * numerator).div_ceil(denominator).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_are_few_or_not_alike_say_nothing_of_an_end() {
        let length = |runs, early, late| Length {
            early: Duration::from_secs(early),
            likely: Duration::from_secs(late),
            late: Duration::from_secs(late),
            runs,
        };
        assert!(length(TELLING, 100, 105).tells());
        assert!(!length(TELLING, 100, 106).tells());
        assert!(!length(TELLING - 1, 100, 100).tells());
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<u64> = (1..=10).collect();
        assert_eq!(quantile(&values, 1, 2), 5);
        assert_eq!(quantile(&values, 9, 10), 9);
        assert_eq!(quantile(&values[..1], 9, 10), 1);
        assert_eq!(quantile(&values[..5], 1, 2), 3);
    }

    #[test]
    fn only_the_latest_runs_are_remembered() {
        let mut runs = Runs::default();
        for run in 0..200 {
            runs.add(run % 100);
        }
        let expected: Vec<u64> = (36..100).collect();
        assert_eq!(runs.sorted, expected);
        assert_eq!(runs.beyond(95), &[96, 97, 98, 99]);
        assert!(runs.beyond(99).is_empty());
    }
}
