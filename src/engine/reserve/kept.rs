//! What is reserved, and who may pass: whoever ends before the reserved start, or leaves the reserved room whole.
//!
//! What a reservation keeps is not on the books. It is put there only while somebody who has to respect it is
//! looked at.

use super::super::Engine;
use super::super::books::Books;
use super::super::candidate::{Candidate, fits_now};
use super::super::decision::Verdict;
use super::super::entry::{Entry, Phase};
use super::super::explain;
use super::super::forest::{PoolIx, TeamIx};
use super::super::history;
use super::super::model::{Time, WorkloadId};
use super::super::nodes::NodeIx;
use super::super::pass;
use super::super::placement::{self, Freed, Placement, Room};
use super::super::reclaim::Hidden;
use super::super::timeline::{self, Opening};
use super::super::vector::Vector;

/// A workload that has its turn in a pool.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Whose it is.
    pub holder: WorkloadId,
    /// Its team.
    pub team: TeamIx,
    /// What one of its pods takes.
    pub need: Vector,
    /// How many it must have.
    pub pods: u32,
    /// From when on room is reserved for it even if its start cannot be predicted.
    pub due: Time,
    /// What is reserved, if something is.
    pub opening: Option<Opening>,
    /// Nothing can be, beside what is promised to other teams; one of these has to start first.
    pub crowded: bool,
    /// Whether somebody of another team, who is owed its room, has taken of what was reserved.
    pub overtaken: bool,
    /// For whose start it waits before room is reserved for it again, if it has given way.
    pub behind: Option<WorkloadId>,
    /// When that was decided.
    pub decided: Time,
}

/// A turn with what is reserved for it.
pub type Reserved = (Turn, Opening);

impl Turn {
    /// Whether it is still what the workload asks for.
    #[must_use]
    pub fn is_for(&self, entry: &Entry, candidate: &Candidate) -> bool {
        matches!(entry.phase, Phase::Pending | Phase::Starting(_))
            && !entry.removed
            && candidate.team == self.team
            && candidate.pods == self.pods
            && candidate.need.equals(&self.need)
    }
}

/// Whether a workload waits.
pub fn waits(engine: &Engine, id: &WorkloadId) -> bool {
    engine.books.get(id).is_some_and(|entry| entry.phase == Phase::Pending)
}

/// What is reserved for a turn, as room that others do not see.
fn hidden(turn: &Turn, opening: &Opening) -> Hidden {
    Hidden { holder: turn.holder.clone(), need: turn.need.clone(), placement: opening.placement.clone() }
}

/// All reserved room that a candidate has to respect.
pub fn hidden_from(engine: &Engine, candidate: &Candidate, pool: PoolIx) -> Vec<Hidden> {
    respected(engine, candidate, pool).map(|(turn, opening)| hidden(turn, opening)).collect()
}

/// Does something while such room is out of sight.
pub fn out_of_sight<T>(engine: &mut Engine, hidden: &[Hidden], act: impl FnOnce(&mut Engine) -> T) -> T {
    let room = hidden.iter().flat_map(|Hidden { need, placement, .. }| {
        placement.iter().map(move |(node, pods)| (*node, need, *pods))
    });
    let concealed = engine.books.nodes.hide(room);
    let result = act(engine);
    engine.books.nodes.show(concealed);
    result
}

/// What is reserved on nodes of a turn's for others that its holder has to respect and that are to start no
/// later; where somebody comes, only for those that it has to respect as well: of the others it takes the place.
fn earlier(
    engine: &Engine,
    pool: PoolIx,
    (turn, opening): (&Turn, &Opening),
    comes: Option<&[Reserved]>,
) -> Vec<Hidden> {
    let Some(holder) = Candidate::of(&engine.books, &turn.holder) else { return Vec::new() };
    let by_then = |other: &Opening| (other.at.is_none(), other.at) <= (opening.at.is_none(), opening.at);
    let holder = holder.in_pool(&engine.books, pool);
    let others = respected(engine, &holder, pool).filter(|(other, theirs)| {
        comes.is_none_or(|respected| respected.iter().any(|(turn, _)| turn.holder == other.holder))
            && by_then(theirs)
            && theirs.placement.keys().any(|node| opening.placement.contains_key(node))
    });
    others.map(|(other, theirs)| hidden(other, theirs)).collect()
}

