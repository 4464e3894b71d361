//! What the engine says: actions to carry out, and a verdict on every workload.

use std::collections::BTreeMap;

use crate::types::amount::{Amount, ResourceList};
use crate::types::{Admission, Name, Time, WorkloadId};

/// What one call of `plan` decided, in the order to carry out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The actions; the engine counts on each until told that its write failed.
    pub actions: Vec<Action>,
}

/// One write the edge must make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Let the workload run where the admission says.
    Admit {
        /// Whose.
        workload: WorkloadId,
        /// Where, how many and by whose quota.
        admission: Admission,
        /// Why now, in one sentence.
        message: String,
    },
    /// Let a running workload go on with other pods than before: more, fewer, or elsewhere.
    Resize {
        /// Whose.
        workload: WorkloadId,
        /// What holds from now on in place of what it was admitted with; `at` stays.
        admission: Admission,
        /// The rule.
        cause: ResizeCause,
        /// The claimant for whom it shrinks, if it does for one.
        preemptor: Option<WorkloadId>,
        /// The numbers and the parties, in one sentence.
        message: String,
    },
    /// Stop the workload and put it back into the queue.
    Evict {
        /// Whose.
        workload: WorkloadId,
        /// The claimant whose start pays for it; `None` when no claimant is the cause.
        preemptor: Option<WorkloadId>,
        /// The rule.
        reason: EvictReason,
        /// The numbers and the parties, in one sentence.
        message: String,
    },
    /// End the workload for good, as failed.
    Fail {
        /// Whose.
        workload: WorkloadId,
        /// The rule.
        reason: FailReason,
        /// The numbers, in one sentence.
        message: String,
    },
}

impl Action {
    /// The workload the action is about.
    #[must_use]
    pub fn workload(&self) -> &WorkloadId {
        match self {
            Self::Admit { workload, .. }
            | Self::Resize { workload, .. }
            | Self::Evict { workload, .. }
            | Self::Fail { workload, .. } => workload,
        }
    }
}

/// Why a running workload goes on with other pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResizeCause {
    /// Capacity came free for more of its pods.
    Grown,
    /// Pods beyond its minimum make room for a claimant.
    Shrunk,
    /// Pods lost with their node, or kept from starting there, are made anew.
    Replaced,
    /// Pods are made anew elsewhere, because only scattered room stood in the way of an owed workload.
    Moved,
}

impl ResizeCause {
    /// Every cause, for metrics that must exist before the first event.
    pub const ALL: [Self; 4] = [Self::Grown, Self::Shrunk, Self::Replaced, Self::Moved];

    /// The machine-readable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Grown => "Grown",
            Self::Shrunk => "Shrunk",
            Self::Replaced => "Replaced",
            Self::Moved => "Moved",
        }
    }
}

/// Why a workload is ended as failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailReason {
    /// It waited longer than its queue allows.
    MaxWait,
    /// It ran longer than its queue allows.
    MaxRuntime,
}

impl FailReason {
    /// Every reason, for metrics that must exist before the first event.
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

/// Why a running workload must go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EvictReason {
    /// An owed workload takes back what this one borrowed.
    Reclaimed,
    /// A workload of higher priority in the same team takes its place.
    Preempted,
    /// A team with a smaller share of the surplus takes part of what this one's team borrowed.
    FairShare,
    /// It moves elsewhere, because only scattered room stood in the way of an owed workload.
    Moved,
    /// A node took pods of it that cannot be replaced.
    NodeLost,
    /// Pods of it could not be started where it was admitted to, and find no other place beside the rest.
    NotPlaced,
    /// Not all of its pods became ready in the time that its queue gives them.
    NotReady,
}

impl EvictReason {
    /// Every reason, for metrics that must exist before the first event.
    pub const ALL: [Self; 7] = [
        Self::Reclaimed,
        Self::Preempted,
        Self::FairShare,
        Self::Moved,
        Self::NodeLost,
        Self::NotPlaced,
        Self::NotReady,
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
            Self::NotPlaced => "NotPlaced",
            Self::NotReady => "NotReady",
        }
    }
}

/// Where a workload stands and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Its state.
    pub state: State,
    /// The machine-readable reason.
    pub reason: Reason,
    /// One sentence with the numbers and the parties.
    pub message: String,
}

