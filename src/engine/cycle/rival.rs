//! The rival of a borrower: a workload of another team that fits now, and may evict the borrower for fair shares in the instant in
//! which it has started (law 5). It is attempted first, because an eviction after no time would cost a start, and leave what ends
//! idle for its grace period (law 4).

use crate::cycle::refusal;
use crate::placement;
use crate::placement::waiting::{WaitingWorkload, fits_now};
use crate::queue::WaitQueue;
use crate::scheduler::Scheduler;
use crate::state::cluster::ClusterState;
use crate::state::quotas::{Hypothetical, Protection};
use crate::types::WorkloadId;
use crate::types::ids::{PoolId, TeamId};

/// The rival of a borrower that could start now in a pool.
pub fn of(scheduler: &mut Scheduler, borrower: &WaitingWorkload, pool: PoolId) -> Option<WorkloadId> {
    if borrower.within_guarantee(&scheduler.state, pool) {
        return None;
    }
    let WaitQueue { order, pending, headroom, .. } = &mut scheduler.queue;
    let rival = order.rival(&scheduler.state, pending, headroom, &borrower.id, pool)?;
    let state = &scheduler.state;
    (may_lose(state, borrower, state.get(&rival)?.team, pool) && fits(state, &rival, pool)).then_some(rival)
}

/// Whether a borrower that has started may be evicted for fair shares for work of that team: no guarantee protects it (law 3).
fn may_lose(state: &ClusterState, borrower: &WaitingWorkload, by: TeamId, pool: PoolId) -> bool {
    let quotas = &state.quotas;
    let Some(info) = state.at(borrower.index) else { return false };
    let levels: Vec<TeamId> = quotas.levels_below_common(borrower.team, by).collect();
    // Of a parent and its child neither takes from the other for fair shares.
    if levels.is_empty() || quotas.levels_below_common(by, borrower.team).next().is_none() {
        return false;
    }
    let mut started = Hypothetical::new();
    quotas.assume(&mut started, info.account(), &borrower.total, 1);
    let protection = Protection { levels: &levels, oversize: &info.oversize, from_borrower: true };
    quotas.beyond_guarantee(pool, protection, &borrower.total, &started)
        && !quotas.would_fall_below_guarantee(pool, protection, &borrower.total, &started)
}

/// Whether a workload could start at its full size in the capacity of a pool that is free now, reservations and budgets aside.
fn fits(state: &ClusterState, id: &WorkloadId, pool: PoolId) -> bool {
    let Some((info, waiting)) = state.get(id).zip(WaitingWorkload::of(state, id)) else { return false };
    let waiting = waiting.in_pool(state, pool);
    let nodes = placement::eligible(state, &waiting.request(pool));
    refusal::barred(state, info).is_none() && fits_now(state, &waiting, pool, &nodes, true).is_some()
}
