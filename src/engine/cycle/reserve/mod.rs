//! Reservations: the first of a team that finds no room is promised room that will come (Law 7).
//!
//! In every pool at most one workload of a team has its turn, and so many teams. It gets nodes and a time
//! at once when the ends of those in its way can be predicted, else when it has waited for its queue's
//! `reserve_after`. From then on nobody behind it in the order may start in a way that pushes its start
//! back: who may pass ends before that time, or leaves the reserved room whole.
//!
//! The turn is kept: it ends when its holder starts, leaves or asks for something else, or when one
//! of the same team that goes before it finds no room either. Nodes and time are kept too, unless
//! they cannot be held any more or an earlier time is possible. What is promised to one team is out of
//! sight of all others, whether they have a turn themselves or not.
//!
//! Before the holder go: who stands before it in its own team, and who is owed its room when the
//! holder is not; the latter leave the reserved room whole where they can. Where only what is reserved for
//! their own team, at no predictable time, keeps them from that, the younger of the two reservations gives
//! way until the older's holder has started. Capacity already promised to those for whom others leave is theirs.
//!
//! To its own team a reservation is more than room. Once others have taken of it, mates behind the holder leave
//! it their guarantee as well, if that holds it: until it is owed its start, whoever is owed would go before it
//! again and again. And where the holder would live off the surplus, what is kept free for it counts as what its
//! team has: nobody of another team leaves for a mate who could start there.

mod kept;
mod siblings;

use std::sync::Arc;
use std::time::Duration;

use crate::cycle::reserve::kept::{before, hidden_from, holds_on, is_whole, out_of_sight, waits};
use crate::placement::waiting::WaitingWorkload;
use crate::placement::{self, Placement};
use crate::prediction::timeline::{Slot, Until};
use crate::queue::order;
use crate::scheduler::Scheduler;
use crate::state::workload::Phase;
use crate::types::ids::{NodeId, PoolId, TeamId};
use crate::types::{Reason, ReservationView, Time, Verdict, WorkloadId};

pub use crate::cycle::reserve::kept::{guarded, overtake, stands_back};
pub use crate::cycle::reserve::siblings::{has_kept_room, not_crowding};
pub use crate::scheduler::reservations::Reservation;

/// So many teams have a turn in a pool at most: every one of them is asked again whenever room comes free.
const MAX_RESERVATIONS: usize = 16;

/// Where a candidate may start that could start at `found` but for reservations; the error says for
/// whom it has to wait.
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
    not_crowding(scheduler, waiting, pool, now)?;
    kept::admissible(scheduler, waiting, pool, nodes, found, now)
}

/// Whether every team that may have a turn in a pool has one.
#[must_use]
pub fn is_full(scheduler: &Scheduler, pool: PoolId) -> bool {
    scheduler.reservations.by_team.range((pool, TeamId::MIN)..=(pool, TeamId::MAX)).count()
        >= MAX_RESERVATIONS
}

/// When the first turn without a reservation gets one although its start cannot be predicted.
#[must_use]
pub fn next(scheduler: &Scheduler) -> Option<Time> {
    let open = scheduler
        .reservations
        .by_team
        .iter()
        .filter(|((pool, _), reservation)| is_open(scheduler, *pool, reservation));
    open.map(|(_, reservation)| reservation.due).min()
}

/// Whether nothing is reserved for a turn's holder, but may be when the time has come.
fn is_open(scheduler: &Scheduler, pool: PoolId, reservation: &Reservation) -> bool {
    reservation.slot.is_none()
        && !reservation.crowded
        && !stands_back(scheduler, pool, reservation)
        && waits(scheduler, &reservation.owner)
}

