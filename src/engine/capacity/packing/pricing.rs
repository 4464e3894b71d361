//! The cost of a placement, by the value that it takes from a node.

use crate::capacity::packing::mix::{Due, Mix};
use crate::capacity::packing::scale::{PARTS, SCALE};
use crate::capacity::packing::states::{PackingState, States};
use crate::capacity::space::{Demand, Space};
use crate::types::vector::{CPU, MEMORY, Vector};
use crate::types::{Name, Node, PodShape};

/// Costs that differ by less than this many thousandths of a device are equal.
const BUCKET: i64 = 20;

/// How badly pods suit a node; smaller is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// The pod requests no device and the node has some.
    among_devices: bool,
    /// The value taken, in steps of [`BUCKET`].
    value: i64,
    /// Devices, in thousandths, that are untouched before and are not afterwards.
    opened: i64,
    /// The rest on the node: devices, or the lack of CPU beside them; then CPU, then memory.
    left: [i64; 3],
}

/// The request of one kind of pods.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// The demand of one pod.
    pub demand: Demand,
    /// The requested devices, as (resource, thousandths).
    pub devices: Vec<(usize, i64)>,
    cpu: bool,
    memory: bool,
}

impl Ask {
    /// The request of pods with that need.
    pub fn new(need: &Vector, is_device: impl Fn(usize) -> bool) -> Self {
        Self {
            devices: need.nonzero().filter(|(resource, _)| is_device(*resource)).collect(),
            cpu: need.get(CPU) > 0,
            memory: need.get(MEMORY) > 0,
            demand: Demand::new(need, is_device),
        }
    }
}

/// The mix of pods, and the states of the nodes with their value.
#[derive(Clone, Debug, Default)]
pub struct Packing {
    mix: Mix,
    states: States,
    /// Incremented whenever costs may have changed.
    version: u64,
}

impl Packing {
    /// Records a new workload of pods with `need`. If true, the state of every node must be [set](Self::set)
    /// again, and the kinds [weighed](Self::weigh) after that.
    pub fn record(
        &mut self,
        pools: Vec<Name>,
        shape: &PodShape,
        need: &Vector,
        is_device: impl Fn(usize) -> bool,
        pods: u32,
    ) -> bool {
        match self.mix.record(pools, shape, need, is_device, pods) {
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

    /// Weighs the kinds by the capacity that is free now.
    pub fn weigh(&mut self) {
        if self.mix.weigh(self.states.idle(), self.states.usable()) {
            self.version += 1;
        }
    }

    /// The version of the costs: while it is equal, equal states cost the same.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The state of a node with free capacity `space`; `before` is the state it leaves.
    pub fn set(
        &mut self,
        before: Option<PackingState>,
        node: Option<(&Node, &Name, bool)>,
        space: &Space,
    ) -> Option<PackingState> {
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

    /// The state of a node whose free capacity changes to `space` and that leaves the state `before`; `None`
    /// when that state was cleared.
    pub fn refill(&mut self, before: PackingState, space: &Space) -> Option<PackingState> {
        let (admits, devices) = self.states.kind_of(before)?;
        let mix = &self.mix;
        let after = self.states.enter(admits, devices, space, |space| mix.usable(admits, space));
        self.states.leave(before);
        Some(after)
    }

    /// Retains a state for a node that may [return to](Self::return_to) it.
    pub fn retain(&mut self, state: PackingState) {
        self.states.retain(state);
    }

    /// Releases a retained state.
    pub fn release(&mut self, state: PackingState) {
        self.states.release(state);
    }

    /// Moves a node from the state `now` back to a retained state.
    pub fn return_to(&mut self, now: PackingState, retained: PackingState) {
        self.states.reenter(retained);
        self.states.leave(now);
    }

    /// The cost of placing `pods` pods on a node in that state.
    #[must_use]
    pub fn cost_in(&self, state: PackingState, ask: &Ask, pods: u32) -> Cost {
        let value = self.mix.value_of(self.states.usable_in(state));
        self.cost_from(state, self.states.get(state).2, value, ask, pods)
    }

    /// The same if the node's free capacity were `space`.
    #[must_use]
    pub fn cost(&self, state: PackingState, space: &Space, ask: &Ask, pods: u32) -> Cost {
        let value = self.mix.value(self.states.get(state).0, space);
        self.cost_from(state, space, value, ask, pods)
    }

    fn cost_from(&self, state: PackingState, space: &Space, value: i64, ask: &Ask, pods: u32) -> Cost {
        let (admits, devices, _) = self.states.get(state);
        let mut after = space.clone();
        after.take(&ask.demand, pods);
        let taken = value - self.mix.value(admits, &after);
        let value = ((taken / PARTS) >> SCALE) + BUCKET / 2;
        let value = value.div_euclid(BUCKET);
        let cpu = after.amounts().get(CPU);
        let memory = if ask.memory { after.amounts().get(MEMORY) } else { 0 };
        if ask.devices.is_empty() {
            let free: i64 = self
                .mix
                .resources()
                .map(|resource| after.amounts().get(resource))
                .fold(0, i64::saturating_add);
            // Among devices, a pod without devices prefers the node with most CPU beyond the need of its free
            // devices.
            let spare =
                if devices { -(cpu.saturating_mul(1000) / free.max(0).saturating_add(500)) } else { 0 };
            let cpu = if ask.cpu { cpu } else { 0 };
            return Cost { among_devices: devices, value, opened: 0, left: [spare, cpu, memory] };
        }
        let asked = || ask.devices.iter().map(|(resource, _)| *resource);
        let untouched =
            |space: &Space| asked().map(|resource| space.untouched(resource)).fold(0, i64::saturating_add);
        Cost {
            among_devices: false,
            value,
            opened: untouched(space).saturating_sub(untouched(&after)),
            left: [
                asked().map(|resource| after.amounts().get(resource)).fold(0, i64::saturating_add),
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
    pub fn usable(&self, state: PackingState, space: &Space) -> Vec<i64> {
        self.mix.usable(self.states.get(state).0, space)
    }
}
