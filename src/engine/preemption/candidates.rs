//! Collects the candidates of a search and sorts them, the cheapest first.
//!
//! Where few workloads are reclaimable, all of them are candidates. Otherwise the search is confined to the most
//! promising nodes.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::preemption::borrowers::Borrowers;
use crate::preemption::candidate::Excluded;
use crate::preemption::search::{Basis, Search};
use crate::types::ids::{Priority, TeamId};
use crate::types::ratio::Ratio;
use crate::types::submission::SubmissionOrder;
use crate::types::{Time, WorkloadId};

/// Up to this many reclaimable workloads, all of them are examined (law 4).
const MAX_UNCONFINED: usize = 64;
/// A search that is not wide keeps at most this many candidates, the cheapest.
const MAX_CANDIDATES: usize = 512;

/// The order of candidates, by the cost of each alone. They are compared field by field, in the order of the fields; what is
/// less comes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CandidateOrder {
    /// Whether it was admitted: pods that never were are evicted before all others (law 15).
    admitted: bool,
    /// Whether it may not be evicted, only moved.
    only_moves: bool,
    /// Whether its eviction leaves its team below the guarantee (law 3).
    below_guarantee: bool,
    /// Whether it has not run for its minimum run time yet.
    under_min_runtime: bool,
    /// Whether it is of the preemptor's team, or no guarantee that protects it is smaller: a larger workload goes before the rest
    /// of its team (law 2).
    fits_guarantee: bool,
    /// Whether another candidate of its team has a lower priority.
    above_lowest: bool,
    /// Whether it is of the preemptor's team, of which the preemptor needs no victim.
    own_unneeded: bool,
    /// The cost of its eviction.
    cost: i128,
    /// The share of its team, the largest first.
    share: Reverse<Ratio>,
    /// Its priority, the lowest first.
    priority: Priority,
    /// The number of its pods, the smallest first.
    pods: u32,
    /// Its start, the newest first.
    started: Reverse<Time>,
    /// Its place in the order of submission, the newest first.
    submission_order: Reverse<SubmissionOrder>,
    /// Ends every tie, so that the result depends only on the input (law 10).
    id: WorkloadId,
}

impl Search<'_> {
    /// Collects the candidates, sorted by the cost of each alone. With many reclaimable workloads the search
    /// is then confined to the most promising nodes.
    pub fn collect_candidates<'e>(&mut self, barred: &'e dyn Fn(&WorkloadId) -> bool) -> Excluded<'e> {
        let mut excluded = Excluded::new(barred);
        let (cluster, pool) = (self.cluster, self.preemptor.pool);
        if self.basis == Basis::WithinGuarantee && !self.can_be_within_guarantee() {
            self.candidates.clear();
            return excluded;
        }
        let borrowers = Borrowers::of(self);
        let mut count = 0;
        let confined = borrowers.in_order().any(|borrower| {
            count += cluster.totals.count(pool, borrower.team);
            count > MAX_UNCONFINED
        });
        let (candidates, nodes) = if confined {
            let (candidates, nodes) = self.confined_candidates(&borrowers, &mut excluded);
            (candidates, Some(nodes))
        } else {
            let all = borrowers.in_order().flat_map(|borrower| {
                cluster.reclaimable(pool, borrower.team).map(move |info| (Rc::clone(&borrower), info))
            });
            let candidates =
                all.filter_map(|(borrower, info)| self.candidate(&borrower, info, &mut excluded));
            (candidates.collect(), None)
        };
        (self.candidates, self.confined, self.bounded) = (candidates, confined, confined);
        if let Some(nodes) = nodes {
            self.nodes = nodes;
        }
        self.sort_candidates();
        // Without the expensive ones no node may be left that can be emptied, so a wide search keeps them all.
        if self.candidates.len() > MAX_CANDIDATES && !self.wide {
            self.candidates.truncate(MAX_CANDIDATES);
            self.bounded = true;
        }
        excluded
    }

    /// Whether some set of victims could make the preemptor be within guarantee. In its own team's guarantee, only lower
    /// priorities of the team and victims of the teams below free quota.
    fn can_be_within_guarantee(&self) -> bool {
        let (cluster, preemptor) = (self.cluster, &self.preemptor);
        let (pool, team, quotas) = (preemptor.pool, preemptor.team, &cluster.quotas);
        if quotas.has_children(team) {
            return true;
        }
        let mut hypothetical = self.assumptions.hypothetical.clone();
        let lower = cluster.totals.reclaimable_below(pool, team, preemptor.priority);
        quotas.assume(&mut hypothetical, team, &lower, -1);
        // The assumptions count without these already.
        for gone in self.assumptions.gone.iter().filter_map(|id| cluster.get(id)) {
            let is_lower = gone.team == team && cluster.priority_of(gone) < preemptor.priority;
            if is_lower && gone.usage.pool == pool && cluster.totals.is_reclaimable(gone) {
                quotas.assume(&mut hypothetical, team, &gone.staying_total(), 1);
            }
        }
        quotas.own_guarantee_would_hold(pool, team, preemptor.total, &hypothetical)
    }

    /// Sorts the candidates by the cost of each alone, the cheapest first.
    fn sort_candidates(&mut self) {
        let (cluster, preemptor) = (self.cluster, self.preemptor);
        let hypothetical = &self.assumptions.hypothetical;
        let own_needed = self.basis == Basis::WithinGuarantee
            && !cluster.quotas.within_guarantee(
                preemptor.pool,
                preemptor.team,
                preemptor.total,
                hypothetical,
            );
        let mut lowest: BTreeMap<TeamId, Priority> = BTreeMap::new();
        let mut shares: BTreeMap<TeamId, Ratio> = BTreeMap::new();
        for candidate in &self.candidates {
            let team = candidate.info.team;
            let low = lowest.entry(team).or_insert(candidate.priority);
            *low = (*low).min(candidate.priority);
            shares
                .entry(team)
                .or_insert_with(|| cluster.quotas.level_share(preemptor.pool, team, hypothetical.get(&team)));
        }
        self.candidates.sort_by_cached_key(|candidate| {
            let info = candidate.info;
            CandidateOrder {
                admitted: !(candidate.evictable && candidate.first),
                only_moves: !candidate.evictable,
                below_guarantee: candidate.evictable
                    && candidate.falls_below_guarantee(cluster, preemptor.pool, hypothetical),
                under_min_runtime: candidate.under_min_runtime,
                fits_guarantee: candidate.own || !candidate.is_oversize(),
                above_lowest: lowest.get(&info.team).is_some_and(|low| *low < candidate.priority),
                own_unneeded: candidate.own && !own_needed,
                cost: candidate.cost,
                share: Reverse(shares.get(&info.team).copied().unwrap_or(Ratio::ZERO)),
                priority: candidate.priority,
                pods: info.usage.staying_pods(),
                started: Reverse(candidate.started),
                submission_order: Reverse(SubmissionOrder::of(&info.workload)),
                id: info.workload.id.clone(),
            }
        });
    }
}
