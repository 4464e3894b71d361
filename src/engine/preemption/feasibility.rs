//! Whether a set of victims is permitted and lets the preemptor start, and the state that it leads to.

use std::collections::BTreeMap;

use crate::placement::{self, Capacity, Placement, Request};
use crate::preemption::candidate::Candidate;
use crate::preemption::search::{Basis, Search, Step, request_of};
use crate::state::freed::Freed;
use crate::state::lending::{self, Loan};
use crate::state::quotas::{Exchange, Hypothetical};
use crate::state::rules::{free_pods, occupy};
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{NodeId, TeamId};
use crate::types::vector::Vector;

/// The pods that a set takes of one candidate.
#[derive(Clone, Debug)]
pub struct Part {
    /// The index of the candidate.
    pub candidate: usize,
    /// Whether the whole candidate is taken.
    pub whole: bool,
    /// How many pods on each node.
    pub nodes: BTreeMap<NodeId, u32>,
    /// How many pods in all.
    pub pods: u32,
    /// The resources that they hold.
    pub amount: Vector,
}

/// The state to which a set leads.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The nodes on which the preemptor starts.
    pub placement: Placement,
    /// The candidates that are evicted or shrunk.
    pub parts: Vec<Part>,
    /// The candidates that move, with their new placements.
    pub moved: Vec<(Part, Placement)>,
    /// How many of the parts leave their team below its guarantee.
    pub below_guarantee: usize,
    /// The changes of quota usage, without the preemptor.
    pub hypothetical: Hypothetical,
    /// The capacity on nodes that becomes free, without the preemptor and the moved workloads.
    pub freed_in_all: Freed,
    /// The capacity on nodes that is free once the preemptor and the moved workloads are placed.
    pub freed: Freed,
}

/// The parts of a set, sorted into those that are taken and those that move. Nodes are not considered yet.
struct Classified {
    taken: Vec<Part>,
    moving: Vec<Part>,
    below_guarantee: usize,
    hypothetical: Hypothetical,
}

