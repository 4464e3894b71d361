//! Which nodes the pods of a workload go to: all of them, or none.
//!
//! A single pod goes where it leaves the least waste, so that whole nodes stay whole. Several pods go
//! to as few nodes as possible, and if several nodes it must be, to such as lie close together. A wish
//! for one topology domain takes the tightest domain that fits; a mere preference goes to as few
//! domains as possible if none does. Pods that ask for no device keep off nodes that have some.

mod domains;
mod freed;
mod spread;

use std::collections::BTreeMap;

use super::books::Books;
use super::forest::PoolIx;
use super::model::{PodShape, Topology};
use super::nodes::NodeIx;
use super::space::{Demand, Space};
use super::vector::Vector;
pub use freed::Freed;
use spread::{Site, Spread};

/// Pods by node.
pub type Placement = BTreeMap<NodeIx, u32>;

/// Which room counts.
#[derive(Clone, Copy, Debug)]
pub enum Room<'a> {
    /// What can be given away at once.
    Now,
    /// What is left once evictions under way have ended, and these have too.
    Settled(&'a Freed),
    /// What nobody's pods hold, be it needed by a claimant or not.
    Unheld,
    /// All that the nodes offer, as if nobody were on them.
    Empty,
}

/// What is to be placed.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The pool whose nodes may be used.
    pub pool: PoolIx,
    /// What a pod demands of its node.
    pub shape: &'a PodShape,
    /// Within which domains the pods are to lie.
    pub topology: &'a Topology,
    /// What a pod takes.
    pub need: &'a Vector,
    /// How many pods there are.
    pub pods: u32,
    /// Where pods of the same workload run that these go to join.
    pub beside: Option<&'a Placement>,
}

impl Request<'_> {
    /// The same without any wish for domains.
    #[must_use]
    pub fn anywhere(&self) -> Self {
        Self { topology: &ANYWHERE, beside: None, ..*self }
    }
}

/// No wish for domains.
static ANYWHERE: Topology = Topology { required: None, preferred: None };

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
    place_up_to(books, nodes, request, request.pods, room)
}

/// Places as many of the pods as find room, if those are no fewer than `least`.
#[must_use]
pub fn place_up_to(
    books: &Books,
    nodes: &[NodeIx],
    request: &Request<'_>,
    least: u32,
    room: Room<'_>,
) -> Option<Placement> {
    let demand = books.nodes.demand(request.need);
    let spread = Spread::new(books, request, &demand, room, sites(books, nodes, &demand, request.need, room));
    let pods = spread.most().min(request.pods);
    if pods < least { None } else { spread.place(pods) }
}

/// How many pods find room, were there any number of them.
#[must_use]
pub fn most(books: &Books, nodes: &[NodeIx], request: &Request<'_>, room: Room<'_>) -> u32 {
    let demand = books.nodes.demand(request.need);
    Spread::new(books, request, &demand, room, sites(books, nodes, &demand, request.need, room)).most()
}

fn sites(books: &Books, nodes: &[NodeIx], demand: &Demand, need: &Vector, room: Room<'_>) -> Vec<Site> {
    let asked: Vec<usize> = need.nonzero().map(|(index, _)| index).collect();
    let devices: Vec<usize> = asked.into_iter().filter(|index| books.nodes.is_device(*index)).collect();
    let site = |node: &NodeIx| {
        with_space(books, *node, room, |space| Site {
            node: *node,
            fits: space.fits(demand),
            free: devices.iter().map(|index| space.amounts().get(*index).max(0)).sum(),
        })
    };
    nodes.iter().map(site).collect()
}

/// Does something with the room of a node.
fn with_space<T>(books: &Books, node: NodeIx, room: Room<'_>, work: impl FnOnce(&Space) -> T) -> T {
    let entry = books.nodes.get(node);
    match room {
        Room::Now => work(entry.now()),
        Room::Settled(freed) => match freed.room(&books.nodes, node) {
            Some(space) => work(&space),
            None => work(entry.settled()),
        },
        Room::Unheld => work(&entry.unheld()),
        Room::Empty => work(&entry.empty()),
    }
}
