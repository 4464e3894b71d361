//! Capacity nominated to preemptors and to workloads that move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::placement::Placement;
use crate::placement::waiting::WaitingWorkload;
use crate::preemption::{Nominated, Take};
use crate::state::cluster::ClusterState;
use crate::state::users::UserOf;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{PoolId, TeamId, WorkloadIndex};
use crate::types::vector::Vector;
use crate::types::{Admission, PodShape, Topology, WorkloadId};

/// Capacity promised to a workload.
#[derive(Clone, Debug)]
pub struct Nomination {
    /// Who waits for it.
    pub id: WorkloadId,
    pub place: WorkloadIndex,
    pub team: TeamId,
    pub user: Option<UserOf>,
    pub pool: PoolId,
    pub shape: Arc<PodShape>,
    pub topology: Topology,
    pub pods: u32,
    pub need: Vector,
    pub total: Vector,
    pub placement: Placement,
    /// Who leaves, of those this claim told to.
    pub victims: Vec<Victim>,
    /// For the verdict.
    pub message: String,
}

/// Somebody who was told to make room.
#[derive(Clone, Debug)]
pub struct Victim {
    /// What was decided.
    pub take: Take,
    /// Where its entry is kept.
    pub place: WorkloadIndex,
    /// What it ran by before.
    pub before: Admission,
}

impl Nomination {
    /// A promise of that place.
    pub fn new(
        waiting: &WaitingWorkload,
        pool: PoolId,
        placement: Placement,
        victims: Vec<Victim>,
        message: String,
    ) -> Self {
        Self {
            id: waiting.id.clone(),
            place: waiting.index,
            team: waiting.team,
            user: waiting.user.clone(),
            pool,
            shape: Arc::clone(&waiting.shape),
            topology: waiting.topology.clone(),
            pods: waiting.pods,
            need: waiting.need.clone(),
            total: waiting.total.clone(),
            placement,
            victims,
            message,
        }
    }

    /// Whose promise it is, if that is still known.
    #[must_use]
    pub fn info<'a>(&self, state: &'a ClusterState) -> Option<&'a WorkloadInfo> {
        state.at(self.place).filter(|info| info.workload.id == self.id)
    }

    /// Puts the promised room on the books, or with -1 takes it off.
    pub fn nominate(&self, state: &mut ClusterState, times: i64) {
        state.quotas.nominate(self.pool, self.team, &self.total, times);
        if let Some(user) = &self.user {
            state.quotas.users.hold(user, self.pool, &self.total, times);
        }
        for (node, pods) in &self.placement {
            state.nodes.nominate(*node, &self.need, times * i64::from(*pods));
        }
    }

    /// Whose promise it is, as far as others need to know.
    #[must_use]
    pub fn nominated(&self, state: &ClusterState) -> Option<Nominated> {
        self.info(state).map(|info| Nominated {
            id: self.id.clone(),
            team: self.team,
            priority: state.priority_of(info),
        })
    }

    /// Those who were told to leave for it.
    pub fn victims(&self) -> impl Iterator<Item = &WorkloadId> {
        self.victims.iter().map(|victim| victim.take.id())
    }

    /// Whether the promise is still what the workload asks for.
    #[must_use]
    pub fn is_for(&self, info: &WorkloadInfo) -> bool {
        let same = |left: &Vector, right: &Vector| left.plus(right, -1).nonzero().next().is_none();
        let wanted = matches!(info.phase, Phase::Pending | Phase::Stopping(_) | Phase::Leaving { .. });
        // Who moves may be promised room for more than it must have.
        let pods = self.pods.clamp(info.least_pods(), info.workload.pods);
        wanted
            && info.team == self.team
            && same(&info.need, &self.need)
            && same(&Vector::default().plus(&info.need, i64::from(pods)), &self.total)
    }
}

/// All nominations.
#[derive(Clone, Debug, Default)]
pub struct Nominations {
    /// In the order in which they were made.
    pub all: Vec<Nomination>,
    /// The preemptions that borrowing workloads have caused.
    pub borrowing: BTreeMap<WorkloadId, BorrowingPreemptions>,
}

/// The preemptions that one borrowing workload has caused without an external change: their number is limited
/// and no victim is taken twice, so that borrowers cannot evict each other for ever (laws 4 and 8).
#[derive(Clone, Debug, Default)]
pub struct BorrowingPreemptions {
    /// The number of external changes at that time.
    pub at: u64,
    /// How many preemptions.
    pub count: u32,
    /// Their victims.
    pub victims: BTreeSet<WorkloadId>,
}
