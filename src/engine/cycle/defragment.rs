//! Background defragmentation: running workloads are moved within a budget, so that free capacity lies in larger
//! pieces.
//!
//! It is off unless the options set a budget ([`Defragmentation`]). One workload moves at a time, and only while no
//! preemption is under way. A workload may be moved if it may be evicted, loses no more than the budget allows, is
//! past its minimum run time, and fits on other nodes without disturbing a reservation.
//!
//! A move pays if it raises the sum of the squares of the free devices of each node: as many are free as before, in
//! larger pieces. The sum is bounded, so moves end while nothing else changes (law 8).

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::cycle::evict::{evict, nominate_for_move};
use crate::cycle::reserve;
use crate::placement::waiting::WaitingWorkload;
use crate::placement::{self, Capacity, Placement};
use crate::scheduler::{DefragmentationState, Scheduler, Versions};
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::rules;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::NodeId;
use crate::types::vector::Vector;
use crate::types::{Defragmentation, EvictReason, Name, Plan, Time, WorkloadId};

/// The most workloads considered for one move, those on the nodes with the most free devices first.
const MAX_CONSIDERED: usize = 64;

/// The earliest time to search for a move.
#[must_use]
pub fn next(scheduler: &Scheduler) -> Option<Time> {
    scheduler.settings.defragmentation.filter(|_| is_at_rest(scheduler))?;
    let due = scheduler.defragmentation.due?;
    match scheduler.defragmentation.quiet {
        Some((seen, later)) if seen == versions(scheduler) => later.map(|later| later.max(due)),
        _ => Some(due),
    }
}

/// Moves one workload, if the budget allows a move and one pays.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    let Some(budget) = scheduler.settings.defragmentation else { return };
    if scheduler.defragmentation.due.is_none() {
        // Another engine may have moved a workload just before.
        scheduler.defragmentation.due = Some(now.after(budget.every));
    }
    if next(scheduler).is_none_or(|next| next > now) {
        return;
    }
    let Found { best, later } = search(scheduler, budget, now);
    let Some(Move { id, to }) = best else {
        scheduler.defragmentation.quiet = Some((versions(scheduler), later));
        return;
    };
    scheduler.defragmentation = DefragmentationState { due: Some(now.after(budget.every)), quiet: None };
    let Some(info) = scheduler.state.get(&id) else { return };
    let Phase::Running(admission) = info.phase.clone() else { return };
    evict(scheduler, &id, None, EvictReason::Moved, now, plan);
    nominate_for_move(scheduler, &id, &admission, to);
}

/// The present versions: a search is repeated only after they change.
fn versions(scheduler: &Scheduler) -> Versions {
    (scheduler.state.nodes.version(), scheduler.cursor.external_changes())
}

/// Whether no capacity is nominated or coming free, and every workload that may start was attempted.
fn is_at_rest(scheduler: &Scheduler) -> bool {
    scheduler.nominations.is_empty() && !scheduler.has_more() && scheduler.state.stopping().next().is_none()
}

/// The result of a search for a move.
struct Found {
    best: Option<Move>,
    /// The earliest time at which a workload that is too young to be moved reaches its minimum run time.
    later: Option<Time>,
}

/// A workload and the nodes to which it moves.
struct Move {
    id: WorkloadId,
    to: Placement,
}

/// Searches the move with the largest gain, and among equals the one that loses the least work.
fn search(scheduler: &Scheduler, budget: Defragmentation, now: Time) -> Found {
    let state = &scheduler.state;
    let reserved: BTreeSet<Name> =
        reserve::views(scheduler).into_iter().flat_map(|reservation| reservation.nodes.into_keys()).collect();
    let emptiest = emptiest_nodes(state);
    let (mut seen, mut later): (BTreeSet<&WorkloadId>, Option<Time>) = (BTreeSet::new(), None);
    let mut best: Option<(Reverse<i128>, i128, Move)> = None;
    for (info, _) in emptiest.iter().flat_map(|node| state.occupants(*node)) {
        let id = &info.workload.id;
        if seen.len() == MAX_CONSIDERED {
            break;
        }
        if !movable(scheduler, info) || !seen.insert(id) {
            continue;
        }
        let Phase::Running(admission) = &info.phase else { continue };
        let old_enough = rules::min_runtime_end(state, info, admission.at);
        if old_enough > now {
            later = [later, Some(old_enough)].into_iter().flatten().min();
            continue;
        }
        if rules::unsaved(info, admission.at, now) > budget.most_lost {
            continue;
        }
        let Some((gain, to)) = better_placement(state, info, &reserved) else { continue };
        let key = (
            Reverse(gain),
            rules::eviction_cost(state, info, info.usage.staying_pods(), admission.at, now),
            id,
        );
        if best.as_ref().is_none_or(|(gain, lost, best)| key < (*gain, *lost, &best.id)) {
            best = Some((key.0, key.1, Move { id: id.clone(), to }));
        }
    }
    Found { best: best.map(|(_, _, best)| best), later }
}

/// The nodes that run pods and have free devices, those with the most free devices first.
fn emptiest_nodes(state: &ClusterState) -> Vec<NodeId> {
    let mut nodes: Vec<(Reverse<i64>, NodeId)> = state
        .nodes
        .alive()
        .filter(|(_, node, _)| node.open() && !node.holds.is_empty())
        .map(|(index, node, _)| (Reverse(rules::devices(state, node.settled().amounts())), index))
        .filter(|(Reverse(free), _)| *free > 0)
        .collect();
    nodes.sort_unstable();
    nodes.into_iter().map(|(_, node)| node).collect()
}

/// Whether a workload may be moved at all.
fn movable(scheduler: &Scheduler, info: &WorkloadInfo) -> bool {
    matches!(info.phase, Phase::Running(_))
        && info.workload.resumable
        && scheduler.state.preemptible(info)
        && !scheduler.state.is_kept_back(info)
        // A workload that has grown would have to shrink.
        && info.usage.pods == info.least_pods()
        // A workload at a smaller size asks for its full size again.
        && !info.is_reduced()
        && !scheduler.pauses(&info.workload.id)
}

/// Other nodes for a workload, with the gain of the move there; `None` if no move gains.
fn better_placement(
    state: &ClusterState,
    info: &WorkloadInfo,
    reserved: &BTreeSet<Name>,
) -> Option<(i128, Placement)> {
    let pool = info.usage.pool;
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
    let changed: BTreeSet<NodeId> = info.usage.nodes.keys().chain(to.keys()).copied().collect();
    let square = |amounts: &Vector| i128::from(rules::devices(state, amounts).max(0)).pow(2);
    let gain = changed.into_iter().map(|node| {
        let before = state.nodes.get(node).settled().amounts().clone();
        let freed = i64::from(there(&node)) - i64::from(to.get(&node).copied().unwrap_or(0));
        square(&before.plus(&info.need, freed)) - square(&before)
    });
    let gain: i128 = gain.sum();
    (gain > 0).then_some((gain, to))
}
