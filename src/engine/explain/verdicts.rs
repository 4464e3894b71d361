//! Sentences of verdicts: why a workload waits or where it runs.

use std::time::Duration;

use crate::explain::names::{asked, label, named, quantity, usage};
use crate::placement::{self, Capacity, Placement, Request};
use crate::prediction::timeline::Slot;
use crate::scheduler::reservations::Reservation;
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::rules;
use crate::state::workload::WorkloadInfo;
use crate::types::amount::Amount;
use crate::types::ids::{NodeId, PoolId, TeamId};
use crate::types::vector::Vector;
use crate::types::{FailReason, Name, Queue, Reason, State, Verdict, WorkloadId};

pub fn pending(reason: Reason, message: String) -> Verdict {
    Verdict { state: State::Pending, reason, message }
}

/// It could start, but another has its turn.
pub fn reserved(state: &ClusterState, reservation: &Reservation, slot: &Slot) -> Verdict {
    let message = format!(
        "could start, but that would delay {}, for which room is reserved on {}",
        label(state, &reservation.owner),
        expected(state, reservation, slot),
    );
    pending(Reason::Reserved, message)
}

/// Its team's guarantee holds it, but another of that team has its turn, and needs what is left of that.
pub fn crowding(state: &ClusterState, reservation: &Reservation, slot: &Slot) -> Verdict {
    let message = format!(
        "what its team is guaranteed is left to {}, for which room is reserved on {}",
        label(state, &reservation.owner),
        expected(state, reservation, slot),
    );
    pending(Reason::Reserved, message)
}

/// The nodes of a reservation, and when its holder is expected to start.
pub fn expected(state: &ClusterState, reservation: &Reservation, slot: &Slot) -> String {
    let nodes: Vec<String> = slot.placement.keys().map(|node| state.nodes.name(*node).to_string()).collect();
    let nodes = nodes.join(", ");
    match slot.at {
        Some(at) => {
            format!(
                "{nodes} and which is expected to start within {} s",
                at.since(reservation.decided).as_secs()
            )
        }
        None => format!("{nodes} until enough of those there have ended, which cannot be predicted"),
    }
}

/// Why a workload is ended as failed.
pub fn failed(queue: &Queue, reason: FailReason, after: Duration) -> String {
    let (verb, most) = match reason {
        FailReason::MaxWait => ("waited", queue.max_wait),
        FailReason::MaxRuntime => ("ran", queue.max_runtime),
    };
    let most = most.unwrap_or_default().as_secs();
    format!("{verb} for {} s; queue {} allows {most} s", after.as_secs(), queue.name)
}

/// The team or queue is not known.
pub fn unknown(info: &WorkloadInfo, reason: Reason) -> Verdict {
    let workload = &info.workload;
    let message = match (&workload.queue, reason) {
        (Some(queue), Reason::UnknownQueue) => format!("team {} has no queue {queue}", workload.team),
        _ => format!("team {} does not exist", workload.team),
    };
    pending(reason, message)
}

/// None of the pools asked for exists.
pub fn no_pool(pools: &[Name]) -> Verdict {
    pending(Reason::NoNodeFits, format!("no node is in pool {}", pools.join(", ")))
}

/// The queue's limit is reached.
pub fn queue_limit(state: &ClusterState, queue: &Queue, index: usize) -> Verdict {
    let name = state.resources.name(index);
    let cap = queue.limit.get(name).copied().unwrap_or_default().quantity(name);
    pending(Reason::QueueLimit, format!("queue {} would exceed its limit of {cap} {name}", queue.name))
}

/// A team's limit is reached.
pub fn team_limit(state: &ClusterState, team: TeamId, pool: PoolId, index: usize, total: &Vector) -> Verdict {
    let quota_usage = state.quotas.quota_usage(pool, team);
    let cap = quota_usage.limit.get(&index).copied().unwrap_or(0);
    pending(
        Reason::TeamLimit,
        format!(
            "team {} holds {} of its limit of {} in pool {} and this asks for {} more",
            state.quotas.team(team).name,
            quantity(state, index, quota_usage.held.get(index)),
            named(state, index, cap),
            state.quotas.pool_name(pool),
            quantity(state, index, total.get(index)),
        ),
    )
}

/// A workload that may not be evicted does not fit the guarantee.
pub fn must_fit_guarantee(state: &ClusterState, team: TeamId, pool: PoolId, total: &Vector) -> Verdict {
    pending(
        Reason::NotPreemptibleOverGuarantee,
        format!(
            "may not be evicted, so its {} must fit the guarantee of team {} in pool {}: {}",
            asked(state, total),
            state.quotas.team(team).name,
            state.quotas.pool_name(pool),
            usage(state, team, pool, total),
        ),
    )
}

