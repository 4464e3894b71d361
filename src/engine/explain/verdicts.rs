//! Sentences of verdicts: why a workload waits or where it runs.

use std::time::Duration;

use crate::explain::names::{amounts, amounts_of, label, named, quantity, usage};
use crate::placement::waiting::WaitingWorkload;
use crate::placement::{self, Capacity, Closed, Constraint, Obstacle, Placement, Request};
use crate::prediction::timeline::Slot;
use crate::scheduler::reservations::{Level, Reservation};
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::rules;
use crate::state::workload::WorkloadInfo;
use crate::types::amount::{Amount, ResourceList};
use crate::types::ids::{NodeId, PoolId, TeamId};
use crate::types::vector::Vector;
use crate::types::{FailReason, Name, Queue, Reason, State, Verdict, WorkloadId, span, span_at_most};

pub fn pending(reason: Reason, message: String) -> Verdict {
    Verdict { state: State::Pending, reason, message }
}

/// A workload could start, but would delay the owner of a reservation.
pub fn reserved(state: &ClusterState, reservation: &Reservation, slot: &Slot) -> Verdict {
    let owner = label(state, &reservation.owner);
    let expected = expected(state, reservation, slot);
    pending(Reason::Reserved, format!("Waits for {owner}, which has a reservation on {expected}."))
}

/// A workload could start, but would use up the guarantee that the owner of its team's reservation needs.
pub fn guarantee_left(state: &ClusterState, reservation: &Reservation, slot: &Slot) -> Verdict {
    let owner = label(state, &reservation.owner);
    let expected = expected(state, reservation, slot);
    let message =
        format!("Leaves the guarantee of its team to {owner}, which has a reservation on {expected}.");
    pending(Reason::Reserved, message)
}

/// A workload could start, but would use quota that the owner of a reservation needs.
pub fn quota_kept(
    state: &ClusterState,
    reservation: &Reservation,
    level: &Level,
    resource: usize,
    amount: i64,
) -> Verdict {
    let team = |team: &TeamId| state.quotas.team(*team).name.clone();
    let of = match level {
        Level::Limit(at) => format!("limit of team {}", team(at)),
        Level::Guarantee(at) => format!("guarantee of team {}", team(at)),
        Level::Queue(at, queue) => format!("limit of queue {queue} of team {}", team(at)),
    };
    let (amount, owner) = (named(state, resource, amount), label(state, &reservation.owner));
    let message = format!("Leaves {amount} of the {of} to {owner}, which {}.", starts(reservation));
    pending(Reason::Reserved, message)
}

/// When the owner of a reservation is expected to start, as a clause.
fn starts(reservation: &Reservation) -> String {
    match reservation.start() {
        Some(at) => {
            format!("is expected to start within {}", span_at_most(at.since(reservation.decided)))
        }
        None => "waits until enough workloads have ended; nothing tells when".to_owned(),
    }
}

/// The quota that a reservation without nodes keeps.
pub fn quota_reserved(reservation: &Reservation) -> String {
    match reservation.start() {
        Some(_) => format!("It has a reservation of the quota it needs and {}.", starts(reservation)),
        None => {
            "It has a reservation of the quota it needs; nothing tells when the workloads that use it end."
                .to_owned()
        }
    }
}

/// The nodes of a reservation, and when its owner is expected to start.
pub fn expected(state: &ClusterState, reservation: &Reservation, slot: &Slot) -> String {
    let nodes = node_names(state, slot.placement.keys());
    match slot.at {
        Some(at) => {
            format!("{nodes} and is expected to start within {}", span_at_most(at.since(reservation.decided)))
        }
        None => format!("{nodes}; no time limit tells when the workloads there end"),
    }
}

/// The names of nodes, in a row.
pub fn node_names<'a>(state: &ClusterState, nodes: impl Iterator<Item = &'a NodeId>) -> String {
    nodes.map(|node| state.nodes.name(*node).to_string()).collect::<Vec<String>>().join(", ")
}

/// Why a workload fails by a rule.
pub fn failed(queue: &Queue, reason: FailReason, after: Duration) -> String {
    let (verb, most) = match reason {
        FailReason::MaxWait => ("Waited", queue.max_wait),
        FailReason::MaxRuntime => ("Ran", queue.max_runtime),
    };
    let most = span(most.unwrap_or_default());
    format!("{verb} for {}; queue {} allows {most}.", span(after), queue.name)
}

/// The team or queue of a workload does not exist.
pub fn unknown(info: &WorkloadInfo, reason: Reason) -> Verdict {
    let workload = &info.workload;
    let message = match (&workload.queue, reason) {
        (Some(queue), Reason::UnknownQueue) => format!("Team {} has no queue {queue}.", workload.team),
        _ => format!("Team {} does not exist.", workload.team),
    };
    pending(reason, message)
}

/// None of a workload's pools has a node.
pub fn no_pool(pools: &[Name]) -> Verdict {
    pending(Reason::NoNodeFits, format!("Can never start: no node is in pool {}.", pools.join(", ")))
}

