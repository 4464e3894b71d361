//! What happens in the cluster, as the engine learns it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::types::amount::{Amount, ResourceList};
use crate::types::name::Name;
use crate::types::node::{Node, Pool};
use crate::types::profile::Profile;
use crate::types::team::Team;
use crate::types::time::Time;
use crate::types::workload::{PodId, Workload, WorkloadId};

/// One change in the cluster. The same events in the same order give the same decisions (law 10).
#[derive(Clone, Debug)]
pub enum Event {
    /// A team was created or changed.
    TeamApplied(Team),
    /// A team was deleted.
    TeamRemoved(Name),
    /// The status of a team says what the team borrowed in the past.
    PastUsage(PastUsage),
    /// The status of a team says what was used of its budget.
    BudgetUsed(BudgetUsed),
    /// The status of a team says how long its runs took.
    RunLengths(RunLengths),
    /// A node pool was created or changed.
    PoolApplied(Pool),
    /// A node pool was deleted; its nodes belong to another pool that selects them, or to the default pool.
    PoolRemoved(Name),
    /// A node was created or changed.
    NodeApplied(Node),
    /// A node was deleted.
    NodeRemoved(Name),
    /// A workload was created or changed.
    WorkloadApplied(Arc<Workload>),
    /// A workload was deleted. Its remaining pods are charged until they are gone.
    WorkloadRemoved(WorkloadId),
    /// A pod that is neither Succeeded nor Failed was created, bound or changed.
    PodApplied(Pod),
    /// A pod was removed or reached a terminal phase; it is not charged any more.
    PodRemoved(PodId),
    /// Pods of a running workload are not on the nodes of its admission and will not get there by themselves.
    PodsMisplaced(MisplacedPods),
    /// The number of ready pods of a workload changed; it is zero until reported.
    PodsReady(PodsReady),
    /// The write of an action that ends a pod failed; the engine decides it again after a pause.
    PodNotEnded(PodId),
    /// The write of any other action failed; the engine decides again after a pause.
    WriteFailed {
        /// The workload of the action.
        workload: WorkloadId,
        /// The answer of the API server, for the verdict.
        message: String,
    },
    /// The write that failed last was an admission, which the API server refuses until the object changes.
    AdmissionRefused(WorkloadId),
    /// The object of a workload has changed since its admission was refused.
    ObjectChanged(WorkloadId),
}

impl Event {
    /// A workload was created or changed.
    #[must_use]
    pub fn workload(workload: impl Into<Arc<Workload>>) -> Self {
        Self::WorkloadApplied(workload.into())
    }
}

/// The past borrowed usage of a team as its status has it. Fair shares count it, decayed up to the plan, on every replica. An
/// engine that has not planned yet also goes on from it; one that has keeps its own value for the next write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastUsage {
    /// The team.
    pub team: Name,
    /// The decayed usage by pool.
    pub pools: BTreeMap<Name, ResourceList>,
    /// The time up to which it was decayed.
    pub at: Time,
}

/// What was used of the budget of a team, as its status has it. Decisions count it, and on top of it what workloads that run
/// have used since, on every replica alike. An engine that has not planned yet also goes on from it for the next write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetUsed {
    /// The team.
    pub team: Name,
    /// What it and the teams below it used, in GPU-hours.
    pub used: Amount,
    /// When the period began in which they used it; `None` for a budget without periods.
    pub since: Option<Time>,
    /// The time up to which it was counted.
    pub at: Time,
}

/// The most runs that stand for all runs of a class in a status.
pub const QUANTILES: usize = 21;

/// How long the runs of a team took, as its status has it: a bounded summary. Decisions rest on it on every replica. An
/// engine that has not planned yet also goes on from it; one that has keeps its own value for the next write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunLengths {
    /// The team.
    pub team: Name,
    /// By queue and size, and for all sizes and all queues; the class without runs for longest at the front.
    pub classes: Vec<ClassLengths>,
}

/// How long the runs of one class took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassLengths {
    /// The queue; `None` means any.
    pub queue: Option<Name>,
    /// Thousandths of devices, over all pods; `None` means any number.
    pub devices: Option<i64>,
    /// The number of runs.
    pub runs: usize,
    /// At most [`QUANTILES`] of them in milliseconds, the shortest first.
    pub lengths: Vec<u64>,
    /// The number of runs with a time limit.
    pub limited: usize,
    /// At most [`QUANTILES`] of these in millionths of the limit, the shortest first.
    pub fractions: Vec<u64>,
}

/// What the runs behind an estimate have in common with the run in question, the most first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Likeness {
    /// Team, queue, size, user, and the name without its numbers.
    Name,
    /// Team, queue, size and user.
    User,
    /// Team, queue and size.
    #[default]
    Size,
}

/// A pod that is charged: scheduled or about to be, and not in a terminal phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its identity.
    pub id: PodId,
    /// The workload that owns it, if any; it may be unknown to the engine.
    pub workload: Option<WorkloadId>,
    /// The node it is bound to; a pod of a workload without one is charged to its team's quota only.
    pub node: Option<Name>,
    /// Its requests.
    pub requests: ResourceList,
    /// Its labels and constraints, if it belongs to no known workload; those of a workload's pods are the workload's.
    pub profile: Option<Arc<Profile>>,
    /// What the team of its namespace is charged if the pod belongs to no known workload; `None` outside of teams.
    pub unadmitted: Option<Box<Unadmitted>>,
}

/// Facts about a pod that holds capacity of a team without an admission (law 15): an orphan of a deleted Job, a
/// detached pod, a DaemonSet's pod, a pod of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unadmitted {
    /// The team of its namespace.
    pub team: Name,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// When it was created.
    pub created: Time,
    /// The owner that controls it.
    pub owner: Option<PodOwner>,
    /// What would follow its eviction.
    pub replacement: Replacement,
    /// Whether it is older than the membership of its namespace in the team.
    pub adopted: bool,
    /// Whether it is about to end.
    pub ending: bool,
}

/// The owner that controls a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodOwner {
    /// Its UID.
    pub uid: Name,
    /// Its kind and name, such as `DaemonSet/logs`.
    pub label: Name,
}

/// What follows the end of a pod that was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// No pod takes its place, or one that is held until it is admitted.
    Held,
    /// Its controller creates another pod at once, which is not held.
    AtOnce,
}

/// The real nodes of a workload's pods, where they differ from its admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MisplacedPods {
    /// The workload.
    pub workload: WorkloadId,
    /// Running or bound pods by node, without ending ones.
    pub there: BTreeMap<Name, u32>,
    /// Pods that cannot start on their node, by node.
    pub stuck: BTreeMap<Name, u32>,
    /// The reason given by kube-scheduler or by the node's state.
    pub message: String,
}

/// The number of ready pods of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodsReady {
    /// The workload.
    pub workload: WorkloadId,
    /// Pods that are ready now.
    pub ready: u32,
    /// Pods that have succeeded so far, in all observed runs.
    pub succeeded: u32,
}
