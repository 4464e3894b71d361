//! The nodes: what each offers, what is held on it, and what is left now and once evictions end.

use std::collections::BTreeMap;

use super::model::{Name, Node};
use super::vector::Vector;

/// A node that does not list pod slots takes as many pods as its other resources allow.
const UNLIMITED_SLOTS: i64 = 1 << 50;

/// Index of a node in the [`NodeTable`]; stays valid when the node goes and comes back.
pub type NodeIx = usize;

/// One node with its books.
#[derive(Clone, Debug, Default)]
pub struct NodeEntry {
    /// The node as last seen; `None` while only pods on it are known.
    pub node: Option<Node>,
    /// The pool it belongs to.
    pub pool: usize,
    /// What it offers.
    pub allocatable: Vector,
    /// What pods on it, or admitted to it, hold.
    held: Vector,
    /// The part of `held` whose workloads have been told to stop.
    leaving: Vector,
    /// What claimants will take once room has been freed for them.
    nominated: Vector,
    free_now: Vector,
    free_settled: Vector,
}

impl NodeEntry {
    /// Whether new pods may be bound to it.
    #[must_use]
    pub fn open(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.schedulable)
    }

    /// What may be given away at once: unheld, and not needed by a claimant.
    #[must_use]
    pub fn free_now(&self) -> &Vector {
        &self.free_now
    }

    /// What is left once all who have been told to stop are gone and all claimants have started.
    #[must_use]
    pub fn free_settled(&self) -> &Vector {
        &self.free_settled
    }

    /// What pods on it hold.
    #[must_use]
    pub fn held(&self) -> &Vector {
        &self.held
    }

    fn refresh(&mut self) {
        let unheld = self.allocatable.plus(&self.held, -1);
        let mut settled = unheld.plus(&self.leaving, 1);
        settled.add(&self.nominated, -1);
        let mut now = unheld;
        for (index, milli) in settled.entries() {
            now.set(index, now.get(index).min(milli));
        }
        self.free_now = now;
        self.free_settled = settled;
    }
}

/// All nodes ever heard of.
#[derive(Clone, Debug, Default)]
pub struct NodeTable {
    entries: Vec<NodeEntry>,
    names: Vec<Name>,
    index: BTreeMap<Name, NodeIx>,
}

impl NodeTable {
    /// The node of that name, known from now on even if no such object exists.
    pub fn intern(&mut self, name: &Name) -> NodeIx {
        if let Some(index) = self.index.get(name) {
            return *index;
        }
        let index = self.entries.len();
        self.entries.push(NodeEntry::default());
        self.names.push(name.clone());
        self.index.insert(name.clone(), index);
        index
    }

    /// The node of that name, if it was ever heard of.
    #[must_use]
    pub fn find(&self, name: &Name) -> Option<NodeIx> {
        self.index.get(name).copied()
    }

    /// Sets what a node is; `None` when it is gone.
    pub fn set(&mut self, index: NodeIx, node: Option<Node>, mut allocatable: Vector, slots: usize) {
        if node.as_ref().is_some_and(|n| !n.allocatable.contains_key(super::vector::PODS)) {
            allocatable.set(slots, UNLIMITED_SLOTS);
        }
        let entry = &mut self.entries[index];
        entry.node = node;
        entry.allocatable = allocatable;
        entry.refresh();
    }

    /// Puts a node into a pool.
    pub fn set_pool(&mut self, index: NodeIx, pool: usize) {
        if self.entries[index].pool != pool {
            self.entries[index].pool = pool;
        }
    }

    /// Adds what so many pods need to what is held; `going` of them are about to leave.
    pub fn hold(&mut self, index: NodeIx, need: &Vector, pods: i64, going: i64) {
        let entry = &mut self.entries[index];
        entry.held.add(need, pods);
        entry.leaving.add(need, going);
        entry.refresh();
    }

    /// Adds `times` × `need` to what claimants will take.
    pub fn nominate(&mut self, index: NodeIx, need: &Vector, times: i64) {
        let entry = &mut self.entries[index];
        entry.nominated.add(need, times);
        entry.refresh();
    }

    /// The node with that index.
    #[must_use]
    pub fn get(&self, index: NodeIx) -> &NodeEntry {
        &self.entries[index]
    }

    /// The name of the node with that index.
    #[must_use]
    pub fn name(&self, index: NodeIx) -> &Name {
        &self.names[index]
    }

    /// The nodes that exist, in the order of their names.
    pub fn alive(&self) -> impl Iterator<Item = (NodeIx, &NodeEntry, &Node)> {
        self.index.values().filter_map(|index| {
            let entry = &self.entries[*index];
            entry.node.as_ref().map(|node| (*index, entry, node))
        })
    }
}