/// The queue of a workload is at its limit.
pub fn queue_limit(state: &ClusterState, queue: &Queue, index: usize) -> Verdict {
    let name = state.resources.name(index);
    let limit = queue.limit.get(name).copied().unwrap_or_default();
    let limit = named(state, index, limit.as_milli());
    let message = format!("Queue {} would exceed its limit of {limit}.", queue.name);
    pending(Reason::QueueLimit, message)
}

/// The queue of a workload is paused.
pub fn queue_paused(state: &ClusterState, info: &WorkloadInfo, queue: &Queue) -> Verdict {
    let team = &state.quotas.team(info.team).name;
    let message = format!(
        "Queue {} of team {team} is paused, so none of its workloads starts; it keeps its place until the queue is open again.",
        queue.name
    );
    pending(Reason::QueuePaused, message)
}

/// A team on the path of a workload is at its limit.
pub fn team_limit(state: &ClusterState, team: TeamId, pool: PoolId, index: usize, total: &Vector) -> Verdict {
    let quota = state.quotas.quota_usage(pool, team);
    let limit = quota.limit.get(&index).copied().unwrap_or(0);
    let message = format!(
        "Needs {}; team {} uses {} of its limit of {} in pool {}.",
        named(state, index, total.get(index)),
        state.quotas.team(team).name,
        quantity(state, index, quota.held.get(index)),
        named(state, index, limit),
        state.quotas.pool_name(pool),
    );
    pending(Reason::TeamLimit, message)
}

/// A workload that is not preemptible does not fit the guarantee.
pub fn must_fit_guarantee(state: &ClusterState, team: TeamId, pool: PoolId, total: &Vector) -> Verdict {
    let message = format!(
        "Not preemptible, so its {} must fit the guarantee beside the team's other work that is not. {}",
        amounts(state, total),
        usage(state, team, pool, total),
    );
    pending(Reason::NotPreemptibleOverGuarantee, message)
}

/// Other teams do not lend as much as a workload would borrow.
pub fn lending_refusal(state: &ClusterState, team: TeamId, pool: PoolId, total: &Vector) -> Option<Verdict> {
    (!rules::lending_allows(state, team, pool, total, &Freed::new())).then(|| {
        let kept = state.quotas.reserve_after(pool, team, total);
        let message = format!(
            "Would borrow {}, but other teams do not lend {} of pool {}.",
            amounts(state, total),
            amounts(state, &kept),
            state.quotas.pool_name(pool),
        );
        pending(Reason::LendingLimit, message)
    })
}

/// The most resources that a sentence names.
const FEW: usize = 3;

/// A pod requests a resource that no node of any pool offers.
pub fn unoffered(state: &ClusterState, requests: &ResourceList) -> Verdict {
    let unknown = || requests.keys().filter(|name| state.resources.find(name).is_none());
    let named: Vec<&str> = unknown().take(FEW).map(|name| &**name).collect();
    let more = match unknown().count() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    pending(Reason::NoNodeFits, format!("Can never start: no node offers {}{more}.", named.join(", ")))
}

/// The open nodes of a pool could not hold the pods of a workload even if they were empty; `None` if they could.
pub fn no_node(state: &ClusterState, nodes: &[NodeId], request: &Request<'_>) -> Option<Verdict> {
    let (pool, pods) = (state.quotas.pool_name(request.pool), request.pods);
    let most = placement::most(state, nodes, request, Capacity::Empty);
    if most >= pods {
        return None;
    }
    let closed = placement::closed(state, nodes, request);
    let obstacle = placement::obstacle(state, nodes, request, Capacity::Empty);
    let (reason, beginning, of) = match (closed, &obstacle) {
        (Closed::TakeNone, _) | (Closed::TooFew, None) => {
            (Reason::NoNodeFits, "Can never start".to_owned(), "nodes")
        }
        (Closed::Enough, None) => {
            let beginning = format!("Cannot start before closed nodes of pool {pool} are open again");
            (Reason::NodesClosed, beginning, "open nodes")
        }
        // Whether more nodes satisfy a constraint between pods only a search on them could tell.
        (_, Some(_)) => (Reason::NodesClosed, "Cannot start on the open nodes".to_owned(), "open nodes"),
    };
    let message = if nodes.is_empty() && closed == Closed::Enough {
        format!("{beginning}: no open node matches its node selector, affinity and tolerations.")
    } else if nodes.is_empty() {
        format!("No open node of pool {pool} matches its node selector, affinity and tolerations.")
    } else if let Some(obstacle) = &obstacle {
        format!("{beginning}: in pool {pool} {}.", in_the_way(obstacle, pods))
    } else if most == 0 && placement::most(state, nodes, &request.anywhere(), Capacity::Empty) == 0 {
        format!(
            "{beginning}: a pod needs {}, more than any of the {} matching {of} of pool {pool} has.",
            amounts(state, request.need),
            nodes.len(),
        )
    } else if let Some(label) = &request.topology.required {
        format!(
            "{beginning}: the matching {of} of pool {pool} with one value of {label} hold at most {most} of \
             its {pods} pods."
        )
    } else {
        format!("{beginning}: the matching {of} of pool {pool} hold at most {most} of its {pods} pods.")
    };
    Some(pending(reason, message))
}

