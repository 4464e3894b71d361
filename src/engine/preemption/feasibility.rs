//! What taking a set leads to, if it is allowed and makes the claimant start.

use std::collections::BTreeMap;

use crate::placement::{self, Capacity, Placement, Request};
use crate::preemption::{Ground, Item, Search};
use crate::state::freed::Freed;
use crate::state::quotas::Hypothetical;
use crate::state::rules::{free_pods, lending_allows, occupy};
use crate::state::workload::WorkloadInfo;
use crate::types::WorkloadId;
use crate::types::ids::{NodeId, PoolId};
use crate::types::vector::Vector;

/// What is taken of one candidate.
#[derive(Clone, Debug)]
pub struct Part {
    /// Whose, by index.
    pub candidate: usize,
    /// Whether all of it is.
    pub whole: bool,
    /// How many pods on which node.
    pub nodes: BTreeMap<NodeId, u32>,
    /// How many pods in all.
    pub pods: u32,
    /// What they hold.
    pub amount: Vector,
}

/// What a set leads to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Where the claimant goes.
    pub placement: Placement,
    /// What is evicted or shrunk.
    pub parts: Vec<Part>,
    /// What moves, and where to.
    pub moved: Vec<(Part, Placement)>,
    /// How many of the parts leave their team below its guarantee.
    pub straddling: usize,
    /// The accounts afterwards, without the claimant.
    pub hypothetical: Hypothetical,
    /// The room on nodes that becomes free, all of it.
    pub unfilled: Freed,
    /// The room on nodes afterwards, with the claimant and those that move in their places.
    pub freed: Freed,
}

/// Parts sorted out by what happens to them, before the nodes are looked at.
struct Sorted {
    taken: Vec<Part>,
    moving: Vec<Part>,
    straddling: usize,
    hypothetical: Hypothetical,
}

impl<'a> Search<'a> {
    /// What taking these leads to; `None` when it is not allowed or the claimant still cannot start
    /// on `nodes`. Whether it makes the shares fairer is not asked here ([`Search::is_fair`]).
    pub fn outcome(&self, items: &[Item], nodes: &[NodeId]) -> Option<Outcome> {
        self.ways(items).find_map(|sorted| self.carry_out(sorted, nodes))
    }

    /// Whether it leads to anything; where is not asked.
    pub fn does(&self, items: &[Item], nodes: &[NodeId]) -> bool {
        self.ways(items).any(|sorted| {
            if !sorted.moving.is_empty() {
                return self.carry_out(sorted, nodes).is_some();
            }
            self.freed_by(&sorted).is_some_and(|freed| {
                let most = placement::most(self.cluster, nodes, &self.request(), Capacity::Settled(&freed));
                most >= self.preemptor.pods && !self.exposes(&sorted.taken, &sorted.hypothetical, &freed)
            })
        })
    }

