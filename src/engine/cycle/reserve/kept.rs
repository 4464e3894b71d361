//! What is reserved, and who may pass: whoever ends before the reserved start, or leaves the reserved room whole.
//!
//! What a reservation keeps is not on the books. It is put there only while somebody who has to respect it is
//! looked at.

use crate::explain;
use crate::placement::waiting::{WaitingWorkload, fits_now};
use crate::placement::{self, Capacity, Placement};
use crate::prediction::run_times;
use crate::prediction::timeline::{self, Slot};
use crate::preemption::Hidden;
use crate::queue::order;
use crate::scheduler::Scheduler;
use crate::scheduler::reservations::{Reservation, Reserved};
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::workload::Phase;
use crate::types::ids::{NodeId, PoolId, TeamId};
use crate::types::vector::Vector;
use crate::types::{Time, Verdict, WorkloadId};

/// Whether a workload waits.
pub fn waits(scheduler: &Scheduler, id: &WorkloadId) -> bool {
    scheduler.state.get(id).is_some_and(|info| info.phase == Phase::Pending)
}

/// What is reserved for a turn, as room that others do not see.
fn hidden(reservation: &Reservation, slot: &Slot) -> Hidden {
    Hidden {
        owner: reservation.owner.clone(),
        need: reservation.need.clone(),
        placement: slot.placement.clone(),
    }
}

/// All reserved room that a candidate has to respect.
pub fn hidden_from(scheduler: &Scheduler, waiting: &WaitingWorkload, pool: PoolId) -> Vec<Hidden> {
    respected(scheduler, waiting, pool).map(|(reservation, slot)| hidden(reservation, slot)).collect()
}

/// Does something while such room is out of sight.
pub fn out_of_sight<T>(
    scheduler: &mut Scheduler,
    hidden: &[Hidden],
    act: impl FnOnce(&mut Scheduler) -> T,
) -> T {
    let room = hidden.iter().flat_map(|Hidden { need, placement, .. }| {
        placement.iter().map(move |(node, pods)| (*node, need, *pods))
    });
    let concealed = scheduler.state.nodes.hide(room);
    let result = act(scheduler);
    scheduler.state.nodes.show(concealed);
    result
}

/// What is reserved on nodes of a turn's for others that its holder has to respect and that are to start no
/// later; where somebody comes, only for those that it has to respect as well: of the others it takes the place.
fn earlier(
    scheduler: &Scheduler,
    pool: PoolId,
    (reservation, slot): (&Reservation, &Slot),
    comes: Option<&[Reserved]>,
) -> Vec<Hidden> {
    let Some(owner) = WaitingWorkload::of(&scheduler.state, &reservation.owner) else { return Vec::new() };
    let by_then = |other: &Slot| (other.at.is_none(), other.at) <= (slot.at.is_none(), slot.at);
    let owner = owner.in_pool(&scheduler.state, pool);
    let others = respected(scheduler, &owner, pool).filter(|(other, theirs)| {
        comes
            .is_none_or(|respected| respected.iter().any(|(reservation, _)| reservation.owner == other.owner))
            && by_then(theirs)
            && theirs.placement.keys().any(|node| slot.placement.contains_key(node))
    });
    others.map(|(other, theirs)| hidden(other, theirs)).collect()
}

/// Whether the reserved room is there at the promised time.
pub fn is_whole(scheduler: &mut Scheduler, pool: PoolId, reservation: &Reservation, slot: &Slot) -> bool {
    let earlier = earlier(scheduler, pool, (reservation, slot), None);
    out_of_sight(scheduler, &earlier, |scheduler| {
        slot.placement.iter().all(|(node, pods)| holds_on(scheduler, reservation, slot, (*node, *pods), None))
    })
}

/// Whether it still is if a candidate comes to these nodes.
fn stays_whole(
    scheduler: &mut Scheduler,
    pool: PoolId,
    (reservation, slot): (&Reservation, &Slot),
    respected: &[Reserved],
    waiting: &WaitingWorkload,
    comes: &Placement,
) -> bool {
    if !slot.placement.keys().any(|node| comes.contains_key(node)) {
        return true;
    }
    let earlier = earlier(scheduler, pool, (reservation, slot), Some(respected));
    out_of_sight(scheduler, &earlier, |scheduler| {
        let mut shared = slot.placement.iter().filter_map(|place| Some((place, comes.get(place.0)?)));
        shared.all(|((node, pods), more)| {
            holds_on(scheduler, reservation, slot, (*node, *pods), Some((&waiting.need, *more)))
        })
    })
}

