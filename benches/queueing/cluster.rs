//! Nodes of eight GPUs for the reference policies: consolidated best fit.

use std::collections::BTreeSet;

use super::trace::NODE;

/// Allocated GPUs by node.
pub type Taken = Vec<(usize, u32)>;

/// Free GPUs by node.
#[derive(Clone, Debug)]
pub struct Cluster {
    free: Vec<u32>,
    /// The nodes by their number of free GPUs.
    with_free: Vec<BTreeSet<usize>>,
}

impl Cluster {
    /// A cluster of empty nodes.
    #[must_use]
    pub fn new(nodes: u32) -> Self {
        let mut with_free = vec![BTreeSet::new(); NODE as usize + 1];
        with_free[NODE as usize] = (0..nodes as usize).collect();
        Self { free: vec![NODE; nodes as usize], with_free }
    }

    /// The nodes for a job: the fullest node that fits it, or whole nodes and, for the remainder, the fullest
    /// that fits that.
    #[must_use]
    pub fn find(&self, gpus: u32) -> Option<Taken> {
        let whole = if gpus > NODE { gpus / NODE } else { 0 };
        let rest = gpus - whole * NODE;
        let mut taken: Taken =
            self.with_free[NODE as usize].iter().take(whole as usize).map(|node| (*node, NODE)).collect();
        if taken.len() < whole as usize {
            return None;
        }
        if rest > 0 {
            let fits = (rest..=NODE).flat_map(|free| self.with_free[free as usize].iter());
            let node = fits.copied().find(|node| taken.iter().all(|(other, _)| other != node))?;
            taken.push((node, rest));
        }
        Some(taken)
    }

    /// Allocates the GPUs.
    pub fn take(&mut self, taken: &Taken) {
        for (node, gpus) in taken {
            self.set(*node, self.free[*node] - gpus);
        }
    }

    /// Frees the GPUs.
    pub fn give(&mut self, taken: &Taken) {
        for (node, gpus) in taken {
            self.set(*node, self.free[*node] + gpus);
        }
    }

    fn set(&mut self, node: usize, free: u32) {
        self.with_free[self.free[node] as usize].remove(&node);
        self.with_free[free as usize].insert(node);
        self.free[node] = free;
    }
}
