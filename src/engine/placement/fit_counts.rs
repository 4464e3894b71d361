//! How many pods of a request fit, on all eligible nodes and on each of them.
//!
//! Fit counts of a shape are cached per pool (`NodeTable::fitting`). Only capacity that differs from the cache
//! is counted node by node.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::capacity::fit;
use crate::placement::capacity::{Capacity, with_space};
use crate::placement::constraints::Rules;
use crate::placement::domains::{self, Site};
use crate::placement::request::Request;
use crate::placement::spread::Spread;
use crate::state::cluster::ClusterState;
use crate::state::nodes::{Fitting, Placement};
use crate::types::ids::NodeId;
use crate::types::{Name, Node};

/// The nodes that may ever hold the pods, in the order of their names.
#[must_use]
pub fn eligible(state: &ClusterState, request: &Request<'_>) -> Arc<[NodeId]> {
    fitting(state, request, |fitting| fitting.nodes(&state.nodes))
}

/// How many such pods fit on all eligible nodes, topology aside. Cheap.
#[must_use]
pub fn capacity(state: &ClusterState, request: &Request<'_>, capacity: Capacity<'_>) -> u64 {
    fitting(state, request, |fitting| total(state, fitting, capacity))
}

/// How many such pods must fit on all eligible nodes before pods that will fit in capacity reserved for them, once evictions under
/// way have ended, could start at once.
///
/// `reserved` is capacity that is masked for these pods. `None` where they can start now, where it is not certain that they
/// will fit, and where only a full search could tell. Cheap.
#[must_use]
pub fn starts_before_settled(
    state: &ClusterState,
    request: &Request<'_>,
    reserved: &Placement,
) -> Option<u64> {
    fitting(state, request, |fitting| {
        // Masked capacity is not part of the total, so it is counted apart.
        let there =
            |count: &dyn Fn(NodeId) -> u32| reserved.keys().map(|node| u64::from(count(*node))).sum::<u64>();
        let backed = |node: &NodeId| {
            let settled = state.nodes.get(*node).settled();
            request.need.nonzero().all(|(resource, _)| settled.untouched(resource) >= 0)
        };
        let masked = there(&|node| fitting.unheld(node));
        let enough = (u64::from(request.pods) + there(&|node| fitting.now(node))).saturating_sub(masked);
        let waits = fitting.totals().now < enough
            && fitting.ask().demand.fractions().is_empty()
            && reserved.keys().all(|node| fitting.admits(*node) && backed(node));
        waits.then_some(enough)
    })
}

/// How many pods would fit on these nodes if the request had any number of them.
#[must_use]
pub fn most(state: &ClusterState, nodes: &[NodeId], request: &Request<'_>, capacity: Capacity<'_>) -> u32 {
    let rules = Rules::of(state, request, capacity);
    if request.topology.required.is_none() && rules.is_none() {
        let all =
            |fitting: &Fitting| (fitting.count() == nodes.len()).then(|| total(state, fitting, capacity));
        if let Some(total) = fitting(state, request, |fitting| all(fitting)) {
            return u32::try_from(total).unwrap_or(u32::MAX);
        }
    }
    let ask = state.nodes.ask(request.need);
    Spread::new(state, request, &ask, capacity, sites(state, nodes, request, capacity), rules).most()
}

/// What the closed nodes of a pool would add if they were open, constraints between pods aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// None of them takes a pod of the request.
    TakeNone,
    /// With them, all nodes together are still too few, were they empty.
    TooFew,
    /// With them the pods fit on empty nodes.
    Enough,
}

