//! One nomination: capacity that a workload gets once it is free, and the victims that free it.

use std::sync::Arc;

use crate::placement::Placement;
use crate::placement::waiting::WaitingWorkload;
use crate::preemption::{Nominated, Take};
use crate::state::charges::queue_name;
use crate::state::cluster::ClusterState;
use crate::state::quotas::Account;
use crate::state::rules::oversize_in;
use crate::state::users::UserOf;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{PoolId, TeamId, WorkloadIndex};
use crate::types::vector::Vector;
use crate::types::{Admission, Name, PodShape, Profile, Topology, WorkloadId};

/// Capacity nominated to a workload, which starts once the capacity is free.
#[derive(Clone, Debug)]
pub struct Nomination {
    /// The workload.
    pub id: WorkloadId,
    /// Its index in the state.
    pub index: WorkloadIndex,
    /// Its team.
    pub team: TeamId,
    /// Whether it runs elsewhere until then.
    pub moves: bool,
    /// Whether it is within guarantee by its plan, perhaps only in exchange for victims under the same team above it.
    pub within_guarantee: bool,
    /// Whether it takes the place of work of its team that was safe from the fair shares of other teams, and is safe from them, too.
    pub settled: bool,
    /// Whether it is never preempted.
    pub fixed: bool,
    /// The levels of its team's path with guarantees that are smaller than the workload.
    pub oversize: Vec<TeamId>,
    /// The queue that counts it against its cap.
    pub queue: Name,
    /// Its user, where users of the team take turns.
    pub user: Option<UserOf>,
    /// The pool in which it starts.
    pub pool: PoolId,
    /// The shape of its pods.
    pub shape: Arc<PodShape>,
    /// The topology domains for which it asks.
    pub topology: Topology,
    /// The labels of its pods, and their constraints on other pods.
    pub profile: Arc<Profile>,
    /// The number of pods with which it starts.
    pub pods: u32,
    /// The need of one pod.
    pub need: Vector,
    /// The need of all pods.
    pub total: Vector,
    /// What it may use of budgets by its time limit.
    pub commitment: i128,
    /// The nominated nodes, with the number of pods on each.
    pub placement: Placement,
    /// The victims of its preemption; none where the capacity was being freed already.
    pub victims: Vec<Victim>,
    /// The reason for waiting, for the verdict.
    pub message: String,
}

/// A workload that is evicted, shrunk or moved for a preemptor.
#[derive(Clone, Debug)]
pub struct Victim {
    /// The decision.
    pub take: Take,
    /// Its index in the state.
    pub index: WorkloadIndex,
    /// Its admission before the decision.
    pub before: Admission,
}

impl Victim {
    /// Whether it runs on as before, because the decision about it was not written.
    #[must_use]
    pub fn still_runs(&self, state: &ClusterState) -> bool {
        let info = self.at_its_index(state).or_else(|| state.get(self.take.id()));
        info.is_some_and(|info| matches!(&info.phase, Phase::Running(admission) if *admission == self.before))
    }

    /// Whether it gives up its place, or some of it, and its pods there still end.
    #[must_use]
    pub fn still_ends(&self, state: &ClusterState) -> bool {
        let gives = matches!(self.take, Take::Whole(_) | Take::Shrink(..));
        let ends = |info: &WorkloadInfo| {
            info.usage.terminating_pods > 0
                && matches!(info.phase, Phase::Stopping(_) | Phase::Leaving { .. } | Phase::Resizing { .. })
        };
        gives && self.at_its_index(state).is_some_and(ends)
    }

    /// The victim at its index; `None` once it is gone, even if it has come back at another index.
    #[must_use]
    pub fn at_its_index<'a>(&self, state: &'a ClusterState) -> Option<&'a WorkloadInfo> {
        state.at(self.index).filter(|info| info.workload.id == *self.take.id())
    }
}

