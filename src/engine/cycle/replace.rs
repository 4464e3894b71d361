//! Finds other nodes for pods of a running workload that were lost or cannot start.

use crate::placement::waiting::WaitingWorkload;
use crate::placement::{self, Capacity};
use crate::scheduler::Scheduler;
use crate::types::{Admission, WorkloadId};

/// The admission with the lost pods made anew, if there is room for them. They hold their quota still.
pub fn replaced(
    scheduler: &Scheduler,
    id: &WorkloadId,
    admission: &Admission,
    kept: &Admission,
) -> Option<Admission> {
    let state = &scheduler.state;
    let pool = state.quotas.pool(&admission.pool)?;
    let lost = admission.pods.max(state.get(id)?.least_pods()).saturating_sub(kept.pods);
    let waiting = WaitingWorkload::of(state, id)?.and_more(state, kept, lost);
    let nodes = placement::eligible(state, &waiting.request(pool));
    let placement = Capacity::Now.place(&scheduler.state, &waiting, pool, &nodes)?;
    let mut to = kept.clone();
    for (node, pods) in placement {
        *to.nodes.entry(state.nodes.name(node).clone()).or_default() += pods;
        to.pods += pods;
    }
    Some(to)
}