/// A workload's state as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Held by its user.
    Held,
    /// Waits.
    Pending,
    /// Admitted.
    Running,
    /// Told to stop, pods not yet gone.
    Evicting,
    /// Ended.
    Finished,
}

/// Why a workload is in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Its user suspended it.
    HeldByUser,
    /// Not all of its pods are there.
    Incomplete,
    /// Its pods do not ask for the same, so that they cannot be placed as one.
    UnlikePods,
    /// What it asks for by claims cannot be counted.
    Uncounted,
    /// Not looked at yet.
    NotYetConsidered,
    /// It runs within its team's guarantee.
    Guaranteed,
    /// It runs on what others leave idle.
    Borrowed,
    /// No node in its pools could ever hold one of its pods (selector, taint, size).
    NoNodeFits,
    /// The nodes have no room, and nothing may be evicted for it.
    NoRoom,
    /// Its pods could not be started on the only nodes that fit them; these are tried again later.
    NotPlaced,
    /// Not all of its pods became ready in time when it ran last; it is tried again after a pause.
    NotReady,
    /// The room is there in total but too scattered.
    Fragmented,
    /// A team on its path is at its limit.
    TeamLimit,
    /// Its queue is at its limit.
    QueueLimit,
    /// It may not be evicted, so it must fit its team's guarantee, and does not.
    NotPreemptibleOverGuarantee,
    /// Idle guarantees of other teams are not lent that far.
    LendingLimit,
    /// Room is being freed for it.
    WaitingForEviction,
    /// Free room is held for a workload that is owed it.
    RoomHeld,
    /// It could start, but would push back the start of one for which room is reserved.
    Reserved,
    /// It was evicted and its pods are ending.
    Evicted,
    /// Its team does not exist (any more).
    UnknownTeam,
    /// Its queue does not exist (any more).
    UnknownQueue,
    /// It has waited for longer than its queue wants.
    WaitedTooLong,
    /// It is being ended as failed, because it waited or ran for longer than its queue allows.
    Failing,
    /// The API server refused the write; it is tried again after a pause.
    WriteRefused,
    /// It has ended.
    Finished,
}

impl Reason {
    /// Every reason, for the reference.
    pub const ALL: [Self; 26] = [
        Self::HeldByUser,
        Self::Incomplete,
        Self::UnlikePods,
        Self::Uncounted,
        Self::NotYetConsidered,
        Self::Guaranteed,
        Self::Borrowed,
        Self::NoNodeFits,
        Self::NoRoom,
        Self::NotPlaced,
        Self::NotReady,
        Self::Fragmented,
        Self::TeamLimit,
        Self::QueueLimit,
        Self::NotPreemptibleOverGuarantee,
        Self::LendingLimit,
        Self::WaitingForEviction,
        Self::RoomHeld,
        Self::Reserved,
        Self::Evicted,
        Self::UnknownTeam,
        Self::UnknownQueue,
        Self::WaitedTooLong,
        Self::Failing,
        Self::WriteRefused,
        Self::Finished,
    ];

    /// The machine-readable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::HeldByUser => "HeldByUser",
            Self::Incomplete => "Incomplete",
            Self::UnlikePods => "UnlikePods",
            Self::Uncounted => "Uncounted",
            Self::NotYetConsidered => "NotYetConsidered",
            Self::Guaranteed => "Guaranteed",
            Self::Borrowed => "Borrowed",
            Self::NoNodeFits => "NoNodeFits",
            Self::NoRoom => "NoRoom",
            Self::NotPlaced => "NotPlaced",
            Self::NotReady => "NotReady",
            Self::Fragmented => "Fragmented",
            Self::TeamLimit => "TeamLimit",
            Self::QueueLimit => "QueueLimit",
            Self::NotPreemptibleOverGuarantee => "NotPreemptibleOverGuarantee",
            Self::LendingLimit => "LendingLimit",
            Self::WaitingForEviction => "WaitingForEviction",
            Self::RoomHeld => "RoomHeld",
            Self::Reserved => "Reserved",
            Self::Evicted => "Evicted",
            Self::UnknownTeam => "UnknownTeam",
            Self::UnknownQueue => "UnknownQueue",
            Self::WaitedTooLong => "WaitedTooLong",
            Self::Failing => "Failing",
            Self::WriteRefused => "WriteRefused",
            Self::Finished => "Finished",
        }
    }
}

