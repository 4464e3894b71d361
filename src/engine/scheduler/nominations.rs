//! All nominations in the order in which they were made, and the plans behind them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::scheduler::nomination::{Nomination, Victim};
use crate::scheduler::watch::{FittingPods, Watch};
use crate::state::cluster::ClusterState;
use crate::types::ids::WorkloadIndex;
use crate::types::{Name, PodId, Time, WorkloadId};

/// A nomination, and what it waits for if it was looked at since it was made.
#[derive(Clone, Debug)]
struct Made {
    nomination: Nomination,
    watch: Option<Watch>,
}

impl Made {
    /// Whether it still waits for what it waited for when it was looked at.
    fn still_waits(&self, state: &ClusterState, fitting: &mut FittingPods) -> bool {
        let Nomination { pool, shape, need, .. } = &self.nomination;
        let mut fitting = || fitting.of(state, *pool, shape, need);
        self.watch.as_ref().is_some_and(|watch| watch.holds(state, &mut fitting))
    }
}

/// All nominations.
#[derive(Clone, Debug, Default)]
pub struct Nominations {
    /// In the order in which they were made.
    made: BTreeMap<u64, Made>,
    /// The place of each workload's nomination in that order.
    places: BTreeMap<WorkloadId, u64>,
    /// The number of nominations with victims.
    preemptors: usize,
    /// The place of the next nomination.
    next: u64,
    /// The preemptions that each borrowing workload has caused.
    pub borrowing: BTreeMap<WorkloadId, BorrowingPreemptions>,
    /// When the plan of the preemptions under way was complete.
    pub plan: Option<PlanComplete>,
    /// Why the last plan for a preemptor did not hold; its next evictions name it (law 8).
    pub broken: BTreeMap<WorkloadId, BrokenPlan>,
}

/// A plan for a preemptor that did not hold.
#[derive(Clone, Debug)]
pub struct BrokenPlan {
    /// Why it does not.
    pub why: Broken,
    /// Its victims.
    pub victims: Vec<Victim>,
}

/// Why the plan of a preemption does not hold any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A workload within guarantee took over the capacity.
    TakenOver(WorkloadId),
    /// The capacity does not come free after this change.
    After(Change),
}

/// The subject of an event of the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A workload came, changed or ended, or a write about it failed.
    Workload(WorkloadId),
    /// A pod came or went.
    Pod(PodId),
    /// A node came, changed or went.
    Node(Name),
    /// A team came, changed or went.
    Team(Name),
    /// A pool came, changed or went.
    Pool(Name),
}

/// The instant at which everything was decided that follows from the events until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanComplete {
    /// The number of events of the environment until then.
    pub environment: u64,
    /// The deadline that was to come next.
    pub until: Option<Time>,
}

impl PlanComplete {
    /// Whether neither an event of the environment has come since, nor the deadline.
    #[must_use]
    pub fn lasts(&self, environment: u64, now: Time) -> bool {
        self.environment == environment && self.until.is_none_or(|until| now < until)
    }
}

