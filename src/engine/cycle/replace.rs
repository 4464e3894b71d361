//! Finds other nodes for pods of a running workload that were lost or cannot start.

use crate::placement::waiting::WaitingWorkload;
use crate::placement::{self, Capacity};
use crate::state::cluster::ClusterState;
use crate::types::{Admission, WorkloadId};

/// The admission with every pod that `kept` lacks placed again; `None` if there is no capacity for them. The missing
/// pods still hold their quota, so only nodes are searched.
pub fn replaced(
    state: &ClusterState,
    id: &WorkloadId,
    admission: &Admission,
    kept: &Admission,
) -> Option<Admission> {
    let pool = state.quotas.pool(&admission.pool)?;
    let missing = admission.pods.saturating_sub(kept.pods);
    let waiting = WaitingWorkload::of(state, id)?.and_more(state, kept, missing);
    let nodes = placement::eligible(state, &waiting.request(pool));
    let placement = Capacity::Now.place(state, &waiting, pool, &nodes)?;
    let mut to = kept.clone();
    for (node, pods) in placement {
        *to.nodes.entry(state.nodes.name(node).clone()).or_default() += pods;
        to.pods += pods;
    }
    Some(to)
}
