//! When the time of a workload or team is up: the longest wait and run of a queue, a recall to the queue, pods that can never run
//! again, and a limit that pods without an admission exceed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::state::cluster::ClusterState;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::TeamId;
use crate::types::{OnMaxWait, Paused, Queue, Time, WorkloadId};

/// The deadlines of all workloads and teams, and the times from which they count.
#[derive(Clone, Debug, Default)]
pub struct Deadlines {
    /// The time since which each workload that waits, or is about to start, has been waiting.
    waiting: BTreeMap<WorkloadId, Time>,
    /// When each workload that waits or runs has done so for as long as its queue allows.
    pub limits: DueTimes,
    /// The workloads that have waited longer than their queue allows and wait on, each with the limit that passed.
    overdue: BTreeMap<WorkloadId, Time>,
    /// The time from which each of these running workloads is to return to the queue.
    pub recalls: BTreeMap<WorkloadId, Time>,
    /// Since when workloads have had pods on their record that can never run again.
    pub unused_records: Since<WorkloadId>,
    /// Since when teams have had pods that were never admitted while they or a team above exceed a limit.
    pub over_limit: Since<TeamId>,
}

/// A time of each of some workloads, which are found by name and in the order of their times.
#[derive(Clone, Debug, Default)]
pub struct DueTimes {
    times: BTreeMap<WorkloadId, Time>,
    in_order: BTreeSet<(Time, WorkloadId)>,
}

impl DueTimes {
    /// The time of a workload.
    #[must_use]
    pub fn of(&self, id: &WorkloadId) -> Option<Time> {
        self.times.get(id).copied()
    }

    /// All of them in order, equal ones by workload.
    pub fn iter(&self) -> impl Iterator<Item = (Time, &WorkloadId)> {
        self.in_order.iter().map(|(at, id)| (*at, id))
    }

    /// Sets the time of a workload, or removes it.
    fn set(&mut self, id: &WorkloadId, time: Option<Time>) {
        let until_now = match time {
            Some(time) => self.times.insert(id.clone(), time),
            None => self.times.remove(id),
        };
        if until_now != time {
            if let Some(until_now) = until_now {
                self.in_order.remove(&(until_now, id.clone()));
            }
            self.in_order.extend(time.map(|time| (time, id.clone())));
        }
    }
}

/// Since when something has been so of each of its subjects without a break. What comes of it follows after a pause, for it may end
/// by itself.
#[derive(Clone, Debug)]
pub struct Since<K>(BTreeMap<K, Time>);

impl<K> Default for Since<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord> Since<K> {
    /// Notes that it is so `now` of all of `subjects`, and still so of those others of which it `lasts`, and of no other.
    pub fn note(&mut self, lasts: impl Fn(&K) -> bool, subjects: impl IntoIterator<Item = K>, now: Time) {
        self.0.retain(|subject, _| lasts(subject));
        for subject in subjects {
            self.0.entry(subject).or_insert(now);
        }
    }

    /// Each subject, with the time at which it has been so for that long.
    pub fn after(&self, pause: Duration) -> impl Iterator<Item = (&K, Time)> {
        self.0.iter().map(move |(subject, since)| (subject, since.after(pause)))
    }

    /// When it has been so of a subject for that long; `None` if it is not so.
    pub fn of_after(&self, subject: &K, pause: Duration) -> Option<Time> {
        self.0.get(subject).map(|since| since.after(pause))
    }

    /// Whether it is so of no subject.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
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

    /// Lets the wait of a workload begin again: it could not start so far.
    pub fn restart_wait(&mut self, id: WorkloadId, now: Time) {
        self.waiting.insert(id, now);
    }

    /// Whether a workload has waited longer than its queue allows.
    #[must_use]
    pub fn is_overdue(&self, id: &WorkloadId) -> bool {
        self.overdue.contains_key(id)
    }

    /// Notes that a workload waits on beyond this limit.
    pub fn note_overdue(&mut self, id: &WorkloadId, limit: Time) {
        self.overdue.insert(id.clone(), limit);
    }

    /// Sets the limit and the recall of a workload from its phase and its queue, and whether it is raised in the queue.
    pub fn arm(&mut self, state: &mut ClusterState, id: &WorkloadId) {
        match state.get(id).and_then(|info| recall_of(state, info)) {
            Some(at) => _ = self.recalls.insert(id.clone(), at),
            None => _ = self.recalls.remove(id),
        }
        let known = state.get(id).and_then(|info| state.queue_of(info).ok().map(|queue| (info, queue)));
        let mut limit = known.and_then(|(info, queue)| limit_of(info, queue, self.waits_since(info)));
        if let Some((info, queue)) = known
            && info.phase == Phase::Pending
            && let Some(noted) = self.overdue.get(id)
        {
            if limit == Some(*noted) && queue.on_max_wait != OnMaxWait::Fail {
                let raised = queue.on_max_wait == OnMaxWait::RaisePriority;
                state.raise(id, raised);
                limit = None;
            } else {
                self.overdue.remove(id);
                state.raise(id, false);
            }
        }
        self.limits.set(id, limit);
    }
}

/// When a workload has waited or run for as long as its queue allows. It has no such limit while it waits and its queue is paused.
fn limit_of(info: &WorkloadInfo, queue: &Queue, waits_since: Time) -> Option<Time> {
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
