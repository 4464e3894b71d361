//! The run times of ended workloads, from which the ends of running workloads are predicted.
//!
//! The latest runs are kept by class. For a workload that has been running for some time only longer runs count: their
//! first decile, median and ninth decile are the early, likely and late end. A class with too few such runs falls back to
//! the coarser one above it. Without a coarser class the end cannot be predicted.
//!
//! **Decisions** know the classes by team, queue and number of devices, and rest on them as they were last written in
//! the team's status, so that every replica and a restarted one decide alike (law 11). Before the first write they rest on
//! what the engine has seen. Backfilling may rest on a coarser class; what is promised to the owner of a reservation may
//! not: that small runs of another kind end soon tells nothing about a large one.
//!
//! **People** are shown more: runs of the same user, name and size come first, then those of the user and size, then those
//! of the size. No decision reads these.
//!
//! For runs with a time limit the used fraction of the limit is kept, because users tend to set limits that are
//! equally exact each time. The limit itself is the late end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::prediction::class::{Class, Classes, Known, pattern};
use crate::prediction::sample::{Sample, quantile};
use crate::prediction::summary::OfTeam;
use crate::state::cluster::ClusterState;
use crate::state::rules::time_limit;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::{Likeness, Name, RunLengths, Time};

/// The smallest number of runs that allows an estimate.
pub const FEWEST: usize = 4;
/// The smallest number of runs that makes an estimate reliable.
const RELIABLE: usize = 32;
/// The most classes of a team that decisions know, and that its status holds.
const MOST_OF_TEAM: usize = 48;
/// The most classes of all teams from which people are shown.
const MOST_SHOWN: usize = 4096;

/// The expected length of a run, counted from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// One in ten similar runs takes no longer.
    pub early: Duration,
    /// Half of the similar runs take no longer.
    pub likely: Duration,
    /// The time limit, or without one the length that nine of ten similar runs do not exceed.
    pub late: Duration,
    /// The middle of each tenth of the similar runs, the shortest first: each of these lengths is equally likely.
    pub tenths: [Duration; 10],
    /// The number of similar runs behind the estimate.
    pub runs: usize,
    /// Whether a time limit sets the late end.
    pub limited: bool,
    /// What the runs behind the estimate have in common.
    pub like: Likeness,
}

impl Length {
    /// A length that is given.
    #[must_use]
    pub fn exactly(length: Duration) -> Self {
        let tenths = [length; 10];
        Self {
            early: length,
            likely: length,
            late: length,
            tenths,
            runs: 0,
            limited: false,
            like: Likeness::Size,
        }
    }

    /// Whether the late end is reliable enough for a reservation: there are enough similar runs, and their first
    /// and ninth deciles differ by at most a twentieth.
    #[must_use]
    pub fn is_reliable(&self) -> bool {
        self.runs >= RELIABLE && self.late.saturating_mul(20) <= self.early.saturating_mul(21)
    }
}

impl Length {
    /// The usual length of the run with this number among similar ones: the median for the first, and then each tenth of the
    /// lengths as often as any other. If all had the median, none would end before and all at once.
    #[must_use]
    pub fn usual(&self, number: usize) -> Duration {
        if number == 0 {
            return self.likely;
        }
        // Steps of the golden ratio, in units of 2⁻³², spread evenly whatever their number.
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let turn = number.wrapping_mul(2_654_435_769).wrapping_add(1 << 31);
        let tenth = (u64::from(turn) * 10) >> 32;
        usize::try_from(tenth).ok().and_then(|tenth| self.tenths.get(tenth)).copied().unwrap_or(self.likely)
    }
}

/// What tells how long a workload runs.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Its time limit.
    limit: Option<Duration>,
    /// The classes from which people are shown.
    classes: Vec<(Class, Likeness)>,
}

impl Manner {
    /// The manner of a workload.
    #[must_use]
    pub fn of(state: &ClusterState, info: &WorkloadInfo) -> Self {
        Self { limit: time_limit(state, info), classes: shown_classes(state, info) }
    }

    /// What its runs have in common with similar ones.
    #[must_use]
    pub fn class(&self) -> Option<&Class> {
        self.classes.last().map(|(class, _)| class)
    }

    /// Thousandths of devices, over all pods.
    #[must_use]
    pub fn devices(&self) -> i64 {
        self.classes.first().and_then(|(class, _)| class.devices).unwrap_or(0)
    }
}

