//! What the engine is told: the cluster's objects reduced to what decisions need.
//!
//! The edge (cluster, simulator) builds these values; nothing here knows Kubernetes' own types.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::types::amount::{Amount, ResourceList};

/// The name of a team, queue, pool, node, label or namespace; cheap to clone.
pub type Name = Arc<str>;

/// The pool of all nodes that no [`Pool`] selects.
pub const DEFAULT_POOL: &str = "default";

/// The resource in which a pool with weights counts its kinds of devices together; quotas may name it.
pub const CURRENCY: &str = "sluice.dev/gpu";

/// How long after an eviction an unconfirmed stop is taken for done: longer than a Job controller
/// that saw the admission can take to see the eviction too.
pub const SETTLE: Duration = Duration::from_secs(5);

/// What the owner of the cluster decides about the way in which is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// With it, what a team held of the surplus in the past counts when its turn to start is decided,
    /// half as much after every such time. Without it only the present counts.
    pub usage_half_life: Option<Duration>,
    /// With it, what runs is moved now and then so that what is free lies together; without it, only for
    /// somebody who is owed the room.
    pub defragmentation: Option<Defragmentation>,
}

/// How much may be given up so that what is free lies together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defragmentation {
    /// The time between two moves, at least.
    pub every: Duration,
    /// The most work that a move may lose, by the run time since the last checkpoint or the start.
    pub most_lost: Duration,
}

/// A point in time: milliseconds since the Unix epoch (or since the start of a simulation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    /// The time that lies `duration` later; the far future when that cannot be represented.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long it is from `earlier` to this time; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// The pause before trying again what has failed so many times before: twice as long each time, up to the longest.
#[must_use]
pub fn backoff(first: Duration, longest: Duration, times: u32) -> Duration {
    first.saturating_mul(1 << times.min(16)).min(longest)
}

/// A workload's identity: the object's UID on a cluster, `namespace/name` in a simulation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadId(pub Arc<str>);

impl fmt::Display for WorkloadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A pod's identity, as [`WorkloadId`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId(pub Arc<str>);

/// One change of the world. The same events in the same order give the same decisions.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "events are made, applied and dropped one at a time")]
pub enum Event {
    /// A team was created or changed.
    TeamApplied(Team),
    /// A team was deleted.
    TeamRemoved(Name),
    /// A node pool was created or changed.
    PoolApplied(Pool),
    /// A node pool was deleted; its nodes go to another pool that selects them or to the default.
    PoolRemoved(Name),
    /// A node was created or changed.
    NodeApplied(Node),
    /// A node was deleted.
    NodeRemoved(Name),
    /// A workload was created or changed.
    WorkloadApplied(Workload),
    /// A workload was deleted. What its remaining pods hold is held until they are gone.
    WorkloadRemoved(WorkloadId),
    /// A pod that holds room (not yet Succeeded or Failed) was created, bound or changed.
    PodApplied(Pod),
    /// A pod is gone or has reached a terminal phase: it holds nothing any more.
    PodRemoved(PodId),
    /// Pods of a workload that runs are not where its admission has them, and will not get there by themselves.
    PodsMisplaced(MisplacedPods),
    /// More or fewer pods of a workload are ready than was last told; none are until it is told.
    PodsReady(PodsReady),
    /// The write of an action failed; the engine decides anew after a back-off.
    WriteFailed {
        /// Whose action it was.
        workload: WorkloadId,
        /// What the API server said, for the verdict.
        message: String,
    },
}

/// A team's promise and its classes of service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Team {
    /// Its name.
    pub name: Name,
    /// The team above it, if any.
    pub parent: Option<Name>,
    /// Its quota in each pool it names; a pool it does not name guarantees nothing.
    pub quotas: BTreeMap<Name, Quota>,
    /// Its part of the surplus relative to other teams; zero only takes what nobody else wants.
    pub weight: u32,
    /// Its queues, the default first; never empty.
    pub queues: Vec<Queue>,
    /// Whether its users take turns: among equal priorities the one who holds least goes first.
    pub fair_users: bool,
}

/// What a team has in one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// What it gets back whenever it asks. A resource that is in no list is not limited.
    pub guaranteed: ResourceList,
    /// The most it may hold, own and borrowed. A resource not listed has no cap.
    pub limit: ResourceList,
    /// The most of its idle guarantee that others may borrow. Not listed: all of it.
    pub lendable: ResourceList,
}