/// Whether the reserved room is there at the promised time.
pub fn is_whole(engine: &mut Engine, pool: PoolIx, turn: &Turn, opening: &Opening) -> bool {
    let earlier = earlier(engine, pool, (turn, opening), None);
    out_of_sight(engine, &earlier, |engine| {
        opening.placement.iter().all(|(node, pods)| holds_on(engine, turn, opening, (*node, *pods), None))
    })
}

/// Whether it still is if a candidate comes to these nodes.
fn stays_whole(
    engine: &mut Engine,
    pool: PoolIx,
    (turn, opening): (&Turn, &Opening),
    respected: &[Reserved],
    candidate: &Candidate,
    comes: &Placement,
) -> bool {
    if !opening.placement.keys().any(|node| comes.contains_key(node)) {
        return true;
    }
    let earlier = earlier(engine, pool, (turn, opening), Some(respected));
    out_of_sight(engine, &earlier, |engine| {
        let mut shared = opening.placement.iter().filter_map(|place| Some((place, comes.get(place.0)?)));
        shared.all(|((node, pods), more)| {
            holds_on(engine, turn, opening, (*node, *pods), Some((&candidate.need, *more)))
        })
    })
}

/// Whether a node has room for so many pods of a turn's holder at the promised time, with so many more of another
/// need there.
pub fn holds_on(
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

/// Whether a candidate goes before the holder of a turn in their team.
pub fn before(engine: &Engine, candidate: &Candidate, turn: &Turn) -> bool {
    let (mine, theirs) = (engine.pending.rank(&candidate.id), engine.pending.rank(&turn.holder));
    mine.zip(theirs).is_some_and(|(mine, theirs)| mine < theirs)
}

/// The reservations in a pool that a candidate has to respect.
pub fn respected<'a>(
    engine: &'a Engine,
    candidate: &'a Candidate,
    pool: PoolIx,
) -> impl Iterator<Item = (&'a Turn, &'a Opening)> {
    let books = &engine.books;
    // Others may have to go so that it is within all guarantees above its own.
    let owed = within_own_guarantee(books, candidate.team, &candidate.total, pool);
    let holder_is_owed = move |turn: &Turn| {
        let holder = books.get(&turn.holder);
        holder.is_some_and(|holder| within_own_guarantee(books, holder.team, &holder.least_total(), pool))
    };
    let turns = engine.turns.range((pool, TeamIx::MIN)..=(pool, TeamIx::MAX));
    turns.filter_map(move |((_, team), turn)| {
        let opening = turn.opening.as_ref()?;
        if turn.holder == candidate.id || !waits(engine, &turn.holder) {
            return None;
        }
        let goes_before = if *team == candidate.team {
            before(engine, candidate, turn)
        } else {
            owed && !holder_is_owed(turn)
        };
        (!goes_before).then_some((turn, opening))
    })
}

/// Whether a team's own guarantee, those above it aside, holds so much more.
pub fn within_own_guarantee(books: &Books, team: TeamIx, total: &Vector, pool: PoolIx) -> bool {
    let account = books.forest.account(pool, team);
    let asked = || account.governed().filter(|(index, _)| total.get(*index) > 0);
    asked().next().is_some()
        && asked().all(|(index, guaranteed)| account.settled(index) + total.get(index) <= guaranteed)
}

