//! Brings the slot of a reservation up to date: an earlier one if possible, a later one if it cannot be held.

use std::mem::discriminant;

use crate::cycle::reserve::binding::{age, is_deferred, is_older, waits};
use crate::cycle::reserve::mask::{masks_for, with_masked};
use crate::cycle::reserve::quota::quota_start;
use crate::cycle::reserve::whole::{fits_then, is_whole};
use crate::placement::waiting::{Attempt, WaitingWorkload};
use crate::placement::{self, Capacity};
use crate::prediction::timeline::{Slot, Until};
use crate::scheduler::Scheduler;
use crate::scheduler::reservations::{QuotaStart, Reservation, ReservedCapacity};
use crate::state::lending;
use crate::types::ids::NodeId;
use crate::types::{Time, WorkloadId};

/// The most teams that have nodes reserved in one pool: each is reviewed whenever capacity comes free.
pub const MAX_RESERVATIONS: usize = 16;

/// Reviews the reservation of a waiting workload's team. If it has no nodes yet and may have some, older ones without nodes are reviewed
/// first: else an owner of another team could take the nodes that come free each time, before the older one is looked at.
pub fn review(scheduler: &mut Scheduler, attempt: Attempt<'_>) {
    let Attempt { pool, now, .. } = attempt;
    let Some(quota) = review_quota(scheduler, attempt) else { return };
    for owner in older_without_nodes(scheduler, attempt) {
        let Some(waiting) = WaitingWorkload::of(&scheduler.state, &owner) else { continue };
        let nodes = placement::eligible(&scheduler.state, &waiting.request(pool));
        let older = Attempt { waiting: &waiting, pool, nodes: &nodes, now };
        if let Some(quota) = review_quota(scheduler, older) {
            review_nodes(scheduler, older, quota);
        }
        scheduler.reservations.ended |= scheduler.reservations.get(&(pool, waiting.team)).is_none();
    }
    review_nodes(scheduler, attempt, quota);
}

/// The owners of older reservations for which no nodes were possible beside others, the oldest first, if the reservation of a waiting
/// workload has no nodes. What was reviewed since the last change is left out.
fn older_without_nodes(scheduler: &Scheduler, attempt: Attempt<'_>) -> Vec<WorkloadId> {
    let Attempt { waiting, pool, .. } = attempt;
    let own = scheduler.reservations.get(&(pool, waiting.team)).filter(|own| own.slot().is_none());
    let Some(own) = own else { return Vec::new() };
    let generation = scheduler.cursor.generation();
    let mut older: Vec<&Reservation> = scheduler
        .reservations
        .with_nodes(pool)
        .filter(|other| other.is_infeasible() && other.team != own.team && other.reviewed != generation)
        .filter(|other| waits(scheduler, &other.owner) && is_older(scheduler, other, own))
        .collect();
    older.sort_by_cached_key(|other| age(scheduler, other));
    older.into_iter().map(|other| other.owner.clone()).collect()
}

/// Reviews when the quota of an owner comes free, which it returns; `None` if no nodes are kept for it now.
fn review_quota(scheduler: &mut Scheduler, attempt: Attempt<'_>) -> Option<QuotaStart> {
    let Attempt { waiting, pool, now, .. } = attempt;
    let prediction = &mut scheduler.prediction;
    prediction.timeline.catch_up(&scheduler.state, &prediction.run_times, pool, now);
    let reservation = scheduler.reservations.get(&(pool, waiting.team)).cloned()?;
    let Some(quota) = quota_start(scheduler, waiting, pool, now) else {
        scheduler.reservations.remove(&(pool, waiting.team));
        if reservation.keeps_quota() {
            scheduler.cursor.note_looser_below([reservation.root]);
        }
        return None;
    };
    let generation = scheduler.cursor.generation();
    scheduler.reservations.change(&(pool, waiting.team), |reservation| {
        (reservation.quota, reservation.reviewed) = (quota, generation);
    });
    // No node is kept idle while nothing tells when the quota of the owner comes free.
    let without_nodes = quota == QuotaStart::Unpredictable
        || reservation.slot().is_none() && others_with_nodes(scheduler, attempt) >= MAX_RESERVATIONS;
    if without_nodes {
        let keeps_quota = reservation.due <= now || matches!(quota, QuotaStart::At(_));
        let capacity = if keeps_quota { ReservedCapacity::Quota } else { ReservedCapacity::Waiting };
        set_without_nodes(scheduler, attempt, &reservation, capacity);
        return None;
    }
    Some(quota)
}

