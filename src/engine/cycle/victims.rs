//! What a waiting workload can start on besides free capacity: what ending pods leave, and the places of victims.

use std::borrow::Cow;
use std::collections::BTreeSet;

use crate::cycle::{blocked, reserve};
use crate::explain;
use crate::placement::waiting::{Attempt, WaitingWorkload, is_covered_or_may_borrow};
use crate::placement::{self, Capacity, Placement};
use crate::prediction::timeline::Slot;
use crate::preemption::{
    self, Conditions, Cost, Masked, Nominated, Preemptor, SearchInput, SearchResult, Victims,
};
use crate::scheduler::Scheduler;
use crate::scheduler::nomination::Nomination;
use crate::scheduler::nominations::BorrowingPreemptions;
use crate::state::freed::Freed;
use crate::state::quotas::Hypothetical;
use crate::types::Verdict;
use crate::types::ids::{NodeId, PoolId};

/// The most preemptions by one borrowing workload without an external change.
const MAX_BORROWING_PREEMPTIONS: u32 = 4;

/// Searches victims beside the reserved capacity. Where its victims bring a workload within guarantee, reservations bind it as such
/// (law 7), so such sets are searched beside fewer of them.
pub fn beside_reserved(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    masked: &[Masked],
) -> Option<Victims> {
    let as_it_is = beside(scheduler, attempt, masked);
    let as_guaranteed = attempt.waiting.as_guaranteed(&scheduler.state, attempt.pool).and_then(|waiting| {
        let masks = reserve::masks_for(scheduler, &waiting, attempt.pool);
        let attempt = Attempt { waiting: &waiting, ..attempt };
        // Where it lacks nothing but the standing, victims would start again at once: it waits as the borrower that it is.
        let needs_victims = masks.len() < masked.len()
            && reserve::with_masked(scheduler, &masks, |scheduler| {
                matches!(capacity_on_its_way(scheduler, attempt), OnItsWay::TooLittle)
            });
        needs_victims.then(|| beside(scheduler, attempt, &masks)).flatten()
    });
    let least = as_it_is.into_iter().chain(as_guaranteed).min_by(|left, right| left.0.cmp(&right.0));
    least.map(|(_, victims)| victims)
}

/// Searches victims beside the reserved capacity: first in the places of workloads that hold some of it, and where every such set
/// would break a reservation, beside all of it.
fn beside(scheduler: &mut Scheduler, attempt: Attempt<'_>, masked: &[Masked]) -> Option<(Cost, Victims)> {
    let Attempt { waiting, pool, .. } = attempt;
    let in_their_place = reserve::masks_beside_victims(scheduler, waiting, pool).and_then(|less| {
        let starts = reserve::ReservedStarts::of(scheduler, waiting, pool);
        reserve::with_masked(scheduler, &less, |scheduler| {
            // What starts there without victims is kept from it by a reservation as a whole.
            let is_too_little = matches!(capacity_on_its_way(scheduler, attempt), OnItsWay::TooLittle);
            is_too_little.then(|| search(scheduler, attempt, &less, Some(&starts))).flatten()
        })
    });
    in_their_place.or_else(|| {
        reserve::with_masked(scheduler, masked, |scheduler| search(scheduler, attempt, masked, None))
    })
}

/// The verdict on a workload without victims for which some would be found if no reservation bound it: it names the reservation. A
/// reason decides nothing, so this search is not charged. Where the one before had to leave sets out, it would cost as much again,
/// so only the reserved nodes are searched.
pub fn kept_back(scheduler: &Scheduler, attempt: Attempt<'_>) -> Option<Verdict> {
    let Attempt { waiting, pool, .. } = attempt;
    reserve::binding(scheduler, waiting, pool).next()?;
    let reclaimable = &scheduler.queue.reclaimable;
    if blocked::missing_for_preemption(&scheduler.state, reclaimable, waiting, pool).is_some() {
        return None;
    }
    let left_sets_out = scheduler.cursor.search_budget == 0;
    let reserved = || reserve::binding(scheduler, waiting, pool).flat_map(|(_, slot)| slot.placement.keys());
    let nodes: Cow<'_, [NodeId]> = match left_sets_out {
        true => {
            let reserved: BTreeSet<NodeId> = reserved().copied().collect();
            attempt.nodes.iter().copied().filter(|node| reserved.contains(node)).collect()
        }
        false => attempt.nodes.into(),
    };
    let attempt = Attempt { nodes: &nodes, ..attempt };
    let (_, Victims { placement, .. }) = search_uncharged(scheduler, attempt, &[], None).found?;
    let there = |slot: &Slot| slot.placement.keys().any(|node| placement.contains_key(node));
    let (reservation, slot) = reserve::binding(scheduler, waiting, pool).find(|(_, slot)| there(slot))?;
    Some(explain::reserved(&scheduler.state, reservation, slot))
}

