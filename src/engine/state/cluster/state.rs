//! The workload cache, and the questions that decisions ask it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::state::cluster::register::Register;
use crate::state::holders::Holders;
use crate::state::nodes::NodeTable;
use crate::state::quotas::QuotaTree;
use crate::state::totals::UsageTotals;
use crate::state::users::UserShare;
use crate::state::workload::WorkloadInfo;
use crate::types::amount::ResourceList;
use crate::types::ids::{NodeId, PoolId, Priority, TeamId, WorkloadIndex};
use crate::types::vector::{Resources, Vector};
use crate::types::{
    DEFAULT_POOL, Name, Paused, PodId, PodShape, Pool, Profile, Queue, Reason, Standing, Time, Unadmitted,
    WorkloadId,
};

/// One pod, with its node, owner and need.
#[derive(Clone, Debug)]
pub(super) struct PodInfo {
    pub(super) node: Option<NodeId>,
    pub(super) owner: Option<WorkloadId>,
    pub(super) need: Vector,
    pub(super) profile: Option<Arc<Profile>>,
    /// What its team is charged while it belongs to no known workload.
    pub(super) unadmitted: Option<Box<Unadmitted>>,
    /// Whether its team is charged for it alone.
    pub(super) charged: bool,
}

impl PodInfo {
    /// Whether another observation of the pod says the same.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.node, &self.owner, &self.unadmitted) == (other.node, &other.owner, &other.unadmitted)
            && self.profile == other.profile
            && self.need.nonzero().eq(other.need.nonzero())
    }
}

/// The effect of a change on waiting workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No blocked workload can have become able to start.
    Tighter,
    /// A blocked workload may be able to start now.
    Looser,
    /// Shares, ownership or rules have changed: every workload must be attempted again.
    RequeueAll,
}

/// The workload cache: everything known about the cluster.
#[derive(Clone, Debug, Default)]
pub struct ClusterState {
    /// The numbers of resource names.
    pub resources: Resources,
    /// The nodes.
    pub nodes: NodeTable,
    /// The quota tree, with the usage of each team.
    pub quotas: QuotaTree,
    pub(super) pools: BTreeMap<Name, Pool>,
    pub(super) workloads: Register,
    pub(super) pods: BTreeMap<PodId, PodInfo>,
    /// The nodes that do not answer, and since when.
    pub(super) unreachable: BTreeMap<NodeId, Time>,
    /// The pods on lost nodes.
    pub(super) on_lost_nodes: BTreeSet<PodId>,
    /// The requests of pods that name a resource without a number.
    pub(super) unoffered: BTreeMap<PodId, ResourceList>,
    /// Pods of owners that are not managed workloads (yet), by owner.
    pub(super) orphans: BTreeMap<WorkloadId, BTreeSet<PodId>>,
    /// Bound pods in namespaces of teams that belong to no known workload.
    pub(super) loose: BTreeSet<PodId>,
    /// Owners that have lost a pod which was never admitted to an eviction, with its time.
    pub(super) evicted_owners: BTreeMap<Name, Time>,
    /// Running pods that were never admitted and are evicted before any admitted workload.
    pub(super) first: BTreeSet<WorkloadId>,
    /// Running workloads with more pods on their record than can still run.
    pub(super) releasable: BTreeSet<WorkloadId>,
    /// Running elastic workloads with fewer pods than they want.
    pub(super) growable: BTreeSet<WorkloadId>,
    /// Running workloads that lost pods or nodes of their admission.
    pub(super) lost_pods: BTreeSet<WorkloadId>,
    /// Stopping workloads that will wait again.
    pub(super) stopping: BTreeSet<WorkloadId>,
    /// The time at which each unconfirmed stop counts as done. Entries may be outdated and are checked when
    /// due.
    pub(super) settling: BTreeSet<(Time, WorkloadId)>,
    pub(super) holders: Holders,
    /// The totals of held and preemptible resources.
    pub totals: UsageTotals,
    /// The shapes of all workloads, each stored once.
    pub(super) shapes: BTreeSet<Arc<PodShape>>,
    /// The workloads that were charged again since this was read last, where that is wanted.
    pub recharged: Option<BTreeSet<WorkloadId>>,
}

impl ClusterState {
    /// The workload of that identity.
    #[must_use]
    pub fn get(&self, id: &WorkloadId) -> Option<&WorkloadInfo> {
        self.workloads.get(id)
    }

    /// The workload at an index.
    #[must_use]
    pub fn at(&self, index: WorkloadIndex) -> Option<&WorkloadInfo> {
        self.workloads.at(index)
    }

    /// A number that changes whenever the workload at an index does, or another one gets the index.
    #[must_use]
    pub fn revision(&self, index: WorkloadIndex) -> u64 {
        self.workloads.revision(index)
    }

    /// The highest of these numbers: what changes later has a higher one.
    #[must_use]
    pub fn last_revision(&self) -> u64 {
        self.workloads.last_revision()
    }

    /// Every workload, by identity.
    pub fn iter(&self) -> impl Iterator<Item = &WorkloadInfo> {
        self.workloads.values()
    }

    /// Every workload with an identity after this one, in their order.
    pub fn iter_after(&self, id: Option<&WorkloadId>) -> impl Iterator<Item = &WorkloadInfo> {
        self.workloads.values_after(id)
    }

    /// Elastic workloads that run, or are about to, with fewer pods than they want, by identity.
    pub fn growable(&self) -> impl Iterator<Item = &WorkloadId> {
        self.growable.iter()
    }

