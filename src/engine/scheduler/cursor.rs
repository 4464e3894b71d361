//! The progress of the scheduling cycle, and the changes since.
//!
//! Three counters tell what has changed, for three questions:
//!
//! ```text
//!   generation         may start what was refused? counts what makes something possible, decisions of the engine as well
//!   external changes   is it a new situation for borrowers and moves? counts no decision of the engine
//!   environment        does a plan still hold? counts events, but no echo of the engine's own writes
//! ```

use std::collections::BTreeSet;

use crate::scheduler::nominations::Change;
use crate::types::ids::TeamId;
use crate::types::{Effort, Time};

/// A pass over the waiting workloads begins again with the first in order at each new generation, until it was cut short this often.
const MOST_RESTARTS: u32 = 32;

/// Where something may be possible that was not.
#[derive(Clone, Debug, Default)]
pub struct Looser {
    /// Anywhere.
    pub anywhere: bool,
    /// Below these uppermost teams, for what waits for quota alone. Nodes that have come free are for all.
    pub below: BTreeSet<TeamId>,
}

/// The progress of scheduling cycles.
#[derive(Clone, Debug, Default)]
pub struct CycleCursor {
    /// The time up to which past usage has been counted.
    pub accrued: Time,
    /// Counts the changes after which a blocked workload may be able to start.
    generation: u64,
    /// The generation that the last cycle has seen.
    seen_generation: u64,
    /// What has changed since that generation.
    looser: Looser,
    /// The generation in which elastic workloads last grew as far as they could.
    grown: u64,
    /// When growth goes on that a waiting workload holds back.
    pub held_back: Option<Time>,
    /// Counts the changes that are not the engine's own decisions.
    external_changes: u64,
    /// Counts the events that no decision of the engine has caused: what is left are echoes of its own writes (law 8).
    environment: u64,
    /// The subject of the last of them.
    latest_change: Option<Change>,
    /// Whether every waiting workload is attempted again.
    pub requeue_all: bool,
    /// The time at which something becomes possible without an event.
    pub wake: Option<Time>,
    /// The search budget that the cycle has left; once it is used up, the rest is left for the next cycle.
    pub search_budget: usize,
    /// Whether the last cycle ended before every workload that may start was considered.
    pub cut_short: bool,
    /// How many cycles the present pass over the waiting workloads was cut short in.
    interrupted: u32,
    /// When the last plan was made.
    pub planned: Time,
    /// Whether a plan was made; before, the engine has decided nothing and goes on from the past usage in statuses.
    pub has_planned: bool,
    /// Whether an eviction was not considered because the start of its victim was not confirmed.
    pub awaits_start: bool,
    /// The effort of preemption searches so far.
    pub effort: Effort,
}

impl CycleCursor {
    /// Notes a change after which something may be possible that was not: capacity or quota has come free, a reservation or a
    /// nomination has changed or ended, or a workload may start again for a reason of its own. It begins a generation. In a new
    /// generation
    ///
    /// - the owners of reservations are woken, but after [`Self::note_looser_below`] only those that nodes may help, that no
    ///   condition keeps back, or that are under such a root; and a part of the classes for which no condition tells whether they
    ///   can start (`cycle/wake.rs`); the rest of those that were refused in an earlier generation follows, in this cycle or the
    ///   next (`cycle/attempts.rs`, [`Scheduler::has_more`](crate::scheduler::Scheduler::has_more));
    /// - every class may own a reservation again that was considered and does not (`cycle/attempts.rs`, `cycle/next_owner.rs`);
    /// - elastic workloads are looked at again that could not grow further (`cycle/grow.rs`).
    ///
    /// Classes that are blocked on conditions are not woken by it, but by a change of one of these. A change that takes something
    /// away need not be noted. To note one too many costs time.
    pub fn note_looser(&mut self) {
        self.generation += 1;
        self.looser.anywhere = true;
    }

    /// Notes such a change of nodes, and of the quota below these uppermost teams and of those with changed usage. A thousand teams
    /// may wait for quota at once, and the end of a workload concerns only those under the same root.
    pub fn note_looser_below(&mut self, roots: impl IntoIterator<Item = TeamId>) {
        self.generation += 1;
        self.looser.below.extend(roots);
    }

    /// Notes that a cycle ends before every workload that may start was considered.
    pub fn note_cut_short(&mut self) {
        self.cut_short = true;
        self.interrupted = self.interrupted.saturating_add(1);
    }

    /// Notes that every workload was considered that may start.
    pub fn note_pass_ended(&mut self) {
        self.interrupted = 0;
    }

    /// Whether the present pass goes on, and what a new generation wakes waits for the next one.
    #[must_use]
    pub fn goes_on(&self) -> bool {
        self.interrupted > MOST_RESTARTS
    }

    /// Notes changes of usage below uppermost teams, for the next generation.
    pub fn note_changed(&mut self, roots: BTreeSet<TeamId>) {
        self.looser.below.extend(roots);
    }

    /// Notes a change after which nothing counts that was found before: every waiting workload is attempted again.
    pub fn note_requeue_all(&mut self) {
        self.note_looser();
        self.requeue_all = true;
    }

    /// The present generation.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// What has changed if a generation has begun since the last call.
    pub fn take_new_generation(&mut self) -> Option<Looser> {
        let begins = std::mem::replace(&mut self.seen_generation, self.generation) != self.generation;
        begins.then(|| std::mem::take(&mut self.looser))
    }

    /// Whether elastic workloads have grown in this generation as far as they could.
    #[must_use]
    pub fn has_grown(&self) -> bool {
        self.grown == self.generation
    }

    /// Notes that elastic workloads have grown as far as they can.
    pub fn note_grown(&mut self) {
        self.grown = self.generation;
    }

    /// Notes a change that is not the engine's own decision. Afterwards a borrowing workload may preempt as often as at first, and
    /// the same victims again (`Nominations::borrowing_preemptions`), and defragmentation searches again (`cycle/defragment.rs`).
    pub fn note_external_change(&mut self) {
        self.external_changes += 1;
    }

    /// The number of external changes so far.
    #[must_use]
    pub fn external_changes(&self) -> u64 {
        self.external_changes
    }

    /// Notes an event that is no echo of the engine's own writes, with its subject. No plan of a preemption is complete any more
    /// ([`Scheduler::keeps_to_plan`]), and a plan that does not hold from then on names the subject.
    ///
    /// [`Scheduler::keeps_to_plan`]: crate::scheduler::Scheduler::keeps_to_plan
    pub fn note_event(&mut self, subject: Change) {
        self.environment += 1;
        self.latest_change = Some(subject);
    }

    /// The number of such events so far.
    #[must_use]
    pub fn environment(&self) -> u64 {
        self.environment
    }

    /// The subject of the last such event.
    #[must_use]
    pub fn latest_change(&self) -> Option<&Change> {
        self.latest_change.as_ref()
    }
}
