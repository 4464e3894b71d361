//! The candidates of a confined search: those on the nodes where the most capacity can be freed at the least cost.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::placement::{self, Capacity};
use crate::preemption::borrowers::{Borrower, Borrowers};
use crate::preemption::candidate::{Candidate, Eligibility, Excluded};
use crate::preemption::search::{Basis, Search};
use crate::state::freed::Freed;
use crate::state::rules::{eviction_cost, free_on, scarcest};
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{NodeId, TeamId};

/// A confined search covers this many nodes, and [`NODES_PER_POD`] more for each pod of the preemptor.
const NODES: usize = 24;
const NODES_PER_POD: usize = 2;
/// Nodes are taken from this many borrowers, those with the largest shares.
const MAX_BORROWERS: usize = 24;
/// Up to this many nodes, each is priced for a preemptor within guarantee.
const MAX_PRICED_NODES: usize = 2_048;
/// This many of a borrower's newest and of its oldest workloads are examined.
const EXAMINED_PER_BORROWER: usize = 8;
/// A follow-up search covers only this fraction of nodes and borrowers.
const FOLLOW_UP_DIVISOR: usize = 3;
/// A second search of a preemptor within guarantee covers this many times the nodes, and more for many pods.
const WIDE_FACTOR: usize = 4;

/// An evictable workload on a node, with the cost of its eviction and the capacity that it frees there.
struct Occupant<'a> {
    under_min_runtime: bool,
    /// See [`eviction_cost`].
    cost: i128,
    /// Of the scarcest resource on that node.
    amount: i64,
    /// The levels of its team's path with guarantees that the preemptor must respect.
    levels: Rc<[TeamId]>,
    info: &'a WorkloadInfo,
}

impl<'a> Search<'a> {
    /// The candidates on the most promising nodes, and these nodes. The nodes are taken from several lists alternately,
    /// until enough are found that gain capacity for the preemptor.
    pub fn confined_candidates(
        &self,
        borrowers: &Borrowers<'_, 'a>,
        excluded: &mut Excluded<'_>,
    ) -> (Vec<Candidate<'a>>, Vec<NodeId>) {
        let cluster = self.cluster;
        let wanted = self.wanted_nodes();
        let mut lists = self.node_lists(borrowers, wanted, excluded);
        let (mut candidates, mut nodes) = (BTreeMap::new(), BTreeSet::new());
        let mut seen = BTreeSet::new();
        while nodes.len() < wanted && !lists.is_empty() {
            lists.retain_mut(|list| {
                if nodes.len() >= wanted {
                    return false;
                }
                let Some(node) = list.find(|node| seen.insert(*node) && self.admits(*node)) else {
                    return false;
                };
                let there: Vec<Candidate<'a>> = cluster
                    .occupants(node)
                    .filter_map(|(info, _)| Some((borrowers.get(info.team)?, info)))
                    .filter_map(|(borrower, info)| self.candidate(&borrower, info, excluded))
                    .collect();
                if self.gains_capacity(node, &there) {
                    nodes.insert(node);
                    candidates.extend(there.into_iter().map(|candidate| (candidate.info.index, candidate)));
                }
                true
            });
        }
        // Several pods may also use nodes with free capacity.
        if self.preemptor.pods > 1 {
            let capacity = Capacity::Settled(&self.assumptions.freed);
            let free = placement::nodes_that_fit(cluster, &self.nodes, &self.request(), capacity);
            nodes.extend(free.into_iter().take(wanted));
        }
        let mut chosen: Vec<NodeId> = nodes.into_iter().collect();
        chosen.sort_by_key(|node| cluster.nodes.name(*node));
        (candidates.into_values().collect(), chosen)
    }

