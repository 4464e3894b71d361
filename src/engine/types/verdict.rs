//! The state of each workload and its reason.

/// The state of a workload and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Its state.
    pub state: State,
    /// The machine-readable reason.
    pub reason: Reason,
    /// One sentence with the rule, the numbers and the workloads involved.
    pub message: String,
    /// Whether the workload can never start as nodes, quotas and queues are, whatever of them is free.
    pub never: bool,
}

/// How sentences say what a workload runs on: outside all quotas if it asks for nothing that a quota of its pool lists, so that it
/// neither borrows nor uses a guarantee.
#[must_use]
pub fn runs_on(outside_quotas: bool, borrowed: bool) -> &'static str {
    match borrowed {
        _ if outside_quotas => "outside all quotas",
        true => "on borrowed capacity",
        false => "within the guarantee",
    }
}

/// A workload's state as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// Held by its user.
    Held,
    /// It waits.
    Pending,
    /// It is admitted.
    Running,
    /// It is stopping; some pods are not gone yet.
    Evicting,
    /// It has ended.
    Finished,
}

/// Why a workload is in its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Its user suspended it or asks for no pods.
    HeldByUser,
    /// The annotation `sluice.dev/hold` of its user holds it.
    OnHold,
    /// Some of its pods do not exist yet.
    Incomplete,
    /// Its pods differ in shape, so they cannot be placed as one workload.
    UnlikePods,
    /// The devices of its ResourceClaims cannot be counted, or it exceeds a cap.
    Uncounted,
    /// It has not been attempted yet.
    NotYetConsidered,
    /// It runs within its team's guarantee.
    Guaranteed,
    /// It runs on borrowed capacity.
    Borrowed,
    /// The nodes of its pools can never hold its pods (selector, taint, size).
    NoNodeFits,
    /// The open nodes of its pools cannot hold its pods; closed ones may, once they are open again.
    NodesClosed,
    /// The nodes have no capacity, and no workload may be preempted for it.
    NoRoom,
    /// Its pods could not start on the only nodes that fit them; these are tried again after a pause.
    NotPlaced,
    /// Not all of its pods became ready in time in its last run; it is tried again after a pause.
    NotReady,
    /// Its last runs lost a pod soon after their start; it is tried again after a pause.
    PodLost,
    /// The capacity is free in total but fragmented.
    Fragmented,
    /// The capacity is free, but constraints between pods keep its pods from it.
    Constrained,
    /// A team on its path is at its limit.
    TeamLimit,
    /// Its queue is at its limit.
    QueueLimit,
    /// Its queue is paused.
    QueuePaused,
    /// The budget of a team on its path does not cover it until the next period.
    BudgetSpent,
    /// It is not preemptible and does not fit its team's guarantee.
    NotPreemptibleOverGuarantee,
    /// Other teams do not lend that much.
    LendingLimit,
    /// Capacity is being freed for it.
    WaitingForEviction,
    /// Free capacity is nominated to preemptors.
    RoomHeld,
    /// It could start, but would delay the owner of a reservation.
    Reserved,
    /// It was evicted and its pods are ending.
    Evicted,
    /// Its team does not exist (any more).
    UnknownTeam,
    /// Its queue does not exist (any more).
    UnknownQueue,
    /// It has waited longer than its queue's `maxWait`.
    WaitedTooLong,
    /// It is failed by a rule: it waited or ran longer than its queue allows.
    Failing,
    /// The API server refused the write; it is tried again after a pause.
    WriteRefused,
    /// It has ended.
    Finished,
}

impl Reason {
    /// Every reason, for the reference.
    pub const ALL: [Self; 32] = [
        Self::HeldByUser,
        Self::OnHold,
        Self::Incomplete,
        Self::UnlikePods,
        Self::Uncounted,
        Self::NotYetConsidered,
        Self::Guaranteed,
        Self::Borrowed,
        Self::NoNodeFits,
        Self::NodesClosed,
        Self::NoRoom,
        Self::NotPlaced,
        Self::NotReady,
        Self::PodLost,
        Self::Fragmented,
        Self::Constrained,
        Self::TeamLimit,
        Self::QueueLimit,
        Self::QueuePaused,
        Self::BudgetSpent,
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
            Self::OnHold => "OnHold",
            Self::Incomplete => "Incomplete",
            Self::UnlikePods => "UnlikePods",
            Self::Uncounted => "Uncounted",
            Self::NotYetConsidered => "NotYetConsidered",
            Self::Guaranteed => "Guaranteed",
            Self::Borrowed => "Borrowed",
            Self::NoNodeFits => "NoNodeFits",
            Self::NodesClosed => "NodesClosed",
            Self::NoRoom => "NoRoom",
            Self::NotPlaced => "NotPlaced",
            Self::NotReady => "NotReady",
            Self::PodLost => "PodLost",
            Self::Fragmented => "Fragmented",
            Self::Constrained => "Constrained",
            Self::TeamLimit => "TeamLimit",
            Self::QueueLimit => "QueueLimit",
            Self::QueuePaused => "QueuePaused",
            Self::BudgetSpent => "BudgetSpent",
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