/// Reviews the nodes that are kept for an owner, with the time at which its quota comes free.
fn review_nodes(scheduler: &mut Scheduler, attempt: Attempt<'_>, quota: QuotaStart) {
    let place = (attempt.pool, attempt.waiting.team);
    let Some(reservation) = scheduler.reservations.get(&place).cloned() else { return };
    match next_step(scheduler, attempt, &reservation, quota) {
        NextStep::Keep => {}
        NextStep::Postponed(slot) => set_slot(scheduler, attempt, slot, quota),
        NextStep::Search(until) => search(scheduler, attempt, &reservation, quota, until),
    }
}

/// Searches a slot for the owner, and ends what the reservation keeps if there is none; it stays where only an earlier one was
/// searched.
fn search(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    reservation: &Reservation,
    quota: QuotaStart,
    until: Until,
) {
    let found = earliest(scheduler, attempt, until).map(|slot| not_before(slot, quota));
    if let Until::Before(at) = until {
        // Capacity that comes free when ending pods are gone counts as free now, so it is not an earlier time.
        if let Some(sooner) = found.filter(|slot| slot.at < Some(at)) {
            set_slot(scheduler, attempt, sooner, quota);
        }
        return;
    }
    // A fraction of a device may be free only as long as the device is shared, not once it is reserved whole.
    let lasting = found.and_then(|found| postponed(scheduler, attempt, reservation, &found));
    match lasting.filter(|slot| until == Until::All || slot.at.is_some()) {
        Some(slot) => set_slot(scheduler, attempt, slot, quota),
        None if until == Until::All => give_up_slot(scheduler, attempt, reservation),
        None => set_without_nodes(scheduler, attempt, reservation, ReservedCapacity::Waiting),
    }
}

/// A slot, put off until the quota is free.
fn not_before(slot: Slot, quota: QuotaStart) -> Slot {
    match quota {
        QuotaStart::At(free) => Slot { at: slot.at.map(|at| at.max(free)), ..slot },
        _ => slot,
    }
}

/// The number of other reservations in the pool that keep nodes, or are to.
fn others_with_nodes(scheduler: &Scheduler, attempt: Attempt<'_>) -> usize {
    let others = scheduler.reservations.with_nodes(attempt.pool);
    others.filter(|other| other.team != attempt.waiting.team).count()
}

/// Keeps no nodes for the owner: quota alone, or nothing yet. If it is so already, that is decided again: a start that is foreseen
/// for now, because a workload is about to end, is no reason to review the reservation before something changes.
fn set_without_nodes(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    reservation: &Reservation,
    capacity: ReservedCapacity,
) {
    if discriminant(&reservation.capacity) != discriminant(&capacity) {
        set(scheduler, attempt, capacity);
    } else {
        let place = (attempt.pool, attempt.waiting.team);
        scheduler.reservations.change(&place, |reservation| reservation.decided = attempt.now);
    }
}

/// The next step of a review.
enum NextStep {
    /// The slot stays.
    Keep,
    /// The same nodes at a later time.
    Postponed(Slot),
    /// Search for a slot.
    Search(Until),
}

/// Whether the present slot can stay, and how far to search if not.
fn next_step(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    reservation: &Reservation,
    quota: QuotaStart,
) -> NextStep {
    let Attempt { pool, nodes, now, .. } = attempt;
    let Some(slot) = reservation.slot() else {
        let too_early = reservation.due > now || is_deferred(scheduler, pool, reservation);
        return NextStep::Search(if too_early { Until::Predicted } else { Until::All });
    };
    if !slot.placement.keys().all(|node| nodes.contains(node)) {
        return NextStep::Search(Until::All);
    }
    let passed = slot.at.is_some_and(|at| at < now);
    if passed || !is_whole(scheduler, pool, reservation, slot) {
        // A wrong estimate postpones the start on the same nodes: some workloads have ended there already, and on
        // other nodes the wait would begin again.
        let later = postponed(scheduler, attempt, reservation, slot);
        // Nodes without a foreseeable start are kept from `due` on only, whatever was foreseen before: a replica that takes
        // over knows no more than that.
        if reservation.due > now && later.as_ref().is_none_or(|later| later.at.is_none()) {
            return NextStep::Search(Until::Predicted);
        }
        return later.map_or(NextStep::Search(Until::All), NextStep::Postponed);
    }
    let start = slot.at.unwrap_or(Time(i64::MAX));
    match quota {
        QuotaStart::At(free) if free > start => return NextStep::Postponed(slot.clone()),
        QuotaStart::At(free) if free == start => return NextStep::Keep,
        _ => {}
    }
    if scheduler.prediction.timeline.has_certain_end_before(pool, start) {
        NextStep::Search(Until::Before(start))
    } else {
        NextStep::Keep
    }
}

