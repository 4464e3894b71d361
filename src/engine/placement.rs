//! Which nodes the pods of a workload go to: all of them, or none.
//!
//! Best fit: a single pod goes where it leaves the fewest devices free, so that whole nodes stay
//! whole; several pods go to as few nodes as possible. Pods that ask for no device keep off nodes
//! that have some. Ties go to the least CPU, then the least memory left, then the node's name.

use std::collections::BTreeMap;

use super::books::Books;
use super::forest::PoolIx;
use super::model::PodShape;
use super::nodes::NodeIx;
use super::vector::Vector;

/// Pods by node.
pub type Placement = BTreeMap<NodeIx, u32>;

/// Room that a decision imagines to be free besides what is.
pub type Freed = BTreeMap<NodeIx, Vector>;

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
    let mut candidates: Vec<(NodeIx, u32)> = Vec::new();
    let mut total = 0_u32;
    for node in nodes {
        let fits = capacity_for(books, *node, request.need, room).min(request.pods);
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
                (waste(books, *node, request.need, remaining, room), books.nodes.name(*node))
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
#[must_use]
pub fn capacity_for(books: &Books, node: NodeIx, need: &Vector, room: Room<'_>) -> u32 {
    let entry = books.nodes.get(node);
    match room {
        Room::Now => entry.free_now().fits(need),
        Room::Settled(freed) => match freed.get(&node) {
            None => entry.free_settled().fits(need),
            Some(freed) => entry.free_settled().plus(freed, 1).fits(need),
        },
    }
}

fn waste(books: &Books, node: NodeIx, need: &Vector, pods: u32, room: Room<'_>) -> Waste {
    let entry = books.nodes.get(node);
    let free = match room {
        Room::Now => entry.free_now().clone(),
        Room::Settled(freed) => {
            freed.get(&node).map_or_else(|| entry.free_settled().clone(), |f| entry.free_settled().plus(f, 1))
        }
    };
    let left = free.plus(need, -i64::from(pods));
    let asks_for_devices = need.nonzero().any(|(index, _)| books.resources.is_device(index));
    let devices = if asks_for_devices { &left } else { &entry.allocatable };
    Waste {
        devices: devices
            .entries()
            .filter(|(index, _)| books.resources.is_device(*index))
            .map(|(_, m)| m)
            .sum(),
        others: left
            .entries()
            .filter(|(index, _)| !books.resources.is_device(*index))
            .filter(|(index, _)| need.get(*index) > 0)
            .map(|(_, milli)| milli)
            .collect(),
    }
}
