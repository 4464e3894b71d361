//! Growth: capacity that nobody who waits can use goes to elastic workloads that run with fewer pods
//! than they want.
//!
//! Pods are given out one at a time, in the order in which workloads start: owed before surplus, then
//! the smallest share, then the older. What is grown is given up again before anybody is evicted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::cycle::evict::{Resize, resize};
use crate::cycle::reserve;
use crate::placement::waiting::Attempt;
use crate::placement::waiting::{WaitingWorkload, fits_now};
use crate::scheduler::Scheduler;
use crate::state::workload::Phase;
use crate::types::ids::PoolId;
use crate::types::{Action, Admission, Plan, ResizeCause, Time, WorkloadId};
use crate::{explain, placement};

/// Lets those grow for whom there is room, after everybody who waits had a chance to start.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    if scheduler.cursor.grown == scheduler.cursor.generation && plan.actions.is_empty()
        || scheduler.state.growable().next().is_none()
    {
        return;
    }
    let admitted: BTreeMap<WorkloadId, usize> = plan
        .actions
        .iter()
        .enumerate()
        .filter(|(_, action)| matches!(action, Action::Admit { .. }))
        .map(|(position, action)| (action.workload().clone(), position))
        .collect();
    // Whoever starts by a decision that is already being written grows once it runs.
    let mut open: BTreeMap<WorkloadId, Admission> = BTreeMap::new();
    for id in scheduler.state.growable() {
        match scheduler.state.get(id).map(|info| &info.phase) {
            Some(Phase::Running(admission)) if !scheduler.pauses(id) => {
                open.insert(id.clone(), admission.clone());
            }
            Some(Phase::Starting(admission)) if admitted.contains_key(id) => {
                open.insert(id.clone(), admission.clone());
            }
            _ => {}
        }
    }
    let before = open.clone();
    let mut grown: BTreeSet<WorkloadId> = BTreeSet::new();
    while let Some(id) = next(scheduler, &open) {
        let Some(admission) = open.get_mut(&id) else { break };
        if !grow(scheduler, &id, admission, now) {
            open.remove(&id);
            continue;
        }
        grown.insert(id.clone());
        let wanted = scheduler.state.get(&id).map_or(0, |info| info.workload.pods);
        if admission.pods >= wanted {
            open.remove(&id);
        }
    }
    for id in grown {
        let (Some(info), Some(from)) = (scheduler.state.get(&id), before.get(&id)) else { continue };
        let Some(to) = info.phase.admission().cloned() else { continue };
        match admitted.get(&id).and_then(|position| plan.actions.get_mut(*position)) {
            Some(Action::Admit { admission, .. }) => *admission = to,
            _ => {
                let message = explain::grown(info, from.pods, to.pods);
                resize(
                    scheduler,
                    Resize {
                        id: &id,
                        from: from.clone(),
                        to,
                        cause: ResizeCause::Grown,
                        preemptor: None,
                        message,
                    },
                    plan,
                );
            }
        }
    }
    scheduler.cursor.grown = scheduler.cursor.generation;
}

/// Whose turn it is to have one more pod.
fn next(scheduler: &Scheduler, open: &BTreeMap<WorkloadId, Admission>) -> Option<WorkloadId> {
    let state = &scheduler.state;
    let key = |id: &WorkloadId, admission: &Admission| {
        let info = state.get(id)?;
        let pool = state.quotas.pool(&admission.pool)?;
        let within_guarantee =
            WaitingWorkload::of(state, id)?.and_more(state, admission, 1).within_guarantee(state, pool);
        let share = state.quotas.share(pool, info.team);
        Some((Reverse(within_guarantee), share, info.workload.submitted, id.clone()))
    };
    open.iter().filter_map(|(id, admission)| key(id, admission)).min().map(|(_, _, _, id)| id)
}

/// Gives one pod more; false if there is no room for it.
fn grow(scheduler: &mut Scheduler, id: &WorkloadId, admission: &mut Admission, now: Time) -> bool {
    let Some((waiting, pool)) = candidate_of(scheduler, id, admission) else { return false };
    let nodes = placement::eligible(&scheduler.state, &waiting.request(pool));
    let Some(found) = fits_now(&scheduler.state, &waiting, pool, &nodes, true) else { return false };
    let Ok(found) =
        reserve::admissible(scheduler, Attempt { waiting: &waiting, pool, nodes: &nodes, now }, found)
    else {
        return false;
    };
    let from = admission.clone();
    for (node, pods) in found {
        *admission.nodes.entry(scheduler.state.nodes.name(node).clone()).or_default() += pods;
        admission.pods += pods;
    }
    let phase = match scheduler.state.get(id).map(|info| info.phase.clone()) {
        Some(Phase::Starting(_)) => Phase::Starting(admission.clone()),
        Some(Phase::Resizing { from, .. }) => Phase::Resizing { from, to: admission.clone() },
        _ => Phase::Resizing { from, to: admission.clone() },
    };
    scheduler.state.set_phase(id, phase);
    true
}

/// The workload as one that asks for one pod beside those it has; `None` at its queue's limit.
fn candidate_of(
    scheduler: &Scheduler,
    id: &WorkloadId,
    admission: &Admission,
) -> Option<(WaitingWorkload, PoolId)> {
    let state = &scheduler.state;
    let info = state.get(id)?;
    let queue = state.queue_of(info).ok()?;
    let waiting = WaitingWorkload::of(state, id)?.and_more(state, admission, 1);
    let over = state.quotas.over_queue_limit(info.team, queue, &waiting.total, &state.resources);
    if over.is_some() {
        return None;
    }
    let pool = state.quotas.pool(&admission.pool)?;
    Some((waiting.in_pool(state, pool).into_owned(), pool))
}
