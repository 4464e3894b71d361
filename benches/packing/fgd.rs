//! FGD (USENIX ATC'23), implemented from its formulas: a pod goes to the node where expected fragmentation
//! grows least, with the whole workload's mix known beforehand.
//!
//! Scores are cached by class of pods and node, and computed again only for changed nodes.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::cluster::{Cluster, Node, Spot};
use crate::frag::Typical;
use crate::policy::Policy;
use crate::trace::{DEVICE, Pod};

/// The cached result of a class on a node.
#[derive(Clone, Copy)]
struct Cached {
    version: Option<u32>,
    choice: Option<Choice>,
}

/// The best devices of a node and their score, 0 to 100.
#[derive(Clone, Copy)]
struct Choice {
    score: i32,
    devices: u8,
}

/// The policy.
pub struct Fgd {
    typical: Typical,
    cached: BTreeMap<Pod, Vec<Cached>>,
}

impl Fgd {
    /// For a workload with known typical classes.
    pub fn new(typical: Typical) -> Self {
        Self { typical, cached: BTreeMap::new() }
    }
}

impl Policy for Fgd {
    fn place(&mut self, cluster: &Cluster, pod: &Pod) -> Result<Option<Spot>> {
        let nothing = Cached { version: None, choice: None };
        let cached = self.cached.entry(*pod).or_insert_with(|| vec![nothing; cluster.nodes.len()]);
        for (node, cached) in cluster.nodes.iter().zip(cached.iter_mut()) {
            if cached.version != Some(node.version) {
                *cached = Cached { version: Some(node.version), choice: choose(&self.typical, node, pod) };
            }
        }
        let best = cluster.best(|index, _| cached[index].choice.map(|choice| choice.score));
        let choice = |node: usize| cached[node].choice.map(|choice| Spot { node, devices: choice.devices });
        Ok(best.and_then(choice))
    }
}

/// The best devices of one node; none when the pod does not fit.
fn choose(typical: &Typical, node: &Node, pod: &Pod) -> Option<Choice> {
    if !node.fits(pod) {
        return None;
    }
    let before = typical.fragments(node);
    let score = |devices: u8| {
        let mut after = node.clone();
        after.take(pod, devices);
        let gain = (before - typical.fragments(&after)) as f64 / typical.total() as f64;
        let score = (100.0 / (1.0 + (-gain / f64::from(DEVICE)).exp())) as i32;
        Choice { score, devices }
    };
    if !pod.is_fraction() {
        return Some(score(node.first_free(pod.devices)));
    }
    let free = &node.free[..node.devices];
    // Devices with equal free parts are alike, so one of them is enough.
    let devices = (0..node.devices)
        .filter(|device| free[*device] >= pod.milli && !free[..*device].contains(&free[*device]));
    devices
        .map(|device| score(1 << device))
        .reduce(|best, next| if next.score > best.score { next } else { best })
}
