//! Workloads and their pods.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::types::name::Name;
use std::time::Duration;

use crate::types::amount::{Amount, ResourceList};
use crate::types::node::{NodeTerm, Toleration};
use crate::types::profile::Profile;
use crate::types::time::Time;

/// The time after which an unconfirmed stop counts as done: longer than a Job controller that saw the
/// admission needs to see the eviction too.
pub const SETTLE: Duration = Duration::from_secs(5);

/// A workload's identity: the object's UID on a cluster, `namespace/name` in a simulation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkloadId(pub Arc<str>);

impl fmt::Display for WorkloadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What the identities of pods begin with that were never admitted. No UID of an object contains it.
const UNADMITTED: &str = "unadmitted/";

impl WorkloadId {
    /// The identity under which a pod is charged that belongs to no workload.
    #[must_use]
    pub fn of_unadmitted(pod: &PodId) -> Self {
        Self(format!("{UNADMITTED}{}", pod.0).into())
    }

    /// The pod, if this is the identity of one that belongs to no workload.
    #[must_use]
    pub fn unadmitted_pod(&self) -> Option<PodId> {
        self.0.strip_prefix(UNADMITTED).map(|pod| PodId(pod.into()))
    }
}

/// A pod's identity, as [`WorkloadId`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodId(pub Arc<str>);

/// The kind of object a workload is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkloadKind {
    /// A `batch/v1` Job, held by `suspend`.
    Job,
    /// A bare pod, held by a scheduling gate.
    Pod,
    /// An object of a custom kind that creates pods, held by a field of its own.
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
    /// Whether pods of it that have ended for good can be taken off its record.
    #[must_use]
    pub fn is_releasable(&self) -> bool {
        matches!(self, Self::Job)
    }

    /// Whether it consists of bare pods, which are held by gates and never recreated.
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

/// Pods of a team that start all or none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its identity.
    pub id: WorkloadId,
    /// The kind of its object.
    pub kind: WorkloadKind,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// Its team.
    pub team: Name,
    /// Its queue; `None` means the team's default queue.
    pub queue: Option<Name>,
    /// The value of its PriorityClass.
    pub priority: i32,
    /// When it was submitted; an eviction does not change it, so the workload keeps its queue position.
    pub submitted: Time,
    /// The number of pods it wants to run at once.
    pub pods: u32,
    /// The least number of pods of an elastic workload; `None` means all.
    pub min_pods: Option<u32>,
    /// The shape of each pod, of which the pods of many workloads have the same.
    pub shape: Arc<PodShape>,
    /// The sizes at which its pods may run, the preferred one first, which is `shape`; empty if there is only one.
    pub sizes: Vec<Size>,
    /// The topology domains that its pods must or should share.
    pub topology: Topology,
    /// The labels of its pods, and their constraints on other pods.
    pub profile: Arc<Profile>,
    /// Its submitter.
    pub user: Option<Name>,
    /// Pools in order of preference; empty means the default pool.
    pub pools: Vec<Name>,
    /// Whether it can be queued again after an eviction; a bare pod cannot.
    pub resumable: bool,
    /// Whether its user allows its eviction although it cannot be queued again.
    pub expendable: bool,
    /// Whether pods can be added, removed and recreated on other nodes while it runs.
    pub resizable: bool,
    /// Its time limit.
    pub time_limit: Option<Duration>,
    /// The time of its last checkpoint, if known.
    pub last_checkpoint: Option<Time>,
    /// The interval between its checkpoints, if known.
    pub checkpoint_interval: Option<Duration>,
    /// How long its pods may take to end. Only forecasts read it; decisions wait until the pods are gone.
    pub grace: Duration,
    /// The duration of its last run, once it has finished.
    pub ran: Option<Duration>,
    /// Pods of the present run that failed, or were lost in another way, as far as its controller counts them.
    pub failed_pods: u32,
    /// Whether its last eviction was for the fair share of another team.
    pub evicted_for_fair_share: bool,
    /// When it was evicted last, if its object still says so; an admission removes it.
    pub evicted: Option<Time>,
    /// Whether its user holds it: while it waits it is not considered. It keeps its place in the queue.
    pub hold: bool,
    /// Its order among the work of its user; the highest comes first.
    pub order: i32,
    /// Its order among the work of its team, whatever the user; the highest comes first.
    pub team_order: i32,
    /// The time at which its user wants it back in the queue, if it was admitted before.
    pub requeue: Option<Time>,
    /// Its state.
    pub state: Observed,
}

