//! What becomes due by the passing of time alone: the longest wait and the longest run of a queue.
//!
//! A workload waits since it last went into the queue: since its submission, or, once it was held back
//! by its user or has run and was evicted, since that ended. Its place in the queue is another matter;
//! that one it keeps. Whoever has waited for too long while others already leave for it is spared: it
//! is about to start, and they would have left in vain.
//!
//! A queue that raises whoever waits for too long changes the order only: it evicts nobody, and nobody
//! of its team evicts it once it runs.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use super::books::Books;
use super::decision::{Action, FailReason};
use super::entry::{Entry, Phase};
use super::explain;
use super::model::{OnMaxWait, Queue, Time, WorkloadId};

/// When which workload's time is up.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    /// Since when each of those that wait, or are about to start, has been waiting.
    waiting: BTreeMap<WorkloadId, Time>,
    /// When something is due for whom, and the same the other way round.
    armed: BTreeMap<WorkloadId, Time>,
    due: BTreeSet<(Time, WorkloadId)>,
    /// Those that have waited for longer than their queue wants, with the time at which that was noted.
    overdue: BTreeMap<WorkloadId, Time>,
}

impl Timers {
    /// Takes note of where a workload stands after a change of it or of its phase.
    pub fn note(&mut self, books: &mut Books, id: &WorkloadId, before: Option<&Phase>, now: Time) {
        let entry = books.get(id).filter(|entry| !entry.removed);
        let Some((phase, submitted)) = entry.map(|entry| (&entry.phase, entry.workload.submitted)) else {
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
                books.raise(id, false);
            }
            (Phase::Running(admission), None) => {
                let waited = admission.at.since(submitted);
                let raises = |queue: &Queue| {
                    queue.on_max_wait == OnMaxWait::RaisePriority
                        && queue.max_wait.is_some_and(|most| waited >= most)
                };
                let raised = entry.is_some_and(|entry| books.queue_of(entry).is_ok_and(raises));
                books.raise(id, raised);
            }
            _ => {
                self.waiting.remove(id);
                self.overdue.remove(id);
            }
        }
    }

    /// Since when a workload has been waiting.
    #[must_use]
    pub fn waits_since(&self, entry: &Entry) -> Time {
        self.waiting.get(&entry.workload.id).copied().unwrap_or(entry.workload.submitted)
    }

    /// Whether a workload has waited for longer than its queue wants.
    #[must_use]
    pub fn overdue(&self, id: &WorkloadId) -> bool {
        self.overdue.contains_key(id)
    }

    /// Sets the timer of a workload to what its phase and its queue say.
    pub fn arm(&mut self, books: &mut Books, id: &WorkloadId) {
        let known = books.get(id).and_then(|entry| books.queue_of(entry).ok().map(|queue| (entry, queue)));
        let mut due = known.and_then(|(entry, queue)| self.due_of(entry, queue));
        if let Some((entry, queue)) = known
            && entry.phase == Phase::Pending
            && let Some(noted) = self.overdue.get(id)
        {
            if due == Some(*noted) && queue.on_max_wait != OnMaxWait::Fail {
                let raised = queue.on_max_wait == OnMaxWait::RaisePriority;
                books.raise(id, raised);
                due = None;
            } else {
                self.overdue.remove(id);
                books.raise(id, false);
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

    fn due_of(&self, entry: &Entry, queue: &Queue) -> Option<Time> {
        match &entry.phase {
            Phase::Pending if entry.workload.pods > 0 => {
                queue.max_wait.map(|most| self.waits_since(entry).after(most))
            }
            Phase::Running(admission) => queue.max_runtime.map(|most| admission.at.after(most)),
            _ => None,
        }
    }
}

/// When something is due next; `None` when nothing is, or nothing that can be done yet.
#[must_use]
pub fn next(engine: &Engine) -> Option<Time> {
    engine.timers.due.iter().find(|(_, id)| !deferred(engine, id)).map(|(at, _)| *at)
}

/// Does everything that is due at `now`.
pub fn fire(engine: &mut Engine, now: Time) -> Vec<Action> {
    let passed = engine.timers.due.iter().take_while(|(at, _)| *at <= now);
    let due: Vec<WorkloadId> =
        passed.filter(|(_, id)| !deferred(engine, id)).map(|(_, id)| id.clone()).collect();
    due.iter().filter_map(|id| fire_one(engine, id, now)).collect()
}

/// Whether what is due for a workload has to wait: for the pause after a write that failed, or for
/// those who leave for it.
fn deferred(engine: &Engine, id: &WorkloadId) -> bool {
    engine.pauses(id) || engine.claims.iter().any(|claim| claim.id == *id)
}

fn fire_one(engine: &mut Engine, id: &WorkloadId, now: Time) -> Option<Action> {
    // Its phase may have changed by a decision since the timer was set.
    engine.timers.arm(&mut engine.books, id);
    let due = engine.timers.armed.get(id).copied().filter(|due| *due <= now)?;
    let entry = engine.books.get(id)?;
    let queue = engine.books.queue_of(entry).ok()?;
    let (from, reason) = match &entry.phase {
        Phase::Running(admission) => (Some(admission.clone()), FailReason::MaxRuntime),
        _ if queue.on_max_wait == OnMaxWait::Fail => (None, FailReason::MaxWait),
        _ => {
            engine.timers.overdue.insert(id.clone(), due);
            engine.queue_up(id);
            return None;
        }
    };
    let since = from.as_ref().map_or_else(|| engine.timers.waits_since(entry), |admission| admission.at);
    let message = explain::failed(queue, reason, now.since(since));
    engine.books.set_phase(id, Phase::Failing(from));
    engine.epoch += 1;
    engine.queue_up(id);
    Some(Action::Fail { workload: id.clone(), reason, message })
}
