//! Attempts waiting workloads in order: within guarantee before borrowing, then by fair share, then by age (law 9).

use std::collections::BTreeSet;

use crate::cycle::attempt::try_start;
use crate::cycle::blocked::blocked_on;
use crate::cycle::reserve;
use crate::queue::WaitQueue;
use crate::queue::class::Blocked;
use crate::queue::order::{First, first_in_order};
use crate::scheduler::Scheduler;
use crate::types::ids::{ClassId, HeadroomId, PoolId, TeamId};
use crate::types::{Plan, Time, Verdict, WorkloadId};

/// So much is tried in vain in one plan before the rest is left for the next one, so that no plan takes
/// long: a set of victims counts 1.
const SEARCH_BUDGET: usize = 64;
/// What it counts to look at somebody who cannot start.
const COST_OF_A_LOOK: usize = 4;
/// So many of those whom anything may let start are looked at before anybody else is asked again.
const BACKLOG_AT_ONCE: usize = 256;
/// The same of those for whom others would have to make room.
const MAY_PREEMPT_AT_ONCE: usize = 2;

/// Attempts waiting workloads in their order, until none is left that may start or the search budget is used up.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    (scheduler.cursor.search_budget, scheduler.cursor.cut_short) = (SEARCH_BUDGET, false);
    // A class that was considered as owner of a reservation is considered again only after a change.
    let (generation, considered) = std::mem::take(&mut scheduler.reservations.considered);
    let unchanged = generation == scheduler.cursor.generation;
    let mut asked = Asked(if unchanged { considered } else { BTreeSet::new() });
    loop {
        wake(scheduler);
        if scheduler.cursor.search_budget == 0 {
            scheduler.cursor.cut_short = true;
            break;
        }
        let Some(id) = next(scheduler, &mut asked) else {
            if go_on(scheduler) {
                continue;
            }
            break;
        };
        if let Some(verdict) = try_start(scheduler, &id, now, plan) {
            block(scheduler, &id, verdict);
        }
    }
    scheduler.reservations.considered = (scheduler.cursor.generation, asked.0);
}

/// Blocks the class of a workload that could not start until one of its conditions changes.
fn block(scheduler: &mut Scheduler, id: &WorkloadId, verdict: Verdict) {
    let cursor = &mut scheduler.cursor;
    cursor.search_budget = cursor.search_budget.saturating_sub(COST_OF_A_LOOK);
    let blocked = match reserve::may_become_owner(scheduler, id, verdict.reason) {
        true => Blocked::Unknown,
        false => blocked_on(scheduler, id),
    };
    scheduler.queue.pending.block(id, blocked, scheduler.cursor.generation, verdict);
}

/// The workload to attempt next: the first in order of those that may start, or a workload that may own a
/// reservation. Once a reservation has ended, its successor is determined before any workload behind it starts.
fn next(scheduler: &mut Scheduler, asked: &mut Asked) -> Option<WorkloadId> {
    let WaitQueue { order, pending, headroom, .. } = &mut scheduler.queue;
    let startable = order.next(&scheduler.state, pending, headroom);
    if !scheduler.reservations.ended && startable.is_some() {
        return startable;
    }
    let before = startable.as_ref().and_then(|id| First::of(&scheduler.state, pending.rank(id)?));
    match asked.next(scheduler, before.as_ref()) {
        Next::Ask(id) => Some(id),
        Next::NobodyYet => startable,
        Next::Nobody => {
            scheduler.reservations.ended = false;
            startable
        }
    }
}

/// Lets some of those be looked at who could not be helped before; false if there are none.
fn go_on(scheduler: &mut Scheduler) -> bool {
    scheduler.queue.pending.requeue_backlog(scheduler.cursor.generation, BACKLOG_AT_ONCE) > 0
        || scheduler.queue.pending.requeue_may_preempt(scheduler.cursor.generation, MAY_PREEMPT_AT_ONCE)
}