    /// What may happen to a set: first with moves, if any may be made.
    fn ways(&self, items: &[Item]) -> impl Iterator<Item = Sorted> + '_ {
        self.tried.set(self.tried.get() + 1);
        let parts = self.parts(items);
        let with_moves = self.moves.then(|| (true, parts.clone()));
        let ways = with_moves.into_iter().chain([(false, parts)]);
        ways.filter_map(move |(moves, parts)| self.sort(parts, moves))
    }

    /// What a set of items takes of each candidate.
    pub fn parts(&self, items: &[Item]) -> Vec<Part> {
        let mut taken: BTreeMap<usize, Option<BTreeMap<NodeId, u32>>> = BTreeMap::new();
        for item in items {
            match item {
                Item::Whole(candidate) => {
                    taken.insert(*candidate, None);
                }
                Item::Pod(candidate, node) => {
                    if let Some(pods) = taken.entry(*candidate).or_insert_with(|| Some(BTreeMap::new())) {
                        *pods.entry(*node).or_default() += 1;
                    }
                }
            }
        }
        let part = |(candidate, pods): (usize, Option<BTreeMap<NodeId, u32>>)| {
            let info = self.candidates[candidate].info;
            match pods {
                None => Part {
                    candidate,
                    whole: true,
                    nodes: info.usage.staying().clone(),
                    pods: info.usage.staying_pods(),
                    amount: self.candidates[candidate].amount.clone(),
                },
                Some(nodes) => {
                    let pods = nodes.values().sum();
                    let amount = Vector::default().plus(&info.need, i64::from(pods));
                    Part { candidate, whole: false, nodes, pods, amount }
                }
            }
        };
        taken.into_iter().map(part).collect()
    }

    /// Decides of each part whether it may simply be taken, has to move, or straddles a guarantee.
    fn sort(&self, parts: Vec<Part>, moves: bool) -> Option<Sorted> {
        let quotas = &self.cluster.quotas;
        let mut sorted = Sorted {
            taken: Vec::new(),
            moving: Vec::new(),
            straddling: 0,
            hypothetical: self.state.hypothetical.clone(),
        };
        // One that accepted less asks for more again once it has stopped.
        let may_move = |part: &Part| !part.whole || !self.candidates[part.candidate].info.is_reduced();
        let (own, mut left): (Vec<Part>, Vec<Part>) = parts.into_iter().partition(|part| {
            let candidate = &self.candidates[part.candidate];
            candidate.own && candidate.takeable
        });
        for part in &own {
            let team = self.candidates[part.candidate].info.team;
            quotas.assume(&mut sorted.hypothetical, team, &part.amount, -1);
        }
        // Nobody moves where mates yield to priority: that would disturb equals for its sake.
        let moves = moves && own.is_empty();
        sorted.taken = own;
        // Smaller ones first, so that as few as possible straddle.
        left.sort_by_key(|part| (part.amount.entries().map(|(_, milli)| milli).max(), part.candidate));
        while !left.is_empty() {
            let may = |part: &Part, straddling: bool| self.may_take(part, &sorted.hypothetical, straddling);
            if let Some(next) = left.iter().position(|part| may(part, false)) {
                sorted.take(left.remove(next), self);
            } else if let Some(next) = left.iter().position(|part| moves && may_move(part)) {
                sorted.moving.push(left.remove(next));
            } else {
                let next = left.iter().position(|part| self.ground == Ground::Owed && may(part, true))?;
                sorted.straddling += 1;
                sorted.take(left.remove(next), self);
            }
        }
        Some(sorted)
    }

    /// Whether the law allows to take a part after what is imagined already.
    pub fn may_take(&self, part: &Part, hypothetical: &Hypothetical, straddling: bool) -> bool {
        let candidate = &self.candidates[part.candidate];
        let (quotas, pool) = (&self.cluster.quotas, self.preemptor.pool);
        candidate.takeable
            && (candidate.own
                || quotas.beyond_guarantee(pool, &candidate.levels, &part.amount, hypothetical)
                    && (!quotas.would_fall_below_guarantee(
                        pool,
                        &candidate.levels,
                        &part.amount,
                        hypothetical,
                    ) || straddling && !candidate.covered(self.cluster)))
    }

    /// The room that becomes free on nodes; `None` where quota does not hold the claimant all the same.
    fn freed_by(&self, sorted: &Sorted) -> Option<Freed> {
        let (quotas, preemptor) = (&self.cluster.quotas, &self.preemptor);
        let mut freed = self.state.freed.clone();
        for part in sorted.taken.iter().chain(&sorted.moving) {
            free_pods(&mut freed, self.candidates[part.candidate].info, &part.nodes);
        }
        let (pool, team, total, hypothetical) =
            (preemptor.pool, preemptor.team, preemptor.total, &sorted.hypothetical);
        let allowed = match self.ground {
            Ground::Owed => quotas.within_guarantee(pool, team, total, hypothetical),
            Ground::Surplus => lending_allows(self.cluster, team, pool, total, &freed),
        };
        (allowed && quotas.over_limit(pool, team, total, hypothetical, true).is_none()).then_some(freed)
    }

    fn exposes(&self, taken: &[Part], hypothetical: &Hypothetical, freed: &Freed) -> bool {
        self.ground == Ground::Surplus && self.exposed(taken, hypothetical, freed)
    }

    /// Finds the room: first for the claimant, then for those who move.
    fn carry_out(&self, sorted: Sorted, nodes: &[NodeId]) -> Option<Outcome> {
        let preemptor = &self.preemptor;
        let freed = self.freed_by(&sorted)?;
        let Sorted { taken, moving, straddling, hypothetical } = sorted;
        let placement = placement::place(self.cluster, nodes, &self.request(), Capacity::Settled(&freed))?;
        if self.exposes(&taken, &hypothetical, &freed) {
            return None;
        }
        let mut left = freed.clone();
        occupy(&mut left, preemptor.need, &placement);
        let mut moved = Vec::new();
        for part in moving {
            let info = self.candidates[part.candidate].info;
            let to = self.find_room_beside(info, &part, &left)?;
            occupy(&mut left, &info.need, &to);
            moved.push((part, to));
        }
        Some(Outcome {
            placement,
            parts: taken,
            moved,
            straddling,
            hypothetical,
            unfilled: freed,
            freed: left,
        })
    }

    /// Where a part that moves finds room, with its workload's other pods.
    fn find_room_beside(&self, info: &WorkloadInfo, part: &Part, freed: &Freed) -> Option<Placement> {
        let stays = |(node, pods): (&NodeId, &u32)| {
            let left = pods.saturating_sub(part.nodes.get(node).copied().unwrap_or(0));
            (left > 0).then_some((*node, left))
        };
        let staying: Placement = info.usage.staying().iter().filter_map(stays).collect();
        let request = request_of(info, self.preemptor.pool, part.pods);
        let request = Request { beside: (!staying.is_empty()).then_some(&staying), ..request };
        let nodes = placement::eligible(self.cluster, &request);
        // A pod alone cannot be told to take another device of its node.
        let elsewhere = |node: &NodeId| part.whole || !part.nodes.contains_key(node);
        let nodes: Vec<NodeId> = nodes.iter().copied().filter(elsewhere).collect();
        placement::place(self.cluster, &nodes, &request, Capacity::Settled(freed))
    }

    /// Where so many pods of somebody find room in the pool once `freed` is free.
    pub fn find_room(&self, info: &WorkloadInfo, pods: u32, freed: &Freed) -> Option<Placement> {
        let request = request_of(info, self.preemptor.pool, pods);
        let nodes = placement::eligible(self.cluster, &request);
        placement::place(self.cluster, &nodes, &request, Capacity::Settled(freed))
    }

    /// The first of every kind that waits, with how many there are of it besides the claimant and those who
    /// are imagined to have started.
    pub fn waiting(&self) -> impl Iterator<Item = (&WorkloadInfo, usize)> {
        self.pending.firsts().filter_map(|(id, count)| {
            let class = self.pending.class_of(id);
            let aside = |id: &WorkloadId| self.pending.class_of(id) == class;
            let preemptor = usize::from(aside(self.preemptor.id));
            let started =
                self.state.started.iter().filter(|id| *id != self.preemptor.id && aside(id)).count();
            let left = count.saturating_sub(preemptor + started);
            if left == 0 { None } else { Some((self.cluster.get(id)?, left)) }
        })
    }
}

impl Sorted {
    fn take(&mut self, part: Part, search: &Search<'_>) {
        let team = search.candidates[part.candidate].info.team;
        search.cluster.quotas.assume(&mut self.hypothetical, team, &part.amount, -1);
        self.taken.push(part);
    }
}

/// The room that so many pods of somebody ask for.
pub fn request_of(info: &WorkloadInfo, pool: PoolId, pods: u32) -> Request<'_> {
    Request {
        pool,
        shape: info.plain_shape(),
        topology: &info.workload.topology,
        need: &info.need,
        pods,
        beside: None,
    }
}
