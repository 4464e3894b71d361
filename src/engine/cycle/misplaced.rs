//! Pods that are not where their workload was admitted to: bound elsewhere, or kept from starting.
//!
//! Where pods already are, the admission follows them. Where some cannot be started, they are made anew
//! beside the rest, if there is room, else the whole workload goes back to the queue. For reasons that
//! the books may not know (a port, a volume) the node would be chosen again, so the workload keeps off it
//! until the node changes or a pause is over, twice as long each time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cycle::evict::{Resize, evict, resize};
use crate::cycle::replace::replaced;
use crate::cycle::requeue;
use crate::explain;
use crate::scheduler::Scheduler;
use crate::state::avoided_nodes::AvoidedNodes;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::{
    Admission, EvictReason, MisplacedPods, Name, OnPodLoss, Plan, ResizeCause, Time, WorkloadId, backoff,
};

/// How long a workload keeps off a node the first time.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
/// How long at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(1800);

/// Takes note of pods that have strayed; what follows is decided by the next plan.
pub fn note(scheduler: &mut Scheduler, astray: MisplacedPods) {
    let runs = |info: &&WorkloadInfo| matches!(info.phase, Phase::Running(_)) && !info.removed;
    if scheduler.state.get(&astray.workload).filter(runs).is_some() {
        scheduler.cursor.external_changes += 1;
        scheduler.retries.misplaced.told.insert(astray.workload.clone(), astray);
    }
}

/// Lets workloads go back to a node that has changed.
pub fn clear(scheduler: &mut Scheduler, node: &Name) {
    let avoid = |info: &&WorkloadInfo| info.avoided_nodes.as_ref().is_some_and(|s| s.nodes.contains(node));
    let ids = scheduler.retries.misplaced.until.iter().map(|(_, id)| id);
    let ids: Vec<WorkloadId> =
        ids.filter(|id| scheduler.state.get(id).filter(avoid).is_some()).cloned().collect();
    for id in ids {
        let Some(avoided_nodes) = scheduler.state.get(&id).and_then(|info| info.avoided_nodes.as_deref())
        else {
            continue;
        };
        let mut avoided_nodes = avoided_nodes.clone();
        avoided_nodes.nodes.remove(node);
        set(scheduler, &id, avoided_nodes);
    }
}

/// Lets those go back to the nodes they keep off whose pause is over.
pub fn lift(scheduler: &mut Scheduler, now: Time) {
    while let Some((until, id)) =
        scheduler.retries.misplaced.until.first().cloned().filter(|(until, _)| *until <= now)
    {
        scheduler.retries.misplaced.until.remove(&(until, id.clone()));
        let Some(avoided_nodes) = scheduler.state.get(&id).and_then(|info| info.avoided_nodes.as_deref())
        else {
            continue;
        };
        let avoided_nodes = AvoidedNodes { nodes: BTreeSet::new(), ..avoided_nodes.clone() };
        set(scheduler, &id, avoided_nodes);
    }
}

/// Has a workload keep off these nodes, and asks it anew.
fn set(scheduler: &mut Scheduler, id: &WorkloadId, avoided_nodes: AvoidedNodes) {
    scheduler.state.set_avoided_nodes(id, avoided_nodes);
    scheduler.cursor.generation += 1;
    scheduler.cursor.external_changes += 1;
    requeue::queue_up(scheduler, id);
}

/// Puts right whose pods have strayed.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    for (id, astray) in std::mem::take(&mut scheduler.retries.misplaced.told) {
        let Some(info) = scheduler.state.get(&id) else { continue };
        let Phase::Running(admission) = info.phase.clone() else { continue };
        // It is told again as long as it lasts.
        if scheduler.pauses(&id) || !info.workload.resumable {
            continue;
        }
        let Some(kept) = kept(scheduler, &admission, &astray) else { continue };
        if kept == admission {
            continue;
        }
        keep_off(scheduler, &id, &astray, now);
        let missing = admission.pods - kept.pods;
        match onward(scheduler, &id, &admission, kept) {
            Some((to, cause)) => {
                let avoided_nodes = scheduler.state.get(&id).and_then(|info| info.avoided_nodes.as_deref());
                let avoided_nodes = avoided_nodes.filter(|_| !astray.stuck.is_empty());
                let message = explain::astray(avoided_nodes, admission.pods, to.pods, missing);
                resize(
                    scheduler,
                    Resize { id: &id, from: admission, to, cause, preemptor: None, message },
                    plan,
                );
            }
            None => evict(scheduler, &id, None, EvictReason::NotPlaced, now, plan),
        }
    }
}

/// Has a workload keep off the nodes where its pods could not be started.
fn keep_off(scheduler: &mut Scheduler, id: &WorkloadId, astray: &MisplacedPods, now: Time) {
    if astray.stuck.is_empty() {
        return;
    }
    let before = scheduler.state.get(id).and_then(|info| info.avoided_nodes.as_deref()).cloned();
    let mut avoided_nodes = before.unwrap_or_default();
    avoided_nodes.nodes.extend(astray.stuck.keys().cloned());
    avoided_nodes.message.clone_from(&astray.message);
    let pause = backoff(FIRST_PAUSE, LONGEST_PAUSE, avoided_nodes.times);
    avoided_nodes.times += 1;
    scheduler.retries.misplaced.until.retain(|(_, other)| other != id);
    scheduler.retries.misplaced.until.insert((now.after(pause), id.clone()));
    set(scheduler, id, avoided_nodes);
}

/// What of an admission is as it should be: the pods that are somewhere, and the places of those that
/// can still get there. Nothing when there are more pods than it grants: some are about to end.
fn kept(scheduler: &Scheduler, admission: &Admission, astray: &MisplacedPods) -> Option<Admission> {
    let there: u32 = astray.there.values().sum();
    let mut left = admission.pods.checked_sub(there)?;
    let mut nodes = astray.there.clone();
    for (name, planned) in &admission.nodes {
        if scheduler.state.nodes.find(name).is_none_or(|node| scheduler.state.nodes.get(node).node.is_none())
        {
            continue;
        }
        let count = |of: &BTreeMap<Name, u32>| of.get(name).copied().unwrap_or(0);
        let open = planned.saturating_sub(count(&astray.there) + count(&astray.stuck)).min(left);
        if open > 0 {
            *nodes.entry(name.clone()).or_default() += open;
            left -= open;
        }
    }
    nodes.retain(|_, pods| *pods > 0);
    Some(Admission { pods: nodes.values().sum(), nodes, ..admission.clone() })
}

/// With which pods a workload can go on; nothing if it cannot.
fn onward(
    scheduler: &Scheduler,
    id: &WorkloadId,
    admission: &Admission,
    kept: Admission,
) -> Option<(Admission, ResizeCause)> {
    let info = scheduler.state.get(id)?;
    if kept.pods == admission.pods {
        return Some((kept, ResizeCause::Replaced));
    }
    let queue = scheduler.state.queue_of(info);
    let on_loss = queue.map_or_else(|_| OnPodLoss::default(), |queue| queue.on_pod_loss);
    if kept.pods == 0 || !info.workload.resizable || on_loss != OnPodLoss::Replace {
        return None;
    }
    match replaced(scheduler, id, admission, &kept) {
        Some(to) => Some((to, ResizeCause::Replaced)),
        None => (kept.pods >= info.least_pods()).then_some((kept, ResizeCause::Shrunk)),
    }
}
