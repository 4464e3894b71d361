//! What can be done for one workload: let it start, have room freed for it, or say why not.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cycle::admit::admit;
use crate::cycle::nominate::nominate_for;
use crate::cycle::{blocked, evict, reserve, smaller_size};
use crate::explain;
use crate::placement::waiting::{Attempt, WaitingWorkload, find_pool, fits_now, may_borrow, pool_names};
use crate::placement::{self, Capacity};
use crate::preemption::{self, Masked, Nominated, Preemptor, SearchInput, Take, Victims};
use crate::scheduler::Scheduler;
use crate::scheduler::nominations::{BorrowingPreemptions, Victim};
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::quotas::Hypothetical;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{NodeId, PoolId};
use crate::types::{Plan, Reason, Time, Verdict, WorkloadId};

/// So many claims on the surplus a workload makes at most while nothing changes from outside.
const MAX_BORROWING_PREEMPTIONS: u32 = 4;

/// Admits the workload, or has room freed for it, or says why neither can be.
pub fn try_start(scheduler: &mut Scheduler, id: &WorkloadId, now: Time, plan: &mut Plan) -> Option<Verdict> {
    let info = scheduler.state.get(id)?;
    if let Some(verdict) = barred(&scheduler.state, info) {
        if smaller_size::try_smaller(scheduler, id, now, plan) {
            return None;
        }
        reserve::release(scheduler, id);
        return Some(verdict);
    }
    let pools = pool_names(info);
    let waiting = WaitingWorkload::of(&scheduler.state, id)?;
    let mut held_back: BTreeMap<PoolId, Verdict> = BTreeMap::new();
    let mut options: Vec<(PoolId, Arc<[NodeId]>)> = Vec::new();
    for name in &pools {
        let Some(pool) = find_pool(&scheduler.state, name) else { continue };
        let waiting = waiting.in_pool(&scheduler.state, pool);
        let nodes = placement::eligible(&scheduler.state, &waiting.request(pool));
        if let Some(start) = fits_now(&scheduler.state, &waiting, pool, &nodes, true) {
            match reserve::admissible(
                scheduler,
                Attempt { waiting: &waiting, pool, nodes: &nodes, now },
                start,
            ) {
                Ok(start) => {
                    admit(scheduler, &waiting, pool, start, now, plan);
                    return None;
                }
                Err(verdict) => {
                    held_back.insert(pool, verdict);
                }
            }
        }
        options.push((pool, nodes));
    }
    if smaller_size::try_smaller(scheduler, id, now, plan) {
        return None;
    }
    for (pool, nodes) in &options {
        let waiting = waiting.in_pool(&scheduler.state, *pool);
        let attempt = Attempt { waiting: &waiting, pool: *pool, nodes, now };
        // Most waiting workloads have nothing to preempt, which quota usage tells without a search.
        if !waiting.within_guarantee(&scheduler.state, *pool)
            && blocked::missing_for_preemption(scheduler, &waiting, *pool).is_some()
        {
            continue;
        }
        if held_back.contains_key(pool) && reserve::team_has_reserved_capacity(scheduler, attempt) {
            continue;
        }
        if let Err(verdict) = reserve::leave_guarantee_to_owner(scheduler, &waiting, *pool, now) {
            held_back.insert(*pool, verdict);
            continue;
        }
        let preempted = reserve::with_reserved_masked(scheduler, &waiting, *pool, |scheduler, masked| {
            preempt(scheduler, attempt, masked, plan)
        });
        if preempted {
            return None;
        }
    }
    let refusals: Vec<Verdict> = options
        .iter()
        .map(|(pool, nodes)| {
            let waiting = waiting.in_pool(&scheduler.state, *pool);
            held_back.remove(pool).unwrap_or_else(|| refusal(scheduler, &waiting, *pool, nodes))
        })
        .collect();
    reserve::note_refusal(scheduler, &waiting, &options, &refusals, now);
    // The most hopeful of the pools' reasons speaks for all.
    let verdict = refusals.into_iter().max_by_key(|verdict| hope(verdict.reason));
    Some(verdict.unwrap_or_else(|| explain::no_pool(&pools)))
}

/// Why a workload cannot start whatever the pool, if so.
fn barred(state: &ClusterState, info: &WorkloadInfo) -> Option<Verdict> {
    let queue = match state.queue_of(info) {
        Ok(queue) => queue,
        Err(reason) => return Some(explain::unknown(info, reason)),
    };
    let over = state.quotas.over_queue_limit(info.team, queue, &info.least_total(), &state.resources);
    over.map(|index| explain::queue_limit(state, queue, index))
}

/// Why a workload that waits cannot start, as things are now.
#[must_use]
pub fn why_not(scheduler: &Scheduler, id: &WorkloadId) -> Option<Verdict> {
    let state = &scheduler.state;
    let info = state.get(id)?;
    if let Some(verdict) = barred(state, info) {
        return Some(verdict);
    }
    let waiting = WaitingWorkload::of(state, id)?;
    let pools = pool_names(info);
    let refusals = pools.iter().filter_map(|name| find_pool(state, name)).map(|pool| {
        let nodes = placement::eligible(state, &waiting.request(pool));
        refusal(scheduler, &waiting, pool, &nodes)
    });
    let verdict = refusals.max_by_key(|verdict| hope(verdict.reason));
    Some(verdict.unwrap_or_else(|| explain::no_pool(&pools)))
}

