//! The workload info: everything known about one workload, its phase and its usage among it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::state::avoided_nodes::AvoidedNodes;
use crate::state::nodes::NodeTable;
use crate::state::quotas::{Account, Cost};
use crate::state::sizes::{SizedPod, granted};
use crate::types::ids::{NodeId, PoolId, TeamId, WorkloadIndex};
use crate::types::vector::Vector;
use crate::types::{Admission, Name, Observed, PodShape, SETTLE, Standing, Time, Workload};

/// The phase of a workload, with decisions that its object does not confirm yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Held by its user.
    Hold,
    /// Waiting in the queue.
    Pending,
    /// The engine decided to admit it; the object does not confirm it yet.
    Starting(Admission),
    /// Admitted.
    Running(Admission),
    /// Admitted; the engine decided to change its pods, and the object does not confirm it yet.
    Resizing {
        /// The present admission.
        from: Admission,
        /// The decided admission.
        to: Admission,
    },
    /// The engine decided to evict it; the object does not confirm it yet.
    Stopping(Admission),
    /// Stopping; its pods may still exist.
    Leaving {
        /// The admission that ends.
        admission: Admission,
        /// The time of the eviction.
        since: Time,
        /// Whether its owner creates no more pods.
        stopped: bool,
    },
    /// The engine decided to end it as failed; the object does not confirm it yet. `None` for a waiting
    /// workload.
    Failing(Option<Admission>),
    /// Ended; its remaining pods keep their capacity.
    Finished,
}

impl Phase {
    /// The admission it runs, starts or ends with; during a resize, the decided one.
    #[must_use]
    pub fn admission(&self) -> Option<&Admission> {
        match self {
            Self::Starting(admission)
            | Self::Running(admission)
            | Self::Resizing { to: admission, .. }
            | Self::Stopping(admission) => Some(admission),
            Self::Leaving { admission, .. } => Some(admission),
            Self::Failing(admission) => admission.as_ref(),
            Self::Hold | Self::Pending | Self::Finished => None,
        }
    }
}

/// The usage of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The pool it is charged to.
    pub pool: PoolId,
    /// Pods by node.
    pub nodes: BTreeMap<NodeId, u32>,
    /// All pods, those without a node included.
    pub pods: u32,
    /// Terminating pods by node.
    pub terminating: BTreeMap<NodeId, u32>,
    /// All terminating pods, those without a node included.
    pub terminating_pods: u32,
    /// The other pods by node; empty unless some are terminating.
    pub staying_nodes: BTreeMap<NodeId, u32>,
}

impl Usage {
    /// The pods by node that are not terminating.
    #[must_use]
    pub fn staying(&self) -> &BTreeMap<NodeId, u32> {
        if self.terminating.is_empty() { &self.nodes } else { &self.staying_nodes }
    }

    /// The number of pods that are not terminating, those without a node included.
    #[must_use]
    pub fn staying_pods(&self) -> u32 {
        self.pods.saturating_sub(self.terminating_pods)
    }
}

/// The workload info: a workload with everything known about it.
#[derive(Clone, Debug)]
pub struct WorkloadInfo {
    /// The workload as last observed.
    pub workload: Arc<Workload>,
    /// Its team.
    pub team: TeamId,
    /// Its index in the register.
    pub index: WorkloadIndex,
    /// The need of one pod, its slot included.
    pub need: Vector,
    /// The demands of one pod on a node, shared by equal workloads. Avoided nodes are excluded.
    pub shape: Arc<PodShape>,
    /// A pod at each of its sizes, the preferred one first; empty when there is only one size.
    pub sizes: Vec<SizedPod>,
    /// Its phase.
    pub phase: Phase,
    /// Its usage.
    pub usage: Usage,
    /// Its object is gone; only its pods keep this info.
    pub removed: bool,
    /// Pods that exist and have not ended, by node.
    pub live: BTreeMap<Option<NodeId>, u32>,
    /// The queue that it is charged to.
    pub charged_queue: Name,
    /// Whether it is charged as work that is never preempted.
    pub charged_fixed: bool,
    /// The levels of its team's path that it is charged to without counting against their guarantees, because these are
    /// smaller than it (law 2).
    pub oversize: Vec<TeamId>,
    /// What it was charged to budgets.
    pub cost: Option<Cost>,
    /// The nodes where pods of it could not be started.
    pub avoided_nodes: Option<Box<AvoidedNodes>>,
    /// It is ordered before the others of its team because it waits too long, or it started for that reason.
    pub raised: bool,
    /// It is a pod that was never admitted, and may be evicted so far; `None` for every workload with a queue.
    pub unadmitted: Option<Standing>,
}

impl WorkloadInfo {
    /// A workload that waits and is charged to nothing yet, with a pod at its preferred size and one at each of its sizes.
    #[must_use]
    pub fn new(workload: Arc<Workload>, team: TeamId, pod: SizedPod, sizes: Vec<SizedPod>) -> Self {
        Self {
            workload,
            team,
            index: WorkloadIndex::MIN,
            need: pod.need,
            shape: pod.shape,
            sizes,
            phase: Phase::Pending,
            usage: Usage::default(),
            removed: false,
            live: BTreeMap::new(),
            charged_queue: "".into(),
            charged_fixed: false,
            oversize: Vec::new(),
            cost: None,
            avoided_nodes: None,
            raised: false,
            unadmitted: None,
        }
    }

    /// The need of all wanted pods together.
    #[must_use]
    pub fn total(&self) -> Vector {
        self.need.times(self.workload.pods)
    }

    /// The fewest pods that it may run with: all, or the minimum of an elastic workload.
    #[must_use]
    pub fn least_pods(&self) -> u32 {
        let all = self.workload.pods;
        let min = self.workload.min_pods.filter(|_| self.workload.resizable);
        min.map_or(all, |min| min.clamp(1.min(all), all))
    }

