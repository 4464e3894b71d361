//! What can be done for one workload: let it start, have room freed for it, or say why not.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Engine;
use super::books::Books;
use super::candidate::{Candidate, Eligible, find_pool, pool_names};
use super::claims::promise;
use super::decision::{Action, EvictReason, Plan, Reason, Verdict};
use super::entry::Phase;
use super::explain;
use super::forest::{Imagined, PoolIx};
use super::model::{Admission, Time, WorkloadId};
use super::nodes::NodeIx;
use super::placement::{self, Freed, Placement, Room};
use super::reclaim;
use super::reserve;

/// Admits the workload, or has room freed for it, or says why neither can be.
pub fn try_start(
    engine: &mut Engine,
    eligible: &mut Eligible,
    id: &WorkloadId,
    now: Time,
    plan: &mut Plan,
) -> Option<Verdict> {
    let entry = engine.books.get(id)?;
    let queue = match engine.books.queue_of(entry) {
        Ok(queue) => queue.clone(),
        Err(reason) => {
            let verdict = explain::unknown(entry, reason);
            reserve::give_up(engine, id);
            return Some(verdict);
        }
    };
    let pools = pool_names(entry);
    let candidate = Candidate::of(&engine.books, id)?;
    if let Some(index) = engine.books.forest.over_queue_limit(
        candidate.team,
        &queue,
        &candidate.total,
        &engine.books.resources,
    ) {
        reserve::give_up(engine, id);
        return Some(explain::queue_limit(&engine.books, &queue, index));
    }
    let mut held_back: BTreeMap<PoolIx, Verdict> = BTreeMap::new();
    let mut options: Vec<(PoolIx, Arc<[NodeIx]>)> = Vec::new();
    for name in &pools {
        let Some(pool) = find_pool(&engine.books, name) else { continue };
        let nodes = eligible.of(&engine.books, &candidate, pool);
        if let Some(start) = fits_now(&engine.books, &candidate, pool, &nodes, true) {
            match reserve::admissible(engine, &candidate, pool, &nodes, start, now) {
                Ok(start) => {
                    admit(engine, &candidate, pool, start, now, plan);
                    return None;
                }
                Err(verdict) => {
                    held_back.insert(pool, verdict);
                }
            }
        }
        options.push((pool, nodes));
    }
    for (pool, nodes) in &options {
        let make_room = |engine: &mut Engine| make_room(engine, &candidate, *pool, nodes, now, plan);
        if reserve::guarded(engine, &candidate, *pool, make_room) {
            return None;
        }
    }
    let refusals: Vec<Verdict> = options
        .iter()
        .map(|(pool, nodes)| {
            held_back.remove(pool).unwrap_or_else(|| refusal(engine, &candidate, *pool, nodes))
        })
        .collect();
    reserve::refused(engine, &candidate, &options, &refusals, now);
    // The most hopeful of the pools' reasons speaks for all.
    let verdict = refusals.into_iter().max_by_key(|verdict| hope(verdict.reason));
    Some(verdict.unwrap_or_else(|| explain::no_pool(&pools)))
}

/// Where the workload can start at once by every rule, if anywhere.
pub fn fits_now(
    books: &Books,
    candidate: &Candidate,
    pool: PoolIx,
    nodes: &[NodeIx],
    check_surplus: bool,
) -> Option<Placement> {
    let over =
        books.forest.over_limit(pool, candidate.team, &candidate.total, &Imagined::new(), false).is_some();
    if over || check_surplus && surplus_refusal(books, candidate, pool).is_some() {
        return None;
    }
    placement::place(books, nodes, &candidate.request(pool), Room::Now)
}

/// Why the workload may not live off the surplus, if it would have to.
fn surplus_refusal(books: &Books, candidate: &Candidate, pool: PoolIx) -> Option<Verdict> {
    if candidate.owed(books, pool) {
        None
    } else if !candidate.preemptible {
        Some(explain::must_fit_guarantee(books, candidate.team, pool, &candidate.total))
    } else {
        explain::lending_refusal(books, candidate.team, pool, &candidate.total)
    }
}

