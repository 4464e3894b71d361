//! When the next cycle is due without an event.

use crate::cycle::{defragment, excess, limits, pods_ready, recall, release, reserve, unreachable};
use crate::scheduler::Scheduler;
use crate::types::Time;

/// The earliest time at which a cycle may decide something new; `None` when only events matter.
#[must_use]
pub fn next(scheduler: &Scheduler) -> Option<Time> {
    [next_by_age(scheduler), next_but_by_age(scheduler)].into_iter().flatten().min()
}

/// The same without the time at which more borrowers may search again.
pub fn next_but_searches(scheduler: &Scheduler) -> Option<Time> {
    [next_by_age(scheduler), next_by_itself(scheduler)].into_iter().flatten().min()
}

/// The earliest time at which the age of a workload changes what it may do: a victim is no longer protected by its minimum
/// run time, or a workload has waited long enough for a reservation, or to hold back growth.
#[must_use]
pub fn next_by_age(scheduler: &Scheduler) -> Option<Time> {
    let held_back = scheduler.cursor.held_back.filter(|at| *at > scheduler.cursor.planned);
    [scheduler.cursor.wake, reserve::next(scheduler), held_back].into_iter().flatten().min()
}

/// The earliest time at which a cycle may decide something new for another reason than that.
#[must_use]
pub fn next_but_by_age(scheduler: &Scheduler) -> Option<Time> {
    if scheduler.has_more() {
        return Some(scheduler.cursor.planned);
    }
    let cursor = &scheduler.cursor;
    let search = scheduler.queue.pending.next_search(cursor.generation(), cursor.planned);
    [next_by_itself(scheduler), search].into_iter().flatten().min()
}

/// The earliest time at which something ends or is due again.
fn next_by_itself(scheduler: &Scheduler) -> Option<Time> {
    let retry = scheduler.retries.failures.values().filter_map(|failure| failure.until).min();
    [
        scheduler.state.next_settle(),
        retry,
        limits::next(scheduler),
        defragment::next(scheduler),
        scheduler.retries.misplaced.next(),
        pods_ready::next(scheduler),
        excess::next(scheduler),
        release::next(scheduler),
        recall::next(scheduler),
        unreachable::next(scheduler),
        refill(scheduler),
    ]
    .into_iter()
    .flatten()
    .min()
}

/// The next time at which a budget is full again that a workload waits for.
fn refill(scheduler: &Scheduler) -> Option<Time> {
    let budgets = &scheduler.state.quotas.budgets;
    scheduler.queue.pending.budgets().filter_map(|team| budgets.refill(team)).min()
}