    /// How many nodes the search covers. A wide one covers enough for every pod of the preemptor, however many these are.
    fn wanted_nodes(&self) -> usize {
        let pods = self.pods();
        let wanted = |pods: usize| NODES.saturating_add(pods.saturating_mul(NODES_PER_POD));
        match (self.wide, self.follow_up) {
            (true, _) => wanted(pods).saturating_mul(WIDE_FACTOR),
            (false, true) => wanted(pods.min(NODES)) / FOLLOW_UP_DIVISOR,
            (false, false) => wanted(pods.min(NODES)),
        }
    }

    /// Lists of promising nodes, each in its own order of preference.
    fn node_lists(
        &self,
        borrowers: &Borrowers<'_, 'a>,
        wanted: usize,
        excluded: &mut Excluded<'_>,
    ) -> Vec<std::vec::IntoIter<NodeId>> {
        let mut lists = Vec::new();
        if self.basis == Basis::WithinGuarantee && !self.follow_up && self.nodes.len() <= MAX_PRICED_NODES {
            lists.push(self.nodes_by_price(borrowers, excluded).into_iter());
        } else {
            let most = if self.follow_up { MAX_BORROWERS / FOLLOW_UP_DIVISOR } else { MAX_BORROWERS };
            for borrower in borrowers.in_order().take(most) {
                lists.push(self.nodes_of_borrower(&borrower, excluded).into_iter());
            }
        }
        if self.moves {
            lists.push(self.freest_nodes(wanted).into_iter());
        }
        lists
    }

    /// The nodes of a borrower's workloads, in the order of what their eviction costs.
    fn nodes_of_borrower(&self, borrower: &Borrower, excluded: &mut Excluded<'_>) -> Vec<NodeId> {
        let reclaimable = || self.cluster.reclaimable(self.preemptor.pool, borrower.team);
        let most = match self.wide {
            true => (EXAMINED_PER_BORROWER * WIDE_FACTOR).max(self.pods().saturating_mul(NODES_PER_POD)),
            false => EXAMINED_PER_BORROWER,
        };
        let mut cheapest = Vec::new();
        // The newest have the least work to lose. If their minimum run time protects them, the oldest may be
        // evictable.
        for info in reclaimable().take(most).chain(reclaimable().rev().take(most)) {
            let Some(admission) = self.victim_admission(info, excluded) else { continue };
            let Eligibility { evictable, under_min_runtime } =
                self.eligibility(borrower, info, admission, excluded);
            if evictable || self.moves {
                let pods = info.usage.staying_pods();
                let cost = eviction_cost(self.cluster, info, pods, admission.at, self.now);
                let priority = self.cluster.priority_of(info);
                cheapest.push(((!evictable, under_min_runtime, priority, cost), info));
            }
        }
        // The sort is stable: workloads of equal cost stay in the order in which they were examined.
        cheapest.sort_by_key(|(cost, _)| *cost);
        cheapest.into_iter().flat_map(|(_, info)| info.usage.staying().keys().copied()).collect()
    }

    /// The nodes on which one pod of the preemptor fits once the cheapest occupants are evicted, in the order of
    /// that price.
    fn nodes_by_price(&self, borrowers: &Borrowers<'_, 'a>, excluded: &mut Excluded<'_>) -> Vec<NodeId> {
        let Some(resource) = scarcest(self.cluster, self.preemptor.need) else { return Vec::new() };
        let mut priced = Vec::new();
        for node in &self.nodes {
            let missing = self.preemptor.need.get(resource).saturating_sub(self.free(*node, resource));
            let evictable = self.cluster.occupants(*node).filter_map(|(info, pods)| {
                let borrower = borrowers.get(info.team)?;
                let admission = self.victim_admission(info, excluded)?;
                let Eligibility { evictable, under_min_runtime } =
                    self.eligibility(&borrower, info, admission, excluded);
                evictable.then_some((borrower, info, admission, pods, under_min_runtime))
            });
            // Where a pod fits already, the occupants are only examined, so that what is excluded for now is noted.
            if missing <= 0 {
                evictable.for_each(drop);
                priced.push(((0, false, 0), *node));
                continue;
            }
            let occupants = evictable.map(|(borrower, info, admission, pods, under_min_runtime)| {
                let all = info.usage.staying_pods();
                let cost = eviction_cost(self.cluster, info, all, admission.at, self.now);
                let amount = info.need.get(resource).saturating_mul(i64::from(pods));
                let levels = Rc::clone(&borrower.levels);
                Occupant { under_min_runtime, cost, amount, levels, info }
            });
            let mut occupants: Vec<Occupant<'_>> = occupants.collect();
            occupants.sort_by_key(|occupant| (occupant.under_min_runtime, occupant.cost, occupant.amount));
            if let Some(price) = self.price(occupants, missing) {
                priced.push((price, *node));
            }
        }
        priced.sort_unstable();
        priced.into_iter().map(|(_, node)| node).collect()
    }

