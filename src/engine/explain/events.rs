//! Sentences of events: what happened to a workload, and why.

use std::time::Duration;

use crate::explain::names::{label, named, quantity, usage};
use crate::explain::verdicts::node_names;
use crate::placement::Placement;
use crate::scheduler::nominations::{Broken, Change};
use crate::state::avoided_nodes::AvoidedNodes;
use crate::state::cluster::ClusterState;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{NodeId, PoolId, TeamId};
use crate::types::ratio::Ratio;
use crate::types::{Admission, EvictReason, Queue, Time, WorkloadId, span};

/// Why a workload is evicted; `rest` is the sentence about a gang that rests because it did not become ready or lost pods.
pub fn evicted(
    state: &ClusterState,
    victim: &WorkloadInfo,
    preemptor: Option<&WorkloadId>,
    reason: EvictReason,
    rest: Option<&str>,
    now: Time,
) -> String {
    let ran = victim.phase.admission().map_or(Duration::ZERO, |admission| now.since(admission.at));
    let preemptor_team = preemptor.and_then(|preemptor| state.get(preemptor)).map(|info| info.team);
    let preemptor = preemptor.map(|preemptor| label(state, preemptor));
    let by = preemptor.as_deref().unwrap_or_default();
    let lost = format!("Ran for {} since its start.", span(ran));
    match reason {
        EvictReason::Reclaimed => {
            format!("{by} reclaims its team's guarantee. {} {lost}", usage_of_team(state, victim))
        }
        EvictReason::Preempted if victim.unadmitted.is_some() => {
            format!("{by} of the same team starts in its place: this pod was never admitted. {lost}")
        }
        EvictReason::Preempted => format!("{by} of the same team has a higher priority. {lost}"),
        EvictReason::FairShare => {
            let shares = preemptor_team.and_then(|team| larger_share(state, victim, team));
            match shares {
                Some(shares) => format!("{by} borrows capacity of which {shares}. {lost}"),
                None => {
                    format!("{by} borrows capacity in its place. {} {lost}", usage_of_team(state, victim))
                }
            }
        }
        EvictReason::Moved if preemptor.is_none() => {
            format!("Moves so that free capacity is less fragmented. {lost}")
        }
        EvictReason::Moved => format!("Moves so that {by} finds its capacity in one piece. {lost}"),
        EvictReason::NodeLost => match silent_nodes(state, victim, now) {
            Some(nodes) => format!("Lost pods with {nodes}. {lost}"),
            None => format!("Lost pods with their node. {lost}"),
        },
        EvictReason::PodLost => {
            let message = lost_pod(victim.workload.failed_pods, ran);
            format!("{message}; all its pods restart together.")
        }
        EvictReason::NotPlaced => format!("{} {lost}", not_placed(victim)),
        EvictReason::OverLimit => {
            let team = &state.quotas.team(victim.team).name;
            format!("Was never admitted, and team {team} holds more than its limit allows. {lost}")
        }
        EvictReason::Requeued => {
            format!("Its user wants it back in the queue by the annotation sluice.dev/requeue. {lost}")
        }
        EvictReason::QueueDrained => {
            let queue = state.queue_of(victim).map_or("", |queue| &*queue.name);
            let team = &state.quotas.team(victim.team).name;
            format!("Queue {queue} of team {team} is drained. {lost}")
        }
        EvictReason::NotReady => rest.unwrap_or_default().to_owned(),
    }
}

/// What the team of a victim uses of what the victim asks for.
fn usage_of_team(state: &ClusterState, victim: &WorkloadInfo) -> String {
    let (team, pool, mut held) = (victim.team, victim.usage.pool, victim.held());
    let quota = state.quotas.quota_usage(pool, team);
    // What the guarantee does not cover goes because the team borrows something else.
    if !quota.covers_any(&held) {
        quota.governed().for_each(|(index, _)| held.set(index, 1));
    }
    usage(state, team, pool, &held)
}

