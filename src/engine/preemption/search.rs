//! One search: preemptor, basis, assumptions, candidates, and the effort spent. The other files of the room add the
//! steps of the search as methods.

use std::cell::Cell;
use std::rc::Rc;

use crate::placement::Request;
use crate::prediction::run_times::RunTimes;
use crate::preemption::cache::Cache;
use crate::preemption::candidate::Candidate;
use crate::preemption::preemptor::{Masked, Nominated, Preemptor, SearchInput};
use crate::queue::pending::Pending;
use crate::queue::reclaimable::Reclaimable;
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::quotas::Hypothetical;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{NodeId, PoolId};
use crate::types::{Time, WorkloadId};

/// A confined search tries no more sets than this once it has found one that works.
const MAX_SETS_CONFINED: usize = 256;
/// Examining this many workloads costs as much time as trying one set.
const EXAMINED_PER_SET: usize = 32;

/// The right by which a preemptor preempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The guarantees on its path hold it (law 2).
    WithinGuarantee,
    /// It borrows (law 5).
    Borrowing,
}

/// Changes to the actual state under which a search is made.
#[derive(Clone, Debug, Default)]
pub struct Assumptions {
    /// Changes of quota usage.
    pub hypothetical: Hypothetical,
    /// Changes of free capacity on nodes.
    pub freed: Freed,
    /// Running workloads that are assumed to have ended or moved.
    pub gone: Vec<WorkloadId>,
    /// Waiting workloads that are assumed to have started.
    pub started: Vec<WorkloadId>,
}

/// One element of a set of victims: a whole candidate, or one pod beyond its minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// One pod on that node of the candidate with that index.
    Pod(usize, NodeId),
    /// The whole candidate with that index.
    Whole(usize),
}

impl Step {
    /// The index of the candidate.
    pub fn candidate(self) -> usize {
        match self {
            Self::Pod(candidate, _) | Self::Whole(candidate) => candidate,
        }
    }
}

/// The search for victims of one preemptor on one basis.
pub struct Search<'a> {
    /// Workloads, nodes and quotas.
    pub cluster: &'a ClusterState,
    /// The waiting workloads.
    pub pending: &'a Pending,
    /// How long runs took.
    pub run_times: &'a RunTimes,
    /// The teams of which workloads may be evicted.
    pub reclaimable: &'a Reclaimable,
    /// The workloads to which capacity is nominated.
    pub nominated: &'a [Nominated<'a>],
    /// Reserved capacity that the preemptor must not see.
    pub masked: &'a [Masked],
    /// The workload that is to start.
    pub preemptor: Preemptor<'a>,
    /// The right by which it preempts.
    pub basis: Basis,
    /// Whether other workloads may be moved for the preemptor.
    pub moves: bool,
    /// The assumed changes to the actual state.
    pub assumptions: Rc<Assumptions>,
    /// The nodes on which the preemptor may be placed.
    pub nodes: Vec<NodeId>,
    /// The possible victims, the cheapest first.
    pub candidates: Vec<Candidate<'a>>,
    /// Results that several searches share.
    pub cache: &'a Cache,
    /// Whether a confined search considers more nodes and workloads than usual.
    pub wide: bool,
    /// Whether the preemptor is a victim that would be queued again. Its search is smaller, and it counts workloads
    /// as old enough that will reach their minimum run time before they end.
    pub follow_up: bool,
    /// Whether only the most promising nodes are searched.
    pub confined: bool,
    /// Whether some sets are not tried.
    pub bounded: bool,
    /// How many sets have been tried.
    pub tried: Cell<usize>,
    /// How many workloads have been examined as candidates.
    pub examined: Cell<usize>,
    /// The time of the decision.
    pub now: Time,
}

impl<'a> Search<'a> {
    /// A search without assumptions and without candidates yet.
    pub fn new(
        input: SearchInput<'a>,
        preemptor: Preemptor<'a>,
        basis: Basis,
        cache: &'a Cache,
        now: Time,
    ) -> Self {
        let SearchInput { cluster, pending, reclaimable, run_times, nominated, masked } = input;
        Self {
            cluster,
            pending,
            run_times,
            reclaimable,
            nominated,
            masked,
            preemptor,
            basis,
            moves: false,
            assumptions: Rc::default(),
            nodes: preemptor.nodes.to_vec(),
            candidates: Vec::new(),
            cache,
            wide: false,
            follow_up: false,
            confined: false,
            bounded: false,
            tried: Cell::new(0),
            examined: Cell::new(0),
            now,
        }
    }

    /// The effort so far, in tried sets.
    pub fn effort(&self) -> usize {
        self.tried.get() + self.examined.get() / EXAMINED_PER_SET
    }

    /// Whether the search may end once it has found a set.
    pub fn has_tried_enough(&self) -> bool {
        self.confined && self.effort() > MAX_SETS_CONFINED
    }

    /// How many pods the preemptor has.
    pub fn pods(&self) -> usize {
        usize::try_from(self.preemptor.pods).unwrap_or(usize::MAX)
    }

    /// The preemptor's pods as a placement request.
    pub fn request(&self) -> Request<'a> {
        let preemptor = &self.preemptor;
        Request {
            pool: preemptor.pool,
            shape: preemptor.shape,
            topology: preemptor.topology,
            profile: preemptor.profile,
            need: preemptor.need,
            pods: preemptor.pods,
            beside: None,
        }
    }

    /// Whether the preemptor's pods may be placed on a node at all.
    pub fn admits(&self, node: NodeId) -> bool {
        let request = self.request();
        self.cluster.nodes.fitting(request.pool, request.shape, request.need, |fitting| fitting.admits(node))
    }

    /// How much of a resource is free on a node under the assumptions, in milli-units.
    pub fn free(&self, node: NodeId, resource: usize) -> i64 {
        let more = self.assumptions.freed.get(&node).map_or(0, |freed| freed.get(resource));
        self.cluster.nodes.get(node).settled().amounts().get(resource).saturating_add(more)
    }

    /// Whether a workload runs and may be preempted. One that is about to start counts: it will run by the time
    /// that a victim is queued again.
    pub fn runs_preemptible(&self, info: &WorkloadInfo) -> bool {
        matches!(info.phase, Phase::Running(_) | Phase::Starting(_)) && self.cluster.preemptible(info)
    }
}

/// The given number of a workload's pods as a placement request.
pub fn request_of(info: &WorkloadInfo, pool: PoolId, pods: u32) -> Request<'_> {
    Request {
        pool,
        shape: info.plain_shape(),
        topology: &info.workload.topology,
        profile: &info.workload.profile,
        need: &info.need,
        pods,
        beside: None,
    }
}
