//! What must change before somebody who could not start can: so that nobody is asked in vain.
//!
//! A start needs limits, guarantee or surplus, and room; any one of these that is missing is enough to
//! watch. A claim on others' room needs at least one of three things, and each can be ruled out by
//! looking at accounts alone: lower priorities of the own team; the own guarantee, for one that is owed;
//! somebody elsewhere with a share at least as large, for a claim on the surplus. Where that does not
//! rule it out, nothing is watched and anything that makes room lets it be looked at again.

use super::Engine;
use super::candidate::{Candidate, find_pool, may_borrow, pool_names};
use super::forest::{Imagined, PoolIx};
use super::model::WorkloadId;
use super::pending::{Outlook, Watch};
use super::rooms::Rooms;
use super::sizes;

/// What to expect of a waiting workload that cannot start now.
pub fn outlook(engine: &Engine, rooms: &mut Rooms, id: &WorkloadId) -> Outlook {
    let books = &engine.books;
    let Some(entry) = books.get(id) else { return Outlook::Open };
    let Ok(queue) = books.queue_of(entry) else { return Outlook::Hopeless(Vec::new()) };
    let Some(candidate) = Candidate::of(books, id) else { return Outlook::Open };
    // A smaller size may fit where what is missing for the full one says nothing of it.
    if sizes::may_shrink(books, entry) {
        return Outlook::Open;
    }
    // A reservation follows everything that may let its holder start sooner.
    if engine.turns.values().any(|turn| turn.holder == *id) {
        return Outlook::Open;
    }
    let (team, total) = (candidate.team, &candidate.total);
    if books.forest.over_queue_limit(team, queue, total, &books.resources).is_some() {
        return Outlook::Hopeless(vec![Watch::Queue(team, queue.name.clone())]);
    }
    let (mut watches, mut claims, mut owed) = (Vec::new(), false, false);
    for name in pool_names(entry) {
        let Some(pool) = find_pool(books, &name) else { continue };
        watches.push(Watch::Account(pool, team));
        let Some(missing) = missing_for_start(engine, rooms, &candidate, pool) else { return Outlook::Open };
        watches.extend(missing);
        match missing_for_claim(engine, &candidate, pool) {
            Some(missing) => watches.extend(missing),
            None => claims = true,
        }
        owed |= books.forest.own_guarantee_holds(pool, team, total);
    }
    watches.sort_unstable();
    watches.dedup();
    if claims { Outlook::Claim { watches, owed } } else { Outlook::Hopeless(watches) }
}

/// What keeps it from starting in a pool as things are; `None` when nothing that is known of here does.
fn missing_for_start(
    engine: &Engine,
    rooms: &mut Rooms,
    candidate: &Candidate,
    pool: PoolIx,
) -> Option<Vec<Watch>> {
    let books = &engine.books;
    let over = books.forest.over_limit(pool, candidate.team, &candidate.total, &Imagined::new(), false);
    if let Some((at, _)) = over {
        return Some(vec![Watch::Account(pool, at)]);
    }
    if !candidate.preemptible && !candidate.owed(books, pool) {
        let path = &books.forest.team(candidate.team).path;
        return Some(path.iter().map(|at| Watch::Account(pool, *at)).collect());
    }
    if !may_borrow(books, candidate, pool) {
        return None;
    }
    let (room, pods) = (rooms.index_of(books, candidate, pool), u64::from(candidate.pods));
    (rooms.total(room) < pods).then(|| vec![Watch::Room(room, pods)])
}

/// What keeps others from making room for it, besides its own account; `None` when they might.
pub fn missing_for_claim(engine: &Engine, candidate: &Candidate, pool: PoolIx) -> Option<Vec<Watch>> {
    let (forest, team, total) = (&engine.books.forest, candidate.team, &candidate.total);
    // What those below hold counts as its own too, and what those above hold counts as nobody's else.
    let above = &forest.team(team).path[1..];
    if forest.stands_above(team) || above.iter().any(|at| engine.yielding.lowest(pool, *at).is_some()) {
        return None;
    }
    if engine.yielding.lowest(pool, team).is_some_and(|lowest| lowest < candidate.priority) {
        return None;
    }
    let limit = forest.over_limit(pool, team, total, &Imagined::new(), true);
    if limit.is_some_and(|(at, _)| at == team) {
        return Some(Vec::new());
    }
    if forest.own_guarantee_holds(pool, team, total) {
        return None;
    }
    if !candidate.preemptible {
        return Some(Vec::new());
    }
    let share = forest.level_share(pool, team, Some(total));
    let largest = engine.yielding.largest(pool, &forest.team(team).path);
    largest.is_none_or(|largest| largest < share).then(|| vec![Watch::Share(pool, share)])
}
