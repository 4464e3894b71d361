//! Where a workload may start beside the reservations.

use crate::cycle::reserve::beside::place_beside;
use crate::cycle::reserve::binding::{backfills, binding_copies, not_binding};
use crate::cycle::reserve::quota::leave_quota;
use crate::cycle::reserve::siblings::leave_guarantee_to_owner;
use crate::cycle::reserve::whole::{ends_lending, first_broken};
use crate::explain;
use crate::placement::Placement;
use crate::placement::waiting::{Attempt, WaitingWorkload};
use crate::queue::order;
use crate::scheduler::Scheduler;
use crate::scheduler::reservations::{Reservation, Reserved, ReservedCapacity};
use crate::types::Verdict;
use crate::types::ids::PoolId;

/// A start that leaves the reservations whole that bind the workload.
pub struct Beside {
    found: Placement,
    /// The reservations that bind the workload and that it does not backfill.
    kept: Vec<Reserved>,
    /// Those that do not bind it.
    others: Vec<Reserved>,
    /// All that bind it.
    respected: Vec<Reserved>,
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
    leave_guarantee_to_owner(scheduler, waiting, pool, now)?;
    leave_quota(scheduler, waiting, pool, now)?;
    let respected = binding_copies(scheduler, waiting, pool);
    let lasts = |(reservation, slot): &Reserved| !backfills(scheduler, waiting, now, (reservation, slot));
    let kept: Vec<Reserved> = respected.iter().filter(|reserved| lasts(reserved)).cloned().collect();
    // Lending counts the whole pool, so no other nodes help.
    if let Some((reservation, slot)) = kept.iter().find(|kept| ends_lending(scheduler, waiting, pool, kept)) {
        return Err(explain::reserved(&scheduler.state, reservation, slot));
    }
    let mut others = not_binding(scheduler, waiting, pool, &respected);
    others.retain(lasts);
    let found = match first_broken(scheduler, pool, (&waiting.need, &found), &kept, &respected) {
        None => found,
        Some((reservation, slot)) => {
            let verdict = explain::reserved(&scheduler.state, reservation, slot);
            place_beside(scheduler, attempt, &kept, &respected).ok_or(verdict)?
        }
    };
    Ok(Beside { found, kept, others, respected })
}

/// Where a workload may start that could start at `found` but for reservations, so that all of them stay whole, also those
/// that do not bind it; `None` if there is no such start. Nothing changes.
pub fn sparing_all(scheduler: &mut Scheduler, attempt: Attempt<'_>, found: Placement) -> Option<Placement> {
    let Beside { found, kept, others, respected } = admissible(scheduler, attempt, found).ok()?;
    sparing(scheduler, attempt, found, (&kept, &others), &respected)
}

/// Where a workload may start that leaves the reservations whole that do not bind it (`others`), and those that it keeps.
fn sparing(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    found: Placement,
    (kept, others): (&[Reserved], &[Reserved]),
    respected: &[Reserved],
) -> Option<Placement> {
    let Attempt { waiting, pool, .. } = attempt;
    let all = [respected, others].concat();
    if first_broken(scheduler, pool, (&waiting.need, &found), others, &all).is_none() {
        return Some(found);
    }
    place_beside(scheduler, attempt, &[kept, others].concat(), &all)
}

/// Settles such a start: where the workload starts, so that it spares reservations which do not bind it.
pub fn settle(scheduler: &mut Scheduler, attempt: Attempt<'_>, beside: Beside) -> Placement {
    let Beside { found, kept, others, respected } = beside;
    let found = spare_others(scheduler, attempt, found, (kept, others), respected);
    note_taken(scheduler, attempt.waiting, attempt.pool, &found);
    found
}

/// Notes the reservations of other teams that lose capacity to a workload, because it could not leave them whole.
pub fn note_taken(scheduler: &mut Scheduler, waiting: &WaitingWorkload, pool: PoolId, placement: &Placement) {
    let respected = binding_copies(scheduler, waiting, pool);
    let mut others = not_binding(scheduler, waiting, pool, &respected);
    others.retain(|(_, slot)| slot.placement.keys().any(|node| placement.contains_key(node)));
    let all = [respected.as_slice(), &others].concat();
    for reserved in &others {
        let broken =
            first_broken(scheduler, pool, (&waiting.need, placement), std::slice::from_ref(reserved), &all)
                .is_some();
        if broken {
            scheduler.reservations.change(&(pool, reserved.0.team), |reservation| reservation.taken = true);
        }
    }
}

/// Where a workload starts that may start at `found`, so that reservations that do not bind it (`others`) stay whole
/// where that is possible. Where only a reservation of its own team with no predictable time is in the way, the
/// younger of the two reservations is deferred: otherwise two teams could keep each other's owners waiting for ever.
fn spare_others(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    found: Placement,
    (mut kept, mut others): (Vec<Reserved>, Vec<Reserved>),
    mut respected: Vec<Reserved>,
) -> Placement {
    let Attempt { waiting, pool, .. } = attempt;
    if let Some(there) = sparing(scheduler, attempt, found.clone(), (&kept, &others), &respected) {
        return there;
    }
    let own =
        kept.iter().position(|(reservation, slot)| reservation.team == waiting.team && slot.at.is_none());
    let Some((own, _)) = own.map(|own| kept.remove(own)) else { return found };
    let age = |reservation: &Reservation| {
        let position = order::queue_position(&scheduler.state, &scheduler.queue.pending, &reservation.owner);
        (reservation.due, position)
    };
    others.retain(|(reservation, _)| age(reservation) < age(&own));
    respected.retain(|(reservation, _)| reservation.owner != own.owner);
    let (lasting, all) = ([kept.as_slice(), &others].concat(), [respected.as_slice(), &others].concat());
    let Some((older, _)) = first_broken(scheduler, pool, (&waiting.need, &found), &others, &all) else {
        return found;
    };
    let Some(there) = place_beside(scheduler, attempt, &lasting, &all) else { return found };
    if scheduler.reservations.get(&(pool, waiting.team)).is_some() {
        scheduler.reservations.change(&(pool, waiting.team), |reservation| {
            reservation.capacity = ReservedCapacity::Waiting;
            reservation.deferred_behind = Some(older.owner.clone());
        });
        scheduler.cursor.generation += 1;
        scheduler.reservations.ended = true;
    }
    there
}