/// What the closed nodes of a pool would add to these, the open ones that admit the pods. Its cost follows the number of
/// closed nodes, and with a topology that of all nodes.
#[must_use]
pub fn closed(state: &ClusterState, nodes: &[NodeId], request: &Request<'_>) -> Closed {
    let demand = state.nodes.demand(request.need);
    let mut by_value: BTreeMap<Option<Name>, u64> = BTreeMap::new();
    let mut add = |node: &Node, fits: u32| {
        let value = request.topology.required.as_ref().map(|label| domains::value(node, label));
        // A node without the label has no place in such a topology.
        if value != Some(None) {
            *by_value.entry(value.flatten().cloned()).or_default() += u64::from(fits);
        }
    };
    let mut take_one = false;
    for (info, node) in state.nodes.closed().filter(|(info, _)| info.pool == request.pool) {
        let fits = info.empty().fits(&demand);
        if fits > 0 && fit::admits_once_open(node, request.shape) {
            take_one = true;
            add(node, fits);
        }
    }
    if !take_one {
        return Closed::TakeNone;
    }
    if request.topology.required.is_some() {
        for info in nodes.iter().map(|node| state.nodes.get(*node)) {
            info.node.iter().for_each(|node| add(node, info.empty().fits(&demand)));
        }
    } else {
        let open = capacity(state, request, Capacity::Empty);
        by_value.values_mut().for_each(|fits| *fits += open);
    }
    let enough = by_value.values().any(|fits| *fits >= u64::from(request.pods));
    if enough { Closed::Enough } else { Closed::TooFew }
}

/// Those of the nodes on which a pod fits, in the order of their names.
#[must_use]
pub fn nodes_that_fit(
    state: &ClusterState,
    nodes: &[NodeId],
    request: &Request<'_>,
    capacity: Capacity<'_>,
) -> Vec<NodeId> {
    let Some(sites) = cached_sites(state, nodes, request, capacity) else {
        let sites = sites(state, nodes, request, capacity);
        return sites.into_iter().filter(|site| site.fits > 0).map(|site| site.node).collect();
    };
    let mut nodes: Vec<NodeId> = sites.into_iter().map(|site| site.node).collect();
    nodes.sort_by_key(|node| state.nodes.name(*node));
    nodes
}

/// Calls `work` with the cached fit counts of the request's shape.
pub(super) fn fitting<T>(
    state: &ClusterState,
    request: &Request<'_>,
    work: impl FnOnce(&mut Fitting) -> T,
) -> T {
    state.nodes.fitting(request.pool, request.shape, request.need, work)
}

/// How many pods fit on all eligible nodes.
pub(super) fn total(state: &ClusterState, fitting: &Fitting, capacity: Capacity<'_>) -> u64 {
    match capacity {
        Capacity::Now => fitting.totals().now,
        Capacity::Unheld => fitting.totals().unheld,
        Capacity::Empty => fitting.totals().empty,
        Capacity::Settled(freed) => {
            let mut total = fitting.totals().settled;
            for node in freed.nodes().filter(|node| fitting.admits(*node)) {
                let fits = with_space(state, node, capacity, |space| space.fits(&fitting.ask().demand));
                total = total - u64::from(fitting.settled(node)) + u64::from(fits);
            }
            total
        }
    }
}

/// How many pods fit on each of the nodes.
pub(super) fn sites(
    state: &ClusterState,
    nodes: &[NodeId],
    request: &Request<'_>,
    capacity: Capacity<'_>,
) -> Vec<Site> {
    fitting(state, request, |fitting| {
        let fits = |node: NodeId| match capacity {
            Capacity::Now => fitting.now(node),
            Capacity::Settled(freed) if freed.get(&node).is_none() => fitting.settled(node),
            _ => with_space(state, node, capacity, |space| space.fits(&fitting.ask().demand)),
        };
        nodes.iter().map(|node| Site { node: *node, fits: fits(*node) }).collect()
    })
}

/// The sites on which a pod fits, from the cache, in no particular order.
///
/// `None` when the cache does not hold them, or when `nodes` are not all eligible nodes.
pub(super) fn cached_sites(
    state: &ClusterState,
    nodes: &[NodeId],
    request: &Request<'_>,
    capacity: Capacity<'_>,
) -> Option<Vec<Site>> {
    let Capacity::Settled(freed) = capacity else { return None };
    fitting(state, request, |fitting| {
        if fitting.count() != nodes.len() {
            return None;
        }
        let same = fitting.with_headroom().iter().copied().filter(|node| freed.get(node).is_none());
        let mut sites: Vec<Site> = same.map(|node| Site { node, fits: fitting.settled(node) }).collect();
        for node in freed.nodes().filter(|node| fitting.admits(*node)) {
            let fits = with_space(state, node, capacity, |space| space.fits(&fitting.ask().demand));
            if fits > 0 {
                sites.push(Site { node, fits });
            }
        }
        Some(sites)
    })
}
