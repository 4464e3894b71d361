//! Workloads that pause before they are tried again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::scheduler::ended_pods::EndedPods;
use crate::scheduler::gangs::Gangs;
use crate::scheduler::misplaced::Misplaced;
use crate::types::{Time, WorkloadId, backoff};

/// The first pause after a write that failed; it doubles with every further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Why and until when workloads are not tried again.
#[derive(Clone, Debug, Default)]
pub struct Retries {
    /// Workloads with a failed last write.
    pub failures: BTreeMap<WorkloadId, Failure>,
    /// Workloads with an admission that is refused until their object changes. No other is preempted for them: the victims
    /// would lose their work for a start that fails again.
    pub refused: BTreeSet<WorkloadId>,
    /// Workloads of several pods, which must all become ready in time.
    pub gangs: Gangs,
    /// Workloads with misplaced pods.
    pub misplaced: Misplaced,
    /// Pods that were ended on nodes that do not answer.
    pub ended: EndedPods,
}

/// A write that the API server refused.
#[derive(Clone, Debug)]
pub struct Failure {
    /// How many writes failed in a row.
    pub times: u32,
    /// When to try again; `None` once that time has come.
    pub until: Option<Time>,
    /// The last answer of the API server.
    pub message: String,
}

impl Retries {
    /// Whether a workload's last write failed so recently that it is not tried again yet.
    #[must_use]
    pub fn pauses(&self, id: &WorkloadId) -> bool {
        self.failures.get(id).is_some_and(|failure| failure.until.is_some())
    }

    /// Records a write that failed at `now`; the pause doubles with every failure in a row.
    pub fn failed(&mut self, id: &WorkloadId, message: String, now: Time) {
        let times = self.failures.get(id).map_or(0, |failure| failure.times);
        let pause = backoff(FIRST_PAUSE, LONGEST_PAUSE, times);
        let failure = Failure { times: times + 1, until: Some(now.after(pause)), message };
        self.failures.insert(id.clone(), failure);
    }
}
