//! Which nodes the pods of a workload go to: all of them, or none.
//!
//! A single pod goes where it costs least (see [`crate::capacity::packing`]): of what the pods seen so far could
//! use, and among equals by best fit, so that whole nodes stay whole. Several pods go to as few nodes as
//! possible, and if several nodes it must be, to such as lie close together. A wish for one topology
//! domain takes the tightest domain that fits; a mere preference goes to as few domains as possible if
//! none does. Pods that ask for no device keep off nodes that have some.

mod domains;
mod spread;
pub mod waiting;

use std::sync::Arc;

use crate::capacity::space::{Demand, Space};
use crate::placement::domains::Site;
use crate::placement::spread::Spread;
use crate::state::cluster::ClusterState;
use crate::state::nodes::Fitting;
use crate::types::ids::{NodeId, PoolId};
use crate::types::vector::Vector;
use crate::types::{PodShape, Topology};

pub use crate::state::freed::Freed;
pub use crate::state::nodes::Placement;

/// Which room counts.
#[derive(Clone, Copy, Debug)]
pub enum Capacity<'a> {
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
    pub pool: PoolId,
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
pub fn eligible(state: &ClusterState, request: &Request<'_>) -> Arc<[NodeId]> {
    fitting(state, request, |fitting| fitting.nodes(&state.nodes))
}

/// How many such pods find room on all eligible nodes, wishes for domains aside. Cheap.
#[must_use]
pub fn capacity(state: &ClusterState, request: &Request<'_>, room: Capacity<'_>) -> u64 {
    fitting(state, request, |fitting| total(state, fitting, room))
}

/// Places all pods, or none. `nodes` are those that are [`eligible`], or some of them.
#[must_use]
pub fn place(
    state: &ClusterState,
    nodes: &[NodeId],
    request: &Request<'_>,
    room: Capacity<'_>,
) -> Option<Placement> {
    place_up_to(state, nodes, request, request.pods, room)
}

/// Places as many of the pods as find room, if those are no fewer than `least`.
#[must_use]
pub fn place_up_to(
    state: &ClusterState,
    nodes: &[NodeId],
    request: &Request<'_>,
    least: u32,
    room: Capacity<'_>,
) -> Option<Placement> {
    if request.pods == 0 {
        return (least == 0).then(Placement::new);
    }
    let everywhere = *request.topology == ANYWHERE && request.beside.is_none();
    let quick = fitting(state, request, |fitting| {
        if fitting.count() != nodes.len() {
            return None;
        }
        if total(state, fitting, room) < u64::from(least.max(1)) {
            return Some(None);
        }
        if request.pods == 1 && everywhere && matches!(room, Capacity::Now) {
            return Some(fitting.best(&state.nodes));
        }
        None
    });
    if let Some(best) = quick {
        return match best {
            Some(node) => Some(Placement::from([(node, 1)])),
            None => (least == 0).then(Placement::new),
        };
    }
    let ask = state.nodes.ask(request.need);
    // A single pod goes where it costs least, whatever lies around; and so do several where nothing lies near.
    let anywhere = everywhere && (request.pods == 1 || state.topology(request.pool).is_empty());
    let roomy = if anywhere { roomy_sites(state, nodes, request, room) } else { None };
    let sites = roomy.unwrap_or_else(|| sites(state, nodes, request, room));
    let spread = Spread::new(state, request, &ask, room, sites);
    let pods = spread.most().min(request.pods);
    if pods < least { None } else { spread.place(pods) }
}

/// Whether pods for which room is kept in these places cannot start yet, there or elsewhere, but will once
/// everything has settled. False also where that would take a closer look. Cheap.
#[must_use]
pub fn is_on_its_way(state: &ClusterState, request: &Request<'_>, kept: &Placement) -> bool {
    fitting(state, request, |fitting| {
        // What is kept is not offered to anybody now, so it has to be counted apart.
        let there =
            |count: &dyn Fn(NodeId) -> u32| kept.keys().map(|node| u64::from(count(*node))).sum::<u64>();
        let elsewhere = fitting.totals().now - there(&|node| fitting.now(node));
        let most = elsewhere + there(&|node| fitting.unheld(node));
        let backed = |node: &NodeId| {
            let settled = state.nodes.get(*node).settled();
            request.need.nonzero().all(|(resource, _)| settled.untouched(resource) >= 0)
        };
        most < u64::from(request.pods)
            && fitting.ask().demand.fractions().is_empty()
            && kept.keys().all(|node| fitting.admits(*node) && backed(node))
    })
}