/// Whether the capacity that ending pods leave is enough for a workload.
pub enum OnItsWay {
    /// It is, and the workload is within guarantee: this placement is nominated to it.
    Nominate(Placement),
    /// It is, but gets it in the order of the queue once it is free: the workload borrows, or one of those that end returns to a place
    /// before it.
    LeaveToOrder,
    /// It is not.
    TooLittle,
}

/// Whether the capacity that ending pods leave is enough for a workload now.
pub fn capacity_on_its_way(scheduler: &Scheduler, attempt: Attempt<'_>) -> OnItsWay {
    let Attempt { waiting, pool, nodes, .. } = attempt;
    let state = &scheduler.state;
    let over = state.quotas.over_limit(pool, waiting.team, &waiting.total, &Hypothetical::new());
    if over.is_some() || !is_covered_or_may_borrow(state, waiting, pool) {
        return OnItsWay::TooLittle;
    }
    let (freed, request) = (Freed::new(), waiting.request(pool));
    let capacity = Capacity::Settled(&freed);
    if waiting.within_guarantee(state, pool) {
        match placement::place(state, nodes, &request, capacity) {
            Some(placement) if returns_before(scheduler, waiting, pool, &placement) => OnItsWay::LeaveToOrder,
            Some(placement) => OnItsWay::Nominate(placement),
            None => OnItsWay::TooLittle,
        }
    } else if placement::most(state, nodes, &request, capacity) >= waiting.pods {
        OnItsWay::LeaveToOrder
    } else {
        OnItsWay::TooLittle
    }
}

/// Whether a workload of the same team that ends on these nodes returns to a place in the queue before a waiting one (law 4): its
/// preemptor may be gone, or its user has requeued it. Where the waiting one lacks quota until such a workload has ended, that may be on
/// any node.
fn returns_before(scheduler: &Scheduler, waiting: &WaitingWorkload, pool: PoolId, nodes: &Placement) -> bool {
    let (state, queue) = (&scheduler.state, &scheduler.queue);
    let Some(own) = state.at(waiting.index) else { return false };
    let own_rank = queue.rank_if_queued(state, own);
    let anywhere = waiting.lacks_quota_now(state, pool);
    state.stopping().any(|info| {
        info.team == waiting.team
            && info.usage.pool == pool
            && (anywhere || info.usage.nodes.keys().any(|node| nodes.contains_key(node)))
            && info.workload.resumable
            // Growth stands behind all that waits.
            && (waiting.grows() || queue.rank_if_queued(state, info) < own_rank)
    })
}

/// Searches victims that free enough capacity for a workload and keep these reserved starts, and charges the search to the cycle's
/// budget.
fn search(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    masked: &[Masked],
    starts: Option<&reserve::ReservedStarts>,
) -> Option<(Cost, Victims)> {
    let SearchResult { found, retry_at, skipped, tried, bounded } =
        search_uncharged(scheduler, attempt, masked, starts);
    let cursor = &mut scheduler.cursor;
    cursor.awaits_start |= skipped;
    cursor.wake = [cursor.wake, retry_at].into_iter().flatten().min();
    cursor.effort.searches += 1;
    cursor.effort.sets += tried as u64;
    // A bounded search takes milliseconds on a large cluster, as long as a cycle may.
    cursor.search_budget = if bounded { 0 } else { cursor.search_budget.saturating_sub(tried) };
    cursor.effort.bounded += u64::from(bounded);
    found
}

/// The result of that search, without a charge.
fn search_uncharged(
    scheduler: &Scheduler,
    attempt: Attempt<'_>,
    masked: &[Masked],
    starts: Option<&reserve::ReservedStarts>,
) -> SearchResult {
    let Attempt { waiting, pool, nodes, now } = attempt;
    let state = &scheduler.state;
    let nominations = &scheduler.nominations;
    let nominated: Vec<Nominated<'_>> = nominations.iter().map(Nomination::nominated).collect();
    let none = BorrowingPreemptions::default();
    let caused = nominations.borrowing_preemptions(&waiting.id, scheduler.cursor.external_changes());
    let caused = caused.unwrap_or(&none);
    let may_borrow = caused.count < MAX_BORROWING_PREEMPTIONS && !waiting.as_guaranteed;
    let preempted_before = may_borrow.then_some(&caused.victims);
    let ending = nominations.still_ending(state, &waiting.id);
    let preemptor = Preemptor::of(waiting, pool, nodes, preempted_before, &ending);
    let reclaimable = &scheduler.queue.reclaimable;
    debug_assert!(reclaimable.is_current(state, pool), "the order of teams in a pool is kept up to date");
    let input = SearchInput {
        cluster: state,
        pending: &scheduler.queue.pending,
        reclaimable,
        run_times: &scheduler.prediction.run_times,
        nominated: &nominated,
        masked,
    };
    let permits = |victims: &Victims| {
        starts.is_none_or(|starts| starts.stay_whole_after(scheduler, waiting, victims, masked))
    };
    let conditions = Conditions { barred: &|id| scheduler.pauses(id), permits: &permits };
    preemption::search(input, preemptor, conditions, now)
}
