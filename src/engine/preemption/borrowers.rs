//! The teams with possible victims, those with the largest shares first.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::rc::Rc;

use crate::preemption::preemptor::Preemptor;
use crate::preemption::search::{Basis, Search};
use crate::queue::victim_teams::{TeamOrder, VictimTeams};
use crate::types::ids::TeamId;
use crate::types::ratio::Ratio;

/// One team with possible victims: a borrower, or the preemptor's own team.
#[derive(Debug)]
pub struct Borrower {
    /// The team.
    pub team: TeamId,
    /// The levels of its path with guarantees that the preemptor must respect.
    pub levels: Rc<[TeamId]>,
    /// Whether its workloads may be evicted or shrunk; otherwise they may only be moved.
    pub evictable: bool,
}

/// The teams with possible victims of one search.
pub struct Borrowers<'s, 'a> {
    search: &'s Search<'a>,
    reclaimable: Option<&'s VictimTeams>,
    /// The root team above the preemptor.
    root: Option<TeamId>,
    /// Whether workloads of other teams than the preemptor's may be evicted.
    others: bool,
    /// What is known of each team so far. Every occupant of a node asks for its team.
    known: RefCell<Vec<Option<Option<Rc<Borrower>>>>>,
}

impl<'s, 'a> Borrowers<'s, 'a> {
    /// The teams with possible victims under the assumptions of a search.
    pub fn of(search: &'s Search<'a>) -> Self {
        let reclaimable = search.reclaimable.victims(search.preemptor.pool);
        let root = search.cluster.quotas.team(search.preemptor.team).path.last().copied();
        let known = RefCell::default();
        let mut borrowers = Self { search, reclaimable, root, others: true, known };
        // Work that is never preempted keeps what it takes, so guarantees have to hold it beside all other such work (law 2).
        let Preemptor { pool, team, total, preemptible, .. } = search.preemptor;
        let may_borrow = || preemptible || search.cluster.quotas.guarantees_fixed(pool, team, total);
        borrowers.others =
            search.basis == Basis::WithinGuarantee || may_borrow() && borrowers.may_become_fairer();
        borrowers
    }

    /// A team, if it has possible victims.
    pub fn get(&self, team: TeamId) -> Option<Rc<Borrower>> {
        let mut known = self.known.borrow_mut();
        if known.len() <= team.0 {
            known.resize(team.next().0, None);
        }
        known[team].get_or_insert_with(|| self.examine(team).map(Rc::new)).clone()
    }

    fn examine(&self, team: TeamId) -> Option<Borrower> {
        let Search { cluster, preemptor, moves, assumptions, .. } = self.search;
        let own = team == preemptor.team;
        if cluster.totals.count(preemptor.pool, team) == 0 || !own && !self.others && !moves {
            return None;
        }
        let levels: Rc<[TeamId]> = cluster.quotas.levels_below_common(team, preemptor.team).collect();
        let beyond_guarantee = || {
            let levels = levels.iter().copied();
            cluster.quotas.each_beyond_guarantee(preemptor.pool, levels, &assumptions.hypothetical)
        };
        let evictable = own || self.others && beyond_guarantee();
        (evictable || *moves).then_some(Borrower { team, levels, evictable })
    }

    /// All of them, in the order in which they are searched.
    pub fn in_order(&self) -> impl Iterator<Item = Rc<Borrower>> + '_ {
        let mut affected: Vec<TeamOrder> =
            self.affected().filter_map(|team| self.get(team)).map(|borrower| self.order(&borrower)).collect();
        affected.sort_unstable();
        let (mut affected, mut unaffected) = (affected.into_iter().peekable(), self.unaffected().peekable());
        let next = move || match (affected.peek(), unaffected.peek()) {
            (Some(one), Some(other)) if one < other => affected.next(),
            (_, Some(_)) => unaffected.next(),
            (_, None) => affected.next(),
        };
        std::iter::from_fn(next).filter_map(|(_, _, team)| self.get(team))
    }

    fn order(&self, borrower: &Borrower) -> TeamOrder {
        let largest = self.largest_share(borrower.levels.iter().copied()).unwrap_or(Ratio::ZERO);
        (borrower.team != self.search.preemptor.team, Reverse(largest), borrower.team)
    }

    fn largest_share(&self, levels: impl Iterator<Item = TeamId>) -> Option<Ratio> {
        let Search { cluster, preemptor, assumptions, .. } = self.search;
        let share = |at| cluster.quotas.level_share(preemptor.pool, at, assumptions.hypothetical.get(&at));
        levels.map(share).max()
    }

    /// Whether the cached order of the teams under a root does not apply to this search: moves are allowed, the
    /// preemptor is under the same root, or the assumptions change the root's usage.
    fn is_affected(&self, root: TeamId) -> bool {
        self.search.moves
            || self.root == Some(root)
            || self.search.assumptions.hypothetical.contains_key(&root)
    }

    /// The teams under roots that are affected.
    fn affected(&self) -> impl Iterator<Item = TeamId> + '_ {
        let Search { moves, assumptions, .. } = self.search;
        let all = self.reclaimable.filter(|_| *moves).into_iter().flat_map(VictimTeams::all);
        let others = assumptions.hypothetical.keys().copied().filter(|at| self.root != Some(*at));
        let roots = self.root.into_iter().chain(others).filter(move |_| !moves);
        let under = |root| self.reclaimable.into_iter().flat_map(move |teams| teams.under(root));
        all.chain(roots.flat_map(under))
    }

    /// The other teams, in the cached order.
    fn unaffected(&self) -> impl Iterator<Item = TeamOrder> + '_ {
        let teams = self.reclaimable.into_iter().flat_map(VictimTeams::beyond_guarantee);
        teams.filter(|(_, root)| self.others && !self.is_affected(*root)).map(|(order, _)| order)
    }

    /// Whether preempting another team could make the fair shares fairer (law 5): only if the share of one of them
    /// is at least the smallest share that the preemptor's team could have after the start.
    fn may_become_fairer(&self) -> bool {
        let Search { cluster, preemptor, assumptions, .. } = self.search;
        let quotas = &cluster.quotas;
        let mut hypothetical = assumptions.hypothetical.clone();
        let siblings = cluster.totals.running_below(preemptor.pool, preemptor.team, preemptor.priority);
        quotas.assume(&mut hypothetical, preemptor.team, &siblings, -1);
        quotas.assume(&mut hypothetical, preemptor.team, preemptor.total, 1);
        let own_share = |team: TeamId| {
            let levels = quotas.levels_below_common(preemptor.team, team);
            levels.map(|at| quotas.level_share(preemptor.pool, at, hypothetical.get(&at))).max()
        };
        let before = self.search.at_most_before();
        let share = |team: TeamId| {
            let levels = quotas.levels_below_common(team, preemptor.team);
            levels.map(|at| quotas.level_share(preemptor.pool, at, before.get(&at))).max()
        };
        let has_more = |team: TeamId| {
            team != preemptor.team
                && own_share(team).unwrap_or(Ratio::ZERO) <= share(team).unwrap_or(Ratio::ZERO)
        };
        // The unaffected teams are under other roots, so the preemptor's own share is the same against each of
        // them, and the first of them has the largest share.
        self.affected().any(has_more)
            || self.unaffected().next().is_some_and(|(_, _, team)| has_more(team))
            || !preemptor.ending.is_empty() && self.unaffected().any(|(_, _, team)| has_more(team))
    }
}
