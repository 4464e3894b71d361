//! Whether a claim on the surplus would put its own head on the block: because somebody waits who is owed
//! what it would take.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;

use super::super::entry::Entry;
use super::super::forest::{Imagined, TeamIx};
use super::super::pending::Wanted;
use super::super::placement::{self, Freed, Room};
use super::super::rules::free_pods;
use super::super::vector::Vector;
use super::Search;
use super::outcome::{Part, request_of};

/// Those who ask for the same and wait although the guarantees of their teams hold them.
#[derive(Debug)]
pub struct Alike {
    wanted: Wanted,
    /// What each of them asks for.
    total: Vector,
    /// Their teams, once somebody has asked.
    teams: OnceCell<Teams>,
}

/// Teams whose own guarantees hold one more of a kind.
#[derive(Debug, Default)]
struct Teams {
    /// By the team at the top.
    all: BTreeMap<TeamIx, Vec<TeamIx>>,
    /// By the team at the top too, those of which all above can hold one more as well.
    outright: BTreeMap<TeamIx, Vec<TeamIx>>,
}

impl Alike {
    fn teams(&self, search: &Search<'_>) -> &Teams {
        self.teams.get_or_init(|| {
            let (forest, pool) = (&search.books.forest, search.claimant.pool);
            let mut teams = Teams::default();
            for team in search.pending.hopeful_teams(&self.wanted) {
                let top = forest.team(team).path.last().copied();
                let Some(top) = top.filter(|_| forest.own_guarantee_holds(pool, team, &self.total)) else {
                    continue;
                };
                teams.all.entry(top).or_default().push(team);
                if forest.owed(pool, team, &self.total, &Imagined::new()) {
                    teams.outright.entry(top).or_default().push(team);
                }
            }
            teams
        })
    }

    /// The teams of which one might be owed its room once this has come to pass.
    fn owed<'s>(
        &'s self,
        search: &'s Search<'_>,
        imagined: &'s Imagined,
    ) -> impl Iterator<Item = TeamIx> + 's {
        let teams = self.teams(search);
        // Where nothing is imagined to change it is known already.
        let untouched = teams.outright.iter().filter(|(top, _)| !imagined.contains_key(top));
        let touched = imagined.keys().filter_map(|top| teams.all.get(top)).flatten();
        let forest = &search.books.forest;
        let owed = |team: &&TeamIx| forest.owed(search.claimant.pool, **team, &self.total, imagined);
        untouched.flat_map(|(_, teams)| teams).chain(touched.filter(owed)).copied()
    }
}

impl<'a> Search<'a> {
    /// Those who wait although the guarantees of their teams hold them.
    fn owed_waiting(&self) -> &[Alike] {
        self.common.owed_waiting.get_or_init(|| {
            let (books, pool) = (self.books, self.claimant.pool);
            let forest = &books.forest;
            let kinds = self.pending.hopeful().filter_map(|(wanted, first, mut among)| {
                let total = books.at(first)?.least_total();
                among.any(|team| forest.own_guarantee_holds(pool, team, &total)).then(|| Alike {
                    wanted: wanted.clone(),
                    total,
                    teams: OnceCell::new(),
                })
            });
            kinds.collect()
        })
    }

