//! The longest wait and the longest run that queues set, by time.

use std::collections::{BTreeMap, BTreeSet};

use crate::state::cluster::ClusterState;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::{OnMaxWait, Queue, Time, WorkloadId};

/// When which workload's time is up.
#[derive(Clone, Debug, Default)]
pub struct Deadlines {
    /// Since when each of those that wait, or are about to start, has been waiting.
    pub waiting: BTreeMap<WorkloadId, Time>,
    /// When something is due for whom, and the same the other way round.
    pub armed: BTreeMap<WorkloadId, Time>,
    pub due: BTreeSet<(Time, WorkloadId)>,
    /// Those that have waited for longer than their queue wants, with the time at which that was noted.
    pub overdue: BTreeMap<WorkloadId, Time>,
}

impl Deadlines {
    /// Takes note of where a workload stands after a change of it or of its phase.
    pub fn note(&mut self, state: &mut ClusterState, id: &WorkloadId, before: Option<&Phase>, now: Time) {
        let info = state.get(id).filter(|info| !info.removed);
        let Some((phase, submitted)) = info.map(|info| (&info.phase, info.workload.submitted)) else {
            self.waiting.remove(id);
            self.overdue.remove(id);
            return;
        };
        match (phase, before) {
            (Phase::Pending, None) => {
                self.waiting.insert(id.clone(), submitted);
            }
            (
                Phase::Pending | Phase::Starting(_) | Phase::Failing(None),
                Some(Phase::Pending | Phase::Starting(_) | Phase::Failing(None)),
            ) => {}
            (Phase::Pending, Some(_)) => {
                self.waiting.insert(id.clone(), now);
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

    /// Since when a workload has been waiting.
    #[must_use]
    pub fn waits_since(&self, info: &WorkloadInfo) -> Time {
        self.waiting.get(&info.workload.id).copied().unwrap_or(info.workload.submitted)
    }

    /// Whether a workload has waited for longer than its queue wants.
    #[must_use]
    pub fn overdue(&self, id: &WorkloadId) -> bool {
        self.overdue.contains_key(id)
    }

    /// Sets the timer of a workload to what its phase and its queue say.
    pub fn arm(&mut self, state: &mut ClusterState, id: &WorkloadId) {
        let known = state.get(id).and_then(|info| state.queue_of(info).ok().map(|queue| (info, queue)));
        let mut due = known.and_then(|(info, queue)| self.due_of(info, queue));
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

    fn due_of(&self, info: &WorkloadInfo, queue: &Queue) -> Option<Time> {
        match &info.phase {
            Phase::Pending if info.workload.pods > 0 => {
                queue.max_wait.map(|most| self.waits_since(info).after(most))
            }
            Phase::Running(admission) => queue.max_runtime.map(|most| admission.at.after(most)),
            _ => None,
        }
    }
}
