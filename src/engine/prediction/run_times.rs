//! The run times of ended workloads, from which the ends of running workloads are predicted.
//!
//! The latest runs are kept by team, queue and number of devices. For a workload that has been running for some
//! time only longer runs count: their first decile, median and ninth decile are the early, likely and late
//! end. A kind with too few such runs falls back to the coarser kind above it. Without a coarser kind the end
//! cannot be predicted. Backfilling may rest on a coarser kind; what a user is shown, or what is promised to the owner of a
//! reservation, may not: that small runs of another kind end soon tells nothing about a large one.
//!
//! For runs with a time limit the used fraction of the limit is kept, because users tend to set limits that are
//! equally exact each time. The limit itself is the late end.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::state::cluster::ClusterState;
use crate::state::rules;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::{Name, Time};

/// How many runs of a kind are kept.
const KEPT: usize = 64;
/// The smallest number of runs that allows an estimate.
pub const FEWEST: usize = 4;
/// The smallest number of runs that makes an estimate reliable.
const RELIABLE: usize = 32;

/// The properties that runs have in common. An absent property matches any value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    team: Name,
    queue: Option<Name>,
    /// Thousandths of devices, over all pods.
    devices: Option<i64>,
}

/// The latest runs of a kind, in milliseconds or in millionths of their limits.
#[derive(Clone, Debug, Default)]
struct Runs {
    recent: VecDeque<u64>,
    sorted: Vec<u64>,
}

impl Runs {
    fn add(&mut self, run: u64) {
        if self.recent.len() == KEPT
            && let Some(oldest) = self.recent.pop_front()
        {
            self.sorted.remove(self.sorted.partition_point(|known| *known < oldest));
        }
        self.recent.push_back(run);
        self.sorted.insert(self.sorted.partition_point(|known| *known < run), run);
    }

    /// The runs longer than `elapsed`, the shortest first.
    fn longer_than(&self, elapsed: u64) -> &[u64] {
        &self.sorted[self.sorted.partition_point(|known| *known <= elapsed)..]
    }
}

/// The expected length of a run, counted from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// One in ten similar runs takes no longer.
    pub early: Duration,
    /// Half of the similar runs take no longer.
    pub likely: Duration,
    /// The time limit, or without one the length that nine of ten similar runs do not exceed.
    pub late: Duration,
    /// The number of similar runs behind the estimate.
    pub runs: usize,
    /// Whether a time limit sets the late end.
    pub limited: bool,
}

impl Length {
    /// Whether the late end is reliable enough for a reservation: there are enough similar runs, and their first
    /// and ninth deciles differ by at most a twentieth.
    #[must_use]
    pub fn is_reliable(&self) -> bool {
        self.runs >= RELIABLE && self.late.saturating_mul(20) <= self.early.saturating_mul(21)
    }
}

/// The runs that have ended.
#[derive(Clone, Debug, Default)]
pub struct RunTimes {
    runs: BTreeMap<Kind, Runs>,
    /// Runs with a limit, in millionths of it.
    fractions: BTreeMap<Kind, Runs>,
}

impl RunTimes {
    /// Records the run time of a workload that has just ended.
    ///
    /// The run time comes from its object, or else from its former phase, if it was running until now.
    pub fn record(&mut self, state: &ClusterState, info: &WorkloadInfo, former: Option<&Phase>, now: Time) {
        let seen = match former {
            Some(Phase::Running(admission) | Phase::Resizing { to: admission, .. }) => {
                Some(now.since(admission.at))
            }
            _ => None,
        };
        let Some(ran) = info.workload.ran.or(seen) else { return };
        let fraction = limit(state, info).map(|limit| fraction_of(ran, limit));
        for kind in kinds(state, info) {
            if let Some(fraction) = fraction {
                self.fractions.entry(kind.clone()).or_default().add(fraction);
            }
            self.runs.entry(kind).or_default().add(millis(ran));
        }
    }

    /// The expected length of a workload that has been running for `elapsed`. `None` when it cannot be predicted.
    #[must_use]
    pub fn length(&self, state: &ClusterState, info: &WorkloadInfo, elapsed: Duration) -> Option<Length> {
        self.length_by(state, info, elapsed, &kinds(state, info))
    }