    /// Those of them of a team other than the claimant's that are not imagined to have started.
    fn of_kind(&self, alike: &Alike, team: TeamIx) -> impl Iterator<Item = &'a Entry> {
        let other = team != self.claimant.team;
        let (books, pending) = (self.books, self.pending);
        let firsts = other.then(|| pending.hopeful_of(&alike.wanted, team)).into_iter().flatten();
        let waiting = firsts.filter_map(|place| books.at(place));
        waiting.filter(|waiting| !self.state.started.contains(&waiting.workload.id))
    }

    /// Whether somebody of another team waits who is owed what the claimant would take, so that the
    /// claimant would be evicted in turn.
    ///
    /// Where not everybody is looked at, it counts only what mates free: the room of borrowers the other
    /// could have had before.
    pub fn exposed(&self, taken: &[Part], imagined: &Imagined, freed: &Freed) -> bool {
        let own = |part: &Part| self.candidates[part.candidate].own;
        if !self.confined {
            return self.exposed_with_borrowers(imagined, freed);
        }
        // Where one finds room others do who ask for the same, so one of each kind is asked.
        taken.iter().any(own)
            && self.owed_waiting().iter().any(|alike| {
                let one = self.pending.one_hopeful(&alike.wanted).and_then(|place| self.books.at(place));
                one.is_some_and(|one| self.would_fit(one, freed, std::iter::empty()))
                    && alike.owed(self, imagined).any(|team| self.of_kind(alike, team).next().is_some())
            })
    }

    /// The same where the other may have borrowers evicted besides.
    fn exposed_with_borrowers(&self, imagined: &Imagined, freed: &Freed) -> bool {
        let (books, claimant) = (self.books, &self.claimant);
        let forest = &books.forest;
        let mut with = imagined.clone();
        forest.imagine(&mut with, claimant.team, claimant.total, 1);
        let teams =
            |alike: &'_ Alike| alike.teams(self).all.values().flatten().copied().collect::<Vec<TeamIx>>();
        let mut owed_others = self
            .owed_waiting()
            .iter()
            .flat_map(|alike| teams(alike).into_iter().flat_map(|team| self.of_kind(alike, team)))
            .peekable();
        if owed_others.peek().is_none() {
            return false;
        }
        let lenders: Vec<TeamIx> = books.teams_holding(claimant.pool).collect();
        owed_others.any(|waiting| {
            let others = lenders.iter().copied().filter(|team| *team != waiting.team);
            let others: Vec<(TeamIx, Vec<TeamIx>)> = others
                .map(|team| (team, forest.levels_below_common(team, waiting.team).collect::<Vec<_>>()))
                .filter(|(_, levels)| {
                    forest.any_beyond_guarantee(claimant.pool, levels.iter().copied(), &with)
                })
                .collect();
            // The claimant's room is free again here, as if it had been evicted with all borrowers.
            let borrowers = || {
                others.iter().flat_map(|(team, levels)| {
                    let evictable = |other: &&Entry| {
                        self.evictable(other)
                            && forest.beyond_guarantee(claimant.pool, levels, &other.keeps(), &with)
                    };
                    books.holders(claimant.pool, *team).filter(evictable)
                })
            };
            self.would_be_owed(waiting, imagined, borrowers()) && self.would_fit(waiting, freed, borrowers())
        })
    }

    /// Whether somebody who waits is owed its room once these are gone.
    fn would_be_owed<'e>(
        &self,
        waiting: &Entry,
        imagined: &Imagined,
        mut gone: impl Iterator<Item = &'e Entry>,
    ) -> bool {
        let (forest, pool, total) = (&self.books.forest, self.claimant.pool, waiting.least_total());
        let root = |team: TeamIx| forest.team(team).path.last().copied();
        // Nobody makes room in a guarantee who does not stand under the same team.
        let mut without = imagined.clone();
        loop {
            if forest.owed(pool, waiting.team, &total, &without) {
                return true;
            }
            let Some(next) = gone.find(|other| root(other.team) == root(waiting.team)) else { return false };
            forest.imagine(&mut without, next.team, &next.keeps(), -1);
        }
    }

    /// Whether somebody who waits finds room once `freed` is free and these are gone.
    pub fn would_fit<'e>(
        &self,
        waiting: &Entry,
        freed: &Freed,
        gone: impl Iterator<Item = &'e Entry>,
    ) -> bool {
        let (mut freed, mut gone) = (Cow::Borrowed(freed), gone.peekable());
        let request = request_of(waiting, self.claimant.pool, waiting.least_pods());
        let nodes = placement::eligible(self.books, &request);
        // More room never hurts, so it is looked for again whenever twice as many are gone.
        let mut more = 1;
        loop {
            if placement::most(self.books, &nodes, &request, Room::Settled(&freed)) >= request.pods {
                return true;
            }
            if gone.peek().is_none() {
                return false;
            }
            for other in gone.by_ref().take(more) {
                free_pods(freed.to_mut(), other, other.charge.staying());
            }
            more *= 2;
        }
    }
}
