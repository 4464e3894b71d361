//! What a workload is charged to, by its phase: its usage on nodes, and the quota, queue and user that its usage counts against.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::capacity::devices::Holder;
use crate::state::nodes::{Hold, NodeTable};
use crate::state::quotas::QuotaTree;
use crate::state::workload::{Phase, Usage, WorkloadInfo};
use crate::types::ids::{NodeId, PoolId};
use crate::types::{Admission, Name};

/// The usage of a workload: the nodes of its pods, and for further pods on its record, the planned nodes. The record is
/// charged whatever its user writes (law 16).
pub fn usage_of(info: &WorkloadInfo, pool: PoolId, nodes: &NodeTable) -> Usage {
    let mut usage = Usage { pool, ..Usage::default() };
    let is_held = |node: &Option<NodeId>| node.is_none_or(|node| !nodes.get(node).lost);
    for (node, pods) in info.live.iter().filter(|(node, _)| is_held(node)) {
        usage.pods += pods;
        if let Some(node) = node {
            usage.nodes.insert(*node, *pods);
        }
    }
    charge_record(&mut usage, info, nodes);
    match &info.phase {
        Phase::Starting(admission) | Phase::Running(admission) | Phase::Resizing { to: admission, .. } => {
            // The excess comes free without an eviction.
            let kept = charged_pods(info, admission).saturating_sub(info.excess_pods());
            mark_terminating(&mut usage, admission, kept, info, nodes);
        }
        _ => {
            usage.terminating = usage.nodes.clone();
            usage.terminating_pods = usage.pods;
        }
    }
    let stays = |(node, pods): (&NodeId, &u32)| {
        let pods = pods.saturating_sub(usage.terminating.get(node).copied().unwrap_or(0));
        (pods > 0).then_some((*node, pods))
    };
    if !usage.terminating.is_empty() {
        usage.staying_nodes = usage.nodes.iter().filter_map(stays).collect();
    }
    usage
}

/// The pods of an admission that are charged. A bare pod that has gone does not come back, so a group is charged the pods that it
/// has left.
fn charged_pods(info: &WorkloadInfo, admission: &Admission) -> u32 {
    if info.workload.kind.is_pods() { info.workload.pods.min(admission.pods) } else { admission.pods }
}

/// Charges the pods on the record of a workload that do not exist yet, by its phase.
fn charge_record(usage: &mut Usage, info: &WorkloadInfo, nodes: &NodeTable) {
    let charged = |admission: &Admission| charged_pods(info, admission);
    match &info.phase {
        Phase::Running(admission) if info.workload.min_pods.is_some() => {
            charge_planned_apart(usage, admission, charged(admission), nodes);
        }
        // Pods that it has by now elsewhere are of its last run.
        Phase::Starting(admission) => {
            charge_planned_apart(usage, admission, charged(admission), nodes);
        }
        Phase::Running(admission) | Phase::Stopping(admission) | Phase::Failing(Some(admission)) => {
            charge_planned(usage, admission, charged(admission), nodes);
        }
        Phase::Resizing { from, to } => {
            charge_planned(usage, from, charged(from), nodes);
            // Pods may move, so the new nodes are charged besides the old ones.
            for (name, planned) in &to.nodes {
                let Some(node) = nodes.present(name) else { continue };
                let there = usage.nodes.entry(node).or_default();
                *there = (*there).max(*planned);
            }
            usage.pods = usage.pods.max(usage.nodes.values().sum());
        }
        Phase::Leaving { admission, stopped: false, .. } => {
            charge_planned(usage, admission, admission.pods, nodes);
        }
        Phase::Leaving { .. } | Phase::Hold | Phase::Pending | Phase::Failing(None) | Phase::Finished => {}
    }
}

/// Charges the pods of an admission that do not exist yet to their planned nodes.
fn charge_planned(usage: &mut Usage, admission: &Admission, granted: u32, nodes: &NodeTable) {
    usage.pods = usage.pods.max(granted);
    let mut missing = granted.saturating_sub(usage.nodes.values().sum());
    for (name, planned) in &admission.nodes {
        let Some(node) = nodes.present(name) else { continue };
        let there = usage.nodes.get(&node).copied().unwrap_or(0);
        let more = planned.saturating_sub(there).min(missing);
        if more > 0 {
            usage.nodes.insert(node, there + more);
            missing -= more;
        }
    }
}

