//! How a running workload goes on without pods that were lost or cannot start: on other nodes, or with fewer pods.

use crate::placement::waiting::WaitingWorkload;
use crate::placement::{self, Capacity};
use crate::state::cluster::ClusterState;
use crate::state::workload::WorkloadInfo;
use crate::types::{Admission, OnPodLoss, ResizeCause, WorkloadId};

/// The admission with which a workload goes on of which only the `kept` pods are left, and whether the others are replaced or
/// it is shrunk; `None` if it cannot go on.
pub fn go_on(
    state: &ClusterState,
    info: &WorkloadInfo,
    admission: &Admission,
    kept: &Admission,
) -> Option<(Admission, ResizeCause)> {
    let on_loss = state.queue_of(info).map_or_else(|_| OnPodLoss::default(), |queue| queue.on_pod_loss);
    if kept.pods == 0 || !info.workload.resizable || on_loss != OnPodLoss::Replace {
        return None;
    }
    match replaced(state, &info.workload.id, admission, kept) {
        Some(to) => Some((to, ResizeCause::Replaced)),
        None => (kept.pods >= info.least_pods()).then(|| (kept.clone(), ResizeCause::Shrunk)),
    }
}

/// The admission with every pod that `kept` lacks placed again; `None` if there is no capacity for them. The missing
/// pods still hold their quota, so only nodes are searched.
fn replaced(
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
    state.nodes.add_pods(&placement, &mut to);
    Some(to)
}
