//! Whether reserved capacity is there at the reserved time, now or with a workload beside it.

use crate::cycle::reserve::binding::binding;
use crate::cycle::reserve::claims::LeaveWhole;
use crate::cycle::reserve::mask::{mask_of, with_masked};
use crate::placement::waiting::WaitingWorkload;
use crate::placement::{self, Capacity, Placement};
use crate::prediction::timeline::{self, Slot};
use crate::preemption::Masked;
use crate::scheduler::Scheduler;
use crate::scheduler::reservations::{Reservation, Reserved};
use crate::state::freed::Freed;
use crate::state::lending;
use crate::state::quotas::Account;
use crate::state::rules;
use crate::state::workload::WorkloadInfo;
use crate::types::WorkloadId;
use crate::types::ids::{NodeId, PoolId};
use crate::types::vector::Vector;

/// What is reserved on a reservation's nodes for owners before its own: they bind it, and start no later. Where a workload is to
/// come, only what that workload `respects` of it counts: it takes the place of the rest.
pub fn reserved_before(
    scheduler: &Scheduler,
    pool: PoolId,
    (reservation, slot): (&Reservation, &Slot),
    respects: impl Fn(&Reservation) -> bool,
) -> Vec<Masked> {
    let Some(owner) = WaitingWorkload::of(&scheduler.state, &reservation.owner) else { return Vec::new() };
    let no_later = |other: &Slot| (other.at.is_none(), other.at) <= (slot.at.is_none(), slot.at);
    let owner = owner.in_pool(&scheduler.state, pool);
    let before = binding(scheduler, &owner, pool).filter(|(other, others_slot)| {
        respects(other)
            && no_later(others_slot)
            && others_slot.placement.keys().any(|node| slot.placement.contains_key(node))
    });
    before.map(|(other, slot)| mask_of(other, slot)).collect()
}

/// Whether a reservation is one of these.
pub fn is_among(reserved: &[&Reserved], reservation: &Reservation) -> bool {
    reserved.iter().any(|(other, _)| other.owner == reservation.owner)
}

/// Whether the reserved capacity is there at the reserved time.
pub fn is_whole(scheduler: &mut Scheduler, pool: PoolId, reservation: &Reservation, slot: &Slot) -> bool {
    let before = reserved_before(scheduler, pool, (reservation, slot), |_| true);
    with_masked(scheduler, &before, |scheduler| {
        slot.placement
            .iter()
            .all(|(node, pods)| fits_then(scheduler, reservation, slot, (*node, *pods), None))
    })
}

/// Whether it is still there if pods of this need come to these nodes, of a workload that respects these reservations.
pub fn stays_whole(
    scheduler: &mut Scheduler,
    pool: PoolId,
    (reservation, slot): (&Reservation, &Slot),
    respected: &[&Reserved],
    (need, placement): (&Vector, &Placement),
) -> bool {
    if !slot.placement.keys().any(|node| placement.contains_key(node)) {
        return true;
    }
    let before = reserved_before(scheduler, pool, (reservation, slot), |other| is_among(respected, other));
    with_masked(scheduler, &before, |scheduler| {
        let mut shared = slot.placement.iter().filter_map(|at| Some((at, placement.get(at.0)?)));
        shared.all(|((node, pods), more)| {
            fits_then(scheduler, reservation, slot, (*node, *pods), Some((need, *more)))
        })
    })
}

/// Whether other teams would not lend the owner of a reservation what it borrows at its start any more, if a workload ran beside it
/// then.
pub fn ends_lending(
    scheduler: &Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    (reservation, slot): &Reserved,
) -> bool {
    let state = &scheduler.state;
    let owner = WaitingWorkload::of(state, &reservation.owner).filter(|_| state.quotas.has_reserves(pool));
    let (Some(owner), Some(at)) = (owner, slot.at) else { return false };
    let owner = owner.in_pool(state, pool);
    if owner.within_guarantee(state, pool) {
        return false;
    }
    let oversize =
        state.at(waiting.index).map_or_else(Vec::new, |info| rules::oversize_in(state, info, pool));
    let beside = (Account { team: waiting.team, oversize: &oversize }, &waiting.total);
    let lends = |freed: &Freed, beside: Option<(Account<'_>, &Vector)>| {
        lending::will_allow(state, owner.loan(pool), freed, beside)
    };
    // What is lent already is lent then too, which is quickly seen: what ends on open nodes frees at least what is kept then.
    if lends(&Freed::new(), Some(beside)) {
        return false;
    }
    let freed = scheduler.prediction.timeline.freed_until(state, pool, at);
    lends(&freed, None) && !lends(&freed, Some(beside))
}

