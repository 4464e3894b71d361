//! The sets of victims that a search tries: every minimal set if there are few, otherwise the results of heuristics.
//!
//! Each heuristic builds a set from an order of steps, the cheapest first, until the preemptor can start, and then
//! drops every step that is not needed. The orders are: by the cost, with and without shrinking; by the share of the team; team by team;
//! node by node, the cheapest node first.

use std::collections::{BTreeMap, BTreeSet};

use crate::placement::{self, Capacity};
use crate::preemption::search::{Basis, Search, Step};
use crate::state::rules::free_pods;
use crate::types::ids::NodeId;

/// Up to this many sets, all of them are tried.
const EXHAUSTIVE: usize = 2_048;
/// The same for a confined search.
const EXHAUSTIVE_CONFINED: usize = 32;
/// For a preemptor of one pod, sets on each of this many nodes alone are tried, the cheapest first.
const SINGLE_NODES: usize = 8;

/// The ways to take a part of one candidate, or none of it.
struct Options {
    /// The steps of each option.
    steps: Vec<Vec<Step>>,
    /// For each option, the options that take less.
    smaller: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// The sets to compare. No part of such a set is enough by itself (law 4).
    pub fn candidate_sets(&mut self) -> Vec<Vec<Step>> {
        if self.candidates.is_empty() || !self.is_possible() {
            return Vec::new();
        }
        let mut options = Vec::new();
        let mut sets = 1_usize;
        for candidate in 0..self.candidates.len() {
            let most = if self.confined { EXHAUSTIVE_CONFINED } else { EXHAUSTIVE };
            let more = self.options(candidate, most / sets);
            let Some(more) = more else {
                self.bounded = true;
                return self.heuristic_sets();
            };
            sets *= more.steps.len();
            options.push(more);
        }
        self.all_minimal_sets(&options, sets)
    }

    /// Whether the preemptor can start once all candidates are gone, without regard to the guarantees of others.
    /// If not, no set is feasible.
    fn is_possible(&self) -> bool {
        let (quotas, preemptor) = (&self.cluster.quotas, &self.preemptor);
        let mut freed = self.assumptions.freed.clone();
        let mut hypothetical = self.assumptions.hypothetical.clone();
        for candidate in &self.candidates {
            free_pods(&mut freed, candidate.info, candidate.info.usage.staying());
            if candidate.evictable {
                quotas.assume(&mut hypothetical, candidate.info.account(), &candidate.amount, -1);
            }
        }
        let within_guarantee =
            || quotas.within_guarantee(preemptor.pool, preemptor.team, preemptor.total, &hypothetical);
        if self.basis == Basis::WithinGuarantee && !within_guarantee()
            || quotas.over_limit(preemptor.pool, preemptor.team, preemptor.total, &hypothetical).is_some()
        {
            return false;
        }
        placement::most(self.cluster, &self.nodes, &self.request(), Capacity::Settled(&freed))
            >= self.preemptor.pods
    }

    /// The options of a candidate; `None` if there are more than `most`.
    fn options(&self, index: usize, most: usize) -> Option<Options> {
        let candidate = &self.candidates[index];
        let mut options = Options { steps: vec![Vec::new()], smaller: vec![Vec::new()] };
        let extra = candidate.extra_pods;
        let mut counts: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
        let nodes: Vec<(NodeId, u32)> =
            candidate.info.usage.staying().iter().map(|(node, pods)| (*node, *pods)).collect();
        if extra > 0 {
            counts.insert(vec![0; nodes.len()], 0);
            let mut count = vec![0_u32; nodes.len()];
            while next_count(&mut count, &nodes, extra) {
                if options.steps.len() + 1 >= most {
                    return None;
                }
                let steps = nodes.iter().zip(&count).flat_map(|((node, _), pods)| {
                    std::iter::repeat_n(Step::Pod(index, *node), usize::try_from(*pods).unwrap_or(0))
                });
                let mut smaller = Vec::new();
                for at in 0..count.len() {
                    let mut less = count.clone();
                    if less[at] > 0 {
                        less[at] -= 1;
                        smaller.extend(counts.get(&less));
                    }
                }
                counts.insert(count.clone(), options.steps.len());
                options.steps.push(steps.collect());
                options.smaller.push(smaller);
            }
        }
        let all_smaller = (0..options.steps.len()).collect();
        options.steps.push(vec![Step::Whole(index)]);
        options.smaller.push(all_smaller);
        (options.steps.len() <= most).then_some(options)
    }

