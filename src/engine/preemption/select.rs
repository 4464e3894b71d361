//! Searches on each basis that applies to a preemptor and selects the set of least cost (law 4).

use crate::preemption::cache::Cache;
use crate::preemption::cost::Cost;
use crate::preemption::feasibility::Outcome;
use crate::preemption::preemptor::{Preemptor, SearchInput, Take, Victims};
use crate::preemption::search::{Basis, Search};
use crate::state::cluster::ClusterState;
use crate::state::quotas::Hypothetical;
use crate::types::{Time, WorkloadId};

/// What a search asks beside the state.
#[derive(Clone, Copy)]
pub struct Conditions<'a> {
    /// Whether a workload may not be a victim now.
    pub barred: &'a dyn Fn(&WorkloadId) -> bool,
    /// Whether the preemptor may start in the place of these victims.
    pub permits: &'a dyn Fn(&Victims) -> bool,
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct SearchResult {
    /// The set of least cost, if any set lets the preemptor start, with its cost.
    pub found: Option<(Cost, Victims)>,
    /// The earliest time at which a workload that is excluded now has run for its minimum run time.
    pub retry_at: Option<Time>,
    /// Whether a workload was excluded because its start or resize is not confirmed yet.
    pub skipped: bool,
    /// The effort in tried sets. Examined workloads are converted into sets.
    pub tried: usize,
    /// Whether some sets were not tried, so that a cheaper one may exist.
    pub bounded: bool,
}

/// The bases on which a set of victims is searched, in order, each with whether other workloads may be moved.
const ATTEMPTS: [(Basis, bool); 3] =
    [(Basis::WithinGuarantee, false), (Basis::WithinGuarantee, true), (Basis::Borrowing, false)];

/// Finds the set of victims of least cost. The result has no victims if no set lets the preemptor start.
#[must_use]
pub fn search(
    input: SearchInput<'_>,
    preemptor: Preemptor<'_>,
    conditions: Conditions<'_>,
    now: Time,
) -> SearchResult {
    let Conditions { barred, permits } = conditions;
    let mut result = SearchResult::default();
    let cache = Cache::default();
    for (basis, moves) in ATTEMPTS {
        if !applies(basis, moves, input.cluster, &preemptor, result.found.as_ref()) {
            continue;
        }
        let mut search = Search::new(input, preemptor, basis, &cache, now);
        search.moves = moves;
        search.tried.set(1);
        let excluded = search.collect_candidates(barred);
        result.skipped |= excluded.unconfirmed;
        result.retry_at = [result.retry_at, excluded.retry_at].into_iter().flatten().min();
        let mut found = search.least_cost_set(permits);
        if found.is_none() && search.confined && basis == Basis::WithinGuarantee && !moves {
            // A preemptor within guarantee must not miss capacity on nodes that the search left out (law 2).
            (search.nodes, search.wide) = (preemptor.nodes.to_vec(), true);
            search.collect_candidates(barred);
            found = search.least_cost_set(permits);
        }
        result.bounded |= search.bounded;
        result.tried += search.effort();
        // Of equals, teams below one parent settle their fair shares before one of them reclaims.
        let is_better = |cost: &Cost| {
            let least = result.found.as_ref();
            least.is_none_or(|(least, victims)| cost < least || victims.by_exchange && cost == least)
        };
        if let Some((cost, victims)) = found
            && is_better(&cost)
        {
            result.found = Some((cost, victims));
        }
    }
    result
}

/// Whether a preemptor searches victims on a basis, with moves or without, after the sets that it has `found` on others.
fn applies(
    basis: Basis,
    moves: bool,
    cluster: &ClusterState,
    preemptor: &Preemptor<'_>,
    found: Option<&(Cost, Victims)>,
) -> bool {
    let (quotas, Preemptor { pool, team, total, .. }) = (&cluster.quotas, preemptor);
    let within_guarantee = || quotas.within_guarantee(*pool, *team, total, &Hypothetical::new());
    match (basis, moves) {
        (Basis::WithinGuarantee, false) => true,
        // Workloads move only if evictions alone do not help or leave a team below its guarantee.
        (Basis::WithinGuarantee, true) => {
            found.is_none_or(|(cost, _)| cost.falls_below_guarantee()) && within_guarantee()
        }
        // A preemptor that is within guarantee only without some victims may need fewer victims as a borrower.
        (Basis::Borrowing, _) => {
            let may_borrow = preemptor.preemptible || quotas.holds_fixed(*pool, *team, total);
            may_borrow && preemptor.preempted_before.is_some() && (found.is_none() || !within_guarantee())
        }
    }
}

impl Search<'_> {
    /// The set of least cost on the basis of this search.
    fn least_cost_set(&mut self, permits: &dyn Fn(&Victims) -> bool) -> Option<(Cost, Victims)> {
        let sets = self.candidate_sets();
        let outcomes = sets.iter().filter_map(|steps| self.outcome(steps, &self.nodes));
        let mut priced: Vec<(Cost, Outcome)> =
            outcomes.map(|outcome| (self.least_cost(&outcome), outcome)).collect();
        // Follow-up preemptions are expensive to find, so only sets that could still be the cheapest are searched.
        priced.sort_by(|left, right| left.0.cmp(&right.0));
        let mut best: Option<(Cost, Outcome)> = None;
        for (least, outcome) in priced {
            if best.as_ref().is_some_and(|(cost, _)| *cost <= least || self.has_tried_enough()) {
                break;
            }
            if self.is_of_other_basis(&outcome)
                || !self.is_fair(&outcome)
                || !permits(&self.victims(&outcome))
            {
                continue;
            }
            let Some(cost) = self.with_follow_ups(least, &outcome) else { continue };
            if best.as_ref().is_none_or(|(known, _)| cost < *known) {
                best = Some((cost, outcome));
            }
        }
        best.map(|(cost, outcome)| (cost, self.victims(&outcome)))
    }

    /// The set as the caller carries it out.
    fn victims(&self, outcome: &Outcome) -> Victims {
        let within_guarantee = self.basis == Basis::WithinGuarantee;
        let by_exchange = within_guarantee && !self.is_within_guarantee_after(outcome);
        let (takes, placement) = (self.takes(outcome), outcome.placement.clone());
        Victims { takes, placement, within_guarantee, by_exchange }
    }

    /// Whether the guarantees on its path hold the preemptor once the victims of a set are gone.
    fn is_within_guarantee_after(&self, outcome: &Outcome) -> bool {
        let Preemptor { pool, team, total, .. } = self.preemptor;
        self.cluster.quotas.within_guarantee(pool, team, total, &outcome.hypothetical)
    }

    /// Whether a set of a borrowing preemptor brings it within guarantee. Such a set has its cost on that basis only: there a
    /// workload larger than a guarantee goes before the rest of its team (law 2).
    fn is_of_other_basis(&self, outcome: &Outcome) -> bool {
        self.basis == Basis::Borrowing && self.is_within_guarantee_after(outcome)
    }

    /// The operations on the victims of a set.
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
