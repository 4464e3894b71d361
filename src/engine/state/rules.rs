//! The rules about single workloads and teams on which both admission and reclaim rest.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::nodes::Placement;
use crate::state::quotas::Hypothetical;
use crate::state::workload::WorkloadInfo;
use crate::types::Time;
use crate::types::ids::{NodeId, PoolId, Priority, TeamId};
use crate::types::vector::Vector;

/// From when on a workload that was started then has run for its queue's minimum run time.
#[must_use]
pub fn old_enough(state: &ClusterState, info: &WorkloadInfo, started: Time) -> Time {
    started.after(state.queue_of(info).map_or(Duration::ZERO, |queue| queue.min_runtime))
}

/// How many devices there are in an amount, in thousandths.
#[must_use]
pub fn devices(state: &ClusterState, amount: &Vector) -> i64 {
    amount.nonzero().filter(|(index, _)| state.resources.is_device(*index)).map(|(_, milli)| milli).sum()
}

/// The device that is asked for, or else whatever it is.
#[must_use]
pub fn scarcest(state: &ClusterState, need: &Vector) -> Option<usize> {
    let asked = need.nonzero().map(|(index, _)| index);
    asked.max_by_key(|index| (state.resources.is_device(*index), *index))
}

/// The run time whose work would be lost with a workload that was evicted now.
#[must_use]
pub fn unsaved(info: &WorkloadInfo, started: Time, now: Time) -> Duration {
    let saved = info.workload.last_checkpoint.unwrap_or(started).max(started);
    let mut elapsed = now.since(saved);
    if let Some(interval) = info.workload.checkpoint_interval.filter(|interval| *interval > Duration::ZERO)
        && info.workload.last_checkpoint.is_none()
    {
        let milliseconds = elapsed.as_millis() % interval.as_millis().max(1);
        elapsed = Duration::from_millis(u64::try_from(milliseconds).unwrap_or(u64::MAX));
    }
    elapsed
}

/// What evicting a workload now loses, in device-milliseconds (thousandths of a device counted).
#[must_use]
pub fn work_lost(state: &ClusterState, info: &WorkloadInfo, started: Time, now: Time) -> i128 {
    let devices = devices(state, &info.need);
    let elapsed = i128::try_from(unsaved(info, started, now).as_millis()).unwrap_or(i128::MAX);
    i128::from(devices).saturating_mul(i128::from(info.usage.staying_pods())).saturating_mul(elapsed)
}

/// Whether idle guarantees that are not lent stay whole when a team takes `total` of the surplus
/// and `freed` comes free besides.
#[must_use]
pub fn lending_allows(
    state: &ClusterState,
    team: TeamId,
    pool: PoolId,
    total: &Vector,
    freed: &Freed,
) -> bool {
    if !state.quotas.has_reserves(pool) {
        return true;
    }
    let mut free = Vector::default();
    for (index, info, _) in state.nodes.alive() {
        if info.pool == pool && info.open() {
            free.add(info.settled().amounts(), 1);
            if let Some(more) = freed.get(&index) {
                free.add(more, 1);
            }
        }
    }
    let reserve = state.quotas.reserve_after(pool, team, total);
    reserve.nonzero().all(|(index, kept)| total.get(index) == 0 || free.get(index) - total.get(index) >= kept)
}

/// Whether a running workload would be owed its room, queued again, once lower priorities of its
/// team yield.
pub fn would_be_within_guarantee_again(
    state: &ClusterState,
    info: &WorkloadInfo,
    priority: Priority,
) -> bool {
    let mut hypothetical = Hypothetical::new();
    let amount = info.keeps();
    state.quotas.assume(&mut hypothetical, info.team, &amount, -1);
    let lower = state.totals.evictable_below(info.usage.pool, info.team, priority);
    state.quotas.assume(&mut hypothetical, info.team, &lower, -1);
    state.quotas.within_guarantee(info.usage.pool, info.team, &amount, &hypothetical)
}

/// Adds to `freed` what a workload holds on nodes and is not leaving already.
pub fn free(freed: &mut Freed, info: &WorkloadInfo) {
    free_pods(freed, info, info.usage.staying());
}

/// Adds to `freed` what a workload holds on one node and is not leaving already.
pub fn free_on(freed: &mut Freed, info: &WorkloadInfo, node: NodeId) {
    if let Some(pods) = info.usage.staying().get(&node) {
        freed.give(node, &info.workload.id, &info.need, *pods);
    }
}

/// Adds to `freed` what so many pods of a workload hold on nodes.
pub fn free_pods(freed: &mut Freed, info: &WorkloadInfo, pods: &BTreeMap<NodeId, u32>) {
    for (node, pods) in pods {
        freed.give(*node, &info.workload.id, &info.need, *pods);
    }
}

/// Takes out of `freed` what somebody placed there needs.
pub fn occupy(freed: &mut Freed, need: &Vector, placement: &Placement) {
    for (node, pods) in placement {
        freed.take(*node, need, *pods);
    }
}

/// Whether a workload that waits may start with less than it wants most.
#[must_use]
pub fn may_shrink(state: &ClusterState, info: &WorkloadInfo) -> bool {
    if info.sizes.len() < 2 || !state.preemptible(info) {
        return false;
    }
    let ordinary = state.quotas.team(info.team).queue(None).map_or(0, |queue| queue.priority);
    state.priority_of(info) <= Priority { queue: ordinary, class: 0 }
}
