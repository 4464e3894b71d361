//! What becomes due by the passing of time alone: the longest wait and the longest run of a queue.
//!
//! A workload waits since it last went into the queue: since its submission, or, once it was held back
//! by its user or has run and was evicted, since that ended. Its place in the queue is another matter;
//! that one it keeps. Whoever has waited for too long while others already leave for it is spared: it
//! is about to start, and they would have left in vain.
//!
//! A queue that raises whoever waits for too long changes the order only: it evicts nobody, and nobody
//! of its team evicts it once it runs.

use crate::cycle::requeue;
use crate::explain;
use crate::scheduler::Scheduler;
use crate::state::workload::Phase;
use crate::types::{Action, FailReason, OnMaxWait, Plan, Time, WorkloadId};

/// When something is due next; `None` when nothing is, or nothing that can be done yet.
#[must_use]
pub fn next(scheduler: &Scheduler) -> Option<Time> {
    scheduler.deadlines.due.iter().find(|(_, id)| !deferred(scheduler, id)).map(|(at, _)| *at)
}

/// Does everything that is due at `now`.
pub fn enforce(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    let passed = scheduler.deadlines.due.iter().take_while(|(at, _)| *at <= now);
    let due: Vec<WorkloadId> =
        passed.filter(|(_, id)| !deferred(scheduler, id)).map(|(_, id)| id.clone()).collect();
    plan.actions.extend(due.iter().filter_map(|id| fire_one(scheduler, id, now)));
}

/// Whether what is due for a workload has to wait: for the pause after a write that failed, or for
/// those who leave for it.
fn deferred(scheduler: &Scheduler, id: &WorkloadId) -> bool {
    scheduler.pauses(id) || scheduler.nominations.all.iter().any(|nomination| nomination.id == *id)
}

fn fire_one(scheduler: &mut Scheduler, id: &WorkloadId, now: Time) -> Option<Action> {
    // Its phase may have changed by a decision since the timer was set.
    scheduler.deadlines.arm(&mut scheduler.state, id);
    let due = scheduler.deadlines.armed.get(id).copied().filter(|due| *due <= now)?;
    let info = scheduler.state.get(id)?;
    let queue = scheduler.state.queue_of(info).ok()?;
    let (from, reason) = match &info.phase {
        Phase::Running(admission) => (Some(admission.clone()), FailReason::MaxRuntime),
        _ if queue.on_max_wait == OnMaxWait::Fail => (None, FailReason::MaxWait),
        _ => {
            scheduler.deadlines.overdue.insert(id.clone(), due);
            requeue::queue_up(scheduler, id);
            return None;
        }
    };
    let since = from.as_ref().map_or_else(|| scheduler.deadlines.waits_since(info), |admission| admission.at);
    let message = explain::failed(queue, reason, now.since(since));
    scheduler.state.set_phase(id, Phase::Failing(from));
    scheduler.cursor.generation += 1;
    requeue::queue_up(scheduler, id);
    Some(Action::Fail { workload: id.clone(), reason, message })
}