    /// Running workloads with more pods on their record than can still run, by identity.
    pub fn releasable(&self) -> impl Iterator<Item = &WorkloadId> {
        self.releasable.iter()
    }

    /// Running workloads that lost pods or nodes of their admission, by identity.
    pub fn lost_pods(&self) -> impl Iterator<Item = &WorkloadId> {
        self.lost_pods.iter()
    }

    /// Stopping workloads that will wait again, by identity.
    pub fn stopping(&self) -> impl Iterator<Item = &WorkloadInfo> {
        self.stopping.iter().filter_map(|id| self.workloads.get(id))
    }

    /// The teams with usage of their own workloads in a pool.
    pub fn teams_holding(&self, pool: PoolId) -> impl Iterator<Item = TeamId> {
        self.holders.teams_in(pool)
    }

    /// The workloads charged to this team itself in this pool, in any phase, the newest first.
    pub fn holders(&self, pool: PoolId, team: TeamId) -> impl DoubleEndedIterator<Item = &WorkloadInfo> {
        self.holders.of_team(pool, team).filter_map(|index| self.workloads.at(index))
    }

    /// The workloads of a team that run, or are about to, and may be evicted or shrunk, the newest first.
    pub fn reclaimable(&self, pool: PoolId, team: TeamId) -> impl DoubleEndedIterator<Item = &WorkloadInfo> {
        self.totals.reclaimable(pool, team).filter_map(|(_, index)| self.workloads.at(index))
    }

    /// The workloads that hold capacity on a node, by identity, with their number of pods there.
    pub fn occupants(&self, node: NodeId) -> impl Iterator<Item = (&WorkloadInfo, u32)> {
        let infos = self.holders.on_node(node).filter_map(|(_, index)| self.workloads.at(index));
        infos.filter_map(move |info| info.usage.nodes.get(&node).map(|pods| (info, *pods)))
    }

    /// Every pod that holds capacity, with its owner, node and need.
    pub fn pods(&self) -> impl Iterator<Item = (&PodId, Option<&WorkloadId>, Option<&Name>, &Vector)> {
        self.pods.iter().map(|(id, pod)| {
            let node = pod.node.map(|node| self.nodes.name(node));
            (id, pod.owner.as_ref(), node, &pod.need)
        })
    }

    /// The labels that name the topology domains of a pool, outermost first.
    #[must_use]
    pub fn topology(&self, pool: PoolId) -> &[Name] {
        self.pools.get(self.quotas.pool_name(pool)).map_or(&[], |pool| &pool.topology)
    }

    /// The queue of a workload.
    ///
    /// # Errors
    /// [`crate::types::Reason::UnknownTeam`] or [`crate::types::Reason::UnknownQueue`] when the team or queue
    /// does not exist, or the pod was never admitted and so has no queue.
    pub fn queue_of(&self, info: &WorkloadInfo) -> Result<&Queue, Reason> {
        let team = self.quotas.team(info.team);
        if team.team.is_none() {
            return Err(Reason::UnknownTeam);
        }
        if info.unadmitted.is_some() {
            return Err(Reason::UnknownQueue);
        }
        team.queue(info.workload.queue.as_ref()).ok_or(Reason::UnknownQueue)
    }

    /// Whether a workload is not considered while it waits: its user holds it, or its queue is paused.
    #[must_use]
    pub fn is_kept_back(&self, info: &WorkloadInfo) -> bool {
        info.workload.hold || self.is_paused(info)
    }

    /// Whether the queue of a workload is paused.
    #[must_use]
    pub fn is_paused(&self, info: &WorkloadInfo) -> bool {
        self.queue_of(info).is_ok_and(|queue| queue.paused != Paused::No)
    }

    /// The priority that orders the workloads of a team (law 9): the queue's, then the PriorityClass's. A
    /// workload that was raised for its long wait has the highest priority while it runs: otherwise a
    /// workload that it overtook would preempt it at once.
    #[must_use]
    pub fn priority_of(&self, info: &WorkloadInfo) -> Priority {
        match info.unadmitted {
            Some(Standing::First) => return Priority::LOWEST,
            Some(Standing::Adopted | Standing::Fixed) => return Priority::default(),
            None => {}
        }
        if info.raised && info.phase.admission().is_some() {
            return Priority::HIGHEST;
        }
        let queue = self.queue_of(info).map_or(0, |queue| queue.priority);
        Priority { queue, class: info.workload.priority }
    }

    /// Whether a workload may be evicted at all. Without a queue, because that was removed, it is
    /// preemptible.
    #[must_use]
    pub fn preemptible(&self, info: &WorkloadInfo) -> bool {
        if let Some(standing) = info.unadmitted {
            return standing != Standing::Fixed;
        }
        let evictable = info.workload.resumable || info.workload.expendable;
        evictable && self.queue_of(info).map_or(true, |queue| queue.preemptible)
    }

    /// The share that a user of a team holds of the first of these pools; zero where the team does not rank
    /// its users.
    #[must_use]
    pub fn user_share(&self, team: TeamId, user: Option<&Name>, pools: &[Name]) -> UserShare {
        let default: Name = DEFAULT_POOL.into();
        let pool = self.quotas.pool(pools.first().unwrap_or(&default));
        let share = |(user, pool): (&Name, PoolId)| {
            self.quotas.users.share(&(team, user.clone()), pool, self.quotas.capacity(pool))
        };
        user.zip(pool).map_or(0, share)
    }
}
