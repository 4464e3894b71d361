//! Starts a workload at a smaller size under load: of the sizes that it accepts, the largest that fits.
//!
//! The sizes are tried from the most wanted to the least. A smaller one is taken only where no larger one can start at
//! once. No workload is evicted for it, because capacity is freed only for the most wanted size. A workload that runs
//! at a smaller size keeps it; after an eviction the size is chosen again.
//!
//! Important workloads wait for the full size: those that may not be evicted, and those before the ordinary work of
//! their team. The latter have a priority (the queue's, then the PriorityClass) above that of the team's first queue
//! without a class.

use crate::cycle::admit::admit;
use crate::cycle::refusal::{self, Funded};
use crate::cycle::{elastic_start, reserve};
use crate::placement;
use crate::placement::waiting::{Attempt, WaitingWorkload, find_pool, may_start_now, pool_names};
use crate::scheduler::Scheduler;
use crate::state::rules;
use crate::types::{Plan, Time, WorkloadId};

/// Admits a workload that cannot start at its full size at the first smaller one that fits now; false if none does or
/// the workload must wait for the full size.
pub fn admit_smaller(scheduler: &mut Scheduler, id: &WorkloadId, now: Time, plan: &mut Plan) -> bool {
    let Some(info) = scheduler.state.get(id).filter(|info| rules::may_shrink(&scheduler.state, info)) else {
        return false;
    };
    let (pools, sizes, team) = (pool_names(info), info.sizes.clone(), info.team);
    let fractions: Vec<_> = info.workload.sizes.iter().map(|size| size.share).collect();
    let queue = scheduler.state.queue_of(info).ok().cloned();
    let Some(full) = WaitingWorkload::of(&scheduler.state, id) else { return false };
    for (size, fraction) in sizes.iter().zip(fractions).skip(1) {
        let waiting = full.at_size(size, fraction);
        let state = &scheduler.state;
        let over = |queue| state.quotas.over_queue_limit(team, queue, &waiting.total, &state.resources);
        if queue.as_ref().is_none_or(|queue| over(queue).is_some()) {
            continue;
        }
        for name in &pools {
            let Some(pool) = find_pool(&scheduler.state, name) else { continue };
            let waiting = waiting.in_pool(&scheduler.state, pool);
            let waiting = match refusal::funded(&scheduler.state, waiting, pool) {
                Funded::Fully(waiting) | Funded::IdleOnly(waiting, _) => waiting,
                Funded::Not(_) => continue,
            };
            let nodes = placement::eligible(&scheduler.state, &waiting.request(pool));
            let Some(start) = may_start_now(&scheduler.state, &waiting, pool, &nodes) else { continue };
            let attempt = Attempt { waiting: &waiting, pool, nodes: &nodes, now };
            if let Ok(beside) = reserve::admissible(scheduler, attempt, start) {
                let start = elastic_start::settle(scheduler, attempt, beside);
                admit(scheduler, &waiting, pool, start, now, plan);
                return true;
            }
        }
    }
    false
}
