//! Which reservations bind a workload, and which it may backfill.

use std::time::Duration;

use crate::placement::waiting::WaitingWorkload;
use crate::prediction::run_times;
use crate::prediction::timeline::{Slot, running_admission};
use crate::scheduler::Scheduler;
use crate::scheduler::reservations::{Reservation, Reserved};
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::PoolId;
use crate::types::{Time, WorkloadId};

/// Whether a workload waits.
pub fn waits(scheduler: &Scheduler, id: &WorkloadId) -> bool {
    scheduler.state.get(id).is_some_and(|info| info.phase == Phase::Pending)
}

/// Whether a waiting workload stands before the owner of a reservation in their team.
pub fn stands_before(scheduler: &Scheduler, waiting: &WaitingWorkload, reservation: &Reservation) -> bool {
    let pending = &scheduler.queue.pending;
    let ranks = pending.rank(&waiting.id).zip(pending.rank(&reservation.owner));
    ranks.is_some_and(|(rank, owner)| rank < owner)
}

/// The reservations in a pool that bind a waiting workload: those of owners that do not stand behind it.
pub fn binding<'a>(
    scheduler: &'a Scheduler,
    waiting: &'a WaitingWorkload,
    pool: PoolId,
) -> impl Iterator<Item = (&'a Reservation, &'a Slot)> {
    let state = &scheduler.state;
    // Guarantees above its own team's may be met by evicting borrowers.
    let within_guarantee = state.quotas.own_guarantee_holds(pool, waiting.team, &waiting.total);
    let owner_within_guarantee = move |reservation: &Reservation| {
        let owner = state.get(&reservation.owner);
        owner.is_some_and(|owner| state.quotas.own_guarantee_holds(pool, owner.team, &owner.least_total()))
    };
    scheduler.reservations.in_pool(pool).filter_map(move |reservation| {
        let slot = reservation.slot()?;
        if reservation.owner == waiting.id || !waits(scheduler, &reservation.owner) {
            return None;
        }
        let before_owner = if reservation.team == waiting.team {
            stands_before(scheduler, waiting, reservation)
        } else {
            within_guarantee && !owner_within_guarantee(reservation)
        };
        (!before_owner).then_some((reservation, slot))
    })
}

/// The same reservations, as copies.
pub fn binding_copies(scheduler: &Scheduler, waiting: &WaitingWorkload, pool: PoolId) -> Vec<Reserved> {
    let binding = binding(scheduler, waiting, pool);
    binding.map(|(reservation, slot)| (reservation.clone(), slot.clone())).collect()
}

/// The reservations of other teams in a pool that do not bind a waiting workload.
pub fn not_binding(
    scheduler: &Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    binding: &[Reserved],
) -> Vec<Reserved> {
    let others = scheduler.reservations.in_pool(pool).filter(|reservation| {
        reservation.team != waiting.team
            && waits(scheduler, &reservation.owner)
            && binding.iter().all(|(other, _)| other.owner != reservation.owner)
    });
    others.filter_map(|reservation| Some((reservation.clone(), reservation.slot().cloned()?))).collect()
}

/// Whether a reservation is deferred behind an owner that has not started yet.
pub fn is_deferred(scheduler: &Scheduler, pool: PoolId, reservation: &Reservation) -> bool {
    reservation.deferred_behind.as_ref().is_some_and(|older| {
        let mut reservations = scheduler.reservations.in_pool(pool);
        reservations.any(|reservation| reservation.owner == *older) && waits(scheduler, older)
    })
}

/// Whether a workload that starts now ends in time for a reservation.
///
/// Before a reserved start only its own limit counts: run times of similar workloads promise nothing. Where no start is
/// predicted they do: nine of ten runs like it end before half of the runs like the last workload in the way have ended
/// (law 7). Without that, room would be idle until a time that nobody knows.
pub fn backfills(scheduler: &Scheduler, waiting: &WaitingWorkload, now: Time, slot: &Slot) -> bool {
    let state = &scheduler.state;
    let Some(info) = state.get(&waiting.id) else { return false };
    if let Some(start) = slot.at {
        return run_times::limit(state, info).is_some_and(|limit| now.after(limit) <= start);
    }
    let run_times = &scheduler.prediction.run_times;
    let Some(length) = run_times.length(state, info, Duration::ZERO) else { return false };
    let end = now.after(length.late);
    let ends_later = |occupant: &WorkloadInfo| {
        let Some(admission) = running_admission(occupant) else { return false };
        let likely = run_times.length(state, occupant, now.since(admission.at)).map(|length| length.likely);
        likely.is_some_and(|likely| admission.at.after(likely) >= end)
    };
    slot.placement.keys().any(|node| state.occupants(*node).any(|(occupant, _)| ends_later(occupant)))
}
