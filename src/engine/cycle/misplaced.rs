//! Pods that are not where their workload was admitted to: bound to other nodes, or unable to start.
//!
//! Where pods are bound already, the admission follows them. Pods that cannot start are replaced beside the others if
//! there is capacity, else the whole workload returns to the queue. The reason may be one that the state does not know
//! (a port, a volume), and then the same node would be chosen again. So the workload avoids the node until the node
//! changes or a pause is over, which doubles each time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cycle::evict::{Resize, evict, resize};
use crate::cycle::replace::go_on;
use crate::cycle::requeue;
use crate::explain;
use crate::scheduler::Scheduler;
use crate::state::avoided_nodes::AvoidedNodes;
use crate::state::cluster::ClusterState;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::{
    Admission, EvictReason, MisplacedPods, Name, Plan, ResizeCause, Time, WorkloadId, backoff,
};

/// How long a workload avoids a node the first time.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
/// The longest time for which a workload avoids a node.
const LONGEST_PAUSE: Duration = Duration::from_secs(1800);

/// Notes misplaced pods of a running workload; the next cycle decides about them.
pub fn note(scheduler: &mut Scheduler, misplaced: MisplacedPods) {
    let runs = |info: &&WorkloadInfo| matches!(info.phase, Phase::Running(_)) && !info.removed;
    if scheduler.state.get(&misplaced.workload).filter(runs).is_some() {
        scheduler.cursor.note_external_change();
        scheduler.retries.misplaced.reported.insert(misplaced.workload.clone(), misplaced);
    }
}

/// Allows a node that has changed to the workloads that avoid it.
pub fn clear(scheduler: &mut Scheduler, node: &Name) {
    let avoiding: Vec<WorkloadId> = scheduler
        .retries
        .misplaced
        .until
        .iter()
        .map(|(_, id)| id)
        .filter(|id| avoided(&scheduler.state, id).is_some_and(|avoided| avoided.nodes.contains(node)))
        .cloned()
        .collect();
    for id in avoiding {
        let Some(mut avoided) = avoided(&scheduler.state, &id).cloned() else { continue };
        avoided.nodes.remove(node);
        set_avoided(scheduler, &id, avoided);
    }
}

/// Allows all nodes again to workloads at the end of their pause.
pub fn lift(scheduler: &mut Scheduler, now: Time) {
    while let Some(id) = scheduler.retries.misplaced.take_due(now) {
        let Some(avoided) = avoided(&scheduler.state, &id) else { continue };
        let avoided = AvoidedNodes { nodes: BTreeSet::new(), ..avoided.clone() };
        set_avoided(scheduler, &id, avoided);
    }
}

/// The nodes that a workload avoids, and why.
fn avoided<'a>(state: &'a ClusterState, id: &WorkloadId) -> Option<&'a AvoidedNodes> {
    state.get(id)?.avoided_nodes.as_deref()
}

/// Sets the nodes that a workload avoids, and requeues it.
fn set_avoided(scheduler: &mut Scheduler, id: &WorkloadId, avoided: AvoidedNodes) {
    scheduler.state.set_avoided_nodes(id, avoided);
    scheduler.cursor.note_external_change();
    requeue::queue_again(scheduler, id);
}

/// Decides about the workloads with misplaced pods: they go on with other pods, or return to the queue.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    for (id, misplaced) in std::mem::take(&mut scheduler.retries.misplaced.reported) {
        let Some(info) = scheduler.state.get(&id) else { continue };
        let Phase::Running(admission) = info.phase.clone() else { continue };
        // The pods are reported again for as long as they are misplaced.
        if scheduler.pauses(&id) || !info.workload.resumable {
            continue;
        }
        let Some(kept) = kept(&scheduler.state, &admission, &misplaced) else { continue };
        if kept == admission {
            continue;
        }
        avoid_stuck_nodes(scheduler, &id, &misplaced, now);
        let missing = admission.pods - kept.pods;
        match next_admission(&scheduler.state, &id, &admission, kept) {
            Some((to, cause)) => {
                let avoided = avoided(&scheduler.state, &id).filter(|_| !misplaced.stuck.is_empty());
                let message = explain::misplaced(avoided, admission.pods, to.pods, missing);
                let resized = Resize { id: &id, from: admission, to, cause, preemptor: None, message };
                resize(scheduler, resized, plan);
            }
            None => evict(scheduler, &id, None, EvictReason::NotPlaced, now, plan),
        }
    }
}

/// Lets a workload avoid the nodes where its pods cannot start.
fn avoid_stuck_nodes(scheduler: &mut Scheduler, id: &WorkloadId, misplaced: &MisplacedPods, now: Time) {
    if misplaced.stuck.is_empty() {
        return;
    }
    let mut avoided = avoided(&scheduler.state, id).cloned().unwrap_or_default();
    avoided.nodes.extend(misplaced.stuck.keys().cloned());
    avoided.message.clone_from(&misplaced.message);
    let pause = backoff(FIRST_PAUSE, LONGEST_PAUSE, avoided.times);
    avoided.times += 1;
    scheduler.retries.misplaced.avoid_until(now.after(pause), id);
    set_avoided(scheduler, id, avoided);
}

/// The part of an admission that stays: the pods that are bound, and the places of pods that can still be bound
/// there. `None` when more pods are bound than admitted, because some of them are about to end.
fn kept(state: &ClusterState, admission: &Admission, misplaced: &MisplacedPods) -> Option<Admission> {
    // Pods on a node that is gone or does not answer are lost.
    let exists = |name: &Name| state.nodes.present(name).is_some();
    let mut nodes = misplaced.there.clone();
    nodes.retain(|name, _| exists(name));
    let bound: u32 = nodes.values().sum();
    let mut left = admission.pods.checked_sub(bound)?;
    for (name, planned) in admission.nodes.iter().filter(|(name, _)| exists(name)) {
        let count = |of: &BTreeMap<Name, u32>| of.get(name).copied().unwrap_or(0);
        let open = planned.saturating_sub(count(&misplaced.there) + count(&misplaced.stuck)).min(left);
        if open > 0 {
            *nodes.entry(name.clone()).or_default() += open;
            left -= open;
        }
    }
    nodes.retain(|_, pods| *pods > 0);
    Some(Admission { pods: nodes.values().sum(), nodes, ..admission.clone() })
}

/// The admission with which a workload goes on, and why; `None` if it cannot go on.
fn next_admission(
    state: &ClusterState,
    id: &WorkloadId,
    admission: &Admission,
    kept: Admission,
) -> Option<(Admission, ResizeCause)> {
    let info = state.get(id)?;
    if kept.pods == admission.pods {
        return Some((kept, ResizeCause::Replaced));
    }
    go_on(state, info, admission, &kept)
}
