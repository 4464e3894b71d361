//! What the engine decides.

use crate::types::workload::{Admission, PodId, WorkloadId};

/// The decisions of one scheduling cycle, in the order in which they are to be carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The actions. Each counts as done until its write is reported to have failed.
    pub actions: Vec<Action>,
}

/// One decision, carried out by one write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Admit the workload.
    Admit {
        /// The workload.
        workload: WorkloadId,
        /// Its nodes, its number of pods and the pool whose quota it uses.
        admission: Admission,
        /// The rule and the numbers, in one sentence.
        message: String,
    },
    /// Change the pods of a running workload: more, fewer, or on other nodes.
    Resize {
        /// The workload.
        workload: WorkloadId,
        /// The admission that replaces its present one; `at` stays.
        admission: Admission,
        /// The rule.
        cause: ResizeCause,
        /// The preemptor that gets the capacity, if there is one.
        preemptor: Option<WorkloadId>,
        /// The rule, the numbers and the workloads involved, in one sentence.
        message: String,
    },
    /// Evict the workload; it is queued again.
    Evict {
        /// The workload.
        workload: WorkloadId,
        /// The preemptor; `None` if the eviction is not for another workload.
        preemptor: Option<WorkloadId>,
        /// The rule.
        reason: EvictReason,
        /// The rule, the numbers and the workloads involved, in one sentence.
        message: String,
    },
    /// End a pod on a node that does not answer, without waiting for its kubelet.
    EndPod {
        /// The workload of the pod.
        workload: WorkloadId,
        /// The pod.
        pod: PodId,
        /// The node and the time, in one sentence.
        message: String,
    },
    /// Fail the workload; it is not queued again.
    Fail {
        /// The workload.
        workload: WorkloadId,
        /// The rule.
        reason: FailReason,
        /// The numbers, in one sentence.
        message: String,
    },
}

impl Action {
    /// Adds a sentence to its message.
    pub(crate) fn add_to_message(&mut self, sentence: &str) {
        let (Self::Admit { message, .. }
        | Self::Resize { message, .. }
        | Self::Evict { message, .. }
        | Self::EndPod { message, .. }
        | Self::Fail { message, .. }) = self;
        message.push(' ');
        message.push_str(sentence);
    }

    /// The workload the action is about.
    #[must_use]
    pub fn workload(&self) -> &WorkloadId {
        match self {
            Self::Admit { workload, .. }
            | Self::Resize { workload, .. }
            | Self::Evict { workload, .. }
            | Self::EndPod { workload, .. }
            | Self::Fail { workload, .. } => workload,
        }
    }
}

/// Why the pods of a running workload change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResizeCause {
    /// Capacity for more of its pods came free.
    Grown,
    /// Pods beyond its minimum are preempted.
    Shrunk,
    /// Pods that can never come back, or that its user gave up, are taken off the record (law 16).
    Released,
    /// Pods that were lost with their node, or could not start there, are replaced.
    Replaced,
    /// Pods move to other nodes because only fragmentation kept a workload within guarantee from starting.
    Moved,
}

impl ResizeCause {
    /// Every cause; metrics have a series for each before its first event.
    pub const ALL: [Self; 5] = [Self::Grown, Self::Shrunk, Self::Released, Self::Replaced, Self::Moved];

    /// The machine-readable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Grown => "Grown",
            Self::Shrunk => "Shrunk",
            Self::Released => "Released",
            Self::Replaced => "Replaced",
            Self::Moved => "Moved",
        }
    }
}

/// Why a workload fails by a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailReason {
    /// It waited longer than its queue allows.
    MaxWait,
    /// It ran longer than its queue allows.
    MaxRuntime,
}

impl FailReason {
    /// Every reason; metrics have a series for each before its first event.
    pub const ALL: [Self; 2] = [Self::MaxWait, Self::MaxRuntime];

    /// The machine-readable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::MaxWait => "MaxWait",
            Self::MaxRuntime => "MaxRuntime",
        }
    }
}

/// Why a running workload is evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EvictReason {
    /// A workload within guarantee reclaims capacity that this one's team borrows.
    Reclaimed,
    /// A workload of higher priority in the same team preempts it.
    Preempted,
    /// A borrowing workload of a team with a smaller fair share preempts it.
    FairShare,
    /// It moves to other nodes because only fragmentation kept a workload within guarantee from starting.
    Moved,
    /// Pods were lost with their node and cannot be replaced.
    NodeLost,
    /// A pod was deleted, evicted or failed for good, and its queue has the whole workload restart then.
    PodLost,
    /// Pods could not start on their nodes and were not replaced on others beside the rest.
    NotPlaced,
    /// Not all of its pods became ready within the queue's `readyTimeout`.
    NotReady,
    /// It was never admitted, and its team or a team above holds more than its limit (law 1).
    OverLimit,
    /// Its user wants it back in the queue.
    Requeued,
    /// Its queue is drained.
    QueueDrained,
}

impl EvictReason {
    /// Every reason; metrics have a series for each before its first event.
    pub const ALL: [Self; 11] = [
        Self::Reclaimed,
        Self::Preempted,
        Self::FairShare,
        Self::Moved,
        Self::NodeLost,
        Self::PodLost,
        Self::NotPlaced,
        Self::NotReady,
        Self::OverLimit,
        Self::Requeued,
        Self::QueueDrained,
    ];

    /// The machine-readable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Reclaimed => "Reclaimed",
            Self::Preempted => "Preempted",
            Self::FairShare => "FairShare",
            Self::Moved => "Moved",
            Self::NodeLost => "NodeLost",
            Self::PodLost => "PodLost",
            Self::NotPlaced => "NotPlaced",
            Self::NotReady => "NotReady",
            Self::OverLimit => "OverLimit",
            Self::Requeued => "Requeued",
            Self::QueueDrained => "QueueDrained",
        }
    }
}
