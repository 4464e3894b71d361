//! The conditions that must change before a refused workload can start, so that it is not attempted in vain.
//!
//! A start needs limits, guarantee or borrowable capacity, and headroom. Any one of these that is missing is enough as
//! a condition. Preemption needs at least one of three things: lower priorities in the workload's own team, its own
//! guarantee, or, for a borrowing workload, another team with a fair share at least as large; where a team above lacks
//! quota, a team below that one. Usage totals rule each of them out without a search. Where they do not, any freed capacity
//! lets the workload be attempted again.

use std::borrow::Cow;

use crate::placement::waiting::{WaitingWorkload, find_pool, is_covered_or_may_borrow, pool_names};
use crate::queue::WaitQueue;
use crate::queue::class::{Blocked, Condition, Covered};
use crate::queue::headroom::Headroom;
use crate::queue::reclaimable::Reclaimable;
use crate::scheduler::Scheduler;
use crate::state::cluster::ClusterState;
use crate::state::quotas::{Funding, Hypothetical};
use crate::state::rules;
use crate::state::workload::WorkloadInfo;
use crate::types::WorkloadId;
use crate::types::ids::PoolId;

/// The conditions that block a waiting workload which cannot start now.
pub fn blocked_on(scheduler: &mut Scheduler, id: &WorkloadId) -> Blocked {
    let Scheduler { state, queue: WaitQueue { headroom, reclaimable, .. }, reservations, .. } = scheduler;
    let Some(info) = state.get(id) else { return Blocked::Unknown };
    let Ok(queue) = state.queue_of(info) else { return Blocked::Until(Vec::new()) };
    let Some(waiting) = WaitingWorkload::of(state, id) else { return Blocked::Unknown };
    // A smaller size may fit although the full one does not, so no condition of the full one holds for it.
    if rules::may_shrink(state, info) {
        return Blocked::Unknown;
    }
    // Any change may let the owner of a reservation start sooner.
    if reservations.owned_by(id).is_some_and(|(_, reservation)| !reservation.awaits_quota()) {
        return Blocked::Unknown;
    }
    let (team, total) = (waiting.team, &waiting.total);
    if state.quotas.over_queue_limit(team, queue, total, &state.resources).is_some() {
        return Blocked::Until(vec![Condition::Queue(team, queue.name.clone())]);
    }
    let (mut conditions, mut may_preempt, mut covered) = (Vec::new(), false, Covered::Beyond);
    let mut paced = true;
    for name in pool_names(info) {
        let Some(pool) = find_pool(state, &name) else { continue };
        let Some(here) = blocked_in(state, (&mut *headroom, &*reclaimable), info, &waiting, pool) else {
            return Blocked::Unknown;
        };
        conditions.extend(here.conditions);
        may_preempt |= here.may_preempt;
        paced &= !here.may_preempt || is_paced(state, &waiting.in_pool(state, pool), pool);
        covered = covered.max(here.covered);
    }
    conditions.sort_unstable();
    conditions.dedup();
    if may_preempt { Blocked::MayPreempt { conditions, covered, paced } } else { Blocked::Until(conditions) }
}

/// Whether victims are searched for a workload in a pool at a [pace](crate::queue::pace): it can only borrow there. What the guarantee
/// of its team holds, also if only without lower priorities of the team, searches whenever it may find victims (law 2). So does what
/// may take over capacity that is nominated to its team.
pub fn is_paced(state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId) -> bool {
    let usage = state.quotas.quota_usage(pool, waiting.team);
    let mut asked = waiting.total.nonzero();
    !waiting.as_guaranteed
        && !asked.any(|(resource, _)| usage.incoming(resource) > 0)
        && !state.quotas.own_guarantee_holds(pool, waiting.team, &waiting.total)
        && waiting.as_guaranteed(state, pool).is_none()
}

/// Why a workload cannot start in one pool.
struct BlockedIn {
    /// The conditions that block it there.
    conditions: Vec<Condition>,
    /// Whether preemption may let it start there all the same.
    may_preempt: bool,
    /// The guarantees that cover it there.
    covered: Covered,
}