/// Why the workload may not live off the surplus, if it would have to.
fn surplus_refusal(state: &ClusterState, waiting: &WaitingWorkload, pool: PoolId) -> Option<Verdict> {
    if waiting.within_guarantee(state, pool) {
        None
    } else if !waiting.preemptible {
        Some(explain::must_fit_guarantee(state, waiting.team, pool, &waiting.total))
    } else {
        explain::lending_refusal(state, waiting.team, pool, &waiting.total)
    }
}

/// Nominates capacity that is being freed already, or preempts workloads for it; false if neither may be.
fn preempt(scheduler: &mut Scheduler, attempt: Attempt<'_>, masked: &[Masked], plan: &mut Plan) -> bool {
    let Attempt { waiting, pool, nodes, now } = attempt;
    let state = &scheduler.state;
    let allowed =
        state.quotas.over_limit(pool, waiting.team, &waiting.total, &Hypothetical::new(), true).is_none();
    let within_guarantee = waiting.within_guarantee(state, pool);
    if allowed && may_borrow(state, waiting, pool) {
        let (freed, request) = (Freed::new(), waiting.request(pool));
        let room = Capacity::Settled(&freed);
        // Capacity that is being freed is promised to those who are owed it; the others, for whom
        // nobody need go either, get it in their order once it is free.
        if !within_guarantee {
            if placement::most(state, nodes, &request, room) >= waiting.pods {
                return false;
            }
        } else if let Some(placement) = placement::place(state, nodes, &request, room) {
            reserve::note_taken(scheduler, waiting, pool, &placement);
            nominate_for(scheduler, waiting, pool, placement, Vec::new());
            return true;
        }
    }
    if blocked::missing_for_preemption(scheduler, waiting, pool).is_some() {
        return false;
    }
    let barred = |id: &WorkloadId| scheduler.pauses(id);
    let nominated: Vec<Nominated> =
        scheduler.nominations.all.iter().filter_map(|nomination| nomination.nominated(state)).collect();
    let at = scheduler.cursor.external_changes;
    let before = scheduler.nominations.borrowing.get(&waiting.id).filter(|before| before.at == at);
    let mut before =
        before.cloned().unwrap_or(BorrowingPreemptions { at, ..BorrowingPreemptions::default() });
    let taken = (before.count < MAX_BORROWING_PREEMPTIONS).then_some(&before.victims);
    let preemptor = Preemptor::of(waiting, pool, nodes, taken);
    let input = SearchInput {
        cluster: state,
        pending: &scheduler.queue.pending,
        run_times: &scheduler.prediction.run_times,
        nominated: &nominated,
        masked,
    };
    let found = preemption::search(input, preemptor, &barred, now);
    scheduler.cursor.awaits_start |= found.skipped;
    scheduler.cursor.wake = [scheduler.cursor.wake, found.retry_at].into_iter().flatten().min();
    scheduler.cursor.effort.searches += 1;
    scheduler.cursor.search_budget = scheduler.cursor.search_budget.saturating_sub(found.tried);
    scheduler.cursor.effort.bounded += u64::from(found.bounded);
    let Some(Victims { takes, placement, within_guarantee }) = found.victims else { return false };
    if !within_guarantee {
        before.count += 1;
        let evicted = |take: &Take| matches!(take, Take::Whole(_)).then(|| take.id().clone());
        before.victims.extend(takes.iter().filter_map(evicted));
        scheduler.nominations.borrowing.insert(waiting.id.clone(), before);
    }
    let victims: Vec<Victim> = takes
        .into_iter()
        .filter_map(|take| evict::take(scheduler, take, waiting, within_guarantee, now, plan))
        .collect();
    reserve::note_taken(scheduler, waiting, pool, &placement);
    nominate_for(scheduler, waiting, pool, placement, victims);
    true
}

/// Why the workload cannot start in one of its pools.
fn refusal(scheduler: &Scheduler, waiting: &WaitingWorkload, pool: PoolId, nodes: &[NodeId]) -> Verdict {
    let state = &scheduler.state;
    if let Some(verdict) = explain::no_node(state, nodes, &waiting.request(pool)) {
        return verdict;
    }
    let over = state.quotas.over_limit(pool, waiting.team, &waiting.total, &Hypothetical::new(), false);
    if let Some((team, index)) = over {
        return explain::team_limit(state, team, pool, index, &waiting.total);
    }
    surplus_refusal(state, waiting, pool)
        .unwrap_or_else(|| explain::no_room(state, nodes, &waiting.request(pool)))
}

/// How soon a workload with this reason may start, compared with other reasons.
fn hope(reason: Reason) -> u8 {
    match reason {
        Reason::WaitingForEviction => 6,
        Reason::RoomHeld | Reason::Reserved => 5,
        Reason::Fragmented => 4,
        Reason::NoRoom => 3,
        Reason::LendingLimit => 2,
        Reason::NoNodeFits => 0,
        _ => 1,
    }
}
