//! Which sets are looked at: every one as long as there are few, else those that promise most.
//!
//! The guesses build a set up from an order of items, the cheapest first, until the claimant can
//! start, and drop again whoever is not needed. The orders are: by what each loses; by whose team has
//! the largest share of the surplus; team by team; node by node, the cheapest node first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::placement::{self, Capacity};
use crate::preemption::{Ground, Item, Search};
use crate::state::freed::Freed;
use crate::state::quotas::Hypothetical;
use crate::state::rules::{free_on, free_pods, scarcest};
use crate::types::ids::{NodeId, TeamId};
use crate::types::ratio::Ratio;

/// Up to this many sets all of them are tried.
const EXHAUSTIVE: usize = 512;
/// The same where not everybody is looked at in the first place.
const EXHAUSTIVE_AMONG_MANY: usize = 32;
/// On so many nodes, the cheapest, a set for a start on that node alone is tried.
const NODES_ALONE: usize = 8;

/// On a node where no more than so many may go, every set of them is priced.
const MOST_ON_A_NODE: usize = 8;

/// Of so many teams, those with the largest shares, a set of the one team alone is tried.
const TEAMS_ALONE: usize = 4;

/// Where not everybody is looked at, orders go no further than so many items, and so many more for each pod
/// asked for.
const ITEMS_AMONG_MANY: usize = 24;
const ITEMS_A_POD: usize = 8;

/// What may be taken of one candidate: the items, and the options that take a part of them.
struct Options {
    items: Vec<Vec<Item>>,
    /// By option, those that take less.
    smaller: Vec<Vec<usize>>,
}

