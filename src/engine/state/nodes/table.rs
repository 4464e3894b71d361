//! The table of all nodes, and what is computed from it at every change.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::capacity::devices::Holder;
use crate::capacity::packing::{Ask, Packing, PackingState};
use crate::capacity::space::Demand;
use crate::state::nodes::constraints::{Constraints, CountCache};
use crate::state::nodes::fitting::FittingCache;
use crate::state::nodes::node::{Hold, NodeInfo};
use crate::types::ids::{NodeId, PoolId};
use crate::types::vector::{PODS, Resources, Vector};
use crate::types::{Admission, Name, Node, PodShape};

/// A node that lists no pod slots takes as many pods as its other resources allow.
const UNLIMITED_SLOTS: i64 = 1 << 50;

/// Pods by node.
pub type Placement = BTreeMap<NodeId, u32>;

/// The free capacity on all open nodes of a pool.
#[derive(Clone, Debug, Default)]
struct Free {
    amounts: Vector,
    nodes: usize,
}

/// All nodes ever observed.
#[derive(Clone, Debug, Default)]
pub struct NodeTable {
    /// Shared with the copies of an engine, until one of them changes the node.
    pub(super) infos: Vec<Arc<NodeInfo>>,
    pub(super) names: Vec<Name>,
    pub(super) index: BTreeMap<Name, NodeId>,
    /// Whether a resource counts devices, by number.
    devices: Vec<bool>,
    /// The value of capacity to the pods that are likely to come.
    pub(super) packing: Packing,
    /// The packing state of every open node.
    pub(super) states: Vec<Option<PackingState>>,
    /// The free capacity on all open nodes of a pool, and the part that each node adds to it.
    free: BTreeMap<PoolId, Free>,
    added: Vec<Option<(PoolId, Vector)>>,
    /// The nodes that exist and take no new pods.
    closed: BTreeSet<NodeId>,
    /// The nodes with nominated capacity.
    nominated: BTreeSet<NodeId>,
    /// The changed nodes, in order, and the number of older changes that were dropped.
    pub(super) changes: Vec<NodeId>,
    pub(super) dropped: u64,
    /// By node: a number that changes with the node.
    pub(super) revisions: Vec<u64>,
    /// The last number given to a node.
    revision: u64,
    /// The cached fittings of the requested kinds of pods.
    pub(super) fittings: RefCell<FittingCache>,
    /// The constraints between the pods on nodes.
    pub constraints: Constraints,
    /// The cached counts of pods that constraints look at.
    pub(super) counts: RefCell<CountCache>,
}

impl NodeTable {
    /// The node of that name, known from now on even if no such object exists.
    pub fn intern(&mut self, name: &Name) -> NodeId {
        if let Some(index) = self.index.get(name) {
            return *index;
        }
        let index = NodeId(self.infos.len());
        self.infos.push(Arc::default());
        self.names.push(name.clone());
        self.states.push(None);
        self.added.push(None);
        self.revisions.push(0);
        self.index.insert(name.clone(), index);
        index
    }

    /// The node of that name, if it was ever observed.
    #[must_use]
    pub fn find(&self, name: &Name) -> Option<NodeId> {
        self.index.get(name).copied()
    }

    /// The node of that name, if it exists now and answers.
    #[must_use]
    pub fn present(&self, name: &Name) -> Option<NodeId> {
        self.find(name).filter(|node| self.get(*node).node.is_some())
    }

    /// Adds the pods of a placement to an admission.
    pub fn add_pods(&self, placement: &Placement, admission: &mut Admission) {
        for (node, pods) in placement {
            *admission.nodes.entry(self.name(*node).clone()).or_default() += pods;
            admission.pods += pods;
        }
    }

    /// Learns which resources count devices. Call it before amounts of new resources are held.
    pub fn learn(&mut self, resources: &Resources) {
        let known = self.devices.len();
        self.devices.extend((known..resources.count()).map(|index| resources.is_device(index)));
    }

    /// A need, split into plain amounts and fractions of devices.
    #[must_use]
    pub fn demand(&self, need: &Vector) -> Demand {
        Demand::new(need, |resource| self.is_device(resource))
    }

