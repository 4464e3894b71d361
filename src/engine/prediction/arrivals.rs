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

/// A submission of the last day.
#[derive(Clone, Debug)]
struct Arrival {
    workload: Arc<Workload>,
    manner: Arc<Manner>,
}

/// A submission that is taken to come.
#[derive(Clone, Debug)]
pub struct ToCome {
    /// When it is taken to be submitted.
    pub at: Time,
    /// The workload.
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
    #[must_use]
    pub fn to_come(&self, run_times: &RunTimes, now: Time, ahead: Duration, most: usize) -> Vec<ToCome> {
        // Where a day has more submissions than are kept, those that are kept span less.
        let oldest =
            self.known.first_key_value().map(|((at, _), _)| *at).filter(|_| self.known.len() == MOST);
        let span = oldest.map_or(DAY, |oldest| now.since(oldest).min(DAY)).max(Duration::from_secs(1));
        let recent = self.known.iter().filter(|((at, _), _)| *at <= now && now.since(*at) < span);
        let mut likely: Vec<(u128, &(Time, WorkloadId), &Arrival, Length)> = recent
            .filter_map(|(key, arrival)| {
                let length = run_times.length_of(&arrival.manner)?;
                let devices = u128::from(arrival.manner.devices().unsigned_abs());
                Some((devices * length.likely.as_millis(), key, arrival, length))
            })
            .collect();
        likely.sort_by(|one, other| (other.0, one.1).cmp(&(one.0, other.1)));
        likely.truncate(most);
        likely.sort_by_key(|(_, key, ..)| *key);
        let mut to_come = Vec::new();
        let mut day = span;
        while day <= ahead.saturating_add(span) && !likely.is_empty() {
            for (_, (at, id), arrival, length) in &likely {
                let at = at.after(day);
                let workload = Workload {
                    id: WorkloadId(format!("to-come/{}/{id}", day.as_secs()).into()),
                    submitted: at,
                    state: Observed::Queued,
                    ran: None,
                    evicted: None,
                    evicted_for_fair_share: false,
                    last_checkpoint: None,
                    requeue: None,
                    hold: false,
                    ..(*arrival.workload).clone()
                };
                to_come.push(ToCome { at, workload, length: *length });
            }
            day = day.saturating_add(span);
        }
        to_come.retain(|to_come| to_come.at > now && to_come.at <= now.after(ahead));
        to_come
    }
}