/// A class of service inside a team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its name, unique in the team.
    pub name: Name,
    /// Higher goes first inside the team.
    pub priority: i32,
    /// Whether its workloads may be evicted. Those that may not must fit the guarantee.
    pub preemptible: bool,
    /// The most the queue may hold at once. A resource not listed has no cap.
    pub limit: ResourceList,
    /// How long a workload runs undisturbed by claims that are not owed.
    pub min_runtime: Duration,
    /// How long a workload that cannot start waits before room is reserved for it.
    pub reserve_after: Duration,
    /// The time limit of workloads that state none.
    pub default_time_limit: Option<Duration>,
    /// The longest a workload may wait, if bounded.
    pub max_wait: Option<Duration>,
    /// What follows when it has waited that long.
    pub on_max_wait: OnMaxWait,
    /// The longest a workload may run, if bounded; then it fails.
    pub max_runtime: Option<Duration>,
    /// What happens to a workload that loses some of its pods with their node.
    pub on_pod_loss: OnPodLoss,
    /// How soon after its admission all pods of a workload with several must be ready, if that is bounded;
    /// else the whole of it goes back to the queue.
    pub ready_timeout: Option<Duration>,
}

/// What follows when a workload has waited for its queue's `max_wait`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMaxWait {
    /// It is said in its verdict; nothing else changes.
    #[default]
    Notify,
    /// It goes before all others of its team that have not waited that long.
    RaisePriority,
    /// It fails.
    Fail,
}

/// What happens to a workload that loses some of its pods with their node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnPodLoss {
    /// The lost pods are made anew within the same topology domain; if that has no room, the whole
    /// workload goes back to the queue.
    #[default]
    Replace,
    /// The whole workload goes back to the queue.
    Restart,
}

impl Queue {
    /// The queue of a team that defines none: preemptible, no minimum run time.
    #[must_use]
    pub fn fallback() -> Self {
        Self {
            name: "default".into(),
            priority: 0,
            preemptible: true,
            limit: ResourceList::new(),
            min_runtime: Duration::ZERO,
            reserve_after: Duration::from_secs(600),
            default_time_limit: None,
            max_wait: None,
            on_max_wait: OnMaxWait::Notify,
            max_runtime: None,
            on_pod_loss: OnPodLoss::Replace,
            ready_timeout: None,
        }
    }
}

/// A set of nodes with quotas of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Its name.
    pub name: Name,
    /// Labels a node must carry to belong to it. Of several pools that match, the first by name has the node.
    /// Without any it selects none.
    pub node_selector: BTreeMap<Name, Name>,
    /// Node labels that name topology domains, outermost first.
    pub topology: Vec<Name>,
    /// What a unit of a resource counts in the pool's currency ([`CURRENCY`]), where the pool has one.
    pub weights: ResourceList,
}

/// A node and what it offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: Name,
    /// Its labels.
    pub labels: BTreeMap<Name, Name>,
    /// What pods may request in total, `pods` (slots) among it.
    pub allocatable: ResourceList,
    /// Its taints with effect NoSchedule or NoExecute.
    pub taints: Vec<Taint>,
    /// Whether new pods may be bound to it: Ready and not cordoned.
    pub schedulable: bool,
}

/// A taint that keeps pods without a matching toleration away.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taint {
    /// Its key.
    pub key: Name,
    /// Its value; empty when it has none.
    pub value: Name,
    /// `NoSchedule` or `NoExecute`.
    pub effect: Name,
}

/// A toleration of a pod, with Kubernetes' meaning of what is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Toleration {
    /// The taint's key; `None` tolerates every key.
    pub key: Option<Name>,
    /// The value it must have; `None` tolerates any (operator Exists).
    pub value: Option<Name>,
    /// The effect it tolerates; `None` tolerates every effect.
    pub effect: Option<Name>,
}

/// One requirement on a node's label or field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    /// The label's key, or the field (`metadata.name`) when it stands in [`NodeTerm::fields`].
    pub key: Name,
    /// How the values are compared.
    pub operator: Operator,
    /// What is compared with.
    pub values: Vec<Name>,
}