impl Nominations {
    /// All of them, in the order in which they were made.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Nomination> {
        self.made.values().map(|made| &made.nomination)
    }

    /// The nomination of a workload.
    #[must_use]
    pub fn of(&self, id: &WorkloadId) -> Option<&Nomination> {
        self.at(self.place_of(id)?)
    }

    /// Whether capacity is nominated to a workload.
    #[must_use]
    pub fn contains(&self, id: &WorkloadId) -> bool {
        self.places.contains_key(id)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.made.is_empty()
    }

    /// Adds the nomination of a workload that has none, after all others.
    pub(super) fn push(&mut self, nomination: Nomination) {
        let place = self.next;
        self.next += 1;
        self.put(place, nomination);
    }

    /// The place of the nomination of a workload.
    #[must_use]
    pub fn place_of(&self, id: &WorkloadId) -> Option<u64> {
        self.places.get(id).copied()
    }

    /// The places of those for which `which` is true, in order.
    pub fn places(&self, which: impl Fn(&Nomination) -> bool) -> Vec<u64> {
        let found = self.made.iter().filter(|(_, made)| which(&made.nomination));
        found.map(|(place, _)| *place).collect()
    }

    /// The place after the last one.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.next
    }

    /// The first place after `last` and before `end` with a nomination that waits for something else than when it was looked at,
    /// or that was not looked at.
    #[must_use]
    pub fn next_due(&self, state: &ClusterState, last: Option<u64>, end: u64) -> Option<u64> {
        let mut fitting = FittingPods::default();
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut made = self.made.range((after, Bound::Excluded(end)));
        made.find(|(_, made)| !made.still_waits(state, &mut fitting)).map(|(place, _)| *place)
    }

    /// The nominations between two places, without them.
    pub fn between(&self, last: Option<u64>, end: u64) -> impl Iterator<Item = &Nomination> {
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.made.range((after, Bound::Excluded(end))).map(|(_, made)| &made.nomination)
    }

    /// The nomination at a place.
    #[must_use]
    pub fn at(&self, place: u64) -> Option<&Nomination> {
        self.made.get(&place).map(|made| &made.nomination)
    }

    /// Notes what the nomination at a place waits for.
    pub fn watch(&mut self, place: u64, watch: Option<Watch>) {
        if let Some(made) = self.made.get_mut(&place) {
            made.watch = watch;
        }
    }

    /// Takes the nomination at a place out; what it charges stays charged.
    pub(super) fn take(&mut self, place: u64) -> Option<Nomination> {
        let Made { nomination, .. } = self.made.remove(&place)?;
        self.places.remove(&nomination.id);
        self.preemptors -= usize::from(!nomination.victims.is_empty());
        Some(nomination)
    }

    /// Puts a nomination at the place from which it was taken.
    pub(super) fn put(&mut self, place: u64, nomination: Nomination) {
        self.preemptors += usize::from(!nomination.victims.is_empty());
        let before = self.places.insert(nomination.id.clone(), place);
        debug_assert!(before.is_none(), "a workload has one nomination");
        self.made.insert(place, Made { nomination, watch: None });
    }

    /// Finds again what each is charged to, after a change of guarantees or queues.
    pub(super) fn find_accounts(&mut self, state: &ClusterState) {
        self.made.values_mut().for_each(|made| made.nomination.find_account(state));
    }

    /// Charges each again that is charged to something else, after a change of guarantees.
    pub fn charge_again(&mut self, state: &mut ClusterState) {
        self.made.values_mut().for_each(|made| made.nomination.charge_again(state));
    }

    /// Charges all of them `times` times; -1 releases them.
    pub(super) fn charge(&self, state: &mut ClusterState, times: i64) {
        self.iter().for_each(|nomination| nomination.charge(state, times));
    }

    /// The victims of the plan for a workload that did not hold, as far as they still end.
    #[must_use]
    pub fn still_ending(&self, state: &ClusterState, id: &WorkloadId) -> Vec<WorkloadIndex> {
        let victims = self.broken.get(id).into_iter().flat_map(|broken| &broken.victims);
        victims.filter(|victim| victim.still_ends(state)).map(|victim| victim.index).collect()
    }

    /// Whether a preemptor waits for its victims.
    #[must_use]
    pub fn preempts(&self) -> bool {
        self.preemptors > 0
    }

    /// The preemptions that a borrowing workload has caused since the last external change.
    #[must_use]
    pub fn borrowing_preemptions(
        &self,
        id: &WorkloadId,
        external_changes: u64,
    ) -> Option<&BorrowingPreemptions> {
        self.borrowing.get(id).filter(|preemptions| preemptions.at == external_changes)
    }

    /// Counts one more preemption by a borrowing workload, with the workloads that it evicts.
    pub fn note_borrowing_preemption(
        &mut self,
        id: &WorkloadId,
        external_changes: u64,
        evicted: impl Iterator<Item = WorkloadId>,
    ) {
        let preemptions = self.borrowing.entry(id.clone()).or_default();
        if preemptions.at != external_changes {
            *preemptions = BorrowingPreemptions { at: external_changes, ..BorrowingPreemptions::default() };
        }
        preemptions.count += 1;
        preemptions.victims.extend(evicted);
    }
}

/// The preemptions that one borrowing workload has caused without an external change: their number is limited
/// and no victim is taken twice, so that borrowers cannot evict each other for ever (laws 4 and 8).
#[derive(Clone, Debug, Default)]
pub struct BorrowingPreemptions {
    /// The number of external changes so far.
    pub at: u64,
    /// The number of preemptions.
    pub count: u32,
    /// The workloads that they evicted.
    pub victims: BTreeSet<WorkloadId>,
}
