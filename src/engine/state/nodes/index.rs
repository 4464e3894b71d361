//! For every kind of pods that is asked for: which nodes may hold them, how many fit where, and which
//! node suits one best. Only what changed since it was asked for last is worked out anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::capacity::fit;
use crate::capacity::packing::{Ask, Cost, State};
use crate::state::nodes::NodeTable;
use crate::types::PodShape;
use crate::types::ids::{NodeId, PoolId};

/// So many kinds of pods are kept.
const KINDS: usize = 128;

/// All kinds that were asked for lately, by pool and shape.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// Where each kind is in the list.
    places: BTreeMap<PoolId, BTreeMap<PodShape, usize>>,
    fittings: Vec<Fitting>,
    asked: u64,
}

impl Index {
    /// What is known of a kind; with nothing known yet, of pods that ask for `ask`.
    pub fn of(&mut self, pool: PoolId, shape: &PodShape, ask: impl FnOnce() -> Ask) -> &mut Fitting {
        self.asked += 1;
        let known = self.places.get(&pool).and_then(|kinds| kinds.get(shape)).copied();
        let place = known.unwrap_or_else(|| self.add(pool, shape.clone(), Fitting::new(ask())));
        let fitting = &mut self.fittings[place];
        fitting.asked = self.asked;
        fitting
    }

    /// Takes in a kind, if need be in the place of the one that was not asked for for longest.
    fn add(&mut self, pool: PoolId, shape: PodShape, fitting: Fitting) -> usize {
        let oldest = (0..self.fittings.len()).min_by_key(|place| self.fittings[*place].asked);
        let place = match oldest.filter(|_| self.fittings.len() >= KINDS) {
            Some(oldest) => {
                self.places.values_mut().for_each(|kinds| kinds.retain(|_, place| *place != oldest));
                self.fittings[oldest] = fitting;
                oldest
            }
            None => {
                self.fittings.push(fitting);
                self.fittings.len() - 1
            }
        };
        self.places.entry(pool).or_default().insert(shape, place);
        place
    }
}

/// No node, in a tree of winners.
const NOBODY: u32 = u32::MAX;

/// How many pods of a kind find room on a node.
#[derive(Clone, Copy, Debug, Default)]
struct Fits {
    now: u32,
    settled: u32,
    unheld: u32,
    empty: u32,
}

/// How many pods of a kind find room on all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// In what can be given away at once.
    pub now: u64,
    /// Once all has settled.
    pub settled: u64,
    /// In what nobody's pods hold.
    pub unheld: u64,
    /// As if nobody were on the nodes.
    pub empty: u64,
}

impl Totals {
    fn count(&mut self, before: Fits, after: Fits) {
        let replace = |total: &mut u64, before: u32, after: u32| {
            *total = *total - u64::from(before) + u64::from(after);
        };
        replace(&mut self.now, before.now, after.now);
        replace(&mut self.settled, before.settled, after.settled);
        replace(&mut self.unheld, before.unheld, after.unheld);
        replace(&mut self.empty, before.empty, after.empty);
    }
}

/// How one kind of pods fits the nodes of a pool.
#[derive(Clone, Debug, Default)]
pub struct Fitting {
    ask: Ask,
    /// When it was asked for last, and how many changes of nodes it knows of.
    asked: u64,
    known: u64,
    /// By node: whether it may hold such pods, and how many more of them.
    admits: Vec<bool>,
    fits: Vec<Fits>,
    /// By node: the revision of it that is known.
    revisions: Vec<Option<u64>>,
    totals: Totals,
    /// The nodes on which one more finds room once all has settled.
    roomy: BTreeSet<NodeId>,
    count: usize,
    /// The nodes that may hold such pods, in the order of their names; worked out when asked for.
    nodes: Option<Arc<[NodeId]>>,
    /// What one pod costs in each state, with the turn of the state and the version of the costs.
    costs: Vec<Option<(u64, u64, Cost)>>,
    /// A tree of winners over the nodes with room now: the root is at 1, node `n` at `leaves + n`.
    tree: Vec<u32>,
    /// The version of the costs by which the tree is ordered; none while it is out of date.
    ordered: Option<u64>,
}

impl Fitting {
    fn new(ask: Ask) -> Self {
        Self { ask, ..Self::default() }
    }

    /// What one such pod asks for.
    #[must_use]
    pub fn ask(&self) -> &Ask {
        &self.ask
    }

    /// How many nodes may hold such pods, whatever room they have.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many such pods find room on all nodes.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The nodes on which one such pod more finds room once all has settled.
    #[must_use]
    pub fn roomy(&self) -> &BTreeSet<NodeId> {
        &self.roomy
    }

    /// How many such pods find room on a node now.
    #[must_use]
    pub fn now(&self, node: NodeId) -> u32 {
        self.fits.get(node.0).map_or(0, |fits| fits.now)
    }

    /// How many such pods find room on a node once all has settled.
    #[must_use]
    pub fn settled(&self, node: NodeId) -> u32 {
        self.fits.get(node.0).map_or(0, |fits| fits.settled)
    }

    /// How many such pods find room on a node in what nobody's pods hold.
    #[must_use]
    pub fn unheld(&self, node: NodeId) -> u32 {
        self.fits.get(node.0).map_or(0, |fits| fits.unheld)
    }

    /// Whether a node may hold such pods, whatever room it has.
    #[must_use]
    pub fn admits(&self, node: NodeId) -> bool {
        self.admits.get(node.0).copied().unwrap_or(false)
    }

