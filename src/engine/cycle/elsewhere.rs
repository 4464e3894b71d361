//! A workload that waits for its victims to end starts in another of its pools once it fits there (law 6).
//!
//! The capacity there is nominated to no workload, so it starts like any other that waits: in the order of all of them (law 9), and
//! beside what is kept for others. It stands where it would stand if it were queued and nothing were nominated to it.

use std::collections::BTreeSet;

use crate::cycle::attempt::{self, Attempted};
use crate::cycle::{nominate, other_pools};
use crate::placement::waiting::WaitingWorkload;
use crate::queue::order::First;
use crate::scheduler::Scheduler;
use crate::scheduler::nomination::Nomination;
use crate::types::{Name, Plan, Time, WorkloadId};

/// The workloads with nominated capacity that may start in another pool.
pub struct Elsewhere {
    /// Each with its place in the order when it was last looked at.
    places: Vec<First>,
    /// Those that prefer another pool with capacity to the one of their nomination, which was left as it is for that.
    deferred: BTreeSet<WorkloadId>,
}

impl Elsewhere {
    /// Those for which another pool has capacity now, and those that were deferred for it.
    pub fn of(scheduler: &mut Scheduler, deferred: BTreeSet<WorkloadId>) -> Self {
        let may_start = |nomination: &&Nomination| {
            deferred.contains(&nomination.id) || other_pools::have_capacity(&scheduler.state, nomination)
        };
        let found = scheduler.nominations.iter().filter(may_start);
        let found: Vec<WorkloadId> = found.map(|nomination| nomination.id.clone()).collect();
        let places = found.iter().filter_map(|id| place_in_order(scheduler, id)).collect();
        Self { places, deferred }
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The first of them in order that stands before a workload of the queue.
    pub fn first(&mut self, scheduler: &mut Scheduler, before: Option<&First>) -> Option<First> {
        loop {
            let earlier = |first, other: &First| if other.precedes(&first) { other.clone() } else { first };
            let mut places = self.places.iter();
            let first = places.next().cloned().map(|first| places.fold(first, earlier))?;
            if before.is_some_and(|before| before.precedes(&first)) {
                return None;
            }
            // What has started since may have changed its place.
            let now = place_in_order(scheduler, first.rank.id());
            if now.as_ref() == Some(&first) {
                return now;
            }
            self.forget(first.rank.id());
            self.places.extend(now);
        }
    }

    /// Starts a workload in the first of its pools where it fits, and withdraws its nomination where that is another pool; what
    /// its victims free is for others then. Returns the workload that comes first, if there is one: then this one is attempted
    /// again.
    pub fn attempt(
        &mut self,
        scheduler: &mut Scheduler,
        id: &WorkloadId,
        now: Time,
        plan: &mut Plan,
    ) -> Option<WorkloadId> {
        let (before, after) = match scheduler.nominations.of(id) {
            Some(nomination) => other_pools::around(&scheduler.state, nomination),
            None => Default::default(),
        };
        let mut attempted = start_in(scheduler, id, &before, now, plan);
        if attempted.is_none() && self.deferred.remove(id) {
            nominate::progress_of(scheduler, id, now, plan);
        }
        if attempted.is_none() {
            attempted = start_in(scheduler, id, &after, now, plan);
        }
        if let Some(Attempted::Behind(first)) = attempted {
            return Some(first);
        }
        self.forget(id);
        None
    }

    fn forget(&mut self, id: &WorkloadId) {
        self.places.retain(|first| first.rank.id() != id);
    }
}

/// Starts a workload in the first of these pools where it fits; if there is none, its nomination stays as it is.
fn start_in(
    scheduler: &mut Scheduler,
    id: &WorkloadId,
    names: &[Name],
    now: Time,
    plan: &mut Plan,
) -> Option<Attempted> {
    let attempted = without_nomination(scheduler, id, |scheduler| {
        let waiting = WaitingWorkload::of(&scheduler.state, id)?;
        attempt::start_in(scheduler, &waiting, names, now, plan)
    });
    if matches!(attempted, Some(Attempted::Settled)) {
        scheduler.cursor.note_looser();
    }
    attempted
}

/// The place that a workload with nominated capacity would have in the order if it were queued.
fn place_in_order(scheduler: &mut Scheduler, id: &WorkloadId) -> Option<First> {
    without_nomination(scheduler, id, |scheduler| {
        let info = scheduler.state.get(id)?;
        First::of(&scheduler.state, scheduler.queue.rank_if_queued(&scheduler.state, info))
    })
}

/// Does something as if nothing were nominated to a workload. The nomination is put back if the workload still waits.
fn without_nomination<T>(
    scheduler: &mut Scheduler,
    id: &WorkloadId,
    work: impl FnOnce(&mut Scheduler) -> Option<T>,
) -> Option<T> {
    let place = scheduler.nominations.place_of(id)?;
    scheduler.without_nomination(place, |scheduler, nomination| {
        let result = work(scheduler);
        (other_pools::waits(&scheduler.state, &nomination).then_some(nomination), result)
    })?
}