/// Marks pods beyond `kept` as terminating: on nodes where none is planned, then those on the record that do not exist
/// any more, then the last.
fn mark_terminating(
    usage: &mut Usage,
    admission: &Admission,
    kept: u32,
    info: &WorkloadInfo,
    nodes: &NodeTable,
) {
    usage.terminating_pods = usage.pods.saturating_sub(kept);
    let mut left = usage.terminating_pods;
    if left == 0 {
        return;
    }
    let planned: BTreeMap<NodeId, u32> = admission
        .nodes
        .iter()
        .filter_map(|(name, planned)| nodes.present(name).map(|node| (node, *planned)))
        .collect();
    let planned = |node: &NodeId| planned.get(node).copied().unwrap_or(0);
    let mut mark = |node: &NodeId, pods: u32, most: u32| {
        let marked = usage.terminating.get(node).copied().unwrap_or(0);
        let more = most.saturating_sub(marked).min(pods - marked).min(left);
        if more > 0 {
            usage.terminating.insert(*node, marked + more);
            left -= more;
        }
    };
    for (node, pods) in &usage.nodes {
        mark(node, *pods, pods.saturating_sub(planned(node)));
    }
    // Without excess, every pod on the record may still be created.
    if info.excess_pods() > 0 {
        for (node, pods) in &usage.nodes {
            mark(node, *pods, pods.saturating_sub(info.live.get(&Some(*node)).copied().unwrap_or(0)));
        }
        for (node, pods) in usage.nodes.iter().rev() {
            mark(node, *pods, *pods);
        }
    }
}

/// The same for an elastic workload, which may have been shrunk, and one that starts: a pod on a node that the record does not
/// name is ending, and does not fill a place that the record names on another node. That place is kept for a pod that is still to be created.
fn charge_planned_apart(usage: &mut Usage, admission: &Admission, granted: u32, nodes: &NodeTable) {
    usage.pods = usage.pods.max(granted);
    let planned = admission.nodes.iter().filter_map(|(name, planned)| Some((nodes.present(name)?, *planned)));
    let planned: Vec<(NodeId, u32)> = planned.collect();
    let there = |usage: &Usage, node: &NodeId| usage.nodes.get(node).copied().unwrap_or(0);
    let placed: u32 = planned.iter().map(|(node, planned)| there(usage, node).min(*planned)).sum();
    let mut missing = granted.saturating_sub(placed);
    for (node, planned) in planned {
        let more = planned.saturating_sub(there(usage, &node)).min(missing);
        if more > 0 {
            *usage.nodes.entry(node).or_default() += more;
            missing -= more;
        }
    }
    usage.pods = usage.pods.max(usage.nodes.values().sum());
}

/// The queue of a workload; empty when there is none.
pub fn queue_name(quotas: &QuotaTree, info: &WorkloadInfo) -> Name {
    let team = quotas.team(info.team);
    let queue = team.queue(info.workload.queue.as_ref()).filter(|_| info.unadmitted.is_none());
    queue.map_or_else(|| "".into(), |queue| queue.name.clone())
}

/// Adds the usage of a workload to its team's quota, queue and user; with `times` = -1 removes it.
pub fn charge_quotas(quotas: &mut QuotaTree, info: &WorkloadInfo, times: i64) {
    if info.usage.pods > 0 {
        let held = info.held();
        let terminating = info.need.times(info.usage.terminating_pods);
        quotas.hold(info.usage.pool, info.team, &held, &terminating, times);
        if info.charged_fixed {
            quotas.hold_fixed(info.usage.pool, info.team, &held, &terminating, times);
        }
        if info.unadmitted.is_some() {
            return;
        }
        quotas.hold_oversize(info.usage.pool, &info.oversize, &held.plus(&terminating, -1), times);
        quotas.hold_queue(info.team, &info.charged_queue, &held, times);
        if let Some(user) = quotas.user_of(info.team, info.workload.user.as_ref()) {
            quotas.users.hold(&user, info.usage.pool, &held.plus(&terminating, -1), times);
        }
    }
}

/// Sets the usage of a workload on its nodes, in place of its usage on the nodes of `before`.
pub fn charge_nodes(nodes: &mut NodeTable, info: &WorkloadInfo, before: &BTreeMap<NodeId, u32>) {
    let holder = Holder::Workload(info.workload.id.clone());
    for node in before.keys().filter(|node| !info.usage.nodes.contains_key(node)) {
        nodes.hold(*node, &holder, Hold::default());
    }
    for (node, pods) in &info.usage.nodes {
        let terminating = info.usage.terminating.get(node).copied().unwrap_or(0);
        let profile = Some(Arc::clone(&info.workload.profile));
        nodes.hold(*node, &holder, Hold { need: info.need.clone(), profile, pods: *pods, terminating });
    }
}
