//! Topology domains: groups of nodes that share the value of a label.

use std::collections::{BTreeMap, BTreeSet};

use crate::placement::request::Request;
use crate::state::cluster::ClusterState;
use crate::state::nodes::{NodeTable, Placement, selects};
use crate::types::ids::NodeId;
use crate::types::{Name, Node};

/// A node that may hold pods.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    /// The node.
    pub node: NodeId,
    /// How many pods fit on the node.
    pub fits: u32,
}

/// The label that names the node itself; a node without it is a domain by its own name.
pub const HOSTNAME: &str = "kubernetes.io/hostname";

/// The domain of a node for a label, if the node has one.
#[must_use]
pub fn value<'a>(node: &'a Node, label: &str) -> Option<&'a Name> {
    node.labels.get(label).or_else(|| (label == HOSTNAME).then_some(&node.name))
}

/// The sites by domain. Sites without a domain are left out.
#[must_use]
pub fn group(nodes: &NodeTable, sites: &[Site], label: &str) -> BTreeMap<Name, Vec<Site>> {
    let mut domains: BTreeMap<Name, Vec<Site>> = BTreeMap::new();
    for site in sites {
        if let Some(name) = nodes.get(site.node).node.as_ref().and_then(|node| value(node, label)) {
            domains.entry(name.clone()).or_default().push(*site);
        }
    }
    domains
}

/// How many pods fit on all of the sites.
#[must_use]
pub fn total_fits(sites: &[Site]) -> u32 {
    sites.iter().fold(0, |sum, site| sum.saturating_add(site.fits))
}

/// The tightest domain in which that many pods fit: fewest free devices, then smallest headroom, then name.
pub fn tightest(
    domains: &BTreeMap<Name, Vec<Site>>,
    pods: u32,
    free: impl Fn(&Site) -> i64,
) -> Option<&Vec<Site>> {
    let fitting = domains.values().filter(|sites| total_fits(sites) >= pods);
    fitting.min_by_key(|sites| (sites.iter().map(&free).fold(0, i64::saturating_add), total_fits(sites)))
}

/// The labels of domains that all pods of a workload share, so that its first pods decide where the others may go: that of its
/// required topology, and those of an affinity that selects its own pods.
fn binding<'a>(request: &Request<'a>) -> impl Iterator<Item = &'a Name> + use<'a> {
    let profile = &**request.profile;
    let own = profile.together.iter().filter(|term| selects(&term.pods, profile));
    request.topology.required.iter().chain(own.map(|term| &term.topology_key))
}

/// Whether the first pods of a workload decide in which domain the others may go.
#[must_use]
pub fn bind_the_rest(request: &Request<'_>) -> bool {
    binding(request).next().is_some()
}

/// Those of the nodes that lie in the domains of a placement, as far as its pods bind the others of the workload.
#[must_use]
pub fn in_the_domains_of(
    state: &ClusterState,
    nodes: &[NodeId],
    request: &Request<'_>,
    placement: &Placement,
) -> Vec<NodeId> {
    let mut nodes = nodes.to_vec();
    for label in binding(request) {
        let domain = |node: &NodeId| state.nodes.get(*node).node.as_ref().and_then(|node| value(node, label));
        let domains: BTreeSet<&Name> = placement.keys().filter_map(domain).collect();
        nodes.retain(|node| domain(node).is_some_and(|domain| domains.contains(domain)));
    }
    nodes
}