/// The first reservation that would not be left whole as asked if pods of this need came to these nodes.
pub fn first_broken<'k>(
    scheduler: &mut Scheduler,
    pool: PoolId,
    pods: (&Vector, &Placement),
    asked: &LeaveWhole<'k>,
) -> Option<&'k Reserved> {
    let mut these = asked.these.iter().copied();
    these.find(|(reservation, slot)| {
        !stays_whole(scheduler, pool, (reservation, slot), &asked.respected, pods)
    })
}

/// Whether a node has capacity for that many pods of an owner at the reserved time, with `more` pods of another need
/// there.
pub fn fits_then(
    scheduler: &Scheduler,
    reservation: &Reservation,
    slot: &Slot,
    (node, pods): (NodeId, u32),
    more: Option<(&Vector, u32)>,
) -> bool {
    let state = &scheduler.state;
    // Without a predictable time every workload ends some day, but no workload beside may count on it.
    let ends = |id: &WorkloadId| match slot.at {
        Some(at) => scheduler.prediction.timeline.end(id).is_some_and(|end| end <= at),
        None => more.is_none(),
    };
    let mut freed = Freed::new();
    for (info, there) in state.occupants(node) {
        let id = &info.workload.id;
        if timeline::running_admission(info).is_some() && ends(id) {
            freed.give(node, id, &info.need, staying_on(info, node, there));
        }
    }
    if let Some((need, more)) = more {
        freed.join(node, need, more);
    }
    fits_with(scheduler, reservation, node, &freed) >= pods
}

/// How many of the pods of a workload that are on a node do not end already.
pub fn staying_on(info: &WorkloadInfo, node: NodeId, there: u32) -> u32 {
    there.saturating_sub(info.usage.terminating.get(&node).copied().unwrap_or(0))
}

/// How many pods of an owner a node has capacity for once these changes hold.
pub fn fits_with(scheduler: &Scheduler, reservation: &Reservation, node: NodeId, freed: &Freed) -> u32 {
    let state = &scheduler.state;
    if !state.nodes.get(node).open() {
        return 0;
    }
    let demand = state.nodes.demand(&reservation.need);
    placement::fits_on(state, node, &demand, Capacity::Settled(freed))
}

/// For every reserved node, how many pods of a waiting workload, which respects these reservations, would fit there only by taking
/// reserved capacity.
pub fn excess_pods(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    (reservation, slot): (&Reservation, &Slot),
    respected: &[&Reserved],
) -> Placement {
    let demand = scheduler.state.nodes.demand(&waiting.need);
    let fits = |(node, reserved): (&NodeId, &u32)| {
        let fits = placement::fits_on(&scheduler.state, *node, &demand, Capacity::Now).min(waiting.pods);
        (fits > 0).then_some((*node, *reserved, fits))
    };
    let shared: Vec<(NodeId, u32, u32)> = slot.placement.iter().filter_map(fits).collect();
    let mut excess = Placement::new();
    if shared.is_empty() {
        return excess;
    }
    let before = reserved_before(scheduler, pool, (reservation, slot), |other| is_among(respected, other));
    for (node, reserved, fits) in &shared {
        let allowed = with_masked(scheduler, &before, |scheduler| {
            let harmless = |more: u32| {
                fits_then(scheduler, reservation, slot, (*node, *reserved), Some((&waiting.need, more)))
            };
            let (mut allowed, mut harmful) = (0, *fits + 1);
            while harmful - allowed > 1 {
                let middle = u32::midpoint(allowed, harmful);
                if harmless(middle) { allowed = middle } else { harmful = middle }
            }
            allowed
        });
        if allowed < *fits {
            // More may be free later than now, so the mask leaves exactly the allowed pods even then.
            let settled =
                placement::fits_on(&scheduler.state, *node, &demand, Capacity::Settled(&Freed::new()));
            excess.insert(*node, settled.saturating_sub(allowed));
        }
    }
    excess
}
