//! The nodes: what each offers, what is held on it, and what is left now and once evictions end.

mod index;
mod node;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::capacity::devices::Holder;
use crate::capacity::packing::{Ask, Packing, State};
use crate::capacity::space::Demand;
use crate::state::nodes::index::Index;
use crate::state::nodes::node::{Hold, Promised};
use crate::types::ids::{NodeId, PoolId};
use crate::types::vector::{Resources, Vector};
use crate::types::{Name, Node, PodShape};

pub use crate::state::nodes::index::Fitting;
pub use crate::state::nodes::node::NodeInfo;

/// A node that does not list pod slots takes as many pods as its other resources allow.
const UNLIMITED_SLOTS: i64 = 1 << 50;

/// Pods by node.
pub type Placement = BTreeMap<NodeId, u32>;

/// What is free on all open nodes of a pool.
#[derive(Clone, Debug, Default)]
struct Free {
    amounts: Vector,
    nodes: usize,
}

/// Room that was taken out of sight.
#[derive(Debug)]
pub struct Masks<'a> {
    room: Vec<(NodeId, &'a Vector, u32)>,
    /// Its nodes as they were before.
    before: BTreeMap<NodeId, Before>,
}

/// A node as it was before room on it was taken out of sight.
#[derive(Debug)]
struct Before {
    promised: Promised,
    state: Option<State>,
    revision: u64,
    /// The revision that it has had since.
    since: u64,
}

/// All nodes ever heard of.
#[derive(Clone, Debug, Default)]
pub struct NodeTable {
    entries: Vec<NodeInfo>,
    names: Vec<Name>,
    index: BTreeMap<Name, NodeId>,
    /// Which resources count devices, by number.
    devices: Vec<bool>,
    /// What room is worth to the pods that are likely to come.
    packing: Packing,
    /// The state of every open node.
    states: Vec<Option<State>>,
    /// What is free on all open nodes of a pool, and what each node adds to that.
    free: BTreeMap<PoolId, Free>,
    adds: Vec<Option<(PoolId, Vector)>>,
    /// The nodes that changed, in order; so many older changes have been forgotten.
    changes: Vec<NodeId>,
    forgotten: u64,
    /// By node: a number that is the same as long as the node is.
    revisions: Vec<u64>,
    /// The last of these that was given.
    revision: u64,
    /// What is worked out of all this for the kinds of pods that are asked for.
    kinds: RefCell<Index>,
}

impl NodeTable {
    /// The node of that name, known from now on even if no such object exists.
    pub fn intern(&mut self, name: &Name) -> NodeId {
        if let Some(index) = self.index.get(name) {
            return *index;
        }
        let index = NodeId(self.entries.len());
        self.entries.push(NodeInfo::default());
        self.names.push(name.clone());
        self.states.push(None);
        self.adds.push(None);
        self.revisions.push(0);
        self.index.insert(name.clone(), index);
        index
    }

    /// The node of that name, if it was ever heard of.
    #[must_use]
    pub fn find(&self, name: &Name) -> Option<NodeId> {
        self.index.get(name).copied()
    }

    /// Learns which resources count devices; to be called before amounts of new ones are held.
    pub fn learn(&mut self, resources: &Resources) {
        let known = self.devices.len();
        self.devices.extend((known..resources.count()).map(|index| resources.is_device(index)));
    }

    /// A need taken apart into amounts and shares of devices.
    #[must_use]
    pub fn demand(&self, need: &Vector) -> Demand {
        Demand::new(need, |resource| self.is_device(resource))
    }

    /// Whether a resource counts devices.
    #[must_use]
    pub fn is_device(&self, resource: usize) -> bool {
        self.devices.get(resource).copied().unwrap_or(false)
    }

    /// Sets what a node is; `None` when it is gone.
    pub fn set(&mut self, index: NodeId, node: Option<Node>, mut allocatable: Vector, slots: usize) {
        if node.as_ref().is_some_and(|n| !n.allocatable.contains_key(crate::types::vector::PODS)) {
            allocatable.set(slots, UNLIMITED_SLOTS);
        }
        let info = &mut self.entries[index];
        info.node = node;
        info.offer(allocatable);
        self.touch(index);
    }