/// The nodes have no capacity for a workload now.
pub fn no_room(state: &ClusterState, nodes: &[NodeId], request: &Request<'_>) -> Verdict {
    let (need, pods) = (request.need, request.pods);
    let all = state.nodes.free_in(request.pool).filter(|(_, count)| *count == nodes.len());
    let free = all.map_or_else(|| free_on(state, nodes), |(free, _)| free.clone());
    let pool = state.quotas.pool_name(request.pool);
    let total = Vector::default().plus(need, i64::from(pods));
    let (needs, free_ones) = (amounts(state, &total), amounts_of(state, &free, &total));
    let is_one = free_ones == "nothing" || free_ones.starts_with("1 ") && !free_ones.contains(", ");
    let is_free = format!("{free_ones} {} free", if is_one { "is" } else { "are" });
    if let Some(obstacle) = placement::obstacle(state, nodes, request, Capacity::Now) {
        let message =
            format!("Needs {needs}; {is_free} in pool {pool}, but {}.", in_the_way(&obstacle, pods));
        return pending(Reason::Constrained, message);
    }
    if placement::most(state, nodes, request, Capacity::Unheld) >= pods {
        let message = format!("Needs {needs}; the free capacity of pool {pool} is nominated to preemptors.");
        return pending(Reason::RoomHeld, message);
    }
    if free.fits(&total) >= 1 {
        let now = placement::most(state, nodes, request, Capacity::Now);
        let within = match &request.topology.required {
            Some(label) => format!(" within one value of {label}"),
            None => String::new(),
        };
        let message = format!(
            "Needs {needs}; {is_free} in pool {pool} but fragmented: {now} of {pods} pods fit{within}."
        );
        return pending(Reason::Fragmented, message);
    }
    let message =
        format!("Needs {needs}; {is_free} in pool {pool}, and no workload may be preempted for it.");
    pending(Reason::NoRoom, message)
}

/// The constraint between pods that keeps a workload from nodes, as a clause.
fn in_the_way(obstacle: &Obstacle, pods: u32) -> String {
    let Obstacle { constraint, key, left, of, most } = obstacle;
    let name = match constraint {
        Constraint::AboutToStart => {
            return "its pods would be in the way of the affinity or spread of a workload that is about to start".into();
        }
        Constraint::AntiAffinity => "its anti-affinity",
        Constraint::AntiAffinityOfOthers => "the anti-affinity of other pods",
        Constraint::Affinity => "its affinity to pods",
        Constraint::Spread => "its spread",
    };
    format!("{name} by {key} leaves {left} of {of} nodes, for {most} of its {pods} pods")
}

/// The free amounts on these nodes.
fn free_on(state: &ClusterState, nodes: &[NodeId]) -> Vector {
    let mut sum = Vector::default();
    for node in nodes {
        for (index, milli) in state.nodes.get(*node).now().amounts().entries() {
            sum.set(index, sum.get(index).saturating_add(milli.max(0)));
        }
    }
    sum
}

/// Why a workload starts.
pub fn admitted(state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId, beyond: bool) -> String {
    let WaitingWorkload { team, total, preemptible, .. } = waiting;
    let (needs, usage) = (amounts(state, total), usage(state, *team, pool, total));
    match (beyond, preemptible) {
        (false, _) => format!("{needs} within the guarantee. Before: {usage}"),
        (true, true) => format!("{needs} beyond the guarantee, so it can be preempted. Before: {usage}"),
        (true, false) => {
            format!(
                "{needs} within the guarantee, beyond which preemptible work of its team runs. Before: {usage}"
            )
        }
    }
}

/// The GPU fraction of a workload, if it is smaller than the preferred one.
pub fn less(info: &WorkloadInfo, fraction: Option<Amount>) -> String {
    match (fraction, info.workload.sizes.first()) {
        (Some(fraction), Some(full)) => {
            let (fraction, full) = (fraction.as_units_lossy(), full.share.as_units_lossy());
            format!(" Runs with {fraction} of a GPU instead of {full}.")
        }
        _ => String::new(),
    }
}

/// The nodes that a preemptor waits for, and its victims.
pub fn waiting(state: &ClusterState, placement: &Placement, victims: &[WorkloadId]) -> String {
    let nodes = node_names(state, placement.keys());
    if victims.is_empty() {
        return format!("Starts on {nodes} once the pods that are ending there are gone.");
    }
    let names: Vec<String> = victims.iter().map(|id| label(state, id)).collect();
    format!("Starts on {nodes} once {} has stopped.", names.join(", "))
}
