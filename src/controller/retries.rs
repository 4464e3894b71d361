//! Writes that need no decision and are repeated until they succeed: restored templates and ungated pods.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::engine::types::{Time, WorkloadId, backoff};

/// The pause after the first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The writes in flight or waiting for a retry, by workload.
#[derive(Debug, Default)]
pub struct Retries(BTreeMap<WorkloadId, Attempts>);

#[derive(Debug, Default)]
struct Attempts {
    in_flight: bool,
    failures: u32,
    not_before: Time,
}

impl Retries {
    /// The workloads of `wanted` to write now. Drops failed writes that are no longer wanted.
    pub fn due(&mut self, wanted: &BTreeSet<&WorkloadId>, now: Time) -> Vec<WorkloadId> {
        self.0.retain(|id, attempts| attempts.in_flight || wanted.contains(id));
        let due = |id: &&WorkloadId| self.0.get(*id).is_none_or(|a| !a.in_flight && a.not_before <= now);
        wanted.iter().copied().filter(due).cloned().collect()
    }

    /// Records that a write has started.
    pub fn started(&mut self, id: WorkloadId) {
        self.0.entry(id).or_default().in_flight = true;
    }

    /// Records that a write has succeeded or is no longer needed.
    pub fn ended(&mut self, id: &WorkloadId) {
        self.0.remove(id);
    }

    /// Records that a write has failed; it is due again after a pause.
    pub fn failed(&mut self, id: &WorkloadId, now: Time) {
        let Some(attempts) = self.0.get_mut(id) else { return };
        let pause = backoff(FIRST_PAUSE, LONGEST_PAUSE, attempts.failures);
        attempts.in_flight = false;
        attempts.failures += 1;
        attempts.not_before = now.after(pause);
    }

    /// When the next retry is due.
    pub fn next(&self) -> Option<Time> {
        self.0.values().filter(|attempts| !attempts.in_flight).map(|attempts| attempts.not_before).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_is_retried_after_a_pause_and_only_while_it_is_wanted() {
        let id = WorkloadId("job".into());
        let one = [WorkloadId("job".into())];
        let wanted = one.iter().collect();
        let mut retries = Retries::default();
        assert_eq!(retries.due(&wanted, Time(0)), one);
        retries.started(id.clone());
        assert_eq!(retries.due(&wanted, Time(0)), []);
        assert_eq!(retries.next(), None, "the end of a write is an arrival by itself");
        retries.failed(&id, Time(1000));
        assert_eq!(retries.due(&wanted, Time(1000)), []);
        assert_eq!(retries.next(), Some(Time(1200)));
        assert_eq!(retries.due(&wanted, Time(1200)), one);
        assert_eq!(retries.due(&BTreeSet::new(), Time(1200)), []);
        assert_eq!(retries.next(), None, "nothing is left to retry");
    }
}
