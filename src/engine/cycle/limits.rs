//! The longest wait and the longest run that a queue sets.
//!
//! A wait counts from submission, or from the last eviction or the end of a hold by the user; the workload's position in
//! the queue does not change with it. A workload with nominated capacity does not fail for waiting too long: it is
//! about to start, and its victims would have been evicted in vain. Nor does one fail that can start at the very end of the
//! longest wait: what waits fails after the attempts of that instant.
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
    scheduler.deadlines.limits.iter().find(|(_, id)| !is_postponed(scheduler, id)).map(|(at, _)| at)
}

/// Enforces every limit that is reached at `now`, but fails no workload that waits: it may still start at this instant.
pub fn enforce(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    let due: Vec<WorkloadId> =
        due(scheduler, now).filter(|id| !fails_if_it_waits(scheduler, id)).cloned().collect();
    plan.actions.extend(due.iter().filter_map(|id| enforce_one(scheduler, id, now)));
}

/// Fails the workloads that still wait at the end of their longest wait, after the attempts of that instant; true if there are
/// any, which others may have waited for.
pub fn fail_waiting(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) -> bool {
    let due: Vec<WorkloadId> = due(scheduler, now).cloned().collect();
    let before = plan.actions.len();
    plan.actions.extend(due.iter().filter_map(|id| enforce_one(scheduler, id, now)));
    plan.actions.len() > before
}

/// The workloads of which a limit is reached at `now` and can be enforced.
fn due(scheduler: &Scheduler, now: Time) -> impl Iterator<Item = &WorkloadId> {
    let passed = scheduler.deadlines.limits.iter().take_while(move |(at, _)| *at <= now);
    passed.map(|(_, id)| id).filter(|id| !is_postponed(scheduler, id))
}

/// Requeues what fails at `now` if it cannot start, so that it is attempted before.
pub fn attempt_due(scheduler: &mut Scheduler, now: Time) {
    let due: Vec<WorkloadId> =
        due(scheduler, now).filter(|id| fails_if_it_waits(scheduler, id)).cloned().collect();
    let pending = &mut scheduler.queue.pending;
    for class in due.iter().filter_map(|id| pending.class_of(id)).collect::<Vec<_>>() {
        pending.requeue(class);
    }
}

/// Whether a limit of a workload is reached at `now`.
pub fn is_due(scheduler: &Scheduler, id: &WorkloadId, now: Time) -> bool {
    scheduler.deadlines.limits.of(id).is_some_and(|at| at <= now)
}

fn fails_if_it_waits(scheduler: &Scheduler, id: &WorkloadId) -> bool {
    let waits = scheduler.state.get(id).filter(|info| info.phase == Phase::Pending);
    let queue = waits.and_then(|info| scheduler.state.queue_of(info).ok());
    queue.is_some_and(|queue| queue.on_max_wait == OnMaxWait::Fail)
}

/// Whether a workload's limit is enforced later: after the pause that follows a failed write, or once its nomination
/// has ended.
fn is_postponed(scheduler: &Scheduler, id: &WorkloadId) -> bool {
    scheduler.pauses(id) || scheduler.nominations.contains(id)
}

/// Fails a workload that reached a limit, or marks it overdue where its queue only wants that.
fn enforce_one(scheduler: &mut Scheduler, id: &WorkloadId, now: Time) -> Option<Action> {
    // A decision may have changed its phase since the limit was set.
    scheduler.deadlines.arm(&mut scheduler.state, id);
    let limit = scheduler.deadlines.limits.of(id).filter(|limit| *limit <= now)?;
    let info = scheduler.state.get(id)?;
    let queue = scheduler.state.queue_of(info).ok()?;
    let (from, reason) = match &info.phase {
        Phase::Running(admission) => (Some(admission.clone()), FailReason::MaxRuntime),
        _ if queue.on_max_wait == OnMaxWait::Fail => (None, FailReason::MaxWait),
        _ => {
            scheduler.deadlines.note_overdue(id, limit);
            requeue::queue_up(scheduler, id);
            return None;
        }
    };
    let since = from.as_ref().map_or_else(|| scheduler.deadlines.waits_since(info), |admission| admission.at);
    let message = explain::failed(queue, reason, now.since(since));
    scheduler.state.set_phase(id, Phase::Failing(from));
    scheduler.cursor.note_looser();
    requeue::queue_up(scheduler, id);
    Some(Action::Fail { workload: id.clone(), reason, message })
}
