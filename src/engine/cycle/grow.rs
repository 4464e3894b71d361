//! Growth: capacity that no waiting workload can use goes to elastic workloads that run with fewer pods than they
//! want.
//!
//! Pods are added one at a time, in the order of admissions. Within a team: priority, the order that its managers give, then the
//! older. Between teams: within guarantee before borrowing, then the smallest share, then the older. Added pods are given up again
//! before any workload is evicted, yet not for a workload of their own team
//! that has no higher priority. So an evicted or waiting workload of the team comes first (law 9): while its pods end, or until it
//! has waited long enough for a reservation, what runs of its team does not grow. A reservation is left whole then.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::cycle::awaited::Awaited;
use crate::cycle::evict::{Resize, resize};
use crate::cycle::refusal::{self, Funded};
use crate::cycle::reserve;
use crate::placement::waiting::{Attempt, WaitingWorkload, may_start_now};
use crate::queue::rank::Rank;
use crate::scheduler::Scheduler;
use crate::state::cluster::ClusterState;
use crate::state::workload::Phase;
use crate::types::ids::{PoolId, TeamId};
use crate::types::{Action, Admission, Plan, ResizeCause, Time, WorkloadId};
use crate::{explain, placement};

/// Grows elastic workloads as far as there is capacity, after every waiting workload had a chance to start.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    scheduler.cursor.held_back = None;
    if scheduler.cursor.has_grown() && plan.actions.is_empty() || scheduler.state.growable().next().is_none()
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
    let (growing, held_back) = growing(scheduler, &admitted, now);
    for id in add_pods(scheduler, growing.clone(), now) {
        if let Some(from) = growing.get(&id) {
            write_growth(scheduler, &id, from, admitted.get(&id).copied(), plan);
        }
    }
    // What holds growth back may be gone without any change of capacity.
    if held_back.is_none() {
        scheduler.cursor.note_grown();
    }
    scheduler.cursor.held_back = held_back;
}

/// Adds pods to these workloads one at a time while there is capacity; returns those that got any.
fn add_pods(
    scheduler: &mut Scheduler,
    mut open: BTreeMap<WorkloadId, Admission>,
    now: Time,
) -> BTreeSet<WorkloadId> {
    let mut grown: BTreeSet<WorkloadId> = BTreeSet::new();
    while let Some(id) = next(&scheduler.state, &open) {
        let Some(admission) = open.get_mut(&id) else { break };
        if !add_pod(scheduler, &id, admission, now) {
            open.remove(&id);
            continue;
        }
        grown.insert(id.clone());
        let wanted = scheduler.state.get(&id).map_or(0, |info| info.workload.pods);
        if admission.pods >= wanted {
            open.remove(&id);
        }
    }
    grown
}

/// Writes the growth of a workload into the plan: as a part of its admission, where the plan has that at a `position`, or as a
/// resize of what runs.
fn write_growth(
    scheduler: &mut Scheduler,
    id: &WorkloadId,
    from: &Admission,
    position: Option<usize>,
    plan: &mut Plan,
) {
    let Some(info) = scheduler.state.get(id) else { return };
    let Some(to) = info.phase.admission().cloned() else { return };
    match position.and_then(|position| plan.actions.get_mut(position)) {
        Some(Action::Admit { admission, message, .. }) => {
            message.push(' ');
            message.push_str(&explain::starts_larger(info, from.pods, &to));
            *admission = to;
        }
        _ => {
            let message = explain::grown(info, from.pods, to.pods);
            let (from, cause) = (from.clone(), ResizeCause::Grown);
            resize(scheduler, Resize { id, from, to, cause, preemptor: None, message }, plan);
        }
    }
}

