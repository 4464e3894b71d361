//! Whether victims, queued again, would evict somebody in their turn: each is a search of its own, in the state
//! of things that the eviction leads to.
//!
//! The victims of a set are tried one after another, in the order in which the queue would: whoever starts again
//! at once beside the claimant has taken its room before the next is tried. So of two mates of whom one can come
//! back the other is judged as if it had gone alone.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::super::entry::{Entry, Phase};
use super::super::forest::TeamIx;
use super::super::model::{PodShape, WorkloadId};
use super::super::nodes::NodeIx;
use super::super::placement::{self, Placement, Request, Room};
use super::super::rules::{lending_allows, occupy, old_enough, preemptible, priority_of};
use super::super::seniority::Seniority;
use super::super::share::Ratio;
use super::super::vector::Vector;
use super::outcome::{Outcome, Part, request_of};
use super::{Claimant, Ground, Search, State};

/// How a victim would come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Comeback {
    /// Without evicting anybody, or not at all before others end.
    Peaceful,
    /// By evicting mates, but only once they have run for their minimum time.
    Later,
    /// At once only by cutting into somebody's guarantee.
    Straddling,
    /// By evicting somebody.
    Evicting,
}

/// What a set leads to, as its victims find it one after another.
pub struct Aftermath<'a> {
    outcome: &'a Outcome,
    /// With the claimant and those in their places who have started again.
    state: Rc<State>,
    /// Who has started again, and where.
    back: Vec<(Again<'a>, Placement)>,
    /// Those who have not been tried yet, team by team, the first of a team last.
    waiting: Vec<Vec<&'a Part>>,
}

/// What a victim asks for when it is queued again: what it wants most, whatever it was granted.
struct Again<'a> {
    entry: &'a Entry,
    shape: &'a PodShape,
    need: &'a Vector,
    pods: u32,
    total: Vector,
}

impl<'a> Again<'a> {
    fn of(entry: &'a Entry) -> Self {
        let (pods, (shape, need)) = (entry.least_pods(), entry.in_full());
        Self { entry, shape, need, pods, total: Vector::default().plus(need, i64::from(pods)) }
    }
}