impl Search<'_> {
    /// Sets to judge. No set has a part that would do by itself.
    pub fn proposals(&mut self) -> Vec<Vec<Item>> {
        if self.candidates.is_empty() || !self.possible() {
            return Vec::new();
        }
        let mut options = Vec::new();
        let mut sets = 1_usize;
        for candidate in 0..self.candidates.len() {
            let most = if self.confined { EXHAUSTIVE_AMONG_MANY } else { EXHAUSTIVE };
            let more = self.options(candidate, most / sets);
            let Some(more) = more else {
                self.bounded = true;
                return self.guesses();
            };
            sets *= more.items.len();
            options.push(more);
        }
        self.every_minimal_set(&options, sets)
    }

    /// Whether taking everyone would do, rules about whom to spare aside. If not, nothing will.
    fn possible(&self) -> bool {
        let (quotas, preemptor) = (&self.cluster.quotas, &self.preemptor);
        let (mut freed, mut hypothetical) = (self.state.freed.clone(), self.state.hypothetical.clone());
        for candidate in &self.candidates {
            free_pods(&mut freed, candidate.info, candidate.info.usage.staying());
            if candidate.takeable {
                quotas.assume(&mut hypothetical, candidate.info.team, &candidate.amount, -1);
            }
        }
        let within_guarantee =
            || quotas.within_guarantee(preemptor.pool, preemptor.team, preemptor.total, &hypothetical);
        if self.ground == Ground::Owed && !within_guarantee()
            || quotas
                .over_limit(preemptor.pool, preemptor.team, preemptor.total, &hypothetical, true)
                .is_some()
        {
            return false;
        }
        placement::most(self.cluster, &self.nodes, &self.request(), Capacity::Settled(&freed))
            >= self.preemptor.pods
    }

    /// What may be taken of a candidate; `None` when there are more than `most` ways.
    fn options(&self, index: usize, most: usize) -> Option<Options> {
        let candidate = &self.candidates[index];
        let mut options = Options { items: vec![Vec::new()], smaller: vec![Vec::new()] };
        let extra = candidate.extra;
        let mut counts: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
        let nodes: Vec<(NodeId, u32)> =
            candidate.info.usage.staying().iter().map(|(node, pods)| (*node, *pods)).collect();
        if extra > 0 {
            counts.insert(vec![0; nodes.len()], 0);
            let mut count = vec![0_u32; nodes.len()];
            while next_count(&mut count, &nodes, extra) {
                if options.items.len() + 1 >= most {
                    return None;
                }
                let items = nodes.iter().zip(&count).flat_map(|((node, _), pods)| {
                    std::iter::repeat_n(Item::Pod(index, *node), usize::try_from(*pods).unwrap_or(0))
                });
                let mut smaller = Vec::new();
                for at in 0..count.len() {
                    let mut less = count.clone();
                    if less[at] > 0 {
                        less[at] -= 1;
                        smaller.extend(counts.get(&less));
                    }
                }
                counts.insert(count.clone(), options.items.len());
                options.items.push(items.collect());
                options.smaller.push(smaller);
            }
        }
        let all_smaller = (0..options.items.len()).collect();
        options.items.push(vec![Item::Whole(index)]);
        options.smaller.push(all_smaller);
        (options.items.len() <= most).then_some(options)
    }

    /// Every set of which no part would do.
    fn every_minimal_set(&self, options: &[Options], sets: usize) -> Vec<Vec<Item>> {
        let mut minimal = Vec::new();
        // By set, whether it or a part of it does. Parts have smaller numbers, so they come first.
        let mut does = vec![false; sets];
        for set in 1..sets {
            let (mut rest, mut step) = (set, 1);
            let (mut items, mut part_does) = (Vec::new(), false);
            for options in options {
                let option = rest % options.items.len();
                rest /= options.items.len();
                items.extend(options.items[option].iter().copied());
                part_does |= options.smaller[option].iter().any(|less| does[set - (option - less) * step]);
                step *= options.items.len();
            }
            does[set] = part_does || self.does(&items, &self.nodes);
            if does[set] && !part_does {
                minimal.push(items);
            }
        }
        minimal
    }

    fn guesses(&self) -> Vec<Vec<Item>> {
        let relevant = self.relevant_nodes();
        let by_loss = self.items_by_loss();
        let on = self.items_by_node(&relevant);
        let by_node = self.nodes_by_loss(&on);
        let mut orders: Vec<Vec<Item>> = vec![self.items_by_share(&by_loss)];
        if self.ground == Ground::Surplus {
            orders.extend(self.team_by_team(&by_loss));
        }
        let mut guesses: Vec<Option<Vec<Item>>> = Vec::new();
        if self.preemptor.pods == 1 {
            guesses.extend(by_node.iter().take(NODES_ALONE).map(|node| self.on_node(*node, &on[node])));
            let mut least: Vec<_> =
                on.iter().filter_map(|(node, items)| self.least_on_node(*node, items)).collect();
            least.sort_unstable();
            guesses.extend(least.into_iter().take(NODES_ALONE).map(|(_, set)| Some(set)));
        }
        if self.preemptor.pods > 1 || !self.confined {
            orders.push(by_node.iter().flat_map(|node| on[node].iter().copied()).collect());
            orders.push(by_loss);
        }
        for order in &mut orders {
            if self.has_tried_enough() && guesses.iter().any(Option::is_some) {
                break;
            }
            if self.confined {
                order.truncate(self.items_among_many());
            }
            guesses.push(self.build_up(order, &relevant));
        }
        let mut distinct: BTreeSet<Vec<Item>> = BTreeSet::new();
        for mut guess in guesses.into_iter().flatten() {
            guess.sort_unstable();
            distinct.insert(guess);
        }
        distinct.into_iter().collect()
    }

    /// How far orders go where not everybody is looked at.
    fn items_among_many(&self) -> usize {
        ITEMS_AMONG_MANY + ITEMS_A_POD * usize::try_from(self.preemptor.pods).unwrap_or(1)
    }

    /// What may be taken of each team by itself, the largest share first: of two teams that lose the same,
    /// the shares may become fairer by what the one gives and not by what the other does.
    fn team_by_team(&self, items: &[Item]) -> Vec<Vec<Item>> {
        let mut teams: BTreeMap<TeamId, Vec<Item>> = BTreeMap::new();
        for item in items {
            teams.entry(self.candidates[item.candidate()].info.team).or_default().push(*item);
        }
        let (quotas, pool) = (&self.cluster.quotas, self.preemptor.pool);
        let mut teams: Vec<(TeamId, Vec<Item>)> = teams.into_iter().collect();
        teams.sort_by_cached_key(|(team, _)| {
            (Reverse(quotas.level_share(pool, *team, self.state.hypothetical.get(team))), *team)
        });
        teams.into_iter().take(TEAMS_ALONE).map(|(_, items)| items).collect()
    }

    /// The nodes on which something could change: those with room, and those of candidates.
    fn relevant_nodes(&self) -> Vec<NodeId> {
        let dirty: BTreeSet<NodeId> =
            self.candidates.iter().flat_map(|c| c.info.usage.staying().keys().copied()).collect();
        let room = Capacity::Settled(&self.state.freed);
        let roomy = placement::nodes_that_fit(self.cluster, &self.nodes, &self.request(), room);
        let admitted = dirty.into_iter().filter(|node| self.admits(*node));
        let within: BTreeSet<NodeId> = if self.confined {
            let nodes: BTreeSet<NodeId> = self.nodes.iter().copied().collect();
            admitted.filter(|node| nodes.contains(node)).chain(roomy).collect()
        } else {
            admitted.chain(roomy).collect()
        };
        let mut nodes: Vec<NodeId> = within.into_iter().collect();
        nodes.sort_by_key(|node| self.cluster.nodes.name(*node));
        nodes
    }

    /// Everything that may be taken: pods beyond minimums first, then whole workloads, each in the
    /// order of the candidates.
    fn items_by_loss(&self) -> Vec<Item> {
        let mut items = Vec::new();
        for (index, candidate) in self.candidates.iter().enumerate() {
            items.extend(self.pods_by_loss(index, candidate.info.usage.staying().keys().copied()));
        }
        let holds = |index: &usize| !self.candidates[*index].info.usage.staying().is_empty();
        items.extend((0..self.candidates.len()).filter(holds).map(Item::Whole));
        items
    }

    /// The same on each node.
    fn items_by_node(&self, nodes: &[NodeId]) -> BTreeMap<NodeId, Vec<Item>> {
        let mut on: BTreeMap<NodeId, Vec<Item>> = nodes.iter().map(|node| (*node, Vec::new())).collect();
        for index in 0..self.candidates.len() {
            for node in self.candidates[index].info.usage.staying().keys() {
                if let Some(items) = on.get_mut(node) {
                    items.extend(self.pods_by_loss(index, std::iter::once(*node)));
                }
            }
        }
        for (index, candidate) in self.candidates.iter().enumerate() {
            for node in candidate.info.usage.staying().keys() {
                if let Some(items) = on.get_mut(node) {
                    items.push(Item::Whole(index));
                }
            }
        }
        on
    }

    /// A candidate's pods beyond its minimum, as many as may be taken on those of its nodes.
    fn pods_by_loss(&self, index: usize, nodes: impl Iterator<Item = NodeId>) -> Vec<Item> {
        let candidate = &self.candidates[index];
        if !candidate.takeable || candidate.extra == 0 {
            return Vec::new();
        }
        let pods_on = |node: &NodeId| candidate.info.usage.staying().get(node).copied().unwrap_or(0);
        let mut nodes: Vec<NodeId> = nodes.collect();
        // Where it has least, a node becomes whole with the fewest pods.
        nodes.sort_by_key(|node| (pods_on(node), *node));
        let pods =
            nodes.into_iter().flat_map(|node| (0..pods_on(&node)).map(move |_| Item::Pod(index, node)));
        pods.take(usize::try_from(candidate.extra).unwrap_or(usize::MAX)).collect()
    }

    /// Everything that may be taken, always from the team that then has the largest share.
    fn items_by_share(&self, items: &[Item]) -> Vec<Item> {
        let (quotas, pool) = (&self.cluster.quotas, self.preemptor.pool);
        let mut queues: BTreeMap<TeamId, std::collections::VecDeque<Item>> = BTreeMap::new();
        for item in items {
            let team = self.candidates[item.candidate()].info.team;
            queues.entry(team).or_default().push_back(*item);
        }
        let mut hypothetical = self.state.hypothetical.clone();
        let mut items = Vec::new();
        let share = |team: TeamId, hypothetical: &Hypothetical| {
            let levels = quotas.levels_below_common(team, self.preemptor.team);
            let own = if team == self.preemptor.team { Some(team) } else { None };
            let shares = levels.chain(own).map(|at| quotas.level_share(pool, at, hypothetical.get(&at)));
            shares.max().unwrap_or(Ratio::ZERO)
        };
        let most = if self.confined { self.items_among_many() } else { usize::MAX };
        let root = |team: TeamId| quotas.team(team).path.last().copied();
        let mut shares: BTreeMap<TeamId, Ratio> =
            queues.keys().map(|team| (*team, share(*team, &hypothetical))).collect();
        while let Some(team) = shares
            .iter()
            .max_by(|left, right| left.1.cmp(right.1).then_with(|| right.0.cmp(left.0)))
            .map(|(team, _)| *team)
        {
            let Some(item) = queues.get_mut(&team).and_then(std::collections::VecDeque::pop_front) else {
                break;
            };
            let info = self.candidates[item.candidate()].info;
            let pods = match item {
                Item::Pod(..) => 1,
                Item::Whole(_) => i64::from(info.usage.staying_pods()),
            };
            quotas.assume(&mut hypothetical, team, &info.need, -pods);
            if queues.get(&team).is_none_or(std::collections::VecDeque::is_empty) {
                shares.remove(&team);
            }
            for (other, known) in shares.iter_mut().filter(|(other, _)| root(**other) == root(team)) {
                *known = share(*other, &hypothetical);
            }
            items.push(item);
            if items.len() >= most {
                break;
            }
        }
        items
    }

    /// The nodes of candidates on which one more pod could start, the cheapest first.
    fn nodes_by_loss(&self, on: &BTreeMap<NodeId, Vec<Item>>) -> Vec<NodeId> {
        let mut priced = Vec::new();
        for (node, items) in on {
            let (need, mut freed) = (self.preemptor.need, self.state.freed.on(*node));
            let room =
                |freed: &Freed| placement::capacity_for(self.cluster, *node, need, Capacity::Settled(freed));
            let before = room(&freed);
            let mut price = (0_usize, 0_usize, false, 0_i128);
            let mut hypothetical = self.state.hypothetical.clone();
            for item in self.legal_sequence(items) {
                let candidate = &self.candidates[item.candidate()];
                match item {
                    Item::Pod(..) => freed.give(*node, &candidate.info.workload.id, &candidate.info.need, 1),
                    Item::Whole(_) => {
                        // Its pods beyond the minimum may be counted already; a price need not be exact.
                        free_on(&mut freed, candidate.info, *node);
                        price.0 += usize::from(!candidate.takeable);
                        price.1 += usize::from(candidate.straddles(
                            self.cluster,
                            self.preemptor.pool,
                            &hypothetical,
                        ));
                        price.2 |= candidate.young;
                        price.3 = price.3.saturating_add(candidate.lost);
                        let team = candidate.info.team;
                        self.cluster.quotas.assume(&mut hypothetical, team, &candidate.amount, -1);
                    }
                }
                if room(&freed) > before {
                    priced.push((price, *node));
                    break;
                }
            }
        }
        priced.sort_by_key(|(price, node)| (*price, self.cluster.nodes.name(*node).clone()));
        priced.into_iter().map(|(_, node)| node).collect()
    }

    /// A set for a start on that node alone: those on it, then whoever the quota needs besides.
    fn on_node(&self, node: NodeId, items: &[Item]) -> Option<Vec<Item>> {
        let set = self.build_up(items, &[node]);
        if set.is_some() || !self.lacks_quota() {
            return set;
        }
        let mut order = items.to_vec();
        let elsewhere = (0..self.candidates.len()).filter(|index| {
            !self.candidates[*index].info.usage.staying().contains_key(&node) && self.helps_quota(*index)
        });
        order.extend(elsewhere.map(Item::Whole));
        if self.confined {
            order.truncate(ITEMS_AMONG_MANY);
        }
        self.build_up(&order, &[node])
    }

    /// The set of those who may go whole on a node that costs least, with the first criteria of that cost, as far
    /// as one resource and the quota of others tell. `None` where somebody would have to straddle a guarantee, or
    /// where there are too many to try every set.
    fn least_on_node(&self, node: NodeId, items: &[Item]) -> Option<((bool, i128, u32), Vec<Item>)> {
        let resource = scarcest(self.cluster, self.preemptor.need)?;
        let missing = self.preemptor.need.get(resource) - self.free(node, resource);
        let whole: Vec<usize> = items
            .iter()
            .filter_map(|item| match item {
                Item::Whole(index) if self.candidates[*index].takeable => Some(*index),
                _ => None,
            })
            .collect();
        if whole.len() > MOST_ON_A_NODE || missing <= 0 {
            return None;
        }
        let there = |index: &usize| {
            let info = self.candidates[*index].info;
            let pods = info.usage.staying().get(&node).copied().unwrap_or(0);
            info.need.get(resource).saturating_mul(i64::from(pods))
        };
        let priced = (1_usize..1 << whole.len()).filter_map(|set| {
            let chosen = || whole.iter().enumerate().filter(move |(bit, _)| set & (1 << bit) != 0);
            let enough = chosen().map(|(_, index)| there(index)).sum::<i64>() >= missing;
            let young = || chosen().any(|(_, index)| self.candidates[*index].young);
            let lost =
                || chosen().map(|(_, index)| self.candidates[*index].lost).fold(0, i128::saturating_add);
            enough.then(|| (young(), lost(), set.count_ones(), set))
        });
        let mut priced: Vec<(bool, i128, u32, usize)> = priced.collect();
        priced.sort_unstable();
        let legal = |set: &usize| {
            let mut hypothetical = self.state.hypothetical.clone();
            let items =
                (0..whole.len()).filter(|bit| set & (1 << bit) != 0).map(|bit| Item::Whole(whole[bit]));
            let items: Vec<Item> = items.collect();
            let may = self.parts(&items).iter().all(|part| {
                let may = self.may_take(part, &hypothetical, false);
                let team = self.candidates[part.candidate].info.team;
                self.cluster.quotas.assume(&mut hypothetical, team, &part.amount, -1);
                may
            });
            may.then_some(items)
        };
        priced.iter().find_map(|(young, lost, count, set)| Some(((*young, *lost, *count), legal(set)?)))
    }

    /// Whether the claimant needs more than room on nodes: quota that somebody holds.
    fn lacks_quota(&self) -> bool {
        let (quotas, preemptor, hypothetical) =
            (&self.cluster.quotas, &self.preemptor, &self.state.hypothetical);
        self.ground == Ground::Owed
            && !quotas.within_guarantee(preemptor.pool, preemptor.team, preemptor.total, hypothetical)
            || quotas
                .over_limit(preemptor.pool, preemptor.team, preemptor.total, hypothetical, true)
                .is_some()
    }

    /// Whether a candidate stands under a team that the claimant stands under too, so that its
    /// going makes room in a quota of the claimant's.
    fn helps_quota(&self, index: usize) -> bool {
        let root = |team: TeamId| self.cluster.quotas.team(team).path.last().copied();
        root(self.candidates[index].info.team) == root(self.preemptor.team)
    }

    /// Takes items in order, those that straddle last, until the claimant can start on `nodes`; then
    /// lets go again whatever is not needed, the last taken first.
    fn build_up(&self, order: &[Item], nodes: &[NodeId]) -> Option<Vec<Item>> {
        let sequence = self.legal_sequence(order);
        // More victims never hurt, so the shortest beginning that does can be searched by halving.
        let enough = |length: usize| self.does(&sequence[..length], nodes);
        let (mut low, mut high) = (0, sequence.len());
        if high == 0 || !enough(high) {
            return None;
        }
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if enough(middle) { high = middle } else { low = middle }
        }
        let mut set = sequence[..high].to_vec();
        for position in (0..set.len()).rev() {
            let mut without = set.clone();
            without.remove(position);
            if !without.is_empty() && self.does(&without, nodes) {
                set = without;
            }
        }
        Some(set)
    }

    /// The items in an order in which each may be taken after those before it, each once.
    fn legal_sequence(&self, order: &[Item]) -> Vec<Item> {
        let mut hypothetical = self.state.hypothetical.clone();
        let mut sequence = Vec::new();
        let mut taken: BTreeMap<usize, u32> = BTreeMap::new();
        let mut whole: BTreeSet<usize> = BTreeSet::new();
        for straddling in [false, true] {
            if straddling && self.ground == Ground::Surplus {
                break;
            }
            for item in order {
                let index = item.candidate();
                let candidate = &self.candidates[index];
                if whole.contains(&index) {
                    continue;
                }
                let before = taken.get(&index).copied().unwrap_or(0);
                match item {
                    Item::Pod(..) if straddling || before >= candidate.extra => continue,
                    _ => {}
                }
                if !candidate.takeable {
                    if straddling && self.moves {
                        whole.insert(index);
                        sequence.push(*item);
                    }
                    continue;
                }
                let Some(mut part) = self.parts(&[*item]).pop() else { continue };
                if part.whole {
                    // What it has given already is not held any more.
                    part.amount.add(&candidate.info.need, -i64::from(before));
                }
                if self.may_take(&part, &hypothetical, straddling) {
                    self.cluster.quotas.assume(&mut hypothetical, candidate.info.team, &part.amount, -1);
                    sequence.push(*item);
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
