//! Of which teams something may be taken, those with the largest shares first.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::super::books::Books;
use super::super::forest::{Imagined, PoolIx, TeamIx};
use super::super::share::Ratio;
use super::{Ground, Search};

/// Where a team stands in the order in which teams are looked at: the claimant's own first, then those with
/// the largest shares.
type Standing = (bool, Reverse<Ratio>, TeamIx);

/// One team of which something may be taken.
#[derive(Debug)]
pub struct Lender {
    /// Which.
    pub team: TeamIx,
    /// The levels of its path that the claimant must respect.
    pub levels: Rc<[TeamIx]>,
    /// Whether something may be taken; if not, those of it may only be moved.
    pub takeable: bool,
}

/// The teams of a pool of whom somebody might yield, as things are: the same for all searches that one leads to.
#[derive(Debug)]
pub struct Lending {
    /// All of them in order, after the one at the top.
    under: Vec<(TeamIx, TeamIx)>,
    /// Those of which something may be taken by whoever stands under another one at the top.
    outright: Vec<(Standing, TeamIx)>,
}

impl Lending {
    /// Looks at every team that holds something.
    pub fn of(books: &Books, pool: PoolIx) -> Self {
        let (forest, nothing) = (&books.forest, Imagined::new());
        let mut lending = Self { under: Vec::new(), outright: Vec::new() };
        for team in books.stakes.yielding_teams(pool) {
            let path = &forest.team(team).path;
            let Some(top) = path.last() else { continue };
            lending.under.push((*top, team));
            if forest.any_beyond_guarantee(pool, path.iter().copied(), &nothing) {
                let largest = path.iter().map(|at| forest.level_share(pool, *at, None)).max();
                let standing = (true, Reverse(largest.unwrap_or(Ratio::ZERO)), team);
                lending.outright.push((standing, *top));
            }
        }
        lending.under.sort_unstable();
        lending.outright.sort_unstable();
        lending
    }

    /// Those under one at the top.
    fn under(&self, top: TeamIx) -> impl Iterator<Item = TeamIx> {
        let first = self.under.partition_point(|(at, _)| *at < top);
        self.under[first..].iter().take_while(move |(at, _)| *at == top).map(|(_, team)| *team)
    }
}

/// The lenders of one search.
pub struct Lenders<'s, 'a> {
    search: &'s Search<'a>,
    lending: &'s Lending,
    /// The team at the top under which the claimant stands.
    top: Option<TeamIx>,
    /// Whether something may be taken of other teams than the claimant's.
    others: bool,
    known: RefCell<BTreeMap<TeamIx, Option<Rc<Lender>>>>,
}

impl<'s, 'a> Lenders<'s, 'a> {
    /// The lenders in the state of a search.
    pub fn of(search: &'s Search<'a>, lending: &'s Lending) -> Self {
        let top = search.books.forest.team(search.claimant.team).path.last().copied();
        let known = RefCell::default();
        let mut lenders = Self { search, lending, top, others: true, known };
        lenders.others = search.ground == Ground::Owed || lenders.may_become_fairer();
        lenders
    }

    /// A team, if something may be taken of it.
    pub fn get(&self, team: TeamIx) -> Option<Rc<Lender>> {
        self.known.borrow_mut().entry(team).or_insert_with(|| self.look_at(team).map(Rc::new)).clone()
    }

    fn look_at(&self, team: TeamIx) -> Option<Lender> {
        let Search { books, claimant, moves, state, .. } = self.search;
        let own = team == claimant.team;
        if books.stakes.count(claimant.pool, team) == 0 || !own && !self.others && !moves {
            return None;
        }
        let levels: Rc<[TeamIx]> = books.forest.levels_below_common(team, claimant.team).collect();
        let beyond =
            || books.forest.any_beyond_guarantee(claimant.pool, levels.iter().copied(), &state.imagined);
        let takeable = own || self.others && beyond();
        (takeable || *moves).then_some(Lender { team, levels, takeable })
    }

    /// All of them, in the order in which they are looked at.
    pub fn in_order(&self) -> impl Iterator<Item = Rc<Lender>> + '_ {
        let mut near: Vec<Standing> =
            self.near().filter_map(|team| self.get(team)).map(|lender| self.standing(&lender)).collect();
        near.sort_unstable();
        let (mut near, mut far) = (near.into_iter().peekable(), self.far().peekable());
        let next = move || match (near.peek(), far.peek()) {
            (Some(one), Some(other)) if one < other => near.next(),
            (_, Some(_)) => far.next(),
            (_, None) => near.next(),
        };
        std::iter::from_fn(next).filter_map(|(_, _, team)| self.get(team))
    }

    fn standing(&self, lender: &Lender) -> Standing {
        let largest = self.largest_share(lender.levels.iter().copied()).unwrap_or(Ratio::ZERO);
        (lender.team != self.search.claimant.team, Reverse(largest), lender.team)
    }

    fn largest_share(&self, levels: impl Iterator<Item = TeamIx>) -> Option<Ratio> {
        let Search { books, claimant, state, .. } = self.search;
        levels.map(|at| books.forest.level_share(claimant.pool, at, state.imagined.get(&at))).max()
    }

    /// Whether the state of the search or who claims makes a difference to those under a team at the top.
    fn is_near(&self, top: TeamIx) -> bool {
        self.search.moves || self.top == Some(top) || self.search.state.imagined.contains_key(&top)
    }

    fn near(&self) -> impl Iterator<Item = TeamIx> + '_ {
        let Search { moves, state, .. } = self.search;
        let all = moves.then_some(&self.lending.under).into_iter().flatten().map(|(_, team)| *team);
        let others = state.imagined.keys().copied().filter(|at| self.top != Some(*at));
        let tops = self.top.into_iter().chain(others).filter(move |_| !moves);
        all.chain(tops.flat_map(|top| self.lending.under(top)))
    }

    fn far(&self) -> impl Iterator<Item = Standing> + '_ {
        let far = self.lending.outright.iter().filter(|(_, top)| self.others && !self.is_near(*top));
        far.map(|(standing, _)| *standing)
    }

    /// Whether taking from some other team could make the shares of the surplus fairer: only if one
    /// of them has more than the claimant's team would have at best.
    fn may_become_fairer(&self) -> bool {
        let Search { books, claimant, state, .. } = self.search;
        let forest = &books.forest;
        let mut imagined = state.imagined.clone();
        let mates = books.stakes.running_below(claimant.pool, claimant.team, claimant.priority);
        forest.imagine(&mut imagined, claimant.team, &mates, -1);
        forest.imagine(&mut imagined, claimant.team, claimant.total, 1);
        let mine = |team: TeamIx| {
            let levels = forest.levels_below_common(claimant.team, team);
            levels.map(|at| forest.level_share(claimant.pool, at, imagined.get(&at))).max()
        };
        let theirs = |team: TeamIx| self.largest_share(forest.levels_below_common(team, claimant.team));
        let has_more = |team: TeamIx| {
            team != claimant.team && mine(team).unwrap_or(Ratio::ZERO) <= theirs(team).unwrap_or(Ratio::ZERO)
        };
        // Of those for whom nothing is different one has most, and the claimant as little against each.
        self.near().any(has_more) || self.far().next().is_some_and(|(_, _, team)| has_more(team))
    }
}