    /// The price of freeing the missing amount on a node, by the first criteria of a set's cost: workloads that
    /// leave their team below its guarantee, minimum run time, cost of eviction. Workloads that leave their team below its
    /// guarantee are evicted last. `None` if all occupants together do not free enough.
    fn price(&self, mut occupants: Vec<Occupant<'_>>, mut missing: i64) -> Option<(usize, bool, i128)> {
        let (quotas, preemptor) = (&self.cluster.quotas, &self.preemptor);
        let (mut price, mut hypothetical) = ((0, false, 0_i128), self.assumptions.hypothetical.clone());
        for below_guarantee in [false, true] {
            occupants.retain(|Occupant { under_min_runtime, cost, amount, levels, info }| {
                let (held, own) = (info.staying_total(), info.team == preemptor.team);
                let falls_below = !own
                    && quotas.would_fall_below_guarantee(
                        preemptor.pool,
                        self.protection_of(levels, info),
                        &held,
                        &hypothetical,
                    );
                if missing <= 0 || falls_below != below_guarantee {
                    return true;
                }
                missing = missing.saturating_sub(*amount);
                price.0 += usize::from(falls_below);
                price.1 |= under_min_runtime;
                price.2 = price.2.saturating_add(*cost);
                quotas.assume(&mut hypothetical, info.account(), &held, -1);
                false
            });
        }
        (missing <= 0).then_some(price)
    }

    /// The nodes with the most free capacity of the scarcest resource that the preemptor requests.
    fn freest_nodes(&self, wanted: usize) -> Vec<NodeId> {
        let resource = scarcest(self.cluster, self.preemptor.need);
        let free = |node: &NodeId| resource.map_or(0, |resource| self.free(*node, resource));
        let mut nodes: Vec<(Reverse<i64>, NodeId)> =
            self.nodes.iter().map(|node| (Reverse(free(node)), *node)).collect();
        nodes.sort_unstable();
        nodes.into_iter().take(wanted).map(|(_, node)| node).collect()
    }

    /// Whether more pods of the preemptor fit on a node once these candidates are gone.
    fn gains_capacity(&self, node: NodeId, there: &[Candidate<'_>]) -> bool {
        // If the scarcest resource does not suffice for one pod, the exact count is not needed.
        if let Some(resource) = scarcest(self.cluster, self.preemptor.need) {
            let held = |candidate: &Candidate<'_>| {
                let pods = candidate.info.usage.staying().get(&node).copied().unwrap_or(0);
                candidate.info.need.get(resource).saturating_mul(i64::from(pods))
            };
            let most = there.iter().map(held).fold(self.free(node, resource), i64::saturating_add);
            if most < self.preemptor.need.get(resource) {
                return false;
            }
        }
        let mut freed = self.assumptions.freed.on(node);
        let fits = |freed: &Freed| {
            placement::capacity_for(self.cluster, node, self.preemptor.need, Capacity::Settled(freed))
        };
        let before = fits(&freed);
        for candidate in there {
            free_on(&mut freed, candidate.info, node);
        }
        fits(&freed) > before
    }
}
