//! Pods that are ended on nodes that do not answer.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::types::{PodId, Time, backoff};

/// The pause after the first write that failed; it doubles with every further one.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The pods that are to end, until they are gone.
#[derive(Clone, Debug, Default)]
pub struct EndedPods(BTreeMap<PodId, Attempt>);

/// The last write that was to end a pod.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// How many writes have failed.
    failures: u32,
    progress: Progress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The write is not confirmed.
    Decided,
    /// It failed, and the next one comes no earlier.
    Paused(Time),
    /// The pause is over.
    Due,
}

impl EndedPods {
    /// Whether a pod is to be ended: for the first time, or again after a pause.
    #[must_use]
    pub fn is_due(&self, pod: &PodId) -> bool {
        self.0.get(pod).is_none_or(|attempt| attempt.progress == Progress::Due)
    }

    /// Notes that the end of a pod is decided.
    pub fn decide(&mut self, pod: PodId) {
        let attempt = self.0.entry(pod).or_insert(Attempt { failures: 0, progress: Progress::Decided });
        attempt.progress = Progress::Decided;
    }

    /// Notes that the write failed; the end is decided again after a pause.
    pub fn failed(&mut self, pod: &PodId, now: Time) {
        if let Some(attempt) = self.0.get_mut(pod) {
            let pause = backoff(FIRST_PAUSE, LONGEST_PAUSE, attempt.failures);
            *attempt =
                Attempt { failures: attempt.failures + 1, progress: Progress::Paused(now.after(pause)) };
        }
    }

    /// Ends the pauses that are over at `now`.
    pub fn end_pauses(&mut self, now: Time) {
        for attempt in self.0.values_mut() {
            if matches!(attempt.progress, Progress::Paused(until) if until <= now) {
                attempt.progress = Progress::Due;
            }
        }
    }

    /// When the next pause is over.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        let paused = self.0.values().filter_map(|attempt| match attempt.progress {
            Progress::Paused(until) => Some(until),
            Progress::Decided | Progress::Due => None,
        });
        paused.min()
    }

    /// Forgets a pod that is gone.
    pub fn gone(&mut self, pod: &PodId) {
        self.0.remove(pod);
    }
}