/// Looks again at those turns for which a reservation has become due.
pub fn fire(scheduler: &mut Scheduler, now: Time) {
    let due =
        scheduler.reservations.by_team.iter().filter(|((pool, _), reservation)| {
            reservation.due <= now && is_open(scheduler, *pool, reservation)
        });
    // Between teams the first in order has the choice.
    let mut due: Vec<_> = due
        .map(|(place, reservation)| {
            (order::standing(&scheduler.state, &scheduler.queue.pending, &reservation.owner), *place)
        })
        .collect();
    due.sort();
    if !due.is_empty() {
        scheduler.queue.pending.wake_all();
    }
    for (_, (pool, team)) in due {
        let Some(waiting) = scheduler
            .reservations
            .by_team
            .get(&(pool, team))
            .and_then(|reservation| WaitingWorkload::of(&scheduler.state, &reservation.owner))
        else {
            continue;
        };
        let nodes = placement::eligible(&scheduler.state, &waiting.request(pool));
        review(scheduler, &waiting, pool, &nodes, now);
    }
}

/// What is reserved for whom.
pub fn views(scheduler: &Scheduler) -> Vec<ReservationView> {
    let state = &scheduler.state;
    let view = |((pool, _), reservation): (&(PoolId, TeamId), &Reservation)| {
        let slot = reservation.slot.as_ref().filter(|_| waits(scheduler, &reservation.owner))?;
        let nodes = slot.placement.iter().map(|(node, pods)| (state.nodes.name(*node).clone(), *pods));
        Some(ReservationView {
            holder: reservation.owner.clone(),
            pool: state.quotas.pool_name(*pool).clone(),
            nodes: nodes.collect(),
            start: slot.at,
        })
    };
    scheduler.reservations.by_team.iter().filter_map(view).collect()
}

/// Ends the turn of a workload that started, left, or asks for something else; `before` is where it
/// stood until now.
pub fn drop_stale(scheduler: &mut Scheduler, id: &WorkloadId, before: Option<&Phase>) {
    let state = &scheduler.state;
    let stale = |reservation: &Reservation| {
        reservation.owner == *id
            && !state
                .get(id)
                .zip(WaitingWorkload::of(state, id))
                .is_some_and(|(info, c)| reservation.is_for(info, &c))
    };
    let reservations = scheduler.reservations.by_team.len();
    scheduler.reservations.by_team.retain(|_, reservation| !stale(reservation));
    // Once it was about to start, its room was no longer kept from others.
    if scheduler.reservations.by_team.len() != reservations && before == Some(&Phase::Pending) {
        scheduler.cursor.generation += 1;
        scheduler.reservations.ended = true;
    }
}

/// Ends the turn of a workload that has been promised room for which others leave, or that its own
/// limits keep from starting.
pub fn give_up(scheduler: &mut Scheduler, id: &WorkloadId) {
    let reservations = scheduler.reservations.by_team.len();
    scheduler.reservations.by_team.retain(|_, reservation| reservation.owner != *id);
    if scheduler.reservations.by_team.len() != reservations {
        scheduler.cursor.generation += 1;
        scheduler.reservations.ended = true;
    }
}

/// Takes note that a workload starts by the engine's decision: its turn is over.
pub fn started(scheduler: &mut Scheduler, id: &WorkloadId) {
    scheduler.prediction.timeline.note(&scheduler.state, &scheduler.prediction.run_times, id);
    give_up(scheduler, id);
}

