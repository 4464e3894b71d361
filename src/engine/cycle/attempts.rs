//! Attempts the waiting workloads in order: within guarantee before borrowing, then by fair share, then by age (law 9).
//!
//! Each round wakes the classes that a change may let start, picks the first workload in order and attempts it. A
//! workload that is refused blocks its class. The rounds end when no workload may start, or when the search budget
//! is used up; the rest is then left for the next cycle. A new generation begins again with the first in order. Where
//! events come faster than all can be considered, a pass that was cut short often goes on to its end instead, and what these
//! events wake waits for the next pass. Else the last in order would never be considered.

use std::collections::BTreeSet;

use crate::cycle::attempt::{Attempted, Turn};
use crate::cycle::blocked::blocked_on;
use crate::cycle::elsewhere::Elsewhere;
use crate::cycle::next_owner::{self, NextOwner};
use crate::cycle::wake::{BACKLOG_AT_ONCE, wake};
use crate::cycle::{attempt, reserve};
use crate::queue::WaitQueue;
use crate::queue::class::Blocked;
use crate::queue::order::First;
use crate::scheduler::Scheduler;
use crate::types::{Plan, Time, Verdict, WorkloadId};

/// The search budget of a cycle, so that no cycle takes long. A set of victims tried costs 1; a search that has to leave sets
/// out costs all that is left.
const SEARCH_BUDGET: usize = 64;
/// The cost of an attempt that is refused: eight of them use up the budget.
const COST_OF_A_REFUSAL: usize = 8;
/// The most classes with uncertain preemption that are woken at once.
const MAY_PREEMPT_AT_ONCE: usize = 2;

/// Attempts waiting workloads in order, until none is left that may start or the search budget is used up. Those with nominated
/// capacity are attempted in their other pools; the nominations of the `deferred` ones were not looked at yet.
pub fn run(scheduler: &mut Scheduler, deferred: BTreeSet<WorkloadId>, now: Time, plan: &mut Plan) {
    (scheduler.cursor.search_budget, scheduler.cursor.cut_short) = (SEARCH_BUDGET, false);
    if !scheduler.cursor.goes_on() {
        begin_pass(scheduler);
    }
    let mut elsewhere = Elsewhere::of(scheduler, deferred);
    loop {
        wake(scheduler);
        if scheduler.cursor.search_budget == 0 {
            scheduler.cursor.note_cut_short();
            break;
        }
        let Some(next) = next(scheduler, &mut elsewhere) else {
            if wake_more(scheduler, now) {
                continue;
            }
            let goes_on = scheduler.cursor.goes_on();
            scheduler.cursor.note_pass_ended();
            if !goes_on {
                break;
            }
            begin_pass(scheduler);
            continue;
        };
        let behind = match next {
            Next::Waiting(id) => attempt_waiting(scheduler, &id, Turn::InOrder, now, plan),
            Next::Nominated(id) => elsewhere.attempt(scheduler, &id, now, plan),
        };
        // Once that one has started or is blocked, the borrower is attempted again.
        if let Some(first) = behind {
            attempt_waiting(scheduler, &first, Turn::BeforeBorrower, now, plan);
        }
    }
    if !scheduler.cursor.goes_on() {
        scheduler.reservations.candidates.generation = scheduler.cursor.generation();
    }
}

/// Begins a pass over the waiting workloads: a class that was considered as owner of a reservation is considered again only after
/// a change.
fn begin_pass(scheduler: &mut Scheduler) {
    let generation = scheduler.cursor.generation();
    if std::mem::replace(&mut scheduler.reservations.candidates.generation, generation) != generation {
        next_owner::reconsider(scheduler);
    }
}

/// Attempts a workload of the queue, and blocks its class where it is refused; returns the workload that comes first.
fn attempt_waiting(
    scheduler: &mut Scheduler,
    id: &WorkloadId,
    turn: Turn,
    now: Time,
    plan: &mut Plan,
) -> Option<WorkloadId> {
    match attempt::run(scheduler, id, turn, now, plan) {
        Attempted::Settled => None,
        Attempted::Refused(verdict) => {
            block(scheduler, id, verdict);
            None
        }
        Attempted::Behind(first) => Some(first),
    }
}

/// A workload to attempt.
enum Next {
    /// One of the queue.
    Waiting(WorkloadId),
    /// One with nominated capacity, in its other pools.
    Nominated(WorkloadId),
}

/// The workload to attempt next: the first in order of those that may start, or a workload that may own a
/// reservation. Once a reservation has ended, its successor is determined before any workload behind it starts.
fn next(scheduler: &mut Scheduler, elsewhere: &mut Elsewhere) -> Option<Next> {
    let WaitQueue { order, pending, headroom, .. } = &mut scheduler.queue;
    let startable = order.next(&scheduler.state, pending, headroom);
    let looks_for_owner = scheduler.reservations.ended || startable.is_none();
    if !looks_for_owner && elsewhere.is_empty() {
        return startable.map(Next::Waiting);
    }
    let before = startable.as_ref().and_then(|id| First::of(&scheduler.state, pending.rank(id)?));
    let nominated = elsewhere.first(scheduler, before.as_ref());
    let (before, startable) = match nominated {
        Some(first) => (Some(first.clone()), Some(Next::Nominated(first.rank.id().clone()))),
        None => (before, startable.map(Next::Waiting)),
    };
    if !scheduler.reservations.ended && startable.is_some() {
        return startable;
    }
    match next_owner::next(scheduler, before.as_ref()) {
        NextOwner::Attempt(id) => Some(Next::Waiting(id)),
        NextOwner::BehindStartable => startable,
        NextOwner::None => {
            scheduler.reservations.ended = false;
            startable
        }
    }
}

/// Wakes some of the classes that were refused in an earlier generation, or before a pass that goes on; false if there are none.
fn wake_more(scheduler: &mut Scheduler, now: Time) -> bool {
    let generation = match scheduler.cursor.goes_on() {
        true => scheduler.reservations.candidates.generation,
        false => scheduler.cursor.generation(),
    };
    let pending = &mut scheduler.queue.pending;
    pending.requeue_backlog(generation, BACKLOG_AT_ONCE) > 0
        || pending.requeue_may_preempt(generation, MAY_PREEMPT_AT_ONCE, now)
}

/// Blocks the class of a workload that could not start until one of its conditions changes.
fn block(scheduler: &mut Scheduler, id: &WorkloadId, verdict: Verdict) {
    let cursor = &mut scheduler.cursor;
    cursor.search_budget = cursor.search_budget.saturating_sub(COST_OF_A_REFUSAL);
    let blocked = match reserve::may_become_owner(scheduler, id, verdict.reason) {
        true => Blocked::Unknown,
        false => blocked_on(scheduler, id),
    };
    scheduler.queue.pending.block(id, blocked, scheduler.cursor.generation(), verdict);
}
