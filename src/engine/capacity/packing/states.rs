//! The states of nodes.
//!
//! Nodes in the same state are alike to every decision about packing, so each value is computed once per state.

use std::collections::BTreeMap;

use crate::capacity::packing::mix::Kinds;
use crate::capacity::space::Space;
use crate::types::vector::{SLOTS, Vector};

/// A state. Its slot is used again when no node is in the state any more; the version tells the uses apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackingState {
    /// Its slot among all states.
    pub slot: usize,
    /// The version of the slot's use.
    pub version: u64,
}

/// The admitted kinds, whether there are devices, and the free capacity.
type Key = (Kinds, bool, Vec<i64>, Vec<(usize, i64)>);

#[derive(Clone, Debug)]
struct Slot {
    key: Key,
    space: Space,
    usable: Vec<i64>,
    /// The number of nodes that are in this state or may return to it.
    nodes: u32,
    version: u64,
}

/// The states of all open nodes.
#[derive(Clone, Debug, Default)]
pub struct States {
    index: BTreeMap<Key, usize>,
    slots: Vec<Slot>,
    unused: Vec<usize>,
    versions: u64,
    /// The free capacity of open nodes, except CPU, memory and pod slots.
    idle: Vector,
    /// The part of it that each typical kind can use, in parts.
    usable: Vec<i64>,
}

impl States {
    /// Clears all states; versions go on, so no earlier state is ever valid again.
    pub fn clear(&mut self) {
        *self = Self { versions: self.versions, ..Self::default() };
    }

    /// Adds one node to a state; `usable` computes the part of a space that each typical kind can use.
    pub fn enter(
        &mut self,
        admits: Kinds,
        devices: bool,
        space: &Space,
        usable: impl FnOnce(&Space) -> Vec<i64>,
    ) -> PackingState {
        let key = key(admits, devices, space);
        let slot = match self.index.get(&key) {
            Some(slot) => *slot,
            None => {
                self.versions += 1;
                let usable = usable(space);
                let entry =
                    Slot { key: key.clone(), space: space.clone(), usable, nodes: 0, version: self.versions };
                let slot = self.unused.pop().unwrap_or(self.slots.len());
                if slot == self.slots.len() {
                    self.slots.push(entry);
                } else {
                    self.slots[slot] = entry;
                }
                self.index.insert(key, slot);
                slot
            }
        };
        self.slots[slot].nodes += 1;
        self.count(slot, 1);
        PackingState { slot, version: self.slots[slot].version }
    }

    /// Removes one node from a state.
    pub fn leave(&mut self, state: PackingState) {
        if self.is_current(state) {
            self.count(state.slot, -1);
            self.release(state);
        }
    }

    /// Retains a state for a node that may return to it.
    pub fn retain(&mut self, state: PackingState) {
        if self.is_current(state) {
            self.slots[state.slot].nodes += 1;
        }
    }

    /// A node returns to a retained state.
    pub fn reenter(&mut self, state: PackingState) {
        if self.is_current(state) {
            self.count(state.slot, 1);
        }
    }

    /// A node gives up its hold on a state; the last one frees the slot.
    pub fn release(&mut self, state: PackingState) {
        if !self.is_current(state) {
            return;
        }
        let slot = &mut self.slots[state.slot];
        slot.nodes -= 1;
        if slot.nodes == 0 {
            self.index.remove(&slot.key);
            self.unused.push(state.slot);
        }
    }

    /// Whether a state is still counted; a state from before a clear is not.
    fn is_current(&self, state: PackingState) -> bool {
        self.slots.get(state.slot).is_some_and(|slot| slot.version == state.version)
    }

    fn count(&mut self, slot: usize, times: i64) {
        let slot = &self.slots[slot];
        for (resource, milli) in slot.space.amounts().entries().filter(|(resource, _)| *resource > SLOTS) {
            self.idle.set(resource, self.idle.get(resource).saturating_add(milli.saturating_mul(times)));
        }
        self.usable.resize(slot.usable.len().max(self.usable.len()), 0);
        for (sum, usable) in self.usable.iter_mut().zip(&slot.usable) {
            *sum = sum.saturating_add(usable.saturating_mul(times));
        }
    }

    /// The admitted kinds of nodes in the state, whether they have devices, and their free capacity.
    #[must_use]
    pub fn get(&self, state: PackingState) -> (Kinds, bool, &Space) {
        let slot = &self.slots[state.slot];
        (slot.key.0, slot.key.1, &slot.space)
    }

    /// The admitted kinds of nodes in the state, and whether they have devices; `None` when the state was
    /// cleared.
    #[must_use]
    pub fn kind_of(&self, state: PackingState) -> Option<(Kinds, bool)> {
        let slot = self.slots.get(state.slot).filter(|slot| slot.version == state.version)?;
        Some((slot.key.0, slot.key.1))
    }

    /// The part of the state's free capacity that each typical kind can use, in parts.
    #[must_use]
    pub fn usable_in(&self, state: PackingState) -> &[i64] {
        &self.slots[state.slot].usable
    }

    /// The free capacity of open nodes, except CPU, memory and pod slots.
    #[must_use]
    pub fn idle(&self) -> &Vector {
        &self.idle
    }

    /// The part of it that each typical kind can use, in parts.
    #[must_use]
    pub fn usable(&self) -> &[i64] {
        &self.usable
    }
}

fn key(admits: Kinds, devices: bool, space: &Space) -> Key {
    let mut amounts: Vec<i64> = space.amounts().entries().map(|(_, milli)| milli).collect();
    while amounts.last() == Some(&0) {
        amounts.pop();
    }
    let mut shared: Vec<(usize, i64)> = space.shared().iter().map(|d| (d.resource, d.left)).collect();
    shared.sort_unstable();
    (admits, devices, amounts, shared)
}
