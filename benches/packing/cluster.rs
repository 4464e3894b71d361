//! The cluster for the baselines, and the allocations that every policy's choice is checked against.

use anyhow::{Result, ensure};

use crate::trace::{DEVICE, Machine, Pod};

/// The largest number of devices of a node.
pub const MOST: usize = 8;

/// The number of kinds in [`Node::kinds`]: GPU fractions, and each number of whole devices.
pub const KINDS: usize = MOST + 1;

/// A node and its free capacity.
#[derive(Clone, Debug)]
pub struct Node {
    /// Free processors, in thousandths.
    pub cpu: i32,
    /// Free memory, in MiB.
    pub memory: i32,
    /// The free part of each device, in thousandths; 0 beyond the last device.
    pub free: [i32; MOST],
    /// Number of devices.
    pub devices: usize,
    /// A bit for its device model.
    pub model: u16,
    /// Number of pods with devices by kind: GPU fractions first, then by number of devices.
    pub kinds: [u32; KINDS],
    /// Number of changes.
    pub version: u32,
}

/// The node and devices of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The node's index.
    pub node: usize,
    /// The used devices, a bit each.
    pub devices: u8,
}

impl Node {
    fn new(machine: &Machine) -> Self {
        let mut free = [0; MOST];
        free[..machine.devices].fill(DEVICE);
        Self {
            cpu: machine.cpu,
            memory: machine.memory,
            free,
            devices: machine.devices,
            model: 1 << machine.model,
            kinds: [0; KINDS],
            version: 0,
        }
    }

    /// The free part of all devices together, in thousandths.
    pub fn left(&self) -> i32 {
        self.free.iter().sum()
    }

    /// Whether a pod fits.
    pub fn fits(&self, pod: &Pod) -> bool {
        self.cpu >= pod.cpu
            && self.memory >= pod.memory
            && self.model & pod.models != 0
            && self.free.iter().filter(|free| **free >= pod.milli).take(self.devices).count() >= pod.devices
    }

    /// The devices for a pod: the tightest for a GPU fraction, the first free ones for whole devices.
    pub fn tightest(&self, pod: &Pod) -> u8 {
        if pod.is_fraction() {
            let with_room = (0..self.devices).filter(|device| self.free[*device] >= pod.milli);
            return with_room.min_by_key(|device| self.free[*device]).map_or(0, |device| 1 << device);
        }
        self.first_free(pod.devices)
    }

    /// The first `count` unused devices.
    pub fn first_free(&self, count: usize) -> u8 {
        let whole = (0..self.devices).filter(|device| self.free[*device] == DEVICE);
        whole.take(count).fold(0, |bits, device| bits | 1 << device)
    }

    /// The devices of a set of bits.
    pub fn bits(devices: u8) -> impl Iterator<Item = usize> {
        (0..MOST).filter(move |device| devices & 1 << device != 0)
    }

    /// Allocates the pod's request.
    pub fn take(&mut self, pod: &Pod, devices: u8) {
        self.cpu -= pod.cpu;
        self.memory -= pod.memory;
        for device in Self::bits(devices) {
            self.free[device] -= pod.milli;
        }
        if pod.devices > 0 {
            self.kinds[kind(pod)] += 1;
        }
        self.version += 1;
    }
}

/// The kind of a pod in [`Node::kinds`].
pub fn kind(pod: &Pod) -> usize {
    if pod.is_fraction() { 0 } else { pod.devices }
}

/// All nodes, and the order of their names.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The nodes, in the order of the trace.
    pub nodes: Vec<Node>,
    /// Each node's place in the order of names.
    pub rank: Vec<usize>,
}

impl Cluster {
    /// An empty cluster with nodes in the order of names that `rank` gives.
    pub fn new(machines: &[Machine], rank: Vec<usize>) -> Self {
        Self { nodes: machines.iter().map(Node::new).collect(), rank }
    }

    /// The node with the highest score; among equals the first by name.
    pub fn best(&self, score: impl Fn(usize, &Node) -> Option<i32>) -> Option<usize> {
        let scored =
            self.nodes.iter().enumerate().filter_map(|(index, node)| Some((score(index, node)?, index)));
        scored
            .max_by_key(|(score, index)| (*score, std::cmp::Reverse(self.rank[*index])))
            .map(|(_, index)| index)
    }

    /// Allocates a choice.
    ///
    /// # Errors
    /// When the pod does not fit there.
    pub fn take(&mut self, pod: &Pod, spot: Spot) -> Result<()> {
        let node = &mut self.nodes[spot.node];
        ensure!(
            node.fits(pod)
                && Node::bits(spot.devices).count() == pod.devices
                && Node::bits(spot.devices).all(|device| node.free[device] >= pod.milli),
            "{pod:?} was placed where it does not fit: devices {:b} of {node:?}",
            spot.devices
        );
        node.take(pod, spot.devices);
        Ok(())
    }
}
