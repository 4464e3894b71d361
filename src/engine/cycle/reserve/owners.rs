//! Which workload owns the reservation of its team in a pool, from when on, and until when.

use std::sync::Arc;
use std::time::Duration;

use crate::cycle::reserve::binding::{is_deferred, stands_before, waits};
use crate::cycle::reserve::quota::quota_start;
use crate::cycle::reserve::review::{MAX_RESERVATIONS, earliest, is_possible, review};
use crate::placement::waiting::{Attempt, WaitingWorkload};
use crate::placement::{self, Capacity};
use crate::prediction::timeline::Until;
use crate::queue::{WaitQueue, order};
use crate::scheduler::Scheduler;
use crate::scheduler::reservations::{Place, QuotaStart, Reservation, ReservedCapacity};
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{NodeId, PoolId, TeamId};
use crate::types::{Reason, ReservationView, Time, Verdict, WorkloadId};

/// Whether a pool has as many reservations of nodes as it may have.
#[must_use]
pub fn is_full(scheduler: &Scheduler, pool: PoolId) -> bool {
    scheduler.reservations.with_nodes(pool).take(MAX_RESERVATIONS).count() >= MAX_RESERVATIONS
}

/// The earliest time at which a reservation changes although no event happens.
#[must_use]
pub fn next(scheduler: &Scheduler) -> Option<Time> {
    // A thousand teams may have one. Whether one is to be reviewed costs more than when, so few are asked.
    let mut times: Vec<(Time, &Place, &Reservation)> = review_times(scheduler).collect();
    times.sort_unstable_by_key(|(time, place, _)| (*time, *place));
    let next = times.into_iter().find(|(_, place, reservation)| is_reviewed(scheduler, place.0, reservation));
    next.map(|(time, ..)| time)
}

/// The reservations that may have to be reviewed without an event, with the times.
fn review_times(scheduler: &Scheduler) -> impl Iterator<Item = (Time, &Place, &Reservation)> {
    let reservations = scheduler.reservations.iter();
    reservations.filter_map(|(place, reservation)| Some((review_time(reservation)?, place, reservation)))
}

/// When a reservation without a slot gets one although its start cannot be predicted, or when the start that was foreseen
/// before then has passed and another must be foreseen.
fn review_time(reservation: &Reservation) -> Option<Time> {
    if matches!(reservation.capacity, ReservedCapacity::Waiting) {
        return Some(reservation.due);
    }
    let foreseen = |start: &Time| reservation.decided < *start && *start < reservation.due;
    reservation.start().filter(foreseen).map(|start| start.after(Duration::from_millis(1)))
}

/// Whether a reservation is reviewed at its time: its owner waits, and it is not deferred.
fn is_reviewed(scheduler: &Scheduler, pool: PoolId, reservation: &Reservation) -> bool {
    let is_waiting = matches!(reservation.capacity, ReservedCapacity::Waiting);
    !(is_waiting && is_deferred(scheduler, pool, reservation)) && waits(scheduler, &reservation.owner)
}

/// Reviews the reservations that have become due or whose foreseen start has passed, in the order between teams.
pub fn review_due(scheduler: &mut Scheduler, now: Time) {
    let due = review_times(scheduler)
        .filter(|(time, place, reservation)| *time <= now && is_reviewed(scheduler, place.0, reservation));
    let position = |reservation: &Reservation| {
        order::queue_position(&scheduler.state, &scheduler.queue.pending, &reservation.owner)
    };
    let mut due: Vec<_> = due.map(|(_, place, reservation)| (position(reservation), *place)).collect();
    due.sort();
    for (_, place) in &due {
        if let Some(owner) = scheduler.reservations.get(place).map(|reservation| reservation.owner.clone()) {
            requeue_before(scheduler, &owner);
        }
    }
    for (_, place) in due {
        let owner = scheduler.reservations.get(&place).map(|reservation| &reservation.owner);
        let Some(waiting) = owner.and_then(|owner| WaitingWorkload::of(&scheduler.state, owner)) else {
            continue;
        };
        let pool = place.0;
        let nodes = placement::eligible(&scheduler.state, &waiting.request(pool));
        review(scheduler, Attempt { waiting: &waiting, pool, nodes: &nodes, now });
        scheduler.reservations.ended |= scheduler.reservations.get(&place).is_none();
    }
}

/// Requeues the workloads of a team that stand before the owner of its reservation: one of them may own it by now.
pub fn requeue_before(scheduler: &mut Scheduler, owner: &WorkloadId) {
    let pending = &mut scheduler.queue.pending;
    pending.before(owner).into_iter().for_each(|class| pending.requeue(class));
    let root = scheduler.reservations.owned_by(owner).map(|(_, reservation)| reservation.root);
    scheduler.cursor.note_looser_below(root);
}

