//! One workload on the books: where it stands, and what it holds.

use std::collections::BTreeMap;

use super::forest::{Forest, PoolIx, TeamIx};
use super::model::{Admission, Name, Observed, SETTLE, Time, Workload};
use super::nodes::{NodeIx, NodeTable};
use super::vector::Vector;

/// Where a workload stands, decisions not yet confirmed included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Held by its user.
    Hold,
    /// In the queue.
    Pending,
    /// The engine decided to admit it; its object does not say so yet.
    Starting(Admission),
    /// Admitted.
    Running(Admission),
    /// The engine decided to evict it; its object does not say so yet.
    Stopping(Admission),
    /// Told to stop, pods not known to be gone.
    Leaving {
        /// What it was admitted with.
        admission: Admission,
        /// When it was told to stop.
        since: Time,
        /// Whether no more pods of it will be made.
        stopped: bool,
    },
    /// Ended; what its pods still hold is held.
    Finished,
}

impl Phase {
    /// The admission it runs, starts or ends with.
    #[must_use]
    pub fn admission(&self) -> Option<&Admission> {
        match self {
            Self::Starting(admission) | Self::Running(admission) | Self::Stopping(admission) => {
                Some(admission)
            }
            Self::Leaving { admission, .. } => Some(admission),
            Self::Hold | Self::Pending | Self::Finished => None,
        }
    }

    /// Whether its room is about to become free.
    #[must_use]
    pub fn leaves(&self) -> bool {
        !matches!(self, Self::Starting(_) | Self::Running(_))
    }
}

/// What a workload holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// The pool whose accounts pay.
    pub pool: PoolIx,
    /// Pods by node.
    pub nodes: BTreeMap<NodeIx, u32>,
    /// All pods, those without a node included.
    pub pods: u32,
    /// Whether it has been told to stop.
    pub leaving: bool,
}

/// A workload with all that is known of it.
#[derive(Debug)]
pub struct Entry {
    /// The workload as last seen.
    pub workload: Workload,
    /// Its team.
    pub team: TeamIx,
    /// What one pod needs, its slot included.
    pub need: Vector,
    /// Where it stands.
    pub phase: Phase,
    /// What it holds.
    pub charge: Charge,
    /// Its object is gone; only its pods keep it here.
    pub removed: bool,
    /// Pods that exist and have not ended, by node.
    pub live: BTreeMap<Option<NodeIx>, u32>,
    /// The queue whose limit it counts against.
    pub charged_queue: Name,
}

impl Entry {
    /// What all the pods it wants need together.
    #[must_use]
    pub fn total(&self) -> Vector {
        Vector::default().plus(&self.need, i64::from(self.workload.pods))
    }

    /// What it holds, over all nodes.
    #[must_use]
    pub fn held(&self) -> Vector {
        Vector::default().plus(&self.need, i64::from(self.charge.pods))
    }

    /// How many pods of it exist and have not ended.
    #[must_use]
    pub fn pods(&self) -> u32 {
        self.live.values().sum()
    }
}

/// When a stop that nobody confirms is taken for done.
pub fn settle_time(entry: &Entry) -> Option<Time> {
    match entry.phase {
        Phase::Leaving { since, stopped: false, .. } => Some(since.after(SETTLE)),
        _ => None,
    }
}

/// The phase after the object was seen in `state`: what the engine decided and the object does not
/// say yet stands until it does, or until the write is reported to have failed.
pub fn next_phase(phase: &Phase, state: &Observed) -> Phase {
    match (phase, state) {
        (Phase::Starting(admission), Observed::Queued) => Phase::Starting(admission.clone()),
        (Phase::Stopping(_), Observed::Admitted(admission)) => Phase::Stopping(admission.clone()),
        (
            Phase::Leaving { admission, since, stopped: true },
            Observed::Leaving { admission: seen, since: s, .. },
        ) if admission == seen && since == s => phase.clone(),
        (_, Observed::OnHold) => Phase::Hold,
        (_, Observed::Queued) => Phase::Pending,
        (_, Observed::Admitted(admission)) => Phase::Running(admission.clone()),
        (_, Observed::Leaving { admission, since, stopped }) => {
            Phase::Leaving { admission: admission.clone(), since: *since, stopped: *stopped }
        }
        (_, Observed::Finished) => Phase::Finished,
    }
}

/// What a workload holds: where its pods are, and for those it may still make, where they are to go.
pub fn charge_of(entry: &Entry, pool: PoolIx, nodes: &NodeTable) -> Charge {
    let mut charge = Charge { pool, leaving: entry.phase.leaves(), ..Charge::default() };
    for (node, pods) in &entry.live {
        charge.pods += pods;
        if let Some(node) = node {
            charge.nodes.insert(*node, *pods);
        }
    }
    let promised = match &entry.phase {
        Phase::Starting(admission) | Phase::Running(admission) | Phase::Stopping(admission) => {
            Some((admission, entry.workload.pods.min(admission.pods)))
        }
        Phase::Leaving { admission, stopped: false, .. } => Some((admission, admission.pods)),
        Phase::Leaving { .. } | Phase::Hold | Phase::Pending | Phase::Finished => None,
    };
    let Some((admission, promised)) = promised else { return charge };
    charge.pods = charge.pods.max(promised);
    let mut missing = promised.saturating_sub(charge.nodes.values().sum());
    for (name, planned) in &admission.nodes {
        let Some(node) = nodes.find(name).filter(|node| nodes.get(*node).node.is_some()) else { continue };
        let there = charge.nodes.get(&node).copied().unwrap_or(0);
        let more = planned.saturating_sub(there).min(missing);
        if more > 0 {
            charge.nodes.insert(node, there + more);
            missing -= more;
        }
    }
    charge
}

/// The name of the queue a workload is in; empty when there is none.
pub fn queue_name(forest: &Forest, entry: &Entry) -> Name {
    let queue = forest.team(entry.team).queue(entry.workload.queue.as_ref());
    queue.map_or_else(|| "".into(), |queue| queue.name.clone())
}

/// Puts what a workload holds on its team's accounts, or with -1 takes it off.
pub fn charge_accounts(forest: &mut Forest, entry: &Entry, times: i64) {
    if entry.charge.pods > 0 {
        let held = entry.held();
        forest.hold(entry.charge.pool, entry.team, &held, times, entry.charge.leaving);
        forest.hold_queue(entry.team, &entry.charged_queue, &held, times);
    }
}

/// Puts what a workload holds on its nodes, or with -1 takes it off.
pub fn charge_nodes(nodes: &mut NodeTable, entry: &Entry, times: i64) {
    for (node, pods) in &entry.charge.nodes {
        nodes.hold(*node, &entry.need, times * i64::from(*pods), entry.charge.leaving);
    }
}