/// The operators of node selector requirements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    /// The value is one of those listed.
    In,
    /// The value is none of those listed, or the label is absent.
    NotIn,
    /// The label is present.
    Exists,
    /// The label is absent.
    DoesNotExist,
    /// The value is an integer greater than the one listed.
    Gt,
    /// The value is an integer less than the one listed.
    Lt,
}

/// One term of a required node affinity: all requirements must hold. Terms are alternatives.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeTerm {
    /// Requirements on labels.
    pub labels: Vec<Requirement>,
    /// Requirements on fields; only `metadata.name` exists.
    pub fields: Vec<Requirement>,
}

/// What one pod of a workload needs. All pods of a workload are alike.
///
/// A request of a device resource that is no whole number is a share of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodShape {
    /// What it requests; one slot of `pods` is added by the engine.
    pub requests: ResourceList,
    /// Labels its node must carry.
    pub node_selector: BTreeMap<Name, Name>,
    /// Required node affinity: one of the terms must hold; empty means any node.
    pub node_terms: Vec<NodeTerm>,
    /// The taints it tolerates.
    pub tolerations: Vec<Toleration>,
}

/// What kind of object a workload is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkloadKind {
    /// A `batch/v1` Job, held by `suspend`.
    Job,
    /// A pod of its own, held by a scheduling gate.
    Pod,
    /// An object of another kind that makes pods, held by a field of its own.
    Other {
        /// The group and version of the kind, such as `jobset.x-k8s.io/v1alpha2`.
        api_version: Name,
        /// The kind, such as `JobSet`.
        kind: Name,
    },
    /// Plain pods that start all or none, each held by a scheduling gate.
    PodGroup,
}

impl WorkloadKind {
    /// Whether it is plain pods, which nobody makes anew and which are held by gates.
    #[must_use]
    pub fn is_pods(&self) -> bool {
        matches!(self, Self::Pod | Self::PodGroup)
    }
}

impl fmt::Display for WorkloadKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Job => "Job",
            Self::Pod => "Pod",
            Self::Other { kind, .. } => kind,
            Self::PodGroup => "PodGroup",
        })
    }
}

/// Something a team wants to run: all of its pods, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its identity.
    pub id: WorkloadId,
    /// What kind of object it is.
    pub kind: WorkloadKind,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// The team that answers for it.
    pub team: Name,
    /// Its class of service; `None` takes the team's default.
    pub queue: Option<Name>,
    /// The value of its PriorityClass.
    pub priority: i32,
    /// When it was submitted: its place in the queue, kept through evictions.
    pub submitted: Time,
    /// How many pods it wants to run at once now.
    pub pods: u32,
    /// Elastic: the fewest pods with which it may start and to which it may shrink; `None` means all.
    pub min_pods: Option<u32>,
    /// What each pod needs.
    pub shape: PodShape,
    /// The sizes with which its pods would make do, from the most wanted, which is `shape`, to the least;
    /// empty when there is no choice.
    pub sizes: Vec<Size>,
    /// Node labels within one value of which its pods lie, if it asks for that.
    pub topology: Topology,
    /// Who submitted it.
    pub user: Option<Name>,
    /// Pools in order of preference; empty means the default pool.
    pub pools: Vec<Name>,
    /// Whether it can be put back in the queue; a bare pod cannot.
    pub resumable: bool,
    /// Whether its user lets it be evicted although it cannot be put back in the queue.
    pub expendable: bool,
    /// Whether pods can be added to it, taken from it and made anew elsewhere while it runs.
    pub resizable: bool,
    /// How long it says it will run at most.
    pub time_limit: Option<Duration>,
    /// When it last saved its work, if it says so.
    pub last_checkpoint: Option<Time>,
    /// How often it saves its work, if it says so.
    pub checkpoint_interval: Option<Duration>,
    /// How long its last run took, once it has finished.
    pub ran: Option<Duration>,
    /// Where it stands.
    pub state: Observed,
}

