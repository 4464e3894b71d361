//! Running workloads that return to the queue because their user or the owner of their queue wants it: the annotation
//! `sluice.dev/requeue` names a time after their admission, or their queue is drained.
//!
//! They keep their place in the queue. A time that is not later than the last admission has no effect, so an object says
//! by itself whether it was recalled already, whichever replica reads it (law 11).

use crate::cycle::evict::evict;
use crate::scheduler::Scheduler;
use crate::types::{EvictReason, Paused, Plan, Time, WorkloadId};

/// The next time at which a workload is to return to the queue.
#[must_use]
pub fn next(scheduler: &Scheduler) -> Option<Time> {
    let recalls = scheduler.deadlines.recalls.iter().filter(|(id, _)| scheduler.can_evict(id));
    recalls.map(|(_, at)| *at).min()
}

/// Evicts the workloads that are to return to the queue by now.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    let due = scheduler.deadlines.recalls.iter().filter(|(_, at)| **at <= now);
    let due: Vec<WorkloadId> =
        due.filter(|(id, _)| scheduler.can_evict(id)).map(|(id, _)| id.clone()).collect();
    for id in due {
        let Some(info) = scheduler.state.get(&id) else { continue };
        let asked = info.workload.requeue.zip(info.phase.admission());
        let asked = asked.is_some_and(|(asked, admission)| admission.at < asked && asked <= now);
        let drained = scheduler.state.queue_of(info).is_ok_and(|queue| queue.paused == Paused::Drain);
        let reason = match (asked, drained) {
            (true, _) => EvictReason::Requeued,
            (false, true) => EvictReason::QueueDrained,
            (false, false) => continue,
        };
        evict(scheduler, &id, None, reason, now, plan);
    }
}
