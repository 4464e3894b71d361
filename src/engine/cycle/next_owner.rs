//! Finds the next waiting workload that may own a reservation of its team (law 7).
//!
//! A thousand teams may wait while a reservation comes free, so their order is kept from call to call, and only the teams
//! are looked at again of which a class, the usage or the reservation has changed.

use crate::cycle::reserve;
use crate::queue::WaitQueue;
use crate::queue::order::{ClassOrder, First};
use crate::scheduler::Scheduler;
use crate::types::ids::{ClassId, HeadroomId, PoolId, TeamId};
use crate::types::{DEFAULT_POOL, Name, WorkloadId};

/// The result of looking for an owner.
pub enum NextOwner {
    /// This workload is attempted next; if it finds no capacity, it may own a reservation.
    Attempt(WorkloadId),
    /// Only workloads behind the first startable one are left.
    BehindStartable,
    /// Every class was considered; none is again until capacity comes free.
    None,
}

/// Forgets which classes were considered as owners, after a change.
pub fn reconsider(scheduler: &mut Scheduler) {
    let candidates = &mut scheduler.reservations.candidates;
    let considered = std::mem::take(&mut candidates.considered);
    candidates.mark_stale(considered.into_values());
}

/// The first workload in order that lacks headroom or quota in a pool in which its team has no reservation, as long as
/// it does not stand behind `before`.
pub fn next(scheduler: &mut Scheduler, before: Option<&First>) -> NextOwner {
    note_changes(scheduler);
    let pools: Vec<PoolId> = scheduler.state.quotas.pools().map(|(_, pool)| pool).collect();
    let mut next = NextOwner::None;
    for pool in pools {
        let Some((first, class)) = first_in(scheduler, pool) else { continue };
        if before.is_some_and(|before| before.precedes(&first)) {
            next = NextOwner::BehindStartable;
            continue;
        }
        let candidates = &mut scheduler.reservations.candidates;
        candidates.considered.insert(class, first.team());
        candidates.mark_stale([first.team()]);
        return NextOwner::Attempt(first.rank.id().clone());
    }
    next
}

/// Marks the teams that may have another candidate, or another position, since the last call.
fn note_changes(scheduler: &mut Scheduler) {
    let WaitQueue { order, pending, .. } = &mut scheduler.queue;
    let (moved, candidates) = (order.take_moved(), &mut scheduler.reservations.candidates);
    candidates.mark_stale(pending.take_changed());
    if moved.all {
        candidates.mark_stale(pending.teams());
    } else if !moved.roots.is_empty() {
        let quotas = &scheduler.state.quotas;
        let below = moved.roots.iter().flat_map(|root| quotas.tree(*root)).copied();
        candidates.mark_stale(below.filter(|team| pending.has_team(*team)));
    }
}

/// The first candidate in a pool in which its team has no reservation. In a pool with as many reservations of nodes as it
/// may have, only quota counts.
fn first_in(scheduler: &mut Scheduler, pool: PoolId) -> Option<(First, ClassId)> {
    let full = reserve::is_full(scheduler, pool);
    let Scheduler { state, queue: WaitQueue { pending, headroom, .. }, reservations, .. } = scheduler;
    let name = state.quotas.pool_name(pool);
    let may_use = |pools: &[Name]| match pools.is_empty() {
        true => **name == *DEFAULT_POOL,
        false => pools.contains(name),
    };
    let in_pool = |fit: HeadroomId| !full && headroom.pool(fit) == Some(pool);
    let considered = &reservations.candidates.considered;
    let first_of = |team: TeamId| {
        let without_capacity = pending.first_waiting(team, in_pool, considered);
        let limited = pending.first_limited(team, may_use, considered);
        without_capacity.into_iter().chain(limited).min()
    };
    let mut order = reservations.candidates.orders.remove(&(pool, full)).unwrap_or_else(|| {
        let mut order = ClassOrder::default();
        order.mark_stale(pending.teams());
        order
    });
    order.catch_up(state, first_of);
    let first = order.first(|team| reservations.get(&(pool, team)).is_none());
    reservations.candidates.orders.insert((pool, full), order);
    first
}