    /// Whether a resource counts devices.
    #[must_use]
    pub fn is_device(&self, resource: usize) -> bool {
        self.devices.get(resource).copied().unwrap_or(false)
    }

    /// The info of a node, to be changed; the caller marks the node as changed.
    pub(super) fn info_mut(&mut self, index: NodeId) -> &mut NodeInfo {
        Arc::make_mut(&mut self.infos[index])
    }

    /// Sets the definition of a node; `None` when it is gone.
    pub fn set(&mut self, index: NodeId, node: Option<Node>, mut allocatable: Vector, slots: usize) {
        if node.as_ref().is_some_and(|n| !n.allocatable.contains_key(PODS)) {
            allocatable.set(slots, UNLIMITED_SLOTS);
        }
        let info = self.info_mut(index);
        info.node = node;
        info.offer(allocatable);
        self.touch(index);
    }

    /// Sets whether the pods of a node are held nowhere.
    pub fn set_lost(&mut self, index: NodeId, lost: bool) {
        self.info_mut(index).lost = lost;
    }

    /// Assigns a node to a pool.
    pub fn set_pool(&mut self, index: NodeId, pool: PoolId, name: &Name) {
        let info = self.get(index);
        if info.pool != pool || info.pool_name != *name {
            let info = self.info_mut(index);
            info.pool = pool;
            info.pool_name = name.clone();
            self.touch(index);
        }
    }

    /// Replaces the usage of a holder on a node. Fractions of pods that stay remain on their devices.
    pub fn hold(&mut self, index: NodeId, holder: &Holder, hold: Hold) {
        let before = self.info_mut(index).holds.remove(holder).unwrap_or_default();
        let Hold { need, profile, pods, terminating } = &hold;
        let (pods, terminating) = (*pods, *terminating);
        if before.pods == pods
            && before.terminating == terminating
            && before.need.equals(need)
            && before.profile == *profile
        {
            if pods > 0 {
                self.info_mut(index).holds.insert(holder.clone(), hold);
            }
            return;
        }
        self.constraints.replace(
            before.profile.as_ref(),
            profile.as_ref().filter(|_| pods > 0),
            pods > before.pods,
        );
        let (old, demand) = (self.demand(&before.need), self.demand(need));
        self.info_mut(index).hold(holder, &before, &old, hold, &demand);
        self.touch_free(index);
    }

    /// Adds `times` × `need` to the nominated capacity of a node.
    pub fn nominate(&mut self, index: NodeId, need: &Vector, times: i64) {
        let demand = self.demand(need);
        self.info_mut(index).nominate(need, &demand, times);
        self.touch_free(index);
    }

    /// Records the pods of a new workload that may run in these pools.
    pub fn record_pods(&mut self, pools: Vec<Name>, shape: &PodShape, need: &Vector, pods: u32) {
        let devices = &self.devices;
        let is_device = |resource: usize| devices.get(resource) == Some(&true);
        if !need.nonzero().any(|(resource, _)| is_device(resource)) || pods == 0 {
            return;
        }
        if self.packing.record(pools, shape, need, is_device, pods) {
            for index in NodeId::first(self.infos.len()) {
                self.states[index] = None;
                self.set_state(index);
            }
            self.packing.weigh();
        }
    }

    /// The request of pods with that need.
    #[must_use]
    pub fn ask(&self, need: &Vector) -> Ask {
        Ask::new(need, |resource| self.is_device(resource))
    }

    /// The value of capacity to the pods that are likely to come.
    #[must_use]
    pub fn packing(&self) -> &Packing {
        &self.packing
    }

    /// The packing state of a node: nodes in the same state have the same free capacity.
    #[must_use]
    pub fn state(&self, index: NodeId) -> Option<PackingState> {
        self.states[index]
    }

    /// A number that changes with a node.
    #[must_use]
    pub fn revision(&self, index: NodeId) -> u64 {
        self.revisions[index]
    }

    /// The highest of these numbers: what changes later has a higher one.
    #[must_use]
    pub fn last_revision(&self) -> u64 {
        self.revision
    }

