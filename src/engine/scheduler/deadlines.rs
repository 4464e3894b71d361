//! When the time of a workload or team is up: the longest wait and run of a queue, a recall to the queue, pods that can never run
//! again, and a limit that pods without an admission exceed.

use std::collections::{BTreeMap, BTreeSet};

use crate::state::cluster::ClusterState;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::TeamId;
use crate::types::{OnMaxWait, Paused, Queue, Time, WorkloadId};

/// The deadlines of all workloads and teams, and the times from which they count.
#[derive(Clone, Debug, Default)]
pub struct Deadlines {
    /// The time since which each workload that waits, or is about to start, has been waiting.
    pub waiting: BTreeMap<WorkloadId, Time>,
    /// The deadline of each workload.
    pub armed: BTreeMap<WorkloadId, Time>,
    /// The same deadlines by time.
    pub due: BTreeSet<(Time, WorkloadId)>,
    /// The workloads that have waited longer than their queue allows, each with the deadline that passed.
    pub overdue: BTreeMap<WorkloadId, Time>,
    /// The time from which each of these running workloads is to return to the queue.
    pub recalls: BTreeMap<WorkloadId, Time>,
    /// Since when workloads have had pods on their record that can never run again.
    pub excess: BTreeMap<WorkloadId, Time>,
    /// Since when teams have had pods that were never admitted while they or a team above exceed a limit.
    pub over_limit: BTreeMap<TeamId, Time>,
}

impl Deadlines {
    /// Follows a change of a workload or of its phase; `before` is its phase until now.
    pub fn note(&mut self, state: &mut ClusterState, id: &WorkloadId, before: Option<&Phase>, now: Time) {
        let info = state.get(id).filter(|info| !info.removed);
        let Some((phase, workload)) = info.map(|info| (&info.phase, &info.workload)) else {
            self.waiting.remove(id);
            self.overdue.remove(id);
            return;
        };
        let submitted = workload.submitted;
        match (phase, before) {
            // A new leader sees an evicted workload for the first time: its wait began at the eviction.
            (Phase::Pending, None) => {
                self.waiting.insert(id.clone(), workload.evicted.unwrap_or(submitted).max(submitted));
            }
            (
                Phase::Pending | Phase::Starting(_) | Phase::Failing(None),
                Some(Phase::Pending | Phase::Starting(_) | Phase::Failing(None)),
            ) => {}
            (Phase::Pending, Some(before)) => {
                let stopped = match before {
                    Phase::Leaving { since, .. } => Some(*since),
                    _ => None,
                };
                // The eviction and not the end of the last pod, so that every replica counts from the same instant.
                let since = workload.evicted.or(stopped).unwrap_or(now);
                self.waiting.insert(id.clone(), since.max(submitted));
                state.raise(id, false);
            }
            (Phase::Running(admission), None) => {
                let waited = admission.at.since(submitted);
                let raises = |queue: &Queue| {
                    queue.on_max_wait == OnMaxWait::RaisePriority
                        && queue.max_wait.is_some_and(|most| waited >= most)
                };
                let raised = info.is_some_and(|info| state.queue_of(info).is_ok_and(raises));
                state.raise(id, raised);
            }
            _ => {
                self.waiting.remove(id);
                self.overdue.remove(id);
            }
        }
    }

    /// The time since which a workload has been waiting.
    #[must_use]
    pub fn waits_since(&self, info: &WorkloadInfo) -> Time {
        self.waiting.get(&info.workload.id).copied().unwrap_or(info.workload.submitted)
    }

    /// Whether a workload has waited longer than its queue allows.
    #[must_use]
    pub fn overdue(&self, id: &WorkloadId) -> bool {
        self.overdue.contains_key(id)
    }

    /// Sets the deadline of a workload from its phase and its queue.
    pub fn arm(&mut self, state: &mut ClusterState, id: &WorkloadId) {
        match state.get(id).and_then(|info| recall_of(state, info)) {
            Some(at) => _ = self.recalls.insert(id.clone(), at),
            None => _ = self.recalls.remove(id),
        }
        let known = state.get(id).and_then(|info| state.queue_of(info).ok().map(|queue| (info, queue)));
        let mut due = known.and_then(|(info, queue)| due_of(info, queue, self.waits_since(info)));
        if let Some((info, queue)) = known
            && info.phase == Phase::Pending
            && let Some(noted) = self.overdue.get(id)
        {
            if due == Some(*noted) && queue.on_max_wait != OnMaxWait::Fail {
                let raised = queue.on_max_wait == OnMaxWait::RaisePriority;
                state.raise(id, raised);
                due = None;
            } else {
                self.overdue.remove(id);
                state.raise(id, false);
            }
        }
        let before = match due {
            Some(due) => self.armed.insert(id.clone(), due),
            None => self.armed.remove(id),
        };
        if before != due {
            if let Some(before) = before {
                self.due.remove(&(before, id.clone()));
            }
            self.due.extend(due.map(|due| (due, id.clone())));
        }
    }
}

/// The deadline of a workload in its phase. It has none while its queue is paused.
fn due_of(info: &WorkloadInfo, queue: &Queue, waits_since: Time) -> Option<Time> {
    match &info.phase {
        Phase::Pending if info.workload.pods > 0 && queue.paused == Paused::No => {
            queue.max_wait.map(|most| waits_since.after(most))
        }
        Phase::Running(admission) => queue.max_runtime.map(|most| admission.at.after(most)),
        _ => None,
    }
}

/// The time from which a running workload is to return to the queue: its user asks for it since its admission, or its queue
/// is drained and it may be evicted. A workload that cannot be queued again stays.
fn recall_of(state: &ClusterState, info: &WorkloadInfo) -> Option<Time> {
    let Phase::Running(admission) = &info.phase else { return None };
    if !info.workload.resumable || info.unadmitted.is_some() {
        return None;
    }
    let drained = state.queue_of(info).is_ok_and(|queue| queue.paused == Paused::Drain);
    let drained = (drained && state.preemptible(info)).then_some(admission.at);
    let asked = info.workload.requeue.filter(|asked| *asked > admission.at);
    [drained, asked].into_iter().flatten().min()
}
