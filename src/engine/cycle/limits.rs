//! The longest wait and the longest run that a queue sets.
//!
//! A wait counts from submission, or from the last eviction or the end of a hold by the user; the workload's position in
//! the queue does not change with it. A workload with nominated capacity does not fail for waiting too long: it is
//! about to start, and its victims would have been evicted in vain.
//!
//! A queue that raises the priority of an overdue workload changes the order only. It evicts no workload, and no
//! workload of the same team preempts the raised one once it runs.

use crate::cycle::requeue;
use crate::explain;
use crate::scheduler::Scheduler;
use crate::state::workload::Phase;
use crate::types::{Action, FailReason, OnMaxWait, Plan, Time, WorkloadId};

/// The earliest time at which a limit is reached and can be enforced.
#[must_use]
pub fn next(scheduler: &Scheduler) -> Option<Time> {
    scheduler.deadlines.due.iter().find(|(_, id)| !is_postponed(scheduler, id)).map(|(at, _)| *at)
}

/// Enforces every limit that is reached at `now`.
pub fn enforce(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    let passed = scheduler.deadlines.due.iter().take_while(|(at, _)| *at <= now);
    let due: Vec<WorkloadId> =
        passed.filter(|(_, id)| !is_postponed(scheduler, id)).map(|(_, id)| id.clone()).collect();
    plan.actions.extend(due.iter().filter_map(|id| enforce_one(scheduler, id, now)));
}

/// Whether a workload's limit is enforced later: after the pause that follows a failed write, or once its nomination
/// has ended.
fn is_postponed(scheduler: &Scheduler, id: &WorkloadId) -> bool {
    scheduler.pauses(id) || scheduler.nominations.contains(id)
}

/// Fails a workload that reached a limit, or marks it overdue where its queue only wants that.
fn enforce_one(scheduler: &mut Scheduler, id: &WorkloadId, now: Time) -> Option<Action> {
    // A decision may have changed its phase since the deadline was set.
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