/// The workload cannot start in these pools, for these reasons: where it lacks nothing but room it has
/// its turn, if nobody else of its team has.
pub fn refused(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    options: &[(PoolId, Arc<[NodeId]>)],
    verdicts: &[Verdict],
    now: Time,
) {
    let scarce: Vec<_> = options
        .iter()
        .zip(verdicts)
        .filter(|(_, verdict)| for_room(verdict.reason))
        .map(|(option, _)| option)
        .collect();
    for (pool, nodes) in &scarce {
        let reservation = scheduler.reservations.by_team.get(&(*pool, waiting.team));
        if reservation.is_some_and(|reservation| reservation.owner == waiting.id) {
            review(scheduler, waiting, *pool, nodes, now);
            return;
        }
    }
    give_up(scheduler, &waiting.id);
    let mut best: Option<((bool, Option<Time>), PoolId)> = None;
    for (pool, nodes) in scarce {
        let open = match scheduler.reservations.by_team.get(&(*pool, waiting.team)) {
            Some(reservation) => yields(scheduler, reservation, waiting),
            None => !is_full(scheduler, *pool),
        };
        if !open {
            continue;
        }
        let slot = slot(scheduler, waiting, *pool, nodes, now, Until::Everybody);
        if slot.is_none() && !is_possible(scheduler, waiting, *pool, nodes, now) {
            continue;
        }
        let at = slot.and_then(|slot| slot.at);
        let rank = (at.is_none(), at);
        if best.as_ref().is_none_or(|(least, _)| rank < *least) {
            best = Some((rank, *pool));
        }
    }
    let Some((_, pool)) = best else { return };
    let Some(info) = scheduler.state.get(&waiting.id) else { return };
    let reserve_after = scheduler.state.queue_of(info).map_or(Duration::ZERO, |queue| queue.reserve_after);
    let reservation = Reservation {
        owner: waiting.id.clone(),
        team: waiting.team,
        need: waiting.need.clone(),
        pods: waiting.pods,
        due: scheduler.deadlines.waits_since(info).after(reserve_after),
        slot: None,
        crowded: false,
        overtaken: false,
        behind: None,
        decided: now,
    };
    if scheduler
        .reservations
        .by_team
        .insert((pool, waiting.team), reservation)
        .is_some_and(|before| before.slot.is_some())
    {
        scheduler.cursor.generation += 1;
    }
    if let Some((_, nodes)) = options.iter().find(|(option, _)| *option == pool) {
        review(scheduler, waiting, pool, nodes, now);
    }
}

/// Whether a workload with this reason waits for nodes, not for its own team.
fn for_room(reason: Reason) -> bool {
    use Reason::Fragmented;
    use Reason::LendingLimit;
    use Reason::NoRoom;
    use Reason::Reserved;
    use Reason::RoomHeld;
    matches!(reason, NoRoom | Fragmented | RoomHeld | LendingLimit | Reserved)
}

/// Whether a workload with this reason goes before the holder of its team's turn, and so has not taken the turn
/// only because what is promised to others leaves it no room: whatever ends such a promise may give it the turn.
#[must_use]
pub fn may_come_first(scheduler: &Scheduler, id: &WorkloadId, reason: Reason) -> bool {
    for_room(reason)
        && WaitingWorkload::of(&scheduler.state, id).is_some_and(|waiting| {
            let mut reservations =
                scheduler.reservations.by_team.iter().filter(|((_, team), _)| *team == waiting.team);
            reservations
                .any(|(_, reservation)| reservation.owner != *id && before(scheduler, &waiting, reservation))
        })
}

/// Whether a turn passes to a candidate that finds no room either.
fn yields(scheduler: &Scheduler, reservation: &Reservation, waiting: &WaitingWorkload) -> bool {
    !waits(scheduler, &reservation.owner) || before(scheduler, waiting, reservation)
}

/// The earliest room for a candidate beside what is reserved for others.
fn slot(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    nodes: &[NodeId],
    now: Time,
    until: Until,
) -> Option<Slot> {
    scheduler.prediction.timeline.catch_up(&scheduler.state, &scheduler.prediction.run_times, pool, now);
    let hidden = hidden_from(scheduler, waiting, pool);
    out_of_sight(scheduler, &hidden, |scheduler| {
        scheduler.prediction.timeline.slot(&scheduler.state, waiting, pool, nodes, now, until)
    })
}

/// Whether there would be room for a candidate some day, were nothing promised to others.
fn is_possible(
    scheduler: &Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    nodes: &[NodeId],
    now: Time,
) -> bool {
    scheduler
        .prediction
        .timeline
        .slot(&scheduler.state, waiting, pool, nodes, now, Until::Everybody)
        .is_some()
}