impl Search<'_> {
    /// The outcome of a set; `None` if the set is not permitted or the preemptor cannot start on `nodes`. Fairness
    /// is a separate question ([`Search::is_fair`]).
    pub fn outcome(&self, steps: &[Step], nodes: &[NodeId]) -> Option<Outcome> {
        self.variants(steps).find_map(|classified| self.place(classified, nodes))
    }

    /// Whether a set has an outcome. Cheaper than the outcome itself.
    pub fn is_feasible(&self, steps: &[Step], nodes: &[NodeId]) -> bool {
        self.variants(steps).any(|classified| {
            if !classified.moving.is_empty() {
                return self.place(classified, nodes).is_some();
            }
            self.freed_by(&classified).is_some_and(|freed| {
                let most = placement::most(self.cluster, nodes, &self.request(), Capacity::Settled(&freed));
                most >= self.preemptor.pods && !self.is_countered(&classified, &freed)
            })
        })
    }

    /// The ways to carry out a set: with moves first, if the search allows them, then without.
    fn variants(&self, steps: &[Step]) -> impl Iterator<Item = Classified> + '_ {
        self.tried.set(self.tried.get() + 1);
        let parts = self.parts(steps);
        let with_moves = self.moves.then(|| (true, parts.clone()));
        let variants = with_moves.into_iter().chain([(false, parts)]);
        variants.filter_map(move |(moves, parts)| self.classify(parts, moves))
    }

    /// The parts of the candidates that a set of steps takes.
    pub fn parts(&self, steps: &[Step]) -> Vec<Part> {
        let mut taken: BTreeMap<usize, Option<BTreeMap<NodeId, u32>>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Whole(candidate) => {
                    taken.insert(*candidate, None);
                }
                Step::Pod(candidate, node) => {
                    if let Some(pods) = taken.entry(*candidate).or_insert_with(|| Some(BTreeMap::new())) {
                        *pods.entry(*node).or_default() += 1;
                    }
                }
            }
        }
        let part = |(candidate, pods): (usize, Option<BTreeMap<NodeId, u32>>)| {
            let info = self.candidates[candidate].info;
            match pods {
                None => Part {
                    candidate,
                    whole: true,
                    nodes: info.usage.staying().clone(),
                    pods: info.usage.staying_pods(),
                    amount: self.candidates[candidate].amount.clone(),
                },
                Some(nodes) => {
                    let pods = nodes.values().sum();
                    let amount = info.need.times(pods);
                    Part { candidate, whole: false, nodes, pods, amount }
                }
            }
        };
        taken.into_iter().map(part).collect()
    }

    /// Decides for each part whether it is taken or has to move. `None` if a part may be neither.
    fn classify(&self, parts: Vec<Part>, moves: bool) -> Option<Classified> {
        let quotas = &self.cluster.quotas;
        let mut classified = Classified {
            taken: Vec::new(),
            moving: Vec::new(),
            below_guarantee: 0,
            hypothetical: self.assumptions.hypothetical.clone(),
        };
        // A workload at a smaller size requests its full size again once it has stopped, so it cannot move.
        // A bare pod is not made again, so it cannot move either.
        let may_move = |part: &Part| {
            let info = self.candidates[part.candidate].info;
            !part.whole || !info.is_reduced() && info.workload.resumable
        };
        let (own, mut left): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(|part| {
            let candidate = &self.candidates[part.candidate];
            candidate.own && candidate.evictable
        });
        for part in &own {
            let account = self.candidates[part.candidate].info.account();
            quotas.assume(&mut classified.hypothetical, account, &part.amount, -1);
        }
        // No workload moves where siblings are preempted by priority: the move would disturb equals for priority.
        let moves = moves && own.is_empty();
        classified.taken = own;
        self.sort_for_guarantees(&mut left);
        while !left.is_empty() {
            let may_take = |part: &Part, below_guarantee: bool| {
                self.may_take(part, &classified.hypothetical, below_guarantee)
            };
            if let Some(next) = left.iter().position(|part| may_take(part, false)) {
                classified.take(left.remove(next), self);
            } else if let Some(next) = left.iter().position(|part| moves && may_move(part)) {
                classified.moving.push(left.remove(next));
            } else {
                let permitted = |part: &Part| self.basis == Basis::WithinGuarantee && may_take(part, true);
                let next = left.iter().position(permitted)?;
                classified.below_guarantee += 1;
                classified.take(left.remove(next), self);
            }
        }
        Some(classified)
    }

    /// Sorts parts of other teams so that as few of them as possible leave their team below its guarantee (law 3).
    fn sort_for_guarantees(&self, parts: &mut [Part]) {
        if parts.len() < 2 {
            return;
        }
        // What asks for nothing that a guarantee covers may be taken only while its team borrows, so it comes first.
        let is_covered = |part: &Part| {
            let mut levels = self.candidates[part.candidate].levels.iter();
            let quotas = &self.cluster.quotas;
            levels.any(|at| quotas.quota_usage(self.preemptor.pool, *at).covers_any(&part.amount))
        };
        // A part that may not leave its team below the guarantee comes before one that may: only one of them can.
        let may_fall_below = |part: &Part| {
            self.basis == Basis::WithinGuarantee && !self.candidates[part.candidate].is_covered(self.cluster)
        };
        // Workloads that shrink come last: where others leave the team below its guarantee, it covers the pods that they would
        // lose. Smaller parts come first.
        parts.sort_by_cached_key(|part| {
            let amount = part.amount.entries().map(|(_, milli)| milli).max();
            (!part.whole, is_covered(part), may_fall_below(part), amount, part.candidate)
        });
    }

    /// Whether a part may be evicted or shrunk after the hypothetical changes (law 3). `below_guarantee` permits
    /// that its team falls below the guarantee.
    pub fn may_take(&self, part: &Part, hypothetical: &Hypothetical, below_guarantee: bool) -> bool {
        let candidate = &self.candidates[part.candidate];
        let (quotas, pool, protection) = (&self.cluster.quotas, self.preemptor.pool, candidate.protection());
        let falls_below =
            |amount: &Vector| quotas.would_fall_below_guarantee(pool, protection, amount, hypothetical);
        let may_fall_below = || match part.whole {
            true => {
                !candidate.is_covered(self.cluster) && !self.is_covered_once_shrunk(candidate, hypothetical)
            }
            // Of the pods that it loses the last one may be covered in part: the guarantee covers what stays.
            false => {
                let others = part.amount.plus(&candidate.info.need, -1);
                let mut before = hypothetical.clone();
                quotas.assume(&mut before, candidate.info.account(), &others, -1);
                quotas.beyond_guarantee(pool, protection, &candidate.info.need, &before)
            }
        };
        candidate.evictable
            && (candidate.own
                || quotas.beyond_guarantee(pool, protection, &part.amount, hypothetical)
                    && (!falls_below(&part.amount) || below_guarantee && may_fall_below()))
    }

    /// Whether an elastic workload can be shrunk to what the guarantee of its team covers. Another team never takes it
    /// below that, also not as a whole (law 3).
    fn is_covered_once_shrunk(&self, candidate: &Candidate<'_>, hypothetical: &Hypothetical) -> bool {
        let (quotas, pool) = (&self.cluster.quotas, self.preemptor.pool);
        let extra = candidate.info.need.times(candidate.extra_pods);
        candidate.extra_pods > 0
            && candidate.levels.iter().any(|at| quotas.quota_usage(pool, *at).has_guarantee())
            && !quotas.one_beyond_guarantee_without(pool, candidate.protection(), &extra, hypothetical)
    }

    /// The capacity that becomes free on nodes; `None` if quota does not admit the preemptor even then.
    fn freed_by(&self, classified: &Classified) -> Option<Freed> {
        let (quotas, preemptor) = (&self.cluster.quotas, &self.preemptor);
        let (pool, team, total, hypothetical) =
            (preemptor.pool, preemptor.team, preemptor.total, &classified.hypothetical);
        let lent =
            |freed: &Freed| lending::allows(self.cluster, Loan { pool, team, total }, freed, hypothetical);
        let freed = match self.basis {
            Basis::WithinGuarantee => {
                let changes = (&self.assumptions.hypothetical, hypothetical);
                match quotas.within_guarantee_by_exchange(pool, team, total, changes) {
                    Exchange::Lacking => None,
                    Exchange::Full => Some(self.freed_by_all(classified)),
                    // What the level uses more than before it borrows, as any start on free capacity does.
                    Exchange::Beyond(level) => {
                        let may_borrow = preemptor.preemptible || quotas.holds_fixed(pool, team, total);
                        may_borrow.then(|| self.freed_below(classified, level)).filter(lent)
                    }
                }
            }
            Basis::Borrowing => Some(self.freed_by_all(classified)).filter(lent),
        };
        freed.filter(|_| quotas.over_limit(pool, team, total, hypothetical).is_none())
    }

    /// The capacity on nodes that becomes free by a set.
    fn freed_by_all(&self, classified: &Classified) -> Freed {
        self.freed_by_parts(classified.taken.iter().chain(&classified.moving))
    }

    /// The part of it that teams at or below a level leave which keep their guarantees. What a level borrows besides must be free
    /// without the victims: for a borrower no other team would lose it, and none would fall below its guarantee.
    fn freed_below(&self, classified: &Classified, level: TeamId) -> Freed {
        let quotas = &self.cluster.quotas;
        let team = |part: &&Part| self.candidates[part.candidate].info.team;
        // Those that leave their team below its guarantee are taken last.
        let keeping = classified.taken.len().saturating_sub(classified.below_guarantee);
        let taken = classified.taken.iter().take(keeping);
        self.freed_by_parts(taken.filter(|part| quotas.team(team(part)).path.contains(&level)))
    }

    fn freed_by_parts<'p>(&self, parts: impl Iterator<Item = &'p Part>) -> Freed {
        let mut freed = self.assumptions.freed.clone();
        for part in parts {
            free_pods(&mut freed, self.candidates[part.candidate].info, &part.nodes);
        }
        freed
    }

    /// Whether a waiting workload within guarantee would evict the preemptor in turn.
    fn is_countered(&self, classified: &Classified, freed: &Freed) -> bool {
        let own = |part: &Part| self.candidates[part.candidate].own;
        self.basis == Basis::Borrowing
            && self.preemptor.preemptible
            && self.would_be_preempted(|| classified.taken.iter().any(own), &classified.hypothetical, freed)
    }

    /// Places the preemptor first and then the workloads that move.
    fn place(&self, classified: Classified, nodes: &[NodeId]) -> Option<Outcome> {
        let freed_in_all = self.freed_by(&classified)?;
        let capacity = Capacity::Settled(&freed_in_all);
        let placement = placement::place(self.cluster, nodes, &self.request(), capacity)?;
        if self.is_countered(&classified, &freed_in_all) {
            return None;
        }
        let Classified { taken, moving, below_guarantee, hypothetical } = classified;
        let mut freed = freed_in_all.clone();
        occupy(&mut freed, self.preemptor.need, self.preemptor.profile, &placement);
        let mut moved = Vec::new();
        for part in moving {
            let info = self.candidates[part.candidate].info;
            let to = self.place_moved(info, &part, &freed)?;
            occupy(&mut freed, &info.need, &info.workload.profile, &to);
            moved.push((part, to));
        }
        Some(Outcome { placement, parts: taken, moved, below_guarantee, hypothetical, freed_in_all, freed })
    }

    /// The new placement of a part that moves, together with the pods of its workload that stay.
    fn place_moved(&self, info: &WorkloadInfo, part: &Part, freed: &Freed) -> Option<Placement> {
        let stays = |(node, pods): (&NodeId, &u32)| {
            let left = pods.saturating_sub(part.nodes.get(node).copied().unwrap_or(0));
            (left > 0).then_some((*node, left))
        };
        let staying: Placement = info.usage.staying().iter().filter_map(stays).collect();
        let request = request_of(info, self.preemptor.pool, part.pods);
        let request = Request { beside: (!staying.is_empty()).then_some(&staying), ..request };
        let nodes = placement::eligible(self.cluster, &request);
        // A single pod cannot be made to use another device of its node.
        let elsewhere = |node: &NodeId| part.whole || !part.nodes.contains_key(node);
        let nodes: Vec<NodeId> = nodes.iter().copied().filter(elsewhere).collect();
        placement::place(self.cluster, &nodes, &request, Capacity::Settled(freed))
    }

    /// Whether all victims are of the preemptor's own team.
    pub fn takes_own_only(&self, outcome: &Outcome) -> bool {
        outcome.parts.iter().all(|part| self.candidates[part.candidate].own)
    }
}

impl Classified {
    fn take(&mut self, part: Part, search: &Search<'_>) {
        let account = search.candidates[part.candidate].info.account();
        search.cluster.quotas.assume(&mut self.hypothetical, account, &part.amount, -1);
        self.taken.push(part);
    }
}
