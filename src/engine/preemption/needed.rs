//! Which steps of a large set its preemptor needs, by what each node offers.

use std::collections::{BTreeMap, BTreeSet};

use crate::placement::{self, Capacity};
use crate::preemption::search::{Search, Step};
use crate::state::rules::free_on;
use crate::types::ids::NodeId;

/// How many pods of the preemptor fit on each node at most, with what a set of steps frees there. Quota and constraints between
/// nodes are left out, so what is needed by this measure is needed.
///
/// A look at one step costs as much as its nodes have candidates, and not as much as the set has steps.
pub struct Needed<'s, 'a> {
    search: &'s Search<'a>,
    /// The candidates that the set takes whole.
    whole: BTreeSet<usize>,
    /// The pods that it takes of a candidate on a node. They count where the candidate is not taken whole.
    pods: BTreeMap<(usize, NodeId), u32>,
    /// The candidates of the set on each node.
    on: BTreeMap<NodeId, BTreeSet<usize>>,
    /// The pods of the preemptor that fit on each node of the search.
    fits: BTreeMap<NodeId, u64>,
    /// The sum of these.
    total: u64,
}

impl<'s, 'a> Needed<'s, 'a> {
    /// The measure of a set on the nodes of a search.
    pub fn of(search: &'s Search<'a>, set: &[Step], nodes: &[NodeId]) -> Self {
        let mut of = Self {
            search,
            whole: BTreeSet::new(),
            pods: BTreeMap::new(),
            on: BTreeMap::new(),
            fits: BTreeMap::new(),
            total: 0,
        };
        for step in set {
            match step {
                Step::Whole(candidate) => {
                    of.whole.insert(*candidate);
                }
                Step::Pod(candidate, node) => *of.pods.entry((*candidate, *node)).or_default() += 1,
            }
            for node in of.nodes_of(*step) {
                of.on.entry(node).or_default().insert(step.candidate());
            }
        }
        of.fits = nodes.iter().map(|node| (*node, of.fit_on(*node))).collect();
        of.total = of.fits.values().sum();
        of
    }

    /// Takes a step out of the set, if as many pods fit without it as the preemptor has.
    pub fn spares(&mut self, step: Step) -> bool {
        self.change(step, false);
        let now: Vec<(NodeId, u64)> = self
            .nodes_of(step)
            .into_iter()
            .filter(|node| self.fits.contains_key(node))
            .map(|node| (node, self.fit_on(node)))
            .collect();
        let before: u64 = now.iter().filter_map(|(node, _)| self.fits.get(node)).sum();
        let after: u64 = now.iter().map(|(_, fit)| fit).sum();
        let total = self.total.saturating_sub(before).saturating_add(after);
        if total < u64::from(self.search.preemptor.pods) {
            self.change(step, true);
            return false;
        }
        self.total = total;
        self.fits.extend(now);
        true
    }

    /// Adds a step to the set, or takes it out.
    fn change(&mut self, step: Step, add: bool) {
        match step {
            Step::Whole(candidate) if add => {
                self.whole.insert(candidate);
            }
            Step::Whole(candidate) => {
                self.whole.remove(&candidate);
            }
            Step::Pod(candidate, node) => {
                let pods = self.pods.entry((candidate, node)).or_default();
                *pods = if add { *pods + 1 } else { pods.saturating_sub(1) };
            }
        }
    }

    /// The nodes on which a step frees something.
    fn nodes_of(&self, step: Step) -> Vec<NodeId> {
        match step {
            Step::Whole(candidate) => {
                self.search.candidates[candidate].info.usage.staying().keys().copied().collect()
            }
            Step::Pod(_, node) => vec![node],
        }
    }

    /// How many pods of the preemptor fit on a node with what the set frees there.
    fn fit_on(&self, node: NodeId) -> u64 {
        let mut freed = self.search.assumptions.freed.on(node);
        for candidate in self.on.get(&node).into_iter().flatten() {
            let info = self.search.candidates[*candidate].info;
            if self.whole.contains(candidate) {
                free_on(&mut freed, info, node);
            } else if let Some(pods) = self.pods.get(&(*candidate, node)).filter(|pods| **pods > 0) {
                freed.give(node, &info.workload.id, &info.need, *pods);
            }
        }
        let (cluster, need) = (self.search.cluster, self.search.preemptor.need);
        u64::from(placement::capacity_for(cluster, node, need, Capacity::Settled(&freed)))
    }
}
