//! Whom to evict so that a claimant can start: the cheapest set that really makes room on nodes.
//!
//! Two kinds of claims exist. An *owed* one (its team and all above within their guarantees, without
//! the victims) may take borrowers of any team and lower priorities of its own; if nothing but
//! scattered room is in its way, it may have others moved as well. A *claim on the surplus* may take
//! lower priorities of its own team, and borrowers of other teams if that makes the shares of the
//! surplus fairer ([`crate::types::ratio::fairer`]).
//!
//! A claim on the surplus must not put its own head on the block: if somebody owed waits who could
//! evict the claimant in turn, the eviction would not pay and the two would take turns for ever.
//!
//! For the same reason a workload is never taken as straddling its team's guarantee if that guarantee
//! holds it once lower priorities of its team yield: it would be owed its room back at once.
//!
//! ```text
//!   gather ─▶ propose ─────────▶ outcome ─▶ cost ─▶ the cheapest set
//!   who may   every set if few,  allowed?   the order of preference;
//!   be taken  else good guesses  room?      "would it evict in turn?" is a search of its own
//! ```

mod backfill;
mod borrowers;
mod candidates;
mod cost;
mod counter;
mod feasibility;
mod follow_up;
mod sets;

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::placement::waiting::WaitingWorkload;
use crate::placement::{Placement, Request};
use crate::prediction::run_times::RunTimes;
use crate::preemption::borrowers::Lending;
use crate::preemption::candidates::Candidate;
use crate::preemption::cost::Cost;
use crate::preemption::counter::Alike;
use crate::preemption::feasibility::Outcome;
use crate::queue::pending::Pending;
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::quotas::Hypothetical;
use crate::types::ids::{NodeId, PoolId, Priority, TeamId};
use crate::types::vector::Vector;
use crate::types::{PodShape, Time, Topology, WorkloadId};

/// Where not everybody is looked at, no more sets are tried once so many were and one of them does.
const ENOUGH: usize = 256;
/// To look at so many who might be taken takes as long as to try one set.
const LOOKS: usize = 32;

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub struct Preemptor<'a> {
    /// Its identity.
    pub id: &'a WorkloadId,
    /// Its team.
    pub team: TeamId,
    /// The pool it would run in.
    pub pool: PoolId,
    /// What each pod demands of a node.
    pub shape: &'a PodShape,
    /// Within which domains its pods are to lie.
    pub topology: &'a Topology,
    /// What one pod takes.
    pub need: &'a Vector,
    /// What the pods it must have take.
    pub total: &'a Vector,
    /// How many pods it must have.
    pub pods: u32,
    /// Its priority: the queue's, then its own.
    pub priority: Priority,
    /// Whether it may run on surplus.
    pub preemptible: bool,
    /// The nodes that may hold its pods.
    pub nodes: &'a [NodeId],
    /// Whom it took for claims on the surplus since something last changed from outside: not again. `None` when
    /// it may make no more such claims.
    pub taken: Option<&'a BTreeSet<WorkloadId>>,
}

impl<'a> Preemptor<'a> {
    /// A waiting workload as a preemptor in a pool; `taken` as the field of that name.
    #[must_use]
    pub fn of(
        waiting: &'a WaitingWorkload,
        pool: PoolId,
        nodes: &'a [NodeId],
        taken: Option<&'a BTreeSet<WorkloadId>>,
    ) -> Self {
        Self {
            id: &waiting.id,
            team: waiting.team,
            pool,
            shape: &waiting.shape,
            topology: &waiting.topology,
            need: &waiting.need,
            total: &waiting.total,
            pods: waiting.pods,
            priority: waiting.priority,
            preemptible: waiting.preemptible,
            nodes,
            taken,
        }
    }
}

/// The answer of a search.
#[derive(Debug, Default)]
pub struct Found {
    /// The best set, if any frees the room.
    pub victims: Option<Victims>,
    /// When somebody too young to be taken now will be old enough.
    pub retry_at: Option<Time>,
    /// Whether somebody could not be considered because its start is not confirmed yet.
    pub skipped: bool,
    /// How much was tried: sets, and as one of those so many who might be taken ([`LOOKS`]).
    pub tried: usize,
    /// Whether not every set was tried, so that a better one may exist.
    pub bounded: bool,
}

/// A set of victims and what it is good for.
#[derive(Debug)]
pub struct Victims {
    /// Who goes, or shrinks, or moves.
    pub takes: Vec<Take>,
    /// Where the claimant goes.
    pub placement: Placement,
    /// Whether the claimant is owed the room.
    pub within_guarantee: bool,
}

