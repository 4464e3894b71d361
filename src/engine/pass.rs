//! One pass of decisions: first those for whom room is being freed, then everybody who waits.
//!
//! Between teams, whoever is owed goes before whoever lives off the surplus, then the smallest
//! share of the surplus goes first (of those who ask for as much, the share with what they ask for), then
//! the older workload. Within a team the order is the one of
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
use super::outlook::outlook;
use super::pending::{ClassIx, Outlook, Rank};
use super::reserve;
use super::rooms::{RoomIx, Rooms};
use super::start::try_start;

/// So much is tried in vain in one plan before the rest is left for the next one, so that no plan takes
/// long: a set of victims counts 1.
const FUEL: usize = 64;
/// What it counts to look at somebody who cannot start.
const FUEL_A_LOOK: usize = 4;
/// So many of those whom anything may let start are looked at before anybody else is asked again.
const UNDECIDED_AT_ONCE: usize = 256;
/// The same of those for whom others would have to make room.
const DOUBTFUL_AT_ONCE: usize = 2;

/// Runs one pass.
pub fn run(engine: &mut Engine, now: Time) -> Plan {
    let mut plan = Plan::default();
    let mut rooms = std::mem::take(&mut engine.rooms);
    (engine.fuel, engine.cut_short) = (FUEL, false);
    loss::run(engine, now, &mut plan);
    claims::progress(engine, now, &mut plan);
    let mut order = std::mem::take(&mut engine.order);
    // Who was asked in an earlier plan is not asked again unless something has made room since.
    let (epoch, asked) = std::mem::take(&mut engine.asked);
    let mut asked = Asked(if epoch == engine.epoch { asked } else { BTreeSet::new() });
    loop {
        wake(engine, &mut rooms, &mut order);
        if engine.fuel == 0 {
            engine.cut_short = true;
            break;
        }
        let Some(id) = next(engine, &mut order, &mut asked, &rooms) else {
            if go_on(engine) {
                continue;
            }
            break;
        };
        if let Some(verdict) = try_start(engine, &id, now, &mut plan) {
            engine.fuel = engine.fuel.saturating_sub(FUEL_A_LOOK);
            let outlook = match reserve::may_come_first(engine, &id, verdict.reason) {
                true => Outlook::Open,
                false => outlook(engine, &mut rooms, &id),
            };
            engine.pending.block(&id, outlook, engine.epoch, verdict);
        }
    }
    engine.asked = (engine.epoch, asked.0);
    // Who runs already takes what nobody who waits has use for.
    if !engine.cut_short {
        grow::run(engine, now, &mut plan);
    }
    rooms.retain(|room| engine.pending.waits_for(room));
    (engine.rooms, engine.order) = (rooms, order);
    plan
}

/// Who is looked at next: the first in order of those who may be able to start, then whoever might have its turn
/// instead. Once somebody's turn is over, whose comes next is settled before anybody behind that one starts.
fn next(engine: &mut Engine, order: &mut Order, asked: &mut Asked, rooms: &Rooms) -> Option<WorkloadId> {
    let startable = order.next(engine, rooms);
    if !engine.vacated && startable.is_some() {
        return startable;
    }
    let before = startable.as_ref().and_then(|id| First::of(engine, engine.pending.rank(id)?));
    match asked.next(engine, rooms, before.as_ref()) {
        Next::Ask(id) => Some(id),
        Next::NobodyYet => startable,
        Next::Nobody => {
            engine.vacated = false;
            startable
        }
    }
}

/// Lets some of those be looked at who could not be helped before; false if there are none.
fn go_on(engine: &mut Engine) -> bool {
    engine.pending.wake_undecided(engine.epoch, UNDECIDED_AT_ONCE) > 0
        || engine.pending.wake_doubtful(engine.epoch, DOUBTFUL_AT_ONCE)
}