    /// Sets the need of one pod to the size that is granted, or else preferred.
    pub fn settle_size(&mut self) {
        let size = match &self.phase {
            // The remaining pods hold their granted size.
            Phase::Finished | Phase::Failing(None) => return,
            phase => granted(&self.workload, phase.admission()),
        };
        if let Some(size) = self.sizes.get(size) {
            (self.shape, self.need) = (Arc::clone(&size.shape), size.need.clone());
        }
    }

    /// Whether it runs at a smaller size than it prefers.
    #[must_use]
    pub fn is_reduced(&self) -> bool {
        granted(&self.workload, self.phase.admission()) > 0
    }

    /// The shape and need of one pod at the preferred size.
    #[must_use]
    pub fn preferred_pod(&self) -> (&PodShape, &Vector) {
        self.sizes.first().map_or((self.plain_shape(), &self.need), |size| (&size.shape, &size.need))
    }

    /// The shape of one pod; avoided nodes are not excluded if it has only one size.
    #[must_use]
    pub fn plain_shape(&self) -> &PodShape {
        if self.sizes.is_empty() { &self.workload.shape } else { &self.shape }
    }

    /// The need of its pods over all nodes, except terminating ones: the most that an eviction frees.
    #[must_use]
    pub fn staying_total(&self) -> Vector {
        self.need.times(self.usage.staying_pods())
    }

    /// The pods that an elastic workload can lose and still run.
    #[must_use]
    pub fn extra_pods(&self) -> u32 {
        let elastic = self.workload.resizable && self.workload.min_pods.is_some();
        if elastic { self.usage.staying_pods().saturating_sub(self.least_pods()) } else { 0 }
    }

    /// The need of its minimum of pods together.
    #[must_use]
    pub fn least_total(&self) -> Vector {
        self.need.times(self.least_pods())
    }

    /// The need of its minimum of pods together, at its smallest size.
    #[must_use]
    pub fn smallest_total(&self) -> Vector {
        let need = self.sizes.last().map_or(&self.need, |size| &size.need);
        need.times(self.least_pods())
    }

    /// What its usage is charged to.
    #[must_use]
    pub fn account(&self) -> Account<'_> {
        Account { team: self.team, oversize: &self.oversize }
    }

    /// Whether it is admitted to a node that no longer exists, or runs with fewer pods than it was granted. More pods
    /// that its user has asked for since are not lost.
    #[must_use]
    pub fn has_lost_pods(&self, nodes: &NodeTable) -> bool {
        let Phase::Running(admission) = &self.phase else { return false };
        admission.nodes.values().sum::<u32>() < admission.pods
            || admission.nodes.keys().any(|name| nodes.present(name).is_none())
    }

    /// Whether it runs, or is about to, with fewer pods than it wants and may be given more.
    #[must_use]
    pub fn may_grow(&self) -> bool {
        let elastic = self.workload.resizable && self.workload.min_pods.is_some();
        elastic
            && match &self.phase {
                Phase::Starting(admission) | Phase::Running(admission) => admission.pods < self.workload.pods,
                _ => false,
            }
    }

    /// The pods on its record that can never run again: they have ended for good, or its user gave them up. They are
    /// charged until a smaller record is confirmed (law 16).
    #[must_use]
    pub fn excess_pods(&self) -> u32 {
        match &self.phase {
            Phase::Running(admission) if self.workload.kind.is_releasable() && self.unadmitted.is_none() => {
                admission.pods.saturating_sub(self.workload.pods)
            }
            _ => 0,
        }
    }

    /// Its usage over all nodes.
    #[must_use]
    pub fn held(&self) -> Vector {
        self.need.times(self.usage.pods)
    }

    /// The number of its pods that exist and have not ended.
    #[must_use]
    pub fn pods(&self) -> u32 {
        self.live.values().sum()
    }
}

/// The time at which an unconfirmed stop counts as done.
pub fn settle_time(info: &WorkloadInfo) -> Option<Time> {
    match info.phase {
        Phase::Leaving { since, stopped: false, .. } => Some(since.after(SETTLE)),
        _ => None,
    }
}

/// The phase after the object was observed as `workload`. A decision stands until the object confirms it or the
/// write is reported as failed.
pub fn next_phase(phase: &Phase, workload: &Workload) -> Phase {
    match (phase, &workload.state) {
        // A pending write also stands when one of several objects has just gone.
        (Phase::Starting(admission), Observed::Queued | Observed::Unready(_)) => {
            Phase::Starting(admission.clone())
        }
        (Phase::Stopping(_), Observed::Admitted(admission)) => Phase::Stopping(admission.clone()),
        (Phase::Resizing { from, .. }, Observed::Admitted(admission)) if from == admission => phase.clone(),
        (Phase::Failing(None), Observed::Queued | Observed::Unready(_)) if !workload.hold => phase.clone(),
        (Phase::Failing(Some(_)), Observed::Admitted(admission)) => Phase::Failing(Some(admission.clone())),
        (
            Phase::Leaving { admission, since, stopped: true },
            Observed::Leaving { admission: seen, since: s, .. },
        ) if admission == seen && since == s => phase.clone(),
        (_, Observed::OnHold | Observed::Unready(_)) => Phase::Hold,
        (_, Observed::Queued) if workload.hold => Phase::Hold,
        (_, Observed::Queued) => Phase::Pending,
        (_, Observed::Admitted(admission)) => Phase::Running(admission.clone()),
        (_, Observed::Leaving { admission, since, stopped }) => {
            Phase::Leaving { admission: admission.clone(), since: *since, stopped: *stopped }
        }
        (_, Observed::Finished) => Phase::Finished,
    }
}
