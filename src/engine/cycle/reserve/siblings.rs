//! Effects of a reservation on workloads of its own team, beside the reserved capacity.

use crate::cycle::reserve::beside::place_beside;
use crate::cycle::reserve::binding::{backfills, binding_copies, stands_before};
use crate::cycle::reserve::claims::LeaveWhole;
use crate::explain;
use crate::placement::waiting::{Attempt, WaitingWorkload};
use crate::prediction::timeline::Slot;
use crate::queue::rank::Rank;
use crate::scheduler::Scheduler;
use crate::scheduler::reservations::{Reservation, Reserved};
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{NodeId, PoolId};
use crate::types::vector::Vector;
use crate::types::{Time, Verdict};

/// The reservation of a sibling that stands before a waiting workload, and its owner, if it has a slot that the
/// workload cannot backfill.
fn sibling_before<'a>(
    scheduler: &'a Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    now: Time,
) -> Option<(&'a Reservation, &'a Slot, &'a WorkloadInfo)> {
    let reservation = scheduler.reservations.get(&(pool, waiting.team))?;
    let slot = reservation.slot()?;
    let owner = scheduler.state.get(&reservation.owner).filter(|owner| owner.phase == Phase::Pending)?;
    let before_owner = reservation.owner == waiting.id || stands_before(scheduler, waiting, reservation);
    (!before_owner && !backfills(scheduler, waiting, now, (reservation, slot))).then_some((
        reservation,
        slot,
        owner,
    ))
}

/// Checks that a workload leaves the guarantee that an owner before it needs. This matters only once other teams have
/// taken reserved capacity: until the owner is within guarantee, workloads within guarantee may take it again.
///
/// What runs and stands before the owner is taken to end before it starts, so only the rest counts (law 2 comes before
/// law 7): the owner is within guarantee after finitely many others.
///
/// # Errors
/// The verdict on the workload.
pub fn leave_guarantee_to_owner(
    scheduler: &Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    now: Time,
) -> Result<(), Verdict> {
    let state = &scheduler.state;
    let before = sibling_before(scheduler, waiting, pool, now).filter(|(reservation, ..)| reservation.taken);
    let Some((reservation, slot, owner)) = before else { return Ok(()) };
    let (quota, needs) = (state.quotas.quota_usage(pool, waiting.team), owner.least_total());
    let asked = || quota.governed().filter(|(index, _)| needs.get(*index) > 0);
    let uses_up = |ended: &Vector| {
        asked().any(|(index, guaranteed)| {
            let more = waiting.total.get(index);
            more > 0 && quota.counted(index, more, needs.get(index)) - ended.get(index) > guaranteed
        })
    };
    let uses_up = state.quotas.own_guarantee_holds(pool, waiting.team, &waiting.total)
        && asked().all(|(index, guaranteed)| needs.get(index) <= guaranteed)
        // The usage of all siblings is added up last, for the few workloads that come this far.
        && uses_up(&Vector::default())
        && uses_up(&usage_before(scheduler, pool, owner));
    if uses_up { Err(explain::guarantee_left(state, reservation, slot)) } else { Ok(()) }
}

/// What the siblings of an owner use that run and stand before it, and count against the guarantee of their team.
fn usage_before(scheduler: &Scheduler, pool: PoolId, owner: &WorkloadInfo) -> Vector {
    let state = &scheduler.state;
    let rank = |info: &WorkloadInfo| {
        Rank::new(state.priority_of(info), &info.workload, info.index).raised(info.raised)
    };
    let own = rank(owner);
    let before = state
        .holders(pool, owner.team)
        .filter(|info| rank(info) < own && !info.oversize.contains(&owner.team));
    before.fold(Vector::default(), |sum, info| sum.plus(&info.need, i64::from(info.usage.pods)))
}

/// Whether only capacity reserved for a borrowing sibling before it stops a workload within guarantee from starting,
/// and the team has its whole guarantee with that capacity. An eviction for the workload would in truth be for the
/// sibling.
pub fn team_has_reserved_capacity(scheduler: &mut Scheduler, attempt: Attempt<'_>) -> bool {
    let Attempt { waiting, pool, now, .. } = attempt;
    let state = &scheduler.state;
    let Some((reservation, slot, owner)) = sibling_before(scheduler, waiting, pool, now) else {
        return false;
    };
    let within_guarantee = |team, total: &Vector| state.quotas.own_guarantee_holds(pool, team, total);
    let lowest = scheduler.queue.reclaimable.lowest(pool, waiting.team);
    let may_preempt_siblings = lowest.is_some_and(|lowest| lowest < waiting.priority);
    if may_preempt_siblings
        || !within_guarantee(waiting.team, &waiting.total)
        || within_guarantee(owner.team, &owner.least_total())
    {
        return false;
    }
    let reserved = |index: usize| -> i64 {
        let on = |(node, pods): (&NodeId, &u32)| {
            let free = state.nodes.get(*node).now().amounts().get(index);
            free.clamp(0, reservation.need.get(index).saturating_mul(i64::from(*pods)))
        };
        slot.placement.iter().map(on).fold(0, i64::saturating_add)
    };
    let quota = state.quotas.quota_usage(pool, waiting.team);
    let has_all = |(index, guaranteed): (usize, i64)| {
        quota.counted(index, reserved(index), waiting.total.get(index)) > guaranteed
    };
    if !quota.governed().filter(|(index, _)| waiting.total.get(*index) > 0).all(has_all) {
        return false;
    }
    let others = binding_copies(scheduler, waiting, pool);
    let respected: Vec<&Reserved> = others.iter().filter(|(other, _)| other.team != waiting.team).collect();
    let lasts = |(reservation, slot): &&Reserved| !backfills(scheduler, waiting, now, (reservation, slot));
    let these = respected.iter().copied().filter(lasts).collect();
    place_beside(scheduler, attempt, &LeaveWhole { these, respected }).is_some()
}