/// Finds out who may be able to start by what has happened since the last time.
fn wake(engine: &mut Engine, rooms: &mut Rooms, order: &mut Order) {
    if std::mem::take(&mut engine.anew) {
        engine.yielding.rebuild(&engine.books);
        engine.books.forest.users.touch_all();
        engine.pending.wake_all();
        order.renew();
    }
    if engine.epoch != engine.seen_epoch {
        engine.seen_epoch = engine.epoch;
        let holders = engine.turns.values().filter_map(|turn| engine.pending.class_of(&turn.holder));
        for class in holders.collect::<Vec<ClassIx>>() {
            engine.pending.wake(class);
        }
        engine.pending.wake_undecided(engine.epoch, UNDECIDED_AT_ONCE);
    }
    let mut reordered: BTreeSet<TeamIx> = BTreeSet::new();
    for (team, user) in engine.books.forest.users.take_touched() {
        let books = &engine.books;
        engine.pending.weigh(team, &user, |pools| books.part_of(team, Some(&user), pools));
        order.stale.insert(team);
        reordered.insert(team);
    }
    // Who goes before the holder of a turn now may take it, though nothing else has changed for it.
    let turns = engine.turns.iter().filter(|((_, team), _)| reordered.contains(team));
    let overtaking: Vec<ClassIx> =
        turns.flat_map(|(_, turn)| engine.pending.ahead_of(&turn.holder)).collect();
    overtaking.into_iter().for_each(|class| engine.pending.wake(class));
    for change in rooms.catch_up(&engine.books) {
        // For whom there was enough before is in the order, or has been looked at.
        order.stale.extend(engine.pending.teams_waiting_for(change.room, change.before, change.total));
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
        let outlook = outlook(engine, rooms, &id);
        engine.pending.reconsider(class, outlook);
    }
    order.stale.extend(engine.pending.take_stirred());
}

/// Those of the pools' waiting who were asked whether it is their turn.
struct Asked(BTreeSet<ClassIx>);

impl Asked {
    /// The first in order of those who wait for room in a pool where nobody of their team has the turn to
    /// have room reserved, as long as it does not stand behind `before`; nobody once all were asked, until
    /// something makes room.
    fn next(&mut self, engine: &mut Engine, rooms: &Rooms, before: Option<&First>) -> Next {
        let mut next = Next::Nobody;
        let pools: BTreeSet<PoolIx> = rooms.iter().map(|(_, pool)| pool).collect();
        for pool in pools {
            if reserve::is_full(engine, pool) {
                continue;
            }
            let here = |room: RoomIx| rooms.pool(room) == Some(pool);
            let shapes = rooms.iter().filter(|(_, at)| *at == pool).map(|(room, _)| room);
            let mut teams: BTreeSet<TeamIx> = shapes.flat_map(|room| engine.pending.teams_at(room)).collect();
            teams.retain(|team| {
                let place = (pool, *team);
                !engine.turns.contains_key(&place) && engine.turnless.get(&place) != Some(&engine.epoch)
            });
            let mut firsts: Vec<(First, ClassIx)> = Vec::new();
            for team in teams {
                let first = engine.pending.first_waiting(team, here, &self.0);
                match first.and_then(|(rank, class)| Some((First::of(engine, rank.clone())?, *class))) {
                    Some(first) => firsts.push(first),
                    None => {
                        engine.turnless.insert((pool, team), engine.epoch);
                    }
                }
            }
            let first = firsts.iter().min_by(|left, right| left.0.standing.key.cmp(&right.0.standing.key));
            let size = first.and_then(|(first, _)| first.standing.peers.as_ref()).map(|(size, _)| size);
            let peers = firsts.iter().filter_map(|first| Some((first.0.standing.peers.as_ref()?, first)));
            let peers = peers.filter(|((asked, _), _)| Some(asked) == size);
            let peer = peers.min_by(|left, right| left.0.1.cmp(&right.0.1)).map(|(_, first)| first);
            let Some((first, class)) = peer.or(first) else { continue };
            if before.is_some_and(|before| before.goes_before(first)) {
                next = Next::NobodyYet;
                continue;
            }
            self.0.insert(*class);
            return Next::Ask(first.rank.id().clone());
        }
        next
    }
}

/// Whether somebody is to be asked.
enum Next {
    /// This one.
    Ask(WorkloadId),
    /// Only once those before it in the order have been looked at.
    NobodyYet,
    /// All were asked.
    Nobody,
}

/// The first of a team, with where the team stands by it.
struct First {
    team: TeamIx,
    standing: Standing,
    rank: Rank,
}

impl First {
    /// The one of that rank.
    fn of(engine: &Engine, rank: Rank) -> Option<Self> {
        let team = engine.books.at(rank.place())?.team;
        Some(Self { team, standing: Standing::of(engine, team, &rank)?, rank })
    }

    /// Whether it goes before another one.
    fn goes_before(&self, other: &Self) -> bool {
        if self.team == other.team {
            return self.rank < other.rank;
        }
        match (&self.standing.peers, &other.standing.peers) {
            (Some((size, after)), Some((other_size, other_after))) if size == other_size => {
                after < other_after
            }
            _ => self.standing.key < other.standing.key,
        }
    }
}

/// Where the team of somebody who waits stands among others by it; less goes first.
#[must_use]
pub fn standing(engine: &Engine, id: &WorkloadId) -> Option<impl Ord + use<>> {
    let team = engine.books.get(id)?.team;
    Standing::of(engine, team, &engine.pending.rank(id)?).map(|standing| standing.key)
}

