//! Reservations: the first in order that finds no room is promised room that will come (Law 7).
//!
//! In every pool at most one workload has its turn. It gets nodes and a time at once when the ends of
//! those in its way can be predicted, else when it has waited for its queue's `reserve_after`. From
//! then on nobody behind it in the order may start in a way that pushes its start back: who may pass
//! ends before that time, or leaves the reserved room whole.
//!
//! The turn is kept: it ends when its holder starts, leaves or asks for something else, or when one
//! of the same team that goes before it finds no room either. Nodes and time are kept too, unless
//! they cannot be held any more or an earlier time is possible.
//!
//! Before the holder go: who stands before it in its own team, and who is owed its room when the
//! holder is not. Room already promised to those for whom others leave is theirs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::books::Books;
use super::candidate::{Candidate, fits_now};
use super::decision::{Reason, ReservationView, Verdict};
use super::entry::{Entry, Phase};
use super::explain;
use super::forest::{PoolIx, TeamIx};
use super::model::{Time, WorkloadId};
use super::nodes::NodeIx;
use super::placement::{self, Freed, Placement, Room};
use super::reclaim::Hidden;
use super::timeline::{self, Opening, Until};
use super::vector::Vector;

/// A workload that has its turn in a pool.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Whose it is.
    pub holder: WorkloadId,
    team: TeamIx,
    need: Vector,
    pods: u32,
    /// From when on room is reserved for it even if its start cannot be predicted.
    due: Time,
    /// What is reserved, if something is.
    pub opening: Option<Opening>,
    /// When that was decided.
    pub decided: Time,
}

impl Turn {
    /// Whether it is still what the workload asks for.
    fn is_for(&self, entry: &Entry, candidate: &Candidate) -> bool {
        matches!(entry.phase, Phase::Pending | Phase::Starting(_))
            && !entry.removed
            && candidate.team == self.team
            && candidate.pods == self.pods
            && candidate.need.equals(&self.need)
    }
}

/// Whether the reserved room is there at the promised time, if so many pods that need so much come to
/// nodes besides. Without such, all of its nodes are looked at.
fn holds(engine: &Engine, turn: &Turn, opening: &Opening, more: &Placement, need: &Vector) -> bool {
    opening.placement.iter().all(|(node, pods)| match more.get(node) {
        Some(more) => holds_on(engine, turn, opening, (*node, *pods), Some((need, *more))),
        None => !more.is_empty() || holds_on(engine, turn, opening, (*node, *pods), None),
    })
}

fn holds_on(
    engine: &Engine,
    turn: &Turn,
    opening: &Opening,
    (node, pods): (NodeIx, u32),
    more: Option<(&Vector, u32)>,
) -> bool {
    let books = &engine.books;
    // Where ends cannot be predicted everybody ends some day, but nobody may count on it.
    let ends = |id: &WorkloadId| match opening.at {
        Some(at) => engine.timeline.end(id).is_some_and(|end| end <= at),
        None => more.is_none(),
    };
    let mut freed = Freed::new();
    for (entry, there) in books.occupants(node) {
        let id = &entry.workload.id;
        if timeline::runs(entry).is_some() && ends(id) {
            let going = entry.charge.going.get(&node).copied().unwrap_or(0);
            freed.give(node, id, &entry.need, there.saturating_sub(going));
        }
    }
    if let Some((need, more)) = more {
        freed.take(node, need, more);
    }
    let demand = books.nodes.demand(&turn.need);
    books.nodes.get(node).open() && placement::fits_on(books, node, &demand, Room::Settled(&freed)) >= pods
}

/// When the first turn without a reservation gets one although its start cannot be predicted.
#[must_use]
pub fn next(engine: &Engine) -> Option<Time> {
    let open = engine.turns.values().filter(|turn| turn.opening.is_none() && waits(engine, &turn.holder));
    open.map(|turn| turn.due).min()
}

