//! The progress of the scheduling cycle, and the changes since.

use crate::scheduler::nominations::Change;
use crate::types::{Effort, Time};

/// The progress of scheduling cycles.
#[derive(Clone, Debug, Default)]
pub struct CycleCursor {
    /// The time up to which past usage has been counted.
    pub accrued: Time,
    /// Counts the changes after which a blocked workload may be able to start.
    pub generation: u64,
    /// The generation that the last cycle has seen.
    pub seen_generation: u64,
    /// The generation in which elastic workloads last grew as far as they could.
    pub grown: u64,
    /// When growth goes on that a waiting workload holds back.
    pub held_back: Option<Time>,
    /// Counts the changes that are not the engine's own decisions.
    pub external_changes: u64,
    /// Counts the events that no decision of the engine has caused: what is left are echoes of its own writes (law 8).
    pub environment: u64,
    /// The subject of the last of them.
    pub latest_change: Option<Change>,
    /// Whether every waiting workload is attempted again.
    pub requeue_all: bool,
    /// The time at which something becomes possible without an event.
    pub wake: Option<Time>,
    /// The search budget that the cycle has left; once it is used up, the rest is left for the next cycle.
    pub search_budget: usize,
    /// Whether the last cycle ended before every workload that may start was considered.
    pub cut_short: bool,
    /// When the last plan was made.
    pub planned: Time,
    /// Whether a plan was made; before, the engine has decided nothing and goes on from the past usage in statuses.
    pub has_planned: bool,
    /// Whether an eviction was not considered because the start of its victim was not confirmed.
    pub awaits_start: bool,
    /// The effort of preemption searches so far.
    pub effort: Effort,
}