impl Search<'_> {
    /// What a set leads to before any victim has been tried. What has only shrunk never evicts to grow again.
    pub fn aftermath<'a>(&'a self, outcome: &'a Outcome) -> Aftermath<'a> {
        let claimant = &self.claimant;
        let mut state = State {
            imagined: outcome.imagined.clone(),
            freed: self.unhidden(&outcome.freed),
            gone: self.state.gone.clone(),
            started: vec![claimant.id.clone()],
        };
        self.books.forest.imagine(&mut state.imagined, claimant.team, claimant.total, 1);
        let whole = || outcome.parts.iter().filter(|part| part.whole);
        let moved = outcome.moved.iter().map(|(part, _)| part);
        let entry = |part: &Part| self.candidates[part.candidate].entry;
        state.gone.extend(whole().chain(moved).map(|part| entry(part).workload.id.clone()));
        let mut teams: BTreeMap<TeamIx, Vec<&Part>> = BTreeMap::new();
        for part in whole() {
            teams.entry(entry(part).team).or_default().push(part);
        }
        for mates in teams.values_mut().filter(|mates| mates.len() > 1) {
            mates.sort_by_cached_key(|part| {
                let candidate = &self.candidates[part.candidate];
                (candidate.priority, Reverse(Seniority::of(&candidate.entry.workload)))
            });
        }
        Aftermath { outcome, state: Rc::new(state), back: Vec::new(), waiting: teams.into_values().collect() }
    }

    /// Tries the victim whose turn it is: who it is and how it would come back.
    pub fn try_next<'a>(&'a self, then: &mut Aftermath<'a>) -> Option<(&'a Part, Comeback)> {
        let turn = |mates: &Vec<&Part>| {
            let again = Again::of(self.candidates[mates.last()?.candidate].entry);
            Some(self.turn(again.entry, &again.total, &then.state.imagined))
        };
        let next = match then.waiting.len() {
            0 => return None,
            1 => 0,
            teams => (0..teams).min_by_key(|team| turn(&then.waiting[*team]))?,
        };
        let part = then.waiting[next].pop()?;
        if then.waiting[next].is_empty() {
            then.waiting.swap_remove(next);
        }
        let again = Again::of(self.candidates[part.candidate].entry);
        let reclaims = self.may_reclaim(&again, &then.state);
        if reclaims && self.passes_a_promise(again.entry) {
            return Some((part, Comeback::Evicting));
        }
        let nodes = placement::eligible(self.books, &self.asks(&again));
        // Whether it starts matters to those who come after it as well.
        if (reclaims || !then.waiting.is_empty())
            && let Some(place) = self.starts_again(&again, &nodes, &then.state)
        {
            self.settle(&again, &place, Rc::make_mut(&mut then.state));
            then.back.push((again, place));
            return Some((part, Comeback::Peaceful));
        }
        let comeback = if reclaims { self.evicts(&again, &nodes, then) } else { Comeback::Peaceful };
        Some((part, comeback))
    }

    /// Where a victim starts again without anybody leaving.
    fn starts_again(&self, again: &Again<'_>, nodes: &[NodeIx], state: &State) -> Option<Placement> {
        let (books, pool, Again { entry, total, .. }) = (self.books, self.claimant.pool, again);
        let forest = &books.forest;
        let allowed = forest.over_limit(pool, entry.team, total, &state.imagined, true).is_none()
            && (forest.owed(pool, entry.team, total, &state.imagined)
                || lending_allows(books, entry.team, pool, total, &state.freed));
        let room = Room::Settled(&state.freed);
        allowed.then(|| placement::place(books, nodes, &self.asks(again), room)).flatten()
    }

    fn asks<'a>(&self, again: &Again<'a>) -> Request<'a> {
        let Again { entry, shape, need, pods, .. } = *again;
        Request { shape, need, ..request_of(entry, self.claimant.pool, pods) }
    }

    /// Imagines that a victim runs again. Where that is as before, it might as well not have gone, and may be
    /// taken by others; elsewhere it may not: the books would look for it in its old place.
    fn settle(&self, again: &Again<'_>, place: &Placement, state: &mut State) {
        let Again { entry, need, total, .. } = again;
        self.books.forest.imagine(&mut state.imagined, entry.team, total, 1);
        if place != entry.charge.staying() || entry.is_cut() {
            occupy(&mut state.freed, need, place);
            return;
        }
        let id = &entry.workload.id;
        state.gone.retain(|gone| gone != id);
        for (node, pods) in place {
            state.freed.keep(*node, id, need, *pods);
        }
    }

    /// How a victim that finds no room would come back.
    fn evicts(&self, victim: &Again<'_>, nodes: &[NodeIx], then: &Aftermath<'_>) -> Comeback {
        let (books, claimant) = (self.books, &self.claimant);
        let forest = &books.forest;
        let Again { entry, shape, need, pods, ref total } = *victim;
        let nobody = BTreeSet::new();
        let again = Claimant {
            id: &entry.workload.id,
            team: entry.team,
            pool: claimant.pool,
            shape,
            topology: &entry.workload.topology,
            need,
            total,
            pods,
            priority: priority_of(books, entry),
            preemptible: true,
            nodes,
            taken: Some(&nobody),
        };
        let comeback = |ground: Ground, state: &Rc<State>| {
            let mut search = Search {
                books,
                pending: self.pending,
                history: self.history,
                promised: self.promised,
                hidden: &[],
                claimant: again,
                ground,
                moves: false,
                state: Rc::clone(state),
                nodes: nodes.to_vec(),
                candidates: Vec::new(),
                common: self.common,
                wide: false,
                foresees: true,
                confined: false,
                bounded: false,
                tried: Cell::new(0),
                looked_at: Cell::new(0),
                now: self.now,
            };
            search.gather(&|_: &WorkloadId| false);
            let comeback = search.comeback_of_claimant();
            self.tried.set(self.tried.get() + search.effort());
            comeback
        };
        let owed = comeback(Ground::Owed, &then.state);
        let best =
            if owed == Comeback::Evicting { owed } else { comeback(Ground::Surplus, &then.state).max(owed) };
        if best != Comeback::Peaceful {
            return best;
        }
        // A mate is of lower priority than the claimant, which so does not yield to it.
        if self.ground == Ground::Owed || !claimant.preemptible || entry.team == claimant.team {
            return Comeback::Peaceful;
        }
        // It might have the claimant itself evicted, with others or without.
        let mut state = State {
            imagined: then.outcome.imagined.clone(),
            freed: self.unhidden(&then.outcome.unfilled),
            gone: then.state.gone.clone(),
            started: then.state.started.clone(),
        };
        then.back.iter().for_each(|(mate, place)| self.settle(mate, place, &mut state));
        let state = Rc::new(state);
        let alone = forest.owed(claimant.pool, entry.team, total, &state.imagined)
            && placement::place(books, nodes, &self.asks(victim), Room::Settled(&state.freed)).is_some();
        if alone { Comeback::Evicting } else { comeback(Ground::Owed, &state) }
    }

    /// A quick test that rules most victims out: it would be owed its room, or lower priorities of its
    /// team run, or its team would have a smaller share than another.
    fn may_reclaim(&self, again: &Again<'_>, state: &State) -> bool {
        let (books, pool, Again { entry, total, .. }) = (self.books, self.claimant.pool, again);
        let forest = &books.forest;
        let priority = priority_of(books, entry);
        if self.passes_a_promise(entry) {
            return true;
        }
        let yields = |mate: &Entry| self.evictable(mate) && priority_of(books, mate) < priority;
        let lowest = books.stakes.lowest(pool, entry.team);
        if lowest.is_some_and(|lowest| lowest < priority)
            && books
                .yielding(pool, entry.team)
                .any(|mate| yields(mate) && !state.gone.contains(&mate.workload.id))
            || forest.owed(pool, entry.team, total, &state.imagined)
        {
            return true;
        }
        let mut with = state.imagined.clone();
        forest.imagine(&mut with, entry.team, total, 1);
        let share = |at: TeamIx| forest.level_share(pool, at, with.get(&at));
        let mine: BTreeMap<TeamIx, Ratio> =
            forest.team(entry.team).path.iter().map(|at| (*at, share(*at))).collect();
        books.teams_holding(pool).filter(|team| *team != entry.team).any(|team| {
            let theirs = forest.levels_below_common(team, entry.team).map(share).max();
            let levels = forest.levels_below_common(entry.team, team);
            theirs >= levels.filter_map(|at| mine.get(&at).copied()).max()
        })
    }

    /// Whether a mate of lower priority has been promised room: it will run soon, and yield.
    fn passes_a_promise(&self, entry: &Entry) -> bool {
        let priority = priority_of(self.books, entry);
        self.promised.iter().any(|mate| mate.team == entry.team && mate.priority < priority)
    }

    /// Whether somebody runs who may be evicted by somebody. Who is about to start counts: it will run by the
    /// time that anybody comes back.
    pub fn evictable(&self, entry: &Entry) -> bool {
        matches!(entry.phase, Phase::Running(_) | Phase::Starting(_)) && preemptible(self.books, entry)
    }

    /// Whether some set makes the claimant start, and whether one does that cuts into nobody's guarantee.
    fn comeback_of_claimant(&mut self) -> Comeback {
        let mut comeback = Comeback::Peaceful;
        for items in self.proposals() {
            let outcome = self.outcome(&items, &self.nodes).filter(|outcome| self.is_fair(outcome));
            let Some(outcome) = outcome else { continue };
            let by_this = match outcome.straddling {
                0 if !self.takes_young_mates(&outcome) => return Comeback::Evicting,
                0 => Comeback::Later,
                _ => Comeback::Straddling,
            };
            comeback = comeback.max(by_this);
        }
        comeback
    }

    /// Whether a mate is to go who has yet to run for its minimum time.
    fn takes_young_mates(&self, outcome: &Outcome) -> bool {
        outcome.parts.iter().map(|part| &self.candidates[part.candidate]).any(|candidate| {
            candidate.own && self.now < old_enough(self.books, candidate.entry, candidate.started)
        })
    }
}
