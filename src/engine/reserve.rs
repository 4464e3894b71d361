//! Reservations: the first of a team that finds no room is promised room that will come (Law 7).
//!
//! In every pool at most one workload of a team has its turn, and so many teams. It gets nodes and a time
//! at once when the ends of those in its way can be predicted, else when it has waited for its queue's
//! `reserve_after`. From then on nobody behind it in the order may start in a way that pushes its start
//! back: who may pass ends before that time, or leaves the reserved room whole.
//!
//! The turn is kept: it ends when its holder starts, leaves or asks for something else, or when one
//! of the same team that goes before it finds no room either. Nodes and time are kept too, unless
//! they cannot be held any more or an earlier time is possible. What is promised to one team is out of
//! sight of all others, whether they have a turn themselves or not.
//!
//! Before the holder go: who stands before it in its own team, and who is owed its room when the
//! holder is not; the latter leave the reserved room whole where they can. Where only what is reserved for
//! their own team, at no predictable time, keeps them from that, the younger of the two reservations gives
//! way until the older's holder has started. Room already promised to those for whom others leave is theirs.
//!
//! To its own team a reservation is more than room. Once others have taken of it, mates behind the holder leave
//! it their guarantee as well, if that holds it: until it is owed its start, whoever is owed would go before it
//! again and again. And where the holder would live off the surplus, what is kept free for it counts as what its
//! team has: nobody of another team leaves for a mate who could start there.

mod kept;
mod mates;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::candidate::Candidate;
use super::decision::{Reason, ReservationView, Verdict};
use super::entry::Phase;
use super::forest::{PoolIx, TeamIx};
use super::model::{Time, WorkloadId};
use super::nodes::NodeIx;
use super::pass;
use super::placement::{self, Placement};
use super::timeline::{Opening, Until};
pub use kept::{Turn, guarded, overtake, stands_back};
use kept::{before, hidden_from, holds_on, is_whole, out_of_sight, waits};
pub use mates::{has_kept_room, not_crowding};

/// So many teams have a turn in a pool at most: every one of them is asked again whenever room comes free.
const TURNS: usize = 16;

/// Who has its turn to start next, by pool and team.
pub type Turns = BTreeMap<(PoolIx, TeamIx), Turn>;

/// Where a candidate may start that could start at `found` but for reservations; the error says for
/// whom it has to wait.
///
/// # Errors
/// The verdict on the candidate.
pub fn admissible(
    engine: &mut Engine,
    candidate: &Candidate,
    pool: PoolIx,
    nodes: &[NodeIx],
    found: Placement,
    now: Time,
) -> Result<Placement, Verdict> {
    not_crowding(engine, candidate, pool, now)?;
    kept::admissible(engine, candidate, pool, nodes, found, now)
}

/// Whether every team that may have a turn in a pool has one.
#[must_use]
pub fn is_full(engine: &Engine, pool: PoolIx) -> bool {
    engine.turns.range((pool, TeamIx::MIN)..=(pool, TeamIx::MAX)).count() >= TURNS
}

/// When the first turn without a reservation gets one although its start cannot be predicted.
#[must_use]
pub fn next(engine: &Engine) -> Option<Time> {
    let open = engine.turns.iter().filter(|((pool, _), turn)| is_open(engine, *pool, turn));
    open.map(|(_, turn)| turn.due).min()
}

/// Whether nothing is reserved for a turn's holder, but may be when the time has come.
fn is_open(engine: &Engine, pool: PoolIx, turn: &Turn) -> bool {
    turn.opening.is_none() && !turn.crowded && !stands_back(engine, pool, turn) && waits(engine, &turn.holder)
}

/// Looks again at those turns for which a reservation has become due.
pub fn fire(engine: &mut Engine, now: Time) {
    let due = engine.turns.iter().filter(|((pool, _), turn)| turn.due <= now && is_open(engine, *pool, turn));
    // Between teams the first in order has the choice.
    let mut due: Vec<_> = due.map(|(place, turn)| (pass::standing(engine, &turn.holder), *place)).collect();
    due.sort();
    if !due.is_empty() {
        engine.pending.wake_all();
    }
    for (_, (pool, team)) in due {
        let Some(candidate) =
            engine.turns.get(&(pool, team)).and_then(|turn| Candidate::of(&engine.books, &turn.holder))
        else {
            continue;
        };
        let nodes = placement::eligible(&engine.books, &candidate.request(pool));
        review(engine, &candidate, pool, &nodes, now);
    }
}

/// What is reserved for whom.
pub fn views(engine: &Engine) -> Vec<ReservationView> {
    let books = &engine.books;
    let view = |((pool, _), turn): (&(PoolIx, TeamIx), &Turn)| {
        let opening = turn.opening.as_ref().filter(|_| waits(engine, &turn.holder))?;
        let nodes = opening.placement.iter().map(|(node, pods)| (books.nodes.name(*node).clone(), *pods));
        Some(ReservationView {
            holder: turn.holder.clone(),
            pool: books.forest.pool_name(*pool).clone(),
            nodes: nodes.collect(),
            start: opening.at,
        })
    };
    engine.turns.iter().filter_map(view).collect()
}

