//! The plan of a preemptor that is amended because it did not hold: what it has evicted so far still ends.

use std::borrow::Cow;

use crate::preemption::feasibility::Outcome;
use crate::preemption::search::Search;
use crate::state::quotas::Hypothetical;
use crate::state::workload::WorkloadInfo;
use crate::types::vector::Vector;

impl<'a> Search<'a> {
    /// The victims so far of the preemptor that still end in its pool.
    fn ending(&self) -> impl Iterator<Item = &'a WorkloadInfo> {
        let preemptor = self.preemptor;
        let ending = preemptor.ending.iter().filter_map(|index| self.cluster.at(*index));
        ending.filter(move |info| info.usage.pool == preemptor.pool)
    }

    /// The changes of quota usage before the plan of the preemptor, at most: with all that its victims so far have left.
    pub fn at_most_before(&self) -> Cow<'_, Hypothetical> {
        let mut before = Cow::Borrowed(&self.assumptions.hypothetical);
        for info in self.ending() {
            let left = info.held().plus(&info.staying_total(), -1);
            self.cluster.quotas.assume(before.to_mut(), info.account(), &left, 1);
        }
        before
    }

    /// The changes of quota usage before the plan of which a set is the last part. Law 5 judges it as one: otherwise the preemptor
    /// would lose what it has cleared, and evict all of it again once the first victims ran again. What those have left counts
    /// where the preemptor starts on it.
    pub fn before(&self, outcome: &Outcome) -> Cow<'_, Hypothetical> {
        let mut before = Cow::Borrowed(&self.assumptions.hypothetical);
        for (node, pods) in outcome.placement.iter().filter(|_| !self.preemptor.ending.is_empty()) {
            let there = |info: &WorkloadInfo| {
                let ending = info.usage.terminating.get(node).copied().unwrap_or(0);
                info.need.times(ending)
            };
            // What it takes there beside what is free without them and what the set frees.
            let settled = self.cluster.nodes.get(*node).settled().amounts();
            let mut lacks = self.preemptor.need.times(*pods).plus(settled, -1);
            for info in self.ending() {
                lacks.add(&there(info), 1);
            }
            if let Some(freed) = outcome.freed_in_all.get(node) {
                lacks.add(freed, -1);
            }
            for info in self.ending() {
                let mut used = Vector::default();
                for (resource, left) in there(info).nonzero() {
                    used.set(resource, left.min(lacks.get(resource)).max(0));
                }
                lacks.add(&used, -1);
                self.cluster.quotas.assume(before.to_mut(), info.account(), &used, 1);
            }
        }
        before
    }
}
