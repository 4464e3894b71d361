//! The search for nodes: all pods of a request find one, or none does.

use crate::placement::capacity::Capacity;
use crate::placement::constraints::Rules;
use crate::placement::fit_counts::{cached_sites, fitting, sites, total};
use crate::placement::request::Request;
use crate::placement::spread::Spread;
use crate::state::cluster::ClusterState;
use crate::state::nodes::Placement;
use crate::types::ids::NodeId;

/// Places all pods, or none. `nodes` are the [`eligible`](super::eligible) nodes, or some of them.
#[must_use]
pub fn place(
    state: &ClusterState,
    nodes: &[NodeId],
    request: &Request<'_>,
    capacity: Capacity<'_>,
) -> Option<Placement> {
    if request.pods == 0 {
        return Some(Placement::new());
    }
    let rules = Rules::of(state, request, capacity);
    let everywhere = request.is_free_of_topology();
    let free = everywhere && rules.is_none();
    let quick = fitting(state, request, |fitting| {
        if fitting.count() != nodes.len() {
            return None;
        }
        if total(state, fitting, capacity) < u64::from(request.pods) {
            return Some(None);
        }
        if request.pods == 1 && free && matches!(capacity, Capacity::Now) {
            return Some(fitting.best(&state.nodes));
        }
        None
    });
    if let Some(best) = quick {
        return best.map(|node| Placement::from([(node, 1)]));
    }
    let ask = state.nodes.ask(request.need);
    // A single pod goes to the cheapest node, whatever its neighbours. So do several pods in a pool without
    // topology.
    let anywhere = everywhere && (request.pods == 1 || state.topology(request.pool).is_empty());
    let cached = if anywhere { cached_sites(state, nodes, request, capacity) } else { None };
    let sites = cached.unwrap_or_else(|| sites(state, nodes, request, capacity));
    let spread = Spread::new(state, request, &ask, capacity, sites, rules);
    if spread.most() < request.pods { None } else { spread.place(request.pods) }
}
