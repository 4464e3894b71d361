//! Which reservations bind a workload, and which it may backfill.

use std::time::Duration;

use crate::placement::waiting::WaitingWorkload;
use crate::placement::{self, Capacity};
use crate::prediction::timeline::{Slot, running_admission};
use crate::queue::order;
use crate::queue::rank::Rank;
use crate::scheduler::Scheduler;
use crate::scheduler::reservations::{Reservation, Reserved};
use crate::state::freed::Freed;
use crate::state::quotas::Share;
use crate::state::rules;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{NodeId, PoolId};
use crate::types::{Time, WorkloadId};

/// Whether a workload waits.
pub fn waits(scheduler: &Scheduler, id: &WorkloadId) -> bool {
    scheduler.state.get(id).is_some_and(|info| info.phase == Phase::Pending)
}

/// Whether a waiting workload stands before the owner of a reservation in their team. What is kept for the owner includes
/// its user's turn against all that was submitted later than the owner: otherwise users would take turns, and small workloads
/// of each would start in between. The turn does not count from the time of the reservation, which a new leader does not know,
/// and which begins again whenever the reservation has passed to another workload and comes back.
pub fn stands_before(scheduler: &Scheduler, waiting: &WaitingWorkload, reservation: &Reservation) -> bool {
    let (pending, state) = (&scheduler.queue.pending, &scheduler.state);
    // Beyond a budget, a workload has the lowest claim. Growth stands behind every owner.
    if waiting.unfunded || waiting.grows() {
        return false;
    }
    let own = pending.rank(&waiting.id).or_else(|| rank_outside(scheduler, waiting));
    let Some((rank, owner)) = own.zip(pending.rank(&reservation.owner)) else {
        return false;
    };
    let user = state.get(&reservation.owner).and_then(|info| info.workload.user.as_ref());
    let other_user = waiting.user != state.quotas.user_of(reservation.team, user);
    let keeps_turn = other_user && reservation.keeps_quota() && rank.submitted() > owner.submitted();
    if keeps_turn { rank.outranks(&owner) } else { rank < owner }
}

/// The rank of a workload that waits outside the queue, because capacity is nominated to it. Growth has none.
fn rank_outside(scheduler: &Scheduler, waiting: &WaitingWorkload) -> Option<Rank> {
    let info = scheduler.state.at(waiting.index).filter(|info| info.phase == Phase::Pending)?;
    Some(scheduler.queue.rank_if_queued(&scheduler.state, info))
}

/// Whether quota that is kept for the owner of a reservation binds a waiting workload. It does not where the workload stands
/// before the owner in their team, or is of another team and within guarantee when the owner is not. Of the owners of two teams
/// that wait for the same quota, the one with the older reservation is not bound by the other. Growth stands behind every owner.
pub fn quota_binds(
    scheduler: &Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    reservation: &Reservation,
) -> bool {
    if reservation.team == waiting.team {
        return !stands_before(scheduler, waiting, reservation);
    }
    let owner_is_within = owner_is_within_guarantee(scheduler, pool, reservation);
    if is_within_guarantee(scheduler, waiting, pool) && !owner_is_within {
        return false;
    }
    // Beyond a budget, a workload has the lowest claim.
    let own = own_reservation(scheduler, waiting, pool).filter(|own| own.keeps_quota() && !waiting.unfunded);
    !own.is_some_and(|own| is_older(scheduler, own, reservation))
}

/// Whether reservations bind a waiting workload as one within guarantee. Guarantees above its own team's may be met by evicting
/// borrowers.
fn is_within_guarantee(scheduler: &Scheduler, waiting: &WaitingWorkload, pool: PoolId) -> bool {
    let holds = || scheduler.state.quotas.own_guarantee_holds(pool, waiting.team, &waiting.total);
    !waiting.unfunded && (waiting.as_guaranteed || holds())
}

/// Whether the guarantee of its own team covers the owner of a reservation.
fn owner_is_within_guarantee(scheduler: &Scheduler, pool: PoolId, reservation: &Reservation) -> bool {
    let state = &scheduler.state;
    let owner = state.get(&reservation.owner);
    owner.is_some_and(|owner| state.quotas.own_guarantee_holds(pool, owner.team, &owner.least_total()))
}

/// The reservation that a waiting workload owns in a pool.
fn own_reservation<'a>(
    scheduler: &'a Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
) -> Option<&'a Reservation> {
    let own = scheduler.reservations.get(&(pool, waiting.team)).filter(|_| !waiting.grows());
    own.filter(|own| own.owner == waiting.id)
}

