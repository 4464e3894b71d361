//! Usage above a limit that no decision has caused: pods that were never admitted bring it down (laws 1 and 15).
//!
//! Admitted workloads stay, as do pods that are older than the membership of their namespace and pods that their
//! controller would replace at once.

use crate::cycle::evict::evict;
use crate::scheduler::Scheduler;
use crate::state::cluster::ClusterState;
use crate::state::holders::Newest;
use crate::state::quotas::Hypothetical;
use crate::state::workload::WorkloadInfo;
use crate::types::{EvictReason, Plan, Time, WorkloadId};

/// Evicts pods that were never admitted, the newest first, while their team or a team above exceeds its limit.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    let state = &scheduler.state;
    let mut over: Vec<&WorkloadInfo> = state
        .evicted_first()
        .filter(|info| !scheduler.pauses(&info.workload.id) && exceeds(state, info, &Hypothetical::new()))
        .collect();
    over.sort_by_cached_key(|info| Newest::of(info));
    let mut gone = Hypothetical::new();
    let mut victims: Vec<WorkloadId> = Vec::new();
    for info in over {
        if exceeds(state, info, &gone) {
            state.quotas.assume(&mut gone, info.account(), &info.staying_total(), -1);
            victims.push(info.workload.id.clone());
        }
    }
    for id in victims {
        evict(scheduler, &id, None, EvictReason::OverLimit, now, plan);
    }
}

/// Whether a team on the path of a pod exceeds its limit of a resource that the pod holds, after hypothetical changes.
fn exceeds(state: &ClusterState, info: &WorkloadInfo, gone: &Hypothetical) -> bool {
    state.quotas.exceeds_limit(info.usage.pool, info.team, &info.need, gone)
}
