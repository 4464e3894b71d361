//! Effects of a scenario step on the simulation.

use std::sync::Arc;
use std::time::Duration;

use super::unmanaged::UnmanagedWorkload;
use crate::engine::replay::Life;
use crate::engine::types::{Event, Name, Workload, WorkloadId};

/// An effect of an object that is applied or deleted.
#[derive(Debug)]
pub enum Effect {
    /// An event for the engine.
    Event(Event),
    /// A workload was submitted or changed.
    Submitted {
        /// The workload.
        workload: Arc<Workload>,
        /// Run time and grace of its pods.
        life: Life,
        /// Its `activeDeadlineSeconds`, for each run.
        deadline: Option<Duration>,
        /// The name of its queue.
        queue: Name,
        /// The pods of a group, in order; empty for a Job or a single pod.
        members: Vec<WorkloadId>,
    },
    /// A pod of a group was submitted, to the queue of this name.
    Member(Arc<Workload>, Name),
    /// A pod of a running group was deleted.
    MemberDeleted {
        /// The group.
        group: WorkloadId,
        /// The pod's number in the order in which the group's pods started.
        number: u32,
    },
    /// A workload was deleted.
    Deleted(WorkloadId),
    /// The namespace of a workload has left its team.
    Left(UnmanagedWorkload),
    /// An unmanaged workload was submitted.
    Unmanaged(UnmanagedWorkload),
    /// An unmanaged workload was deleted.
    UnmanagedDeleted(WorkloadId),
}