/// Ends the turn of a workload that started, left, or asks for something else; `before` is where it
/// stood until now.
pub fn drop_stale(engine: &mut Engine, id: &WorkloadId, before: Option<&Phase>) {
    let books = &engine.books;
    let stale = |turn: &Turn| {
        turn.holder == *id
            && !books.get(id).zip(Candidate::of(books, id)).is_some_and(|(entry, c)| turn.is_for(entry, &c))
    };
    let turns = engine.turns.len();
    engine.turns.retain(|_, turn| !stale(turn));
    // Once it was about to start, its room was no longer kept from others.
    if engine.turns.len() != turns && before == Some(&Phase::Pending) {
        engine.epoch += 1;
        engine.vacated = true;
    }
}

/// Ends the turn of a workload that has been promised room for which others leave, or that its own
/// limits keep from starting.
pub fn give_up(engine: &mut Engine, id: &WorkloadId) {
    let turns = engine.turns.len();
    engine.turns.retain(|_, turn| turn.holder != *id);
    if engine.turns.len() != turns {
        engine.epoch += 1;
        engine.vacated = true;
    }
}

/// Takes note that a workload starts by the engine's decision: its turn is over.
pub fn started(engine: &mut Engine, id: &WorkloadId) {
    engine.timeline.note(&engine.books, &engine.history, id);
    give_up(engine, id);
}

/// The workload cannot start in these pools, for these reasons: where it lacks nothing but room it has
/// its turn, if nobody else of its team has.
pub fn refused(
    engine: &mut Engine,
    candidate: &Candidate,
    options: &[(PoolIx, Arc<[NodeIx]>)],
    verdicts: &[Verdict],
    now: Time,
) {
    let scarce: Vec<_> = options
        .iter()
        .zip(verdicts)
        .filter(|(_, verdict)| for_room(verdict.reason))
        .map(|(option, _)| option)
        .collect();
    for (pool, nodes) in &scarce {
        let turn = engine.turns.get(&(*pool, candidate.team));
        if turn.is_some_and(|turn| turn.holder == candidate.id) {
            review(engine, candidate, *pool, nodes, now);
            return;
        }
    }
    give_up(engine, &candidate.id);
    let mut best: Option<((bool, Option<Time>), PoolIx)> = None;
    for (pool, nodes) in scarce {
        let open = match engine.turns.get(&(*pool, candidate.team)) {
            Some(turn) => yields(engine, turn, candidate),
            None => !is_full(engine, *pool),
        };
        if !open {
            continue;
        }
        let opening = opening(engine, candidate, *pool, nodes, now, Until::Everybody);
        if opening.is_none() && !is_possible(engine, candidate, *pool, nodes, now) {
            continue;
        }
        let at = opening.and_then(|opening| opening.at);
        let rank = (at.is_none(), at);
        if best.as_ref().is_none_or(|(least, _)| rank < *least) {
            best = Some((rank, *pool));
        }
    }
    let Some((_, pool)) = best else { return };
    let Some(entry) = engine.books.get(&candidate.id) else { return };
    let reserve_after = engine.books.queue_of(entry).map_or(Duration::ZERO, |queue| queue.reserve_after);
    let turn = Turn {
        holder: candidate.id.clone(),
        team: candidate.team,
        need: candidate.need.clone(),
        pods: candidate.pods,
        due: engine.timers.waits_since(entry).after(reserve_after),
        opening: None,
        crowded: false,
        overtaken: false,
        behind: None,
        decided: now,
    };
    if engine.turns.insert((pool, candidate.team), turn).is_some_and(|before| before.opening.is_some()) {
        engine.epoch += 1;
    }
    if let Some((_, nodes)) = options.iter().find(|(option, _)| *option == pool) {
        review(engine, candidate, pool, nodes, now);
    }
}

/// Whether a workload with this reason waits for nodes, not for its own team.
fn for_room(reason: Reason) -> bool {
    use Reason::{Fragmented, LendingLimit, NoRoom, Reserved, RoomHeld};
    matches!(reason, NoRoom | Fragmented | RoomHeld | LendingLimit | Reserved)
}

/// Whether a workload with this reason goes before the holder of its team's turn, and so has not taken the turn
/// only because what is promised to others leaves it no room: whatever ends such a promise may give it the turn.
#[must_use]
pub fn may_come_first(engine: &Engine, id: &WorkloadId, reason: Reason) -> bool {
    for_room(reason)
        && Candidate::of(&engine.books, id).is_some_and(|candidate| {
            let mut turns = engine.turns.iter().filter(|((_, team), _)| *team == candidate.team);
            turns.any(|(_, turn)| turn.holder != *id && before(engine, &candidate, turn))
        })
}

