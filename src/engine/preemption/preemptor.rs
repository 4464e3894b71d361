//! The preemptor, the state in which its victims are searched, and a set of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::placement::Placement;
use crate::placement::waiting::WaitingWorkload;
use crate::prediction::run_times::RunTimes;
use crate::queue::pending::Pending;
use crate::queue::reclaimable::Reclaimable;
use crate::state::cluster::ClusterState;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{NodeId, PoolId, Priority, TeamId, WorkloadIndex};
use crate::types::vector::Vector;
use crate::types::{PodShape, Profile, Topology, WorkloadId};

/// The waiting workload for which victims are searched, in one pool.
#[derive(Clone, Copy, Debug)]
pub struct Preemptor<'a> {
    /// Its identity.
    pub id: &'a WorkloadId,
    /// Its team.
    pub team: TeamId,
    /// The pool in which it would run.
    pub pool: PoolId,
    /// The demands of each pod on its node.
    pub shape: &'a PodShape,
    /// The topology domains in which its pods must or should lie.
    pub topology: &'a Topology,
    /// The labels of its pods, and their constraints on other pods.
    pub profile: &'a Arc<Profile>,
    /// The resources of one pod.
    pub need: &'a Vector,
    /// The resources of all `pods`.
    pub total: &'a Vector,
    /// The fewest pods with which it may start.
    pub pods: u32,
    /// Its priority: the priority of its queue, then its own.
    pub priority: Priority,
    /// Whether it may be preempted, and so may borrow.
    pub preemptible: bool,
    /// The nodes that may hold its pods.
    pub nodes: &'a [NodeId],
    /// The workloads that it has preempted as a borrower since the last external change. It preempts none of
    /// them again (law 8). `None` if it may not preempt as a borrower any more.
    pub preempted_before: Option<&'a BTreeSet<WorkloadId>>,
    /// The victims of a plan for it that did not hold, which still end: what is found now amends that plan.
    pub ending: &'a [WorkloadIndex],
}

impl<'a> Preemptor<'a> {
    /// A waiting workload as a preemptor in a pool.
    #[must_use]
    pub fn of(
        waiting: &'a WaitingWorkload,
        pool: PoolId,
        nodes: &'a [NodeId],
        preempted_before: Option<&'a BTreeSet<WorkloadId>>,
        ending: &'a [WorkloadIndex],
    ) -> Self {
        Self {
            id: &waiting.id,
            team: waiting.team,
            pool,
            shape: &waiting.shape,
            topology: &waiting.topology,
            profile: &waiting.profile,
            need: &waiting.need,
            total: &waiting.total,
            pods: waiting.pods,
            priority: waiting.priority,
            preemptible: waiting.preemptible,
            nodes,
            preempted_before,
            ending,
        }
    }
}

/// The state in which a search is made, without the preemptor.
#[derive(Clone, Copy, Debug)]
pub struct SearchInput<'a> {
    /// Workloads, nodes and quotas.
    pub cluster: &'a ClusterState,
    /// The waiting workloads.
    pub pending: &'a Pending,
    /// The teams of which workloads may be evicted.
    pub reclaimable: &'a Reclaimable,
    /// How long runs took.
    pub run_times: &'a RunTimes,
    /// The workloads to which capacity is nominated.
    pub nominated: &'a [Nominated<'a>],
    /// Reserved capacity that the preemptor must not see.
    pub masked: &'a [Masked],
}

/// A workload to which capacity is nominated.
#[derive(Clone, Copy, Debug)]
pub struct Nominated<'a> {
    /// Its identity.
    pub id: &'a WorkloadId,
    /// Its index in the state.
    pub index: WorkloadIndex,
    /// Its team.
    pub team: TeamId,
}

impl Nominated<'_> {
    /// The workload, if it is still known.
    #[must_use]
    pub fn info<'c>(&self, cluster: &'c ClusterState) -> Option<&'c WorkloadInfo> {
        cluster.at(self.index).filter(|info| info.workload.id == *self.id)
    }
}

/// Reserved capacity, masked for workloads that have to respect the reservation (law 7).
#[derive(Clone, Debug)]
pub struct Masked {
    /// The workload that owns the reservation.
    pub owner: WorkloadId,
    /// The resources of one of its pods.
    pub need: Vector,
    /// The reserved pods on each node.
    pub placement: Placement,
}

/// A set of victims and the start that it allows.
#[derive(Debug)]
pub struct Victims {
    /// The operation on each victim.
    pub takes: Vec<Take>,
    /// The nodes on which the preemptor starts.
    pub placement: Placement,
    /// Whether the preemptor is within guarantee; otherwise it borrows.
    pub within_guarantee: bool,
    /// Whether it is so only because a team above it uses no more than before.
    pub by_exchange: bool,
}

/// The operation on one victim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take {
    /// The workload is evicted and queued again.
    Whole(WorkloadId),
    /// The elastic workload loses this many pods on each of these nodes and keeps running.
    Shrink(WorkloadId, BTreeMap<NodeId, u32>),
    /// The workload restarts at this placement, in capacity that the same set frees or leaves free.
    Move(WorkloadId, Placement),
    /// The workload keeps running while this many pods on each of these nodes are replaced by pods at the placement.
    Shift(WorkloadId, BTreeMap<NodeId, u32>, Placement),
}

impl Take {
    /// The victim.
    #[must_use]
    pub fn id(&self) -> &WorkloadId {
        match self {
            Self::Whole(id) | Self::Shrink(id, _) | Self::Move(id, _) | Self::Shift(id, _, _) => id,
        }
    }
}
