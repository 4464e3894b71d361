//! The attempt to start one waiting workload: it is admitted, capacity is freed for it, or it is refused with a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cycle::admit::admit;
use crate::cycle::preempt::{Preemption, preempt};
use crate::cycle::refusal::{self, Funded};
use crate::cycle::{blocked, elastic_start, reserve, smaller_size, take_over, victims};
use crate::placement;
use crate::placement::waiting::{Attempt, WaitingWorkload, find_pool, may_start_now, pool_names};
use crate::queue::WaitQueue;
use crate::scheduler::Scheduler;
use crate::types::ids::{NodeId, PoolId};
use crate::types::{Name, Plan, Reason, Time, Verdict, WorkloadId};

/// The pools in which a workload has not started.
#[derive(Default)]
struct Options {
    /// Each pool with its eligible nodes, in the workload's order.
    pools: Vec<(PoolId, Arc<[NodeId]>)>,
    /// The pools in which a reservation withholds free capacity, with the verdict that names it.
    withheld: BTreeMap<PoolId, Verdict>,
    /// The pools in which a budget does not cover the workload, so that nothing is preempted for it, with the verdict that
    /// names the budget.
    unfunded: BTreeMap<PoolId, Verdict>,
    /// The pools in which victims were searched and not found.
    without_victims: BTreeSet<PoolId>,
    /// Whether a search of victims was put off.
    put_off: bool,
}

/// The result of an attempt.
pub enum Attempted {
    /// The workload is admitted, or capacity is nominated to it, or it does not exist any more.
    Settled,
    /// It still waits, for this reason.
    Refused(Verdict),
    /// It would borrow and could start, but this workload within guarantee of another team comes first.
    Behind(WorkloadId),
}

/// Why it is a workload's turn to be attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is first in order. Where it is about to borrow, a workload within guarantee of another team may come first all the same.
    InOrder,
    /// It comes before a borrower that was about to start, and does not yield in turn.
    BeforeBorrower,
}

/// Attempts a workload.
pub fn run(scheduler: &mut Scheduler, id: &WorkloadId, turn: Turn, now: Time, plan: &mut Plan) -> Attempted {
    let Some(info) = scheduler.state.get(id) else { return Attempted::Settled };
    // 1. Barred: its queue is unknown or full, so its full size cannot start in any pool.
    if let Some(verdict) = refusal::barred(&scheduler.state, info) {
        if smaller_size::admit_smaller(scheduler, id, now, plan) {
            return Attempted::Settled;
        }
        note_barred(scheduler, id, &verdict, now);
        return Attempted::Refused(verdict);
    }
    let pools = pool_names(info);
    let Some(waiting) = WaitingWorkload::of(&scheduler.state, id) else { return Attempted::Settled };
    // 2. Start now, in the first pool with free capacity that no reservation keeps.
    let mut options = match start_now(scheduler, (&waiting, turn), &pools, now, plan) {
        Ok(options) => options,
        Err(attempted) => return attempted,
    };
    // 3. Start now at a smaller size, if the workload accepts one.
    if smaller_size::admit_smaller(scheduler, id, now, plan) {
        return Attempted::Settled;
    }
    // 4. Preempt, in the first pool where that lets it start; not for a start that the API server refuses.
    if !scheduler.retries.refused.contains(id)
        && preempt_in_a_pool(scheduler, &waiting, &mut options, now, plan)
    {
        return Attempted::Settled;
    }
    // 5. Refuse.
    Attempted::Refused(refuse(scheduler, &waiting, &pools, options, now))
}

/// Notes that its queue keeps a workload from starting in any pool. Where the queue is full, the workload may own the
/// reservation of its team.
fn note_barred(scheduler: &mut Scheduler, id: &WorkloadId, verdict: &Verdict, now: Time) {
    let waiting = (verdict.reason == Reason::QueueLimit).then(|| WaitingWorkload::of(&scheduler.state, id));
    let (Some(waiting), Some(info)) = (waiting.flatten(), scheduler.state.get(id)) else {
        return reserve::release(scheduler, id);
    };
    let pools = pool_names(info).into_iter().filter_map(|name| {
        let pool = find_pool(&scheduler.state, &name)?;
        Some((pool, placement::eligible(&scheduler.state, &waiting.request(pool))))
    });
    let pools: Vec<_> = pools.collect();
    let verdicts = vec![verdict.clone(); pools.len()];
    reserve::note_refusal(scheduler, &waiting, &pools, &verdicts, now);
}

/// Admits a workload in the first of these pools where it can start at once, unless its queue keeps it back or another workload
/// comes first. `None` if it can start in none of them.
pub fn start_in(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    names: &[Name],
    now: Time,
    plan: &mut Plan,
) -> Option<Attempted> {
    let info = scheduler.state.get(&waiting.id)?;
    if refusal::barred(&scheduler.state, info).is_some() {
        return None;
    }
    start_now(scheduler, (waiting, Turn::InOrder), names, now, plan).err()
}