/// Looks again at those turns for which a reservation has become due.
pub fn fire(engine: &mut Engine, now: Time) {
    let due: Vec<PoolIx> = engine
        .turns
        .iter()
        .filter(|(_, turn)| turn.opening.is_none() && turn.due <= now && waits(engine, &turn.holder))
        .map(|(pool, _)| *pool)
        .collect();
    if !due.is_empty() {
        engine.pending.wake_all();
    }
    for pool in due {
        let Some(candidate) =
            engine.turns.get(&pool).and_then(|turn| Candidate::of(&engine.books, &turn.holder))
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
    let view = |(pool, turn): (&PoolIx, &Turn)| {
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

fn waits(engine: &Engine, id: &WorkloadId) -> bool {
    engine.books.get(id).is_some_and(|entry| entry.phase == Phase::Pending)
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
/// its turn, if nobody else has.
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
        if engine.turns.get(pool).is_some_and(|turn| turn.holder == candidate.id) {
            review(engine, candidate, *pool, nodes, now);
            return;
        }
    }
    give_up(engine, &candidate.id);
    let mut best: Option<((bool, Option<Time>), PoolIx)> = None;
    for (pool, nodes) in scarce {
        if engine.turns.get(pool).is_some_and(|turn| !yields(engine, turn, candidate)) {
            continue;
        }
        engine.timeline.catch_up(&engine.books, &engine.history, *pool, now);
        let until = Until::Everybody;
        let opening = engine.timeline.opening(&engine.books, candidate, *pool, nodes, now, until);
        let Some(opening) = opening else { continue };
        let rank = (opening.at.is_none(), opening.at);
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
        decided: now,
    };
    if engine.turns.insert(pool, turn).is_some_and(|before| before.opening.is_some()) {
        engine.epoch += 1;
    }
    if let Some((_, nodes)) = options.iter().find(|(option, _)| *option == pool) {
        review(engine, candidate, pool, nodes, now);
    }
}

/// Whether a workload with this reason waits for nodes, not for its own team.
fn for_room(reason: Reason) -> bool {
    matches!(reason, Reason::NoRoom | Reason::Fragmented | Reason::RoomHeld | Reason::LendingLimit)
}

/// Whether a turn passes to a candidate that finds no room either.
fn yields(engine: &Engine, turn: &Turn, candidate: &Candidate) -> bool {
    !waits(engine, &turn.holder) || turn.team == candidate.team && before(engine, candidate, turn)
}

/// Whether a candidate goes before the holder of a turn in their team.
fn before(engine: &Engine, candidate: &Candidate, turn: &Turn) -> bool {
    let (mine, theirs) = (engine.pending.rank(&candidate.id), engine.pending.rank(&turn.holder));
    mine.zip(theirs).is_some_and(|(mine, theirs)| mine < theirs)
}

/// Brings a turn's reservation up to date.
fn review(engine: &mut Engine, candidate: &Candidate, pool: PoolIx, nodes: &[NodeIx], now: Time) {
    engine.timeline.catch_up(&engine.books, &engine.history, pool, now);
    let Some(turn) = engine.turns.get(&pool) else { return };
    let until = match &turn.opening {
        None if turn.due > now => Until::Predicted,
        None => Until::Everybody,
        Some(opening) => {
            let passed = opening.at.is_some_and(|at| at < now);
            let usable = opening.placement.keys().all(|node| nodes.contains(node));
            let whole = usable && holds(engine, turn, opening, &Placement::new(), &turn.need);
            match opening.at {
                _ if passed || !whole => Until::Everybody,
                Some(at) => Until::Before(at),
                None => Until::Predicted,
            }
        }
    };
    let opening = engine.timeline.opening(&engine.books, candidate, pool, nodes, now, until);
    // Room that is there once those who leave are gone is no earlier than now.
    let sooner = opening.filter(|opening| !matches!(until, Until::Before(at) if opening.at >= Some(at)));
    match (sooner, engine.turns.get_mut(&pool)) {
        (Some(opening), Some(turn)) => {
            turn.opening = Some(opening);
            turn.decided = now;
            engine.epoch += 1;
        }
        (None, Some(_)) if until == Until::Everybody => {
            // Not even with everybody gone; others may have their turn.
            engine.turns.remove(&pool);
            engine.epoch += 1;
        }
        _ => {}
    }
}

/// The reservation in a pool that a candidate has to respect.
fn respected<'a>(
    engine: &'a Engine,
    candidate: &Candidate,
    pool: PoolIx,
    owed: impl Fn(&Candidate) -> bool,
) -> Option<(&'a Turn, &'a Opening)> {
    let turn = engine.turns.get(&pool)?;
    let opening = turn.opening.as_ref()?;
    if turn.holder == candidate.id || !waits(engine, &turn.holder) {
        return None;
    }
    let goes_before = if turn.team == candidate.team {
        before(engine, candidate, turn)
    } else {
        let holder = Candidate::of(&engine.books, &turn.holder);
        owed(candidate) && !holder.is_some_and(|holder| owed(&holder))
    };
    (!goes_before).then_some((turn, opening))
}

/// Whether a team's own guarantee, those above it aside, holds a candidate.
fn within_own_guarantee(books: &Books, candidate: &Candidate, pool: PoolIx) -> bool {
    let account = books.forest.account(pool, candidate.team);
    let total = &candidate.total;
    let asked = || account.governed().filter(|(index, _)| total.get(*index) > 0);
    asked().next().is_some()
        && asked().all(|(index, guaranteed)| account.settled(index) + total.get(index) <= guaranteed)
}

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
    // Others may have to go so that it is within all guarantees above its own; what is free is better.
    let owed = |candidate: &Candidate| within_own_guarantee(&engine.books, candidate, pool);
    let Some((turn, opening)) = respected(engine, candidate, pool, owed) else {
        return Ok(found);
    };
    let overlaps = |at: &Placement| at.keys().any(|node| opening.placement.contains_key(node));
    if !overlaps(&found) || holds(engine, turn, opening, &found, &candidate.need) {
        return Ok(found);
    }
    if let Some(at) = opening.at
        && ends_by(engine, candidate, now, at)
    {
        return Ok(found);
    }
    // Elsewhere, or in what the reservation leaves of its nodes.
    let verdict = explain::reserved(&engine.books, turn, opening);
    let barred = surplus_pods(engine, candidate, turn, opening);
    for (node, pods) in &barred {
        engine.books.nodes.nominate(*node, &candidate.need, i64::from(*pods));
    }
    let other = fits_now(&engine.books, candidate, pool, nodes, true);
    for (node, pods) in &barred {
        engine.books.nodes.nominate(*node, &candidate.need, -i64::from(*pods));
    }
    other.ok_or(verdict)
}

