//! What can be done for one workload: let it start, have room freed for it, or say why not.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::admit::admit;
use super::books::Books;
use super::candidate::{Candidate, find_pool, fits_now, may_borrow, pool_names};
use super::claims::{Victim, promise};
use super::decision::{Plan, Reason, Verdict};
use super::entry::Entry;
use super::explain;
use super::forest::{Imagined, PoolIx};
use super::model::{Time, WorkloadId};
use super::nodes::NodeIx;
use super::outlook;
use super::placement::{self, Freed, Room};
use super::reclaim::{self, Hidden, Promised, Scene, Take, Victims};
use super::reserve;
use super::sizes;
use super::victims;
use super::{Engine, Spent};

/// So many claims on the surplus a workload makes at most while nothing changes from outside.
const MOST_CLAIMS: u32 = 4;

/// Admits the workload, or has room freed for it, or says why neither can be.
pub fn try_start(engine: &mut Engine, id: &WorkloadId, now: Time, plan: &mut Plan) -> Option<Verdict> {
    let entry = engine.books.get(id)?;
    if let Some(verdict) = barred(&engine.books, entry) {
        if sizes::try_smaller(engine, id, now, plan) {
            return None;
        }
        reserve::give_up(engine, id);
        return Some(verdict);
    }
    let pools = pool_names(entry);
    let candidate = Candidate::of(&engine.books, id)?;
    let mut held_back: BTreeMap<PoolIx, Verdict> = BTreeMap::new();
    let mut options: Vec<(PoolIx, Arc<[NodeIx]>)> = Vec::new();
    for name in &pools {
        let Some(pool) = find_pool(&engine.books, name) else { continue };
        let candidate = candidate.in_pool(&engine.books, pool);
        let nodes = placement::eligible(&engine.books, &candidate.request(pool));
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
    if sizes::try_smaller(engine, id, now, plan) {
        return None;
    }
    for (pool, nodes) in &options {
        let candidate = candidate.in_pool(&engine.books, *pool);
        // Most who wait have nobody to take from, and accounts tell that without a search.
        if !candidate.owed(&engine.books, *pool)
            && outlook::missing_for_claim(engine, &candidate, *pool).is_some()
        {
            continue;
        }
        if held_back.contains_key(pool) && reserve::has_kept_room(engine, &candidate, (*pool, nodes), now) {
            continue;
        }
        if let Err(verdict) = reserve::not_crowding(engine, &candidate, *pool, now) {
            held_back.insert(*pool, verdict);
            continue;
        }
        let make_room = |engine: &mut Engine, hidden: &[Hidden]| {
            make_room(engine, &candidate, *pool, nodes, hidden, now, plan)
        };
        if reserve::guarded(engine, &candidate, *pool, make_room) {
            return None;
        }
    }
    let refusals: Vec<Verdict> = options
        .iter()
        .map(|(pool, nodes)| {
            let candidate = candidate.in_pool(&engine.books, *pool);
            held_back.remove(pool).unwrap_or_else(|| refusal(engine, &candidate, *pool, nodes))
        })
        .collect();
    reserve::refused(engine, &candidate, &options, &refusals, now);
    // The most hopeful of the pools' reasons speaks for all.
    let verdict = refusals.into_iter().max_by_key(|verdict| hope(verdict.reason));
    Some(verdict.unwrap_or_else(|| explain::no_pool(&pools)))
}

/// Why a workload cannot start whatever the pool, if so.
fn barred(books: &Books, entry: &Entry) -> Option<Verdict> {
    let queue = match books.queue_of(entry) {
        Ok(queue) => queue,
        Err(reason) => return Some(explain::unknown(entry, reason)),
    };
    let over = books.forest.over_queue_limit(entry.team, queue, &entry.least_total(), &books.resources);
    over.map(|index| explain::queue_limit(books, queue, index))
}

/// Why a workload that waits cannot start, as things are now.
#[must_use]
pub fn why_not(engine: &Engine, id: &WorkloadId) -> Option<Verdict> {
    let books = &engine.books;
    let entry = books.get(id)?;
    if let Some(verdict) = barred(books, entry) {
        return Some(verdict);
    }
    let candidate = Candidate::of(books, id)?;
    let pools = pool_names(entry);
    let refusals = pools.iter().filter_map(|name| find_pool(books, name)).map(|pool| {
        let nodes = placement::eligible(books, &candidate.request(pool));
        refusal(engine, &candidate, pool, &nodes)
    });
    let verdict = refusals.max_by_key(|verdict| hope(verdict.reason));
    Some(verdict.unwrap_or_else(|| explain::no_pool(&pools)))
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

/// Promises the workload room that is being freed already, or has it freed; false if it may not.
fn make_room(
    engine: &mut Engine,
    candidate: &Candidate,
    pool: PoolIx,
    nodes: &[NodeIx],
    hidden: &[Hidden],
    now: Time,
    plan: &mut Plan,
) -> bool {
    let books = &engine.books;
    let allowed =
        books.forest.over_limit(pool, candidate.team, &candidate.total, &Imagined::new(), true).is_none();
    let owed = candidate.owed(books, pool);
    if allowed && may_borrow(books, candidate, pool) {
        let (freed, request) = (Freed::new(), candidate.request(pool));
        let room = Room::Settled(&freed);
        // Room that is being freed is promised to those who are owed it; the others, for whom
        // nobody need go either, get it in their order once it is free.
        if !owed {
            if placement::most(books, nodes, &request, room) >= candidate.pods {
                return false;
            }
        } else if let Some(placement) = placement::place(books, nodes, &request, room) {
            reserve::overtake(engine, candidate, pool, &placement);
            promise(engine, candidate, pool, placement, Vec::new());
            return true;
        }
    }
    if outlook::missing_for_claim(engine, candidate, pool).is_some() {
        return false;
    }
    let barred = |id: &WorkloadId| engine.pauses(id);
    let promised: Vec<Promised> = engine.claims.iter().filter_map(|claim| claim.promised(books)).collect();
    let spent = engine.spent.get(&candidate.id).filter(|spent| spent.at == engine.outside);
    let mut spent = spent.cloned().unwrap_or(Spent { at: engine.outside, ..Spent::default() });
    let taken = &spent.victims;
    let claimant = candidate.claimant(pool, nodes, (spent.claims < MOST_CLAIMS).then_some(taken));
    let scene =
        Scene { books, pending: &engine.pending, history: &engine.history, promised: &promised, hidden };
    let found = reclaim::search(scene, claimant, &barred, now);
    engine.awaits_start |= found.skipped;
    engine.wake = [engine.wake, found.retry_at].into_iter().flatten().min();
    engine.effort.searches += 1;
    engine.fuel = engine.fuel.saturating_sub(found.tried);
    engine.effort.bounded += u64::from(found.bounded);
    let Some(Victims { takes, placement, owed }) = found.victims else { return false };
    if !owed {
        spent.claims += 1;
        let gone = |take: &Take| matches!(take, Take::Whole(_)).then(|| take.id().clone());
        spent.victims.extend(takes.iter().filter_map(gone));
        engine.spent.insert(candidate.id.clone(), spent);
    }
    let victims: Vec<Victim> = takes
        .into_iter()
        .filter_map(|take| victims::take(engine, take, candidate, owed, now, plan))
        .collect();
    reserve::overtake(engine, candidate, pool, &placement);
    promise(engine, candidate, pool, placement, victims);
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