    /// The nodes that may hold such pods, in the order of their names.
    pub fn nodes(&mut self, table: &NodeTable) -> Arc<[NodeId]> {
        let admits = &self.admits;
        let nodes = self.nodes.get_or_insert_with(|| {
            table.index.values().copied().filter(|node| admits.get(node.0) == Some(&true)).collect()
        });
        Arc::clone(nodes)
    }

    /// Takes in the changes of nodes since it was asked for last.
    pub(super) fn catch_up(&mut self, table: &NodeTable, pool: PoolId, shape: &PodShape) {
        let all = table.entries.len();
        let changes = u64::try_from(table.changes.len()).unwrap_or(u64::MAX);
        let missed = self.known.checked_sub(table.forgotten).and_then(|known| usize::try_from(known).ok());
        self.known = table.forgotten + changes;
        if self.admits.len() < all {
            self.admits.resize(all, false);
            self.fits.resize(all, Fits::default());
            self.revisions.resize(all, None);
            if self.tree.len() < 2 * all {
                self.ordered = None;
            }
        }
        match missed.and_then(|known| table.changes.get(known..)) {
            Some(changed) if changed.len() <= all => {
                for node in changed {
                    self.update(table, pool, shape, *node);
                }
            }
            _ => {
                self.ordered = None;
                for node in NodeId::first(all) {
                    self.update(table, pool, shape, node);
                }
            }
        }
    }

    fn update(&mut self, table: &NodeTable, pool: PoolId, shape: &PodShape, node: NodeId) {
        let revision = Some(table.revisions[node]);
        if std::mem::replace(&mut self.revisions[node], revision) == revision {
            return;
        }
        let info = &table.entries[node];
        let open = info.node.as_ref().filter(|node| node.schedulable && info.pool == pool);
        let admits = open.is_some_and(|node| fit::admits(node, shape));
        let fits =
            |space: &crate::capacity::space::Space| if admits { space.fits(&self.ask.demand) } else { 0 };
        let fits = Fits {
            now: fits(info.now()),
            settled: fits(info.settled()),
            unheld: fits(info.unheld()),
            empty: fits(info.empty()),
        };
        let before = std::mem::replace(&mut self.fits[node], fits);
        self.totals.count(before, fits);
        if (before.settled > 0) != (fits.settled > 0) {
            if fits.settled > 0 {
                self.roomy.insert(node);
            } else {
                self.roomy.remove(&node);
            }
        }
        if self.admits[node] != admits {
            self.nodes = None;
            self.count = if admits { self.count + 1 } else { self.count - 1 };
        }
        self.admits[node] = admits;
        if self.ordered == Some(table.packing.version()) {
            self.play(table, node);
        } else {
            self.ordered = None;
        }
    }

    /// The node that one pod suits best among all with room now.
    pub fn best(&mut self, table: &NodeTable) -> Option<NodeId> {
        if self.ordered != Some(table.packing.version()) {
            self.order(table);
        }
        self.tree
            .get(1)
            .and_then(|winner| usize::try_from(*winner).ok())
            .filter(|node| *node < self.fits.len())
            .map(NodeId)
    }

    /// What one pod costs on a node, by the room it has now.
    pub fn cost(&mut self, table: &NodeTable, node: NodeId) -> Option<Cost> {
        Some(self.cost_in(table, table.states[node]?))
    }

    fn cost_in(&mut self, table: &NodeTable, state: State) -> Cost {
        let version = table.packing.version();
        if self.costs.len() <= state.place {
            self.costs.resize(state.place + 1, None);
        }
        match self.costs[state.place] {
            Some((turn, known, cost)) if turn == state.turn && known == version => cost,
            _ => {
                let cost = table.packing.cost_in(state, &self.ask, 1);
                self.costs[state.place] = Some((state.turn, version, cost));
                cost
            }
        }
    }

    /// Plays the whole tree anew.
    fn order(&mut self, table: &NodeTable) {
        let leaves = self.leaves();
        self.tree = vec![NOBODY; 2 * leaves];
        for node in NodeId::first(self.fits.len()) {
            self.tree[leaves + node.0] = self.entrant(node);
        }
        for place in (1..leaves).rev() {
            self.tree[place] = self.winner(table, self.tree[2 * place], self.tree[2 * place + 1]);
        }
        self.ordered = Some(table.packing.version());
    }

    /// Plays the games of one node anew.
    fn play(&mut self, table: &NodeTable, node: NodeId) {
        let mut place = self.leaves() + node.0;
        self.tree[place] = self.entrant(node);
        while place > 1 {
            place /= 2;
            self.tree[place] = self.winner(table, self.tree[2 * place], self.tree[2 * place + 1]);
        }
    }

    fn leaves(&self) -> usize {
        self.fits.len().next_power_of_two()
    }

    fn entrant(&self, node: NodeId) -> u32 {
        if self.fits[node].now > 0 { u32::try_from(node.0).unwrap_or(NOBODY) } else { NOBODY }
    }

    fn winner(&mut self, table: &NodeTable, left: u32, right: u32) -> u32 {
        let (Ok(first), Ok(second)) = (usize::try_from(left), usize::try_from(right)) else { return NOBODY };
        if left == NOBODY || right == NOBODY {
            return left.min(right);
        }
        let (first, second) = (NodeId(first), NodeId(second));
        let costs = (self.cost(table, first), self.cost(table, second));
        let names = || (&table.names[first], &table.names[second]);
        let first_wins = costs.0 < costs.1 || costs.0 == costs.1 && names().0 <= names().1;
        if first_wins { left } else { right }
    }
}