/// Brings a turn's reservation up to date.
fn review(scheduler: &mut Scheduler, waiting: &WaitingWorkload, pool: PoolId, nodes: &[NodeId], now: Time) {
    scheduler.prediction.timeline.catch_up(&scheduler.state, &scheduler.prediction.run_times, pool, now);
    let place = (pool, waiting.team);
    let Some(reservation) = scheduler.reservations.by_team.get(&place).cloned() else { return };
    let until = match &reservation.slot {
        None if reservation.due > now || stands_back(scheduler, pool, &reservation) => Until::Predicted,
        None => Until::Everybody,
        Some(slot) => {
            let usable = slot.placement.keys().all(|node| nodes.contains(node));
            let passed = slot.at.is_some_and(|at| at < now);
            if usable && (passed || !is_whole(scheduler, pool, &reservation, slot)) {
                // Who expects others to end in vain waits on the same nodes for longer: there some have
                // ended, and elsewhere it would begin anew.
                if let Some(later) = put_off(scheduler, waiting, pool, &reservation, slot, now) {
                    if let Some(reservation) = scheduler.reservations.by_team.get_mut(&place) {
                        reservation.slot = Some(later);
                        reservation.decided = now;
                        scheduler.cursor.generation += 1;
                    }
                    return;
                }
                Until::Everybody
            } else {
                let before = slot.at.unwrap_or(Time(i64::MAX));
                match usable {
                    false => Until::Everybody,
                    true if scheduler.prediction.timeline.is_sure_before(pool, before) => {
                        Until::Before(before)
                    }
                    true => return,
                }
            }
        }
    };
    let mut slot = slot(scheduler, waiting, pool, nodes, now, until);
    if let Some(found) = slot.take_if(|_| !matches!(until, Until::Before(_))) {
        // A share may be there as long as others are on its device, and not once all of that is kept for somebody.
        slot = put_off(scheduler, waiting, pool, &reservation, &found, now);
    }
    // Capacity that is there once those who leave are gone is no earlier than now.
    let sooner = slot.filter(|slot| !matches!(until, Until::Before(at) if slot.at >= Some(at)));
    match (sooner, scheduler.reservations.by_team.get_mut(&place)) {
        (Some(slot), Some(reservation)) => {
            reservation.slot = Some(slot);
            reservation.crowded = false;
            reservation.decided = now;
            scheduler.cursor.generation += 1;
        }
        (None, Some(_)) if until == Until::Everybody => {
            let crowded = is_possible(scheduler, waiting, pool, nodes, now);
            let changed = !crowded || !reservation.crowded || reservation.slot.is_some();
            match scheduler.reservations.by_team.get_mut(&place).filter(|_| crowded) {
                Some(reservation) => (reservation.slot, reservation.crowded) = (None, true),
                // Not even with everybody gone; others may have their turn.
                None => _ = scheduler.reservations.by_team.remove(&place),
            }
            scheduler.cursor.generation += u64::from(changed);
        }
        _ => {}
    }
}

/// The same room at the earliest time from now on, beside all that is reserved for others; `None` if it
/// cannot be had there at all.
fn put_off(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    reservation: &Reservation,
    slot: &Slot,
    now: Time,
) -> Option<Slot> {
    let there = slot.placement.keys().flat_map(|node| scheduler.state.occupants(*node));
    let ends = there.filter_map(|(info, _)| scheduler.prediction.timeline.end(&info.workload.id));
    let mut times: Vec<Option<Time>> = ends.filter(|end| *end >= now).chain([now]).map(Some).collect();
    times.sort_unstable();
    times.push(None);
    let hidden = hidden_from(scheduler, waiting, pool);
    out_of_sight(scheduler, &hidden, |scheduler| {
        let slots = times.into_iter().map(|at| Slot { at, placement: slot.placement.clone() });
        let is_there = |slot: &Slot| {
            let mut places = slot.placement.iter();
            places.all(|(node, pods)| holds_on(scheduler, reservation, slot, (*node, *pods), None))
        };
        slots.into_iter().find(is_there)
    })
}
