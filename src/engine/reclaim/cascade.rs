//! Whether a victim, queued again, would evict somebody in its turn: a search of its own, in the
//! state of things that the eviction leads to.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::super::entry::{Entry, Phase};
use super::super::forest::TeamIx;
use super::super::model::WorkloadId;
use super::super::placement::{self, Request, Room};
use super::super::rules::{lending_allows, preemptible, priority_of};
use super::super::share::Ratio;
use super::super::vector::Vector;
use super::outcome::{Outcome, Part, request_of};
use super::{Claimant, Ground, Search, State};

/// How a victim would come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Comeback {
    /// Without evicting anybody, or not at all before others end.
    Peaceful,
    /// Only by cutting into somebody's guarantee.
    Straddling,
    /// By evicting somebody.
    Evicting,
}

impl Search<'_> {
    /// How a victim, queued again once the claimant runs, would come back. What has only shrunk never evicts
    /// to grow again.
    pub fn comeback(&self, part: &Part, outcome: &Outcome) -> Comeback {
        if !part.whole {
            return Comeback::Peaceful;
        }
        let (books, claimant) = (self.books, &self.claimant);
        let forest = &books.forest;
        let entry = self.candidates[part.candidate].entry;
        let mut state = State {
            imagined: outcome.imagined.clone(),
            freed: self.unhidden(&outcome.freed),
            gone: self.state.gone.clone(),
            started: vec![claimant.id.clone()],
        };
        forest.imagine(&mut state.imagined, claimant.team, claimant.total, 1);
        let gone = outcome.parts.iter().filter(|part| part.whole).map(|part| part.candidate);
        let moved = outcome.moved.iter().map(|(part, _)| part.candidate);
        state.gone.extend(gone.chain(moved).map(|i| self.candidates[i].entry.workload.id.clone()));
        let pods = entry.least_pods();
        // It asks for what it wants most again, whatever it was granted.
        let (shape, need) = entry.in_full();
        let total = Vector::default().plus(need, i64::from(pods));
        if !self.may_reclaim(entry, &total, &state) {
            return Comeback::Peaceful;
        }
        if self.passes_a_promise(entry) {
            return Comeback::Evicting;
        }
        let request = Request { shape, need, ..request_of(entry, claimant.pool, pods) };
        let nodes = placement::eligible(books, &request);
        let owed = forest.owed(claimant.pool, entry.team, &total, &state.imagined);
        let starts = forest.over_limit(claimant.pool, entry.team, &total, &state.imagined, true).is_none()
            && (owed || lending_allows(books, entry.team, claimant.pool, &total, &state.freed))
            && placement::place(books, &nodes, &request, Room::Settled(&state.freed)).is_some();
        if starts {
            return Comeback::Peaceful;
        }
        let nobody = BTreeSet::new();
        let again = Claimant {
            id: &entry.workload.id,
            team: entry.team,
            pool: claimant.pool,
            shape,
            topology: &entry.workload.topology,
            need,
            total: &total,
            pods,
            priority: priority_of(books, entry),
            preemptible: true,
            nodes: &nodes,
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
        let state = Rc::new(state);
        let owed = comeback(Ground::Owed, &state);
        let best =
            if owed == Comeback::Evicting { owed } else { comeback(Ground::Surplus, &state).max(owed) };
        if best != Comeback::Peaceful {
            return best;
        }
        // A mate is of lower priority than the claimant, which so does not yield to it.
        if self.ground == Ground::Owed || !claimant.preemptible || entry.team == claimant.team {
            return Comeback::Peaceful;
        }
        // It might have the claimant itself evicted, with others or without.
        let state = Rc::new(State {
            imagined: outcome.imagined.clone(),
            freed: self.unhidden(&outcome.unfilled),
            gone: state.gone.clone(),
            started: state.started.clone(),
        });
        let alone = forest.owed(claimant.pool, entry.team, &total, &state.imagined)
            && placement::place(books, &nodes, &request, Room::Settled(&state.freed)).is_some();
        if alone { Comeback::Evicting } else { comeback(Ground::Owed, &state) }
    }

    /// A quick test that rules most victims out: it would be owed its room, or lower priorities of its
    /// team run, or its team would have a smaller share than another.
    fn may_reclaim(&self, entry: &Entry, total: &Vector, state: &State) -> bool {
        let (books, pool) = (self.books, self.claimant.pool);
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
            match outcome {
                Some(outcome) if outcome.straddling == 0 => return Comeback::Evicting,
                Some(_) => comeback = Comeback::Straddling,
                None => {}
            }
        }
        comeback
    }
}
