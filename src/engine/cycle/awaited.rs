//! Waiting workloads that hold back the growth of their team, because they wait for what it would take (law 9).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::cycle::reserve;
use crate::placement::waiting::{WaitingWorkload, find_pool, pool_names};
use crate::placement::{self, Capacity};
use crate::queue::WaitQueue;
use crate::scheduler::Scheduler;
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{NodeId, PoolId, TeamId};
use crate::types::vector::SLOTS;
use crate::types::{Reason, Time};

/// The most waiting workloads of a team that hold its growth back: those that have waited the longest.
const MOST: usize = 16;

/// The longest wait that holds growth back.
const LONGEST: Duration = Duration::from_secs(600);

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
        // They are in the order of these times.
        let mut awaiting = awaiting.iter();
        awaiting.find(|one| wants_the_same(&scheduler.state, place.0, one, growing)).map(|one| one.until)
    }
}

/// The workloads of a team that wait for capacity or quota in a pool while nothing is reserved for the team there.
fn awaiting(scheduler: &Scheduler, (pool, team): (PoolId, TeamId), now: Time) -> Vec<Awaiting<'_>> {
    let Scheduler { state, queue: WaitQueue { pending, .. }, reservations, deadlines, .. } = scheduler;
    if reservations.get(&(pool, team)).is_some_and(|reservation| reservation.slot().is_some()) {
        return Vec::new();
    }
    let of = |info: &'_ WorkloadInfo| {
        let class = pending.class_of(&info.workload.id);
        let reason = class.and_then(|class| pending.refusal(class)).map(|(verdict, _)| verdict.reason);
        let waits = reason.is_none_or(|reason| {
            reserve::lacks_capacity(reason) || matches!(reason, Reason::TeamLimit | Reason::QueueLimit)
        });
        let in_pool = pool_names(info).iter().any(|name| find_pool(state, name) == Some(pool));
        (waits && in_pool).then_some(reason)
    };
    let mut all: Vec<Awaiting<'_>> = Vec::new();
    for info in pending.firsts_of(team).filter_map(|id| state.get(id)) {
        let Some(reason) = of(info) else { continue };
        let reserve_after = state.queue_of(info).map_or(Duration::ZERO, |queue| queue.reserve_after);
        let until = deadlines.waits_since(info).after(reserve_after.min(LONGEST));
        all.push(Awaiting { info, until, reason });
    }
    all.sort_by_key(|one| (one.until, one.info.index));
    all.truncate(MOST);
    all.retain(|one| one.until > now);
    all
}

/// Whether a workload waits for what another one would take if it grew: the quota of their queue or team, or a resource of both.
/// What cannot start before the other one ends, because that keeps the pods it has, waits for that end and not for growth.
fn wants_the_same(state: &ClusterState, pool: PoolId, one: &Awaiting<'_>, growing: &WorkloadInfo) -> bool {
    let waiting = one.info;
    let shares = |(index, amount): (usize, i64)| index != SLOTS && amount > 0 && growing.need.get(index) > 0;
    let same_queue = waiting.workload.queue == growing.workload.queue;
    waiting.need.nonzero().any(shares)
        && (one.reason != Some(Reason::QueueLimit) || same_queue)
        && limits_hold_both(state, pool, waiting, growing)
        && nodes_hold_both(state, pool, waiting, growing)
}

/// Whether the limits of their team, of those above it and of a queue that is theirs both allow a workload beside the present pods
/// of another one.
fn limits_hold_both(
    state: &ClusterState,
    pool: PoolId,
    waiting: &WorkloadInfo,
    growing: &WorkloadInfo,
) -> bool {
    let (least, held) = (waiting.least_total(), growing.held());
    let holds = |index: usize, most: i64| {
        least.get(index) == 0 || least.get(index).saturating_add(held.get(index)) <= most
    };
    let path = &state.quotas.team(waiting.team).path;
    let mut limits = path.iter().flat_map(|at| &state.quotas.quota_usage(pool, *at).limit);
    let queue = state.queue_of(waiting).ok().filter(|_| waiting.workload.queue == growing.workload.queue);
    let mut caps = queue.into_iter().flat_map(|queue| &queue.limit);
    limits.all(|(index, most)| holds(*index, *most))
        && caps
            .all(|(name, most)| state.resources.find(name).is_none_or(|index| holds(index, most.as_milli())))
}

/// Whether a workload fits the nodes that it may use once everything but the present pods of another one has ended there, and the
/// other one may use one of them too.
fn nodes_hold_both(
    state: &ClusterState,
    pool: PoolId,
    waiting: &WorkloadInfo,
    growing: &WorkloadInfo,
) -> bool {
    let of = |info: &WorkloadInfo| WaitingWorkload::of(state, &info.workload.id);
    let (Some(waiting), Some(own)) = (of(waiting), of(growing)) else { return false };
    let (theirs, ours) = [&waiting, &own].map(|one| placement::eligible(state, &one.request(pool))).into();
    let demand = state.nodes.demand(&waiting.need);
    let mut missing = waiting.pods;
    for node in theirs.iter() {
        let mut freed = Freed::new();
        let others = state.occupants(*node).filter(|(info, _)| info.index != growing.index);
        for (info, there) in others {
            let going = info.usage.terminating.get(node).copied().unwrap_or(0);
            freed.give(*node, &info.workload.id, &info.need, there.saturating_sub(going));
        }
        missing =
            missing.saturating_sub(placement::fits_on(state, *node, &demand, Capacity::Settled(&freed)));
        if missing == 0 {
            return Arc::ptr_eq(&ours, &theirs) || have_one_in_common(state, &ours, &theirs);
        }
    }
    false
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
