//! A workload within guarantee starts at once on capacity that is free and held for borrowing preemptors until their victims have
//! ended (law 2). Each of these goes on where the rest of its plan lets it start, else it waits again.

use std::collections::BTreeSet;

use crate::cycle::admit::admit;
use crate::cycle::nominated_plan::goes_on_beside;
use crate::cycle::take_over::{may_take_over, own_guarantee_may_hold};
use crate::cycle::{nominate, reserve};
use crate::placement::waiting::{Attempt, fits_now};
use crate::placement::{self, Capacity, Placement};
use crate::preemption::Masked;
use crate::scheduler::Scheduler;
use crate::scheduler::nomination::Nomination;
use crate::scheduler::nominations::Broken;
use crate::scheduler::set_aside::Aside;
use crate::state::cluster::ClusterState;
use crate::state::workload::Phase;
use crate::types::ids::NodeId;
use crate::types::{Plan, WorkloadId};

/// The most nodes of which it is tried whether a start on one of them spares more preemptors.
const MOST_TRIED: usize = 16;

/// Starts the workload on what is free, if it fits there without the borrowing preemptors; false if it does not.
pub fn run(scheduler: &mut Scheduler, attempt: Attempt<'_>, masked: &[Masked], plan: &mut Plan) -> bool {
    let Attempt { waiting, pool, now, .. } = attempt;
    if !own_guarantee_may_hold(scheduler, attempt) {
        return false;
    }
    let places = scheduler.nominations.places(|nomination| {
        may_take_over(&scheduler.state, nomination, attempt)
            && stands_in_the_way(&scheduler.state, nomination, attempt)
    });
    if places.is_empty() {
        return false;
    }
    let preemptors = scheduler.without_nominations(places, |scheduler, aside| {
        let start = reserve::with_masked(scheduler, masked, |scheduler| {
            start_sparing(&scheduler.state, attempt, aside)
        })?;
        reserve::note_taken(scheduler, waiting, pool, &start);
        admit(scheduler, waiting, pool, start, now, plan);
        Some(aside.iter().map(|one| one.nomination.id.clone()).collect::<Vec<WorkloadId>>())
    });
    let Some(preemptors) = preemptors else { return false };
    // The latest preemptor yields first.
    for id in preemptors.iter().rev() {
        nominate::progress_of(scheduler, id, now, plan);
        let waits = scheduler.state.get(id).is_some_and(|info| info.phase == Phase::Pending);
        if waits
            && !scheduler.nominations.contains(id)
            && let Some(broken) = scheduler.nominations.broken.get_mut(id)
        {
            broken.why = Broken::TakenOver(waiting.id.clone());
        }
    }
    true
}

/// Whether a nomination holds capacity that is free now, or quota that the workload may need.
fn stands_in_the_way(state: &ClusterState, nomination: &Nomination, attempt: Attempt<'_>) -> bool {
    let root = |team| state.quotas.root_of(team);
    let fits = |node: NodeId, capacity| placement::capacity_for(state, node, &attempt.waiting.need, capacity);
    root(nomination.team) == root(attempt.waiting.team)
        || nomination.placement.keys().any(|node| fits(*node, Capacity::Unheld) > fits(*node, Capacity::Now))
}

/// Where the workload can start now without these nominations, so that as many of them as possible go on beside it.
fn start_sparing(state: &ClusterState, attempt: Attempt<'_>, aside: &[Aside]) -> Option<Placement> {
    let Attempt { waiting, pool, nodes, .. } = attempt;
    if !waiting.within_guarantee(state, pool) {
        return None;
    }
    let goes_on = |nomination: &Nomination, start: &Placement| {
        !nomination.placement.keys().any(|node| start.contains_key(node))
            || goes_on_beside(state, nomination, waiting, start)
    };
    let spared = |start: &Placement| aside.iter().filter(|one| goes_on(&one.nomination, start)).count();
    let start = fits_now(state, waiting, pool, nodes)?;
    let (mut most, mut best) = (spared(&start), start);
    let held = aside.iter().flat_map(|one| one.nomination.placement.keys().copied());
    let held: BTreeSet<NodeId> = held.filter(|node| nodes.contains(node)).collect();
    for node in held.into_iter().take(MOST_TRIED) {
        if most == aside.len() {
            break;
        }
        let Some(start) = fits_now(state, waiting, pool, &[node]) else { continue };
        let count = spared(&start);
        if count > most {
            (most, best) = (count, start);
        }
    }
    Some(best)
}