/// Whether a candidate that starts now has ended by then.
fn ends_by(engine: &Engine, candidate: &Candidate, now: Time, then: Time) -> bool {
    let length = engine
        .books
        .get(&candidate.id)
        .and_then(|entry| engine.history.length(&engine.books, entry, Duration::ZERO));
    length.is_some_and(|length| now.after(length.late) <= then)
}

/// On every reserved node, the pods of a candidate that find room there but would take reserved room.
fn surplus_pods(
    engine: &Engine,
    candidate: &Candidate,
    turn: &Turn,
    opening: &Opening,
) -> BTreeMap<NodeIx, u32> {
    let books = &engine.books;
    let demand = books.nodes.demand(&candidate.need);
    let mut surplus = BTreeMap::new();
    for (node, reserved) in &opening.placement {
        let fits = placement::fits_on(books, *node, &demand, Room::Now).min(candidate.pods);
        let harmless =
            |more: u32| holds_on(engine, turn, opening, (*node, *reserved), Some((&candidate.need, more)));
        let (mut allowed, mut harmful) = (0, fits + 1);
        while harmful - allowed > 1 {
            let middle = u32::midpoint(allowed, harmful);
            if harmless(middle) { allowed = middle } else { harmful = middle }
        }
        if allowed < fits {
            // What will be free later may be more than what is free now, so as many are taken off as it
            // takes for no more than those to be left.
            let settled = placement::fits_on(books, *node, &demand, Room::Settled(&Freed::new()));
            surplus.insert(*node, settled.saturating_sub(allowed));
        }
    }
    surplus
}

/// Does something on behalf of a candidate while reserved room that it has to respect is out of sight; it
/// is told what is hidden.
pub fn guarded<T>(
    engine: &mut Engine,
    candidate: &Candidate,
    pool: PoolIx,
    act: impl FnOnce(&mut Engine, Option<&Hidden>) -> T,
) -> T {
    // Others may have to go so that it is within all guarantees above its own.
    let owed = |candidate: &Candidate| within_own_guarantee(&engine.books, candidate, pool);
    let hidden = respected(engine, candidate, pool, owed).map(|(turn, opening)| Hidden {
        holder: turn.holder.clone(),
        need: turn.need.clone(),
        placement: opening.placement.clone(),
    });
    let Some(hidden) = hidden else { return act(engine, None) };
    for (node, pods) in &hidden.placement {
        engine.books.nodes.nominate(*node, &hidden.need, i64::from(*pods));
    }
    let result = act(engine, Some(&hidden));
    for (node, pods) in &hidden.placement {
        engine.books.nodes.nominate(*node, &hidden.need, -i64::from(*pods));
    }
    result
}