/// What older reservations have less of: since when they keep nodes or quota, and the positions of their owners. By age and not by fair
/// share: shares change with every start, and two owners would put each other off without end.
pub fn age(scheduler: &Scheduler, of: &Reservation) -> impl Ord + use<> {
    let position = order::queue_position(&scheduler.state, &scheduler.queue.pending, &of.owner);
    (of.kept_since.is_none(), of.kept_since, position)
}

/// Whether a reservation is older than one of another team.
pub fn is_older(scheduler: &Scheduler, one: &Reservation, other: &Reservation) -> bool {
    age(scheduler, one) < age(scheduler, other)
}

/// Whether the owner of a reservation is not bound by one of another team. Of two owners one is not, or both would wait for ever:
/// the one with the older reservation, or with a predicted start where nodes were kept for it first and both count on some of
/// them. A predicted start on other nodes is no claim to these, nor is one where nodes were kept later: owners could take such turns
/// without end. Such a later start does not bind the older owner on nodes that both count on. Two predicted starts bind each other:
/// each was found beside the other.
fn goes_first(scheduler: &Scheduler, own: &Reservation, (other, other_slot): (&Reservation, &Slot)) -> bool {
    let Some(own_slot) = own.slot() else { return false };
    let both_count_on = || own_slot.placement.keys().any(|node| other_slot.placement.contains_key(node));
    let is_first = |one: &Reservation, two: &Reservation| {
        one.nodes_since < two.nodes_since || is_older(scheduler, one, two)
    };
    match (own_slot.at, other_slot.at) {
        (Some(_), Some(_)) => false,
        (None, None) => is_older(scheduler, own, other),
        (Some(_), None) if both_count_on() => is_first(own, other),
        (Some(_), None) => is_older(scheduler, own, other),
        (None, Some(_)) => both_count_on() && !is_first(other, own),
    }
}

/// What decides before which owners of other teams with nodes in a pool a waiting workload stands.
struct Precedence<'a> {
    scheduler: &'a Scheduler,
    pool: PoolId,
    /// Whether reservations bind it as one within guarantee.
    within_guarantee: bool,
    /// The fair share of its team.
    share: Share,
    /// The reservation that it owns, if a budget covers it.
    own: Option<&'a Reservation>,
}

impl<'a> Precedence<'a> {
    fn of(scheduler: &'a Scheduler, waiting: &WaitingWorkload, pool: PoolId) -> Self {
        Self {
            scheduler,
            pool,
            within_guarantee: is_within_guarantee(scheduler, waiting, pool),
            share: scheduler.state.quotas.share(pool, waiting.team),
            own: own_reservation(scheduler, waiting, pool).filter(|_| !waiting.unfunded),
        }
    }

    /// Whether the workload stands before the owner of a reservation of another team.
    fn is_before(&self, reservation: &Reservation, slot: &Slot) -> bool {
        let Self { scheduler, pool, within_guarantee, .. } = *self;
        let owner_is_within = owner_is_within_guarantee(scheduler, pool, reservation);
        let goes_first = |own: &Reservation| goes_first(scheduler, own, (reservation, slot));
        if within_guarantee == owner_is_within && self.own.is_some_and(goes_first) {
            return true;
        }
        // A team that borrows with a workload larger than its guarantee has work within guarantee beside it.
        let owner_has_larger_share = || self.share < scheduler.state.quotas.share(pool, reservation.team);
        within_guarantee && (!owner_is_within || owner_has_larger_share())
    }
}

/// The reservations in a pool that bind a waiting workload: those of owners before which it does not stand.
pub fn binding<'a>(
    scheduler: &'a Scheduler,
    waiting: &'a WaitingWorkload,
    pool: PoolId,
) -> impl Iterator<Item = (&'a Reservation, &'a Slot)> {
    let precedence = Precedence::of(scheduler, waiting, pool);
    scheduler.reservations.with_nodes(pool).filter_map(move |reservation| {
        let slot = reservation.slot()?;
        if reservation.owner == waiting.id || !waits(scheduler, &reservation.owner) {
            return None;
        }
        let is_before = match reservation.team == waiting.team {
            true => stands_before(scheduler, waiting, reservation),
            false => precedence.is_before(reservation, slot),
        };
        (!is_before).then_some((reservation, slot))
    })
}