/// Whether a node has room for so many pods of a turn's holder at the promised time, with so many more of another
/// need there.
pub fn holds_on(
    scheduler: &Scheduler,
    reservation: &Reservation,
    slot: &Slot,
    (node, pods): (NodeId, u32),
    more: Option<(&Vector, u32)>,
) -> bool {
    let state = &scheduler.state;
    // Where ends cannot be predicted everybody ends some day, but nobody may count on it.
    let ends = |id: &WorkloadId| match slot.at {
        Some(at) => scheduler.prediction.timeline.end(id).is_some_and(|end| end <= at),
        None => more.is_none(),
    };
    let mut freed = Freed::new();
    for (info, there) in state.occupants(node) {
        let id = &info.workload.id;
        if timeline::runs(info).is_some() && ends(id) {
            let going = info.usage.going.get(&node).copied().unwrap_or(0);
            freed.give(node, id, &info.need, there.saturating_sub(going));
        }
    }
    if let Some((need, more)) = more {
        freed.take(node, need, more);
    }
    let demand = state.nodes.demand(&reservation.need);
    state.nodes.get(node).open()
        && placement::fits_on(state, node, &demand, Capacity::Settled(&freed)) >= pods
}

/// Whether a candidate goes before the holder of a turn in their team.
pub fn before(scheduler: &Scheduler, waiting: &WaitingWorkload, reservation: &Reservation) -> bool {
    let (mine, theirs) =
        (scheduler.queue.pending.rank(&waiting.id), scheduler.queue.pending.rank(&reservation.owner));
    mine.zip(theirs).is_some_and(|(mine, theirs)| mine < theirs)
}

/// The reservations in a pool that a candidate has to respect.
pub fn respected<'a>(
    scheduler: &'a Scheduler,
    waiting: &'a WaitingWorkload,
    pool: PoolId,
) -> impl Iterator<Item = (&'a Reservation, &'a Slot)> {
    let state = &scheduler.state;
    // Others may have to go so that it is within all guarantees above its own.
    let within_guarantee = within_own_guarantee(state, waiting.team, &waiting.total, pool);
    let owner_is_within_guarantee = move |reservation: &Reservation| {
        let owner = state.get(&reservation.owner);
        owner.is_some_and(|owner| within_own_guarantee(state, owner.team, &owner.least_total(), pool))
    };
    let reservations = scheduler.reservations.by_team.range((pool, TeamId::MIN)..=(pool, TeamId::MAX));
    reservations.filter_map(move |((_, team), reservation)| {
        let slot = reservation.slot.as_ref()?;
        if reservation.owner == waiting.id || !waits(scheduler, &reservation.owner) {
            return None;
        }
        let goes_before = if *team == waiting.team {
            before(scheduler, waiting, reservation)
        } else {
            within_guarantee && !owner_is_within_guarantee(reservation)
        };
        (!goes_before).then_some((reservation, slot))
    })
}

/// Whether a team's own guarantee, those above it aside, holds so much more.
pub fn within_own_guarantee(state: &ClusterState, team: TeamId, total: &Vector, pool: PoolId) -> bool {
    let quota_usage = state.quotas.quota_usage(pool, team);
    let asked = || quota_usage.governed().filter(|(index, _)| total.get(*index) > 0);
    asked().next().is_some()
        && asked().all(|(index, guaranteed)| quota_usage.settled(index) + total.get(index) <= guaranteed)
}

/// Where a candidate may start that could start at `found` but for reserved room; the error says for whom that is.
///
/// # Errors
/// The verdict on the candidate.
pub fn admissible(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    nodes: &[NodeId],
    found: Placement,
    now: Time,
) -> Result<Placement, Verdict> {
    let all: Vec<Reserved> = respected(scheduler, waiting, pool)
        .map(|(reservation, slot)| (reservation.clone(), slot.clone()))
        .collect();
    let lasts = |reserved: &Reserved| !passes(scheduler, waiting, now, &reserved.1);
    let kept: Vec<Reserved> = all.iter().filter(|reserved| lasts(reserved)).cloned().collect();
    let mut passed = others(scheduler, waiting, pool, &all);
    passed.retain(lasts);
    let place = (pool, nodes);
    let found = match harmed(scheduler, waiting, pool, &found, &kept, &all) {
        None => found,
        Some((reservation, slot)) => {
            let verdict = explain::reserved(&scheduler.state, reservation, slot);
            elsewhere(scheduler, waiting, place, &kept, &all).ok_or(verdict)?
        }
    };
    let found = spare(scheduler, waiting, place, found, (kept, passed), all);
    overtake(scheduler, waiting, pool, &found);
    Ok(found)
}

