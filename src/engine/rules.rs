//! The rules about single workloads and teams on which both admission and reclaim rest.

use std::collections::BTreeMap;
use std::time::Duration;

use super::books::Books;
use super::entry::Entry;
use super::forest::{Imagined, PoolIx, TeamIx};
use super::model::Time;
use super::nodes::NodeIx;
use super::placement::{Freed, Placement};
use super::vector::Vector;

/// The priority that orders workloads inside a team: the queue's, then the PriorityClass. Whoever runs
/// because it had waited for too long yields to none of those it passed: they would take its place at once.
#[must_use]
pub fn priority_of(books: &Books, entry: &Entry) -> (i32, i32) {
    if entry.raised && entry.phase.admission().is_some() {
        return (i32::MAX, i32::MAX);
    }
    (books.queue_of(entry).map_or(0, |queue| queue.priority), entry.workload.priority)
}

/// Whether a workload may be evicted at all.
#[must_use]
pub fn preemptible(books: &Books, entry: &Entry) -> bool {
    // One whose queue is gone has lost its promise of not being evicted with it.
    let evictable = entry.workload.resumable || entry.workload.expendable;
    evictable && books.queue_of(entry).map_or(true, |queue| queue.preemptible)
}

/// From when on a workload that was started then has run for its queue's minimum run time.
#[must_use]
pub fn old_enough(books: &Books, entry: &Entry, started: Time) -> Time {
    started.after(books.queue_of(entry).map_or(Duration::ZERO, |queue| queue.min_runtime))
}

/// How many devices there are in an amount, in thousandths.
#[must_use]
pub fn devices(books: &Books, amount: &Vector) -> i64 {
    amount.nonzero().filter(|(index, _)| books.resources.is_device(*index)).map(|(_, milli)| milli).sum()
}

/// The device that is asked for, or else whatever it is.
#[must_use]
pub fn scarcest(books: &Books, need: &Vector) -> Option<usize> {
    let asked = need.nonzero().map(|(index, _)| index);
    asked.max_by_key(|index| (books.resources.is_device(*index), *index))
}

/// The run time whose work would be lost with a workload that was evicted now.
#[must_use]
pub fn unsaved(entry: &Entry, started: Time, now: Time) -> Duration {
    let saved = entry.workload.last_checkpoint.unwrap_or(started).max(started);
    let mut elapsed = now.since(saved);
    if let Some(interval) = entry.workload.checkpoint_interval.filter(|interval| *interval > Duration::ZERO)
        && entry.workload.last_checkpoint.is_none()
    {
        let milliseconds = elapsed.as_millis() % interval.as_millis().max(1);
        elapsed = Duration::from_millis(u64::try_from(milliseconds).unwrap_or(u64::MAX));
    }
    elapsed
}

/// What evicting a workload now loses, in device-milliseconds (thousandths of a device counted).
#[must_use]
pub fn work_lost(books: &Books, entry: &Entry, started: Time, now: Time) -> i128 {
    let devices = devices(books, &entry.need);
    let elapsed = i128::try_from(unsaved(entry, started, now).as_millis()).unwrap_or(i128::MAX);
    i128::from(devices).saturating_mul(i128::from(entry.charge.staying_pods())).saturating_mul(elapsed)
}

/// Whether idle guarantees that are not lent stay whole when a team takes `total` of the surplus
/// and `freed` comes free besides.
#[must_use]
pub fn lending_allows(books: &Books, team: TeamIx, pool: PoolIx, total: &Vector, freed: &Freed) -> bool {
    if !books.forest.has_reserves(pool) {
        return true;
    }
    let mut free = Vector::default();
    for (index, entry, _) in books.nodes.alive() {
        if entry.pool == pool && entry.open() {
            free.add(entry.settled().amounts(), 1);
            if let Some(more) = freed.get(&index) {
                free.add(more, 1);
            }
        }
    }
    let reserve = books.forest.reserve_after(pool, team, total);
    reserve.nonzero().all(|(index, kept)| total.get(index) == 0 || free.get(index) - total.get(index) >= kept)
}

/// Whether a running workload would be owed its room, queued again, once lower priorities of its
/// team yield.
pub fn would_be_owed_again(books: &Books, entry: &Entry, priority: (i32, i32)) -> bool {
    let mut imagined = Imagined::new();
    let amount = entry.keeps();
    books.forest.imagine(&mut imagined, entry.team, &amount, -1);
    let lower = books.stakes.evictable_below(entry.charge.pool, entry.team, priority);
    books.forest.imagine(&mut imagined, entry.team, &lower, -1);
    books.forest.owed(entry.charge.pool, entry.team, &amount, &imagined)
}

/// Adds to `freed` what a workload holds on nodes and is not leaving already.
pub fn free(freed: &mut Freed, entry: &Entry) {
    free_pods(freed, entry, entry.charge.staying());
}

/// Adds to `freed` what a workload holds on one node and is not leaving already.
pub fn free_on(freed: &mut Freed, entry: &Entry, node: NodeIx) {
    if let Some(pods) = entry.charge.staying().get(&node) {
        freed.give(node, &entry.workload.id, &entry.need, *pods);
    }
}

/// Adds to `freed` what so many pods of a workload hold on nodes.
pub fn free_pods(freed: &mut Freed, entry: &Entry, pods: &BTreeMap<NodeIx, u32>) {
    for (node, pods) in pods {
        freed.give(*node, &entry.workload.id, &entry.need, *pods);
    }
}

/// Takes out of `freed` what somebody placed there needs.
pub fn occupy(freed: &mut Freed, need: &Vector, placement: &Placement) {
    for (node, pods) in placement {
        freed.take(*node, need, *pods);
    }
}