/// The same reservations, as copies.
pub fn binding_copies(scheduler: &Scheduler, waiting: &WaitingWorkload, pool: PoolId) -> Vec<Reserved> {
    let binding = binding(scheduler, waiting, pool);
    binding.map(|(reservation, slot)| (reservation.clone(), slot.clone())).collect()
}

/// The reservations of other teams in a pool that do not bind a waiting workload, as copies; `binding` are those that do.
pub fn not_binding_copies(
    scheduler: &Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    binding: &[Reserved],
) -> Vec<Reserved> {
    let others = scheduler.reservations.with_nodes(pool).filter(|reservation| {
        reservation.team != waiting.team
            && waits(scheduler, &reservation.owner)
            && binding.iter().all(|(other, _)| other.owner != reservation.owner)
    });
    others.filter_map(|reservation| Some((reservation.clone(), reservation.slot().cloned()?))).collect()
}

/// Whether a reservation is deferred behind an owner that has not started yet.
pub fn is_deferred(scheduler: &Scheduler, pool: PoolId, reservation: &Reservation) -> bool {
    reservation.deferred_behind.as_ref().is_some_and(|older| {
        let owned = scheduler.reservations.owned_by(older);
        owned.is_some_and(|((there, _), _)| there == pool) && waits(scheduler, older)
    })
}

/// Whether the time limit of a workload that starts now ends it by then.
pub fn ends_by(scheduler: &Scheduler, waiting: &WaitingWorkload, now: Time, then: Time) -> bool {
    let limit = scheduler.state.get(&waiting.id).and_then(|info| rules::time_limit(&scheduler.state, info));
    limit.is_some_and(|limit| now.after(limit) <= then)
}

/// Whether a workload that starts now ends in time for a reservation.
///
/// Before a reserved start only its own limit counts: run times of similar workloads promise nothing. Where no start is
/// predicted they do: nine of ten runs like it end before half of the runs like the last workload in the way have ended
/// (law 7). Without that, capacity would be idle until an unknown time.
pub fn backfills(
    scheduler: &Scheduler,
    waiting: &WaitingWorkload,
    now: Time,
    (reservation, slot): (&Reservation, &Slot),
) -> bool {
    let state = &scheduler.state;
    let Some(info) = state.get(&waiting.id) else { return false };
    if let Some(start) = slot.at {
        return ends_by(scheduler, waiting, now, start);
    }
    let run_times = &scheduler.prediction.run_times;
    let Some(length) = run_times.length(state, info, Duration::ZERO) else { return false };
    let end = now.after(length.late);
    let lasts = |(node, pods): (&NodeId, &u32)| {
        last_in_the_way(scheduler, reservation, (*node, *pods), now).is_some_and(|last| end <= last)
    };
    slot.placement.iter().any(lasts)
}

/// When a running workload that is in an owner's way is expected to have ended, by the median of runs like it; `None` if it is
/// not in the way, or nothing tells.
pub fn likely_end_in_the_way(
    scheduler: &Scheduler,
    reservation: &Reservation,
    info: &WorkloadInfo,
    now: Time,
) -> Option<Time> {
    let admission = running_admission(info).filter(|admission| reservation.is_in_the_way(admission))?;
    let length = scheduler.prediction.run_times.length(&scheduler.state, info, now.since(admission.at))?;
    Some(admission.at.after(length.likely))
}

/// When the last workload that is in the way of so many pods of an owner on a node is expected to have ended; `None` if there is
/// none, or nothing tells. What has no expected end may end at once. What has started since the reservation counts as gone: it
/// would let in more without end, by itself or because a long run beside it seems to be in the way too.
fn last_in_the_way(
    scheduler: &Scheduler,
    reservation: &Reservation,
    (node, pods): (NodeId, u32),
    now: Time,
) -> Option<Time> {
    let state = &scheduler.state;
    let with_end = |(occupant, _)| (likely_end_in_the_way(scheduler, reservation, occupant, now), occupant);
    let mut occupants: Vec<(Option<Time>, &WorkloadInfo)> = state.occupants(node).map(with_end).collect();
    occupants.sort_by_key(|(end, _)| *end);
    let (mut freed, mut last) = (Freed::new(), None);
    for (end, occupant) in occupants {
        let capacity = Capacity::Settled(&freed);
        if end.is_some() && placement::capacity_for(state, node, &reservation.need, capacity) >= pods {
            break;
        }
        let staying = occupant.usage.staying().get(&node).copied().unwrap_or(0);
        freed.give(node, &occupant.workload.id, &occupant.need, staying);
        last = end;
    }
    last
}
