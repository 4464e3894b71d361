//! Sentences about the nodes of a pool: why they cannot hold a workload, ever or now.

use crate::explain::names::{amounts, amounts_of, label};
use crate::explain::verdicts::{never, pending};
use crate::placement::{self, Capacity, Closed, Constraint, Obstacle, Request};
use crate::state::cluster::ClusterState;
use crate::types::amount::ResourceList;
use crate::types::ids::NodeId;
use crate::types::vector::{SLOTS, Vector};
use crate::types::{Name, Reason, Verdict, WorkloadId};

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
    never(Reason::NoNodeFits, format!("Can never start: no node offers {}{more}.", named.join(", ")))
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
    let (reason, beginning, open) = match (closed, &obstacle) {
        (Closed::TakeNone, _) | (Closed::TooFew, None) => {
            (Reason::NoNodeFits, "Can never start".to_owned(), "")
        }
        (Closed::Enough, None) => {
            let beginning = format!("Cannot start before closed nodes of pool {pool} are open again");
            (Reason::NodesClosed, beginning, "open ")
        }
        // Whether more nodes satisfy a constraint between pods only a search on them could tell.
        (_, Some(_)) => (Reason::NodesClosed, "Cannot start on the open nodes".to_owned(), "open "),
    };
    let has = |node: &NodeId, label: &Name| {
        state.nodes.get(*node).node.as_ref().is_some_and(|node| node.labels.contains_key(label))
    };
    let message = if nodes.is_empty() && closed == Closed::Enough {
        format!("{beginning}: no open node matches its node selector, affinity and tolerations.")
    } else if nodes.is_empty() {
        format!("No open node of pool {pool} matches its node selector, affinity and tolerations.")
    } else if let Some(obstacle) = &obstacle {
        format!("{beginning}: in pool {pool} {}.", in_the_way(obstacle, pods))
    } else if most == 0 && placement::most(state, nodes, &request.anywhere(), Capacity::Empty) == 0 {
        let needs = amounts(state, request.need);
        let nodes = match nodes.len() {
            1 => format!("the matching {open}node"),
            several => format!("any of the {several} matching {open}nodes"),
        };
        format!("{beginning}: a pod needs {needs}, more than {nodes} of pool {pool} has.")
    } else if let Some(label) = &request.topology.required {
        if most == 0 && !nodes.iter().any(|node| has(node, label)) {
            format!("{beginning}: no matching {open}node of pool {pool} has the label {label}.")
        } else {
            format!(
                "{beginning}: the matching {open}nodes of pool {pool} with one value of {label} hold at most \
                 {most} of its {pods} pods."
            )
        }
    } else {
        format!(
            "{beginning}: the matching {open}nodes of pool {pool} hold at most {most} of its {pods} pods."
        )
    };
    Some(Verdict { never: reason == Reason::NoNodeFits, ..pending(reason, message) })
}

