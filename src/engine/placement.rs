//! Which nodes the pods of a workload go to: all of them, or none.
//!
//! A single pod goes where it costs least (see [`super::packing`]): of what the pods seen so far could
//! use, and among equals by best fit, so that whole nodes stay whole. Several pods go to as few nodes as
//! possible, and if several nodes it must be, to such as lie close together. A wish for one topology
//! domain takes the tightest domain that fits; a mere preference goes to as few domains as possible if
//! none does. Pods that ask for no device keep off nodes that have some.

mod domains;
mod freed;
mod spread;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::books::Books;
use super::forest::PoolIx;
use super::model::{PodShape, Topology};
use super::nodes::{Fitting, NodeIx};
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
#[must_use]
pub fn eligible(books: &Books, request: &Request<'_>) -> Arc<[NodeIx]> {
    fitting(books, request, |fitting| fitting.nodes(&books.nodes))
}

/// How many such pods find room on all eligible nodes, wishes for domains aside. Cheap.
#[must_use]
pub fn capacity(books: &Books, request: &Request<'_>, room: Room<'_>) -> u64 {
    fitting(books, request, |fitting| total(books, fitting, room))
}

/// Places all pods, or none. `nodes` are those that are [`eligible`], or some of them.
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
    if request.pods == 0 {
        return (least == 0).then(Placement::new);
    }
    let everywhere = *request.topology == ANYWHERE && request.beside.is_none();
    let quick = fitting(books, request, |fitting| {
        if fitting.count() != nodes.len() {
            return None;
        }
        if total(books, fitting, room) < u64::from(least.max(1)) {
            return Some(None);
        }
        if request.pods == 1 && everywhere && matches!(room, Room::Now) {
            return Some(fitting.best(&books.nodes));
        }
        None
    });
    if let Some(best) = quick {
        return match best {
            Some(node) => Some(Placement::from([(node, 1)])),
            None => (least == 0).then(Placement::new),
        };
    }
    let ask = books.nodes.ask(request.need);
    // A single pod goes where it costs least, whatever lies around; and so do several where nothing lies near.
    let anywhere = everywhere && (request.pods == 1 || books.topology(request.pool).is_empty());
    let roomy = if anywhere { roomy_sites(books, nodes, request, room) } else { None };
    let sites = roomy.unwrap_or_else(|| sites(books, nodes, request, room));
    let spread = Spread::new(books, request, &ask, room, sites);
    let pods = spread.most().min(request.pods);
    if pods < least { None } else { spread.place(pods) }
}

/// Whether pods for which room is kept in these places cannot start yet, there or elsewhere, but will once
/// everything has settled. False also where that would take a closer look. Cheap.
#[must_use]
pub fn is_on_its_way(books: &Books, request: &Request<'_>, kept: &Placement) -> bool {
    fitting(books, request, |fitting| {
        // What is kept is not offered to anybody now, so it has to be counted apart.
        let there =
            |count: &dyn Fn(NodeIx) -> u32| kept.keys().map(|node| u64::from(count(*node))).sum::<u64>();
        let elsewhere = fitting.totals().now - there(&|node| fitting.now(node));
        let most = elsewhere + there(&|node| fitting.unheld(node));
        let backed = |node: &NodeIx| {
            let settled = books.nodes.get(*node).settled();
            request.need.nonzero().all(|(resource, _)| settled.untouched(resource) >= 0)
        };
        most < u64::from(request.pods)
            && fitting.ask().demand.shares().is_empty()
            && kept.keys().all(|node| fitting.admits(*node) && backed(node))
    })
}

/// How many pods find room, were there any number of them.
#[must_use]
pub fn most(books: &Books, nodes: &[NodeIx], request: &Request<'_>, room: Room<'_>) -> u32 {
    if request.topology.required.is_none() {
        let all = |fitting: &Fitting| (fitting.count() == nodes.len()).then(|| total(books, fitting, room));
        if let Some(total) = fitting(books, request, |fitting| all(fitting)) {
            return u32::try_from(total).unwrap_or(u32::MAX);
        }
    }
    let ask = books.nodes.ask(request.need);
    Spread::new(books, request, &ask, room, sites(books, nodes, request, room)).most()
}