/// By what teams are compared: whether the first of the team is owed, its share, its age, its name.
type Key = (Reverse<bool>, Share, Time, Name);

/// The devices, or else whatever it is, that somebody asks for in a pool.
type Size = (PoolIx, Vec<(usize, i64)>);

/// By what those are compared who ask for as much of the surplus: the share that the team would have, then
/// the larger one that it has, for that is what stays if another starts; its age, its name.
type After = (Share, Reverse<Share>, Time, Name);

/// Where a team stands by its first.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Standing {
    key: Key,
    peers: Option<(Size, After)>,
}

impl Standing {
    /// The standing of a team of which that is the first.
    fn of(engine: &Engine, team: TeamIx, first: &Rank) -> Option<Self> {
        let books = &engine.books;
        let entry = books.at(first.place())?;
        let (age, name) = (first.submitted(), books.forest.team(team).name.clone());
        let Some(pool) = first_pool(books, entry) else {
            return Some(Self { key: (Reverse(false), Share::new(), age, name), peers: None });
        };
        let total = entry.least_total();
        if books.forest.owed(pool, team, &total, &Imagined::new()) {
            return Some(Self {
                key: (Reverse(true), books.forest.share(pool, team), age, name),
                peers: None,
            });
        }
        let before = books.forest.standing(pool, team, None);
        let after = books.forest.standing(pool, team, Some(&total));
        let mut size: Vec<(usize, i64)> =
            total.nonzero().filter(|(index, _)| books.resources.is_device(*index)).collect();
        if size.is_empty() {
            size = total.nonzero().collect();
        }
        let peers = ((pool, size), (after, Reverse(before.clone()), age, name.clone()));
        Some(Self { key: (Reverse(false), before, age, name), peers: Some(peers) })
    }
}

/// The teams of which somebody may be able to start, in their order. It is worked out as far as asked.
///
/// The smallest share goes first. But of those who ask for as much, who would end with the smaller share
/// takes that place: else it would evict at once whoever started before it (Law 5).
#[derive(Clone, Debug, Default)]
pub struct Order {
    teams: BTreeSet<(Key, TeamIx)>,
    peers: BTreeMap<Size, BTreeSet<(After, TeamIx)>>,
    standings: BTreeMap<TeamIx, Standing>,
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
            let team = self.first()?;
            // Room may have gone for which the team's first was waiting: then another is its first now.
            match head(engine, rooms, team) {
                Some((now, rank)) if self.standings.get(&team) == Some(&now) => {
                    return Some(rank.id().clone());
                }
                _ => self.place(engine, rooms, team),
            }
        }
    }

    /// The team whose turn it is.
    fn first(&self) -> Option<TeamIx> {
        let (_, team) = self.teams.first()?;
        let standing = self.standings.get(team)?;
        let peers = standing.peers.as_ref().and_then(|(size, _)| self.peers.get(size)?.first());
        Some(peers.map_or(*team, |(_, peer)| *peer))
    }

    /// Notes that all shares may have changed.
    pub fn renew(&mut self) {
        self.stale.extend(self.standings.keys());
    }

    /// Puts a team where it belongs now.
    fn place(&mut self, engine: &Engine, rooms: &Rooms, team: TeamIx) {
        if let Some(old) = self.standings.remove(&team) {
            self.teams.remove(&(old.key, team));
            if let Some((size, after)) = old.peers
                && let Some(peers) = self.peers.get_mut(&size)
            {
                peers.remove(&(after, team));
                if peers.is_empty() {
                    self.peers.remove(&size);
                }
            }
        }
        if let Some((standing, _)) = head(engine, rooms, team) {
            self.teams.insert((standing.key.clone(), team));
            if let Some((size, after)) = standing.peers.clone() {
                self.peers.entry(size).or_default().insert((after, team));
            }
            self.standings.insert(team, standing);
        }
    }

    /// Notes that the shares below a team that stands under none have changed.
    fn stale_root(&mut self, engine: &Engine, root: Option<TeamIx>) {
        let forest = &engine.books.forest;
        let below = self.standings.keys().filter(|team| forest.team(**team).path.last().copied() == root);
        self.stale.extend(below);
    }
}

/// The first of the team that may be able to start, with where the team stands by it.
fn head<'a>(engine: &'a Engine, rooms: &Rooms, team: TeamIx) -> Option<(Standing, &'a Rank)> {
    let rank = engine.pending.head(team, |room| rooms.total(room))?;
    Some((Standing::of(engine, team, rank)?, rank))
}