/// Whether a turn passes to a candidate that finds no room either.
fn yields(engine: &Engine, turn: &Turn, candidate: &Candidate) -> bool {
    !waits(engine, &turn.holder) || before(engine, candidate, turn)
}

/// The earliest room for a candidate beside what is reserved for others.
fn opening(
    engine: &mut Engine,
    candidate: &Candidate,
    pool: PoolIx,
    nodes: &[NodeIx],
    now: Time,
    until: Until,
) -> Option<Opening> {
    engine.timeline.catch_up(&engine.books, &engine.history, pool, now);
    let hidden = hidden_from(engine, candidate, pool);
    out_of_sight(engine, &hidden, |engine| {
        engine.timeline.opening(&engine.books, candidate, pool, nodes, now, until)
    })
}

/// Whether there would be room for a candidate some day, were nothing promised to others.
fn is_possible(engine: &Engine, candidate: &Candidate, pool: PoolIx, nodes: &[NodeIx], now: Time) -> bool {
    engine.timeline.opening(&engine.books, candidate, pool, nodes, now, Until::Everybody).is_some()
}

/// Brings a turn's reservation up to date.
fn review(engine: &mut Engine, candidate: &Candidate, pool: PoolIx, nodes: &[NodeIx], now: Time) {
    engine.timeline.catch_up(&engine.books, &engine.history, pool, now);
    let place = (pool, candidate.team);
    let Some(turn) = engine.turns.get(&place).cloned() else { return };
    let until = match &turn.opening {
        None if turn.due > now || stands_back(engine, pool, &turn) => Until::Predicted,
        None => Until::Everybody,
        Some(opening) => {
            let usable = opening.placement.keys().all(|node| nodes.contains(node));
            let passed = opening.at.is_some_and(|at| at < now);
            if usable && (passed || !is_whole(engine, pool, &turn, opening)) {
                // Who expects others to end in vain waits on the same nodes for longer: there some have
                // ended, and elsewhere it would begin anew.
                if let Some(later) = put_off(engine, candidate, pool, &turn, opening, now) {
                    if let Some(turn) = engine.turns.get_mut(&place) {
                        turn.opening = Some(later);
                        turn.decided = now;
                        engine.epoch += 1;
                    }
                    return;
                }
                Until::Everybody
            } else {
                let before = opening.at.unwrap_or(Time(i64::MAX));
                match usable {
                    false => Until::Everybody,
                    true if engine.timeline.is_sure_before(pool, before) => Until::Before(before),
                    true => return,
                }
            }
        }
    };
    let mut opening = opening(engine, candidate, pool, nodes, now, until);
    if let Some(found) = opening.take_if(|_| !matches!(until, Until::Before(_))) {
        // A share may be there as long as others are on its device, and not once all of that is kept for somebody.
        opening = put_off(engine, candidate, pool, &turn, &found, now);
    }
    // Room that is there once those who leave are gone is no earlier than now.
    let sooner = opening.filter(|opening| !matches!(until, Until::Before(at) if opening.at >= Some(at)));
    match (sooner, engine.turns.get_mut(&place)) {
        (Some(opening), Some(turn)) => {
            turn.opening = Some(opening);
            turn.crowded = false;
            turn.decided = now;
            engine.epoch += 1;
        }
        (None, Some(_)) if until == Until::Everybody => {
            let crowded = is_possible(engine, candidate, pool, nodes, now);
            let changed = !crowded || !turn.crowded || turn.opening.is_some();
            match engine.turns.get_mut(&place).filter(|_| crowded) {
                Some(turn) => (turn.opening, turn.crowded) = (None, true),
                // Not even with everybody gone; others may have their turn.
                None => _ = engine.turns.remove(&place),
            }
            engine.epoch += u64::from(changed);
        }
        _ => {}
    }
}

/// The same room at the earliest time from now on, beside all that is reserved for others; `None` if it
/// cannot be had there at all.
fn put_off(
    engine: &mut Engine,
    candidate: &Candidate,
    pool: PoolIx,
    turn: &Turn,
    opening: &Opening,
    now: Time,
) -> Option<Opening> {
    let there = opening.placement.keys().flat_map(|node| engine.books.occupants(*node));
    let ends = there.filter_map(|(entry, _)| engine.timeline.end(&entry.workload.id));
    let mut times: Vec<Option<Time>> = ends.filter(|end| *end >= now).chain([now]).map(Some).collect();
    times.sort_unstable();
    times.push(None);
    let hidden = hidden_from(engine, candidate, pool);
    out_of_sight(engine, &hidden, |engine| {
        let openings = times.into_iter().map(|at| Opening { at, placement: opening.placement.clone() });
        let is_there = |opening: &Opening| {
            let mut places = opening.placement.iter();
            places.all(|(node, pods)| holds_on(engine, turn, opening, (*node, *pods), None))
        };
        openings.into_iter().find(is_there)
    })
}
