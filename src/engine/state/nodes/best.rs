//! Brings the fitting of a kind of pods up to date with the table, and finds the node that suits one pod
//! best.

use std::sync::Arc;

use crate::capacity::fit;
use crate::capacity::packing::{Cost, PackingState};
use crate::capacity::space::Space;
use crate::state::nodes::fitting::{Fits, Fitting};
use crate::state::nodes::table::NodeTable;
use crate::types::PodShape;
use crate::types::ids::{NodeId, PoolId};
use crate::types::vector::Vector;

/// No node, in the tournament tree.
const NO_NODE: u32 = u32::MAX;

impl NodeTable {
    /// Calls `work` with the fitting of a kind of pods, brought up to date.
    pub fn fitting<T>(
        &self,
        pool: PoolId,
        shape: &PodShape,
        need: &Vector,
        work: impl FnOnce(&mut Fitting) -> T,
    ) -> T {
        let mut fittings = self.fittings.borrow_mut();
        let fitting = fittings.of(pool, shape, || self.ask(need));
        fitting.catch_up(self, pool, shape);
        work(fitting)
    }
}

impl Fitting {
    /// The nodes that admit such pods, by name.
    pub fn nodes(&mut self, table: &NodeTable) -> Arc<[NodeId]> {
        let admits = &self.admits;
        let nodes = self.nodes.get_or_insert_with(|| {
            table.index.values().copied().filter(|node| admits.get(node.0) == Some(&true)).collect()
        });
        Arc::clone(nodes)
    }

    /// Includes all changes of nodes since the last request.
    fn catch_up(&mut self, table: &NodeTable, pool: PoolId, shape: &PodShape) {
        let all = table.infos.len();
        let changes = u64::try_from(table.changes.len()).unwrap_or(u64::MAX);
        let missed = self.known.checked_sub(table.dropped).and_then(|known| usize::try_from(known).ok());
        self.known = table.dropped + changes;
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
        let info = table.get(node);
        let open = info.node.as_ref().filter(|node| node.schedulable && info.pool == pool);
        let admits = open.is_some_and(|node| fit::admits(node, shape));
        let fits = |space: &Space| if admits { space.fits(&self.ask.demand) } else { 0 };
        let fits = Fits {
            now: fits(info.now()),
            settled: fits(info.settled()),
            unheld: fits(info.unheld()),
            empty: fits(info.empty()),
        };
        let before = std::mem::replace(&mut self.fits[node], fits);
        self.totals.replace(before, fits);
        if (before.settled > 0) != (fits.settled > 0) {
            if fits.settled > 0 {
                self.with_headroom.insert(node);
            } else {
                self.with_headroom.remove(&node);
            }
        }
        if self.admits[node] != admits {
            self.nodes = None;
            self.count = if admits { self.count + 1 } else { self.count - 1 };
        }
        self.admits[node] = admits;
        if self.ordered == Some(table.packing.version()) {
            self.replay(table, node);
        } else {
            self.ordered = None;
        }
    }

    /// The node that one pod suits best, among all where it fits now.
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

    /// The cost of one pod on a node, by its capacity on offer now.
    pub fn cost(&mut self, table: &NodeTable, node: NodeId) -> Option<Cost> {
        Some(self.cost_in(table, table.states[node]?))
    }

    fn cost_in(&mut self, table: &NodeTable, state: PackingState) -> Cost {
        let version = table.packing.version();
        if self.costs.len() <= state.slot {
            self.costs.resize(state.slot + 1, None);
        }
        match self.costs[state.slot] {
            Some((held, known, cost)) if held == state.version && known == version => cost,
            _ => {
                let cost = table.packing.cost_in(state, &self.ask, 1);
                self.costs[state.slot] = Some((state.version, version, cost));
                cost
            }
        }
    }

    /// Rebuilds the whole tree.
    fn order(&mut self, table: &NodeTable) {
        let leaves = self.leaves();
        self.tree = vec![NO_NODE; 2 * leaves];
        for node in NodeId::first(self.fits.len()) {
            self.tree[leaves + node.0] = self.entrant(node);
        }
        for position in (1..leaves).rev() {
            self.tree[position] = self.winner(table, self.tree[2 * position], self.tree[2 * position + 1]);
        }
        self.ordered = Some(table.packing.version());
    }

    /// Updates the path of one node to the root.
    fn replay(&mut self, table: &NodeTable, node: NodeId) {
        let mut position = self.leaves() + node.0;
        self.tree[position] = self.entrant(node);
        while position > 1 {
            position /= 2;
            self.tree[position] = self.winner(table, self.tree[2 * position], self.tree[2 * position + 1]);
        }
    }

    fn leaves(&self) -> usize {
        self.fits.len().next_power_of_two()
    }

    fn entrant(&self, node: NodeId) -> u32 {
        if self.fits[node].now > 0 { u32::try_from(node.0).unwrap_or(NO_NODE) } else { NO_NODE }
    }

    fn winner(&mut self, table: &NodeTable, left: u32, right: u32) -> u32 {
        let (Ok(first), Ok(second)) = (usize::try_from(left), usize::try_from(right)) else { return NO_NODE };
        if left == NO_NODE || right == NO_NODE {
            return left.min(right);
        }
        let (first, second) = (NodeId(first), NodeId(second));
        let costs = (self.cost(table, first), self.cost(table, second));
        let names = || (&table.names[first], &table.names[second]);
        let first_wins = costs.0 < costs.1 || costs.0 == costs.1 && names().0 <= names().1;
        if first_wins { left } else { right }
    }
}
