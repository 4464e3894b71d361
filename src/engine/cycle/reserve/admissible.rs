//! Where a workload may start beside the reservations.

use crate::cycle::reserve::beside::place_beside;
use crate::cycle::reserve::binding::{binding_copies, not_binding_copies};
use crate::cycle::reserve::claims::Claims;
use crate::cycle::reserve::owners::note_ended;
use crate::cycle::reserve::quota::leave_quota;
use crate::cycle::reserve::siblings::leave_guarantee_to_owner;
use crate::cycle::reserve::whole::{ends_lending, first_broken, stays_whole};
use crate::explain;
use crate::placement::Placement;
use crate::placement::waiting::{Attempt, WaitingWorkload};
use crate::queue::order;
use crate::scheduler::Scheduler;
use crate::scheduler::reservations::{Reservation, Reserved, ReservedCapacity};
use crate::types::ids::PoolId;
use crate::types::{Time, Verdict};

/// A start that leaves the reservations whole that bind the workload.
pub struct Beside {
    found: Placement,
    claims: Claims,
}

/// Where a workload may start that could start at `found` but for reservations. Nothing changes yet.
///
/// # Errors
/// The verdict on the workload, which names the owner it must wait for.
pub fn admissible(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    found: Placement,
) -> Result<Beside, Verdict> {
    let Attempt { waiting, pool, now, .. } = attempt;
    leave_quotas_to_owners(scheduler, waiting, pool, now)?;
    let claims = Claims::of(scheduler, attempt);
    // Lending counts the whole pool, so no other nodes help.
    let ends_lending = |reserved: &&Reserved| ends_lending(scheduler, waiting, pool, reserved);
    if let Some((reservation, slot)) = claims.kept.iter().find(ends_lending) {
        return Err(explain::reserved(&scheduler.state, reservation, slot));
    }
    let must = claims.must();
    let found = match first_broken(scheduler, pool, (&waiting.need, &found), &must) {
        None => found,
        Some((reservation, slot)) => {
            let verdict = explain::reserved(&scheduler.state, reservation, slot);
            place_beside(scheduler, attempt, &must).ok_or(verdict)?
        }
    };
    Ok(Beside { found, claims })
}

/// Checks that a workload leaves owners before it the guarantee and the quota that they need, wherever it starts.
///
/// # Errors
/// The verdict on the workload, which names the owner it must wait for.
pub fn leave_quotas_to_owners(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    now: Time,
) -> Result<(), Verdict> {
    leave_guarantee_to_owner(scheduler, waiting, pool, now)?;
    leave_quota(scheduler, waiting, pool, now)
}

/// Where a workload may start that could start at `found` but for reservations, so that all of them stay whole, also those
/// that do not bind it; `None` if there is no such start. Nothing changes.
pub fn sparing_all(scheduler: &mut Scheduler, attempt: Attempt<'_>, found: Placement) -> Option<Placement> {
    let Beside { found, claims } = admissible(scheduler, attempt, found).ok()?;
    sparing(scheduler, attempt, found, &claims)
}

/// Where a workload may start that may start at `found`, so that it leaves whole what it keeps and what it spares.
fn sparing(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    found: Placement,
    claims: &Claims,
) -> Option<Placement> {
    let Attempt { waiting, pool, .. } = attempt;
    match first_broken(scheduler, pool, (&waiting.need, &found), &claims.should()) {
        None => Some(found),
        Some(_) => place_beside(scheduler, attempt, &claims.both()),
    }
}

/// Settles such a start: where the workload starts, so that it spares reservations which do not bind it.
pub fn settle(scheduler: &mut Scheduler, attempt: Attempt<'_>, beside: Beside) -> Placement {
    let Beside { found, claims } = beside;
    let start = match sparing(scheduler, attempt, found.clone(), &claims) {
        Some(start) => start,
        None => defer_younger(scheduler, attempt, &found, claims).unwrap_or(found),
    };
    note_taken(scheduler, attempt.waiting, attempt.pool, &start);
    start
}

/// Notes the reservations of other teams that lose capacity to a workload, because it could not leave them whole.
pub fn note_taken(scheduler: &mut Scheduler, waiting: &WaitingWorkload, pool: PoolId, placement: &Placement) {
    let binding = binding_copies(scheduler, waiting, pool);
    let mut others = not_binding_copies(scheduler, waiting, pool, &binding);
    others.retain(|(_, slot)| slot.placement.keys().any(|node| placement.contains_key(node)));
    let respected: Vec<&Reserved> = binding.iter().chain(&others).collect();
    for (reservation, slot) in &others {
        if !stays_whole(scheduler, pool, (reservation, slot), &respected, (&waiting.need, placement)) {
            scheduler.reservations.change(&(pool, reservation.team), |reservation| reservation.taken = true);
        }
    }
}

/// Where a workload starts that may start at `found` and cannot spare all that does not bind it there: where only a reservation
/// of its own team with no predictable time is in the way of sparing, the younger of the two reservations is deferred. Otherwise
/// two teams could keep each other's owners waiting for ever. `None` if that does not help, or no older one is in the way.
fn defer_younger(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    found: &Placement,
    mut claims: Claims,
) -> Option<Placement> {
    let Attempt { waiting, pool, now, .. } = attempt;
    let is_own = |(reservation, slot): &Reserved| reservation.team == waiting.team && slot.at.is_none();
    let (own, _) = claims.kept.iter().position(is_own).map(|own| claims.kept.remove(own))?;
    let age = |reservation: &Reservation| {
        let position = order::queue_position(&scheduler.state, &scheduler.queue.pending, &reservation.owner);
        (reservation.due, position)
    };
    claims.spared.retain(|(reservation, _)| age(reservation) < age(&own));
    let (older, _) = first_broken(scheduler, pool, (&waiting.need, found), &claims.should())?;
    let start = place_beside(scheduler, attempt, &claims.both())?;
    if let Some(root) = scheduler.reservations.get(&(pool, waiting.team)).map(|own| own.root) {
        scheduler.reservations.change(&(pool, waiting.team), |reservation| {
            reservation.keep(ReservedCapacity::Waiting, now);
            reservation.deferred_behind = Some(older.owner.clone());
        });
        note_ended(scheduler, root);
    }
    Some(start)
}
