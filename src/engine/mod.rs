//! The decision-maker: a deterministic state machine without I/O.
//!
//! Events go in through [`Engine::apply`], decisions come out of [`Engine::plan`]; time is an
//! argument. Cluster, simulator and tests drive the same engine.

pub mod amount;
pub mod decision;
pub mod model;

use decision::{NodeView, Overcommitment, Plan, QueueView, TeamView, Verdict};
use model::{Event, Time, Workload, WorkloadId};

/// The state of the cluster as decisions see it, and the decisions not yet confirmed.
#[derive(Debug, Default)]
pub struct Engine {}

impl Engine {
    /// An engine that knows of nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of one change at time `now`. Cheap: what it means is worked out by the next plan.
    pub fn apply(&mut self, _event: Event, _now: Time) {}

    /// Decides everything that can be decided at time `now`. Planning twice without an event in
    /// between gives nothing the second time, unless a deadline has passed.
    pub fn plan(&mut self, _now: Time) -> Plan {
        Plan::default()
    }

    /// When `plan` should be called again even if no event comes; `None` when only events matter.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// Where a workload stands and why; `None` when it is unknown.
    #[must_use]
    pub fn verdict(&self, _id: &WorkloadId) -> Option<Verdict> {
        None
    }

    /// Every workload known, by identity.
    pub fn workloads(&self) -> impl Iterator<Item = &Workload> {
        std::iter::empty()
    }

    /// Every team in every pool in which it has a quota or holds something.
    #[must_use]
    pub fn teams(&self) -> Vec<TeamView> {
        Vec::new()
    }

    /// Every queue of every team.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueView> {
        Vec::new()
    }

    /// Every node.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeView> {
        Vec::new()
    }

    /// Promises that the nodes, or a parent's promise, do not cover.
    #[must_use]
    pub fn overcommitments(&self) -> Vec<Overcommitment> {
        Vec::new()
    }
}