/// Takes note of those of other teams whose reserved room a candidate takes that need not respect it.
pub fn overtake(scheduler: &mut Scheduler, waiting: &WaitingWorkload, pool: PoolId, comes: &Placement) {
    let respected: Vec<Reserved> = respected(scheduler, waiting, pool)
        .map(|(reservation, slot)| (reservation.clone(), slot.clone()))
        .collect();
    let mut others = others(scheduler, waiting, pool, &respected);
    others.retain(|(_, slot)| slot.placement.keys().any(|node| comes.contains_key(node)));
    let all = [respected.as_slice(), &others].concat();
    for reserved in &others {
        if harmed(scheduler, waiting, pool, comes, std::slice::from_ref(reserved), &all).is_some()
            && let Some(reservation) = scheduler.reservations.by_team.get_mut(&(pool, reserved.0.team))
        {
            reservation.overtaken = true;
        }
    }
}

/// The first of these reservations that would not stay whole if a candidate came to these nodes.
fn harmed<'k>(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    comes: &Placement,
    kept: &'k [Reserved],
    respected: &[Reserved],
) -> Option<&'k Reserved> {
    let mut kept = kept.iter();
    kept.find(|(reservation, slot)| {
        !stays_whole(scheduler, pool, (reservation, slot), respected, waiting, comes)
    })
}

/// Where a candidate may start that leaves all of these reservations whole: elsewhere, or in what they leave of
/// their nodes.
pub fn elsewhere(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    (pool, nodes): (PoolId, &[NodeId]),
    kept: &[Reserved],
    respected: &[Reserved],
) -> Option<Placement> {
    let mut barred = Placement::new();
    for (reservation, slot) in kept {
        for (node, pods) in surplus_pods(scheduler, waiting, pool, (reservation, slot), respected) {
            let most = barred.entry(node).or_default();
            *most = pods.max(*most);
        }
    }
    let barred = Hidden { owner: waiting.id.clone(), need: waiting.need.clone(), placement: barred };
    out_of_sight(scheduler, &[barred], |scheduler| fits_now(&scheduler.state, waiting, pool, nodes, true))
}

/// What is reserved for other teams and a candidate need not respect.
fn others(
    scheduler: &Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    respected: &[Reserved],
) -> Vec<Reserved> {
    let reservations = scheduler.reservations.by_team.range((pool, TeamId::MIN)..=(pool, TeamId::MAX));
    let others = reservations.filter(|((_, team), reservation)| {
        *team != waiting.team
            && waits(scheduler, &reservation.owner)
            && respected.iter().all(|(other, _)| other.owner != reservation.owner)
    });
    others.filter_map(|(_, reservation)| Some((reservation.clone(), reservation.slot.clone()?))).collect()
}