/// A team's figures in one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamView {
    /// The team.
    pub team: Name,
    /// The pool.
    pub pool: Name,
    /// What it is promised.
    pub guaranteed: ResourceList,
    /// Its cap, where it has one.
    pub limit: ResourceList,
    /// What it and the teams below it hold.
    pub used: ResourceList,
    /// What it holds beyond its guarantee.
    pub borrowed: ResourceList,
    /// What of its idle guarantee others use.
    pub lent: ResourceList,
    /// What it would hold of the resources it asks for if the pool were shared out anew to the present demand.
    pub fair_share: ResourceList,
}

/// A team's queue in figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueView {
    /// The team.
    pub team: Name,
    /// The queue.
    pub queue: Name,
    /// How many workloads wait.
    pub pending: usize,
    /// When the one that waits longest was submitted.
    pub oldest: Option<Time>,
    /// How many workloads run.
    pub running: usize,
}

/// Room that is kept for a workload that cannot start yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationView {
    /// The workload it is for.
    pub owner: WorkloadId,
    /// The pool.
    pub pool: Name,
    /// How many pods are to go to which node.
    pub nodes: BTreeMap<Name, u32>,
    /// When it starts at the latest, if all who run end as expected; `None` when that cannot be predicted.
    pub start: Option<Time>,
}

/// A node in figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The node.
    pub name: Name,
    /// Its pool.
    pub pool: Name,
    /// Whether new pods may go there.
    pub schedulable: bool,
    /// What it offers.
    pub allocatable: ResourceList,
    /// What is free now.
    pub free: ResourceList,
    /// Which workloads hold how many pods there.
    pub workloads: Vec<(WorkloadId, u32)>,
    /// The devices that several pods may have shares of, in the order in which they became shared.
    pub shared: Vec<SharedDevice>,
}

/// A device on which shares are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDevice {
    /// The resource that counts it.
    pub resource: Name,
    /// Whose pods hold how much of it: the identity of their workload, or of a pod that belongs to none.
    pub shares: Vec<(Name, Amount)>,
}

/// Something about the quotas that their owner should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overcommitment {
    /// The team whose promise cannot be kept in full; `None` for the pool's total.
    pub team: Option<Name>,
    /// The pool.
    pub pool: Name,
    /// One sentence with the numbers.
    pub message: String,
}

/// How much searching for victims was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Searches made.
    pub searches: u64,
    /// Searches cut short by their bound, so that a better set may exist.
    pub bounded: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds `ALL` of an enum to its variants: the match refuses to compile while the list lacks one.
    macro_rules! assert_complete {
        ($codes:ident: $($variant:ident),+ $(,)?) => {
            for code in $codes::ALL {
                match code {
                    $($codes::$variant => assert_eq!(code.code(), stringify!($variant)),)+
                }
            }
            assert_eq!($codes::ALL, [$($codes::$variant),+]);
        };
    }

    #[test]
    fn every_list_of_codes_is_complete() {
        assert_complete!(ResizeCause: Grown, Shrunk, Replaced, Moved);
        assert_complete!(FailReason: MaxWait, MaxRuntime);
        assert_complete!(
            EvictReason: Reclaimed, Preempted, FairShare, Moved, NodeLost, NotPlaced, NotReady,
        );
        assert_complete!(
            Reason:
            HeldByUser,
            Incomplete,
            UnlikePods,
            Uncounted,
            NotYetConsidered,
            Guaranteed,
            Borrowed,
            NoNodeFits,
            NoRoom,
            NotPlaced,
            NotReady,
            Fragmented,
            TeamLimit,
            QueueLimit,
            NotPreemptibleOverGuarantee,
            LendingLimit,
            WaitingForEviction,
            RoomHeld,
            Reserved,
            Evicted,
            UnknownTeam,
            UnknownQueue,
            WaitedTooLong,
            Failing,
            WriteRefused,
            Finished,
        );
    }
}
