//! What the world tells of a step.

use std::time::Duration;

use super::strangers::Stranger;
use crate::engine::replay::Life;
use crate::engine::types::{Event, Name, Workload, WorkloadId};

/// What an object's coming, change or going means.
#[derive(Debug)]
pub enum News {
    /// A change of the world that the engine is told as it is.
    Event(Event),
    /// A workload was submitted or changed.
    Submitted {
        /// The workload.
        workload: Workload,
        /// How it behaves.
        life: Life,
        /// How long each of its runs may take.
        deadline: Option<Duration>,
        /// The name of the queue it is in.
        queue: Name,
        /// The pods it is made of, in order, if it is a group.
        members: Vec<WorkloadId>,
    },
    /// A pod was submitted that is part of a group.
    Member(Workload, Name),
    /// A pod of a group that runs was deleted.
    MemberGone {
        /// The group.
        group: WorkloadId,
        /// Which of its pods, in the order in which they started.
        number: u32,
    },
    /// A workload was deleted.
    Deleted(WorkloadId),
    /// Something that Sluice does not manage was submitted.
    Stranger(Stranger),
    /// Something that Sluice does not manage was deleted.
    StrangerGone(WorkloadId),
}