impl Workload {
    /// A waiting Job of a team with the default queue and pool, any nodes and all of its pods at once; it may be
    /// evicted.
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
            shape: Arc::new(shape),
            sizes: Vec::new(),
            topology: Topology::default(),
            profile: Arc::default(),
            user: None,
            pools: Vec::new(),
            resumable: true,
            expendable: false,
            resizable: false,
            time_limit: None,
            last_checkpoint: None,
            checkpoint_interval: None,
            grace: Duration::ZERO,
            ran: None,
            failed_pods: 0,
            evicted_for_fair_share: false,
            evicted: None,
            hold: false,
            order: 0,
            team_order: 0,
            requeue: None,
            state: Observed::Queued,
        }
    }

    /// The requests of each pod at the size of its admission, otherwise at the preferred size.
    #[must_use]
    pub fn requests(&self) -> &ResourceList {
        let admission = match &self.state {
            Observed::Admitted(admission) | Observed::Leaving { admission, .. } => Some(admission),
            _ => None,
        };
        self.requests_at(admission.and_then(|admission| admission.share))
    }

    /// The requests of each pod at the size with that GPU fraction; at the preferred size if there is none.
    #[must_use]
    pub fn requests_at(&self, share: Option<Amount>) -> &ResourceList {
        let size = share.and_then(|share| self.sizes.iter().find(|size| size.share == share));
        size.map_or(&self.shape.requests, |size| &size.requests)
    }
}

/// The requests and node constraints of one pod. All pods of a workload have one shape.
///
/// A device request that is not a whole number is a fraction of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodShape {
    /// Its requests; the engine adds one slot of `pods`.
    pub requests: ResourceList,
    /// The labels its node must have.
    pub node_selector: BTreeMap<Name, Name>,
    /// Required node affinity: one of the terms must hold; empty means any node.
    pub node_terms: Vec<NodeTerm>,
    /// The taints it tolerates.
    pub tolerations: Vec<Toleration>,
}

/// One of several sizes at which the pods of a workload may run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    /// The GPU fraction, which identifies the size.
    pub share: Amount,
    /// The requests of each pod.
    pub requests: ResourceList,
}

/// The topology domains that the pods of a workload share.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Topology {
    /// The node label of which all pods must share one value.
    pub required: Option<Name>,
    /// The node label of which all pods should share one value.
    pub preferred: Option<Name>,
}

/// The state of a workload according to its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Its user holds it; it is not in the queue.
    OnHold,
    /// It cannot be queued yet: pods are missing or differ, or its requests cannot be counted.
    Unready(Unready),
    /// It waits for admission and none of its pods runs.
    Queued,
    /// It was admitted and may run.
    Admitted(Admission),
    /// It is stopping; it is charged until its last pod is gone.
    Leaving {
        /// Its admission.
        admission: Admission,
        /// The time of the eviction.
        since: Time,
        /// Whether its controller has confirmed that it creates no more pods. Until then, at most [`SETTLE`] after
        /// `since`, the whole admission is charged.
        stopped: bool,
    },
    /// It has ended.
    Finished,
}

/// Why a workload cannot be queued yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unready {
    /// Some of its pods do not exist yet.
    Missing {
        /// The number of existing pods.
        there: u32,
        /// The number of pods it needs.
        of: u32,
    },
    /// Its pods differ in shape.
    Unlike,
    /// Its requests cannot be counted, for this reason.
    Uncounted(Name),
}

/// The record of an admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The pool whose quota is charged.
    pub pool: Name,
    /// Pods by node.
    pub nodes: BTreeMap<Name, u32>,
    /// The number of admitted pods.
    pub pods: u32,
    /// Whether it borrowed when it was admitted.
    pub borrowed: bool,
    /// The GPU fraction it was admitted at, if that is not the preferred size.
    pub share: Option<Amount>,
    /// Whether it is not evicted for the fair share of another team: its last run was, or it took the place of work of its own team
    /// that could not be either (law 5).
    pub spared: bool,
    /// Whether it started on idle capacity beyond the budget of a team, so that no guarantee protects it.
    pub unfunded: bool,
    /// The time of the decision.
    pub at: Time,
}
