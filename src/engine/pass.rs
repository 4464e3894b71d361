//! One pass of decisions: first those for whom room is being freed, then everybody who waits.
//!
//! Between teams, whoever is owed goes before whoever lives off the surplus, then the smallest
//! share of the surplus goes first, then the older workload. Within a team the order is the one of
//! [`super::pending`]; who cannot start does not hold up those behind.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use super::candidate::first_pool;
use super::claims;
use super::decision::Plan;
use super::forest::{Imagined, PoolIx, Share, TeamIx};
use super::grow;
use super::loss;
use super::model::{Name, Time, WorkloadId};
use super::outlook;
use super::pending::{ClassIx, Rank};
use super::rooms::{RoomIx, Rooms};
use super::start::try_start;

/// Runs one pass.
pub fn run(engine: &mut Engine, now: Time) -> Plan {
    let mut plan = Plan::default();
    let mut rooms = std::mem::take(&mut engine.rooms);
    loss::run(engine, now, &mut plan);
    claims::progress(engine, now, &mut plan);
    let (mut order, mut asked) = (Order::default(), Asked::default());
    loop {
        wake(engine, &mut rooms, &mut order);
        // Whose turn comes next is settled before anybody behind that one starts.
        let first = if engine.vacated { asked.next(engine, &rooms) } else { None };
        engine.vacated &= first.is_some();
        let next = first.or_else(|| order.next(engine, &rooms)).or_else(|| asked.next(engine, &rooms));
        let Some(id) = next else { break };
        if let Some(verdict) = try_start(engine, &id, now, &mut plan) {
            let watches = outlook::watches(engine, &mut rooms, &id);
            engine.pending.block(&id, watches, verdict);
        }
    }
    grow::run(engine, now, &mut plan);
    rooms.retain(|room| engine.pending.waits_for(room));
    engine.rooms = rooms;
    plan
}

/// Finds out who may be able to start by what has happened since the last time.
fn wake(engine: &mut Engine, rooms: &mut Rooms, order: &mut Order) {
    if std::mem::take(&mut engine.anew) {
        engine.yielding.rebuild(&engine.books);
        engine.books.forest.users.touch_all();
        engine.pending.wake_all();
    }
    if engine.epoch != engine.seen_epoch {
        engine.seen_epoch = engine.epoch;
        engine.pending.wake_undecided();
    }
    for (team, user) in engine.books.forest.users.take_touched() {
        let books = &engine.books;
        engine.pending.weigh(team, &user, |pools| books.part_of(team, Some(&user), pools));
        order.stale.insert(team);
    }
    for change in rooms.catch_up(&engine.books) {
        order.stale.extend(engine.pending.teams_waiting_for(change.room, change.total));
    }
    let mut classes: BTreeSet<ClassIx> = BTreeSet::new();
    for (pool, team) in engine.books.forest.take_touched() {
        let share = engine.yielding.refresh(&engine.books, pool, team);
        let path = &engine.books.forest.team(team).path;
        for at in path {
            classes.extend(engine.pending.watching_account(pool, *at));
        }
        classes.extend(share.into_iter().flat_map(|share| engine.pending.watching_share(pool, share)));
        order.stale_root(engine, path.last().copied());
    }
    for (team, queue) in engine.books.forest.take_touched_queues() {
        classes.extend(engine.pending.watching_queue(team, &queue));
    }
    for class in classes {
        let Some((_, first)) = engine.pending.first_of(class) else { continue };
        let id = first.id().clone();
        match outlook::watches(engine, rooms, &id) {
            Some(watches) => engine.pending.watch(class, watches),
            None => engine.pending.wake(class),
        }
    }
    order.stale.extend(engine.pending.take_stirred());
}

/// Those of the pools' waiting who were asked in this pass whether it is their turn.
#[derive(Default)]
struct Asked(BTreeSet<ClassIx>);

