//! Less than asked for, under load: of several sizes that a workload would accept, the first that fits.
//!
//! The sizes are tried from the most wanted to the least. A smaller one is taken only where none that is larger
//! can start at once; nobody is evicted for it, for others make room only for what is wanted most, and once it
//! runs it stays as it is. When it has been evicted and waits again, the size is chosen anew.
//!
//! High classes keep the full size: who may not be evicted, and who goes before the team's ordinary work (its
//! queue's priority, then its PriorityClass, is above that of the team's first queue with no class), waits for it.

use crate::cycle::admit::admit;
use crate::cycle::reserve;
use crate::placement;
use crate::placement::waiting::Attempt;
use crate::placement::waiting::{WaitingWorkload, find_pool, fits_now, pool_names};
use crate::scheduler::Scheduler;
use crate::state::rules;
use crate::types::{Plan, Time, WorkloadId};

/// Admits a workload that cannot start at its full size at the first smaller one for which there is room now;
/// false if there is none, or it may not.
pub fn try_smaller(scheduler: &mut Scheduler, id: &WorkloadId, now: Time, plan: &mut Plan) -> bool {
    let Some(info) = scheduler.state.get(id).filter(|info| rules::may_shrink(&scheduler.state, info)) else {
        return false;
    };
    let (pools, sizes, team) = (pool_names(info), info.sizes.clone(), info.team);
    let shares: Vec<_> = info.workload.sizes.iter().map(|size| size.share).collect();
    let queue = scheduler.state.queue_of(info).ok().cloned();
    let Some(full) = WaitingWorkload::of(&scheduler.state, id) else { return false };
    for (sizing, share) in sizes.iter().zip(shares).skip(1) {
        let waiting = full.at_size(sizing, share);
        let state = &scheduler.state;
        let over = |queue| state.quotas.over_queue_limit(team, queue, &waiting.total, &state.resources);
        if queue.as_ref().is_none_or(|queue| over(queue).is_some()) {
            continue;
        }
        for name in &pools {
            let Some(pool) = find_pool(&scheduler.state, name) else { continue };
            let waiting = waiting.in_pool(&scheduler.state, pool);
            let nodes = placement::eligible(&scheduler.state, &waiting.request(pool));
            let Some(start) = fits_now(&scheduler.state, &waiting, pool, &nodes, true) else { continue };
            if let Ok(start) =
                reserve::admissible(scheduler, Attempt { waiting: &waiting, pool, nodes: &nodes, now }, start)
            {
                admit(scheduler, &waiting, pool, start, now, plan);
                return true;
            }
        }
    }
    false
}
