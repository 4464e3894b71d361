//! What those of one team leave to the one of them that has its turn, beside the room that is reserved for it.

use crate::cycle::reserve::kept::{before, elsewhere, passes, respected, within_own_guarantee};
use crate::explain;
use crate::placement::waiting::WaitingWorkload;
use crate::prediction::timeline::Slot;
use crate::scheduler::Scheduler;
use crate::scheduler::reservations::{Reservation, Reserved};
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{NodeId, PoolId};
use crate::types::vector::Vector;
use crate::types::{Time, Verdict};

/// The turn of a mate that goes before a candidate, and who holds it, if room is reserved for it at a time at which
/// the candidate would still run.
fn ahead<'a>(
    scheduler: &'a Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    now: Time,
) -> Option<(&'a Reservation, &'a Slot, &'a WorkloadInfo)> {
    let reservation = scheduler.reservations.by_team.get(&(pool, waiting.team))?;
    let slot = reservation.slot.as_ref()?;
    let owner = scheduler.state.get(&reservation.owner).filter(|owner| owner.phase == Phase::Pending)?;
    let goes_before = reservation.owner == waiting.id || before(scheduler, waiting, reservation);
    (!goes_before && !passes(scheduler, waiting, now, slot)).then_some((reservation, slot, owner))
}

/// Lets a candidate pass unless others have taken of the room that is reserved for a mate before it, and it would take
/// of their team's guarantee what that one needs to be owed its start: until then whoever is owed goes before it.
///
/// # Errors
/// The verdict on the candidate.
pub fn not_crowding(
    scheduler: &Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    now: Time,
) -> Result<(), Verdict> {
    let state = &scheduler.state;
    let ahead = ahead(scheduler, waiting, pool, now).filter(|(reservation, ..)| reservation.overtaken);
    let Some((reservation, slot, owner)) = ahead else { return Ok(()) };
    let (quota_usage, needs) = (state.quotas.quota_usage(pool, waiting.team), owner.least_total());
    let asked = || quota_usage.governed().filter(|(index, _)| needs.get(*index) > 0);
    let crowds = |(index, guaranteed): (usize, i64)| {
        let more = waiting.total.get(index);
        more > 0 && quota_usage.settled(index) + more + needs.get(index) > guaranteed
    };
    let crowds = within_own_guarantee(state, waiting.team, &waiting.total, pool)
        && asked().all(|(index, guaranteed)| needs.get(index) <= guaranteed)
        && asked().any(crowds);
    if crowds { Err(explain::crowding(state, reservation, slot)) } else { Ok(()) }
}

/// Whether a candidate that is owed its start has its guarantee already, with what is kept free for a mate before it
/// that is not, and nothing but that keeps it from starting: who left for it would in truth leave for that one.
pub fn has_kept_room(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    (pool, nodes): (PoolId, &[NodeId]),
    now: Time,
) -> bool {
    let state = &scheduler.state;
    let Some((reservation, slot, owner)) = ahead(scheduler, waiting, pool, now) else { return false };
    let within_guarantee = |team, total: &Vector| within_own_guarantee(state, team, total, pool);
    let may_take_mates = scheduler
        .queue
        .reclaimable
        .lowest(pool, waiting.team)
        .is_some_and(|lowest| lowest < waiting.priority);
    if may_take_mates
        || !within_guarantee(waiting.team, &waiting.total)
        || within_guarantee(owner.team, &owner.least_total())
    {
        return false;
    }
    let kept = |index: usize| -> i64 {
        let on = |(node, pods): (&NodeId, &u32)| {
            let free = state.nodes.get(*node).now().amounts().get(index);
            free.clamp(0, reservation.need.get(index) * i64::from(*pods))
        };
        slot.placement.iter().map(on).sum()
    };
    let quota_usage = state.quotas.quota_usage(pool, waiting.team);
    let has = |(index, guaranteed): (usize, i64)| {
        quota_usage.settled(index) + kept(index) + waiting.total.get(index) > guaranteed
    };
    if !quota_usage.governed().filter(|(index, _)| waiting.total.get(*index) > 0).all(has) {
        return false;
    }
    let others = respected(scheduler, waiting, pool).filter(|(other, _)| other.team != waiting.team);
    let others: Vec<Reserved> =
        others.map(|(reservation, slot)| (reservation.clone(), slot.clone())).collect();
    let lasts = |(_, slot): &&Reserved| !passes(scheduler, waiting, now, slot);
    let kept: Vec<Reserved> = others.iter().filter(lasts).cloned().collect();
    elsewhere(scheduler, waiting, (pool, nodes), &kept, &others).is_some()
}