/// All reservations that keep nodes or quota.
pub fn views(scheduler: &Scheduler) -> Vec<ReservationView> {
    let state = &scheduler.state;
    let view = |((pool, _), reservation): (&(PoolId, TeamId), &Reservation)| {
        if !reservation.keeps_quota() || !waits(scheduler, &reservation.owner) {
            return None;
        }
        let nodes = reservation.slot().into_iter().flat_map(|slot| &slot.placement);
        let nodes = nodes.map(|(node, pods)| (state.nodes.name(*node).clone(), *pods));
        Some(ReservationView {
            owner: reservation.owner.clone(),
            pool: state.quotas.pool_name(*pool).clone(),
            nodes: nodes.collect(),
            start: reservation.start(),
        })
    };
    scheduler.reservations.iter().filter_map(view).collect()
}

/// Ends the reservation of a workload that started, left or changed its request; `until_now` is its phase until now.
pub fn drop_stale(scheduler: &mut Scheduler, id: &WorkloadId, until_now: Option<&Phase>) {
    let Some((place, reservation)) = scheduler.reservations.owned_by(id) else { return };
    let state = &scheduler.state;
    let current = state.get(id).zip(WaitingWorkload::of(state, id));
    let stands = |info: &WorkloadInfo, waiting: &WaitingWorkload| {
        reservation.is_for(info, waiting) && !state.is_paused(info)
    };
    if current.is_some_and(|(info, waiting)| stands(info, &waiting)) {
        return;
    }
    let root = reservation.root;
    scheduler.reservations.remove(&place);
    // Once its owner is starting, a reservation does not bind any workload any more.
    if until_now == Some(&Phase::Pending) {
        note_ended(scheduler, root);
    }
}

/// Ends the reservation of a workload that starts, that capacity is nominated to, or that its own limits keep from
/// starting.
pub fn release(scheduler: &mut Scheduler, id: &WorkloadId) {
    if let Some((place, root)) = scheduler.reservations.owned_by(id).map(|(place, own)| (place, own.root)) {
        scheduler.reservations.remove(&place);
        note_ended(scheduler, root);
    }
}

/// Notes that a reservation below this root that bound workloads keeps nothing any more: what it kept is for others, and another
/// workload may own a reservation.
pub fn note_ended(scheduler: &mut Scheduler, root: TeamId) {
    scheduler.cursor.note_looser_below([root]);
    scheduler.reservations.ended = true;
}

/// Notes that a workload starts: its expected end is known, and its reservation ends.
pub fn note_start(scheduler: &mut Scheduler, id: &WorkloadId) {
    let prediction = &mut scheduler.prediction;
    prediction.timeline.update(&scheduler.state, &prediction.run_times, id);
    release(scheduler, id);
}

/// Notes that a workload cannot start in these pools, for these reasons. Where it lacks only capacity, it becomes the
/// owner of its team's reservation if no workload before it is.
pub fn note_refusal(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    options: &[(PoolId, Arc<[NodeId]>)],
    verdicts: &[Verdict],
    now: Time,
) {
    let scarce: Vec<Attempt<'_>> = options
        .iter()
        .zip(verdicts)
        .filter(|(_, verdict)| lacks_capacity(verdict.reason) || lacks_quota(verdict.reason))
        .map(|((pool, nodes), _)| Attempt { waiting, pool: *pool, nodes, now })
        .collect();
    let owned = |attempt: &&Attempt<'_>| {
        let reservation = scheduler.reservations.get(&(attempt.pool, waiting.team));
        reservation.is_some_and(|reservation| reservation.owner == waiting.id)
    };
    if let Some(attempt) = scarce.iter().find(owned) {
        return review(scheduler, *attempt);
    }
    release(scheduler, &waiting.id);
    let Some(best) = earliest_pool(scheduler, &scarce) else { return };
    let Some(reservation) = empty_reservation(scheduler, waiting, now) else { return };
    let full = is_full(scheduler, best.pool);
    let replaced = scheduler.reservations.insert((best.pool, waiting.team), reservation);
    if let Some(replaced) = replaced.filter(Reservation::keeps_quota) {
        scheduler.cursor.note_looser_below([replaced.root]);
    }
    if !full {
        unblock_before(scheduler, &waiting.id, best.pool);
    }
    review(scheduler, best);
}

