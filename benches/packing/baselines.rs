//! The baseline policies except FGD, implemented from their published formulas.

use anyhow::Result;
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::cluster::{Cluster, KINDS, Node, Spot, kind};
use crate::policy::Policy;
use crate::trace::{DEVICE, Pod};

/// The largest node in the formulas that divide by it: processors in thousandths.
const MOST_CPU: f64 = 128_000.0;
/// The largest node's devices.
const MOST_MILLI: f64 = 8_000.0;

/// A random node among those that fit.
pub struct Random(ChaCha8Rng);

impl Random {
    /// With a seed of its own.
    pub fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(1);
        Self(random)
    }
}

impl Policy for Random {
    fn place(&mut self, cluster: &Cluster, pod: &Pod) -> Result<Option<Spot>> {
        let fitting: Vec<usize> =
            (0..cluster.nodes.len()).filter(|index| cluster.nodes[*index].fits(pod)).collect();
        let Some(index) = fitting.choose(&mut self.0).copied() else { return Ok(None) };
        let node = &cluster.nodes[index];
        let devices = if pod.is_fraction() {
            let with_room: Vec<usize> =
                (0..node.devices).filter(|device| node.free[*device] >= pod.milli).collect();
            with_room.choose(&mut self.0).map_or(0, |device| 1 << device)
        } else {
            node.first_free(pod.devices)
        };
        Ok(Some(Spot { node: index, devices }))
    }
}

/// A policy that scores each node on its own and takes the tightest device for a GPU fraction.
pub struct Scored(pub fn(&Node, &Pod) -> i32);

impl Policy for Scored {
    fn place(&mut self, cluster: &Cluster, pod: &Pod) -> Result<Option<Spot>> {
        let best = cluster.best(|_, node| node.fits(pod).then(|| (self.0)(node, pod)));
        Ok(best.map(|node| Spot { node, devices: cluster.nodes[node].tightest(pod) }))
    }
}

/// DotProd: the node where demand and free capacity are most alike in direction.
pub fn dot_product(node: &Node, pod: &Pod) -> i32 {
    let free = (f64::from(node.cpu) / MOST_CPU, f64::from(node.left()) / MOST_MILLI);
    let asked = (f64::from(pod.cpu) / MOST_CPU, pod.request() as f64 / MOST_MILLI);
    (100.0 * (1.0 - (free.0 * asked.0 + free.1 * asked.1) / 2.0)) as i32
}

/// BestFit: the node with the least remaining capacity. The original normalises over the nodes that fit,
/// which keeps the order of scores within 0 to 100, so that step is left out.
pub fn best_fit(node: &Node, pod: &Pod) -> i32 {
    let cpu = f64::from(node.cpu - pod.cpu) / MOST_CPU;
    let devices = (f64::from(node.left()) - pod.request() as f64) / MOST_MILLI;
    (100.0 * (1.0 - (0.5 * cpu + 0.5 * devices))) as i32
}

/// GpuClustering: pods of a kind together.
pub fn clustering(node: &Node, pod: &Pod) -> i32 {
    if pod.devices == 0 {
        return 0;
    }
    let fullness = 25.0 * (MOST_MILLI - f64::from(node.left())) / MOST_MILLI;
    let same = node.kinds[kind(pod)] > 0;
    let others = (0..KINDS).any(|other| other != kind(pod) && node.kinds[other] > 0);
    let base = match (same, others) {
        (true, false) => 75.0,
        (true, true) => 50.0,
        (false, false) => 25.0,
        (false, true) => 0.0,
    };
    (base + fullness) as i32
}

/// GpuPacking: devices in use first, then nodes in use, then the smallest node.
pub fn packing(node: &Node, pod: &Pod) -> i32 {
    if pod.devices == 0 {
        return 0;
    }
    let free: i32 = node.free.iter().map(|free| i32::from(*free == DEVICE)).sum();
    let devices = node.tightest(pod);
    if pod.is_fraction() {
        let tightest = Node::bits(devices).map(|device| node.free[device]).next().unwrap_or(DEVICE);
        if tightest < DEVICE {
            return (100 - tightest / 10).max(50);
        }
    }
    if usize::try_from(free).is_ok_and(|free| free == node.devices) {
        return (33 - free).max(free);
    }
    (50 - i32::try_from(pod.devices).unwrap_or(0)).max(33)
}
