//! Background defragmentation: within a budget, what runs is moved so that what is free lies together.
//!
//! Off unless the owner of the cluster gives a budget ([`Defragmentation`]). One workload moves at a time, and
//! only while nobody makes room for anybody. Who may be evicted may be moved: of those, one that loses no more
//! than the budget allows, is past its minimum run time, and finds another place that disturbs no reservation.
//!
//! A move pays if it makes the sum of the squares of what is free on each node greater: as much is free as
//! before, in larger pieces. What every move makes greater can be made so only so often, so moves come to an
//! end while nothing else happens (Law 8).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::cycle::evict::{evict, hold_for_mover};
use crate::cycle::reserve;
use crate::placement::waiting::WaitingWorkload;
use crate::placement::{self, Capacity, Placement};
use crate::scheduler::{DefragmentationState, Scheduler, Versions};
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::rules;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{NodeId, PoolId};
use crate::types::vector::Vector;
use crate::types::{Defragmentation, EvictReason, Name, Plan, Time, WorkloadId};

/// So many workloads are looked at before a move is chosen, those on the emptiest nodes first.
const LOOKED_AT: usize = 64;

fn snapshot(scheduler: &Scheduler) -> Versions {
    (scheduler.state.nodes.version(), scheduler.cursor.external_changes)
}

/// When it is time to look for a move.
#[must_use]
pub fn next(scheduler: &Scheduler) -> Option<Time> {
    scheduler.settings.defragmentation.filter(|_| is_at_rest(scheduler))?;
    let due = scheduler.defragmentation.due?;
    match scheduler.defragmentation.quiet {
        Some((seen, later)) if seen == snapshot(scheduler) => later.map(|later| later.max(due)),
        _ => Some(due),
    }
}

/// Decides on a move, if the budget allows one and one pays.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    let Some(budget) = scheduler.settings.defragmentation else { return };
    if scheduler.defragmentation.due.is_none() {
        // Whether another moved something just before is not known.
        scheduler.defragmentation.due = Some(now.after(budget.every));
    }
    if next(scheduler).is_none_or(|next| next > now) {
        return;
    }
    let Look { best, later } = look(scheduler, budget, now);
    let Some(best) = best else {
        scheduler.defragmentation.quiet = Some((snapshot(scheduler), later));
        return;
    };
    scheduler.defragmentation = DefragmentationState { due: Some(now.after(budget.every)), quiet: None };
    let Some(info) = scheduler.state.get(&best.id) else { return };
    let Phase::Running(admission) = info.phase.clone() else { return };
    evict(scheduler, &best.id, None, EvictReason::Moved, now, plan);
    hold_for_mover(scheduler, &best.id, &admission, best.to);
}

/// Whether nobody leaves for anybody, and everybody has been looked at who might start.
fn is_at_rest(scheduler: &Scheduler) -> bool {
    scheduler.nominations.all.is_empty()
        && !scheduler.has_more()
        && scheduler.state.stopping().next().is_none()
}

/// What a look at those who run brought to light.
struct Look {
    best: Option<Move>,
    /// When somebody has run for long enough to be moved who has not now.
    later: Option<Time>,
}

/// A move that pays.
struct Move {
    id: WorkloadId,
    to: Placement,
}

fn look(scheduler: &Scheduler, budget: Defragmentation, now: Time) -> Look {
    let state = &scheduler.state;
    let reserved: BTreeSet<Name> =
        reserve::views(scheduler).into_iter().flat_map(|reservation| reservation.nodes.into_keys()).collect();
    let mut emptiest: Vec<(Reverse<i64>, NodeId)> = state
        .nodes
        .alive()
        .filter(|(_, node, _)| node.open() && !node.holds.is_empty())
        .map(|(index, node, _)| (Reverse(rules::devices(state, node.settled().amounts())), index))
        .filter(|(Reverse(free), _)| *free > 0)
        .collect();
    emptiest.sort_unstable();
    let (mut seen, mut later): (BTreeSet<&WorkloadId>, Option<Time>) = (BTreeSet::new(), None);
    let mut best: Option<(Reverse<i128>, i128, Move)> = None;
    let occupants = emptiest.iter().flat_map(|(_, node)| state.occupants(*node));
    for (info, _) in occupants {
        let id = &info.workload.id;
        if seen.len() == LOOKED_AT {
            break;
        }
        if !movable(scheduler, info) || !seen.insert(id) {
            continue;
        }
        let Phase::Running(admission) = &info.phase else { continue };
        let min_runtime_end = rules::min_runtime_end(state, info, admission.at);
        if min_runtime_end > now {
            later = [later, Some(min_runtime_end)].into_iter().flatten().min();
            continue;
        }
        if rules::unsaved(info, admission.at, now) > budget.most_lost {
            continue;
        }
        let Some((gain, to)) = elsewhere(state, info, &reserved) else { continue };
        let key = (Reverse(gain), rules::work_lost(state, info, admission.at, now), id);
        if best.as_ref().is_none_or(|(gain, lost, best)| key < (*gain, *lost, &best.id)) {
            best = Some((key.0, key.1, Move { id: id.clone(), to }));
        }
    }
    Look { best: best.map(|(_, _, best)| best), later }
}

/// Whether somebody may be moved at all.
fn movable(scheduler: &Scheduler, info: &WorkloadInfo) -> bool {
    matches!(info.phase, Phase::Running(_))
        && info.workload.resumable
        && scheduler.state.preemptible(info)
        // One that has grown would have to shrink.
        && info.usage.pods == info.least_pods()
        // One that accepted less asks for more again.
        && !info.is_reduced()
        && !scheduler.pauses(&info.workload.id)
}

/// Where a workload would lie better, and how much better that is.
fn elsewhere(
    state: &ClusterState,
    info: &WorkloadInfo,
    reserved: &BTreeSet<Name>,
) -> Option<(i128, Placement)> {
    let pool: PoolId = info.usage.pool;
    let waiting = WaitingWorkload::of(state, &info.workload.id)?;
    let waiting = waiting.in_pool(state, pool);
    let request = waiting.request(pool);
    let nodes = placement::eligible(state, &request);
    let mut freed = Freed::new();
    rules::free(&mut freed, info);
    let to = placement::place(state, &nodes, &request, Capacity::Settled(&freed))?;
    let there = |node: &NodeId| info.usage.nodes.get(node).copied().unwrap_or(0);
    if to.iter().any(|(node, pods)| *pods > there(node) && reserved.contains(state.nodes.name(*node))) {
        return None;
    }
    let dirty: BTreeSet<NodeId> = info.usage.nodes.keys().chain(to.keys()).copied().collect();
    let square = |amounts: &Vector| i128::from(rules::devices(state, amounts).max(0)).pow(2);
    let gain = dirty.into_iter().map(|node| {
        let before = state.nodes.get(node).settled().amounts().clone();
        let less = i64::from(there(&node)) - i64::from(to.get(&node).copied().unwrap_or(0));
        square(&before.plus(&info.need, less)) - square(&before)
    });
    let gain: i128 = gain.sum();
    (gain > 0).then_some((gain, to))
}