/// How many pods find room, were there any number of them.
#[must_use]
pub fn most(state: &ClusterState, nodes: &[NodeId], request: &Request<'_>, room: Capacity<'_>) -> u32 {
    if request.topology.required.is_none() {
        let all = |fitting: &Fitting| (fitting.count() == nodes.len()).then(|| total(state, fitting, room));
        if let Some(total) = fitting(state, request, |fitting| all(fitting)) {
            return u32::try_from(total).unwrap_or(u32::MAX);
        }
    }
    let ask = state.nodes.ask(request.need);
    Spread::new(state, request, &ask, room, sites(state, nodes, request, room)).most()
}

/// Those of the nodes on which pods find room, in the order of their names.
#[must_use]
pub fn roomy(
    state: &ClusterState,
    nodes: &[NodeId],
    request: &Request<'_>,
    room: Capacity<'_>,
) -> Vec<NodeId> {
    let mut roomy: Vec<NodeId> = match roomy_sites(state, nodes, request, room) {
        Some(sites) => sites.into_iter().map(|site| site.node).collect(),
        None => {
            let sites = sites(state, nodes, request, room);
            return sites.into_iter().filter(|site| site.fits > 0).map(|site| site.node).collect();
        }
    };
    roomy.sort_by_key(|node| state.nodes.name(*node));
    roomy
}

/// How many pods one node holds.
#[must_use]
pub fn capacity_for(state: &ClusterState, node: NodeId, need: &Vector, room: Capacity<'_>) -> u32 {
    let demand = state.nodes.demand(need);
    with_space(state, node, room, |space| space.fits(&demand))
}

fn fitting<T>(state: &ClusterState, request: &Request<'_>, work: impl FnOnce(&mut Fitting) -> T) -> T {
    state.nodes.fitting(request.pool, request.shape, request.need, work)
}

/// How many pods find room on all eligible nodes.
fn total(state: &ClusterState, fitting: &Fitting, room: Capacity<'_>) -> u64 {
    match room {
        Capacity::Now => fitting.totals().now,
        Capacity::Unheld => fitting.totals().unheld,
        Capacity::Empty => fitting.totals().empty,
        Capacity::Settled(freed) => {
            let mut total = fitting.totals().settled;
            for node in freed.nodes().filter(|node| fitting.admits(*node)) {
                let fits = with_space(state, node, room, |space| space.fits(&fitting.ask().demand));
                total = total - u64::from(fitting.settled(node)) + u64::from(fits);
            }
            total
        }
    }
}

/// How many pods find room on each of the nodes.
fn sites(state: &ClusterState, nodes: &[NodeId], request: &Request<'_>, room: Capacity<'_>) -> Vec<Site> {
    fitting(state, request, |fitting| {
        let fits = |node: NodeId| match room {
            Capacity::Now => fitting.now(node),
            Capacity::Settled(freed) if freed.get(&node).is_none() => fitting.settled(node),
            _ => with_space(state, node, room, |space| space.fits(&fitting.ask().demand)),
        };
        nodes.iter().map(|node| Site { node: *node, fits: fits(*node) }).collect()
    })
}

/// The same of those nodes only on which pods find room, without looking at all; `None` where these are not
/// known, or only some of the eligible nodes are asked for.
fn roomy_sites(
    state: &ClusterState,
    nodes: &[NodeId],
    request: &Request<'_>,
    room: Capacity<'_>,
) -> Option<Vec<Site>> {
    let Capacity::Settled(freed) = room else { return None };
    fitting(state, request, |fitting| {
        if fitting.count() != nodes.len() {
            return None;
        }
        let same = fitting.with_headroom().iter().copied().filter(|node| freed.get(node).is_none());
        let mut sites: Vec<Site> = same.map(|node| Site { node, fits: fitting.settled(node) }).collect();
        for node in freed.nodes().filter(|node| fitting.admits(*node)) {
            let fits = with_space(state, node, room, |space| space.fits(&fitting.ask().demand));
            if fits > 0 {
                sites.push(Site { node, fits });
            }
        }
        Some(sites)
    })
}

/// How many pods one node holds, topology aside.
#[must_use]
pub fn fits_on(state: &ClusterState, node: NodeId, demand: &Demand, room: Capacity<'_>) -> u32 {
    with_space(state, node, room, |space| space.fits(demand))
}

/// Does something with the room of a node.
fn with_space<T>(
    state: &ClusterState,
    node: NodeId,
    room: Capacity<'_>,
    work: impl FnOnce(&Space) -> T,
) -> T {
    let info = state.nodes.get(node);
    match room {
        Capacity::Now => work(info.now()),
        Capacity::Settled(freed) => match freed.settled_space(&state.nodes, node) {
            Some(space) => work(&space),
            None => work(info.settled()),
        },
        Capacity::Unheld => work(info.unheld()),
        Capacity::Empty => work(info.empty()),
    }
}
