//! What those of one team leave to the one of them that has its turn, beside the room that is reserved for it.

use super::super::Engine;
use super::super::candidate::Candidate;
use super::super::decision::Verdict;
use super::super::entry::{Entry, Phase};
use super::super::explain;
use super::super::forest::PoolIx;
use super::super::model::Time;
use super::super::nodes::NodeIx;
use super::super::timeline::Opening;
use super::super::vector::Vector;
use super::kept::{Reserved, Turn, before, elsewhere, passes, respected, within_own_guarantee};

/// The turn of a mate that goes before a candidate, and who holds it, if room is reserved for it at a time at which
/// the candidate would still run.
fn ahead<'a>(
    engine: &'a Engine,
    candidate: &Candidate,
    pool: PoolIx,
    now: Time,
) -> Option<(&'a Turn, &'a Opening, &'a Entry)> {
    let turn = engine.turns.get(&(pool, candidate.team))?;
    let opening = turn.opening.as_ref()?;
    let holder = engine.books.get(&turn.holder).filter(|holder| holder.phase == Phase::Pending)?;
    let goes_before = turn.holder == candidate.id || before(engine, candidate, turn);
    (!goes_before && !passes(engine, candidate, now, opening)).then_some((turn, opening, holder))
}

/// Lets a candidate pass unless others have taken of the room that is reserved for a mate before it, and it would take
/// of their team's guarantee what that one needs to be owed its start: until then whoever is owed goes before it.
///
/// # Errors
/// The verdict on the candidate.
pub fn not_crowding(engine: &Engine, candidate: &Candidate, pool: PoolIx, now: Time) -> Result<(), Verdict> {
    let books = &engine.books;
    let ahead = ahead(engine, candidate, pool, now).filter(|(turn, ..)| turn.overtaken);
    let Some((turn, opening, holder)) = ahead else { return Ok(()) };
    let (account, needs) = (books.forest.account(pool, candidate.team), holder.least_total());
    let asked = || account.governed().filter(|(index, _)| needs.get(*index) > 0);
    let crowds = |(index, guaranteed): (usize, i64)| {
        let more = candidate.total.get(index);
        more > 0 && account.settled(index) + more + needs.get(index) > guaranteed
    };
    let crowds = within_own_guarantee(books, candidate.team, &candidate.total, pool)
        && asked().all(|(index, guaranteed)| needs.get(index) <= guaranteed)
        && asked().any(crowds);
    if crowds { Err(explain::crowding(books, turn, opening)) } else { Ok(()) }
}

/// Whether a candidate that is owed its start has its guarantee already, with what is kept free for a mate before it
/// that is not, and nothing but that keeps it from starting: who left for it would in truth leave for that one.
pub fn has_kept_room(
    engine: &mut Engine,
    candidate: &Candidate,
    (pool, nodes): (PoolIx, &[NodeIx]),
    now: Time,
) -> bool {
    let books = &engine.books;
    let Some((turn, opening, holder)) = ahead(engine, candidate, pool, now) else { return false };
    let owed = |team, total: &Vector| within_own_guarantee(books, team, total, pool);
    let may_take_mates =
        engine.yielding.lowest(pool, candidate.team).is_some_and(|lowest| lowest < candidate.priority);
    if may_take_mates || !owed(candidate.team, &candidate.total) || owed(holder.team, &holder.least_total()) {
        return false;
    }
    let kept = |index: usize| -> i64 {
        let on = |(node, pods): (&NodeIx, &u32)| {
            let free = books.nodes.get(*node).now().amounts().get(index);
            free.clamp(0, turn.need.get(index) * i64::from(*pods))
        };
        opening.placement.iter().map(on).sum()
    };
    let account = books.forest.account(pool, candidate.team);
    let has = |(index, guaranteed): (usize, i64)| {
        account.settled(index) + kept(index) + candidate.total.get(index) > guaranteed
    };
    if !account.governed().filter(|(index, _)| candidate.total.get(*index) > 0).all(has) {
        return false;
    }
    let others = respected(engine, candidate, pool).filter(|(other, _)| other.team != candidate.team);
    let others: Vec<Reserved> = others.map(|(turn, opening)| (turn.clone(), opening.clone())).collect();
    let lasts = |(_, opening): &&Reserved| !passes(engine, candidate, now, opening);
    let kept: Vec<Reserved> = others.iter().filter(lasts).cloned().collect();
    elsewhere(engine, candidate, (pool, nodes), &kept, &others).is_some()
}
