//! Gangs that do not become ready: a workload of several pods that are not all ready in the time its queue gives
//! returns to the queue as a whole.
//!
//! Once all pods were ready at the same time, the run counts as ready; pods lost later do not matter here. The same
//! obstacle often stops the next run too, so the gang rests before it is tried again. The rest doubles each time,
//! until the gang becomes ready or its object changes.
//!
//! No object records that a gang was ready once. A new engine that finds a gang running past its time takes it for
//! ready, because otherwise the engine before would have evicted it.

use crate::cycle::evict::evict;
use crate::cycle::requeue;
use crate::explain;
use crate::scheduler::Scheduler;
use crate::state::workload::Phase;
use crate::types::{EvictReason, Observed, Plan, PodsReady, Time, Workload, WorkloadId};

/// Notes how many pods of a workload are ready.
pub fn note(scheduler: &mut Scheduler, reported: &PodsReady) {
    let id = &reported.workload;
    let Some(info) = scheduler.state.get(id).filter(|info| !info.removed) else { return };
    let gangs = &mut scheduler.retries.gangs;
    let gang = gangs.gangs.entry(id.clone()).or_default();
    (gang.ready, gang.succeeded) = (reported.ready, reported.succeeded);
    let became_ready = match &info.phase {
        Phase::Running(admission) | Phase::Resizing { to: admission, .. } => gang.note_ready(info, admission),
        _ => false,
    };
    if became_ready {
        gangs.end_rest(id);
        gangs.arm(&scheduler.state, id);
    }
}

/// Ends the rest of a waiting workload after a change of its object.
pub fn clear_changed(scheduler: &mut Scheduler, workload: &Workload) {
    let waits = |workload: &Workload| matches!(workload.state, Observed::Queued | Observed::OnHold);
    let before = scheduler.state.get(&workload.id).map(|info| &*info.workload);
    let changed = before.is_some_and(|before| waits(before) && waits(workload) && before != workload);
    if changed && scheduler.retries.gangs.forget_failed_runs(&workload.id) {
        scheduler.cursor.note_looser();
    }
}

/// Requeues gangs at the end of their rest.
pub fn lift(scheduler: &mut Scheduler, now: Time) {
    while let Some(id) = scheduler.retries.gangs.take_rested(now) {
        scheduler.cursor.note_external_change();
        requeue::queue_again(scheduler, &id);
    }
}

/// The earliest time at which a gang must be ready or a rest is over.
#[must_use]
pub fn next(scheduler: &Scheduler) -> Option<Time> {
    let due = scheduler.retries.gangs.due.iter().find(|(_, id)| scheduler.can_evict(id));
    [due, scheduler.retries.gangs.resting.first()].into_iter().flatten().map(|(at, _)| *at).min()
}

/// Evicts the gangs that are not ready in time.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    let passed = scheduler.retries.gangs.due.iter().take_while(|(at, _)| *at <= now);
    let due: Vec<WorkloadId> =
        passed.map(|(_, id)| id).filter(|id| scheduler.can_evict(id)).cloned().collect();
    for id in due {
        evict_unready(scheduler, &id, now, plan);
        scheduler.retries.gangs.arm(&scheduler.state, &id);
    }
}

/// Evicts a gang that is not ready in time, and lets it rest.
fn evict_unready(scheduler: &mut Scheduler, id: &WorkloadId, now: Time, plan: &mut Plan) {
    let Some(info) = scheduler.state.get(id) else { return };
    let Phase::Running(admission) = &info.phase else { return };
    let Some((present, needed)) = scheduler.retries.gangs.awaited(info, admission) else { return };
    let Ok(queue) = scheduler.state.queue_of(info) else { return };
    let run = admission.at;
    let message = explain::not_ready(queue, present, needed, now.since(run));
    scheduler.retries.gangs.start_rest(id, run, message, now);
    evict(scheduler, id, None, EvictReason::NotReady, now, plan);
}
