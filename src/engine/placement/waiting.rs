//! A waiting workload with all that a decision about it needs, and an attempt to place it in one pool.

use std::borrow::Cow;
use std::sync::Arc;

use crate::placement::capacity::Capacity;
use crate::placement::request::Request;
use crate::placement::search;
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::lending::{self, Loan};
use crate::state::nodes::Placement;
use crate::state::quotas::{Funding, Hypothetical};
use crate::state::sizes::SizedPod;
use crate::state::users::UserOf;
use crate::state::workload::WorkloadInfo;
use crate::types::amount::Amount;
use crate::types::ids::{NodeId, PoolId, Priority, TeamId, WorkloadIndex};
use crate::types::vector::Vector;
use crate::types::{Admission, CURRENCY, DEFAULT_POOL, Name, PodShape, Profile, Time, Topology, WorkloadId};

/// A waiting workload, with all that a decision about it needs.
#[derive(Clone, Debug)]
pub struct WaitingWorkload {
    /// Its identity.
    pub id: WorkloadId,
    /// The index of its workload info.
    pub index: WorkloadIndex,
    /// Its team.
    pub team: TeamId,
    /// Its user, in a team that orders its users by usage.
    pub user: Option<UserOf>,
    /// The requirements of each pod.
    pub shape: Arc<PodShape>,
    /// The topology domains that its pods must or should share.
    pub topology: Topology,
    /// The labels of its pods, and their constraints on other pods.
    pub profile: Arc<Profile>,
    /// The resources of one pod.
    pub need: Vector,
    /// The resources of all pods that it must have.
    pub total: Vector,
    /// How many pods it must have: all, or the minimum of an elastic workload.
    pub pods: u32,
    /// Its priority: the queue's, then its own.
    pub priority: Priority,
    /// Whether it may be evicted, and so may borrow.
    pub preemptible: bool,
    /// The GPU fraction of this size, if it is not the preferred size.
    pub share: Option<Amount>,
    /// Whether a budget does not cover it, so that it may start on idle capacity only.
    pub unfunded: bool,
    /// Whether it is not evicted for the fair share of another team once it runs (law 5).
    pub spared: bool,
    /// Whether reservations bind it as they bind work within the guarantee of its team, which it is without its victims (law 2).
    pub as_guaranteed: bool,
    /// Its running pods, which these pods join.
    beside: Option<Placement>,
}

impl WaitingWorkload {
    /// The waiting workload of that identity; `None` when it is unknown.
    pub fn of(state: &ClusterState, id: &WorkloadId) -> Option<Self> {
        let info = state.get(id)?;
        let pods = info.least_pods();
        Some(Self {
            id: id.clone(),
            index: info.index,
            team: info.team,
            user: state.quotas.user_of(info.team, info.workload.user.as_ref()),
            shape: Arc::clone(&info.shape),
            topology: info.workload.topology.clone(),
            profile: Arc::clone(&info.workload.profile),
            need: info.need.clone(),
            total: info.least_total(),
            pods,
            priority: state.priority_of(info),
            preemptible: state.preemptible(info),
            share: None,
            unfunded: false,
            spared: info.workload.evicted_for_fair_share,
            as_guaranteed: false,
            beside: None,
        })
    }

    /// The workload at another of its sizes.
    pub fn at_size(&self, size: &SizedPod, share: Amount) -> Self {
        let (shape, need) = (Arc::clone(&size.shape), size.need.clone());
        let total = need.times(self.pods);
        Self { shape, need, total, share: Some(share), ..self.clone() }
    }

    /// The workload, asking for this many pods in addition to those of an admission.
    pub fn and_more(mut self, state: &ClusterState, admission: &Admission, pods: u32) -> Self {
        let node = |(name, pods): (&Name, &u32)| state.nodes.find(name).map(|node| (node, *pods));
        self.beside = Some(admission.nodes.iter().filter_map(node).collect());
        self.with_pods(pods)
    }

    /// The workload, asking for this many pods in all, of which it may have those beyond its fewest only by growing.
    pub fn growing_to(mut self, pods: u32) -> Self {
        self.beside = Some(Placement::new());
        self.with_pods(pods)
    }

    /// Whether it asks for pods beyond those with which it starts.
    pub fn grows(&self) -> bool {
        self.beside.is_some()
    }

    /// The workload as one that the guarantee of its team holds once lower priorities of the team are gone; `None` if it does
    /// not, or holds it as things are.
    pub fn as_guaranteed(&self, state: &ClusterState, pool: PoolId) -> Option<Self> {
        let (quotas, team, total) = (&state.quotas, self.team, &self.total);
        let is_other = self.as_guaranteed || self.unfunded || self.grows();
        if is_other || quotas.own_guarantee_holds(pool, team, total) {
            return None;
        }
        let mut without = Hypothetical::new();
        quotas.assume(&mut without, team, &state.totals.reclaimable_below(pool, team, self.priority), -1);
        let may_hold =
            quotas.has_children(team) || quotas.own_guarantee_would_hold(pool, team, total, &without);
        may_hold.then(|| Self { as_guaranteed: true, ..self.clone() })
    }

    /// The workload, asking for this many pods.
    pub fn with_pods(mut self, pods: u32) -> Self {
        self.pods = pods;
        self.total = self.need.times(pods);
        self
    }