/// Where a candidate starts that may start at `found` and need not respect what is `passed`: so that it leaves that
/// whole if it can. Where it could but for what is kept, at no predictable time, for one of its own team, the younger
/// of the two reservations gives way: else two teams might keep each other's first waiting for ever.
fn spare(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    (pool, nodes): (PoolId, &[NodeId]),
    found: Placement,
    (mut kept, mut passed): (Vec<Reserved>, Vec<Reserved>),
    mut respected: Vec<Reserved>,
) -> Placement {
    let all = [respected.as_slice(), &passed].concat();
    if harmed(scheduler, waiting, pool, &found, &passed, &all).is_none() {
        return found;
    }
    let lasting = [kept.as_slice(), &passed].concat();
    if let Some(there) = elsewhere(scheduler, waiting, (pool, nodes), &lasting, &all) {
        return there;
    }
    let own =
        kept.iter().position(|(reservation, slot)| reservation.team == waiting.team && slot.at.is_none());
    let Some((own, _)) = own.map(|own| kept.remove(own)) else { return found };
    let age = |reservation: &Reservation| {
        (reservation.due, order::standing(&scheduler.state, &scheduler.queue.pending, &reservation.owner))
    };
    passed.retain(|(reservation, _)| age(reservation) < age(&own));
    respected.retain(|(reservation, _)| reservation.owner != own.owner);
    let (lasting, all) = ([kept.as_slice(), &passed].concat(), [respected.as_slice(), &passed].concat());
    let Some((older, _)) = harmed(scheduler, waiting, pool, &found, &passed, &all) else { return found };
    let Some(there) = elsewhere(scheduler, waiting, (pool, nodes), &lasting, &all) else { return found };
    if let Some(reservation) = scheduler.reservations.by_team.get_mut(&(pool, waiting.team)) {
        (reservation.slot, reservation.behind) = (None, Some(older.owner.clone()));
        scheduler.cursor.generation += 1;
        scheduler.reservations.ended = true;
    }
    there
}

/// Whether a turn has given way to one that has not started yet.
pub fn stands_back(scheduler: &Scheduler, pool: PoolId, reservation: &Reservation) -> bool {
    reservation.behind.as_ref().is_some_and(|older| {
        let mut reservations =
            scheduler.reservations.by_team.range((pool, TeamId::MIN)..=(pool, TeamId::MAX));
        reservations.any(|(_, reservation)| reservation.owner == *older) && waits(scheduler, older)
    })
}

/// Whether a candidate that starts now will have ended by the time something is reserved for.
pub fn passes(scheduler: &Scheduler, waiting: &WaitingWorkload, now: Time, slot: &Slot) -> bool {
    slot.at.is_some_and(|at| ends_by(scheduler, waiting, now, at))
}

/// Whether a candidate that starts now has ended by then for sure: what others like it took is no promise.
fn ends_by(scheduler: &Scheduler, waiting: &WaitingWorkload, now: Time, then: Time) -> bool {
    let state = &scheduler.state;
    let limit = state.get(&waiting.id).and_then(|info| run_times::limit(state, info));
    limit.is_some_and(|limit| now.after(limit) <= then)
}

/// On every reserved node, the pods of a candidate that find room there but would take reserved room.
fn surplus_pods(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    (reservation, slot): (&Reservation, &Slot),
    respected: &[Reserved],
) -> Placement {
    let demand = scheduler.state.nodes.demand(&waiting.need);
    let fits = |(node, reserved): (&NodeId, &u32)| {
        let fits = placement::fits_on(&scheduler.state, *node, &demand, Capacity::Now).min(waiting.pods);
        (fits > 0).then_some((*node, *reserved, fits))
    };
    let roomy: Vec<(NodeId, u32, u32)> = slot.placement.iter().filter_map(fits).collect();
    let mut surplus = Placement::new();
    if roomy.is_empty() {
        return surplus;
    }
    let earlier = earlier(scheduler, pool, (reservation, slot), Some(respected));
    for (node, reserved, fits) in &roomy {
        let allowed = out_of_sight(scheduler, &earlier, |scheduler| {
            let harmless = |more: u32| {
                holds_on(scheduler, reservation, slot, (*node, *reserved), Some((&waiting.need, more)))
            };
            let (mut allowed, mut harmful) = (0, *fits + 1);
            while harmful - allowed > 1 {
                let middle = u32::midpoint(allowed, harmful);
                if harmless(middle) { allowed = middle } else { harmful = middle }
            }
            allowed
        });
        if allowed < *fits {
            // What will be free later may be more than what is free now, so as many are taken off as it
            // takes for no more than those to be left.
            let settled =
                placement::fits_on(&scheduler.state, *node, &demand, Capacity::Settled(&Freed::new()));
            surplus.insert(*node, settled.saturating_sub(allowed));
        }
    }
    surplus
}

/// Does something on behalf of a candidate while reserved room that it has to respect is out of sight; it
/// is told what is hidden.
pub fn guarded<T>(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    act: impl FnOnce(&mut Scheduler, &[Hidden]) -> T,
) -> T {
    let hidden = hidden_from(scheduler, waiting, pool);
    out_of_sight(scheduler, &hidden, |scheduler| act(scheduler, &hidden))
}