/// Forgets what the workloads before a new owner in its team are blocked on that may use the same pool, if they lack capacity. When they
/// were refused, nothing could be reserved for them; now any change may let one of them own the reservation (see
/// [`may_become_owner`]).
fn unblock_before(scheduler: &mut Scheduler, owner: &WorkloadId, pool: PoolId) {
    let Scheduler { state, queue: WaitQueue { pending, .. }, cursor, .. } = scheduler;
    for class in pending.before(owner) {
        let lacks_capacity =
            pending.refusal(class).is_some_and(|(verdict, _)| lacks_capacity(verdict.reason));
        if lacks_capacity && pending.may_use(class, state.quotas.pool_name(pool)) {
            pending.unblock(class, cursor.generation());
        }
    }
}

/// A reservation for a workload that keeps nothing yet; `None` if the workload is not known any more.
fn empty_reservation(scheduler: &Scheduler, waiting: &WaitingWorkload, now: Time) -> Option<Reservation> {
    let state = &scheduler.state;
    let info = state.get(&waiting.id)?;
    let reserve_after = state.queue_of(info).map_or(Duration::ZERO, |queue| queue.reserve_after);
    let waits_since = scheduler.deadlines.waits_since(info);
    Some(Reservation {
        owner: waiting.id.clone(),
        team: waiting.team,
        root: state.quotas.root_of(waiting.team),
        need: waiting.need.clone(),
        pods: waiting.pods,
        waits_since,
        due: waits_since.after(reserve_after),
        capacity: ReservedCapacity::Waiting,
        quota: QuotaStart::Now,
        taken: false,
        deferred_behind: None,
        decided: now,
        reviewed: 0,
        kept_since: None,
        nodes_since: None,
    })
}

/// The pool in which a workload may own a reservation and has the earliest slot.
fn earliest_pool<'a>(scheduler: &mut Scheduler, attempts: &[Attempt<'a>]) -> Option<Attempt<'a>> {
    let mut best: Option<((bool, Option<Time>), Attempt<'a>)> = None;
    for attempt in attempts {
        let Attempt { waiting, pool, nodes, now } = *attempt;
        let Some(quota) = quota_start(scheduler, waiting, pool, now) else { continue };
        let open = match scheduler.reservations.get(&(pool, waiting.team)) {
            Some(reservation) => passes_to(scheduler, reservation, waiting),
            None => quota != QuotaStart::Now || !is_full(scheduler, pool),
        };
        if !open {
            continue;
        }
        let at = if quota == QuotaStart::Unpredictable {
            let request = waiting.request(pool);
            if placement::most(&scheduler.state, nodes, &request, Capacity::Empty) < waiting.pods {
                continue;
            }
            None
        } else {
            let slot = earliest(scheduler, *attempt, Until::All);
            if slot.is_none() && !is_possible(scheduler, *attempt) {
                continue;
            }
            slot.and_then(|slot| slot.at)
        };
        let rank = (at.is_none(), at);
        if best.as_ref().is_none_or(|(least, _)| rank < *least) {
            best = Some((rank, *attempt));
        }
    }
    best.map(|(_, attempt)| attempt)
}

/// Whether a workload with this reason waits for capacity on nodes, not for quota.
pub fn lacks_capacity(reason: Reason) -> bool {
    use Reason::{Constrained, Fragmented, LendingLimit, NoRoom, Reserved, RoomHeld};
    matches!(reason, NoRoom | Fragmented | Constrained | RoomHeld | LendingLimit | Reserved)
}

/// Whether a workload with this reason waits for quota on its path.
fn lacks_quota(reason: Reason) -> bool {
    matches!(reason, Reason::TeamLimit | Reason::QueueLimit | Reason::NotPreemptibleOverGuarantee)
}

/// Whether a refused workload stands before the owner of its team's reservation. Then only the reservations of other
/// teams have kept it from becoming the owner, and the end of any of them may change that.
#[must_use]
pub fn may_become_owner(scheduler: &Scheduler, id: &WorkloadId, reason: Reason) -> bool {
    lacks_capacity(reason)
        && WaitingWorkload::of(&scheduler.state, id).is_some_and(|waiting| {
            let root = scheduler.state.quotas.root_of(waiting.team);
            let mut reservations = scheduler.reservations.below(root);
            reservations.any(|(_, reservation)| {
                reservation.team == waiting.team
                    && reservation.owner != *id
                    && stands_before(scheduler, &waiting, reservation)
            })
        })
}

/// Whether a reservation passes to a workload that finds no capacity either.
fn passes_to(scheduler: &Scheduler, reservation: &Reservation, waiting: &WaitingWorkload) -> bool {
    !waits(scheduler, &reservation.owner) || stands_before(scheduler, waiting, reservation)
}