/// Keeps a slot for the owner, from when its quota is free.
fn set_slot(scheduler: &mut Scheduler, attempt: Attempt<'_>, slot: Slot, quota: QuotaStart) {
    set(scheduler, attempt, ReservedCapacity::Slot(not_before(slot, quota)));
}

/// Sets the capacity of the reservation.
fn set(scheduler: &mut Scheduler, attempt: Attempt<'_>, capacity: ReservedCapacity) {
    let place = (attempt.pool, attempt.waiting.team);
    if let Some(root) = scheduler.reservations.get(&place).map(|reservation| reservation.root) {
        scheduler.reservations.change(&place, |reservation| reservation.keep(capacity, attempt.now));
        scheduler.cursor.note_looser_below([root]);
    }
}

/// Marks a reservation infeasible beside the other teams', or removes it where even an empty pool would not do.
fn give_up_slot(scheduler: &mut Scheduler, attempt: Attempt<'_>, reservation: &Reservation) {
    let place = (attempt.pool, attempt.waiting.team);
    let infeasible = is_possible(scheduler, attempt);
    let changed = !infeasible || !reservation.is_infeasible();
    if infeasible {
        let capacity = ReservedCapacity::Infeasible;
        scheduler.reservations.change(&place, |reservation| reservation.keep(capacity, attempt.now));
    } else {
        scheduler.reservations.remove(&place);
    }
    if changed {
        scheduler.cursor.note_looser_below([reservation.root]);
    }
}

/// The earliest slot for a workload beside the reservations that bind it.
pub fn earliest(scheduler: &mut Scheduler, attempt: Attempt<'_>, until: Until) -> Option<Slot> {
    let Attempt { waiting, pool, now, .. } = attempt;
    let prediction = &mut scheduler.prediction;
    prediction.timeline.catch_up(&scheduler.state, &prediction.run_times, pool, now);
    let masked = masks_for(scheduler, waiting, pool);
    with_masked(scheduler, &masked, |scheduler| {
        scheduler.prediction.timeline.slot(&scheduler.state, attempt, until)
    })
}

/// Whether a slot would exist some day if nothing were reserved for others.
pub fn is_possible(scheduler: &Scheduler, attempt: Attempt<'_>) -> bool {
    scheduler.prediction.timeline.slot(&scheduler.state, attempt, Until::All).is_some()
}

/// The same nodes at the earliest time from now on beside the reservations that bind the owner; `None` if they can
/// never be had.
fn postponed(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    reservation: &Reservation,
    slot: &Slot,
) -> Option<Slot> {
    let Attempt { waiting, pool, now, .. } = attempt;
    let there = slot.placement.keys().flat_map(|node| scheduler.state.occupants(*node));
    let ends = there.filter_map(|(info, _)| scheduler.prediction.timeline.end(&info.workload.id));
    let own = slot.at.into_iter().filter(|at| *at > now);
    let mut times: Vec<Option<Time>> =
        ends.filter(|end| *end >= now).chain(own).chain([now]).map(Some).collect();
    times.sort_unstable();
    times.push(None);
    let masked = masks_for(scheduler, waiting, pool);
    with_masked(scheduler, &masked, |scheduler| {
        let mut slots = times.into_iter().map(|at| Slot { at, placement: slot.placement.clone() });
        let is_there = |slot: &Slot| {
            let mut places = slot.placement.iter();
            places.all(|(node, pods)| fits_then(scheduler, reservation, slot, (*node, *pods), None))
        };
        let first = slots.find(is_there)?;
        if first.at.is_none_or(|at| may_start_then(scheduler, attempt, &first, at)) {
            return Some(first);
        }
        // Capacity on these nodes is not all that it waits for. A time that has not passed yet was found with all of it; one
        // that has passed has to be found again.
        if slot.at.is_some_and(|at| at < now) {
            return None;
        }
        slots
            .find(|later| (later.at.is_none() || later.at >= slot.at && slot.at.is_some()) && is_there(later))
    })
}

/// Whether what a workload needs besides capacity on the nodes of a slot is there at that time: its constraints between pods
/// hold, and other teams lend what it borrows.
fn may_start_then(scheduler: &Scheduler, attempt: Attempt<'_>, slot: &Slot, at: Time) -> bool {
    let Attempt { waiting, pool, .. } = attempt;
    let state = &scheduler.state;
    let borrows = !waiting.within_guarantee(state, pool) && state.quotas.has_reserves(pool);
    if !borrows && !waiting.profile.is_constrained() {
        return true;
    }
    let freed = scheduler.prediction.timeline.freed_until(state, pool, at);
    let nodes: Vec<NodeId> = slot.placement.keys().copied().collect();
    (!borrows || lending::will_allow(state, waiting.loan(pool), &freed, None))
        && Capacity::Settled(&freed).place(state, waiting, pool, &nodes).is_some()
}