/// The runs that have ended.
#[derive(Clone, Debug, Default)]
pub struct RunTimes {
    /// By team, what the engine has seen end: the content of the next write.
    seen: BTreeMap<Name, OfTeam>,
    /// By team, what was last written.
    written: BTreeMap<Name, Classes>,
    /// What people are shown.
    shown: Classes,
}

impl RunTimes {
    /// Records the run time of a workload that has just ended.
    ///
    /// The run time comes from its object, or else from its former phase, if it was running until now. With `rebuilding`,
    /// what was written stands for all that had ended before.
    pub fn record(
        &mut self,
        state: &ClusterState,
        info: &WorkloadInfo,
        former: Option<&Phase>,
        (now, rebuilding): (Time, bool),
    ) {
        let seen = match former {
            Some(Phase::Running(admission) | Phase::Resizing { to: admission, .. }) => {
                Some(now.since(admission.at))
            }
            _ => None,
        };
        let Some(ran) = info.workload.ran.or(seen) else { return };
        let fraction = time_limit(state, info).map(|limit| fraction_of(ran, limit));
        for (class, _) in shown_classes(state, info) {
            self.shown.add(class, millis(ran), fraction, MOST_SHOWN);
        }
        let team = &info.workload.team;
        if !(rebuilding && self.written.contains_key(team)) {
            // The finest last: it is the one to be kept.
            let seen = self.seen.entry(team.clone()).or_default().change();
            for class in classes(state, info).into_iter().rev() {
                seen.add(class, millis(ran), fraction, MOST_OF_TEAM);
            }
        }
    }

    /// The expected length of a workload that has been running for `elapsed`, for decisions. `None` when it cannot be
    /// predicted.
    #[must_use]
    pub fn length(&self, state: &ClusterState, info: &WorkloadInfo, elapsed: Duration) -> Option<Length> {
        let classes = classes(state, info);
        length(
            time_limit(state, info),
            elapsed,
            classes.iter().map(|class| (self.decisive(class), Likeness::Size)),
        )
    }

    /// The same, by runs of the same team, queue and number of devices alone.
    #[must_use]
    pub fn length_of_like(
        &self,
        state: &ClusterState,
        info: &WorkloadInfo,
        elapsed: Duration,
    ) -> Option<Length> {
        let [class, ..] = classes(state, info);
        length(time_limit(state, info), elapsed, std::iter::once((self.decisive(&class), Likeness::Size)))
    }

    /// The length that people are shown; no decision rests on it.
    #[must_use]
    pub fn shown_length(&self, manner: &Manner, elapsed: Duration) -> Option<Length> {
        let shown = manner.classes.iter().map(|(class, like)| (self.shown.get(class), *like));
        // After a restart the status may know more runs than there are objects.
        let more = manner.class().map(|class| (self.decisive(class), Likeness::Size));
        length(manner.limit, elapsed, shown.chain(more))
    }

    /// The length of a workload of that manner which a forecast expects to be submitted, by the runs that people are shown alone.
    #[must_use]
    pub fn length_of_submission(&self, manner: &Manner) -> Option<Length> {
        let shown = manner.classes.iter().map(|(class, like)| (self.shown.get(class), *like));
        length(manner.limit, Duration::ZERO, shown)
    }

    /// The runs of a class that decisions know.
    fn decisive(&self, class: &Class) -> Option<&Known> {
        let written = self.written.get(&class.team);
        written.or_else(|| self.seen.get(&class.team).map(OfTeam::classes))?.get(class)
    }

    /// What is to be written in the status of each team, the class without runs for longest at the front. That of a team
    /// without a new run is the same as before, not an equal one.
    pub fn summaries(&self) -> impl Iterator<Item = Arc<RunLengths>> {
        self.seen.iter().map(|(team, seen)| seen.summary(team))
    }

    /// Takes note of what was written; with `adopt`, the engine's own summary goes on from there. Returns whether anything
    /// changed for decisions.
    pub fn note_written(&mut self, lengths: &RunLengths, adopt: bool) -> bool {
        let mut classes = Classes::default();
        for of in lengths.classes.iter().take(MOST_OF_TEAM) {
            let (queue, devices) = (of.queue.clone(), of.devices);
            let class = Class { team: lengths.team.clone(), queue, devices, ..Class::default() };
            let samples =
                (Sample::of_quantiles(of.runs, &of.lengths), Sample::of_quantiles(of.limited, &of.fractions));
            classes.set(class, samples, MOST_OF_TEAM);
        }
        if adopt {
            self.seen.insert(lengths.team.clone(), OfTeam::from(classes.clone()));
        }
        let before = self.written.insert(lengths.team.clone(), classes);
        before.is_none_or(|before| !before.equals(&self.written[&lengths.team]))
    }
}