    /// Puts a node into a pool.
    pub fn set_pool(&mut self, index: NodeId, pool: PoolId, name: &Name) {
        let info = &mut self.entries[index];
        if info.pool != pool || info.pool_name != *name {
            info.pool = pool;
            info.pool_name = name.clone();
            self.touch(index);
        }
    }

    /// Sets what somebody holds on a node in place of what that was before: `pods` pods of `need`, of
    /// which `going` are about to leave. Shares of pods that were there before stay on their devices.
    pub fn hold(&mut self, index: NodeId, holder: &Holder, need: &Vector, pods: u32, going: u32) {
        let before = self.entries[index].holds.remove(holder).unwrap_or_default();
        let hold = Hold { need: need.clone(), pods, going };
        if before.pods == pods && before.going == going && before.need.equals(need) {
            if pods > 0 {
                self.entries[index].holds.insert(holder.clone(), hold);
            }
            return;
        }
        let (old, demand) = (self.demand(&before.need), self.demand(need));
        self.entries[index].hold(holder, &before, &old, hold, &demand);
        self.touch_room(index);
    }

    /// Adds `times` × `need` to what claimants will take.
    pub fn nominate(&mut self, index: NodeId, need: &Vector, times: i64) {
        let demand = self.demand(need);
        self.entries[index].nominate(need, &demand, times);
        self.touch_room(index);
    }