/// Other teams do not lend that much.
pub fn lending_refusal(state: &ClusterState, team: TeamId, pool: PoolId, total: &Vector) -> Option<Verdict> {
    (!rules::lending_allows(state, team, pool, total, &Freed::new())).then(|| {
        let kept = state.quotas.reserve_after(pool, team, total);
        pending(
            Reason::LendingLimit,
            format!(
                "would borrow {}, but {} of pool {} stays free for teams that do not lend it",
                asked(state, total),
                asked(state, &kept),
                state.quotas.pool_name(pool),
            ),
        )
    })
}

/// No node could ever hold the pods.
pub fn no_node(state: &ClusterState, nodes: &[NodeId], request: &Request<'_>) -> Option<Verdict> {
    let (pool, pods) = (state.quotas.pool_name(request.pool), request.pods);
    let most = placement::most(state, nodes, request, Capacity::Empty);
    if most >= pods {
        return None;
    }
    let message = if nodes.is_empty() {
        format!("no open node of pool {pool} matches its node selector, affinity and tolerations")
    } else if most == 0 && placement::most(state, nodes, &request.anywhere(), Capacity::Empty) == 0 {
        format!(
            "none of the {} nodes of pool {pool} that match is large enough for {}",
            nodes.len(),
            asked(state, request.need)
        )
    } else if let Some(label) = &request.topology.required {
        format!(
            "the matching nodes of pool {pool} with one value of {label} could hold {most} of its {pods} pods even if they were empty"
        )
    } else {
        format!(
            "the matching nodes of pool {pool} could hold {most} of its {pods} pods even if they were empty"
        )
    };
    Some(pending(Reason::NoNodeFits, message))
}

/// The nodes have no room now.
pub fn no_room(state: &ClusterState, nodes: &[NodeId], request: &Request<'_>) -> Verdict {
    let (need, pods) = (request.need, request.pods);
    let all = state.nodes.free_in(request.pool).filter(|(_, count)| *count == nodes.len());
    let sum = all.map_or_else(|| free_on(state, nodes), |(free, _)| free.clone());
    let pool = state.quotas.pool_name(request.pool);
    let total = Vector::default().plus(need, i64::from(pods));
    if placement::most(state, nodes, request, Capacity::Unheld) >= pods {
        let message = format!("the room in pool {pool} is held for workloads that others are leaving for");
        return pending(Reason::RoomHeld, message);
    }
    let free: Vector = total.nonzero().fold(Vector::default(), |mut free, (index, _)| {
        free.set(index, sum.get(index));
        free
    });
    if sum.fits(&total) >= 1 {
        let now = placement::most(state, nodes, request, Capacity::Now);
        let within = match &request.topology.required {
            Some(label) => format!(" within one value of {label}"),
            None => String::new(),
        };
        let message = format!(
            "{} is free in pool {pool}, but scattered: {now} of {pods} pods of {} fit{within}",
            asked(state, &free),
            asked(state, need),
        );
        return pending(Reason::Fragmented, message);
    }
    let message = format!(
        "asks for {} and {} is free in pool {pool}; nothing that runs may be evicted for it",
        asked(state, &total),
        asked(state, &free),
    );
    pending(Reason::NoRoom, message)
}

/// What is free on these nodes.
fn free_on(state: &ClusterState, nodes: &[NodeId]) -> Vector {
    let mut sum = Vector::default();
    for node in nodes {
        for (index, milli) in state.nodes.get(*node).now().amounts().entries() {
            sum.set(index, sum.get(index) + milli.max(0));
        }
    }
    sum
}

/// Why a workload starts.
pub fn admitted(state: &ClusterState, team: TeamId, pool: PoolId, total: &Vector, borrowed: bool) -> String {
    let how = if borrowed { "beyond the guarantee" } else { "within the guarantee" };
    format!(
        "{how} of team {} in pool {}: asks for {}, {} before",
        state.quotas.team(team).name,
        state.quotas.pool_name(pool),
        asked(state, total),
        usage(state, team, pool, total),
    )
}

/// What a workload makes do with, if that is less than it wants most.
pub fn less(info: &WorkloadInfo, share: Option<Amount>) -> String {
    match (share, info.workload.sizes.first()) {
        (Some(share), Some(full)) => {
            let (share, full) = (share.as_units_lossy(), full.share.as_units_lossy());
            format!(", at {share} of a GPU instead of {full}")
        }
        _ => String::new(),
    }
}

/// Whom a claimant waits for.
pub fn waiting(state: &ClusterState, placement: &Placement, victims: &[WorkloadId]) -> String {
    let nodes: Vec<String> = placement.keys().map(|node| state.nodes.name(*node).to_string()).collect();
    let nodes = nodes.join(", ");
    if victims.is_empty() {
        return format!("room is held for it on {nodes} until the pods that are ending there are gone");
    }
    let names: Vec<String> = victims.iter().map(|id| label(state, id)).collect();
    format!("room is held for it on {nodes} while {} stops", names.join(", "))
}