/// Where a candidate may start that could start at `found` but for reserved room; the error says for whom that is.
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
    let all: Vec<Reserved> =
        respected(engine, candidate, pool).map(|(turn, opening)| (turn.clone(), opening.clone())).collect();
    let lasts = |reserved: &Reserved| !passes(engine, candidate, now, &reserved.1);
    let kept: Vec<Reserved> = all.iter().filter(|reserved| lasts(reserved)).cloned().collect();
    let mut passed = others(engine, candidate, pool, &all);
    passed.retain(lasts);
    let place = (pool, nodes);
    let found = match harmed(engine, candidate, pool, &found, &kept, &all) {
        None => found,
        Some((turn, opening)) => {
            let verdict = explain::reserved(&engine.books, turn, opening);
            elsewhere(engine, candidate, place, &kept, &all).ok_or(verdict)?
        }
    };
    let found = spare(engine, candidate, place, found, (kept, passed), all);
    overtake(engine, candidate, pool, &found);
    Ok(found)
}

/// Takes note of those of other teams whose reserved room a candidate takes that need not respect it.
pub fn overtake(engine: &mut Engine, candidate: &Candidate, pool: PoolIx, comes: &Placement) {
    let respected: Vec<Reserved> =
        respected(engine, candidate, pool).map(|(turn, opening)| (turn.clone(), opening.clone())).collect();
    let mut others = others(engine, candidate, pool, &respected);
    others.retain(|(_, opening)| opening.placement.keys().any(|node| comes.contains_key(node)));
    let all = [respected.as_slice(), &others].concat();
    for reserved in &others {
        if harmed(engine, candidate, pool, comes, std::slice::from_ref(reserved), &all).is_some()
            && let Some(turn) = engine.turns.get_mut(&(pool, reserved.0.team))
        {
            turn.overtaken = true;
        }
    }
}

/// The first of these reservations that would not stay whole if a candidate came to these nodes.
fn harmed<'k>(
    engine: &mut Engine,
    candidate: &Candidate,
    pool: PoolIx,
    comes: &Placement,
    kept: &'k [Reserved],
    respected: &[Reserved],
) -> Option<&'k Reserved> {
    let mut kept = kept.iter();
    kept.find(|(turn, opening)| !stays_whole(engine, pool, (turn, opening), respected, candidate, comes))
}

/// Where a candidate may start that leaves all of these reservations whole: elsewhere, or in what they leave of
/// their nodes.
pub fn elsewhere(
    engine: &mut Engine,
    candidate: &Candidate,
    (pool, nodes): (PoolIx, &[NodeIx]),
    kept: &[Reserved],
    respected: &[Reserved],
) -> Option<Placement> {
    let mut barred = Placement::new();
    for (turn, opening) in kept {
        for (node, pods) in surplus_pods(engine, candidate, pool, (turn, opening), respected) {
            let most = barred.entry(node).or_default();
            *most = pods.max(*most);
        }
    }
    let barred = Hidden { holder: candidate.id.clone(), need: candidate.need.clone(), placement: barred };
    out_of_sight(engine, &[barred], |engine| fits_now(&engine.books, candidate, pool, nodes, true))
}

/// What is reserved for other teams and a candidate need not respect.
fn others(engine: &Engine, candidate: &Candidate, pool: PoolIx, respected: &[Reserved]) -> Vec<Reserved> {
    let turns = engine.turns.range((pool, TeamIx::MIN)..=(pool, TeamIx::MAX));
    let others = turns.filter(|((_, team), turn)| {
        *team != candidate.team
            && waits(engine, &turn.holder)
            && respected.iter().all(|(other, _)| other.holder != turn.holder)
    });
    others.filter_map(|(_, turn)| Some((turn.clone(), turn.opening.clone()?))).collect()
}

