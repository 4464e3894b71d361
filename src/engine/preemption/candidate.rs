//! A possible victim, and the rules by which a workload is one.

use std::cell::OnceCell;
use std::rc::Rc;

use crate::state::cluster::ClusterState;
use crate::state::quotas::{Hypothetical, Protection};
use crate::state::rules::would_be_within_guarantee_again;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{PoolId, Priority, TeamId};
use crate::types::vector::Vector;
use crate::types::{Time, WorkloadId};

/// A possible victim.
#[derive(Debug)]
pub struct Candidate<'a> {
    /// The workload.
    pub info: &'a WorkloadInfo,
    /// Whether it is of the preemptor's own team.
    pub own: bool,
    /// Whether it may be evicted or shrunk; otherwise it may only be moved.
    pub evictable: bool,
    /// Whether it was never admitted and goes before every admitted workload (law 15).
    pub first: bool,
    /// The levels of its team's path with guarantees that the preemptor must respect.
    pub levels: Rc<[TeamId]>,
    /// Whether the preemptor borrows.
    pub from_borrower: bool,
    /// The resources that its eviction frees.
    pub amount: Vector,
    /// Its priority: the priority of its queue, then its own.
    pub priority: Priority,
    /// When it was admitted.
    pub started: Time,
    /// Whether it has not run for its minimum run time yet.
    pub under_min_runtime: bool,
    /// The cost of its eviction, see [`crate::state::rules::eviction_cost`].
    pub cost: i128,
    /// The cost of ending one of its pods, if it can lose one without being evicted.
    pub cost_of_one_pod: i128,
    /// See [`Candidate::is_covered`]. Computed on demand, because it depends on all workloads of the team.
    pub covered: OnceCell<bool>,
    /// How many pods it can lose without being evicted.
    pub extra_pods: u32,
}

impl Candidate<'_> {
    /// How guarantees protect it from the preemptor.
    #[must_use]
    pub fn protection(&self) -> Protection<'_> {
        Protection { levels: &self.levels, oversize: &self.info.oversize, from_borrower: self.from_borrower }
    }

    /// Whether it is larger than a guarantee that would protect it, and so goes before the rest of its team for a preemptor
    /// within guarantee (law 2).
    #[must_use]
    pub fn is_oversize(&self) -> bool {
        !self.from_borrower && self.info.oversize.iter().any(|at| self.levels.contains(at))
    }

    /// Whether its team's guarantee holds it again once lower priorities of the team are preempted. Those are
    /// then the borrowers, and it would get its capacity back at once (law 8).
    pub fn is_covered(&self, cluster: &ClusterState) -> bool {
        *self.covered.get_or_init(|| would_be_within_guarantee_again(cluster, self.info, self.priority))
    }

    /// Whether its eviction, after the hypothetical changes, leaves its team below its guarantee (law 3).
    pub fn falls_below_guarantee(
        &self,
        cluster: &ClusterState,
        pool: PoolId,
        hypothetical: &Hypothetical,
    ) -> bool {
        !self.own
            && cluster.quotas.would_fall_below_guarantee(pool, self.protection(), &self.amount, hypothetical)
    }
}

/// How far a running workload may be a victim.
#[derive(Clone, Copy, Debug)]
pub struct Eligibility {
    /// Whether it may be evicted or shrunk.
    pub evictable: bool,
    /// Whether it has not run for its minimum run time yet.
    pub under_min_runtime: bool,
}

/// Which workloads are left out of the candidates: the caller's filter, and notes on those that may become
/// candidates later.
pub struct Excluded<'e> {
    /// Whether the caller excludes a workload.
    pub by_caller: &'e dyn Fn(&WorkloadId) -> bool,
    /// The earliest time at which one of them has run for its minimum run time.
    pub retry_at: Option<Time>,
    /// Whether the start or resize of one of them is not confirmed yet.
    pub unconfirmed: bool,
}

impl<'e> Excluded<'e> {
    /// Only the caller's filter.
    pub fn new(by_caller: &'e dyn Fn(&WorkloadId) -> bool) -> Self {
        Self { by_caller, retry_at: None, unconfirmed: false }
    }
}