    /// Incremented with every change of a node.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.dropped + u64::try_from(self.changes.len()).unwrap_or(u64::MAX)
    }

    /// The free capacity on all open nodes of a pool, and the number of these nodes.
    #[must_use]
    pub fn free_in(&self, pool: PoolId) -> Option<(&Vector, usize)> {
        self.free.get(&pool).map(|free| (&free.amounts, free.nodes))
    }

    /// Whether a node is an open one of a pool: one of those that [`Self::free_in`] counts.
    #[must_use]
    pub fn is_open_in(&self, index: NodeId, pool: PoolId) -> bool {
        self.added[index].as_ref().is_some_and(|(of, _)| *of == pool)
    }

    /// Whether a node has devices of any kind.
    #[must_use]
    pub fn has_devices(&self, index: NodeId) -> bool {
        self.infos[index].allocatable.nonzero().any(|(resource, _)| self.is_device(resource))
    }

    /// Records that a node itself changed.
    fn touch(&mut self, index: NodeId) {
        match self.infos[index].node.as_ref().is_some_and(|node| !node.schedulable) {
            true => self.closed.insert(index),
            false => self.closed.remove(&index),
        };
        self.set_state(index);
        self.mark_changed(index);
    }

    /// Records that only the free capacity of a node changed.
    fn touch_free(&mut self, index: NodeId) {
        let space = self.infos[index].now();
        match self.states[index].and_then(|before| self.packing.refill(before, space)) {
            Some(state) => self.states[index] = Some(state),
            None => self.set_state(index),
        }
        self.mark_changed(index);
    }

    pub(super) fn mark_changed(&mut self, index: NodeId) {
        self.revision += 1;
        self.revisions[index] = self.revision;
        self.count_free(index);
        match self.infos[index].has_nominated() {
            true => self.nominated.insert(index),
            false => self.nominated.remove(&index),
        };
        if self.changes.len() > 2 * self.infos.len() + 1024 {
            let old = self.changes.len() / 2;
            self.changes.drain(..old);
            self.dropped += u64::try_from(old).unwrap_or(u64::MAX);
        }
        self.changes.push(index);
    }

    /// Replaces the part that a node added to the free capacity of its pool.
    fn count_free(&mut self, index: NodeId) {
        let info = &self.infos[index];
        let now = info.open().then(|| {
            let mut amounts = Vector::default();
            for (resource, milli) in info.now().amounts().entries() {
                amounts.set(resource, milli.max(0));
            }
            (info.pool, amounts)
        });
        if let Some((pool, amounts)) = self.added[index].take()
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
        self.added[index] = now;
    }

    fn set_state(&mut self, index: NodeId) {
        let devices = self.has_devices(index);
        let info = &self.infos[index];
        let open = info.node.as_ref().filter(|node| node.schedulable);
        let node = open.map(|node| (node, &info.pool_name, devices));
        self.states[index] = self.packing.set(self.states[index], node, info.now());
    }

    /// The node with that index.
    #[must_use]
    pub fn get(&self, index: NodeId) -> &NodeInfo {
        &self.infos[index]
    }

    /// Every node ever observed.
    pub fn indices(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        NodeId::first(self.infos.len())
    }

    /// The name of the node with that index.
    #[must_use]
    pub fn name(&self, index: NodeId) -> &Name {
        &self.names[index]
    }

    /// The nodes that exist and take no new pods.
    pub fn closed(&self) -> impl Iterator<Item = (&NodeInfo, &Node)> {
        self.closed.iter().filter_map(|index| {
            let info = self.get(*index);
            info.node.as_ref().map(|node| (info, node))
        })
    }

    /// The nodes with capacity that is nominated, or masked at present.
    #[must_use]
    pub fn nominated(&self) -> &BTreeSet<NodeId> {
        &self.nominated
    }

    /// The nodes that exist, by name.
    pub fn alive(&self) -> impl Iterator<Item = (NodeId, &NodeInfo, &Node)> {
        self.index.values().filter_map(|index| {
            let info = self.get(*index);
            info.node.as_ref().map(|node| (*index, info, node))
        })
    }
}