/// Where a candidate starts that may start at `found` and need not respect what is `passed`: so that it leaves that
/// whole if it can. Where it could but for what is kept, at no predictable time, for one of its own team, the younger
/// of the two reservations gives way: else two teams might keep each other's first waiting for ever.
fn spare(
    engine: &mut Engine,
    candidate: &Candidate,
    (pool, nodes): (PoolIx, &[NodeIx]),
    found: Placement,
    (mut kept, mut passed): (Vec<Reserved>, Vec<Reserved>),
    mut respected: Vec<Reserved>,
) -> Placement {
    let all = [respected.as_slice(), &passed].concat();
    if harmed(engine, candidate, pool, &found, &passed, &all).is_none() {
        return found;
    }
    let lasting = [kept.as_slice(), &passed].concat();
    if let Some(there) = elsewhere(engine, candidate, (pool, nodes), &lasting, &all) {
        return there;
    }
    let own = kept.iter().position(|(turn, opening)| turn.team == candidate.team && opening.at.is_none());
    let Some((own, _)) = own.map(|own| kept.remove(own)) else { return found };
    let age = |turn: &Turn| (turn.due, pass::standing(engine, &turn.holder));
    passed.retain(|(turn, _)| age(turn) < age(&own));
    respected.retain(|(turn, _)| turn.holder != own.holder);
    let (lasting, all) = ([kept.as_slice(), &passed].concat(), [respected.as_slice(), &passed].concat());
    let Some((older, _)) = harmed(engine, candidate, pool, &found, &passed, &all) else { return found };
    let Some(there) = elsewhere(engine, candidate, (pool, nodes), &lasting, &all) else { return found };
    if let Some(turn) = engine.turns.get_mut(&(pool, candidate.team)) {
        (turn.opening, turn.behind) = (None, Some(older.holder.clone()));
        engine.epoch += 1;
        engine.vacated = true;
    }
    there
}

/// Whether a turn has given way to one that has not started yet.
pub fn stands_back(engine: &Engine, pool: PoolIx, turn: &Turn) -> bool {
    turn.behind.as_ref().is_some_and(|older| {
        let mut turns = engine.turns.range((pool, TeamIx::MIN)..=(pool, TeamIx::MAX));
        turns.any(|(_, turn)| turn.holder == *older) && waits(engine, older)
    })
}

/// Whether a candidate that starts now will have ended by the time something is reserved for.
pub fn passes(engine: &Engine, candidate: &Candidate, now: Time, opening: &Opening) -> bool {
    opening.at.is_some_and(|at| ends_by(engine, candidate, now, at))
}

/// Whether a candidate that starts now has ended by then for sure: what others like it took is no promise.
fn ends_by(engine: &Engine, candidate: &Candidate, now: Time, then: Time) -> bool {
    let books = &engine.books;
    let limit = books.get(&candidate.id).and_then(|entry| history::limit(books, entry));
    limit.is_some_and(|limit| now.after(limit) <= then)
}

/// On every reserved node, the pods of a candidate that find room there but would take reserved room.
fn surplus_pods(
    engine: &mut Engine,
    candidate: &Candidate,
    pool: PoolIx,
    (turn, opening): (&Turn, &Opening),
    respected: &[Reserved],
) -> Placement {
    let demand = engine.books.nodes.demand(&candidate.need);
    let fits = |(node, reserved): (&NodeIx, &u32)| {
        let fits = placement::fits_on(&engine.books, *node, &demand, Room::Now).min(candidate.pods);
        (fits > 0).then_some((*node, *reserved, fits))
    };
    let roomy: Vec<(NodeIx, u32, u32)> = opening.placement.iter().filter_map(fits).collect();
    let mut surplus = Placement::new();
    if roomy.is_empty() {
        return surplus;
    }
    let earlier = earlier(engine, pool, (turn, opening), Some(respected));
    for (node, reserved, fits) in &roomy {
        let allowed = out_of_sight(engine, &earlier, |engine| {
            let harmless = |more: u32| {
                holds_on(engine, turn, opening, (*node, *reserved), Some((&candidate.need, more)))
            };
            let (mut allowed, mut harmful) = (0, *fits + 1);
            while harmful - allowed > 1 {
                let middle = u32::midpoint(allowed, harmful);
                if harmless(middle) { allowed = middle } else { harmful = middle }
            }
            allowed
        });
        if allowed < *fits {
            // What will be free later may be more than what is free now, so as many are taken off as it
            // takes for no more than those to be left.
            let settled = placement::fits_on(&engine.books, *node, &demand, Room::Settled(&Freed::new()));
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
    act: impl FnOnce(&mut Engine, &[Hidden]) -> T,
) -> T {
    let hidden = hidden_from(engine, candidate, pool);
    out_of_sight(engine, &hidden, |engine| act(engine, &hidden))
}
