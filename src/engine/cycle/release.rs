//! Pods that can never run again are taken off the record of their workload (law 16).
//!
//! A workload is charged its record until a smaller one is confirmed. The record is written only while another workload
//! could use the capacity or pods run that were never admitted, and after a pause, so that pods which end one after another
//! cause one write.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cycle::evict::{Resize, resize};
use crate::explain;
use crate::scheduler::Scheduler;
use crate::state::cluster::ClusterState;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::{Admission, Name, Plan, ResizeCause, Time, WorkloadId};

/// How long pods may be over before they are taken off the record. If its last pods end within this time, the
/// workload ends as a whole, without a write.
const PAUSE: Duration = Duration::from_secs(2);

/// When the next record becomes due.
#[must_use]
pub fn next(scheduler: &Scheduler) -> Option<Time> {
    let wanted = is_wanted(scheduler);
    let due = scheduler.deadlines.unused_records.after(PAUSE).filter(|(id, _)| !scheduler.pauses(id));
    due.map(|(_, due)| due).min().filter(|_| wanted)
}

/// Writes smaller records for workloads with pods that can never run again.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    let state = &scheduler.state;
    let has_excess = |id: &WorkloadId| state.get(id).is_some_and(|info| info.excess_pods() > 0);
    scheduler.deadlines.unused_records.note(has_excess, state.releasable().cloned(), now);
    if scheduler.deadlines.unused_records.is_empty() || !is_wanted(scheduler) {
        return;
    }
    let due = scheduler.deadlines.unused_records.after(PAUSE);
    let due = due.filter(|(id, due)| *due <= now && !scheduler.pauses(id));
    let due: Vec<WorkloadId> = due.map(|(id, _)| id.clone()).collect();
    for id in due {
        let Some(info) = scheduler.state.get(&id) else { continue };
        let Phase::Running(from) = info.phase.clone() else { continue };
        let to = smaller(&scheduler.state, info, &from);
        let message = explain::released(from.pods, to.pods);
        let cause = ResizeCause::Released;
        resize(scheduler, Resize { id: &id, from, to, cause, preemptor: None, message }, plan);
    }
}

/// Whether another workload could use the capacity, or pods that were never admitted count beside the record.
fn is_wanted(scheduler: &Scheduler) -> bool {
    scheduler.queue.pending.firsts().next().is_some()
        || !scheduler.nominations.is_empty()
        || scheduler.state.growable().next().is_some()
        || scheduler.state.evicted_first().next().is_some()
}

/// The admission without the pods that can never run again. Those that run stay where they are.
fn smaller(state: &ClusterState, info: &WorkloadInfo, from: &Admission) -> Admission {
    let mut left = info.workload.pods.min(from.pods);
    let mut nodes: BTreeMap<Name, u32> = BTreeMap::new();
    let mut keep = |name: &Name, most: u32| {
        let more = most.min(left);
        if more > 0 {
            *nodes.entry(name.clone()).or_default() += more;
            left -= more;
        }
    };
    let live = |name: &Name| {
        let node = state.nodes.find(name);
        node.and_then(|node| info.live.get(&Some(node))).copied().unwrap_or(0)
    };
    for (name, planned) in &from.nodes {
        keep(name, live(name).min(*planned));
    }
    for (name, planned) in &from.nodes {
        keep(name, planned.saturating_sub(live(name)));
    }
    Admission { pods: nodes.values().sum(), nodes, ..from.clone() }
}
