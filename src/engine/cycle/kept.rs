//! The preemptors for which quota or free capacity is kept that a waiting workload needs.

use crate::cycle::refusal;
use crate::explain;
use crate::placement::waiting::{WaitingWorkload, find_pool, pool_names};
use crate::scheduler::Scheduler;
use crate::scheduler::nomination::Nomination;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::PoolId;
use crate::types::{Reason, Verdict, WorkloadId};

/// With more preemptors than this none is named: each waiting workload would be held against all of them.
const MOST: usize = 16;

/// The verdict, with the preemptors that are in the way.
#[must_use]
pub fn named(scheduler: &Scheduler, info: &WorkloadInfo, verdict: Verdict) -> Verdict {
    let preemptors = preemptors(scheduler, info, verdict.reason);
    if preemptors.is_empty() {
        return verdict;
    }
    let cleared = explain::cleared_for(&scheduler.state, &preemptors);
    Verdict { message: format!("{} {cleared}", verdict.message), ..verdict }
}

/// The preemptors for which is kept what a workload lacks that waits for this reason.
#[must_use]
pub fn preemptors<'a>(scheduler: &'a Scheduler, info: &WorkloadInfo, reason: Reason) -> Vec<&'a WorkloadId> {
    if scheduler.nominations.is_empty() || scheduler.nominations.iter().nth(MOST).is_some() {
        return Vec::new();
    }
    let Some(waiting) = WaitingWorkload::of(&scheduler.state, &info.workload.id) else { return Vec::new() };
    let state = &scheduler.state;
    let may_hold =
        |pool: &PoolId| refusal::never_by_quota(state, &waiting.in_pool(state, *pool), *pool).is_none();
    let pools = pool_names(info);
    let pools: Vec<PoolId> =
        pools.iter().filter_map(|name| find_pool(state, name)).filter(may_hold).collect();
    let others = scheduler.nominations.iter().filter(|nomination| nomination.id != info.workload.id);
    let is_in_the_way = |nomination: &&Nomination| match reason {
        Reason::TeamLimit => pools.contains(&nomination.pool) && takes_limit(scheduler, &waiting, nomination),
        Reason::NoRoom | Reason::RoomHeld | Reason::Fragmented | Reason::Constrained => {
            pools.contains(&nomination.pool) && takes_nodes(scheduler, &waiting, nomination)
        }
        _ => false,
    };
    others.filter(is_in_the_way).map(|nomination| &nomination.id).collect()
}

/// Whether a nomination takes of a limit on the path of a workload.
fn takes_limit(scheduler: &Scheduler, waiting: &WaitingWorkload, nomination: &Nomination) -> bool {
    let quotas = &scheduler.state.quotas;
    let waiting = waiting.in_pool(&scheduler.state, nomination.pool);
    let shared =
        quotas.team(waiting.team).path.iter().filter(|at| quotas.team(nomination.team).path.contains(at));
    let mut limited = shared.flat_map(|at| quotas.quota_usage(nomination.pool, *at).limit.keys());
    !nomination.moves
        && limited.any(|index| waiting.total.get(*index) > 0 && nomination.total.get(*index) > 0)
}

/// Whether something that a workload asks for is free on the nodes of a nomination, and kept for it.
fn takes_nodes(scheduler: &Scheduler, waiting: &WaitingWorkload, nomination: &Nomination) -> bool {
    let waiting = waiting.in_pool(&scheduler.state, nomination.pool);
    let mut nodes = nomination.placement.keys();
    nodes.any(|node| explain::kept_on(&scheduler.state, *node, &waiting.total).next().is_some())
}
