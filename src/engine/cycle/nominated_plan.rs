//! Whether the plan of a nomination still holds: where its workload fits by it, whether quota permits that, and what older
//! nominations and other workloads leave it.

use crate::cycle::refusal;
use crate::placement::waiting::{WaitingWorkload, find_pool, fits_now, pool_names};
use crate::placement::{self, Capacity, Placement};
use crate::preemption::Take;
use crate::scheduler::nomination::{Nomination, Victim};
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::lending;
use crate::state::quotas::Hypothetical;
use crate::state::rules;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::NodeId;
use crate::types::vector::Vector;

/// The workload of a nomination as it waits in its pool, with the pods of the nomination.
pub fn waiting_for(state: &ClusterState, nomination: &Nomination) -> Option<WaitingWorkload> {
    let mut waiting = WaitingWorkload::of(state, &nomination.id)?.with_pods(nomination.pods);
    waiting.spared |= nomination.settled;
    Some(waiting.in_pool(state, nomination.pool).into_owned())
}

/// The capacity that victims which still run will free.
pub fn freed_by(state: &ClusterState, victims: &[&Victim]) -> Freed {
    let mut freed = Freed::new();
    for victim in victims {
        let Some(info) = state.get(victim.take.id()) else { continue };
        match &victim.take {
            Take::Whole(_) | Take::Move(..) => rules::free(&mut freed, info),
            Take::Shrink(_, pods) | Take::Shift(_, pods, _) => rules::free_pods(&mut freed, info, pods),
        }
    }
    freed
}

/// The nominated placement, if the workload can start there at once, or else another on the same nodes.
pub fn starts_as_planned(
    state: &ClusterState,
    waiting: &WaitingWorkload,
    nomination: &Nomination,
) -> Option<Placement> {
    let nodes: Vec<NodeId> = nomination.placement.keys().copied().collect();
    fits_now(state, waiting, nomination.pool, &nodes)?;
    as_planned(state, waiting, nomination, Capacity::Now)
}

/// The nominated placement, if it fits in this capacity, or else another on the same nodes. `None` if one of them does not
/// take its pods any more, for instance because it was cordoned.
pub fn as_planned(
    state: &ClusterState,
    waiting: &WaitingWorkload,
    nomination: &Nomination,
    capacity: Capacity<'_>,
) -> Option<Placement> {
    let planned = &nomination.placement;
    let all_take_them = state.nodes.fitting(nomination.pool, &waiting.shape, &waiting.need, |fitting| {
        planned.keys().all(|node| fitting.admits(*node))
    });
    if !all_take_them {
        return None;
    }
    let nodes: Vec<NodeId> = planned.keys().copied().collect();
    let other = capacity.place(state, waiting, nomination.pool, &nodes)?;
    let fits = |(node, pods): (&NodeId, &u32)| {
        placement::capacity_for(state, *node, &waiting.need, capacity) >= *pods
    };
    let same = !waiting.profile.is_constrained() && planned.iter().all(fits);
    Some(if same { planned.clone() } else { other })
}

/// Whether limits, guarantees, lending and its queue permit a workload to start once its remaining victims are gone. They may
/// have changed since it was planned, and so may the pools for which the workload asks.
pub fn is_permitted(
    state: &ClusterState,
    waiting: &WaitingWorkload,
    nomination: &Nomination,
    remaining: &[&Victim],
    freed: &Freed,
) -> bool {
    let Some(info) = nomination.info(state) else { return false };
    let (quotas, pool, team, total) = (&state.quotas, nomination.pool, waiting.team, &waiting.total);
    let mut without = Hypothetical::new();
    for info in remaining.iter().filter_map(|victim| victim.at_its_index(state)) {
        quotas.assume(&mut without, info.account(), &info.staying_total(), -1);
    }
    if quotas.over_limit(pool, team, total, &without).is_some() {
        return false;
    }
    // What moves has its place in its queue, and borrows no more than before.
    nomination.moves
        || pool_names(info).iter().any(|name| find_pool(state, name) == Some(pool))
            && refusal::barred(state, info).is_none()
            && (waiting.preemptible || quotas.holds_fixed(pool, team, total))
            && (quotas.own_guarantee_would_hold(pool, team, total, &without)
                || lending::allows(state, waiting.loan(pool), freed, &without))
}

/// Whether a preemptor that starts while its victims still end leaves older nominations what is free on these nodes and what comes
/// free there by others: otherwise an older preemptor would wait for the victims of a younger one (law 4).
pub fn leaves_to_older(
    state: &ClusterState,
    nomination: &Nomination,
    older: &[&Nomination],
    start: &Placement,
) -> bool {
    let is_victim =
        |info: &WorkloadInfo| nomination.victims.iter().any(|victim| *victim.take.id() == info.workload.id);
    start.iter().all(|(node, pods)| {
        let mut lacking = Vector::default();
        for (held, there) in older.iter().filter_map(|held| Some((held, held.placement.get(node)?))) {
            lacking.add(&held.need, i64::from(*there));
        }
        for (info, _) in state.occupants(*node).filter(|(info, _)| !is_victim(info)) {
            let ending = info.usage.terminating.get(node).copied().unwrap_or(0);
            lacking.add(&info.need, -i64::from(ending));
        }
        let free = state.nodes.get(*node).unheld().amounts();
        let fits = |(resource, asked): (usize, i64)| {
            let left = free.get(resource).saturating_sub(lacking.get(resource).max(0));
            left >= asked.saturating_mul(i64::from(*pods))
        };
        !older.iter().any(|held| held.placement.contains_key(node)) || nomination.need.nonzero().all(fits)
    })
}

/// Whether a preemptor, of which nothing is charged now, still fits with its victims once a workload has started.
pub fn goes_on_beside(
    state: &ClusterState,
    nomination: &Nomination,
    other: &WaitingWorkload,
    start: &Placement,
) -> bool {
    let Some(waiting) = waiting_for(state, nomination) else { return false };
    let mut freed = freed_by(state, &nomination.running_victims(state));
    rules::occupy(&mut freed, &other.need, &other.profile, start);
    let nodes = placement::eligible(state, &waiting.request(nomination.pool));
    Capacity::Settled(&freed).place(state, &waiting, nomination.pool, &nodes).is_some()
}
