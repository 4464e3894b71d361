//! What free room is worth to the pods that are likely to come, and what a pod placed there costs.
//!
//! The value of a node is the sum, over the typical kinds of pods seen so far, of how much of its free
//! devices that kind can use, weighed by how often the kind is seen and by how scarce room for it is. A
//! pod goes where it takes the least value. This is the idea of fragmentation gradient descent (Weng et
//! al., USENIX ATC 2023: the idle devices a typical pod cannot use are lost) with two changes: a kind's
//! use is also counted over all its pods that would fill the node, so that a shortage of CPU is seen
//! ahead; and room that few nodes offer to a kind weighs more than room it finds everywhere.

mod mix;
mod states;

use crate::capacity::packing::mix::{Due, Mix};
use crate::capacity::packing::states::States;
use crate::capacity::space::{Demand, Space};
use crate::types::vector::{CPU, MEMORY, Vector};
use crate::types::{Name, Node, PodShape};

pub use crate::capacity::packing::states::State;

/// Costs that differ by less than this many thousandths of a device count as equal.
const BUCKET: i64 = 20;
/// Weights are fixed-point numbers with so many bits behind the point.
const SCALE: u32 = 20;
/// Usable room is counted in so many parts of a thousandth of a device.
const PARTS: i64 = 4;

/// How badly pods suit a node; smaller is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// A pod that asks for no device would go to a node that has some.
    among_devices: bool,
    /// The value it takes, in steps of [`BUCKET`].
    value: i64,
    /// Devices that were untouched before and would not be any more.
    opened: i64,
    /// What it would leave behind: devices, or the lack of CPU beside them; then CPU, then memory.
    left: [i64; 3],
}

/// What pods of one kind ask for.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// What one takes, taken apart.
    pub demand: Demand,
    /// The devices it asks for, by resource.
    pub devices: Vec<(usize, i64)>,
    cpu: bool,
    memory: bool,
}

impl Ask {
    /// Of pods with that need.
    pub fn new(need: &Vector, is_device: impl Fn(usize) -> bool) -> Self {
        Self {
            devices: need.nonzero().filter(|(resource, _)| is_device(*resource)).collect(),
            cpu: need.get(CPU) > 0,
            memory: need.get(MEMORY) > 0,
            demand: Demand::new(need, is_device),
        }
    }
}

/// The kinds of pods seen, and what each node is worth to them.
#[derive(Clone, Debug, Default)]
pub struct Packing {
    mix: Mix,
    states: States,
    /// Goes up whenever costs may differ from what they were.
    version: u64,
}

impl Packing {
    /// Takes note of a new workload of pods with that need; true if all nodes have to be
    /// [set](Self::set) anew, and the kinds [weighed](Self::weigh) after that.
    pub fn note(
        &mut self,
        pools: Vec<Name>,
        shape: &PodShape,
        need: &Vector,
        is_device: impl Fn(usize) -> bool,
        pods: u32,
    ) -> bool {
        match self.mix.note(pools, shape, need, is_device, pods) {
            Due::Nothing => false,
            Due::Weighing => {
                self.weigh();
                false
            }
            Due::Everything => {
                self.states.clear();
                self.version += 1;
                true
            }
        }
    }

    /// Weighs the kinds by the room there is now.
    pub fn weigh(&mut self) {
        if self.mix.weigh(self.states.idle(), self.states.usable()) {
            self.version += 1;
        }
    }

    /// The version of the costs: equal versions, equal costs of equal states.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The state a node is in whose room is `space`; `before` is the one it was in.
    pub fn set(
        &mut self,
        before: Option<State>,
        node: Option<(&Node, &Name, bool)>,
        space: &Space,
    ) -> Option<State> {
        let after = node.map(|(node, pool, devices)| {
            let admits = self.mix.admitted(node, pool);
            let mix = &self.mix;
            self.states.enter(admits, devices, space, |space| mix.usable(admits, space))
        });
        if let Some(before) = before {
            self.states.leave(before);
        }
        after
    }

    /// The state of a node whose room has become `space` and that was in the state `before`; `None` when
    /// that is forgotten.
    pub fn refill(&mut self, before: State, space: &Space) -> Option<State> {
        let (admits, devices) = self.states.kind_of(before)?;
        let mix = &self.mix;
        let after = self.states.enter(admits, devices, space, |space| mix.usable(admits, space));
        self.states.leave(before);
        Some(after)
    }

    /// Keeps a state known for a node that may [go back](Self::go_back) to it.
    pub fn keep(&mut self, state: State) {
        self.states.keep(state);
    }

    /// Lets go of a state that was kept.
    pub fn let_go(&mut self, state: State) {
        self.states.let_go(state);
    }

    /// A node in the state `now` goes back to one that was kept for it.
    pub fn go_back(&mut self, now: State, kept: State) {
        self.states.enter_kept(kept);
        self.states.leave(now);
    }

    /// What it costs to put so many pods on a node in that state.
    #[must_use]
    pub fn cost_in(&self, state: State, ask: &Ask, pods: u32) -> Cost {
        let value = self.mix.value_of(self.states.usable_in(state));
        self.cost_from(state, self.states.get(state).2, value, ask, pods)
    }

    /// What it costs to put so many pods on a node in that state if its room were `space`.
    #[must_use]
    pub fn cost(&self, state: State, space: &Space, ask: &Ask, pods: u32) -> Cost {
        let value = self.mix.value(self.states.get(state).0, space);
        self.cost_from(state, space, value, ask, pods)
    }

    fn cost_from(&self, state: State, space: &Space, value: i64, ask: &Ask, pods: u32) -> Cost {
        let (admits, devices, _) = self.states.get(state);
        let mut after = space.clone();
        after.take(&ask.demand, pods);
        let taken = value - self.mix.value(admits, &after);
        let value = ((taken / PARTS) >> SCALE) + BUCKET / 2;
        let value = value.div_euclid(BUCKET);
        let cpu = after.amounts().get(CPU);
        let memory = if ask.memory { after.amounts().get(MEMORY) } else { 0 };
        if ask.devices.is_empty() {
            let free: i64 = self.mix.resources().map(|resource| after.amounts().get(resource)).sum();
            // Among devices, where most CPU is beyond what the free devices can use.
            let spare = if devices { -(cpu.saturating_mul(1000) / (free.max(0) + 500)) } else { 0 };
            let cpu = if ask.cpu { cpu } else { 0 };
            return Cost { among_devices: devices, value, opened: 0, left: [spare, cpu, memory] };
        }
        let asked = || ask.devices.iter().map(|(resource, _)| *resource);
        let untouched = |space: &Space| asked().map(|resource| space.untouched(resource)).sum::<i64>();
        Cost {
            among_devices: false,
            value,
            opened: untouched(space) - untouched(&after),
            left: [
                asked().map(|resource| after.amounts().get(resource)).sum(),
                if ask.cpu { cpu } else { 0 },
                memory,
            ],
        }
    }

    #[cfg(test)]
    pub fn idle_and_usable(&self) -> (Vector, Vec<i64>) {
        (self.states.idle().clone(), self.states.usable().to_vec())
    }

    #[cfg(test)]
    pub fn usable(&self, state: State, space: &Space) -> Vec<i64> {
        self.mix.usable(self.states.get(state).0, space)
    }
}