/// The nodes have no capacity for a workload now.
pub fn no_room(state: &ClusterState, nodes: &[NodeId], request: &Request<'_>) -> Verdict {
    let (need, pods) = (request.need, request.pods);
    let all = state.nodes.free_in(request.pool).filter(|(_, count)| *count == nodes.len());
    let free = all.map_or_else(|| free_on(state, nodes), |(free, _)| free.clone());
    let pool = state.quotas.pool_name(request.pool);
    let total = need.times(pods);
    // A pool has many nodes, of which few are nominated.
    let nominated = state.nodes.nominated();
    let kept = match all {
        Some(_) => {
            let of_pool = |node: &&NodeId| state.nodes.is_open_in(**node, request.pool);
            kept_on_all(state, nominated.iter().filter(of_pool), &total)
        }
        None => kept_on_all(state, nodes.iter().filter(|node| nominated.contains(node)), &total),
    };
    let (needs, is_free) = (amounts(state, &total), is_free(state, (&free, &kept), &total, pool));
    if let Some(obstacle) = placement::obstacle(state, nodes, request, Capacity::Now) {
        let message = format!("Needs {needs}; {is_free}, but {}.", in_the_way(&obstacle, pods));
        return pending(Reason::Constrained, message);
    }
    if placement::most(state, nodes, request, Capacity::Unheld) >= pods {
        return pending(Reason::RoomHeld, format!("Needs {needs}; {is_free}."));
    }
    if free.fits(&total) >= 1 {
        let now = placement::most(state, nodes, request, Capacity::Now);
        let within = match &request.topology.required {
            Some(label) => format!(" within one value of {label}"),
            None => String::new(),
        };
        let message = format!("Needs {needs}; {is_free} but fragmented: {now} of {pods} pods fit{within}.");
        return pending(Reason::Fragmented, message);
    }
    let mut without_slots = total.clone();
    without_slots.set(SLOTS, 0);
    let message = if free.fits(&without_slots) >= 1 {
        let nodes = match without_slots.nonzero().next() {
            Some(_) => format!("Needs {needs}; {is_free}, but its nodes"),
            None => format!("The nodes of pool {pool}"),
        };
        let slots = match free.get(SLOTS) / 1_000 {
            0 => "run as many pods as they allow".to_owned(),
            slots => format!("allow only {slots} more of its {pods} pods"),
        };
        format!("{nodes} {slots}, and no workload may be preempted for it.")
    } else {
        format!("Needs {needs}; {is_free}, and no workload may be preempted for it.")
    };
    pending(Reason::NoRoom, message)
}

/// What is free of the resources in `total`, as a clause: what is on offer, and what is free and nominated.
fn is_free(state: &ClusterState, (offered, kept): (&Vector, &Vector), total: &Vector, pool: &Name) -> String {
    let free_ones = amounts_of(state, &offered.plus(kept, 1), total);
    let at_most_one = free_ones.starts_with("1 ") || free_ones.starts_with("0.");
    let is_one = free_ones == "nothing" || at_most_one && !free_ones.contains(", ");
    let is = |one: bool| if one { "is" } else { "are" };
    let free = format!("{free_ones} {} free in pool {pool}", is(is_one));
    if kept.nonzero().next().is_none() {
        return free;
    }
    let kept = amounts(state, kept);
    let one = (kept.starts_with("1 ") || kept.starts_with("0.")) && !kept.contains(", ");
    format!("{free}, of which {kept} {} kept for preemptors", is(one))
}

/// What is free on nodes and nominated, of the resources in `total`.
fn kept_on_all<'a>(state: &ClusterState, nodes: impl Iterator<Item = &'a NodeId>, total: &Vector) -> Vector {
    let mut kept = Vector::default();
    for (index, milli) in nodes.flat_map(|node| kept_on(state, *node, total)) {
        kept.set(index, kept.get(index).saturating_add(milli));
    }
    kept
}

/// What is free on a node and nominated, of the resources in `total`.
pub fn kept_on(
    state: &ClusterState,
    node: NodeId,
    total: &Vector,
) -> impl Iterator<Item = (usize, i64)> + use<> {
    let (info, mut kept) = (state.nodes.get(node), Vector::default());
    for (index, asked) in total.nonzero().filter(|(index, _)| *index != SLOTS) {
        let unheld = info.unheld().amounts().get(index).max(0);
        let milli = unheld.saturating_sub(info.now().amounts().get(index).max(0));
        if asked > 0 && milli > 0 {
            kept.set(index, milli);
        }
    }
    kept.nonzero().collect::<Vec<_>>().into_iter()
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

/// The preemptors that are in the way of a workload.
pub fn cleared_for(state: &ClusterState, preemptors: &[&WorkloadId]) -> String {
    let names: Vec<String> = preemptors.iter().take(FEW).map(|id| label(state, id)).collect();
    let more = match preemptors.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("Capacity is being cleared for {}{more}.", names.join(", "))
}