/// What happens to one victim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take {
    /// It goes back to the queue.
    Whole(WorkloadId),
    /// It loses so many pods on these nodes.
    Shrink(WorkloadId, BTreeMap<NodeId, u32>),
    /// It goes on elsewhere, in the room that is then free there.
    Move(WorkloadId, Placement),
    /// It runs on while so many of its pods on these nodes are made anew elsewhere.
    Shift(WorkloadId, BTreeMap<NodeId, u32>, Placement),
}

impl Take {
    /// Whom it is about.
    #[must_use]
    pub fn id(&self) -> &WorkloadId {
        match self {
            Self::Whole(id) | Self::Shrink(id, _) | Self::Move(id, _) | Self::Shift(id, _, _) => id,
        }
    }
}

/// On what a claim rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ground {
    /// The guarantee holds it.
    Owed,
    /// It lives off the surplus.
    Surplus,
}

/// The state of things in which a search is made: what is, and what is imagined on top of it.
#[derive(Clone, Debug, Default)]
struct State {
    hypothetical: Hypothetical,
    freed: Freed,
    /// Those who are imagined to be gone.
    gone: Vec<WorkloadId>,
    /// Those who wait, but are imagined to have started.
    started: Vec<WorkloadId>,
}

/// One step of taking somebody: all of it, or one pod beyond its minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Item {
    /// One pod on that node of the candidate with that index.
    Pod(usize, NodeId),
    /// All of the candidate with that index.
    Whole(usize),
}

impl Item {
    fn candidate(self) -> usize {
        match self {
            Self::Pod(candidate, _) | Self::Whole(candidate) => candidate,
        }
    }
}

/// What is the same for all searches that one leads to, once one has asked.
#[derive(Default)]
struct Common {
    /// Those who wait and are owed.
    owed_waiting: OnceCell<Vec<Alike>>,
    /// The teams of which something may be taken.
    lending: OnceCell<Lending>,
}

/// The search for one claimant.
struct Search<'a> {
    cluster: &'a ClusterState,
    pending: &'a Pending,
    run_times: &'a RunTimes,
    /// Who has been promised room.
    nominated: &'a [Nominated],
    /// Capacity that is kept for somebody, and so is not seen.
    masked: &'a [Masked],
    preemptor: Preemptor<'a>,
    ground: Ground,
    /// Whether others may be moved for the claimant.
    moves: bool,
    state: Rc<State>,
    /// The nodes on which the claimant is to be placed.
    nodes: Vec<NodeId>,
    candidates: Vec<Candidate<'a>>,
    common: &'a Common,
    /// Whether more is to be looked at than usual.
    wide: bool,
    /// Whether those count as old enough who will be before they end.
    foresees: bool,
    /// Whether only the most promising nodes were looked at.
    confined: bool,
    bounded: bool,
    tried: Cell<usize>,
    /// How many were looked at who might be taken.
    looked_at: Cell<usize>,
    now: Time,
}

/// A workload that has been promised room.
#[derive(Clone, Debug)]
pub struct Nominated {
    /// Which.
    pub id: WorkloadId,
    /// Whose.
    pub team: TeamId,
    /// Its priority: the queue's, then its own.
    pub priority: Priority,
}

/// Capacity kept out of sight of those who have to respect a reservation.
#[derive(Clone, Debug)]
pub struct Masked {
    /// For whom it is reserved.
    pub owner: WorkloadId,
    /// What one pod of its takes.
    pub need: Vector,
    /// Where.
    pub placement: Placement,
}

/// What is, besides the claimant.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// Who holds what.
    pub cluster: &'a ClusterState,
    /// Who waits.
    pub pending: &'a Pending,
    /// How long runs took.
    pub run_times: &'a RunTimes,
    /// Who has been promised room.
    pub nominated: &'a [Nominated],
    /// Capacity that is kept for somebody, and so is not seen.
    pub masked: &'a [Masked],
}