impl Nomination {
    /// Nominates the capacity of a placement to a workload; [`Self::charge`] charges it.
    pub fn new(
        state: &ClusterState,
        waiting: &WaitingWorkload,
        pool: PoolId,
        placement: Placement,
        victims: Vec<Victim>,
        message: String,
    ) -> Self {
        let info = state.at(waiting.index);
        Self {
            id: waiting.id.clone(),
            index: waiting.index,
            team: waiting.team,
            moves: false,
            within_guarantee: false,
            settled: false,
            fixed: !waiting.preemptible,
            oversize: info.map(|info| oversize_in(state, info, pool)).unwrap_or_default(),
            queue: info.map_or_else(|| "".into(), |info| queue_name(&state.quotas, info)),
            user: waiting.user.clone(),
            pool,
            shape: Arc::clone(&waiting.shape),
            topology: waiting.topology.clone(),
            profile: Arc::clone(&waiting.profile),
            pods: waiting.pods,
            need: waiting.need.clone(),
            total: waiting.total.clone(),
            commitment: info.and_then(|info| state.budget_need(info, pool, &waiting.total).1).unwrap_or(0),
            placement,
            victims,
            message,
        }
    }

    /// Finds again what it is charged to, after a change of guarantees or queues.
    pub(super) fn find_account(&mut self, state: &ClusterState) {
        if let Some(found) = self.account_in(state) {
            (self.fixed, self.oversize, self.queue) = found;
        }
    }

    /// Charges the nominated capacity again if it is charged to something else, after a change of guarantees.
    pub(super) fn charge_again(&mut self, state: &mut ClusterState) {
        let known = (self.fixed, self.oversize.clone(), self.queue.clone());
        if let Some(found) = self.account_in(state).filter(|found| *found != known) {
            self.charge(state, -1);
            (self.fixed, self.oversize, self.queue) = found;
            self.charge(state, 1);
        }
    }

    /// Whether it is charged as work that is never preempted, its oversize levels and its queue, as they are now.
    fn account_in(&self, state: &ClusterState) -> Option<(bool, Vec<TeamId>, Name)> {
        let info = self.info(state)?;
        let queue = queue_name(&state.quotas, info);
        Some((!state.preemptible(info), oversize_in(state, info, self.pool), queue))
    }

    /// The workload, if it is still known.
    #[must_use]
    pub fn info<'a>(&self, state: &'a ClusterState) -> Option<&'a WorkloadInfo> {
        state.at(self.index).filter(|info| info.workload.id == self.id)
    }

    /// What the nominated capacity is charged to.
    #[must_use]
    pub fn account(&self) -> Account<'_> {
        Account { team: self.team, oversize: &self.oversize }
    }

    /// Charges the nominated capacity to quota tree, user and nodes `times` times; -1 releases it.
    pub(super) fn charge(&self, state: &mut ClusterState, times: i64) {
        state.quotas.nominate(self.pool, self.account(), &self.total, times, self.moves);
        state.quotas.commit(self.team, self.commitment, times);
        // What moves is in its queue already.
        if !self.moves {
            state.quotas.hold_queue(self.team, &self.queue, &self.total, times);
        }
        if self.fixed {
            state.quotas.hold_fixed(self.pool, self.team, &self.total, &Vector::default(), times);
        }
        if let Some(user) = &self.user {
            state.quotas.users.hold(user, self.pool, &self.total, times);
        }
        for (node, pods) in &self.placement {
            state.nodes.expect(*node, &self.profile, times * i64::from(*pods));
            state.nodes.nominate(*node, &self.need, times * i64::from(*pods));
        }
    }

    /// The workload as preemption searches see it.
    #[must_use]
    pub fn nominated(&self) -> Nominated<'_> {
        Nominated { id: &self.id, index: self.index, team: self.team }
    }

    /// The workloads that are evicted, shrunk or moved for it.
    pub fn victims(&self) -> impl Iterator<Item = &WorkloadId> {
        self.victims.iter().map(|victim| victim.take.id())
    }

    /// The victims that run on as before, because the decisions about them were not written.
    #[must_use]
    pub fn running_victims(&self, state: &ClusterState) -> Vec<&Victim> {
        self.victims.iter().filter(|victim| victim.still_runs(state)).collect()
    }

    /// Whether it is still the capacity that the workload asks for.
    #[must_use]
    pub fn is_for(&self, info: &WorkloadInfo) -> bool {
        let same = |left: &Vector, right: &Vector| left.plus(right, -1).nonzero().next().is_none();
        let wanted = matches!(info.phase, Phase::Pending | Phase::Stopping(_) | Phase::Leaving { .. });
        // A workload that moves may have capacity for more pods than its minimum.
        let pods = self.pods.clamp(info.least_pods(), info.workload.pods);
        wanted
            && !info.workload.hold
            && info.team == self.team
            && same(&info.need, &self.need)
            && same(&info.need.times(pods), &self.total)
    }
}
