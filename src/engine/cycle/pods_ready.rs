//! Gangs that do not come up: where not all pods of a workload with several are ready in the time its queue
//! gives them, the whole of it goes back to the queue.
//!
//! Once all have been ready at the same time that is over for this run; who loses pods later is no concern
//! of this. What keeps a gang from coming up will often keep it from it again, so it rests before it is
//! tried anew, twice as long each time, until it has come up or its object changes.
//!
//! Nothing on the cluster says that a gang has come up before. One that is found running past its time, by
//! an engine that has just begun, is taken to have: else it would have been put back.

use std::time::Duration;

use crate::cycle::evict::evict;
use crate::cycle::requeue;
use crate::explain;
use crate::scheduler::Scheduler;
use crate::scheduler::gangs::{Dates, Rest};
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::{EvictReason, Observed, Plan, PodsReady, Time, Workload, WorkloadId, backoff};

/// How long a gang rests the first time.
const FIRST_REST: Duration = Duration::from_secs(30);
/// How long at most.
const LONGEST_REST: Duration = Duration::from_secs(1800);

/// Takes note of how many pods of a workload are up.
pub fn note(scheduler: &mut Scheduler, told: &PodsReady) {
    let Some(info) = scheduler.state.get(&told.workload).filter(|info| !info.removed) else { return };
    let gang = scheduler.retries.gangs.gangs.entry(told.workload.clone()).or_default();
    (gang.ready, gang.succeeded) = (told.ready, told.succeeded);
    let came_up = match &info.phase {
        Phase::Running(admission) | Phase::Resizing { to: admission, .. } => gang.look(info, admission),
        _ => false,
    };
    if came_up {
        scheduler.retries.gangs.clear(&told.workload);
        scheduler.retries.gangs.arm(&scheduler.state, &told.workload);
    }
}

/// Lets a workload that waits start whenever it can if its object says something else than before.
pub fn clear_changed(scheduler: &mut Scheduler, workload: &Workload) {
    let waits = |workload: &Workload| matches!(workload.state, Observed::Queued | Observed::OnHold);
    let before = scheduler.state.get(&workload.id).map(|info| &info.workload);
    let changed = before.is_some_and(|before| waits(before) && waits(workload) && before != workload);
    if changed && scheduler.retries.gangs.clear(&workload.id) {
        scheduler.cursor.generation += 1;
    }
}

/// Lets those start again who have rested.
pub fn lift(scheduler: &mut Scheduler, now: Time) {
    while let Some((until, id)) =
        scheduler.retries.gangs.resting.first().cloned().filter(|(until, _)| *until <= now)
    {
        scheduler.retries.gangs.resting.remove(&(until, id.clone()));
        if let Some(rest) = scheduler.retries.gangs.gangs.get_mut(&id).and_then(|gang| gang.rest.as_mut()) {
            rest.until = None;
        }
        scheduler.cursor.generation += 1;
        scheduler.cursor.external_changes += 1;
        requeue::queue_up(scheduler, &id);
    }
}

/// When a gang's time is up, or one has rested.
#[must_use]
pub fn next(scheduler: &Scheduler) -> Option<Time> {
    let due = scheduler.retries.gangs.due.iter().find(|(_, id)| can_go(scheduler, id));
    [due, scheduler.retries.gangs.resting.first()].into_iter().flatten().map(|(at, _)| *at).min()
}

/// Whether nothing else is being done with a workload: what is, brings it to another phase or fails, and
/// either asks for a plan.
fn can_go(scheduler: &Scheduler, id: &WorkloadId) -> bool {
    let runs = |info: &WorkloadInfo| matches!(info.phase, Phase::Running(_));
    scheduler.state.get(id).is_some_and(runs) && !scheduler.pauses(id)
}

/// Puts those back whose time is up.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    let passed = scheduler.retries.gangs.due.iter().take_while(|(at, _)| *at <= now);
    let due: Vec<WorkloadId> = passed.map(|(_, id)| id).filter(|id| can_go(scheduler, id)).cloned().collect();
    for id in due {
        put_back(scheduler, &id, now, plan);
        scheduler.retries.gangs.arm(&scheduler.state, &id);
    }
}

fn put_back(scheduler: &mut Scheduler, id: &WorkloadId, now: Time, plan: &mut Plan) {
    let Some(info) = scheduler.state.get(id) else { return };
    let Phase::Running(admission) = &info.phase else { return };
    let Some((there, needed)) = scheduler.retries.gangs.awaited(info, admission) else { return };
    let Ok(queue) = scheduler.state.queue_of(info) else { return };
    let run = admission.at;
    let message = explain::not_ready(queue, there, needed, now.since(run));
    let Some(gang) = scheduler.retries.gangs.gangs.get_mut(id) else { return };
    // Where the write of this failed, it is the same run again.
    let times = match &gang.rest {
        Some(rest) if rest.run == run => rest.times,
        Some(rest) => rest.times + 1,
        None => 0,
    };
    let pause = backoff(FIRST_REST, LONGEST_REST, times);
    let until = now.after(pause);
    let before = gang.rest.replace(Rest { times, run, until: Some(until), pause, message });
    scheduler.retries.gangs.resting.strike(before.and_then(|rest| rest.until), id);
    scheduler.retries.gangs.resting.insert((until, id.clone()));
    evict(scheduler, id, None, EvictReason::NotReady, now, plan);
}