/// Why a workload returns to the queue of which pods have no node, or cannot start on theirs.
fn not_placed(victim: &WorkloadInfo) -> String {
    // Whether other nodes have capacity is not known here: it is looked for from the queue, for all pods at once.
    let Some(avoided) = victim.avoided_nodes.as_deref().filter(|avoided| !avoided.nodes.is_empty()) else {
        return "Not all its pods have a node. Returns to the queue.".into();
    };
    let them = match avoided.nodes.len() {
        1 => "that node until it changes",
        _ => "those nodes until they change",
    };
    format!("{}. Returns to the queue and avoids {them} or a pause is over.", stuck(avoided))
}

/// The levels of two teams at which the team of a victim borrows a larger share than that of its preemptor, with both shares
/// (law 5), as a clause.
fn larger_share(state: &ClusterState, victim: &WorkloadInfo, preemptor: TeamId) -> Option<String> {
    let (quotas, pool) = (&state.quotas, victim.usage.pool);
    // The level with the largest share; of equal ones the uppermost.
    let largest = |of: TeamId, by: TeamId| {
        quotas.levels_below_common(of, by).max_by_key(|at| quotas.level_share(pool, *at, None))
    };
    let (ours, theirs) = (largest(victim.team, preemptor)?, largest(preemptor, victim.team)?);
    let index = borrows_most_of(state, pool, ours)?;
    let other = borrows_most_of(state, pool, theirs).unwrap_or(index);
    let weight = |at: TeamId| quotas.team(at).team.as_ref().map_or(1, |team| team.weight);
    let share = |at: TeamId, index: usize| {
        let quota = quotas.quota_usage(pool, at);
        let borrowed = quantity(state, index, quota.borrowed(index, quota.settled(index)));
        let of = named(state, index, quotas.capacity(pool).get(index));
        let by_weight = match weight(ours) == weight(theirs) {
            true => String::new(),
            false => format!(" at weight {}", weight(at)),
        };
        format!("{borrowed} of {of}{by_weight}")
    };
    Some(format!(
        "team {} borrows the larger share in pool {}: {}, and team {} {}",
        quotas.team(ours).name,
        quotas.pool_name(pool),
        share(ours, index),
        quotas.team(theirs).name,
        share(theirs, other),
    ))
}

/// The resource of which a team borrows the largest part of a pool; `None` if it borrows nothing.
fn borrows_most_of(state: &ClusterState, pool: PoolId, team: TeamId) -> Option<usize> {
    let quota = state.quotas.quota_usage(pool, team);
    let positive = |milli: i64| u128::try_from(milli).unwrap_or(0);
    let parts = state.quotas.capacity(pool).entries().filter_map(|(index, capacity)| {
        let borrowed = quota.borrowed(index, quota.settled(index));
        let borrows = borrowed > 0 && capacity > 0;
        borrows.then(|| (Ratio::new(positive(borrowed), positive(capacity)), index))
    });
    parts.max().map(|(_, index)| index)
}

/// The nodes of a workload that do not answer, and since when; `None` if there are none.
fn silent_nodes(state: &ClusterState, info: &WorkloadInfo, now: Time) -> Option<String> {
    let nodes = info.phase.admission()?.nodes.keys();
    let silent: Vec<String> = nodes.filter_map(|name| silent(state, state.nodes.find(name)?, now)).collect();
    (!silent.is_empty()).then(|| silent.join(", "))
}

/// A node that does not answer, and since when.
fn silent(state: &ClusterState, node: NodeId, now: Time) -> Option<String> {
    let since = state.silent_since(node)?;
    Some(format!("node {}, which has not answered for {}", state.nodes.name(node), span(now.since(since))))
}

/// Why a pod is ended without its kubelet.
pub fn ended_pod(state: &ClusterState, node: NodeId, now: Time) -> String {
    let node = silent(state, node, now).unwrap_or_else(|| format!("node {}", state.nodes.name(node)));
    format!("Was on {node}: the pod is ended without its kubelet. It may still run there.")
}

