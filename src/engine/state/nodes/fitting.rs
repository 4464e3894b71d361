//! For every requested kind of pods: the nodes that admit it, how many fit on each, and the node that suits
//! one best. Only the changes since the last request are computed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::capacity::packing::{Ask, Cost};
use crate::types::PodShape;
use crate::types::ids::{NodeId, PoolId};

/// At most this many kinds are cached.
const KINDS: usize = 128;

/// The cached kinds, by pool and shape.
#[derive(Clone, Debug, Default)]
pub struct FittingCache {
    /// The position of each kind in `fittings`.
    positions: BTreeMap<PoolId, BTreeMap<PodShape, usize>>,
    fittings: Vec<Fitting>,
    asked: u64,
}

impl FittingCache {
    /// The cached fitting of a kind; a new one for pods that request `ask`.
    pub fn of(&mut self, pool: PoolId, shape: &PodShape, ask: impl FnOnce() -> Ask) -> &mut Fitting {
        self.asked += 1;
        let known = self.positions.get(&pool).and_then(|kinds| kinds.get(shape)).copied();
        let position = known.unwrap_or_else(|| self.add(pool, shape.clone(), Fitting::new(ask())));
        let fitting = &mut self.fittings[position];
        fitting.asked = self.asked;
        fitting
    }

    /// Adds a kind; if the cache is full, it replaces the kind with the oldest request.
    fn add(&mut self, pool: PoolId, shape: PodShape, fitting: Fitting) -> usize {
        let oldest = (0..self.fittings.len()).min_by_key(|position| self.fittings[*position].asked);
        let position = match oldest.filter(|_| self.fittings.len() >= KINDS) {
            Some(oldest) => {
                self.positions.values_mut().for_each(|kinds| kinds.retain(|_, position| *position != oldest));
                self.fittings[oldest] = fitting;
                oldest
            }
            None => {
                self.fittings.push(fitting);
                self.fittings.len() - 1
            }
        };
        self.positions.entry(pool).or_default().insert(shape, position);
        position
    }
}

/// How many pods of a kind fit on a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fits {
    pub(super) now: u32,
    pub(super) settled: u32,
    pub(super) unheld: u32,
    pub(super) empty: u32,
}

/// How many pods of a kind fit on all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// In the capacity that is on offer now.
    pub now: u64,
    /// Once everything has settled.
    pub settled: u64,
    /// In the capacity that no pod holds.
    pub unheld: u64,
    /// On empty nodes.
    pub empty: u64,
}

impl Totals {
    pub(super) fn replace(&mut self, before: Fits, after: Fits) {
        let replace = |total: &mut u64, before: u32, after: u32| {
            *total = *total - u64::from(before) + u64::from(after);
        };
        replace(&mut self.now, before.now, after.now);
        replace(&mut self.settled, before.settled, after.settled);
        replace(&mut self.unheld, before.unheld, after.unheld);
        replace(&mut self.empty, before.empty, after.empty);
    }
}

/// How one kind of pods fits the nodes of a pool.
#[derive(Clone, Debug, Default)]
pub struct Fitting {
    pub(super) ask: Ask,
    /// The number of its last request, and the number of node changes that it includes.
    pub(super) asked: u64,
    pub(super) known: u64,
    /// By node: whether it admits such pods, and how many more of them fit.
    pub(super) admits: Vec<bool>,
    pub(super) fits: Vec<Fits>,
    /// By node: the revision that is included.
    pub(super) revisions: Vec<Option<u64>>,
    pub(super) totals: Totals,
    /// The nodes on which one more pod fits once everything has settled.
    pub(super) with_headroom: BTreeSet<NodeId>,
    pub(super) count: usize,
    /// The nodes that admit such pods, by name; computed on request.
    pub(super) nodes: Option<Arc<[NodeId]>>,
    /// The cost of one pod in each slot, with the version of the slot's state and the version of the costs.
    pub(super) costs: Vec<Option<(u64, u64, Cost)>>,
    /// A tournament tree over the nodes where one fits now: the root is at 1, node `n` at `leaves + n`.
    pub(super) tree: Vec<u32>,
    /// The version of the costs that the tree is ordered by; `None` while it is outdated.
    pub(super) ordered: Option<u64>,
}

impl Fitting {
    fn new(ask: Ask) -> Self {
        Self { ask, ..Self::default() }
    }

    /// The request of one such pod.
    #[must_use]
    pub fn ask(&self) -> &Ask {
        &self.ask
    }

    /// How many nodes admit such pods, whatever their free capacity.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// How many such pods fit on all nodes.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The nodes on which one more such pod fits once everything has settled.
    #[must_use]
    pub fn with_headroom(&self) -> &BTreeSet<NodeId> {
        &self.with_headroom
    }

    /// How many such pods fit on a node now.
    #[must_use]
    pub fn now(&self, node: NodeId) -> u32 {
        self.fits.get(node.0).map_or(0, |fits| fits.now)
    }

    /// How many such pods fit on a node once everything has settled.
    #[must_use]
    pub fn settled(&self, node: NodeId) -> u32 {
        self.fits.get(node.0).map_or(0, |fits| fits.settled)
    }

    /// How many such pods fit in the capacity of a node that no pod holds.
    #[must_use]
    pub fn unheld(&self, node: NodeId) -> u32 {
        self.fits.get(node.0).map_or(0, |fits| fits.unheld)
    }

    /// Whether a node admits such pods, whatever its free capacity.
    #[must_use]
    pub fn admits(&self, node: NodeId) -> bool {
        self.admits.get(node.0).copied().unwrap_or(false)
    }
}