impl Asked {
    /// The first in order of those who wait for room in a pool where nobody has the turn to have room
    /// reserved; nobody once all were asked, until something makes room.
    fn next(&mut self, engine: &mut Engine, rooms: &Rooms) -> Option<WorkloadId> {
        let open: BTreeSet<PoolIx> = rooms
            .iter()
            .map(|(_, pool)| pool)
            .filter(|pool| {
                !engine.turns.contains_key(pool) && engine.turnless.get(pool) != Some(&engine.epoch)
            })
            .collect();
        for pool in open {
            let here = |room: RoomIx| rooms.pool(room) == Some(pool);
            let shapes = rooms.iter().filter(|(_, at)| *at == pool).map(|(room, _)| room);
            let teams: BTreeSet<TeamIx> = shapes.flat_map(|room| engine.pending.teams_at(room)).collect();
            let firsts = teams.into_iter().filter_map(|team| {
                let (rank, class) = engine.pending.first_waiting(team, here, &self.0)?;
                Some((key(engine, team, rank)?, *class, rank))
            });
            if let Some((_, class, rank)) = firsts.min_by(|left, right| left.0.cmp(&right.0)) {
                self.0.insert(class);
                return Some(rank.id().clone());
            }
            engine.turnless.insert(pool, engine.epoch);
        }
        None
    }
}

/// By what teams are compared: whether the first of the team is owed, its share, its age, its name.
type Key = (Reverse<bool>, Share, Time, Name);

/// The teams of which somebody may be able to start, in their order. It is worked out as far as asked.
#[derive(Default)]
struct Order {
    teams: BTreeSet<(Key, TeamIx)>,
    keys: BTreeMap<TeamIx, Key>,
    /// Teams whose place has to be found anew.
    stale: BTreeSet<TeamIx>,
}

impl Order {
    /// The workload to look at next.
    fn next(&mut self, engine: &Engine, rooms: &Rooms) -> Option<WorkloadId> {
        for team in std::mem::take(&mut self.stale) {
            self.place(engine, rooms, team);
        }
        loop {
            let (key, team) = self.teams.first()?;
            // Room may have gone for which the team's first was waiting: then another is its first now.
            match head(engine, rooms, *team) {
                Some((now, rank)) if now == *key => return Some(rank.id().clone()),
                _ => {
                    let team = *team;
                    self.place(engine, rooms, team);
                }
            }
        }
    }

    /// Puts a team where it belongs now.
    fn place(&mut self, engine: &Engine, rooms: &Rooms, team: TeamIx) {
        if let Some(old) = self.keys.remove(&team) {
            self.teams.remove(&(old, team));
        }
        if let Some((key, _)) = head(engine, rooms, team) {
            self.keys.insert(team, key.clone());
            self.teams.insert((key, team));
        }
    }

    /// Notes that the shares below a team that stands under none have changed.
    fn stale_root(&mut self, engine: &Engine, root: Option<TeamIx>) {
        let forest = &engine.books.forest;
        let below = self.keys.keys().filter(|team| forest.team(**team).path.last().copied() == root);
        self.stale.extend(below);
    }
}

/// The first of the team that may be able to start, with the key of its team.
fn head<'a>(engine: &'a Engine, rooms: &Rooms, team: TeamIx) -> Option<(Key, &'a Rank)> {
    let rank = engine.pending.head(team, |room| rooms.total(room))?;
    Some((key(engine, team, rank)?, rank))
}

/// The key of a team of which that is the first.
fn key(engine: &Engine, team: TeamIx, first: &Rank) -> Option<Key> {
    let books = &engine.books;
    let entry = books.get(first.id())?;
    let pool = first_pool(books, entry);
    let owed = pool.is_some_and(|p| books.forest.owed(p, team, &entry.least_total(), &Imagined::new()));
    let share = |p| if owed { books.forest.share(p, team) } else { books.forest.standing(p, team) };
    let share = pool.map(share).unwrap_or_default();
    Some((Reverse(owed), share, first.submitted(), books.forest.team(team).name.clone()))
}