    /// Takes room out of sight, so many pods of a need on each node, until it is shown again.
    pub fn mask<'a>(&mut self, room: impl Iterator<Item = (NodeId, &'a Vector, u32)>) -> Masks<'a> {
        let mut masked = Masks { room: room.collect(), before: BTreeMap::new() };
        for (index, need, pods) in &masked.room {
            masked.before.entry(*index).or_insert_with(|| self.before(*index));
            self.nominate(*index, need, i64::from(*pods));
        }
        for (index, before) in &mut masked.before {
            before.since = self.revisions[*index];
        }
        masked
    }

    /// A node as it is, to be [restored](Self::restore).
    fn before(&mut self, index: NodeId) -> Before {
        let (state, revision) = (self.states[index], self.revisions[index]);
        state.iter().for_each(|state| self.packing.keep(*state));
        Before { promised: self.entries[index].promised(), state, revision, since: revision }
    }

    /// Shows what was taken out of sight. A node on which nothing else has changed since then is as it was.
    pub fn unmask(&mut self, masked: Masks<'_>) {
        let Masks { room, before } = masked;
        // Shares may have come to lie on other devices.
        let shared = room.iter().filter(|(_, need, _)| !self.demand(need).shares().is_empty());
        let mut changed: BTreeSet<NodeId> = shared.map(|(index, ..)| *index).collect();
        for (index, before) in before {
            if self.revisions[index] == before.since && !changed.contains(&index) {
                self.restore(index, before);
            } else {
                before.state.iter().for_each(|state| self.packing.let_go(*state));
                changed.insert(index);
            }
        }
        for (index, need, pods) in room.iter().filter(|(index, ..)| changed.contains(index)) {
            self.nominate(*index, need, -i64::from(*pods));
        }
    }

    /// Makes a node what it was before. Its state is known still, for kinds of pods are noted between plans only.
    fn restore(&mut self, index: NodeId, before: Before) {
        self.entries[index].restore(before.promised);
        if let Some((now, state)) = self.states[index].zip(before.state) {
            self.packing.go_back(now, state);
        }
        self.states[index] = before.state;
        self.changed(index);
        self.revisions[index] = before.revision;
    }

    /// Takes note of a workload that has not been seen before, and may run in these pools.
    pub fn note(&mut self, pools: Vec<Name>, shape: &PodShape, need: &Vector, pods: u32) {
        let devices = &self.devices;
        let is_device = |resource: usize| devices.get(resource) == Some(&true);
        if !need.nonzero().any(|(resource, _)| is_device(resource)) || pods == 0 {
            return;
        }
        if self.packing.note(pools, shape, need, is_device, pods) {
            for index in NodeId::first(self.entries.len()) {
                self.states[index] = None;
                self.set_state(index);
            }
            self.packing.weigh();
        }
    }

    /// What pods of that need ask for.
    #[must_use]
    pub fn ask(&self, need: &Vector) -> Ask {
        Ask::new(need, |resource| self.is_device(resource))
    }

    /// What room is worth to the pods that are likely to come.
    #[must_use]
    pub fn packing(&self) -> &Packing {
        &self.packing
    }

    /// The state of a node: nodes in the same state are alike in what they have free now.
    #[must_use]
    pub fn state(&self, index: NodeId) -> Option<State> {
        self.states[index]
    }

    /// Goes up with every change of a node.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.forgotten + u64::try_from(self.changes.len()).unwrap_or(u64::MAX)
    }

    /// What is free on all open nodes of a pool, and how many these are.
    #[must_use]
    pub fn free_in(&self, pool: PoolId) -> Option<(&Vector, usize)> {
        self.free.get(&pool).map(|free| (&free.amounts, free.nodes))
    }

    /// Does something with what is known of the fit of a kind of pods, brought up to date.
    pub fn fitting<T>(
        &self,
        pool: PoolId,
        shape: &PodShape,
        need: &Vector,
        work: impl FnOnce(&mut Fitting) -> T,
    ) -> T {
        let mut kinds = self.kinds.borrow_mut();
        let fitting = kinds.of(pool, shape, || self.ask(need));
        fitting.catch_up(self, pool, shape);
        work(fitting)
    }

    /// Whether a node has devices of any kind.
    #[must_use]
    pub fn has_devices(&self, index: NodeId) -> bool {
        self.entries[index].allocatable.nonzero().any(|(resource, _)| self.is_device(resource))
    }

    /// Takes note that a node changed, or what it is.
    fn touch(&mut self, index: NodeId) {
        self.set_state(index);
        self.changed(index);
    }

    /// Takes note that the room on a node changed, and nothing else.
    fn touch_room(&mut self, index: NodeId) {
        let space = self.entries[index].now();
        match self.states[index].and_then(|before| self.packing.refill(before, space)) {
            Some(state) => self.states[index] = Some(state),
            None => self.set_state(index),
        }
        self.changed(index);
    }

    fn changed(&mut self, index: NodeId) {
        self.revision += 1;
        self.revisions[index] = self.revision;
        self.add_up(index);
        if self.changes.len() > 2 * self.entries.len() + 1024 {
            let old = self.changes.len() / 2;
            self.changes.drain(..old);
            self.forgotten += u64::try_from(old).unwrap_or(u64::MAX);
        }
        self.changes.push(index);
    }

    /// Counts what is free on a node in its pool, in place of what was counted before.
    fn add_up(&mut self, index: NodeId) {
        let info = &self.entries[index];
        let now = info.open().then(|| {
            let mut amounts = Vector::default();
            for (resource, milli) in info.now().amounts().entries() {
                amounts.set(resource, milli.max(0));
            }
            (info.pool, amounts)
        });
        if let Some((pool, amounts)) = self.adds[index].take()
            && let Some(free) = self.free.get_mut(&pool)
        {
            free.amounts.add(&amounts, -1);
            free.nodes -= 1;
        }
        if let Some((pool, amounts)) = &now {
            let free = self.free.entry(*pool).or_default();
            free.amounts.add(amounts, 1);
            free.nodes += 1;
        }
        self.adds[index] = now;
    }

    fn set_state(&mut self, index: NodeId) {
        let devices = self.has_devices(index);
        let info = &self.entries[index];
        let open = info.node.as_ref().filter(|node| node.schedulable);
        let node = open.map(|node| (node, &info.pool_name, devices));
        self.states[index] = self.packing.set(self.states[index], node, info.now());
    }

    /// The node with that index.
    #[must_use]
    pub fn get(&self, index: NodeId) -> &NodeInfo {
        &self.entries[index]
    }

    /// Every node that was ever heard of.
    pub fn indices(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        NodeId::first(self.entries.len())
    }

    /// The name of the node with that index.
    #[must_use]
    pub fn name(&self, index: NodeId) -> &Name {
        &self.names[index]
    }

    /// The nodes that exist, in the order of their names.
    pub fn alive(&self) -> impl Iterator<Item = (NodeId, &NodeInfo, &Node)> {
        self.index.values().filter_map(|index| {
            let info = &self.entries[*index];
            info.node.as_ref().map(|node| (*index, info, node))
        })
    }
}

#[cfg(test)]
mod tests;
