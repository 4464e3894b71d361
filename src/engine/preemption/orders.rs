//! The orders in which steps are taken to build up a set: by cost, by share, by team and by node.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::placement::{self, Capacity};
use crate::preemption::search::{Search, Step};
use crate::state::freed::Freed;
use crate::state::quotas::Hypothetical;
use crate::state::rules::free_on;
use crate::types::ids::{NodeId, TeamId};
use crate::types::ratio::Ratio;

/// In a confined search that is not wide an order has at most this many steps, and [`CONFINED_STEPS_PER_POD`] more for each pod of
/// the preemptor.
pub const CONFINED_STEPS: usize = 24;
const CONFINED_STEPS_PER_POD: usize = 8;

/// For each of this many teams, those with the largest shares, a set of that team alone is tried.
const SINGLE_TEAMS: usize = 4;

impl Search<'_> {
    /// The most steps of an order.
    pub fn max_steps(&self) -> usize {
        if !self.confined || self.wide {
            return usize::MAX;
        }
        CONFINED_STEPS.saturating_add(CONFINED_STEPS_PER_POD.saturating_mul(self.pods()))
    }

    /// The nodes that a set can change or that have free capacity, by name.
    pub fn relevant_nodes(&self) -> Vec<NodeId> {
        let of_candidates: BTreeSet<NodeId> =
            self.candidates.iter().flat_map(|c| c.info.usage.staying().keys().copied()).collect();
        let capacity = Capacity::Settled(&self.assumptions.freed);
        let free = placement::nodes_that_fit(self.cluster, &self.nodes, &self.request(), capacity);
        let admitted = of_candidates.into_iter().filter(|node| self.admits(*node));
        let relevant: BTreeSet<NodeId> = if self.confined {
            let nodes: BTreeSet<NodeId> = self.nodes.iter().copied().collect();
            admitted.filter(|node| nodes.contains(node)).chain(free).collect()
        } else {
            admitted.chain(free).collect()
        };
        let mut nodes: Vec<NodeId> = relevant.into_iter().collect();
        nodes.sort_by_key(|node| self.cluster.nodes.name(*node));
        nodes
    }

    /// All steps, in the order of the candidates: extra pods first, because one pod costs less than a workload, then whole
    /// workloads.
    pub fn steps_by_cost(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (index, candidate) in self.candidates.iter().enumerate() {
            steps.extend(self.extra_pods_of(index, candidate.info.usage.staying().keys().copied()));
        }
        let holds = |index: &usize| !self.candidates[*index].info.usage.staying().is_empty();
        steps.extend((0..self.candidates.len()).filter(holds).map(Step::Whole));
        steps
    }

    /// The same for each node.
    pub fn steps_by_node(&self, nodes: &[NodeId]) -> BTreeMap<NodeId, Vec<Step>> {
        let mut on: BTreeMap<NodeId, Vec<Step>> = nodes.iter().map(|node| (*node, Vec::new())).collect();
        for index in 0..self.candidates.len() {
            for node in self.candidates[index].info.usage.staying().keys() {
                if let Some(steps) = on.get_mut(node) {
                    steps.extend(self.extra_pods_of(index, std::iter::once(*node)));
                }
            }
        }
        for (index, candidate) in self.candidates.iter().enumerate() {
            for node in candidate.info.usage.staying().keys() {
                if let Some(steps) = on.get_mut(node) {
                    steps.push(Step::Whole(index));
                }
            }
        }
        on
    }

    /// The pods on these nodes that a candidate can lose without being evicted.
    fn extra_pods_of(&self, index: usize, nodes: impl Iterator<Item = NodeId>) -> Vec<Step> {
        let candidate = &self.candidates[index];
        if !candidate.evictable || candidate.extra_pods == 0 {
            return Vec::new();
        }
        let pods_on = |node: &NodeId| candidate.info.usage.staying().get(node).copied().unwrap_or(0);
        let mut nodes: Vec<NodeId> = nodes.collect();
        // The node with the fewest pods of the candidate first: it is emptied of them soonest.
        nodes.sort_by_key(|node| (pods_on(node), *node));
        let pods =
            nodes.into_iter().flat_map(|node| (0..pods_on(&node)).map(move |_| Step::Pod(index, node)));
        pods.take(usize::try_from(candidate.extra_pods).unwrap_or(usize::MAX)).collect()
    }

    /// The steps of each single team, the largest share first. Of two teams that lose the same work, the steps of
    /// one may make the fair shares fairer and those of the other may not.
    pub fn steps_of_single_teams(&self, steps: &[Step]) -> Vec<Vec<Step>> {
        let mut teams: BTreeMap<TeamId, Vec<Step>> = BTreeMap::new();
        for step in steps {
            teams.entry(self.candidates[step.candidate()].info.team).or_default().push(*step);
        }
        let (quotas, pool) = (&self.cluster.quotas, self.preemptor.pool);
        let hypothetical = &self.assumptions.hypothetical;
        let mut teams: Vec<(TeamId, Vec<Step>)> = teams.into_iter().collect();
        teams.sort_by_cached_key(|(team, _)| {
            (Reverse(quotas.level_share(pool, *team, hypothetical.get(team))), *team)
        });
        teams.into_iter().take(SINGLE_TEAMS).map(|(_, steps)| steps).collect()
    }

    /// All steps, each from the team that has the largest share after the steps before it.
    pub fn steps_by_share(&self, steps: &[Step]) -> Vec<Step> {
        let quotas = &self.cluster.quotas;
        let mut queues: BTreeMap<TeamId, VecDeque<Step>> = BTreeMap::new();
        for step in steps {
            let team = self.candidates[step.candidate()].info.team;
            queues.entry(team).or_default().push_back(*step);
        }
        let mut hypothetical = self.assumptions.hypothetical.clone();
        let mut ordered = Vec::new();
        let most = self.max_steps();
        let root = |team: TeamId| quotas.team(team).path.last().copied();
        let mut shares: BTreeMap<TeamId, Ratio> =
            queues.keys().map(|team| (*team, self.largest_share(*team, &hypothetical))).collect();
        while let Some(team) = shares
            .iter()
            .max_by(|left, right| left.1.cmp(right.1).then_with(|| right.0.cmp(left.0)))
            .map(|(team, _)| *team)
        {
            let Some(step) = queues.get_mut(&team).and_then(VecDeque::pop_front) else { break };
            let info = self.candidates[step.candidate()].info;
            let pods = match step {
                Step::Pod(..) => 1,
                Step::Whole(_) => i64::from(info.usage.staying_pods()),
            };
            quotas.assume(&mut hypothetical, info.account(), &info.need, -pods);
            if queues.get(&team).is_none_or(VecDeque::is_empty) {
                shares.remove(&team);
            }
            for (other, share) in shares.iter_mut().filter(|(other, _)| root(**other) == root(team)) {
                *share = self.largest_share(*other, &hypothetical);
            }
            ordered.push(step);
            if ordered.len() >= most {
                break;
            }
        }
        ordered
    }

    /// The largest share of the levels of a team's path that the preemptor's team does not share.
    fn largest_share(&self, team: TeamId, hypothetical: &Hypothetical) -> Ratio {
        let quotas = &self.cluster.quotas;
        let levels = quotas.levels_below_common(team, self.preemptor.team);
        let own = if team == self.preemptor.team { Some(team) } else { None };
        let shares =
            levels.chain(own).map(|at| quotas.level_share(self.preemptor.pool, at, hypothetical.get(&at)));
        shares.max().unwrap_or(Ratio::ZERO)
    }

    /// The nodes on which the candidates' steps make one more pod fit, the cheapest first.
    pub fn nodes_by_cost(&self, on: &BTreeMap<NodeId, Vec<Step>>) -> Vec<NodeId> {
        let mut priced = Vec::new();
        for (node, steps) in on {
            let (need, mut freed) = (self.preemptor.need, self.assumptions.freed.on(*node));
            let fits =
                |freed: &Freed| placement::capacity_for(self.cluster, *node, need, Capacity::Settled(freed));
            let before = fits(&freed);
            // Moved, below guarantee, within the minimum run time, cost of eviction.
            let mut price = (0_usize, 0_usize, false, 0_i128);
            let mut hypothetical = self.assumptions.hypothetical.clone();
            for step in self.permitted_sequence(steps) {
                let candidate = &self.candidates[step.candidate()];
                match step {
                    Step::Pod(..) => {
                        freed.give(*node, &candidate.info.workload.id, &candidate.info.need, 1);
                        price.3 = price.3.saturating_add(candidate.cost_of_one_pod);
                    }
                    Step::Whole(_) => {
                        // Its extra pods may be counted twice; the price need not be exact.
                        free_on(&mut freed, candidate.info, *node);
                        price.0 += usize::from(!candidate.evictable);
                        price.1 += usize::from(candidate.falls_below_guarantee(
                            self.cluster,
                            self.preemptor.pool,
                            &hypothetical,
                        ));
                        price.2 |= candidate.under_min_runtime;
                        price.3 = price.3.saturating_add(candidate.cost);
                        let account = candidate.info.account();
                        self.cluster.quotas.assume(&mut hypothetical, account, &candidate.amount, -1);
                    }
                }
                if fits(&freed) > before {
                    priced.push((price, *node));
                    break;
                }
            }
        }
        priced.sort_by_key(|(price, node)| (*price, self.cluster.nodes.name(*node).clone()));
        priced.into_iter().map(|(_, node)| node).collect()
    }
}
