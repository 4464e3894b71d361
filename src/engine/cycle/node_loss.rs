//! Nodes that disappear or do not answer, with pods on them: the lost pods are replaced, or the whole workload returns to the
//! queue.

use crate::cycle::evict::{Resize, evict, resize};
use crate::cycle::replace::go_on;
use crate::cycle::unreachable::is_awaited;
use crate::explain;
use crate::scheduler::Scheduler;
use crate::state::cluster::ClusterState;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::{Admission, EvictReason, Plan, ResizeCause, Time, WorkloadId};

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
    let kept = remaining(state, from);
    let (to, cause) = go_on(state, info, from, &kept)?;
    let message = match cause {
        ResizeCause::Replaced => explain::replaced(to.pods - kept.pods),
        _ => explain::lost_pods(from.pods.saturating_sub(kept.pods), kept.pods),
    };
    Some((to, cause, message))
}

/// The part of an admission on nodes that still exist.
fn remaining(state: &ClusterState, admission: &Admission) -> Admission {
    let mut kept = admission.clone();
    kept.nodes.retain(|name, _| state.nodes.present(name).is_some());
    kept.pods = kept.nodes.values().sum();
    kept
}
