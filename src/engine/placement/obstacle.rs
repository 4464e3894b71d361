//! The constraint that keeps pods from nodes, for explanations.

use crate::placement::capacity::Capacity;
use crate::placement::constraints::{Origin, Rules};
use crate::placement::domains::total_fits;
use crate::placement::fit_counts::sites;
use crate::placement::request::Request;
use crate::state::cluster::ClusterState;
use crate::types::Name;
use crate::types::ids::NodeId;

/// A constraint between pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Constraint {
    /// The anti-affinity of the pods themselves.
    AntiAffinity,
    /// The anti-affinity of other pods, which selects these.
    AntiAffinityOfOthers,
    /// The affinity or spread of a workload that is about to start.
    AboutToStart,
    /// The affinity of the pods.
    Affinity,
    /// The spread of the pods.
    Spread,
}

/// The constraint that keeps the pods of a request from capacity that is there.
#[derive(Clone, Debug)]
pub struct Obstacle {
    /// The constraint.
    pub constraint: Constraint,
    /// The node label that names its domains.
    pub key: Name,
    /// The number of nodes with capacity where the constraint allows a pod.
    pub left: usize,
    /// The number of nodes with capacity.
    pub of: usize,
    /// The most pods that the constraint allows in this capacity.
    pub most: u32,
}

/// The constraint that keeps the pods of a request from this capacity; `None` if the capacity is too small without
/// constraints, or the constraints leave enough of it. Topology domains that the workload requires are not considered.
#[must_use]
pub fn obstacle(
    state: &ClusterState,
    nodes: &[NodeId],
    request: &Request<'_>,
    capacity: Capacity<'_>,
) -> Option<Obstacle> {
    let rules = Rules::of(state, request, capacity)?;
    let mut sites = sites(state, nodes, request, capacity);
    sites.retain(|site| site.fits > 0);
    if total_fits(&sites) < request.pods {
        return None;
    }
    let most = |rules: &Rules| {
        let (mut rules, mut left) = (rules.clone(), sites.clone());
        let shared = rules.narrow(&state.nodes, &mut left);
        (left.len(), if shared { rules.most(&state.nodes, &left) } else { total_fits(&left) })
    };
    if most(&rules).1 >= request.pods {
        return None;
    }
    // Several constraints may only together leave too little: then it is the one that leaves the fewest.
    let alone =
        rules.origins().into_iter().map(|(origin, key)| (most(&rules.only(origin, key)), origin, key));
    alone.min_by_key(|((left, most), ..)| (*most, *left)).map(|((left, most), origin, key)| Obstacle {
        constraint: match origin {
            Origin::Apart => Constraint::AntiAffinity,
            Origin::Others => Constraint::AntiAffinityOfOthers,
            Origin::Awaited => Constraint::AboutToStart,
            Origin::Together => Constraint::Affinity,
            Origin::Spread => Constraint::Spread,
        },
        key: key.clone(),
        left,
        of: sites.len(),
        most,
    })
}