    /// The same, by runs of the same team, queue and number of devices alone.
    #[must_use]
    pub fn length_of_like(
        &self,
        state: &ClusterState,
        info: &WorkloadInfo,
        elapsed: Duration,
    ) -> Option<Length> {
        self.length_by(state, info, elapsed, &kinds(state, info)[..1])
    }

    fn length_by(
        &self,
        state: &ClusterState,
        info: &WorkloadInfo,
        elapsed: Duration,
        kinds: &[Kind],
    ) -> Option<Length> {
        // A workload that has exceeded its limit is not bound by it.
        let Some(limit) = limit(state, info).filter(|limit| *limit > elapsed) else {
            let (runs, deciles) = deciles(&self.runs, kinds, millis(elapsed))?;
            let [early, likely, late] = deciles.map(Duration::from_millis);
            return Some(Length { early, likely, late, runs, limited: false });
        };
        let fractions = deciles(&self.fractions, kinds, fraction_of(elapsed, limit));
        let (runs, [early, likely, _]) = fractions.map_or((0, [limit; 3]), |(runs, fractions)| {
            // Rounding must not move the end before the time already elapsed.
            let length = |fraction: u64| length_of(fraction, limit).clamp(elapsed, limit);
            (runs, fractions.map(length))
        });
        Some(Length { early, likely, late: limit, runs, limited: true })
    }
}

/// The number of runs longer than `elapsed` of the closest kind with enough such runs, and their first, fifth and
/// ninth decile.
fn deciles(known: &BTreeMap<Kind, Runs>, kinds: &[Kind], elapsed: u64) -> Option<(usize, [u64; 3])> {
    let mut longer = kinds.iter().filter_map(|kind| known.get(kind)).map(|runs| runs.longer_than(elapsed));
    let longer = longer.find(|runs| runs.len() >= FEWEST)?;
    Some((longer.len(), [1, 5, 9].map(|decile| quantile(longer, decile, 10))))
}

/// A run in millionths of its limit.
fn fraction_of(run: Duration, limit: Duration) -> u64 {
    let fraction = run.as_millis().saturating_mul(1_000_000) / limit.as_millis().max(1);
    u64::try_from(fraction).unwrap_or(u64::MAX)
}

/// The length of a fraction of a limit, which is given in millionths.
fn length_of(fraction: u64, limit: Duration) -> Duration {
    let length = limit.as_millis().saturating_mul(u128::from(fraction)) / 1_000_000;
    Duration::from_millis(u64::try_from(length).unwrap_or(u64::MAX))
}

/// The kinds that a workload's run belongs to, the closest first.
fn kinds(state: &ClusterState, info: &WorkloadInfo) -> [Kind; 3] {
    let team = info.workload.team.clone();
    let queue = state.queue_of(info).ok().map(|queue| queue.name.clone());
    let total = info.total();
    let devices = total.nonzero().filter(|(index, _)| state.resources.is_device(*index)).map(|(_, m)| m);
    let devices = Some(devices.fold(0, i64::saturating_add));
    [
        Kind { team: team.clone(), queue: queue.clone(), devices },
        Kind { team: team.clone(), queue, devices: None },
        Kind { team, queue: None, devices: None },
    ]
}

/// The time limit of a workload: its own or else its queue's default, but at most its queue's maximum run time.
#[must_use]
pub fn limit(state: &ClusterState, info: &WorkloadInfo) -> Option<Duration> {
    rules::time_limit(state, info)
}

/// The smallest of the sorted values that at least `numerator` of `denominator` values do not exceed.
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
    fn few_or_dissimilar_runs_give_no_reliable_end() {
        let length = |runs, early, late| Length {
            early: Duration::from_secs(early),
            likely: Duration::from_secs(late),
            late: Duration::from_secs(late),
            runs,
            limited: false,
        };
        assert!(length(RELIABLE, 100, 105).is_reliable());
        assert!(!length(RELIABLE, 100, 106).is_reliable());
        assert!(!length(RELIABLE - 1, 100, 100).is_reliable());
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
    fn only_the_latest_runs_are_kept() {
        let mut runs = Runs::default();
        for run in 0..200 {
            runs.add(run % 100);
        }
        let expected: Vec<u64> = (36..100).collect();
        assert_eq!(runs.sorted, expected);
        assert_eq!(runs.longer_than(95), &[96, 97, 98, 99]);
        assert!(runs.longer_than(99).is_empty());
    }
}