/// Why a workload cannot start in a pool; `None` when no condition is known that blocks a start there.
fn blocked_in(
    state: &ClusterState,
    (headroom, reclaimable): (&mut Headroom, &Reclaimable),
    info: &WorkloadInfo,
    waiting: &WaitingWorkload,
    pool: PoolId,
) -> Option<BlockedIn> {
    let team = waiting.team;
    let mut here = BlockedIn {
        conditions: vec![Condition::Quota(pool, team)],
        may_preempt: false,
        covered: Covered::Beyond,
    };
    let in_pool = waiting.in_pool(state, pool);
    let (held, at) = match in_pool.funding(state, pool) {
        Funding::Funded => (false, None),
        Funding::BorrowOnly(at) => (false, Some(at)),
        Funding::Held(at) => (true, Some(at)),
    };
    let mut waiting = Cow::Borrowed(waiting);
    if let Some(at) = at {
        // What needs more than the whole budget waits for another one, which is a change of its team.
        let most = state.budget_need(info, pool, &in_pool.total).1;
        let never = state.quotas.budgets.exceeds(at, most);
        here.conditions.push(if never { Condition::Quota(pool, at) } else { Condition::Budget(at) });
        waiting.to_mut().unfunded = !held;
    }
    if held {
        return Some(here);
    }
    here.conditions.extend(missing_for_start(state, headroom, &waiting, pool)?);
    if at.is_some() {
        return Some(here);
    }
    match missing_for_preemption(state, reclaimable, &waiting, pool) {
        Some(missing) => here.conditions.extend(missing),
        None => here.may_preempt = true,
    }
    here.covered = covered_in(state, &waiting, pool);
    if here.covered == Covered::ByTeam {
        let above = &state.quotas.team(team).path[1..];
        here.conditions.extend(above.iter().map(|at| Condition::Guarantee(pool, *at)));
    }
    Some(here)
}

/// The guarantees that cover the workload in a pool.
fn covered_in(state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId) -> Covered {
    let (team, total) = (waiting.team, &waiting.total);
    if state.quotas.within_guarantee(pool, team, total, &Hypothetical::new()) {
        Covered::ByPath
    } else if state.quotas.own_guarantee_holds(pool, team, total) {
        Covered::ByTeam
    } else {
        Covered::Beyond
    }
}

/// The conditions that block a start in a pool without preemption; `None` when none is known.
fn missing_for_start(
    state: &ClusterState,
    headroom: &mut Headroom,
    waiting: &WaitingWorkload,
    pool: PoolId,
) -> Option<Vec<Condition>> {
    let over = state.quotas.over_limit_now(pool, waiting.team, &waiting.total);
    if let Some((at, _)) = over {
        return Some(vec![Condition::Quota(pool, at)]);
    }
    let may_exceed = || waiting.may_exceed_guarantee(state, pool) || waiting.within_guarantee(state, pool);
    if waiting.lacks_quota_now(state, pool) || !may_exceed() {
        let path = &state.quotas.team(waiting.team).path;
        return Some(path.iter().map(|at| Condition::Quota(pool, *at)).collect());
    }
    if !is_covered_or_may_borrow(state, waiting, pool) {
        return None;
    }
    let (fit, pods) = (headroom.index_of(state, waiting, pool), u64::from(waiting.pods));
    (headroom.total(fit) < pods).then(|| vec![Condition::Headroom(fit, pods)])
}

/// Whether preemption in a pool may succeed. What is still cleared by a plan before counts for its amendment, so usage totals rule
/// nothing out for that.
pub fn may_preempt(scheduler: &Scheduler, waiting: &WaitingWorkload, pool: PoolId) -> bool {
    let (state, reclaimable) = (&scheduler.state, &scheduler.queue.reclaimable);
    missing_for_preemption(state, reclaimable, waiting, pool).is_none()
        || !scheduler.nominations.still_ending(state, &waiting.id).is_empty()
}

/// The conditions that block preemption in a pool, besides the team's own usage; `None` when preemption may succeed.
pub fn missing_for_preemption(
    state: &ClusterState,
    reclaimable: &Reclaimable,
    waiting: &WaitingWorkload,
    pool: PoolId,
) -> Option<Vec<Condition>> {
    let (quotas, team, total) = (&state.quotas, waiting.team, &waiting.total);
    let path = &quotas.team(team).path;
    // Teams below count as the workload's own team, and usage held by a team above belongs to no other team: the
    // totals of single teams rule nothing out there.
    if quotas.has_children(team) || path[1..].iter().any(|at| reclaimable.lowest(pool, *at).is_some()) {
        return None;
    }
    if reclaimable.lowest(pool, team).is_some_and(|lowest| lowest < waiting.priority) {
        return None;
    }
    let limit = quotas.over_limit(pool, team, total, &Hypothetical::new());
    if limit.is_some_and(|(at, _)| at == team) {
        return Some(Vec::new());
    }
    if quotas.own_guarantee_holds(pool, team, total) {
        return None;
    }
    if !waiting.preemptible && !quotas.guarantees_fixed(pool, team, total) {
        return Some(Vec::new());
    }
    let share = quotas.level_share(pool, team, Some(total));
    // Quota of a team above comes free only by victims below it. What is nominated to its own team may be taken over besides.
    let above = limit.filter(|(_, resource)| quotas.quota_usage(pool, team).incoming(*resource) == 0);
    let (largest, condition) = match above {
        Some((above, _)) => (reclaimable.largest_below(pool, above, path), Condition::Quota(pool, above)),
        None => (reclaimable.largest(pool, path), Condition::Share(pool, share)),
    };
    largest.is_none_or(|largest| largest < share).then(|| vec![condition])
}