/// Those of the nodes on which pods find room, in the order of their names.
#[must_use]
pub fn roomy(books: &Books, nodes: &[NodeIx], request: &Request<'_>, room: Room<'_>) -> Vec<NodeIx> {
    let mut roomy: Vec<NodeIx> = match roomy_sites(books, nodes, request, room) {
        Some(sites) => sites.into_iter().map(|site| site.node).collect(),
        None => {
            let sites = sites(books, nodes, request, room);
            return sites.into_iter().filter(|site| site.fits > 0).map(|site| site.node).collect();
        }
    };
    roomy.sort_by_key(|node| books.nodes.name(*node));
    roomy
}

/// How many pods one node holds.
#[must_use]
pub fn capacity_for(books: &Books, node: NodeIx, need: &Vector, room: Room<'_>) -> u32 {
    let demand = books.nodes.demand(need);
    with_space(books, node, room, |space| space.fits(&demand))
}

fn fitting<T>(books: &Books, request: &Request<'_>, work: impl FnOnce(&mut Fitting) -> T) -> T {
    books.nodes.fitting(request.pool, request.shape, request.need, work)
}

/// How many pods find room on all eligible nodes.
fn total(books: &Books, fitting: &Fitting, room: Room<'_>) -> u64 {
    match room {
        Room::Now => fitting.totals().now,
        Room::Unheld => fitting.totals().unheld,
        Room::Empty => fitting.totals().empty,
        Room::Settled(freed) => {
            let mut total = fitting.totals().settled;
            for node in freed.nodes().filter(|node| fitting.admits(*node)) {
                let fits = with_space(books, node, room, |space| space.fits(&fitting.ask().demand));
                total = total - u64::from(fitting.settled(node)) + u64::from(fits);
            }
            total
        }
    }
}

/// How many pods find room on each of the nodes.
fn sites(books: &Books, nodes: &[NodeIx], request: &Request<'_>, room: Room<'_>) -> Vec<Site> {
    fitting(books, request, |fitting| {
        let fits = |node: NodeIx| match room {
            Room::Now => fitting.now(node),
            Room::Settled(freed) if freed.get(&node).is_none() => fitting.settled(node),
            _ => with_space(books, node, room, |space| space.fits(&fitting.ask().demand)),
        };
        nodes.iter().map(|node| Site { node: *node, fits: fits(*node) }).collect()
    })
}

/// The same of those nodes only on which pods find room, without looking at all; `None` where these are not
/// known, or only some of the eligible nodes are asked for.
fn roomy_sites(books: &Books, nodes: &[NodeIx], request: &Request<'_>, room: Room<'_>) -> Option<Vec<Site>> {
    let Room::Settled(freed) = room else { return None };
    fitting(books, request, |fitting| {
        if fitting.count() != nodes.len() {
            return None;
        }
        let same = fitting.roomy().iter().copied().filter(|node| freed.get(node).is_none());
        let mut sites: Vec<Site> = same.map(|node| Site { node, fits: fitting.settled(node) }).collect();
        for node in freed.nodes().filter(|node| fitting.admits(*node)) {
            let fits = with_space(books, node, room, |space| space.fits(&fitting.ask().demand));
            if fits > 0 {
                sites.push(Site { node, fits });
            }
        }
        Some(sites)
    })
}

/// How many pods one node holds, topology aside.
#[must_use]
pub fn fits_on(books: &Books, node: NodeIx, demand: &Demand, room: Room<'_>) -> u32 {
    with_space(books, node, room, |space| space.fits(demand))
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
        Room::Unheld => work(entry.unheld()),
        Room::Empty => work(entry.empty()),
    }
}
