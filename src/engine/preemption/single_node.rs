//! Sets of victims that let a preemptor of one pod start on one given node.

use crate::preemption::orders::CONFINED_STEPS;
use crate::preemption::search::{Basis, Search, Step};
use crate::state::rules::scarcest;
use crate::types::ids::{NodeId, TeamId};

/// On a node with at most this many evictable workloads, every set of them is priced.
const MAX_ON_NODE: usize = 8;

/// The price of a set by the first criteria of its cost: whether a victim is under its minimum run time, the cost
/// of the evictions, and the number of victims.
type SetPrice = (bool, i128, u32);

impl Search<'_> {
    /// A set for a start on that node: steps on the node, then victims elsewhere if the preemptor lacks quota.
    pub fn set_on_node(&self, node: NodeId, steps: &[Step]) -> Option<Vec<Step>> {
        let set = self.build_set(steps, &[node]);
        if set.is_some() || !self.lacks_quota() {
            return set;
        }
        let mut order = steps.to_vec();
        let elsewhere = (0..self.candidates.len()).filter(|index| {
            !self.candidates[*index].info.usage.staying().contains_key(&node) && self.frees_quota(*index)
        });
        order.extend(elsewhere.map(Step::Whole));
        if self.confined {
            order.truncate(CONFINED_STEPS);
        }
        self.build_set(&order, &[node])
    }

    /// The cheapest set of evicted workloads on a node, with its price. Only the scarcest resource and the
    /// guarantees of other teams are considered. `None` if every set leaves a team below its guarantee, or if there
    /// are too many sets to price them all.
    pub fn cheapest_set_on_node(&self, node: NodeId, steps: &[Step]) -> Option<(SetPrice, Vec<Step>)> {
        let resource = scarcest(self.cluster, self.preemptor.need)?;
        let missing = self.preemptor.need.get(resource).saturating_sub(self.free(node, resource));
        let whole: Vec<usize> = steps
            .iter()
            .filter_map(|step| match step {
                Step::Whole(index) if self.candidates[*index].evictable => Some(*index),
                _ => None,
            })
            .collect();
        if whole.len() > MAX_ON_NODE || missing <= 0 {
            return None;
        }
        let frees = |index: &usize| {
            let info = self.candidates[*index].info;
            let pods = info.usage.staying().get(&node).copied().unwrap_or(0);
            info.need.get(resource).saturating_mul(i64::from(pods))
        };
        // A set is a bit mask over `whole`.
        let priced = (1_usize..1 << whole.len()).filter_map(|set| {
            let chosen = || whole.iter().enumerate().filter(move |(bit, _)| set & (1 << bit) != 0);
            let enough = chosen().map(|(_, index)| frees(index)).fold(0, i64::saturating_add) >= missing;
            let under_min_runtime = || chosen().any(|(_, index)| self.candidates[*index].under_min_runtime);
            let cost =
                || chosen().map(|(_, index)| self.candidates[*index].cost).fold(0, i128::saturating_add);
            enough.then(|| ((under_min_runtime(), cost(), set.count_ones()), set))
        });
        let mut priced: Vec<(SetPrice, usize)> = priced.collect();
        priced.sort_unstable();
        priced.iter().find_map(|(price, set)| {
            let chosen = whole.iter().enumerate().filter(|(bit, _)| set & (1 << bit) != 0);
            let steps: Vec<Step> = chosen.map(|(_, index)| Step::Whole(*index)).collect();
            self.is_permitted(&steps).then_some((*price, steps))
        })
    }

    /// Whether all steps may be taken one after another without a team falling below its guarantee.
    fn is_permitted(&self, steps: &[Step]) -> bool {
        let mut hypothetical = self.assumptions.hypothetical.clone();
        self.parts(steps).iter().all(|part| {
            let permitted = self.may_take(part, &hypothetical, false);
            let account = self.candidates[part.candidate].info.account();
            self.cluster.quotas.assume(&mut hypothetical, account, &part.amount, -1);
            permitted
        })
    }

    /// Whether the preemptor lacks quota that other workloads hold, not only capacity on nodes.
    fn lacks_quota(&self) -> bool {
        let (quotas, preemptor) = (&self.cluster.quotas, &self.preemptor);
        let hypothetical = &self.assumptions.hypothetical;
        self.basis == Basis::WithinGuarantee
            && !quotas.within_guarantee(preemptor.pool, preemptor.team, preemptor.total, hypothetical)
            || quotas.over_limit(preemptor.pool, preemptor.team, preemptor.total, hypothetical).is_some()
    }

    /// Whether the eviction of a candidate frees quota of the preemptor: both are under the same root team.
    fn frees_quota(&self, index: usize) -> bool {
        let root = |team: TeamId| self.cluster.quotas.team(team).path.last().copied();
        root(self.candidates[index].info.team) == root(self.preemptor.team)
    }
}
