//! Nodes that do not answer: after [`crate::types::Settings::unreachable_after`] their pods are held nowhere, and are
//! ended without their kubelet.
//!
//! Without that a workload with one pod on a dead node would wait for ever for the end of that pod. Its pods there are
//! ended once nothing else of the workload depends on them: an eviction is confirmed first, because the Job controller
//! would count a pod that vanishes from a running Job as failed.

use crate::explain;
use crate::scheduler::Scheduler;
use crate::state::cluster::ClusterState;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::NodeId;
use crate::types::{Action, OnUnreachable, Plan, PodId, Time, WorkloadId};

/// Counts nodes as lost that have not answered for too long.
pub fn advance(scheduler: &mut Scheduler, now: Time) {
    if scheduler.state.lose_nodes(now, scheduler.settings.unreachable_after) {
        scheduler.cursor.note_external_change();
        scheduler.cursor.note_requeue_all();
    }
}

/// When the next node counts as lost, or the end of a pod is tried again.
#[must_use]
pub fn next(scheduler: &Scheduler) -> Option<Time> {
    let loss = scheduler.state.next_loss(scheduler.settings.unreachable_after);
    [loss, scheduler.retries.ended.next()].into_iter().flatten().min()
}

/// Ends pods on lost nodes that their workload does not count on any more.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    scheduler.retries.ended.end_pauses(now);
    let state = &scheduler.state;
    let is_due = |(pod, id, node): &(&PodId, &WorkloadId, NodeId)| {
        scheduler.retries.ended.is_due(pod)
            && state.get(id).is_some_and(|info| !is_awaited(state, info) && !counts_on(state, info, *node))
    };
    let due: Vec<(PodId, WorkloadId, NodeId)> = state
        .pods_on_lost_nodes()
        .filter(is_due)
        .map(|(pod, id, node)| (pod.clone(), id.clone(), node))
        .collect();
    for (pod, workload, node) in due {
        let message = explain::ended_pod(&scheduler.state, node, now);
        scheduler.retries.ended.decide(pod.clone());
        plan.actions.push(Action::EndPod { workload, pod, message });
    }
}

/// Whether the queue of a workload has it wait for pods on nodes that do not answer, because they may still run.
#[must_use]
pub fn is_awaited(state: &ClusterState, info: &WorkloadInfo) -> bool {
    state.queue_of(info).is_ok_and(|queue| queue.on_unreachable == OnUnreachable::Wait)
}

/// Whether a decision about a workload with a pod on this node is still to be made or to be confirmed.
fn counts_on(state: &ClusterState, info: &WorkloadInfo, node: NodeId) -> bool {
    match &info.phase {
        Phase::Running(admission) => {
            info.workload.resumable && admission.nodes.contains_key(state.nodes.name(node))
        }
        Phase::Leaving { stopped, .. } => !stopped,
        Phase::Hold | Phase::Pending | Phase::Finished => false,
        Phase::Starting(_) | Phase::Resizing { .. } | Phase::Stopping(_) | Phase::Failing(_) => true,
    }
}
