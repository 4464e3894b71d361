//! Usage above a limit that no decision has caused: pods that were never admitted bring it down (laws 1 and 15).
//!
//! Admitted workloads stay, as do pods that are older than the membership of their namespace and pods that their
//! controller would replace at once.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::cycle::evict::evict;
use crate::scheduler::Scheduler;
use crate::state::cluster::ClusterState;
use crate::state::holders::Newest;
use crate::state::quotas::Hypothetical;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::TeamId;
use crate::types::{EvictReason, Plan, Time, WorkloadId};

/// How long a team may exceed its limit before pods are evicted. Jobs and pods come by separate watches: for a moment a pod may
/// count by itself and in the record of its Job, which has been deleted.
const PAUSE: Duration = Duration::from_secs(2);

/// When the next pods become due; `None` while no team exceeds a limit, or once its pods were evicted.
#[must_use]
pub fn next(scheduler: &Scheduler) -> Option<Time> {
    let due = scheduler.deadlines.over_limit.after(PAUSE).map(|(_, due)| due);
    due.filter(|due| *due > scheduler.cursor.planned).min()
}

/// Evicts pods that were never admitted, the newest first, while their team or a team above exceeds its limit.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    let state = &scheduler.state;
    let over = || state.evicted_first().filter(|info| exceeds(state, info, &Hypothetical::new()));
    let teams: BTreeSet<TeamId> = over().map(|info| info.team).collect();
    let over_limit = &mut scheduler.deadlines.over_limit;
    over_limit.note(|team| teams.contains(team), teams.iter().copied(), now);
    let is_due = |info: &&WorkloadInfo| over_limit.of_after(&info.team, PAUSE).is_some_and(|due| due <= now);
    let mut due: Vec<&WorkloadInfo> =
        over().filter(is_due).filter(|info| !scheduler.retries.pauses(&info.workload.id)).collect();
    due.sort_by_cached_key(|info| Newest::of(info));
    let mut gone = Hypothetical::new();
    let mut victims: Vec<WorkloadId> = Vec::new();
    for info in due {
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
