//! What is told of those to whom something has happened.

use std::time::Duration;

use crate::explain::names::{label, usage};
use crate::placement::Placement;
use crate::state::avoided_nodes::AvoidedNodes;
use crate::state::cluster::ClusterState;
use crate::state::workload::WorkloadInfo;
use crate::types::{EvictReason, Queue, Time, WorkloadId};

/// Why a workload must go.
pub fn evicted(
    state: &ClusterState,
    victim: &WorkloadInfo,
    preemptor: Option<&WorkloadId>,
    reason: EvictReason,
    not_ready: Option<&str>,
    now: Time,
) -> String {
    let ran = victim.phase.admission().map_or(0, |admission| now.since(admission.at).as_secs());
    let for_whom = preemptor.map(|preemptor| label(state, preemptor)).unwrap_or_default();
    match reason {
        EvictReason::Reclaimed => format!(
            "{for_whom} is owed capacity that team {} borrows ({}); {ran} s of work since its start",
            victim.workload.team,
            usage(state, victim.team, victim.usage.pool, &victim.held()),
        ),
        EvictReason::Preempted => {
            format!("{for_whom} of the same team has a higher priority; {ran} s of work since its start")
        }
        EvictReason::FairShare => format!(
            "{for_whom} takes part of the surplus of which team {} has more ({}); {ran} s of work since its start",
            victim.workload.team,
            usage(state, victim.team, victim.usage.pool, &victim.held()),
        ),
        EvictReason::Moved if preemptor.is_none() => {
            format!("moves so that what is free lies in one piece; {ran} s of work since its start")
        }
        EvictReason::Moved => {
            format!("moves so that {for_whom} finds room in one piece; {ran} s of work since its start")
        }
        EvictReason::NodeLost => format!("lost pods with their node; {ran} s of work since its start"),
        EvictReason::NotPlaced => {
            let avoided_nodes = victim.avoided_nodes.as_deref().map(stuck).unwrap_or_default();
            format!("{avoided_nodes}, and there is no other place beside the rest; {ran} s since its start")
        }
        EvictReason::NotReady => not_ready.unwrap_or_default().to_owned(),
    }
}

/// Why a gang goes back whose pods have not come up.
pub fn not_ready(queue: &Queue, there: u32, of: u32, after: Duration) -> String {
    let most = queue.ready_timeout.unwrap_or_default().as_secs();
    format!(
        "{there} of {of} pods were ready {} s after its admission; queue {} allows {most} s for all of them",
        after.as_secs(),
        queue.name
    )
}

/// Why a workload must shrink.
pub fn shrunk(state: &ClusterState, victim: &WorkloadInfo, preemptor: &WorkloadId, pods: u32) -> String {
    format!(
        "goes on with {pods} of {} pods ({} at least) to make room for {}",
        victim.workload.pods,
        victim.least_pods(),
        label(state, preemptor),
    )
}

/// Why a workload grows.
pub fn grown(info: &WorkloadInfo, from: u32, to: u32) -> String {
    format!("room has come free: goes on with {to} pods instead of {from}, {} wanted", info.workload.pods)
}

/// Why pods of a workload are made anew.
pub fn replaced(pods: u32) -> String {
    format!("{pods} of its pods went with their node and are made anew elsewhere")
}

/// Where pods could not be started.
pub fn stuck(avoided_nodes: &AvoidedNodes) -> String {
    let nodes: Vec<&str> = avoided_nodes.nodes.iter().map(|node| &**node).collect();
    format!("pods could not be started on {} ({})", nodes.join(", "), avoided_nodes.message)
}

/// Why a workload goes on with other pods than it was admitted with: some could not be started, or are
/// somewhere else.
pub fn astray(avoided_nodes: Option<&AvoidedNodes>, from: u32, to: u32, made_anew: u32) -> String {
    match avoided_nodes {
        Some(avoided_nodes) if to < from => {
            format!("{}; goes on with {to} of {from} pods", stuck(avoided_nodes))
        }
        Some(avoided_nodes) => format!("{}; {made_anew} are made anew elsewhere", stuck(avoided_nodes)),
        None => "its pods run elsewhere than it was admitted to; the record follows them".to_owned(),
    }
}

/// Why a workload goes on with fewer pods.
pub fn lost_pods(lost: u32, left: u32) -> String {
    format!("{lost} of its pods went with their node and find no other; goes on with {left}")
}

/// Why pods of a workload move.
pub fn shifted(state: &ClusterState, preemptor: &WorkloadId, places: &Placement) -> String {
    let nodes: Vec<String> = places.keys().map(|node| state.nodes.name(*node).to_string()).collect();
    format!(
        "goes on with pods on {} so that {} finds room in one piece",
        nodes.join(", "),
        label(state, preemptor)
    )
}
