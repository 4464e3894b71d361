//! Of which teams something may be taken, those with the largest shares first.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::preemption::{Ground, Search};
use crate::state::cluster::ClusterState;
use crate::state::quotas::Hypothetical;
use crate::types::ids::{PoolId, TeamId};
use crate::types::ratio::Ratio;

/// Where a team stands in the order in which teams are looked at: the claimant's own first, then those with
/// the largest shares.
type Standing = (bool, Reverse<Ratio>, TeamId);

/// One team of which something may be taken.
#[derive(Debug)]
pub struct Borrower {
    /// Which.
    pub team: TeamId,
    /// The levels of its path that the claimant must respect.
    pub levels: Rc<[TeamId]>,
    /// Whether something may be taken; if not, those of it may only be moved.
    pub takeable: bool,
}

/// The teams of a pool of whom somebody might yield, as things are: the same for all searches that one leads to.
#[derive(Debug)]
pub struct Lending {
    /// All of them in order, after the one at the top.
    under: Vec<(TeamId, TeamId)>,
    /// Those of which something may be taken by whoever stands under another one at the top.
    outright: Vec<(Standing, TeamId)>,
}

impl Lending {
    /// Looks at every team that holds something.
    pub fn of(cluster: &ClusterState, pool: PoolId) -> Self {
        let (quotas, nothing) = (&cluster.quotas, Hypothetical::new());
        let mut lending = Self { under: Vec::new(), outright: Vec::new() };
        for team in cluster.totals.reclaimable_teams(pool) {
            let path = &quotas.team(team).path;
            let Some(top) = path.last() else { continue };
            lending.under.push((*top, team));
            if quotas.any_beyond_guarantee(pool, path.iter().copied(), &nothing) {
                let largest = path.iter().map(|at| quotas.level_share(pool, *at, None)).max();
                let standing = (true, Reverse(largest.unwrap_or(Ratio::ZERO)), team);
                lending.outright.push((standing, *top));
            }
        }
        lending.under.sort_unstable();
        lending.outright.sort_unstable();
        lending
    }

    /// Those under one at the top.
    fn under(&self, top: TeamId) -> impl Iterator<Item = TeamId> {
        let first = self.under.partition_point(|(at, _)| *at < top);
        self.under[first..].iter().take_while(move |(at, _)| *at == top).map(|(_, team)| *team)
    }
}

/// The lenders of one search.
pub struct Borrowers<'s, 'a> {
    search: &'s Search<'a>,
    lending: &'s Lending,
    /// The team at the top under which the claimant stands.
    top: Option<TeamId>,
    /// Whether something may be taken of other teams than the claimant's.
    others: bool,
    known: RefCell<BTreeMap<TeamId, Option<Rc<Borrower>>>>,
}

impl<'s, 'a> Borrowers<'s, 'a> {
    /// The lenders in the state of a search.
    pub fn of(search: &'s Search<'a>, lending: &'s Lending) -> Self {
        let top = search.cluster.quotas.team(search.preemptor.team).path.last().copied();
        let known = RefCell::default();
        let mut lenders = Self { search, lending, top, others: true, known };
        lenders.others = search.ground == Ground::Owed || lenders.may_become_fairer();
        lenders
    }

    /// A team, if something may be taken of it.
    pub fn get(&self, team: TeamId) -> Option<Rc<Borrower>> {
        self.known.borrow_mut().entry(team).or_insert_with(|| self.look_at(team).map(Rc::new)).clone()
    }

    fn look_at(&self, team: TeamId) -> Option<Borrower> {
        let Search { cluster, preemptor, moves, state, .. } = self.search;
        let own = team == preemptor.team;
        if cluster.totals.count(preemptor.pool, team) == 0 || !own && !self.others && !moves {
            return None;
        }
        let levels: Rc<[TeamId]> = cluster.quotas.levels_below_common(team, preemptor.team).collect();
        let beyond = || {
            cluster.quotas.any_beyond_guarantee(preemptor.pool, levels.iter().copied(), &state.hypothetical)
        };
        let takeable = own || self.others && beyond();
        (takeable || *moves).then_some(Borrower { team, levels, takeable })
    }

    /// All of them, in the order in which they are looked at.
    pub fn in_order(&self) -> impl Iterator<Item = Rc<Borrower>> + '_ {
        let mut near: Vec<Standing> =
            self.near().filter_map(|team| self.get(team)).map(|borrower| self.standing(&borrower)).collect();
        near.sort_unstable();
        let (mut near, mut far) = (near.into_iter().peekable(), self.far().peekable());
        let next = move || match (near.peek(), far.peek()) {
            (Some(one), Some(other)) if one < other => near.next(),
            (_, Some(_)) => far.next(),
            (_, None) => near.next(),
        };
        std::iter::from_fn(next).filter_map(|(_, _, team)| self.get(team))
    }

    fn standing(&self, borrower: &Borrower) -> Standing {
        let largest = self.largest_share(borrower.levels.iter().copied()).unwrap_or(Ratio::ZERO);
        (borrower.team != self.search.preemptor.team, Reverse(largest), borrower.team)
    }

    fn largest_share(&self, levels: impl Iterator<Item = TeamId>) -> Option<Ratio> {
        let Search { cluster, preemptor, state, .. } = self.search;
        levels.map(|at| cluster.quotas.level_share(preemptor.pool, at, state.hypothetical.get(&at))).max()
    }

    /// Whether the state of the search or who claims makes a difference to those under a team at the top.
    fn is_near(&self, top: TeamId) -> bool {
        self.search.moves || self.top == Some(top) || self.search.state.hypothetical.contains_key(&top)
    }

    fn near(&self) -> impl Iterator<Item = TeamId> + '_ {
        let Search { moves, state, .. } = self.search;
        let all = moves.then_some(&self.lending.under).into_iter().flatten().map(|(_, team)| *team);
        let others = state.hypothetical.keys().copied().filter(|at| self.top != Some(*at));
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
        let Search { cluster, preemptor, state, .. } = self.search;
        let quotas = &cluster.quotas;
        let mut hypothetical = state.hypothetical.clone();
        let siblings = cluster.totals.running_below(preemptor.pool, preemptor.team, preemptor.priority);
        quotas.assume(&mut hypothetical, preemptor.team, &siblings, -1);
        quotas.assume(&mut hypothetical, preemptor.team, preemptor.total, 1);
        let mine = |team: TeamId| {
            let levels = quotas.levels_below_common(preemptor.team, team);
            levels.map(|at| quotas.level_share(preemptor.pool, at, hypothetical.get(&at))).max()
        };
        let theirs = |team: TeamId| self.largest_share(quotas.levels_below_common(team, preemptor.team));
        let has_more = |team: TeamId| {
            team != preemptor.team && mine(team).unwrap_or(Ratio::ZERO) <= theirs(team).unwrap_or(Ratio::ZERO)
        };
        // Of those for whom nothing is different one has most, and the claimant as little against each.
        self.near().any(has_more) || self.far().next().is_some_and(|(_, _, team)| has_more(team))
    }
}