/// Decides the admission.
pub fn admit(
    engine: &mut Engine,
    candidate: &Candidate,
    pool: PoolIx,
    placement: Placement,
    now: Time,
    plan: &mut Plan,
) {
    let borrowed = !candidate.owed(&engine.books, pool);
    let message = explain::admitted(&engine.books, candidate.team, pool, &candidate.total, borrowed);
    let admission = Admission {
        pool: engine.books.forest.pool_name(pool).clone(),
        nodes: placement.iter().map(|(node, pods)| (engine.books.nodes.name(*node).clone(), *pods)).collect(),
        pods: candidate.pods,
        borrowed,
        at: now,
    };
    engine.books.set_phase(&candidate.id, Phase::Starting(admission.clone()));
    engine.pending.remove(&candidate.id);
    reserve::started(engine, &candidate.id);
    plan.actions.push(Action::Admit { workload: candidate.id.clone(), admission, message });
}

/// Promises the workload room that is being freed already, or has it freed; false if it may not.
fn make_room(
    engine: &mut Engine,
    candidate: &Candidate,
    pool: PoolIx,
    nodes: &[NodeIx],
    now: Time,
    plan: &mut Plan,
) -> bool {
    let books = &engine.books;
    let allowed =
        books.forest.over_limit(pool, candidate.team, &candidate.total, &Imagined::new(), true).is_none();
    if allowed && candidate.owed(books, pool) {
        let settled = Room::Settled(&Freed::new()).place(engine, candidate, pool, nodes);
        if let Some(placement) = settled {
            promise(engine, candidate, pool, placement, Vec::new());
            return true;
        }
    }
    let barred = |id: &WorkloadId| engine.pauses(id);
    let others: Vec<WorkloadId> = engine.pending.firsts_of_others(candidate.team).cloned().collect();
    let found = reclaim::search(books, &candidate.claimant(pool, nodes, &others), &barred, now);
    engine.awaits_start |= found.skipped;
    engine.wake = [engine.wake, found.retry_at].into_iter().flatten().min();
    let Some(victims) = found.victims else { return false };
    let gone: Vec<WorkloadId> =
        victims.ids.into_iter().filter(|id| evict(engine, id, candidate, now, plan)).collect();
    promise(engine, candidate, pool, victims.placement, gone);
    true
}

/// Decides the eviction of somebody who runs.
fn evict(engine: &mut Engine, id: &WorkloadId, claimant: &Candidate, now: Time, plan: &mut Plan) -> bool {
    let Some(entry) = engine.books.get(id) else { return false };
    let Phase::Running(admission) = entry.phase.clone() else { return false };
    let reason = if entry.team == claimant.team { EvictReason::Preempted } else { EvictReason::Reclaimed };
    let message = explain::evicted(&engine.books, entry, &claimant.id, reason, now);
    engine.books.set_phase(id, Phase::Stopping(admission));
    plan.actions.push(Action::Evict {
        workload: id.clone(),
        claimant: Some(claimant.id.clone()),
        reason,
        message,
    });
    true
}

/// Why the workload cannot start in one of its pools.
fn refusal(engine: &Engine, candidate: &Candidate, pool: PoolIx, nodes: &[NodeIx]) -> Verdict {
    let books = &engine.books;
    if let Some(verdict) = explain::no_node(books, nodes, &candidate.request(pool)) {
        return verdict;
    }
    let over = books.forest.over_limit(pool, candidate.team, &candidate.total, &Imagined::new(), false);
    if let Some((team, index)) = over {
        return explain::team_limit(books, team, pool, index, &candidate.total);
    }
    surplus_refusal(books, candidate, pool)
        .unwrap_or_else(|| explain::no_room(books, nodes, &candidate.request(pool)))
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