/// The elastic workloads that may grow now, with their admissions: those that run, and those `admitted` in this plan.
/// A workload with an admission that is still being written grows once it runs. Also the next time at which a waiting workload
/// does not hold back the growth of one that runs any more.
fn growing(
    scheduler: &Scheduler,
    admitted: &BTreeMap<WorkloadId, usize>,
    now: Time,
) -> (BTreeMap<WorkloadId, Admission>, Option<Time>) {
    let returning: BTreeSet<TeamId> = scheduler.state.stopping().map(|info| info.team).collect();
    let may_grow = |id: &WorkloadId| {
        let info = scheduler.state.get(id).filter(|info| !returning.contains(&info.team))?;
        if scheduler.state.is_paused(info) {
            return None;
        }
        match &info.phase {
            Phase::Running(admission) if !scheduler.pauses(id) => Some((info, admission.clone(), true)),
            // It starts with as many pods as fit.
            Phase::Starting(admission) if admitted.contains_key(id) => Some((info, admission.clone(), false)),
            _ => None,
        }
    };
    let (mut growing, mut held_back) = (BTreeMap::new(), None);
    let mut awaited = Awaited::new(scheduler, now);
    for (info, admission, runs) in scheduler.state.growable().filter_map(may_grow) {
        match runs.then(|| awaited.until(info)).flatten() {
            Some(until) => held_back = Some(held_back.map_or(until, |at: Time| at.min(until))),
            None => _ = growing.insert(info.workload.id.clone(), admission),
        }
    }
    (growing, held_back)
}

/// The workload that gets the next pod: the first of its team in its pool, of the team that comes first there (law 9).
fn next(state: &ClusterState, open: &BTreeMap<WorkloadId, Admission>) -> Option<WorkloadId> {
    let mut firsts: BTreeMap<(PoolId, TeamId), (Rank, &Admission)> = BTreeMap::new();
    for (id, admission) in open {
        let (Some(info), Some(pool)) = (state.get(id), state.quotas.pool(&admission.pool)) else { continue };
        let rank = Rank::new(state.priority_of(info), &info.workload, info.index);
        let first = firsts.entry((pool, info.team)).or_insert_with(|| (rank.clone(), admission));
        if rank < first.0 {
            *first = (rank, admission);
        }
    }
    let key = |((pool, team), (rank, admission)): ((PoolId, TeamId), (Rank, &Admission))| {
        let one_more = WaitingWorkload::of(state, rank.id())?.and_more(state, admission, 1);
        let within_guarantee = one_more.within_guarantee(state, pool);
        let share = state.quotas.share(pool, team);
        Some((Reverse(within_guarantee), share, rank.submitted(), rank.id().clone()))
    };
    firsts.into_iter().filter_map(key).min().map(|(.., id)| id)
}

/// Adds one pod to a workload; false if there is no capacity for it.
fn add_pod(scheduler: &mut Scheduler, id: &WorkloadId, admission: &mut Admission, now: Time) -> bool {
    let Some((waiting, pool)) = one_more(&scheduler.state, id, admission) else { return false };
    let nodes = placement::eligible(&scheduler.state, &waiting.request(pool));
    let Some(placement) = may_start_now(&scheduler.state, &waiting, pool, &nodes) else { return false };
    let attempt = Attempt { waiting: &waiting, pool, nodes: &nodes, now };
    let Ok(beside) = reserve::admissible(scheduler, attempt, placement) else { return false };
    let placement = reserve::settle(scheduler, attempt, beside);
    let from = admission.clone();
    admission.borrowed |= waiting.preemptible && !waiting.within_guarantee(&scheduler.state, pool);
    scheduler.state.nodes.add_pods(&placement, admission);
    let to = admission.clone();
    let phase = match scheduler.state.get(id).map(|info| info.phase.clone()) {
        Some(Phase::Starting(_)) => Phase::Starting(to),
        // It goes on from the admission before its first added pod.
        Some(Phase::Resizing { from, .. }) => Phase::Resizing { from, to },
        _ => Phase::Resizing { from, to },
    };
    scheduler.state.set_phase(id, phase);
    true
}

/// A running workload as one that asks for one pod more, with its pool; `None` at its queue's limit, or beyond a budget.
fn one_more(
    state: &ClusterState,
    id: &WorkloadId,
    admission: &Admission,
) -> Option<(WaitingWorkload, PoolId)> {
    let info = state.get(id)?;
    let queue = state.queue_of(info).ok()?;
    let waiting = WaitingWorkload::of(state, id)?.and_more(state, admission, 1);
    let over = state.quotas.over_queue_limit(info.team, queue, &waiting.total, &state.resources);
    if over.is_some() {
        return None;
    }
    let pool = state.quotas.pool(&admission.pool)?;
    // Beyond a budget grows only what no guarantee protects.
    match refusal::funded(state, waiting.in_pool(state, pool), pool) {
        Funded::Fully(waiting) => Some((waiting.into_owned(), pool)),
        Funded::IdleOnly(waiting, _) => admission.unfunded.then(|| (waiting.into_owned(), pool)),
        Funded::Not(_) => None,
    }
}
