//! Waiting workloads that hold back the growth of their team, because they wait for what it would take (law 9).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::placement;
use crate::placement::waiting::{WaitingWorkload, find_pool, pool_names};
use crate::queue::WaitQueue;
use crate::scheduler::Scheduler;
use crate::state::cluster::ClusterState;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{NodeId, PoolId, TeamId};
use crate::types::vector::SLOTS;
use crate::types::{Reason, Time};

/// The most waiting workloads of a team that hold its growth back: those that have waited the longest.
const MOST: usize = 16;

/// A waiting workload.
struct Awaiting<'a> {
    info: &'a WorkloadInfo,
    /// When its queue reserves for it. From then on reservations alone count, so that capacity which they do not want is not idle
    /// for longer.
    until: Time,
    reason: Option<Reason>,
}

/// The workloads that wait, by pool and team, looked up once in a cycle.
pub struct Awaited<'a> {
    scheduler: &'a Scheduler,
    now: Time,
    known: BTreeMap<(PoolId, TeamId), Vec<Awaiting<'a>>>,
}

impl<'a> Awaited<'a> {
    /// The workloads that wait now.
    pub fn new(scheduler: &'a Scheduler, now: Time) -> Self {
        Self { scheduler, now, known: BTreeMap::new() }
    }

    /// Until when a workload holds back the growth of this one.
    pub fn until(&mut self, growing: &WorkloadInfo) -> Option<Time> {
        let (scheduler, now, place) = (self.scheduler, self.now, (growing.usage.pool, growing.team));
        let awaiting = self.known.entry(place).or_insert_with(|| awaiting(scheduler, place, now));
        let wanted = awaiting.iter().filter(|one| wants_the_same(&scheduler.state, place.0, one, growing));
        wanted.map(|one| one.until).min()
    }
}

/// The workloads of a team that wait for capacity or quota in a pool while nothing is reserved for the team there.
fn awaiting(scheduler: &Scheduler, (pool, team): (PoolId, TeamId), now: Time) -> Vec<Awaiting<'_>> {
    let Scheduler { state, queue: WaitQueue { pending, .. }, reservations, deadlines, .. } = scheduler;
    if reservations.get(&(pool, team)).is_some_and(|reservation| reservation.slot().is_some()) {
        return Vec::new();
    }
    let path = &state.quotas.team(team).path;
    let of = |info: &'_ WorkloadInfo| {
        let never = path.iter().any(|at| {
            let mut limits = state.quotas.quota_usage(pool, *at).limit.iter();
            limits.any(|(index, limit)| info.least_total().get(*index) > *limit)
        });
        let class = pending.class_of(&info.workload.id);
        let reason = class.and_then(|class| pending.refusal(class)).map(|(verdict, _)| verdict.reason);
        let waits = reason.is_none_or(|reason| {
            matches!(
                reason,
                Reason::NoRoom
                    | Reason::Fragmented
                    | Reason::Constrained
                    | Reason::TeamLimit
                    | Reason::QueueLimit
                    | Reason::LendingLimit
                    | Reason::RoomHeld
                    | Reason::Reserved
            )
        });
        let in_pool = pool_names(info).iter().any(|name| find_pool(state, name) == Some(pool));
        (waits && in_pool && !never).then_some(reason)
    };
    let mut all: Vec<Awaiting<'_>> = Vec::new();
    for info in pending.firsts_of(team).filter_map(|id| state.get(id)) {
        let Some(reason) = of(info) else { continue };
        let reserve_after = state.queue_of(info).map_or(Duration::ZERO, |queue| queue.reserve_after);
        let until = deadlines.waits_since(info).after(reserve_after);
        all.push(Awaiting { info, until, reason });
    }
    all.sort_by_key(|one| (one.until, one.info.index));
    all.truncate(MOST);
    all.retain(|one| one.until > now);
    all
}

/// Whether a workload waits for what another one would take if it grew: the quota of their queue, or a resource of both on a node
/// that both may use.
fn wants_the_same(state: &ClusterState, pool: PoolId, one: &Awaiting<'_>, growing: &WorkloadInfo) -> bool {
    let waiting = one.info;
    let shares = |(index, amount): (usize, i64)| index != SLOTS && amount > 0 && growing.need.get(index) > 0;
    if !waiting.need.nonzero().any(shares) {
        return false;
    }
    match one.reason {
        Some(Reason::QueueLimit) => waiting.workload.queue == growing.workload.queue,
        Some(Reason::TeamLimit | Reason::LendingLimit) => true,
        _ => {
            let nodes = |info: &WorkloadInfo| {
                let waiting = WaitingWorkload::of(state, &info.workload.id)?;
                Some(placement::eligible(state, &waiting.request(pool)))
            };
            let (Some(ours), Some(theirs)) = (nodes(growing), nodes(waiting)) else { return false };
            Arc::ptr_eq(&ours, &theirs) || have_one_in_common(state, &ours, &theirs)
        }
    }
}

/// Whether two lists of nodes, both by name, have one in common.
fn have_one_in_common(state: &ClusterState, one: &[NodeId], other: &[NodeId]) -> bool {
    let mut other = other.iter().peekable();
    one.iter().any(|node| {
        let name = state.nodes.name(*node);
        while other.next_if(|next| state.nodes.name(**next) < name).is_some() {}
        other.peek() == Some(&node)
    })
}
