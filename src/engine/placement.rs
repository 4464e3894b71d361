//! Which nodes the pods of a workload go to: all of them, or none.
//!
//! Best fit: a single pod goes where it leaves the fewest devices free, so that whole nodes stay
//! whole; several pods go to as few nodes as possible. Pods that ask for no device keep off nodes
//! that have some. Ties go to the least CPU, then the least memory left, then the node's name.

use std::collections::BTreeMap;

use super::books::Books;
use super::devices::Holder;
use super::forest::PoolIx;
use super::model::{PodShape, WorkloadId};
use super::nodes::{NodeIx, NodeTable};
use super::space::{Demand, Space};
use super::vector::Vector;

/// Pods by node.
pub type Placement = BTreeMap<NodeIx, u32>;

/// Room that a decision imagines to be free besides what is, or to be taken.
#[derive(Clone, Debug, Default)]
pub struct Freed(BTreeMap<NodeIx, Change>);

/// What is imagined to be different on one node.
#[derive(Clone, Debug, Default)]
struct Change {
    /// What becomes free, less what is taken.
    net: Vector,
    /// What becomes free.
    given: Vector,
    /// Whose pods go, and how many.
    gone: Vec<(Holder, u32)>,
    /// The needs of pods that come, and how many.
    taken: Vec<(Vector, u32)>,
}

impl Freed {
    /// Nothing is different.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Imagines that so many pods of a workload that are not about to leave are gone from a node.
    pub fn give(&mut self, node: NodeIx, id: &WorkloadId, need: &Vector, pods: u32) {
        let change = self.0.entry(node).or_default();
        change.net.add(need, i64::from(pods));
        change.given.add(need, i64::from(pods));
        change.gone.push((Holder::Workload(id.clone()), pods));
    }

    /// Imagines that so many pods come to a node.
    pub fn take(&mut self, node: NodeIx, need: &Vector, pods: u32) {
        let change = self.0.entry(node).or_default();
        change.net.add(need, -i64::from(pods));
        change.taken.push((need.clone(), pods));
    }

    /// What is free on a node besides what is, less what is taken.
    #[must_use]
    pub fn get(&self, node: &NodeIx) -> Option<&Vector> {
        self.0.get(node).map(|change| &change.net)
    }

    /// The room of a node once everything has settled and this has come true.
    fn room(&self, nodes: &NodeTable, node: NodeIx) -> Option<Space> {
        let change = self.0.get(&node)?;
        let mut space = nodes.get(node).settled_without(&change.given, &change.gone);
        for (need, pods) in &change.taken {
            space.take(&nodes.demand(need), *pods);
        }
        Some(space)
    }
}

/// Which room counts.
#[derive(Clone, Copy, Debug)]
pub enum Room<'a> {
    /// What can be given away at once.
    Now,
    /// What is left once evictions under way have ended, and these have too.
    Settled(&'a Freed),
}

/// What is to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The pool whose nodes may be used.
    pub pool: PoolIx,
    /// What a pod demands of its node.
    pub shape: &'a PodShape,
    /// What a pod takes.
    pub need: &'a Vector,
    /// How many pods there are.
    pub pods: u32,
}

/// How well a pod fits a node; smaller is better.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waste {
    /// Devices that were untouched before and are not any more.
    opened: i64,
    devices: i64,
    others: Vec<i64>,
}

/// The nodes that may ever hold the pods, in the order of their names.
pub fn eligible<'a>(books: &'a Books, request: &Request<'a>) -> impl Iterator<Item = NodeIx> + 'a {
    let (pool, shape) = (request.pool, request.shape);
    books.nodes.alive().filter_map(move |(index, entry, node)| {
        (entry.pool == pool && entry.open() && super::fit::admits(node, shape)).then_some(index)
    })
}

/// Places all pods, or none.
#[must_use]
pub fn place(books: &Books, nodes: &[NodeIx], request: &Request<'_>, room: Room<'_>) -> Option<Placement> {
    let demand = books.nodes.demand(request.need);
    let mut candidates: Vec<(NodeIx, u32)> = Vec::new();
    let mut total = 0_u32;
    for node in nodes {
        let fits = fits_on(books, *node, &demand, room).min(request.pods);
        if fits > 0 {
            candidates.push((*node, fits));
            total = total.saturating_add(fits);
        }
    }
    if total < request.pods {
        return None;
    }
    // Fewest nodes: the roomiest first, until what remains fits one node; that one is chosen by best fit.
    // Taking whole nodes keeps the order of names among equals, because the sort is stable.
    candidates.sort_by_key(|(_, fits)| std::cmp::Reverse(*fits));
    let mut placement = Placement::new();
    let mut remaining = request.pods;
    while remaining > 0 {
        let last = candidates
            .iter()
            .enumerate()
            .filter(|(_, (_, fits))| *fits >= remaining)
            .min_by_key(|(_, (node, _))| {
                (waste(books, *node, request.need, &demand, remaining, room), books.nodes.name(*node))
            })
            .map(|(position, _)| position);
        let (node, fits) = candidates.remove(last.unwrap_or(0));
        let pods = fits.min(remaining);
        placement.insert(node, pods);
        remaining -= pods;
    }
    Some(placement)
}

/// How many pods one node holds.
fn fits_on(books: &Books, node: NodeIx, demand: &Demand, room: Room<'_>) -> u32 {
    let entry = books.nodes.get(node);
    match room {
        Room::Now => entry.now().fits(demand),
        Room::Settled(freed) => match freed.room(&books.nodes, node) {
            None => entry.settled().fits(demand),
            Some(space) => space.fits(demand),
        },
    }
}

fn waste(books: &Books, node: NodeIx, need: &Vector, demand: &Demand, pods: u32, room: Room<'_>) -> Waste {
    let entry = books.nodes.get(node);
    let mut left = match room {
        Room::Now => entry.now().clone(),
        Room::Settled(freed) => freed.room(&books.nodes, node).unwrap_or_else(|| entry.settled().clone()),
    };
    let of_devices = |index: &usize| books.resources.is_device(*index);
    let asked = || need.nonzero().map(|(index, _)| index).filter(of_devices);
    let untouched = |space: &Space| asked().map(|index| space.untouched(index)).sum::<i64>();
    let before = untouched(&left);
    left.take(demand, pods);
    let opened = before - untouched(&left);
    let devices = if asked().next().is_some() { left.amounts() } else { &entry.allocatable };
    Waste {
        opened,
        devices: devices.entries().filter(|(index, _)| of_devices(index)).map(|(_, milli)| milli).sum(),
        others: left
            .amounts()
            .entries()
            .filter(|(index, _)| !of_devices(index))
            .filter(|(index, _)| need.get(*index) > 0)
            .map(|(_, milli)| milli)
            .collect(),
    }
}