/// Finds the best set of victims; none when no set makes the claimant start.
#[must_use]
pub fn search(
    scene: Scene<'_>,
    preemptor: Preemptor<'_>,
    barred: &dyn Fn(&WorkloadId) -> bool,
    now: Time,
) -> Found {
    let mut found = Found::default();
    let Scene { cluster, pending, run_times, nominated, masked } = scene;
    let owed_outright = cluster.quotas.within_guarantee(
        preemptor.pool,
        preemptor.team,
        preemptor.total,
        &Hypothetical::new(),
    );
    let mut best: Option<(Cost, Victims)> = None;
    let common = Common::default();
    for (ground, moves) in [(Ground::Owed, false), (Ground::Owed, true), (Ground::Surplus, false)] {
        let due = match (ground, moves) {
            (Ground::Owed, false) => true,
            // Others are moved only where plain eviction does not do, or would cut into a guarantee.
            (Ground::Owed, true) => {
                owed_outright && best.as_ref().is_none_or(|(cost, _)| cost.would_fall_below_guarantee())
            }
            // Who is owed only once others of its own branch are gone may need fewer as a claim on the surplus.
            (Ground::Surplus, _) => {
                preemptor.preemptible && preemptor.taken.is_some() && (best.is_none() || !owed_outright)
            }
        };
        if !due {
            continue;
        }
        let mut search = Search {
            cluster,
            pending,
            run_times,
            nominated,
            masked,
            preemptor,
            ground,
            moves,
            state: Rc::default(),
            nodes: preemptor.nodes.to_vec(),
            candidates: Vec::new(),
            common: &common,
            wide: false,
            foresees: false,
            confined: false,
            bounded: false,
            tried: Cell::new(1),
            looked_at: Cell::new(0),
            now,
        };
        let gathered = search.gather(barred);
        found.skipped |= gathered.skipped;
        found.retry_at = [found.retry_at, gathered.retry_at].into_iter().flatten().min();
        let mut proposal = search.best();
        if proposal.is_none() && search.confined && ground == Ground::Owed && !moves {
            // Who is owed room must not miss it because it lies where nobody looked.
            (search.nodes, search.wide) = (preemptor.nodes.to_vec(), true);
            search.gather(barred);
            proposal = search.best();
        }
        found.bounded |= search.bounded;
        found.tried += search.effort();
        if let Some((cost, victims)) = proposal
            && best.as_ref().is_none_or(|(least, _)| cost < *least)
        {
            best = Some((cost, victims));
        }
    }
    found.victims = best.map(|(_, victims)| victims);
    found
}

impl<'a> Search<'a> {
    /// How much was tried so far.
    fn effort(&self) -> usize {
        self.tried.get() + self.looked_at.get() / LOOKS
    }

    /// Whether it has been looked for long enough, if anything has been found.
    fn has_tried_enough(&self) -> bool {
        self.confined && self.effort() > ENOUGH
    }

    fn request(&self) -> Request<'a> {
        let preemptor = &self.preemptor;
        Request {
            pool: preemptor.pool,
            shape: preemptor.shape,
            topology: preemptor.topology,
            need: preemptor.need,
            pods: preemptor.pods,
            beside: None,
        }
    }

    /// The cheapest of all sets proposed.
    fn best(&mut self) -> Option<(Cost, Victims)> {
        let proposals = self.proposals();
        let outcomes = proposals.iter().filter_map(|items| self.outcome(items, &self.nodes));
        let mut priced: Vec<(Cost, Outcome)> =
            outcomes.map(|outcome| (self.least_cost(&outcome), outcome)).collect();
        // Whether victims would evict in turn is dear to find out: it is asked of those only that would else be
        // the cheapest.
        priced.sort_by(|left, right| left.0.cmp(&right.0));
        let mut best: Option<(Cost, Outcome)> = None;
        for (least, outcome) in priced {
            if best.as_ref().is_some_and(|(cost, _)| *cost <= least || self.has_tried_enough()) {
                break;
            }
            if !self.is_fair(&outcome) {
                continue;
            }
            let cost = self.with_comebacks(least, &outcome);
            if best.as_ref().is_none_or(|(known, _)| cost < *known)
                && !(cost.cascades() && self.must_last(&outcome))
            {
                best = Some((cost, outcome));
            }
        }
        best.map(|(cost, outcome)| {
            let takes = self.takes(&outcome);
            let within_guarantee = self.ground == Ground::Owed;
            (cost, Victims { takes, placement: outcome.placement, within_guarantee })
        })
    }

    /// Whether what is taken must stay taken, so that nobody among the victims may evict in turn: what a claim
    /// on the surplus takes from other teams.
    fn must_last(&self, outcome: &Outcome) -> bool {
        self.ground == Ground::Surplus && !self.takes_own_only(outcome)
    }

    fn takes_own_only(&self, outcome: &Outcome) -> bool {
        outcome.parts.iter().all(|part| self.candidates[part.candidate].own)
    }

    fn takes(&self, outcome: &Outcome) -> Vec<Take> {
        let id = |candidate: usize| self.candidates[candidate].info.workload.id.clone();
        let mut takes: Vec<Take> = outcome
            .parts
            .iter()
            .map(|part| {
                if part.whole {
                    Take::Whole(id(part.candidate))
                } else {
                    Take::Shrink(id(part.candidate), part.nodes.clone())
                }
            })
            .collect();
        takes.extend(outcome.moved.iter().map(|(part, to)| {
            let id = id(part.candidate);
            if part.whole {
                Take::Move(id, to.clone())
            } else {
                Take::Shift(id, part.nodes.clone(), to.clone())
            }
        }));
        takes
    }
}
