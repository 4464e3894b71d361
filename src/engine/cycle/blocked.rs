//! What must change before somebody who could not start can: so that nobody is asked in vain.
//!
//! A start needs limits, guarantee or surplus, and room; any one of these that is missing is enough to
//! watch. A claim on others' room needs at least one of three things, and each can be ruled out by
//! looking at accounts alone: lower priorities of the own team; the own guarantee, for one that is owed;
//! somebody elsewhere with a share at least as large, for a claim on the surplus. Where that does not
//! rule it out, nothing is watched and anything that makes room lets it be looked at again.

use crate::placement::waiting::{WaitingWorkload, find_pool, may_borrow, pool_names};
use crate::queue::class::{Blocked, Condition};
use crate::queue::headroom::Headroom;
use crate::scheduler::Scheduler;
use crate::state::quotas::Hypothetical;
use crate::state::rules;
use crate::types::WorkloadId;
use crate::types::ids::PoolId;

/// What blocks a waiting workload that cannot start now.
pub fn blocked_on(scheduler: &mut Scheduler, id: &WorkloadId) -> Blocked {
    let mut headroom = std::mem::take(&mut scheduler.queue.headroom);
    let blocked = outlook(scheduler, &mut headroom, id);
    scheduler.queue.headroom = headroom;
    blocked
}

fn outlook(scheduler: &Scheduler, headroom: &mut Headroom, id: &WorkloadId) -> Blocked {
    let state = &scheduler.state;
    let Some(info) = state.get(id) else { return Blocked::Unknown };
    let Ok(queue) = state.queue_of(info) else { return Blocked::Until(Vec::new()) };
    let Some(waiting) = WaitingWorkload::of(state, id) else { return Blocked::Unknown };
    // A smaller size may fit where what is missing for the full one says nothing of it.
    if rules::may_shrink(state, info) {
        return Blocked::Unknown;
    }
    // A reservation follows everything that may let its holder start sooner.
    if scheduler.reservations.by_team.values().any(|reservation| reservation.owner == *id) {
        return Blocked::Unknown;
    }
    let (team, total) = (waiting.team, &waiting.total);
    if state.quotas.over_queue_limit(team, queue, total, &state.resources).is_some() {
        return Blocked::Until(vec![Condition::Queue(team, queue.name.clone())]);
    }
    let (mut conditions, mut nominations, mut within_guarantee) = (Vec::new(), false, false);
    for name in pool_names(info) {
        let Some(pool) = find_pool(state, &name) else { continue };
        conditions.push(Condition::Quota(pool, team));
        let Some(missing) = missing_for_start(scheduler, headroom, &waiting, pool) else {
            return Blocked::Unknown;
        };
        conditions.extend(missing);
        match missing_for_preemption(scheduler, &waiting, pool) {
            Some(missing) => conditions.extend(missing),
            None => nominations = true,
        }
        within_guarantee |= state.quotas.own_guarantee_holds(pool, team, total);
    }
    conditions.sort_unstable();
    conditions.dedup();
    if nominations {
        Blocked::MayPreempt { conditions, within_guarantee }
    } else {
        Blocked::Until(conditions)
    }
}

/// What keeps it from starting in a pool as things are; `None` when nothing that is known of here does.
fn missing_for_start(
    scheduler: &Scheduler,
    headroom: &mut Headroom,
    waiting: &WaitingWorkload,
    pool: PoolId,
) -> Option<Vec<Condition>> {
    let state = &scheduler.state;
    let over = state.quotas.over_limit(pool, waiting.team, &waiting.total, &Hypothetical::new(), false);
    if let Some((at, _)) = over {
        return Some(vec![Condition::Quota(pool, at)]);
    }
    if !waiting.preemptible && !waiting.within_guarantee(state, pool) {
        let path = &state.quotas.team(waiting.team).path;
        return Some(path.iter().map(|at| Condition::Quota(pool, *at)).collect());
    }
    if !may_borrow(state, waiting, pool) {
        return None;
    }
    let (room, pods) = (headroom.index_of(state, waiting, pool), u64::from(waiting.pods));
    (headroom.total(room) < pods).then(|| vec![Condition::Headroom(room, pods)])
}

/// What keeps others from making room for it, besides its own account; `None` when they might.
pub fn missing_for_preemption(
    scheduler: &Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
) -> Option<Vec<Condition>> {
    let (quotas, team, total) = (&scheduler.state.quotas, waiting.team, &waiting.total);
    // What those below hold counts as its own too, and what those above hold counts as nobody's else.
    let above = &quotas.team(team).path[1..];
    if quotas.stands_above(team)
        || above.iter().any(|at| scheduler.queue.reclaimable.lowest(pool, *at).is_some())
    {
        return None;
    }
    if scheduler.queue.reclaimable.lowest(pool, team).is_some_and(|lowest| lowest < waiting.priority) {
        return None;
    }
    let limit = quotas.over_limit(pool, team, total, &Hypothetical::new(), true);
    if limit.is_some_and(|(at, _)| at == team) {
        return Some(Vec::new());
    }
    if quotas.own_guarantee_holds(pool, team, total) {
        return None;
    }
    if !waiting.preemptible {
        return Some(Vec::new());
    }
    let share = quotas.level_share(pool, team, Some(total));
    let largest = scheduler.queue.reclaimable.largest(pool, &quotas.team(team).path);
    largest.is_none_or(|largest| largest < share).then(|| vec![Condition::Share(pool, share)])
}
