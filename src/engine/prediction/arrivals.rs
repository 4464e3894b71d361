//! The workloads that were submitted of late, from which forecasts take those to come.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::prediction::run_times::{Length, Manner, RunTimes};
use crate::types::{Observed, Time, Workload, WorkloadId};

/// How long a submission is kept: what comes in a day is taken to come in the next one.
const DAY: Duration = Duration::from_secs(24 * 3600);
/// The most submissions that are kept.
const MOST: usize = 2048;
/// The shortest time after which submissions are taken to come again: a burst of a few seconds says nothing about a rate.
const SHORTEST: Duration = Duration::from_secs(3600);

/// A submission of the last day.
#[derive(Clone, Debug)]
struct Arrival {
    workload: Arc<Workload>,
    manner: Arc<Manner>,
}

/// A submission that is taken to come.
#[derive(Clone, Debug)]
pub struct ToCome {
    /// The workload, submitted at the time at which it is taken to come.
    pub workload: Workload,
    /// The length of its run.
    pub length: Length,
}

/// The submissions of the last day, by time.
#[derive(Clone, Debug, Default)]
pub struct Arrivals {
    known: BTreeMap<(Time, WorkloadId), Arrival>,
}

impl Arrivals {
    /// Takes note of a workload that was not known before.
    pub fn note(&mut self, workload: &Workload, manner: Manner, now: Time) {
        let key = |workload: &Workload| (workload.submitted, workload.id.clone());
        if now.since(workload.submitted) > DAY || workload.pods == 0 {
            return;
        }
        let arrival = Arrival { workload: Arc::new(workload.clone()), manner: Arc::new(manner) };
        self.known.insert(key(workload), arrival);
        let outdated = |(at, _): &(Time, WorkloadId)| now.since(*at) > DAY;
        while self.known.first_key_value().is_some_and(|(key, _)| self.known.len() > MOST || outdated(key)) {
            self.known.pop_first();
        }
    }

    /// The submissions of the time from `now`, the next first: those of the last day again, and again each further day until
    /// `ahead`. Of each day only the `most` that ask for the most devices for the longest.
    ///
    /// They are made one by one, because most of them lie beyond the end of a forecast.
    #[must_use]
    pub fn to_come(&self, run_times: &RunTimes, now: Time, ahead: Duration, most: usize) -> Submissions {
        // Where a day has more submissions than are kept, those that are kept span less.
        let oldest =
            self.known.first_key_value().map(|((at, _), _)| *at).filter(|_| self.known.len() == MOST);
        let span = oldest.map_or(DAY, |oldest| now.since(oldest).clamp(SHORTEST, DAY));
        let recent = self.known.iter().filter(|((at, _), _)| *at <= now && now.since(*at) < span);
        let mut likely: Vec<(u128, &(Time, WorkloadId), &Arrival, Length)> = recent
            .filter_map(|(key, arrival)| {
                let length = run_times.length_of_submission(&arrival.manner)?;
                let devices = u128::from(arrival.manner.devices().unsigned_abs());
                Some((devices * length.likely.as_millis(), key, arrival, length))
            })
            .collect();
        likely.sort_by(|one, other| (other.0, one.1).cmp(&(one.0, other.1)));
        likely.truncate(most);
        likely.sort_by_key(|(_, key, ..)| *key);
        let of_a_span: Vec<Submission> = likely
            .into_iter()
            .map(|(_, (at, _), arrival, length)| {
                let workload = Arc::clone(&arrival.workload);
                Submission { at: *at, workload, length }
            })
            .collect();
        Submissions { of_a_span, span, round: 1, index: 0, until: now.after(ahead) }
    }
}

/// A submission that comes again.
#[derive(Clone, Debug)]
struct Submission {
    at: Time,
    workload: Arc<Workload>,
    length: Length,
}

/// The submissions to come, the next first.
#[derive(Clone, Debug, Default)]
pub struct Submissions {
    /// Those that come again after each span.
    of_a_span: Vec<Submission>,
    span: Duration,
    /// How often they have come, with this time.
    round: u32,
    /// The next among them.
    index: usize,
    until: Time,
}

impl Submissions {
    /// When the next one comes.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        let submission = self.of_a_span.get(self.index)?;
        Some(submission.at.after(self.span.saturating_mul(self.round))).filter(|at| *at <= self.until)
    }
}

impl Iterator for Submissions {
    type Item = ToCome;

    fn next(&mut self) -> Option<ToCome> {
        let at = self.next_at()?;
        let Submission { workload, length, .. } = self.of_a_span.get(self.index)?;
        let to_come = ToCome {
            workload: Workload {
                id: WorkloadId(format!("to-come/{}/{}", self.round, workload.id).into()),
                submitted: at,
                state: Observed::Queued,
                ran: None,
                evicted: None,
                evicted_for_fair_share: false,
                last_checkpoint: None,
                requeue: None,
                hold: false,
                ..(**workload).clone()
            },
            length: *length,
        };
        self.index += 1;
        if self.index == self.of_a_span.len() {
            (self.index, self.round) = (0, self.round.saturating_add(1));
        }
        Some(to_come)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::types::amount::{Amount, ResourceList};
    use crate::types::{Event, PodShape};

    const NOW: Time = Time(10 * 24 * 3600 * 1000);
    const HOUR: Duration = Duration::from_secs(3600);

    /// What is to come within `ahead` after so many submissions, each so many milliseconds after the one before and all of
    /// them before [`NOW`].
    fn to_come(count: i64, apart: i64, ahead: Duration) -> Submissions {
        let mut engine = Engine::default();
        for number in 0..count {
            let requests = ResourceList::from([("nvidia.com/gpu".into(), Amount::units(1))]);
            let shape = PodShape { requests, ..PodShape::default() };
            let at = Time(NOW.0 - (count - number) * apart);
            let name = format!("job-{number}");
            let job = Workload::job(&"team".into(), &name.as_str().into(), 1, shape, at);
            let limit = Some(Duration::from_secs(60));
            engine.apply(Event::workload(Workload { time_limit: limit, ..job }), at);
        }
        let prediction = &engine.scheduler.prediction;
        prediction.arrivals.to_come(&prediction.run_times, NOW, ahead, 128)
    }

    #[test]
    fn the_submissions_of_a_day_come_again_each_day() {
        let times: Vec<u64> = to_come(3, 1_000, 2 * DAY)
            .map(|to_come| to_come.workload.submitted.since(NOW).as_secs())
            .collect();
        let day = 24 * 3600;
        assert_eq!(times, [day - 3, day - 2, day - 1, 2 * day - 3, 2 * day - 2, 2 * day - 1]);
    }

    #[test]
    fn where_fewer_than_a_day_are_kept_they_come_again_sooner() {
        // 2,048 of 3,000 are kept, one each 10 seconds.
        let first = to_come(3_000, 10_000, DAY).nth(128).map(|to_come| to_come.workload.submitted.since(NOW));
        assert!(first.is_some_and(|first| first > 5 * HOUR && first < 12 * HOUR), "{first:?}");
    }

    #[test]
    fn a_burst_comes_again_once_an_hour_and_only_as_far_as_it_is_asked_for() {
        assert_eq!(to_come(3_000, 1, DAY).count(), 24 * 128);
        // These would fill the memory if they were made before they are asked for.
        let ahead = Duration::from_secs(1_000_000_000_000);
        assert_eq!(to_come(3_000, 1, ahead).take(1_000).count(), 1_000);
    }

    #[test]
    fn nothing_is_to_come_where_nothing_was_submitted() {
        assert_eq!(to_come(0, 1, DAY).count(), 0);
    }
}