/// The length by the first of these classes with enough runs longer than `elapsed`.
fn length<'a>(
    limit: Option<Duration>,
    elapsed: Duration,
    classes: impl Iterator<Item = (Option<&'a Known>, Likeness)>,
) -> Option<Length> {
    let mut known = classes.filter_map(|(known, like)| Some((known?, like)));
    // A workload that has exceeded its limit is not bound by it.
    let Some(limit) = limit.filter(|limit| *limit > elapsed) else {
        let (runs, deciles, like) =
            known.find_map(|(known, like)| deciles(&known.runs, millis(elapsed), like))?;
        let [early, likely, late] = deciles.of.map(Duration::from_millis);
        let tenths = deciles.tenths.map(Duration::from_millis);
        return Some(Length { early, likely, late, tenths, runs, limited: false, like });
    };
    let fractions =
        known.find_map(|(known, like)| deciles(&known.fractions, fraction_of(elapsed, limit), like));
    let (runs, [early, likely, _], tenths, like) =
        fractions.map_or((0, [limit; 3], [limit; 10], Likeness::Size), |(runs, fractions, like)| {
            // Rounding must not move the end before the time already elapsed.
            let length = |fraction: u64| length_of(fraction, limit).clamp(elapsed, limit);
            (runs, fractions.of.map(length), fractions.tenths.map(length), like)
        });
    Some(Length { early, likely, late: limit, tenths, runs, limited: true, like })
}

/// The number of runs longer than `elapsed`, if they are enough, and their first, fifth and ninth decile.
fn deciles(sample: &Sample, elapsed: u64, like: Likeness) -> Option<(usize, Deciles, Likeness)> {
    let longer = Some(sample.longer_than(elapsed)).filter(|runs| runs.len() >= FEWEST)?;
    let of = [1, 5, 9].map(|decile| quantile(longer, decile, 10));
    let tenths = [1, 3, 5, 7, 9, 11, 13, 15, 17, 19].map(|middle| quantile(longer, middle, 20));
    Some((longer.len(), Deciles { of, tenths }, like))
}

/// The first, fifth and ninth decile of runs, and the middle of each tenth of them.
struct Deciles {
    of: [u64; 3],
    tenths: [u64; 10],
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

/// The classes that decisions sort a workload's run into, the closest first.
fn classes(state: &ClusterState, info: &WorkloadInfo) -> [Class; 3] {
    let team = info.workload.team.clone();
    let queue = state.queue_of(info).ok().map(|queue| queue.name.clone());
    let total = info.total();
    let devices = total.nonzero().filter(|(index, _)| state.resources.is_device(*index)).map(|(_, m)| m);
    let devices = Some(devices.fold(0, i64::saturating_add));
    let none = Class { team, ..Class::default() };
    [Class { queue: queue.clone(), devices, ..none.clone() }, Class { queue, ..none.clone() }, none]
}

/// The classes from which people are shown, the closest first: runs of the same user, name and size, of the same user and
/// size, and of the same size.
fn shown_classes(state: &ClusterState, info: &WorkloadInfo) -> Vec<(Class, Likeness)> {
    let [size, ..] = classes(state, info);
    let mut classes = Vec::with_capacity(3);
    if let Some(user) = info.workload.user.clone() {
        let of_user = Class { user: Some(user), ..size.clone() };
        let pattern = Some(pattern(&info.workload.name).as_str().into());
        classes.push((Class { pattern, ..of_user.clone() }, Likeness::Name));
        classes.push((of_user, Likeness::User));
    }
    classes.push((size, Likeness::Size));
    classes
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
            tenths: [Duration::from_secs(late); 10],
            runs,
            limited: false,
            like: Likeness::Size,
        };
        assert!(length(RELIABLE, 100, 105).is_reliable());
        assert!(!length(RELIABLE, 100, 106).is_reliable());
        assert!(!length(RELIABLE - 1, 100, 100).is_reliable());
    }
}