/// That pods of a gang were lost, so long after its start.
pub fn lost_pod(lost: u32, after: Duration) -> String {
    let pods = if lost == 1 { "A pod" } else { "Pods" };
    format!("{pods} failed or went away {} after the start", span(after))
}

/// Why a gang whose pods did not become ready in time is queued again.
pub fn not_ready(queue: &Queue, ready: u32, of: u32, after: Duration) -> String {
    let most = span(queue.ready_timeout.unwrap_or_default());
    format!(
        "{ready} of {of} pods were ready {} after its admission; queue {} allows {most} for all of them",
        span(after),
        queue.name
    )
}

/// Why a workload is shrunk.
pub fn shrunk(state: &ClusterState, victim: &WorkloadInfo, preemptor: &WorkloadId, pods: u32) -> String {
    format!(
        "Scaled down to {pods} of {} pods (at least {}): capacity preempted by {}.",
        victim.workload.pods,
        victim.least_pods(),
        label(state, preemptor),
    )
}

/// Why a preemptor needs other victims than its last plan named.
pub fn broken_plan(state: &ClusterState, broken: &Broken) -> String {
    match broken {
        Broken::TakenOver(by) => {
            format!("{} within guarantee took over the capacity that was cleared before.", label(state, by))
        }
        Broken::After(change) => {
            let changed = match change {
                Change::Workload(id) => label(state, id),
                Change::Pod(pod) => format!("pod {}", pod.0),
                Change::Node(name) => format!("node {name}"),
                Change::Team(name) => format!("team {name}"),
                Change::Pool(name) => format!("pool {name}"),
            };
            format!("The plan before does not hold any more, last since a change of {changed}.")
        }
    }
}

/// Why pods are taken off the record of a workload.
pub fn released(from: u32, to: u32) -> String {
    format!("{} of its {from} pods will not run again; their capacity is given back.", from - to)
}

/// Why a workload grows.
pub fn grown(info: &WorkloadInfo, from: u32, to: u32) -> String {
    format!("Scaled up from {from} to {to} of {} pods: capacity came free.", info.workload.pods)
}

/// With how many pods a workload starts that could have started with fewer.
pub fn starts_larger(info: &WorkloadInfo, fewest: u32, to: &Admission) -> String {
    let beyond = if to.borrowed { ", in all beyond the guarantee" } else { ", in all within the guarantee" };
    format!(
        "That is its smallest size, {fewest} of {} pods; it starts with {}{beyond}.",
        info.workload.pods, to.pods
    )
}

/// Why pods of a workload are replaced.
pub fn replaced(pods: u32) -> String {
    format!("{pods} of its pods were lost with their node and are replaced on other nodes.")
}

/// The nodes on which pods could not start, and the reason.
pub fn stuck(avoided: &AvoidedNodes) -> String {
    let nodes: Vec<&str> = avoided.nodes.iter().map(|node| &**node).collect();
    format!("Pods could not be started on {} ({})", nodes.join(", "), avoided.message)
}

/// Why the pods of a workload differ from its admission: some could not start, or run on other nodes.
pub fn misplaced(avoided: Option<&AvoidedNodes>, from: u32, to: u32, replaced: u32) -> String {
    match avoided {
        Some(avoided) if to < from => format!("{}. Goes on with {to} of {from} pods.", stuck(avoided)),
        Some(avoided) => format!("{}. {replaced} of them are replaced on other nodes.", stuck(avoided)),
        None => "Its pods run on other nodes than admitted; the record follows them.".to_owned(),
    }
}

/// Why a workload goes on with fewer pods.
pub fn lost_pods(lost: u32, left: u32) -> String {
    format!(
        "{lost} of its pods were lost with their node, and no other node has capacity. Goes on with {left}."
    )
}

/// Why pods of a workload move.
pub fn shifted(state: &ClusterState, preemptor: &WorkloadId, placement: &Placement) -> String {
    let nodes = node_names(state, placement.keys());
    format!("Moves pods to {nodes} so that {} finds its capacity in one piece.", label(state, preemptor))
}