    /// Every feasible set of which no part is feasible.
    fn all_minimal_sets(&self, options: &[Options], sets: usize) -> Vec<Vec<Step>> {
        let mut minimal = Vec::new();
        // Whether each set, or a part of it, is feasible. Parts have smaller numbers, so they come first.
        let mut feasible = vec![false; sets];
        for set in 1..sets {
            let (mut rest, mut stride) = (set, 1);
            let (mut steps, mut part_feasible) = (Vec::new(), false);
            for options in options {
                let option = rest % options.steps.len();
                rest /= options.steps.len();
                steps.extend(options.steps[option].iter().copied());
                part_feasible |=
                    options.smaller[option].iter().any(|less| feasible[set - (option - less) * stride]);
                stride *= options.steps.len();
            }
            feasible[set] = part_feasible || self.is_feasible(&steps, &self.nodes);
            if feasible[set] && !part_feasible {
                minimal.push(steps);
            }
        }
        minimal
    }

    /// The sets that the heuristics find, without duplicates.
    fn heuristic_sets(&self) -> Vec<Vec<Step>> {
        let relevant = self.relevant_nodes();
        let by_cost = self.steps_by_cost();
        let on = self.steps_by_node(&relevant);
        let by_node = self.nodes_by_cost(&on);
        let mut orders: Vec<Vec<Step>> = vec![self.steps_by_share(&by_cost)];
        if self.basis == Basis::Borrowing {
            orders.extend(self.steps_of_single_teams(&by_cost));
        }
        let mut sets: Vec<Option<Vec<Step>>> = Vec::new();
        if self.preemptor.pods == 1 {
            sets.extend(by_node.iter().take(SINGLE_NODES).map(|node| self.set_on_node(*node, &on[node])));
            let mut cheapest: Vec<_> =
                on.iter().filter_map(|(node, steps)| self.cheapest_set_on_node(*node, steps)).collect();
            cheapest.sort_unstable();
            sets.extend(cheapest.into_iter().take(SINGLE_NODES).map(|(_, set)| Some(set)));
        }
        if self.preemptor.pods > 1 || !self.confined {
            orders.push(by_node.iter().flat_map(|node| on[node].iter().copied()).collect());
            // A workload that has just started may cost less as a whole than a few pods of one that has run for long.
            let whole: Vec<Step> =
                by_cost.iter().filter(|step| matches!(step, Step::Whole(_))).copied().collect();
            if whole.len() < by_cost.len() {
                orders.push(whole);
            }
            orders.push(by_cost);
        }
        for order in &mut orders {
            if self.has_tried_enough() && sets.iter().any(Option::is_some) {
                break;
            }
            order.truncate(self.max_steps());
            sets.push(self.build_set(order, &relevant));
        }
        let mut distinct: BTreeSet<Vec<Step>> = BTreeSet::new();
        for mut set in sets.into_iter().flatten() {
            set.sort_unstable();
            distinct.insert(set);
        }
        distinct.into_iter().collect()
    }
}

/// Counts up through the ways to take at most `extra` pods; false after the last.
fn next_count(count: &mut [u32], nodes: &[(NodeId, u32)], extra: u32) -> bool {
    for at in 0..count.len() {
        if count[at] < nodes[at].1 && count.iter().sum::<u32>() < extra {
            count[at] += 1;
            return true;
        }
        count[at] = 0;
    }
    false
}
