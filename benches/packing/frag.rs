//! Expected fragmentation, as the FGD paper (USENIX ATC'23) defines it.

use std::collections::BTreeMap;

use crate::cluster::{Cluster, Node};
use crate::trace::Pod;

/// The part of the pods that the typical classes cover, in per cent.
const COVERED: usize = 95;

/// A class of pods by the fields that matter for fragmentation, which memory does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Class {
    cpu: i32,
    devices: usize,
    milli: i32,
    models: u16,
}

/// The most frequent classes of a workload, with their counts.
#[derive(Clone, Debug)]
pub struct Typical {
    classes: Vec<(Class, i64)>,
    total: i64,
}

impl Typical {
    /// The classes that cover [`COVERED`] per cent of the pods, the most frequent first.
    pub fn of(pods: &[Pod]) -> Self {
        let mut counts: BTreeMap<Class, usize> = BTreeMap::new();
        for pod in pods {
            let class = Class { cpu: pod.cpu, devices: pod.devices, milli: pod.milli, models: pod.models };
            *counts.entry(class).or_default() += 1;
        }
        let mut sorted: Vec<(Class, usize)> = counts.into_iter().collect();
        sorted.sort_by_key(|(class, count)| (std::cmp::Reverse(*count), *class));
        let (mut covered, mut classes) = (0, Vec::new());
        for (class, count) in sorted {
            if covered * 100 >= COVERED * pods.len() {
                break;
            }
            covered += count;
            classes.push((class, count as i64));
        }
        Self { classes, total: covered as i64 }
    }

    /// The free devices of a node that a pod of the mix is expected to be unable to use, in thousandths times
    /// [`Typical::total`].
    pub fn fragments(&self, node: &Node) -> i64 {
        let left = i64::from(node.left());
        let mut sum = 0;
        for (class, count) in &self.classes {
            let (mut with_room, mut too_small) = (0, 0);
            for free in &node.free[..node.devices] {
                if *free >= class.milli {
                    with_room += 1;
                } else {
                    too_small += i64::from(*free);
                }
            }
            let fits = node.cpu >= class.cpu && node.model & class.models != 0 && with_room >= class.devices;
            sum += count * if class.milli > 0 && fits { too_small } else { left };
        }
        sum
    }

    /// The divisor of sums of [`Typical::fragments`].
    pub fn total(&self) -> i64 {
        self.total
    }

    /// The sum over all nodes, in thousandths of a device.
    pub fn of_cluster(&self, cluster: &Cluster) -> f64 {
        let sum: i64 = cluster.nodes.iter().map(|node| self.fragments(node)).sum();
        sum as f64 / self.total as f64
    }
}