/// Finds out who may be able to start by what has happened since the last time.
fn wake(scheduler: &mut Scheduler) {
    if std::mem::take(&mut scheduler.cursor.requeue_all) {
        scheduler.queue.reclaimable.rebuild(&scheduler.state);
        scheduler.state.quotas.users.mark_all_dirty();
        scheduler.queue.pending.requeue_all();
        scheduler.queue.order.mark_all_stale();
    }
    if scheduler.cursor.generation != scheduler.cursor.seen_generation {
        scheduler.cursor.seen_generation = scheduler.cursor.generation;
        let holders = scheduler
            .reservations
            .by_team
            .values()
            .filter_map(|reservation| scheduler.queue.pending.class_of(&reservation.owner));
        for class in holders.collect::<Vec<ClassId>>() {
            scheduler.queue.pending.requeue(class);
        }
        scheduler.queue.pending.requeue_backlog(scheduler.cursor.generation, BACKLOG_AT_ONCE);
    }
    let mut reordered: BTreeSet<TeamId> = BTreeSet::new();
    for (team, user) in scheduler.state.quotas.users.take_dirty() {
        let state = &scheduler.state;
        scheduler.queue.pending.set_user_usage(team, &user, |pools| state.part_of(team, Some(&user), pools));
        scheduler.queue.order.stale.insert(team);
        reordered.insert(team);
    }
    // Who goes before the holder of a turn now may take it, though nothing else has changed for it.
    let reservations =
        scheduler.reservations.by_team.iter().filter(|((_, team), _)| reordered.contains(team));
    let overtaking: Vec<ClassId> = reservations
        .flat_map(|(_, reservation)| scheduler.queue.pending.ahead_of(&reservation.owner))
        .collect();
    overtaking.into_iter().for_each(|class| scheduler.queue.pending.requeue(class));
    let WaitQueue { order, pending, headroom, .. } = &mut scheduler.queue;
    for change in headroom.catch_up(&scheduler.state) {
        // For whom there was enough before is in the order, or has been looked at.
        order.stale.extend(pending.teams_waiting_for(change.shape, change.before, change.total));
    }
    let mut classes: BTreeSet<ClassId> = BTreeSet::new();
    for (pool, team) in scheduler.state.quotas.take_dirty() {
        let share = scheduler.queue.reclaimable.refresh(&scheduler.state, pool, team);
        let path = &scheduler.state.quotas.team(team).path;
        for at in path {
            classes.extend(scheduler.queue.pending.blocked_on_quota(pool, *at));
        }
        classes.extend(
            share.into_iter().flat_map(|share| scheduler.queue.pending.blocked_on_share(pool, share)),
        );
        scheduler.queue.order.mark_root_stale(&scheduler.state, path.last().copied());
    }
    for (team, queue) in scheduler.state.quotas.take_dirty_queues() {
        classes.extend(scheduler.queue.pending.blocked_on_queue(team, &queue));
    }
    for class in classes {
        let Some((_, first)) = scheduler.queue.pending.first_of(class) else { continue };
        let id = first.id().clone();
        let blocked = blocked_on(scheduler, &id);
        scheduler.queue.pending.reconsider(class, blocked);
    }
    let newly_active = scheduler.queue.pending.take_newly_active();
    scheduler.queue.order.stale.extend(newly_active);
}

/// Those of the pools' waiting who were asked whether it is their turn.
struct Asked(BTreeSet<ClassId>);

impl Asked {
    /// The first in order of those who wait for room in a pool where nobody of their team has the turn to
    /// have room reserved, as long as it does not stand behind `before`; nobody once all were asked, until
    /// something makes room.
    fn next(&mut self, scheduler: &mut Scheduler, before: Option<&First>) -> Next {
        let headroom = &scheduler.queue.headroom;
        let mut next = Next::Nobody;
        let pools: BTreeSet<PoolId> = headroom.iter().map(|(_, pool)| pool).collect();
        for pool in pools {
            if reserve::is_full(scheduler, pool) {
                continue;
            }
            let here = |room: HeadroomId| headroom.pool(room) == Some(pool);
            let shapes = headroom.iter().filter(|(_, at)| *at == pool).map(|(room, _)| room);
            let mut teams: BTreeSet<TeamId> =
                shapes.flat_map(|room| scheduler.queue.pending.teams_at(room)).collect();
            teams.retain(|team| {
                let place = (pool, *team);
                !scheduler.reservations.by_team.contains_key(&place)
                    && scheduler.reservations.unowned_since.get(&place) != Some(&scheduler.cursor.generation)
            });
            let mut firsts: Vec<(First, ClassId)> = Vec::new();
            for team in teams {
                let first = scheduler.queue.pending.first_waiting(team, here, &self.0);
                match first
                    .and_then(|(rank, class)| Some((First::of(&scheduler.state, rank.clone())?, *class)))
                {
                    Some(first) => firsts.push(first),
                    None => {
                        scheduler
                            .reservations
                            .unowned_since
                            .insert((pool, team), scheduler.cursor.generation);
                    }
                }
            }
            let Some((first, class)) = first_in_order(&firsts) else { continue };
            if before.is_some_and(|before| before.precedes(first)) {
                next = Next::NobodyYet;
                continue;
            }
            self.0.insert(*class);
            return Next::Ask(first.rank.id().clone());
        }
        next
    }
}

/// Whether somebody is to be asked.
enum Next {
    /// This one.
    Ask(WorkloadId),
    /// Only once those before it in the order have been looked at.
    NobodyYet,
    /// All were asked.
    Nobody,
}
