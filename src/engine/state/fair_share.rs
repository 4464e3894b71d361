//! Fair shares: the usage of each team if its pool were divided again by the present demand.
//!
//! Guarantees come first, each up to its team's demand. The rest is divided by weight, up to demand and limit
//! (water-filling, as in max-min fairness; Bertsekas and Gallager, Data Networks, 6.5.2), level by level from
//! the roots. Teams of weight 0 get the remainder.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::capacity::fit::admits_once_open;
use crate::state::cluster::ClusterState;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{PoolId, TeamId};
use crate::types::vector::Vector;
use crate::types::{DEFAULT_POOL, Name, Node, PodShape};

/// One participant of a division.
#[derive(Clone, Copy, Debug, Default)]
struct Participant {
    guaranteed: i64,
    /// The amount it can use, its limit considered.
    want: i64,
    weight: u32,
}

/// Divides `total` among participants.
fn fill(total: i64, participants: &[Participant]) -> Vec<i64> {
    let guaranteed: Vec<i64> =
        participants.iter().map(|participant| participant.guaranteed.min(participant.want)).collect();
    let sum = guaranteed.iter().copied().fold(0, i64::saturating_add);
    if sum > total {
        // The guarantees exceed the total: all are reduced in proportion.
        return guaranteed.iter().map(|one| part(total, *one, sum)).collect();
    }
    let mut shares = guaranteed;
    for weighted in [true, false] {
        let weight = |participant: &Participant| {
            if weighted { i64::from(participant.weight) } else { i64::from(participant.weight == 0) }
        };
        let mut unsatisfied: Vec<usize> = (0..participants.len())
            .filter(|i| weight(&participants[*i]) > 0 && shares[*i] < participants[*i].want)
            .collect();
        while !unsatisfied.is_empty() {
            let left = total.saturating_sub(shares.iter().copied().fold(0, i64::saturating_add));
            let weights: i64 = unsatisfied.iter().map(|i| weight(&participants[*i])).sum();
            let due = |i: usize| part(left, weight(&participants[i]), weights);
            let full: Vec<usize> = unsatisfied
                .iter()
                .copied()
                .filter(|i| participants[*i].want - shares[*i] <= due(*i))
                .collect();
            if full.is_empty() {
                let dues: Vec<(usize, i64)> = unsatisfied.iter().map(|i| (*i, due(*i))).collect();
                let mut rest = left - dues.iter().map(|(_, due)| due).sum::<i64>();
                for (i, due) in dues {
                    // The first participants get the remainder of the division, a few thousandths.
                    shares[i] += due + i64::from(rest > 0);
                    rest -= i64::from(rest > 0);
                }
                break;
            }
            for i in &full {
                shares[*i] = participants[*i].want;
            }
            unsatisfied.retain(|i| !full.contains(i));
        }
    }
    shares
}

/// `total` × `of` ÷ `among`, rounded down.
fn part(total: i64, of: i64, among: i64) -> i64 {
    i64::try_from(i128::from(total) * i128::from(of) / i128::from(among.max(1))).unwrap_or(i64::MAX)
}

/// The largest sizes of the nodes of each pool: none of them fits into another, so nodes that differ a little do not add up.
struct Sizes<'a>(BTreeMap<PoolId, Vec<&'a Vector>>);

impl<'a> Sizes<'a> {
    fn of(state: &'a ClusterState) -> Self {
        let mut sizes: BTreeMap<PoolId, Vec<&Vector>> = BTreeMap::new();
        for (_, info, _) in state.nodes.alive() {
            let (sizes, size) = (sizes.entry(info.pool).or_default(), &info.allocatable);
            if !sizes.iter().any(|larger| larger.fits(size) > 0) {
                sizes.retain(|smaller| size.fits(smaller) == 0);
                sizes.push(size);
            }
        }
        Self(sizes)
    }

    /// Whether a node of the pool is large enough for a pod of this need.
    fn hold(&self, pool: PoolId, need: &Vector) -> bool {
        self.0.get(&pool).is_some_and(|sizes| sizes.iter().any(|size| size.fits(need) > 0))
    }
}

/// The most nodes that an answer looks at for the constraints of what waits; beyond, the size alone tells what a node can hold.
const MOST_LOOKS: usize = 200_000;

/// Which waiting work some node can hold: what no node can hold is no demand.
struct Nodes<'a> {
    sizes: Sizes<'a>,
    of_pool: BTreeMap<PoolId, Vec<(&'a Vector, &'a Node)>>,
    /// The answers so far. Equal workloads share their shape.
    known: BTreeMap<(PoolId, *const PodShape), bool>,
    looks: usize,
}

impl<'a> Nodes<'a> {
    fn of(state: &'a ClusterState) -> Self {
        let mut of_pool: BTreeMap<PoolId, Vec<(&Vector, &Node)>> = BTreeMap::new();
        for (_, info, node) in state.nodes.alive() {
            of_pool.entry(info.pool).or_default().push((&info.allocatable, node));
        }
        Self { sizes: Sizes::of(state), of_pool, known: BTreeMap::new(), looks: MOST_LOOKS }
    }

    fn can_hold(&mut self, pool: PoolId, info: &WorkloadInfo) -> bool {
        if !self.sizes.hold(pool, &info.need) {
            return false;
        }
        let key = (pool, Arc::as_ptr(&info.shape));
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let (shape, nodes) = (info.plain_shape(), self.of_pool.get(&pool).map_or(&[][..], Vec::as_slice));
        if nodes.len() > self.looks {
            return true;
        }
        let holds =
            |(size, node): &(&Vector, &Node)| size.fits(&info.need) > 0 && admits_once_open(node, shape);
        let found = nodes.iter().position(holds);
        self.looks -= found.map_or(nodes.len(), |before| before + 1);
        self.known.insert(key, found.is_some());
        found.is_some()
    }
}

