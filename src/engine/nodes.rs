//! The nodes: what each offers, what is held on it, and what is left now and once evictions end.

use std::collections::BTreeMap;

use super::devices::{Devices, Holder};
use super::model::{Name, Node};
use super::space::{DEVICE, Demand, Space};
use super::vector::{Resources, Vector};

/// A node that does not list pod slots takes as many pods as its other resources allow.
const UNLIMITED_SLOTS: i64 = 1 << 50;

/// Index of a node in the [`NodeTable`]; stays valid when the node goes and comes back.
pub type NodeIx = usize;

/// What somebody's pods on a node hold.
#[derive(Clone, Debug, Default)]
struct Hold {
    need: Vector,
    pods: u32,
    /// Those of them that have been told to stop.
    going: u32,
}

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
    /// The part of `held` whose pods have been told to stop.
    leaving: Vector,
    /// What claimants will take once room has been freed for them.
    nominated: Vector,
    holds: BTreeMap<Holder, Hold>,
    devices: Devices,
    now: Space,
    settled: Space,
}

impl NodeEntry {
    /// Whether new pods may be bound to it.
    #[must_use]
    pub fn open(&self) -> bool {
        self.node.as_ref().is_some_and(|node| node.schedulable)
    }

    /// What may be given away at once: unheld, and not needed by a claimant.
    #[must_use]
    pub fn now(&self) -> &Space {
        &self.now
    }

    /// What is left once all who have been told to stop are gone and all claimants have started.
    #[must_use]
    pub fn settled(&self) -> &Space {
        &self.settled
    }

    /// The same once so many more pods of each of these, which hold `amounts` together, are gone.
    #[must_use]
    pub fn settled_without(&self, amounts: &Vector, gone: &[(Holder, u32)]) -> Space {
        Space::new(self.settled.amounts().plus(amounts, 1), self.devices.settled(gone))
    }

    /// What nobody's pods hold, whether it is needed by a claimant or not.
    #[must_use]
    pub fn unheld(&self) -> Space {
        Space::new(self.allocatable.plus(&self.held, -1), self.devices.unheld())
    }

    /// What it offers when nobody is on it.
    #[must_use]
    pub fn empty(&self) -> Space {
        Space::new(self.allocatable.clone(), Vec::new())
    }

    /// The devices that pods hold shares of.
    #[must_use]
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    fn refresh(&mut self) {
        let unheld = self.unheld();
        let mut amounts = unheld.amounts().plus(&self.leaving, 1);
        amounts.add(&self.nominated, -1);
        let settled = Space::new(amounts, self.devices.settled(&[]));
        let untouched = |space: &Space| {
            let mut whole = space.amounts().clone();
            for device in space.shared() {
                whole.set(device.resource, whole.get(device.resource) - device.left);
            }
            whole
        };
        let later = untouched(&settled);
        let mut now = untouched(&unheld);
        for (resource, milli) in later.entries() {
            now.set(resource, now.get(resource).min(milli));
        }
        let shared = self.devices.offered(&now, &later);
        for device in &shared {
            now.set(device.resource, now.get(device.resource) + device.left);
        }
        self.now = Space::new(now, shared);
        self.settled = settled;
    }

    /// Lets one more pod hold its need. Each of its shares goes to the tightest device on offer, else to
    /// one not shared yet, else to one that is kept for a claimant.
    fn seat(&mut self, need: &Vector, demand: &Demand, holder: &Holder) {
        let places: Vec<Option<usize>> = demand
            .shares()
            .iter()
            .map(|(resource, share)| {
                let unheld = self.unheld();
                let full = unheld.untouched(*resource) < DEVICE;
                let best = |space: &Space| {
                    space.best_shared(*resource, *share).and_then(|index| space.shared()[index].place)
                };
                best(&self.now).or_else(|| best(&unheld).filter(|_| full))
            })
            .collect();
        self.held.add(need, 1);
        for ((resource, share), place) in demand.shares().iter().zip(places) {
            self.devices.seat(*resource, *share, Some(holder), place);
        }
        self.refresh();
    }

    /// Sets what somebody holds; shares of pods that were there before stay on their devices.
    fn hold(&mut self, holder: &Holder, before: &Hold, old: &Demand, hold: Hold, demand: &Demand) {
        self.held.add(&before.need, -i64::from(before.pods));
        self.leaving.add(&before.need, -i64::from(before.going));
        let stay = if before.need.equals(&hold.need) { before.pods.min(hold.pods) } else { 0 };
        self.held.add(&hold.need, i64::from(stay));
        for (resource, _) in old.shares() {
            self.devices.keep(holder, *resource, stay);
        }
        if demand.shares().is_empty() {
            self.held.add(&hold.need, i64::from(hold.pods - stay));
        } else {
            self.refresh();
            for _ in stay..hold.pods {
                self.seat(&hold.need, demand, holder);
            }
        }
        self.leaving.add(&hold.need, i64::from(hold.going));
        for (resource, _) in demand.shares() {
            self.devices.mark(holder, *resource, hold.going);
        }
        if hold.pods > 0 {
            self.holds.insert(holder.clone(), hold);
        }
        self.refresh();
    }
}

/// All nodes ever heard of.
#[derive(Clone, Debug, Default)]
pub struct NodeTable {
    entries: Vec<NodeEntry>,
    names: Vec<Name>,
    index: BTreeMap<Name, NodeIx>,
    /// Which resources count devices, by number.
    devices: Vec<bool>,
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

    /// Sets what somebody holds on a node in place of what that was before: `pods` pods of `need`, of
    /// which `going` are about to leave. Shares of pods that were there before stay on their devices.
    pub fn hold(&mut self, index: NodeIx, holder: &Holder, need: &Vector, pods: u32, going: u32) {
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
    }

    /// Adds `times` × `need` to what claimants will take.
    pub fn nominate(&mut self, index: NodeIx, need: &Vector, times: i64) {
        let demand = self.demand(need);
        let entry = &mut self.entries[index];
        entry.nominated.add(need, times);
        entry.refresh();
        for (resource, share) in demand.shares() {
            for _ in 0..times.unsigned_abs() {
                if times < 0 {
                    entry.devices.release(*resource, *share);
                } else {
                    let place = entry.settled.best_shared(*resource, *share);
                    let place = place.and_then(|i| entry.settled.shared()[i].place);
                    entry.devices.seat(*resource, *share, None, place);
                }
                entry.refresh();
            }
        }
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
