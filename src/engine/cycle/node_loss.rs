//! Nodes that disappear or do not answer, with pods on them: the lost pods are replaced, or the whole workload returns to the
//! queue.

use crate::cycle::evict::{Resize, evict, resize};
use crate::cycle::replace::replaced;
use crate::cycle::unreachable::is_awaited;
use crate::explain;
use crate::scheduler::Scheduler;
use crate::state::cluster::ClusterState;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::{Admission, EvictReason, OnPodLoss, Plan, ResizeCause, Time, WorkloadId};

/// Decides about the running workloads that were admitted to nodes which do not exist any more or count as lost.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    let lost: Vec<WorkloadId> = scheduler.state.lost_pods().cloned().collect();
    for id in lost {
        if scheduler.pauses(&id) {
            continue;
        }
        let Some(info) = scheduler.state.get(&id) else { continue };
        let Phase::Running(from) = info.phase.clone() else { continue };
        // A lost pod that no controller replaces is gone for good; its object says so.
        if !info.workload.resumable || waits(&scheduler.state, info, &from) {
            continue;
        }
        match next_admission(&scheduler.state, info, &from) {
            Some((to, cause, message)) => {
                let resized = Resize { id: &id, from, to, cause, preemptor: None, message };
                resize(scheduler, resized, plan);
            }
            None => evict(scheduler, &id, None, EvictReason::NodeLost, now, plan),
        }
    }
}

/// Whether a workload waits for nodes that do not answer, because its pods there may still run.
fn waits(state: &ClusterState, info: &WorkloadInfo, from: &Admission) -> bool {
    is_awaited(state, info) && from.nodes.keys().any(|name| state.is_silent(name))
}

/// The admission with which a workload goes on, and why; `None` if it cannot go on.
fn next_admission(
    state: &ClusterState,
    info: &WorkloadInfo,
    from: &Admission,
) -> Option<(Admission, ResizeCause, String)> {
    let kept = remaining(state, info, from)?;
    if let Some(to) = replaced(state, &info.workload.id, from, &kept) {
        let message = explain::replaced(to.pods - kept.pods);
        return Some((to, ResizeCause::Replaced, message));
    }
    if kept.pods < info.least_pods() {
        return None;
    }
    let message = explain::lost_pods(from.pods.saturating_sub(kept.pods), kept.pods);
    Some((kept, ResizeCause::Shrunk, message))
}

/// The part of an admission on nodes that still exist; `None` if it is empty or the workload needs the lost pods.
fn remaining(state: &ClusterState, info: &WorkloadInfo, admission: &Admission) -> Option<Admission> {
    let on_loss = state.queue_of(info).map_or_else(|_| OnPodLoss::default(), |queue| queue.on_pod_loss);
    let mut kept = admission.clone();
    kept.nodes.retain(|name, _| state.nodes.present(name).is_some());
    kept.pods = kept.nodes.values().sum();
    (kept.pods > 0 && info.workload.resizable && on_loss == OnPodLoss::Replace).then_some(kept)
}