/// The fair share of every team in every pool, for the resources in demand there. Work that waits counts if some node can
/// hold one of its pods.
pub fn shares(state: &ClusterState) -> BTreeMap<(PoolId, TeamId), Vector> {
    let mut demands: BTreeMap<PoolId, BTreeMap<TeamId, Vector>> = BTreeMap::new();
    let mut nodes = Nodes::of(state);
    for info in state.iter().filter(|info| !info.removed) {
        let wanted = info.workload.pods.max(info.usage.pods);
        let pool = match &info.phase {
            Phase::Hold | Phase::Failing(_) | Phase::Finished => continue,
            Phase::Pending | Phase::Leaving { .. } | Phase::Stopping(_) => {
                let default: Name = DEFAULT_POOL.into();
                let pool = state.quotas.pool(info.workload.pools.first().unwrap_or(&default));
                pool.filter(|pool| nodes.can_hold(*pool, info))
            }
            Phase::Starting(_) | Phase::Running(_) | Phase::Resizing { .. } => Some(info.usage.pool),
        };
        let Some(pool) = pool else { continue };
        let demand = demands.entry(pool).or_default().entry(info.team).or_default();
        demand.add(&info.need, i64::from(wanted));
    }
    let mut shares = BTreeMap::new();
    for (pool, own) in &demands {
        let resources = own.values().map(Vector::len).max().unwrap_or(0);
        for index in 0..resources {
            let division = Division::new(state, *pool, index, own);
            for (team, share) in division.all() {
                let vector: &mut Vector = shares.entry((*pool, team)).or_default();
                vector.set(index, share);
            }
        }
    }
    shares
}

/// The division of one resource of one pool.
struct Division<'a> {
    state: &'a ClusterState,
    pool: PoolId,
    index: usize,
    own: &'a BTreeMap<TeamId, Vector>,
    children: BTreeMap<Option<TeamId>, Vec<TeamId>>,
}

impl<'a> Division<'a> {
    fn new(state: &'a ClusterState, pool: PoolId, index: usize, own: &'a BTreeMap<TeamId, Vector>) -> Self {
        let mut children: BTreeMap<Option<TeamId>, Vec<TeamId>> = BTreeMap::new();
        for (team, info) in state.quotas.teams() {
            children.entry(info.path.get(1).copied()).or_default().push(team);
        }
        Self { state, pool, index, own, children }
    }

    fn of(&self, parent: Option<TeamId>) -> &[TeamId] {
        self.children.get(&parent).map_or(&[], Vec::as_slice)
    }

    fn own(&self, team: TeamId) -> i64 {
        self.own.get(&team).map_or(0, |demand| demand.get(self.index))
    }

    /// The amount that a team and the teams below it can use, limits considered.
    fn want(&self, team: TeamId) -> i64 {
        let wants = self.of(Some(team)).iter().map(|child| self.want(*child));
        let below = wants.fold(0, i64::saturating_add);
        let quota_usage = self.state.quotas.quota_usage(self.pool, team);
        let cap = quota_usage.limit.get(&self.index).copied().unwrap_or(i64::MAX);
        self.own(team).saturating_add(below).min(cap)
    }

    fn participant(&self, team: TeamId) -> Participant {
        let quota_usage = self.state.quotas.quota_usage(self.pool, team);
        let definition = self.state.quotas.team(team).team.as_ref();
        Participant {
            guaranteed: quota_usage.effective_guarantee(self.index),
            want: self.want(team),
            weight: definition.map_or(1, |team| team.weight),
        }
    }

    fn all(&self) -> Vec<(TeamId, i64)> {
        let mut shares = Vec::new();
        self.divide(None, self.state.quotas.capacity(self.pool).get(self.index), &mut shares);
        shares
    }

    fn divide(&self, parent: Option<TeamId>, total: i64, shares: &mut Vec<(TeamId, i64)>) {
        let teams = self.of(parent);
        let mut participants: Vec<Participant> = teams.iter().map(|team| self.participant(*team)).collect();
        // The parent's own workloads take part beside its children.
        participants.extend(parent.map(|team| Participant {
            guaranteed: 0,
            want: self.own(team),
            weight: 1,
        }));
        let filled = fill(total, &participants);
        for (team, share) in teams.iter().zip(filled) {
            shares.push((*team, share));
            self.divide(Some(*team), share, shares);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guarantees_first_then_by_weight_up_to_demand() {
        let participant = |(guaranteed, weight, want): &(i64, u32, i64)| Participant {
            guaranteed: guaranteed * 1_000,
            want: want * 1_000,
            weight: *weight,
        };
        for (total, participants, expected) in [
            (15, vec![(2, 2, 6), (2, 2, 6)], vec![6_000, 6_000]),
            (8, vec![(2, 1, 6), (2, 3, 6)], vec![3_000, 5_000]),
            (12, vec![(2, 2, 5), (2, 2, 6)], vec![5_000, 6_000]),
            (11, vec![(2, 2, 6), (2, 2, 6)], vec![5_500, 5_500]),
            (7, vec![(2, 2, 5), (1, 1, 3)], vec![4_667, 2_333]),
            (100, vec![(20, 1, 100), (20, 2, 100), (10, 0, 40)], vec![36_667, 53_333, 10_000]),
            (50, vec![(20, 1, 30), (10, 0, 40)], vec![30_000, 20_000]),
            (9, vec![(12, 1, 12), (6, 1, 6)], vec![6_000, 3_000]),
        ] {
            let participants: Vec<Participant> = participants.iter().map(participant).collect();
            assert_eq!(fill(total * 1_000, &participants), expected, "{total} {participants:?}");
        }
    }
}
