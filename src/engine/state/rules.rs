//! Rules about single workloads and teams that both admission and preemption follow.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::nodes::Placement;
use crate::state::quotas::Hypothetical;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{NodeId, PoolId, Priority, TeamId};
use crate::types::vector::Vector;
use crate::types::{Admission, FairShareWindow, Profile, Reason, Time};

/// The time limit of a workload: its own or else its queue's default, but at most its queue's maximum run time.
#[must_use]
pub fn time_limit(state: &ClusterState, info: &WorkloadInfo) -> Option<Duration> {
    let queue = state.queue_of(info).ok();
    let own = info.workload.time_limit.or_else(|| queue.and_then(|queue| queue.default_time_limit));
    let most = queue.and_then(|queue| queue.max_runtime);
    [own, most].into_iter().flatten().min()
}

/// The time at which a workload that started at `started` completes the minimum run time of its queue.
#[must_use]
pub fn min_runtime_end(state: &ClusterState, info: &WorkloadInfo, started: Time) -> Time {
    started.after(state.queue_of(info).map_or(Duration::ZERO, |queue| queue.min_runtime))
}

/// Whether a workload may be evicted at `now` for the fair share of another team. Once it was, it is not in its next run
/// (law 5).
///
/// Without its Team, neither its weight nor its terms are known, and a Team is more often deleted or misspelt by mistake than
/// meant to lose what runs: such a workload is evicted for workloads within guarantee only.
#[must_use]
pub fn in_fair_share_window(
    state: &ClusterState,
    info: &WorkloadInfo,
    admission: &Admission,
    now: Time,
) -> bool {
    let window = match state.queue_of(info) {
        Ok(queue) => queue.fair_share_window,
        Err(Reason::UnknownTeam) => FairShareWindow::Never,
        Err(_) => FairShareWindow::default(),
    };
    !admission.spared
        && match window {
            FairShareWindow::For(window) => now <= min_runtime_end(state, info, admission.at).after(window),
            FairShareWindow::Always => true,
            FairShareWindow::Never => false,
        }
}

/// The devices in an amount, in thousandths.
#[must_use]
pub fn devices(state: &ClusterState, amount: &Vector) -> i64 {
    amount
        .nonzero()
        .filter(|(index, _)| state.resources.is_device(*index))
        .map(|(_, milli)| milli)
        .fold(0, i64::saturating_add)
}

/// The requested device, or any other resource if none is requested.
#[must_use]
pub fn scarcest(state: &ClusterState, need: &Vector) -> Option<usize> {
    let asked = need.nonzero().map(|(index, _)| index);
    asked.max_by_key(|index| (state.resources.is_device(*index), *index))
}

/// The run time that an eviction now would waste.
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

/// The cost of ending so many pods of a workload now: the time that is lost × the square root of the devices that lose
/// it, in milliseconds × thousandths (law 4).
///
/// With the devices themselves, small workloads would always be the cheapest and be evicted again and again; without
/// them, gangs would be. The root counts beyond one device: parts of one device cost together what the device costs. A
/// workload that loses some of its pods costs the difference between the roots before and
/// after, so ending all of them one by one costs as much as its eviction.
#[must_use]
pub fn eviction_cost(state: &ClusterState, info: &WorkloadInfo, pods: u32, started: Time, now: Time) -> i128 {
    let each = u128::try_from(devices(state, &info.need)).unwrap_or(0);
    let root = |pods: u32| {
        let devices = each.saturating_mul(u128::from(pods));
        // Of thousandths × 1,000, so that the root is in thousandths too.
        let root = devices.saturating_mul(1_000).isqrt();
        i128::try_from(root.min(devices)).unwrap_or(i128::MAX)
    };
    let all = info.usage.staying_pods();
    let elapsed = i128::try_from(unsaved(info, started, now).as_millis()).unwrap_or(i128::MAX);
    (root(all) - root(all.saturating_sub(pods))).saturating_mul(elapsed)
}

/// Whether a running workload, once queued again, would be within guarantee after preempting lower priorities
/// of its team.
pub fn would_be_within_guarantee_again(
    state: &ClusterState,
    info: &WorkloadInfo,
    priority: Priority,
) -> bool {
    let mut hypothetical = Hypothetical::new();
    let amount = info.staying_total();
    state.quotas.assume(&mut hypothetical, info.account(), &amount, -1);
    if state
        .quotas
        .team(info.team)
        .path
        .iter()
        .any(|at| state.quotas.quota_usage(info.usage.pool, *at).has_oversize())
    {
        let siblings = state.reclaimable(info.usage.pool, info.team);
        for lower in siblings.filter(|sibling| state.priority_of(sibling) < priority) {
            state.quotas.assume(&mut hypothetical, lower.account(), &lower.staying_total(), -1);
        }
    } else {
        let lower = state.totals.evictable_below(info.usage.pool, info.team, priority);
        state.quotas.assume(&mut hypothetical, info.team, &lower, -1);
    }
    state.quotas.within_guarantee(info.usage.pool, info.team, &amount, &hypothetical)
}

/// The levels of its team's path with guarantees in the pool that do not count a workload: they are smaller than it (law 2), or
/// it started beyond a budget. None for work that is never preempted: what nothing can take back counts against the guarantee.
#[must_use]
pub fn oversize_in(state: &ClusterState, info: &WorkloadInfo, pool: PoolId) -> Vec<TeamId> {
    if info.unadmitted.is_some() || !state.preemptible(info) {
        return Vec::new();
    }
    if info.phase.admission().is_some_and(|admission| admission.unfunded) {
        return state.quotas.guaranteed_levels(pool, info.team);
    }
    state.quotas.smaller_than(pool, info.team, &info.smallest_total())
}

/// Adds to `freed` all capacity that a workload holds on nodes, except terminating pods.
pub fn free(freed: &mut Freed, info: &WorkloadInfo) {
    free_pods(freed, info, info.usage.staying());
}

/// Adds to `freed` the capacity that a workload holds on one node, except terminating pods.
pub fn free_on(freed: &mut Freed, info: &WorkloadInfo, node: NodeId) {
    if let Some(pods) = info.usage.staying().get(&node) {
        freed.give(node, &info.workload.id, &info.need, *pods);
    }
}

/// Adds to `freed` the capacity that these pods of a workload hold.
pub fn free_pods(freed: &mut Freed, info: &WorkloadInfo, pods: &BTreeMap<NodeId, u32>) {
    for (node, pods) in pods {
        freed.give(*node, &info.workload.id, &info.need, *pods);
    }
}

/// Takes the pods of a placement, each of that need and profile, out of `freed`.
pub fn occupy(freed: &mut Freed, need: &Vector, profile: &Arc<Profile>, placement: &Placement) {
    for (node, pods) in placement {
        freed.take(*node, need, Some(profile), *pods);
    }
}

/// Whether a waiting workload may start at a smaller size than it prefers.
#[must_use]
pub fn may_shrink(state: &ClusterState, info: &WorkloadInfo) -> bool {
    if info.sizes.len() < 2 || !state.preemptible(info) {
        return false;
    }
    let default_priority = state.quotas.team(info.team).queue(None).map_or(0, |queue| queue.priority);
    state.priority_of(info) <= Priority { queue: default_priority, class: 0 }
}