impl Workload {
    /// A Job of a team that waits, its pods all of that shape. It wants nothing else: the team's default
    /// queue and pool, any nodes, all of its pods at once; and it may be evicted.
    #[must_use]
    pub fn job(team: &Name, name: &Name, pods: u32, shape: PodShape, submitted: Time) -> Self {
        Self {
            id: WorkloadId(format!("{team}/{name}").into()),
            kind: WorkloadKind::Job,
            namespace: team.clone(),
            name: name.clone(),
            team: team.clone(),
            queue: None,
            priority: 0,
            submitted,
            pods,
            min_pods: None,
            shape,
            sizes: Vec::new(),
            topology: Topology::default(),
            user: None,
            pools: Vec::new(),
            resumable: true,
            expendable: false,
            resizable: false,
            time_limit: None,
            last_checkpoint: None,
            checkpoint_interval: None,
            ran: None,
            state: Observed::Queued,
        }
    }

    /// What each pod requests at the size with which it was admitted, or at the most wanted one.
    #[must_use]
    pub fn requests(&self) -> &ResourceList {
        let admission = match &self.state {
            Observed::Admitted(admission) | Observed::Leaving { admission, .. } => Some(admission),
            _ => None,
        };
        self.requests_at(admission.and_then(|admission| admission.share))
    }

    /// What each pod requests at that size; without any, and at one that is none of its, at the most wanted.
    #[must_use]
    pub fn requests_at(&self, share: Option<Amount>) -> &ResourceList {
        let size = share.and_then(|share| self.sizes.iter().find(|size| size.share == share));
        size.map_or(&self.shape.requests, |size| &size.requests)
    }
}

/// One of several sizes with which the pods of a workload would make do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    /// The share of a device that it is, by which it is known.
    pub share: Amount,
    /// What each pod requests.
    pub requests: ResourceList,
}

/// Within which domains the pods of a workload are to lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Topology {
    /// The label within one value of which all pods must lie.
    pub required: Option<Name>,
    /// The label within one value of which all pods should lie.
    pub preferred: Option<Name>,
}

/// Where a workload stands according to its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Its user holds it back; it is not in the queue.
    OnHold,
    /// It cannot be queued as it is: it is made of several objects, or leaves open what it asks for.
    Unready(Unready),
    /// It waits for admission and nothing of it runs.
    Queued,
    /// It was admitted and may run.
    Admitted(Admission),
    /// It has been told to stop; it holds what its pods hold until the last of them is gone.
    Leaving {
        /// What it was admitted with.
        admission: Admission,
        /// When it was told to stop.
        since: Time,
        /// Whether whoever makes its pods has confirmed that it makes no more of them. Until then
        /// (at most [`SETTLE`] after `since`) the whole admission is held.
        stopped: bool,
    },
    /// It has ended for good.
    Finished,
}

/// Why objects cannot be queued as one workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unready {
    /// Not all of its pods are there.
    Missing {
        /// How many are.
        there: u32,
        /// How many there must be.
        of: u32,
    },
    /// Its pods do not ask for the same.
    Unlike,
    /// What its pods ask for cannot be counted, for this reason.
    Uncounted(Name),
}

/// The record of an admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The pool whose quota pays.
    pub pool: Name,
    /// How many pods go to which node.
    pub nodes: BTreeMap<Name, u32>,
    /// How many pods were granted.
    pub pods: u32,
    /// Whether it went beyond the team's guarantee when it was admitted.
    pub borrowed: bool,
    /// Which of its sizes it was granted, where that is not the most wanted one.
    pub share: Option<Amount>,
    /// When it was decided.
    pub at: Time,
}

/// A pod that holds room: scheduled or about to be, and not yet in a terminal phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its identity.
    pub id: PodId,
    /// The workload that owns it, if it has one; the engine decides whether that one is managed.
    pub workload: Option<WorkloadId>,
    /// The node it is bound to; a pod without one holds only its team's quota.
    pub node: Option<Name>,
    /// What it requests.
    pub requests: ResourceList,
}

/// Where the pods of a workload really are, when that is not what its admission says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MisplacedPods {
    /// The workload.
    pub workload: WorkloadId,
    /// How many pods of it run, or are bound to run, on which node; those that are ending left out.
    pub there: BTreeMap<Name, u32>,
    /// How many pods of it were to go to which node and cannot.
    pub stuck: BTreeMap<Name, u32>,
    /// What kube-scheduler, or the node's state, says about it.
    pub message: String,
}

/// How many pods of a workload are up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodsReady {
    /// The workload.
    pub workload: WorkloadId,
    /// How many pods of it are ready now.
    pub ready: u32,
    /// How many pods of it have succeeded so far, in all of its runs that were seen.
    pub succeeded: u32,
}
