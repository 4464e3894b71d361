//! Gangs that lose a pod: where the queue says `Restart`, the whole workload returns to the queue, because its other
//! pods cannot go on without the lost one.
//!
//! A pod counts as lost once the controller of its workload counts it as failed: it was deleted, evicted, or failed for
//! good. The first restart is at once. A gang that loses a pod soon after its start again rests before the next run,
//! longer each time, so that a crash loop does not take capacity in turns with others.

use crate::cycle::evict::evict;
use crate::explain;
use crate::scheduler::Scheduler;
use crate::state::workload::Phase;
use crate::types::{EvictReason, OnPodLoss, Plan, Time, WorkloadId};

/// Restarts the gangs that have lost a pod.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    let lost: Vec<WorkloadId> = scheduler.retries.gangs.lost.iter().cloned().collect();
    for id in lost {
        if scheduler.pauses(&id) {
            continue;
        }
        let state = &scheduler.state;
        let Some(info) = state.get(&id) else { continue };
        let Phase::Running(admission) = &info.phase else { continue };
        if !state.queue_of(info).is_ok_and(|queue| queue.on_pod_loss == OnPodLoss::Restart) {
            // Its controller replaces the pod.
            scheduler.retries.gangs.lost.remove(&id);
            continue;
        }
        let run = admission.at;
        let message = explain::lost_pod(info.workload.failed_pods, now.since(run));
        scheduler.retries.gangs.lost_in_run(&id, run, message, now);
        evict(scheduler, &id, None, EvictReason::PodLost, now, plan);
    }
}
