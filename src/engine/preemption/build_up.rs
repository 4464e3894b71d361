//! Builds a minimal set of victims from an order of steps.

use std::collections::{BTreeMap, BTreeSet};

use crate::preemption::needed::Needed;
use crate::preemption::search::{Basis, Search, Step};
use crate::state::quotas::Hypothetical;
use crate::types::ids::{NodeId, TeamId};

/// In a set of more steps than this, those that are not needed are first sought without trying each set that is left.
const FEW: usize = 16;

impl Search<'_> {
    /// Takes steps in order until the preemptor can start on `nodes`. Then drops every step that is not needed, the
    /// last one first. `None` if all steps together are not enough.
    pub fn build_set(&self, order: &[Step], nodes: &[NodeId]) -> Option<Vec<Step>> {
        let sequence = self.permitted_sequence(order);
        // More victims never make a set infeasible, so bisection finds the shortest feasible prefix.
        let feasible = |length: usize| self.is_feasible(&sequence[..length], nodes);
        let (mut low, mut high) = (0, sequence.len());
        if high == 0 || !feasible(high) {
            return None;
        }
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if feasible(middle) { high = middle } else { low = middle }
        }
        let mut set = sequence[..high].to_vec();
        if set.len() > FEW {
            let mut needed = Needed::of(self, &set, nodes);
            let few: Vec<Step> = set.iter().rev().filter(|step| !needed.spares(**step)).copied().collect();
            let few: Vec<Step> = few.into_iter().rev().collect();
            // Where it is feasible, so are all sets between, and none of its steps can be dropped.
            if !few.is_empty() && self.is_feasible(&few, nodes) {
                return Some(few);
            }
        }
        self.drop_unneeded(&mut set, nodes);
        Some(set)
    }

    /// Drops every step of a set that is not needed, the last one first. Steps that can be dropped one after the other can be
    /// dropped at once, so that few sets are tried where few steps are needed.
    fn drop_unneeded(&self, set: &mut Vec<Step>, nodes: &[NodeId]) {
        let mut end = set.len();
        while end > 0 {
            let is_feasible = |run: usize| {
                let without = [&set[..end - run], &set[end..]].concat();
                !without.is_empty() && self.is_feasible(&without, nodes)
            };
            // Runs of doubling length first, so that one trial is enough for a step that is needed.
            let (mut run, mut more) = (0, 1);
            while run + more <= end && is_feasible(run + more) {
                (run, more) = (run + more, 2 * more);
            }
            let mut too_many = (run + more).min(end + 1);
            while too_many - run > 1 {
                let middle = usize::midpoint(run, too_many);
                if is_feasible(middle) { run = middle } else { too_many = middle }
            }
            set.drain(end - run..end);
            // The step before the run is needed.
            end = (end - run).saturating_sub(1);
        }
    }

    /// The steps in an order in which each is permitted after those before it, without duplicates. Steps that leave
    /// a team below its guarantee come last (law 3).
    pub fn permitted_sequence(&self, order: &[Step]) -> Vec<Step> {
        let mut hypothetical = self.assumptions.hypothetical.clone();
        let mut sequence = Vec::new();
        let mut taken: BTreeMap<usize, u32> = BTreeMap::new();
        let mut whole: BTreeSet<usize> = BTreeSet::new();
        // The pods that a guarantee covers in part come last: evictions may leave the team no more than that.
        for (below_guarantee, pods) in [(false, true), (true, false), (true, true)] {
            if below_guarantee && self.basis == Basis::Borrowing {
                break;
            }
            let again = below_guarantee && pods;
            for step in order.iter().filter(|step| !again || matches!(step, Step::Pod(..))) {
                let index = step.candidate();
                let candidate = &self.candidates[index];
                if whole.contains(&index) {
                    continue;
                }
                let before = taken.get(&index).copied().unwrap_or(0);
                match step {
                    Step::Pod(..) if !pods || before >= candidate.extra_pods => continue,
                    Step::Pod(_, node) if again && self.all_taken(index, *node, &sequence) => continue,
                    _ => {}
                }
                if !candidate.evictable {
                    if below_guarantee && self.moves {
                        whole.insert(index);
                        sequence.push(*step);
                    }
                    continue;
                }
                let Some(mut part) = self.parts(&[*step]).pop() else { continue };
                if part.whole {
                    // The pods that earlier steps have taken are not held any more.
                    part.amount.add(&candidate.info.need, -i64::from(before));
                }
                if self.may_take(&part, &hypothetical, below_guarantee) {
                    if below_guarantee && part.whole {
                        self.leave_shrinkable(candidate.info.team, &mut sequence, &mut hypothetical);
                    }
                    let account = candidate.info.account();
                    self.cluster.quotas.assume(&mut hypothetical, account, &part.amount, -1);
                    sequence.push(*step);
                    if part.whole {
                        whole.insert(index);
                    } else {
                        *taken.entry(index).or_default() += 1;
                    }
                }
            }
        }
        sequence
    }

    /// Whether a sequence takes all pods that a candidate has on a node.
    fn all_taken(&self, candidate: usize, node: NodeId, sequence: &[Step]) -> bool {
        let there = self.candidates[candidate].info.usage.staying().get(&node).copied().unwrap_or(0);
        let taken = sequence.iter().filter(|step| **step == Step::Pod(candidate, node)).count();
        taken >= usize::try_from(there).unwrap_or(usize::MAX)
    }

    /// Takes the steps that shrink a workload of a team out of a sequence. Once a workload leaves the team below its
    /// guarantee, the guarantee covers the pods that they would take (law 3).
    fn leave_shrinkable(&self, team: TeamId, sequence: &mut Vec<Step>, hypothetical: &mut Hypothetical) {
        sequence.retain(|step| {
            let candidate = &self.candidates[step.candidate()];
            let shrinks = matches!(step, Step::Pod(..)) && candidate.info.team == team && !candidate.own;
            if shrinks {
                let account = candidate.info.account();
                self.cluster.quotas.assume(hypothetical, account, &candidate.info.need, 1);
            }
            !shrinks
        });
    }
}
