//! Builds a minimal set of victims from an order of steps.

use std::collections::{BTreeMap, BTreeSet};

use crate::preemption::needed::Needed;
use crate::preemption::search::{Basis, Search, Step};
use crate::state::quotas::Hypothetical;
use crate::types::ids::{NodeId, TeamId};

/// In a set of more steps than this, those that are not needed are first sought without trying each set that is left.
const FEW: usize = 16;

/// A pass through the steps of an order, in the order of the passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// Steps that leave no team below its guarantee.
    AboveGuarantee,
    /// Whole workloads that leave their team below its guarantee.
    WholeBelow,
    /// Pods that a guarantee covers in part: evictions may leave the team no more than that, so they come last.
    PodsBelow,
}

/// Steps of which each is permitted after those before it.
struct Sequence {
    steps: Vec<Step>,
    /// The quota usage after these steps.
    hypothetical: Hypothetical,
    /// How many single pods they take, by candidate.
    pods: BTreeMap<usize, u32>,
    /// The candidates that they take as a whole.
    whole: BTreeSet<usize>,
}

impl Sequence {
    /// How many single pods the steps take of a candidate.
    fn pods_of(&self, candidate: usize) -> u32 {
        self.pods.get(&candidate).copied().unwrap_or(0)
    }
}

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
        let mut sequence = Sequence {
            steps: Vec::new(),
            hypothetical: self.assumptions.hypothetical.clone(),
            pods: BTreeMap::new(),
            whole: BTreeSet::new(),
        };
        let passes = [Pass::AboveGuarantee, Pass::WholeBelow, Pass::PodsBelow];
        let is_allowed = |pass: &Pass| *pass == Pass::AboveGuarantee || self.basis == Basis::WithinGuarantee;
        for pass in passes.into_iter().filter(is_allowed) {
            for step in order {
                if self.is_open(*step, pass, &sequence) {
                    self.add_if_permitted(*step, pass, &mut sequence);
                }
            }
        }
        sequence.steps
    }

    /// Whether a step belongs to a pass, and its candidate still has what the step takes.
    fn is_open(&self, step: Step, pass: Pass, sequence: &Sequence) -> bool {
        let index = step.candidate();
        let extra = || self.candidates[index].extra_pods > sequence.pods_of(index);
        !sequence.whole.contains(&index)
            && match (step, pass) {
                (Step::Whole(_), Pass::AboveGuarantee | Pass::WholeBelow) => true,
                (Step::Whole(_), Pass::PodsBelow) | (Step::Pod(..), Pass::WholeBelow) => false,
                (Step::Pod(..), Pass::AboveGuarantee) => extra(),
                (Step::Pod(_, node), Pass::PodsBelow) => {
                    extra() && !self.all_taken(index, node, &sequence.steps)
                }
            }
    }

    /// Adds a step to a sequence if it is permitted after those before it.
    fn add_if_permitted(&self, step: Step, pass: Pass, sequence: &mut Sequence) {
        let (index, below_guarantee) = (step.candidate(), pass != Pass::AboveGuarantee);
        let candidate = &self.candidates[index];
        if !candidate.evictable {
            if below_guarantee && self.moves {
                sequence.whole.insert(index);
                sequence.steps.push(step);
            }
            return;
        }
        let Some(mut part) = self.parts(&[step]).pop() else { return };
        if part.whole {
            // The pods that earlier steps have taken are not held any more.
            part.amount.add(&candidate.info.need, -i64::from(sequence.pods_of(index)));
        }
        if !self.may_take(&part, &sequence.hypothetical, below_guarantee) {
            return;
        }
        if below_guarantee && part.whole {
            self.leave_shrinkable(candidate.info.team, &mut sequence.steps, &mut sequence.hypothetical);
        }
        let account = candidate.info.account();
        self.cluster.quotas.assume(&mut sequence.hypothetical, account, &part.amount, -1);
        sequence.steps.push(step);
        if part.whole {
            sequence.whole.insert(index);
        } else {
            *sequence.pods.entry(index).or_default() += 1;
        }
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
