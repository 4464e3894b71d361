//! The scheduler's memory: the state of the cluster, the queue, and the decisions that are under way.

pub mod cursor;
pub mod deadlines;
pub mod ended_pods;
pub mod gangs;
pub mod level_ends;
pub mod misplaced;
pub mod nomination;
pub mod nominations;
pub mod reservations;
pub mod retries;
pub mod set_aside;
pub mod watch;

use crate::prediction::Prediction;
use crate::queue::WaitQueue;
use crate::state::cluster::ClusterState;
use crate::state::workload::Phase;
use crate::types::{Settings, Time, WorkloadId};
use cursor::CycleCursor;
use deadlines::Deadlines;
use level_ends::LevelEnds;
use nominations::Nominations;
use reservations::ReservationTable;
use retries::Retries;

/// Everything that decisions depend on, in groups; a step of the cycle changes only some of them.
#[derive(Clone, Debug, Default)]
pub struct Scheduler {
    /// Cluster-wide scheduling options.
    pub settings: Settings,
    /// Workloads, nodes and quotas.
    pub state: ClusterState,
    /// The waiting workloads, and the conditions they are blocked on.
    pub queue: WaitQueue,
    /// When running workloads are expected to end.
    pub prediction: Prediction,
    /// Capacity kept for workloads that cannot start yet.
    pub reservations: ReservationTable,
    /// When what holds quota ends, by level; counted again when anything changes.
    pub level_ends: LevelEnds,
    /// Capacity that is being freed, with its preemptors.
    pub nominations: Nominations,
    /// Pauses after refused writes, misplaced pods and gangs that did not become ready.
    pub retries: Retries,
    /// The longest waits and runs that queues set.
    pub deadlines: Deadlines,
    /// When to search next for a move that makes free capacity less fragmented.
    pub defragmentation: DefragmentationState,
    /// How far the scheduling cycle has come.
    pub cursor: CycleCursor,
}

/// When defragmentation searches for a move next.
#[derive(Clone, Copy, Debug, Default)]
pub struct DefragmentationState {
    /// The time from which the budget allows the next move; `None` before the first plan.
    pub due: Option<Time>,
    /// The versions at which no move paid, and the time at which a workload too young to be moved then
    /// reaches its minimum run time.
    pub quiet: Option<(Versions, Option<Time>)>,
}

/// The version of the nodes and the number of external changes: equal versions mean nothing has changed.
pub type Versions = (u64, u64);

impl Scheduler {
    /// Whether the last cycle has left workloads for the next one.
    #[must_use]
    pub fn has_more(&self) -> bool {
        let (pending, now) = (&self.queue.pending, self.cursor.planned);
        !self.keeps_to_plan(now)
            && (self.cursor.cut_short || pending.has_backlog(self.cursor.generation(), now))
    }

    /// Whether a preemption is under way and nothing but echoes of its own writes has come since its plan was complete. Until
    /// the preemptor has started nothing else is decided then (law 8).
    #[must_use]
    pub fn keeps_to_plan(&self, now: Time) -> bool {
        self.nominations.plan.as_ref().is_some_and(|plan| plan.lasts(self.cursor.environment(), now))
            && self.nominations.preempts()
    }

    /// Whether a workload's last write failed so recently that it is not tried again yet.
    #[must_use]
    pub fn pauses(&self, id: &WorkloadId) -> bool {
        self.retries.pauses(id)
    }

    /// Whether a workload runs and can be evicted now: no other decision about it is under way. Such a decision ends in another
    /// phase or a failed write, and either leads to a new cycle.
    #[must_use]
    pub fn can_evict(&self, id: &WorkloadId) -> bool {
        let runs = self.state.get(id).is_some_and(|info| matches!(info.phase, Phase::Running(_)));
        runs && !self.pauses(id)
    }
}
