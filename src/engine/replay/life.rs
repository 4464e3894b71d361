//! How a replayed workload behaves, and the changes that a replay reports.

use std::time::Duration;

use crate::types::{Admission, EvictReason, Name, ResizeCause, WorkloadId};

/// How a workload behaves once it may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// How long each of its pods runs; `None` for ever.
    pub run: Option<Duration>,
    /// How many of its pods must succeed; `None` as many as it wants to run at once.
    pub completions: Option<u32>,
    /// How long its pods take to end after an eviction.
    pub grace: Duration,
}

/// Something that happened to a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// It was admitted, and its pods started.
    Admitted {
        /// The workload.
        id: WorkloadId,
        /// Its nodes, its number of pods and the pool whose quota it uses.
        admission: Admission,
        /// The engine's sentence.
        message: String,
    },
    /// Its pods changed.
    Resized {
        /// The workload.
        id: WorkloadId,
        /// The admission from now on.
        admission: Admission,
        /// The rule.
        cause: ResizeCause,
        /// The preemptor that gets the capacity, if there is one.
        preemptor: Option<WorkloadId>,
        /// The work that the pods it loses had done since they started or last saved it, summed over pods.
        lost: Duration,
        /// The engine's sentence.
        message: String,
    },
    /// It was evicted; it is queued again, if that is possible, once its pods are gone.
    Evicted {
        /// The workload.
        id: WorkloadId,
        /// The preemptor, if there is one.
        preemptor: Option<WorkloadId>,
        /// The rule.
        reason: EvictReason,
        /// How long it had been running.
        ran: Duration,
        /// The work its pods had done since they started or last saved it, summed over pods.
        lost: Duration,
        /// The engine's sentence.
        message: String,
    },
    /// The last pod of one that was evicted, failed or deleted is gone.
    PodsGone {
        /// The workload.
        id: WorkloadId,
    },
    /// A node took pods of it.
    PodsLost {
        /// The workload.
        id: WorkloadId,
        /// The node.
        node: Name,
        /// How many.
        pods: u32,
        /// The work they had done since they started or last saved it, summed over pods.
        lost: Duration,
    },
    /// It ended for good without success.
    Failed {
        /// The workload.
        id: WorkloadId,
        /// The rule as a machine-readable code.
        code: &'static str,
        /// How long its last run was; zero when it did not run.
        ran: Duration,
        /// One sentence.
        message: String,
    },
    /// It ended with success.
    Finished {
        /// The workload.
        id: WorkloadId,
        /// How long its last run was.
        ran: Duration,
    },
}

impl Happening {
    /// The workload it happened to.
    #[must_use]
    pub fn workload(&self) -> &WorkloadId {
        match self {
            Self::Admitted { id, .. }
            | Self::Resized { id, .. }
            | Self::Evicted { id, .. }
            | Self::PodsGone { id }
            | Self::PodsLost { id, .. }
            | Self::Failed { id, .. }
            | Self::Finished { id, .. } => id,
        }
    }
}