    /// The workload with its need counted in the currency of a pool.
    pub fn in_pool<'a>(&'a self, state: &ClusterState, pool: PoolId) -> Cow<'a, Self> {
        let Some(currency) = state.resources.find(CURRENCY) else { return Cow::Borrowed(self) };
        let worth = state.worth(pool, &self.need);
        if worth == self.need.get(currency) {
            return Cow::Borrowed(self);
        }
        let mut other = self.clone();
        other.need.set(currency, worth);
        other.total = other.need.times(other.pods);
        Cow::Owned(other)
    }

    /// Whether the budgets on its path cover its start in the pool, its need counted in the currency of that pool.
    pub fn funding(&self, state: &ClusterState, pool: PoolId) -> Funding {
        state.at(self.index).map_or(Funding::Funded, |info| state.funding(info, pool, &self.total))
    }

    /// What other teams would have to lend it in a pool, as far as its guarantee does not hold it.
    pub fn loan(&self, pool: PoolId) -> Loan<'_> {
        Loan { pool, team: self.team, total: &self.total }
    }

    /// The placement request for a pool.
    pub fn request(&self, pool: PoolId) -> Request<'_> {
        Request {
            pool,
            shape: &self.shape,
            topology: &self.topology,
            profile: &self.profile,
            need: &self.need,
            pods: self.pods,
            beside: self.beside.as_ref(),
        }
    }

    /// Whether it is within guarantee in the pool.
    pub fn within_guarantee(&self, state: &ClusterState, pool: PoolId) -> bool {
        self.within_guarantee_after(state, pool, &Hypothetical::new())
    }

    /// The same after hypothetical changes.
    #[must_use]
    pub fn within_guarantee_after(
        &self,
        state: &ClusterState,
        pool: PoolId,
        hypothetical: &Hypothetical,
    ) -> bool {
        // A workload that is larger than the guarantee does not grow within it.
        if self.unfunded {
            return false;
        }
        let oversize = self.grows() && state.at(self.index).is_some_and(|info| !info.oversize.is_empty());
        !oversize && state.quotas.within_guarantee(pool, self.team, &self.total, hypothetical)
    }

    /// Whether its team may exceed the guarantee with it: it may be preempted itself, or it is covered by the guarantee
    /// beside all work of the team that may not.
    pub fn may_exceed_guarantee(&self, state: &ClusterState, pool: PoolId) -> bool {
        self.preemptible || !self.unfunded && state.quotas.holds_fixed(pool, self.team, &self.total)
    }

    /// Whether what ends still holds the limit or, of work that is never preempted, the guarantee that it needs.
    pub fn lacks_quota_now(&self, state: &ClusterState, pool: PoolId) -> bool {
        let (quotas, team, total) = (&state.quotas, self.team, &self.total);
        quotas.over_limit_now(pool, team, total).is_some()
            || !self.preemptible && !quotas.holds_fixed_now(pool, team, total)
    }
}

/// An attempt to place a waiting workload in one pool.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The workload, with its need counted in the currency of the pool.
    pub waiting: &'a WaitingWorkload,
    /// The pool.
    pub pool: PoolId,
    /// The nodes of the pool that may hold its pods.
    pub nodes: &'a [NodeId],
    /// The decision time.
    pub now: Time,
}

/// The first pool of its list, if that pool exists.
pub fn first_pool(state: &ClusterState, info: &WorkloadInfo) -> Option<PoolId> {
    find_pool(state, info.workload.pools.first().map_or(DEFAULT_POOL, |name| &**name))
}

/// The pools that the workload may use, in order of preference.
pub fn pool_names(info: &WorkloadInfo) -> Vec<Name> {
    if info.workload.pools.is_empty() { vec![DEFAULT_POOL.into()] } else { info.workload.pools.clone() }
}

/// The pool with that name, if it is known.
pub fn find_pool(state: &ClusterState, name: &str) -> Option<PoolId> {
    state.quotas.pool(name)
}

/// A placement with which the workload can start at once: the limits allow it, and it is within guarantee or may borrow.
pub fn may_start_now(
    state: &ClusterState,
    waiting: &WaitingWorkload,
    pool: PoolId,
    nodes: &[NodeId],
) -> Option<Placement> {
    if waiting.lacks_quota_now(state, pool) || !is_covered_or_may_borrow(state, waiting, pool) {
        return None;
    }
    search::place(state, nodes, &waiting.request(pool), Capacity::Now)
}

/// A placement that is free now and that the limits allow, whether or not the workload may borrow: for one that got its quota
/// before, or is within guarantee.
pub fn fits_now(
    state: &ClusterState,
    waiting: &WaitingWorkload,
    pool: PoolId,
    nodes: &[NodeId],
) -> Option<Placement> {
    if waiting.lacks_quota_now(state, pool) {
        return None;
    }
    search::place(state, nodes, &waiting.request(pool), Capacity::Now)
}

/// Whether the workload is within guarantee, or other work of its team may borrow in its place, or it may itself.
#[must_use]
pub fn is_covered_or_may_borrow(state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId) -> bool {
    let (freed, same) = (Freed::new(), Hypothetical::new());
    let lent = || lending::allows(state, waiting.loan(pool), &freed, &same);
    waiting.within_guarantee(state, pool) || waiting.may_exceed_guarantee(state, pool) && lent()
}

impl Capacity<'_> {
    /// Places all pods of a waiting workload in this capacity, or none.
    pub fn place(
        self,
        state: &ClusterState,
        waiting: &WaitingWorkload,
        pool: PoolId,
        nodes: &[NodeId],
    ) -> Option<Placement> {
        search::place(state, nodes, &waiting.request(pool), self)
    }
}
