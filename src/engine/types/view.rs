//! Figures about teams, queues, reservations and nodes.

use std::collections::BTreeMap;

use crate::types::amount::{Amount, ResourceList};
use crate::types::name::Name;
use crate::types::team::{Budget, Paused};
use crate::types::time::Time;
use crate::types::units;
use crate::types::workload::WorkloadId;

/// The figures of one team in one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeamView {
    /// The team.
    pub team: Name,
    /// The team above it.
    pub parent: Option<Name>,
    /// The pool.
    pub pool: Name,
    /// Its guarantee.
    pub guaranteed: ResourceList,
    /// Its limit, where it has one.
    pub limit: ResourceList,
    /// The usage of the team and the teams below it.
    pub used: ResourceList,
    /// The part of this usage that was never admitted (law 15).
    pub unadmitted: ResourceList,
    /// Its usage beyond its guarantee.
    pub borrowed: ResourceList,
    /// The part of its idle guarantee that other teams use.
    pub lent: ResourceList,
    /// Its fair part of the pool: its usage if the whole pool were divided again by the present demand.
    pub fair_share: ResourceList,
    /// What it borrowed in the past, decayed; empty where past usage does not count.
    pub past: ResourceList,
    /// Its share of the surplus among borrowers.
    pub weight: u32,
}

/// The budget of one team, and what is used of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetView {
    /// The team.
    pub team: Name,
    /// The budget.
    pub budget: Budget,
    /// What the team and those below it used since the start of the period, in GPU-hours.
    pub used: Amount,
    /// What decisions count of that: as last written in the status, and what has run since.
    pub counted: Amount,
    /// What was last written in the status for this period; `None` if nothing was.
    pub written: Option<Amount>,
    /// What running work with time limits, and work that is about to start, may still use, in GPU-hours.
    pub committed: Amount,
    /// The present period: its start and its end, on the clock of the engine. `None` if it never ends.
    pub period: Option<(Time, Time)>,
    /// The end of the period on the calendar, as a date; `None` if it never ends.
    pub refill: Option<String>,
}

/// Pods of one owner in a team's namespace that were never admitted and are charged to the team.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnadmittedView {
    /// The team.
    pub team: Name,
    /// The pool of their nodes.
    pub pool: Name,
    /// Their namespace.
    pub namespace: Name,
    /// The owner as kind and name, or the pod where there is none.
    pub owner: Name,
    /// Whether they may be evicted.
    pub standing: Standing,
    /// The number of pods.
    pub pods: u32,
    /// What they hold together.
    pub resources: ResourceList,
}

/// How far a pod that was never admitted may be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It is evicted before any admitted workload.
    First,
    /// It is older than the membership of its namespace: a victim like any other.
    Adopted,
    /// Its controller would replace it at once, so it is never evicted.
    Fixed,
}

impl Standing {
    /// The machine-readable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::First => "First",
            Self::Adopted => "Adopted",
            Self::Fixed => "Fixed",
        }
    }
}

impl UnadmittedView {
    /// One sentence: what these pods hold, and whether they may be evicted.
    #[must_use]
    pub fn sentence(&self) -> String {
        let (pods, hold) = if self.pods == 1 { ("pod", "holds") } else { ("pods", "hold") };
        let until = match self.standing {
            Standing::First => "evicted first when capacity is wanted",
            Standing::Adopted => "older than the membership of the namespace in the team",
            Standing::Fixed => "never evicted, because it would be replaced at once",
        };
        let held = units::listed(&self.resources);
        format!("{} {pods} of {} in {} {hold} {held} ({until})", self.pods, self.owner, self.namespace)
    }
}

/// The figures of one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueView {
    /// The team.
    pub team: Name,
    /// The queue.
    pub queue: Name,
    /// The number of waiting workloads.
    pub pending: usize,
    /// The submission time of the oldest waiting workload.
    pub oldest: Option<Time>,
    /// The number of running workloads.
    pub running: usize,
    /// Whether its workloads are kept from starting.
    pub paused: Paused,
}

/// Where a workload stands in the queue of its team for a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceView {
    /// The pool that it asks for first.
    pub pool: Name,
    /// Its position among the workloads of its team that wait for the pool; the first is 1.
    pub position: usize,
    /// The number of these workloads.
    pub waiting: usize,
    /// The first of those in front of it.
    pub in_front: Vec<WorkloadId>,
    /// The number of other teams of which the first workload in the pool comes before it.
    pub teams_in_front: usize,
}

/// Quota and capacity reserved for a workload that cannot start yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservationView {
    /// The workload it is for.
    pub owner: WorkloadId,
    /// The pool.
    pub pool: Name,
    /// Pods by node; empty where quota alone is reserved.
    pub nodes: BTreeMap<Name, u32>,
    /// The latest expected start; `None` if it cannot be predicted.
    pub start: Option<Time>,
}

/// The figures of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The node.
    pub name: Name,
    /// Its pool.
    pub pool: Name,
    /// Whether new pods may be bound to it.
    pub schedulable: bool,
    /// Whether its taints say that it is not Ready; a node that is closed without them is cordoned, as a rule.
    pub not_ready: bool,
    /// Its allocatable amounts.
    pub allocatable: ResourceList,
    /// The amounts that are free now.
    pub free: ResourceList,
    /// The number of pods of each workload on the node.
    pub workloads: Vec<(WorkloadId, u32)>,
    /// The devices that pods use in fractions, in the order in which they became shared.
    pub shared: Vec<SharedDevice>,
}

/// A device that pods use in fractions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDevice {
    /// The resource that counts it.
    pub resource: Name,
    /// The fraction used by each workload, or by each pod without a workload.
    pub shares: Vec<(Name, Amount)>,
}

/// A guarantee that is not covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overcommitment {
    /// The parent team that does not cover its children's guarantees; `None` if the nodes do not cover all.
    pub team: Option<Name>,
    /// The pool.
    pub pool: Name,
    /// The teams at fault: those with a guarantee beyond the cover alone; where these are not all of it, the parent, or without
    /// one the fewest teams with the largest guarantees without which the rest is covered.
    pub at: Vec<Name>,
    /// One sentence with the numbers of all resources, the worst first.
    pub message: String,
}

/// How much was searched for victims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Searches.
    pub searches: u64,
    /// Searches that ended at their bound, so a better set may exist.
    pub bounded: u64,
    /// Sets of victims that they tried.
    pub sets: u64,
}