/// Admits a workload in the first pool where it can start at once; if there is none, returns its pools.
///
/// # Errors
/// How the attempt has ended.
fn start_now(
    scheduler: &mut Scheduler,
    (waiting, turn): (&WaitingWorkload, Turn),
    names: &[Name],
    now: Time,
    plan: &mut Plan,
) -> Result<Options, Attempted> {
    let mut options = Options::default();
    for name in names {
        let Some(pool) = find_pool(&scheduler.state, name) else { continue };
        let waiting = waiting.in_pool(&scheduler.state, pool);
        let nodes = placement::eligible(&scheduler.state, &waiting.request(pool));
        let waiting = match refusal::funded(&scheduler.state, waiting, pool) {
            Funded::Fully(waiting) => waiting,
            Funded::IdleOnly(waiting, verdict) => {
                options.unfunded.insert(pool, verdict);
                waiting
            }
            Funded::Not(verdict) => {
                options.unfunded.insert(pool, verdict);
                options.pools.push((pool, nodes));
                continue;
            }
        };
        if let Some(start) = may_start_now(&scheduler.state, &waiting, pool, &nodes) {
            let attempt = Attempt { waiting: &waiting, pool, nodes: &nodes, now };
            match reserve::admissible(scheduler, attempt, start) {
                Ok(beside) => {
                    if turn == Turn::InOrder
                        && let Some(first) = first_within_guarantee(scheduler, &waiting, pool)
                    {
                        return Err(Attempted::Behind(first));
                    }
                    let start = elastic_start::settle(scheduler, attempt, beside);
                    admit(scheduler, &waiting, pool, start, now, plan);
                    return Err(Attempted::Settled);
                }
                Err(verdict) => _ = options.withheld.insert(pool, verdict),
            }
        }
        options.pools.push((pool, nodes));
    }
    Ok(options)
}

/// The workload within guarantee of another team that comes before a workload that is about to borrow.
fn first_within_guarantee(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
) -> Option<WorkloadId> {
    if waiting.within_guarantee(&scheduler.state, pool) {
        return None;
    }
    let WaitQueue { order, pending, headroom, .. } = &mut scheduler.queue;
    order.first_within_guarantee(&scheduler.state, pending, headroom, waiting.team)
}

/// Frees capacity for a workload in the first of its pools where that is possible; false if there is none.
fn preempt_in_a_pool(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    options: &mut Options,
    now: Time,
    plan: &mut Plan,
) -> bool {
    let mut turn = None;
    for (pool, nodes) in &options.pools {
        let pool = *pool;
        if options.unfunded.contains_key(&pool) {
            continue;
        }
        let waiting = waiting.in_pool(&scheduler.state, pool);
        let attempt = Attempt { waiting: &waiting, pool, nodes, now };
        // Most waiting workloads have nothing to preempt, which quota usage tells without a search.
        if !waiting.within_guarantee(&scheduler.state, pool)
            && !blocked::may_preempt(scheduler, &waiting, pool)
            && !take_over::has_sibling(scheduler, attempt)
        {
            continue;
        }
        if options.withheld.contains_key(&pool) && reserve::team_has_reserved_capacity(scheduler, attempt) {
            continue;
        }
        let mut as_guaranteed = None;
        if let Err(verdict) = reserve::leave_quotas_to_owners(scheduler, &waiting, pool, now) {
            options.withheld.insert(pool, verdict);
            // Without its victims it may be within guarantee, and then less is kept from it.
            as_guaranteed = waiting.as_guaranteed(&scheduler.state, pool);
            as_guaranteed = as_guaranteed
                .filter(|waiting| reserve::leave_quotas_to_owners(scheduler, waiting, pool, now).is_ok());
            if as_guaranteed.is_none() {
                continue;
            }
        }
        let attempt = Attempt { waiting: as_guaranteed.as_ref().unwrap_or(&waiting), ..attempt };
        match preempt(scheduler, attempt, &mut turn, plan) {
            Preemption::Settled => return true,
            Preemption::NoVictims => _ = options.without_victims.insert(pool),
            Preemption::NotSearched => {}
            Preemption::PutOff => options.put_off = true,
        }
    }
    false
}

/// Notes that a workload stays in the queue, which may make it the owner of a reservation, and says why.
fn refuse(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    names: &[Name],
    options: Options,
    now: Time,
) -> Verdict {
    let Options { pools, mut withheld, mut unfunded, without_victims, put_off } = options;
    let state = &scheduler.state;
    let verdict = |(pool, nodes): &(PoolId, Arc<[NodeId]>)| {
        let waiting = waiting.in_pool(state, *pool);
        let known = unfunded.remove(pool).or_else(|| withheld.remove(pool));
        known.unwrap_or_else(|| refusal::in_pool(state, &waiting, *pool, nodes))
    };
    let mut verdicts: Vec<Verdict> = pools.iter().map(verdict).collect();
    for (verdict, (pool, nodes)) in verdicts.iter_mut().zip(&pools) {
        let lacks_capacity = matches!(verdict.reason, Reason::NoRoom | Reason::Fragmented);
        if lacks_capacity && without_victims.contains(pool) {
            let waiting = waiting.in_pool(&scheduler.state, *pool);
            let attempt = Attempt { waiting: &waiting, pool: *pool, nodes, now };
            if let Some(kept_back) = victims::kept_back(scheduler, attempt) {
                *verdict = kept_back;
            }
        }
    }
    // Nothing is reserved for a start that the API server refuses: others of its team would wait for it in vain.
    if scheduler.retries.refused.contains(&waiting.id) {
        reserve::release(scheduler, &waiting.id);
    } else {
        reserve::note_refusal(scheduler, waiting, &pools, &verdicts, now);
    }
    let verdict = refusal::across_pools(verdicts, names);
    // That a reservation keeps victims from it is known only from a search: until the next one that stays the reason.
    let known = || {
        let class = scheduler.queue.pending.class_of(&waiting.id)?;
        Some(scheduler.queue.pending.refusal(class)?.0.clone())
    };
    let known = if put_off { known() } else { None };
    let kept_back = known.filter(|known| known.reason == Reason::Reserved);
    kept_back.filter(|_| matches!(verdict.reason, Reason::NoRoom | Reason::Fragmented)).unwrap_or(verdict)
}
