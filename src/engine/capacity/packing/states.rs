//! Nodes in the same state are alike to every decision about packing; what is worked out for a state
//! is worked out once.

use std::collections::BTreeMap;

use crate::capacity::packing::mix::Kinds;
use crate::capacity::space::Space;
use crate::types::vector::{SLOTS, Vector};

/// The number of a state, which may be another's once no node is in it any more; the second part tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Its place among all states.
    pub place: usize,
    /// Which of those that had the place.
    pub turn: u64,
}

/// The kinds of pods admitted, whether there are devices, and all that is free.
type Key = (Kinds, bool, Vec<i64>, Vec<(usize, i64)>);

#[derive(Clone, Debug)]
struct Slot {
    key: Key,
    space: Space,
    usable: Vec<i64>,
    /// So many nodes are in it, or may go back to it.
    nodes: u32,
    turn: u64,
}

/// The states that open nodes are in.
#[derive(Clone, Debug, Default)]
pub struct States {
    index: BTreeMap<Key, usize>,
    slots: Vec<Slot>,
    unused: Vec<usize>,
    turns: u64,
    /// All that is free on open nodes, but for CPU, memory and pod slots.
    idle: Vector,
    /// What each typical kind can use of it, in parts.
    usable: Vec<i64>,
}

impl States {
    /// Forgets all states; no number is given twice.
    pub fn clear(&mut self) {
        *self = Self { turns: self.turns, ..Self::default() };
    }

    /// One more node is in a state; `usable` says what the typical kinds can use of such room.
    pub fn enter(
        &mut self,
        admits: Kinds,
        devices: bool,
        space: &Space,
        usable: impl FnOnce(&Space) -> Vec<i64>,
    ) -> State {
        let key = key(admits, devices, space);
        let place = match self.index.get(&key) {
            Some(place) => *place,
            None => {
                self.turns += 1;
                let usable = usable(space);
                let slot =
                    Slot { key: key.clone(), space: space.clone(), usable, nodes: 0, turn: self.turns };
                let place = self.unused.pop().unwrap_or(self.slots.len());
                if place == self.slots.len() {
                    self.slots.push(slot)
                } else {
                    self.slots[place] = slot
                }
                self.index.insert(key, place);
                place
            }
        };
        self.slots[place].nodes += 1;
        self.count(place, 1);
        State { place, turn: self.slots[place].turn }
    }

    /// One node fewer is in a state.
    pub fn leave(&mut self, state: State) {
        if self.knows(state) {
            self.count(state.place, -1);
            self.let_go(state);
        }
    }

    /// Keeps a state known for a node that may come back to it.
    pub fn keep(&mut self, state: State) {
        if self.knows(state) {
            self.slots[state.place].nodes += 1;
        }
    }

    /// The node has come back.
    pub fn enter_kept(&mut self, state: State) {
        if self.knows(state) {
            self.count(state.place, 1);
        }
    }

    /// A node will not come back.
    pub fn let_go(&mut self, state: State) {
        if !self.knows(state) {
            return;
        }
        let slot = &mut self.slots[state.place];
        slot.nodes -= 1;
        if slot.nodes == 0 {
            self.index.remove(&slot.key);
            self.unused.push(state.place);
        }
    }

    /// What was before all states were forgotten is counted nowhere.
    fn knows(&self, state: State) -> bool {
        self.slots.get(state.place).is_some_and(|slot| slot.turn == state.turn)
    }

    fn count(&mut self, place: usize, times: i64) {
        let slot = &self.slots[place];
        for (resource, milli) in slot.space.amounts().entries().filter(|(resource, _)| *resource > SLOTS) {
            self.idle.set(resource, self.idle.get(resource) + milli * times);
        }
        self.usable.resize(slot.usable.len().max(self.usable.len()), 0);
        for (sum, usable) in self.usable.iter_mut().zip(&slot.usable) {
            *sum += usable * times;
        }
    }

    /// The kinds of pods that nodes in the state admit, whether they have devices, and their room.
    #[must_use]
    pub fn get(&self, state: State) -> (Kinds, bool, &Space) {
        let slot = &self.slots[state.place];
        (slot.key.0, slot.key.1, &slot.space)
    }

    /// The kinds of pods that nodes in the state admit, and whether they have devices; `None` when all
    /// states were forgotten since.
    #[must_use]
    pub fn kind_of(&self, state: State) -> Option<(Kinds, bool)> {
        let slot = self.slots.get(state.place).filter(|slot| slot.turn == state.turn)?;
        Some((slot.key.0, slot.key.1))
    }

    /// What each typical kind can use of the room in a state, in parts.
    #[must_use]
    pub fn usable_in(&self, state: State) -> &[i64] {
        &self.slots[state.place].usable
    }

    /// All that is free on open nodes, but for CPU, memory and pod slots.
    #[must_use]
    pub fn idle(&self) -> &Vector {
        &self.idle
    }

    /// What each typical kind can use of that, in parts.
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
