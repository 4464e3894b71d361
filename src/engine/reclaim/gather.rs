//! Who may be taken for a claimant at all, and what is known of each.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use super::super::books::Books;
use super::super::entry::{Entry, Phase};
use super::super::forest::{Imagined, PoolIx, TeamIx};
use super::super::model::{Admission, Time, WorkloadId};
use super::super::nodes::NodeIx;
use super::super::placement::{self, Freed, Room};
use super::super::rules::{
    free_on, old_enough, preemptible, priority_of, scarcest, work_lost, would_be_owed_again,
};
use super::super::seniority::Seniority;
use super::super::share::Ratio;
use super::super::vector::Vector;
use super::lenders::{Lender, Lenders, Lending};
use super::{Ground, Search};

/// Where no more than so many may have to give something, all of them are looked at.
const FEW: usize = 64;
/// More candidates than this are not looked at; those that look cheapest are.
const MOST: usize = 512;
/// On so many nodes, and so many more for each pod of the claimant, candidates are looked for otherwise.
const NODES: usize = 24;
const NODES_A_POD: usize = 2;
/// So many lenders, those with the largest shares, are looked at for that.
const LENDERS: usize = 24;
/// Of no more than so many nodes each is priced, where the claimant is owed its room.
const PRICED: usize = 2_048;
/// So many of a lender's newest, and so many of its oldest, are looked at to find those nodes.
const LOOKED_AT: usize = 8;
/// One in so many of all that, where it is only asked whether a victim would evict in its turn.
const AHEAD: usize = 3;
/// So many times as many of both, where a first search for somebody who is owed has found nothing.
const WIDER: usize = 4;

/// One that may be taken.
#[derive(Debug)]
pub struct Candidate<'a> {
    /// The workload.
    pub entry: &'a Entry,
    /// Whether it is of the claimant's own team.
    pub own: bool,
    /// Whether it may be evicted or shrunk; if not, it may only be moved.
    pub takeable: bool,
    /// The levels of its team's path that a claimant from elsewhere must respect.
    pub levels: Rc<[TeamIx]>,
    /// What all of it holds.
    pub amount: Vector,
    /// Its priority: the queue's, then its own.
    pub priority: (i32, i32),
    /// When it was admitted.
    pub started: Time,
    /// Whether it is within its minimum run time.
    pub young: bool,
    /// What work would be lost with all of it, in device-milliseconds (thousandths of a device).
    pub lost: i128,
    /// See [`Candidate::covered`]; looked at only where it matters, since that means all its mates.
    covered: OnceCell<bool>,
    /// How many pods it can lose without going.
    pub extra: u32,
}

impl Candidate<'_> {
    /// Whether its team's guarantee holds it once lower priorities of the team yield: they borrow, not it.
    pub fn covered(&self, books: &Books) -> bool {
        *self.covered.get_or_init(|| would_be_owed_again(books, self.entry, self.priority))
    }

    /// Whether its going, besides what is imagined to be gone, leaves its team below its guarantee.
    pub fn straddles(&self, books: &Books, pool: PoolIx, imagined: &Imagined) -> bool {
        !self.own && books.forest.straddles(pool, &self.levels, &self.amount, imagined)
    }
}

/// What gathering brought to light besides candidates.
#[derive(Debug, Default)]
pub struct Gathered {
    /// When somebody too young to be taken now will be old enough.
    pub retry_at: Option<Time>,
    /// Whether somebody could not be considered because its start is not confirmed yet.
    pub skipped: bool,
}

/// One on a node that may go, and what that costs and frees there.
struct Going<'a> {
    young: bool,
    /// In device-milliseconds (thousandths of a device).
    lost: i128,
    amount: i64,
    /// The levels of its team's path that the claimant must respect.
    levels: Rc<[TeamIx]>,
    entry: &'a Entry,
}

impl<'a> Search<'a> {
    /// Collects the candidates, the cheapest to lose first as far as each can be judged by itself: all of
    /// them where there are few, else those on the most promising nodes, to which the search is then
    /// confined.
    pub fn gather(&mut self, barred: &dyn Fn(&WorkloadId) -> bool) -> Gathered {
        let mut gathered = Gathered::default();
        let (books, pool) = (self.books, self.claimant.pool);
        if self.ground == Ground::Owed && !self.may_be_owed() {
            self.candidates.clear();
            return gathered;
        }
        let lending = self.common.lending.get_or_init(|| Lending::of(books, pool));
        let lenders = Lenders::of(self, lending);
        let mut count = 0;
        let confined = lenders.in_order().any(|lender| {
            count += books.stakes.count(pool, lender.team);
            count > FEW
        });
        let (candidates, nodes) = if confined {
            let (candidates, nodes) = self.promising(&lenders, barred, &mut gathered);
            (candidates, Some(nodes))
        } else {
            let all = lenders.in_order().flat_map(|lender| {
                books.yielding(pool, lender.team).map(move |entry| (Rc::clone(&lender), entry))
            });
            let candidates =
                all.filter_map(|(lender, entry)| self.consider(&lender, entry, barred, &mut gathered));
            (candidates.collect(), None)
        };
        (self.candidates, self.confined, self.bounded) = (candidates, confined, confined);
        if let Some(nodes) = nodes {
            self.nodes = nodes;
        }
        self.put_in_order();
        if self.candidates.len() > MOST {
            self.candidates.truncate(MOST);
            self.bounded = true;
        }
        gathered
    }

    /// Whether the claimant can be owed its room whoever goes: only its own team's lower priorities make room in
    /// that team's own guarantee, and those below it.
    fn may_be_owed(&self) -> bool {
        let (books, claimant) = (self.books, &self.claimant);
        let forest = &books.forest;
        let mut imagined = self.state.imagined.clone();
        let mates = books.yielding(claimant.pool, claimant.team);
        let lower = mates.filter(|mate| priority_of(books, mate) < claimant.priority);
        for mate in lower.filter(|mate| !self.state.gone.contains(&mate.workload.id)) {
            forest.imagine(&mut imagined, mate.team, &mate.keeps(), -1);
        }
        forest.stands_above(claimant.team)
            || forest.own_guarantee_would_hold(claimant.pool, claimant.team, claimant.total, &imagined)
    }

    /// Those on the nodes where most is to be had for least: of every lender in turn, the nodes of those
    /// whose going loses least.
    fn promising(
        &self,
        lenders: &Lenders<'_, 'a>,
        barred: &dyn Fn(&WorkloadId) -> bool,
        gathered: &mut Gathered,
    ) -> (Vec<Candidate<'a>>, Vec<NodeIx>) {
        let (books, claimant) = (self.books, self.claimant);
        let wanted = NODES + NODES_A_POD * usize::try_from(claimant.pods).unwrap_or(NODES).min(NODES);
        let wanted = match (self.wide, self.foresees) {
            (true, _) => wanted * WIDER,
            (false, true) => wanted / AHEAD,
            (false, false) => wanted,
        };
        let mut lists: Vec<std::vec::IntoIter<NodeIx>> = Vec::new();
        if self.ground == Ground::Owed && !self.foresees && self.nodes.len() <= PRICED {
            lists.push(self.cheapest(lenders, barred, gathered).into_iter());
        } else {
            for lender in lenders.in_order().take(if self.foresees { LENDERS / AHEAD } else { LENDERS }) {
                lists.push(self.likely(&lender, barred, gathered).into_iter());
            }
        }
        if self.moves {
            lists.push(self.roomiest(wanted).into_iter());
        }
        let (mut candidates, mut nodes) = (BTreeMap::new(), BTreeSet::new());
        let mut seen = BTreeSet::new();
        while nodes.len() < wanted && !lists.is_empty() {
            lists.retain_mut(|list| {
                if nodes.len() >= wanted {
                    return false;
                }
                let Some(node) = list.find(|node| seen.insert(*node) && self.admits(*node)) else {
                    return false;
                };
                let there: Vec<Candidate<'a>> = books
                    .occupants(node)
                    .filter_map(|(entry, _)| Some((lenders.get(entry.team)?, entry)))
                    .filter_map(|(lender, entry)| self.consider(&lender, entry, barred, gathered))
                    .collect();
                if self.gains(node, &there) {
                    nodes.insert(node);
                    candidates.extend(there.into_iter().map(|candidate| (candidate.entry.place, candidate)));
                }
                true
            });
        }
        // With the nodes that have room already.
        if claimant.pods > 1 {
            let room = Room::Settled(&self.state.freed);
            let sites = placement::roomy(books, &self.nodes, &self.request(), room);
            nodes.extend(sites.into_iter().take(wanted));
        }
        let mut chosen: Vec<NodeIx> = nodes.into_iter().collect();
        chosen.sort_by_key(|node| books.nodes.name(*node));
        (candidates.into_values().collect(), chosen)
    }

    /// The nodes of those of a lender whose going loses least, in that order.
    fn likely(
        &self,
        lender: &Lender,
        barred: &dyn Fn(&WorkloadId) -> bool,
        gathered: &mut Gathered,
    ) -> Vec<NodeIx> {
        let yielding = || self.books.yielding(self.claimant.pool, lender.team);
        let looked_at = if self.wide { LOOKED_AT * WIDER } else { LOOKED_AT };
        let mut likely = Vec::new();
        // The newest have least to lose; if they are too new, the oldest may be old enough.
        for entry in yielding().take(looked_at).chain(yielding().rev().take(looked_at)) {
            let Some(admission) = self.admission(entry, barred, gathered) else { continue };
            let (takeable, young) = self.may_go(lender, entry, admission, gathered);
            if takeable || self.moves {
                let lost = work_lost(self.books, entry, admission.at, self.now);
                likely.push(((!takeable, young, priority_of(self.books, entry), lost), entry));
            }
        }
        // Those alike stay in the order in which they were looked at.
        likely.sort_by_key(|(key, _)| *key);
        likely.into_iter().flat_map(|(_, entry)| entry.charge.staying().keys().copied()).collect()
    }

    /// The nodes on which one pod of the claimant finds room when those go who lose least, in the order of
    /// what is lost.
    fn cheapest(
        &self,
        lenders: &Lenders<'_, 'a>,
        barred: &dyn Fn(&WorkloadId) -> bool,
        gathered: &mut Gathered,
    ) -> Vec<NodeIx> {
        let Some(resource) = scarcest(self.books, self.claimant.need) else { return Vec::new() };
        let mut priced = Vec::new();
        for node in &self.nodes {
            let mut there: Vec<Going<'_>> = self
                .books
                .occupants(*node)
                .filter_map(|(entry, pods)| Some((lenders.get(entry.team)?, entry, pods)))
                .filter_map(|(lender, entry, pods)| {
                    let admission = self.admission(entry, barred, gathered)?;
                    let (takeable, young) = self.may_go(&lender, entry, admission, gathered);
                    let lost = work_lost(self.books, entry, admission.at, self.now);
                    let amount = entry.need.get(resource).saturating_mul(i64::from(pods));
                    takeable.then_some(Going {
                        young,
                        lost,
                        amount,
                        levels: Rc::clone(&lender.levels),
                        entry,
                    })
                })
                .collect();
            there.sort_by_key(|going| (going.young, going.lost, going.amount));
            let missing = self.claimant.need.get(resource) - self.free(*node, resource);
            if let Some(price) = self.price(there, missing) {
                priced.push((price, *node));
            }
        }
        priced.sort_unstable();
        priced.into_iter().map(|(_, node)| node).collect()
    }

    /// What it costs that so many go as are missing, by the first criteria of a set's cost: those last whose going
    /// would leave their team below its guarantee. `None` if all of them do not do.
    fn price(&self, mut there: Vec<Going<'_>>, mut missing: i64) -> Option<(usize, bool, i128)> {
        let (forest, claimant) = (&self.books.forest, &self.claimant);
        let (mut price, mut imagined) = ((0, false, 0_i128), self.state.imagined.clone());
        for straddling in [false, true] {
            there.retain(|Going { young, lost, amount, levels, entry }| {
                let (held, own) = (entry.keeps(), entry.team == claimant.team);
                let straddles = !own && forest.straddles(claimant.pool, levels, &held, &imagined);
                if missing <= 0 || straddles != straddling {
                    return true;
                }
                missing -= amount;
                price = (price.0 + usize::from(straddles), price.1 | young, price.2.saturating_add(*lost));
                forest.imagine(&mut imagined, entry.team, &held, -1);
                false
            });
        }
        (missing <= 0).then_some(price)
    }

    /// What of a resource is free on a node in the state of the search.
    pub fn free(&self, node: NodeIx, resource: usize) -> i64 {
        let more = self.state.freed.get(&node).map_or(0, |freed| freed.get(resource));
        self.books.nodes.get(node).settled().amounts().get(resource) + more
    }

    /// The nodes that have most of what the claimant asks for, though not enough.
    fn roomiest(&self, wanted: usize) -> Vec<NodeIx> {
        let resource = scarcest(self.books, self.claimant.need);
        let free = |node: &NodeIx| resource.map_or(0, |resource| self.free(*node, resource));
        let mut nodes: Vec<(Reverse<i64>, NodeIx)> =
            self.nodes.iter().map(|node| (Reverse(free(node)), *node)).collect();
        nodes.sort_unstable();
        nodes.into_iter().take(wanted).map(|(_, node)| node).collect()
    }

    /// Whether more pods of the claimant find room on a node once these are gone from it.
    fn gains(&self, node: NodeIx, there: &[Candidate<'_>]) -> bool {
        let mut freed = self.state.freed.on(node);
        let room = |freed: &Freed| {
            placement::capacity_for(self.books, node, self.claimant.need, Room::Settled(freed))
        };
        let before = room(&freed);
        for candidate in there {
            free_on(&mut freed, candidate.entry, node);
        }
        room(&freed) > before
    }

    /// Whether the claimant's pods may be placed on a node at all.
    pub fn admits(&self, node: NodeIx) -> bool {
        let request = self.request();
        self.books.nodes.fitting(request.pool, request.shape, request.need, |fitting| fitting.admits(node))
    }

    /// By what somebody runs of whom something may be decided.
    fn admission(
        &self,
        entry: &'a Entry,
        barred: &dyn Fn(&WorkloadId) -> bool,
        gathered: &mut Gathered,
    ) -> Option<&'a Admission> {
        self.looked_at.set(self.looked_at.get() + 1);
        let id = &entry.workload.id;
        if !preemptible(self.books, entry) || barred(id) || self.state.gone.contains(id) {
            return None;
        }
        if self.ground == Ground::Surplus && self.claimant.taken.is_some_and(|taken| taken.contains(id)) {
            return None;
        }
        match &entry.phase {
            Phase::Running(admission) => Some(admission),
            // By the time a victim of now asks for its room back, it will run.
            Phase::Starting(admission) if self.foresees => Some(admission),
            Phase::Starting(_) | Phase::Resizing { .. } => {
                gathered.skipped = true;
                None
            }
            _ => None,
        }
    }

    /// What is known of somebody, if it may be taken.
    fn consider(
        &self,
        lender: &Lender,
        entry: &'a Entry,
        barred: &dyn Fn(&WorkloadId) -> bool,
        gathered: &mut Gathered,
    ) -> Option<Candidate<'a>> {
        let admission = self.admission(entry, barred, gathered)?;
        let (takeable, young) = self.may_go(lender, entry, admission, gathered);
        if !takeable && !self.moves {
            return None;
        }
        let books = self.books;
        let own = entry.team == self.claimant.team;
        let (amount, priority) = (entry.keeps(), priority_of(books, entry));
        Some(Candidate {
            entry,
            own,
            takeable,
            levels: Rc::clone(&lender.levels),
            amount,
            priority,
            started: admission.at,
            young,
            lost: work_lost(books, entry, admission.at, self.now),
            covered: OnceCell::new(),
            extra: entry.extra_pods(),
        })
    }

    /// Whether somebody who runs may be evicted or shrunk, and whether it is within its minimum run time.
    fn may_go(
        &self,
        lender: &Lender,
        entry: &Entry,
        admission: &Admission,
        gathered: &mut Gathered,
    ) -> (bool, bool) {
        let (books, claimant, imagined) = (self.books, &self.claimant, &self.state.imagined);
        let started = admission.at;
        let own = entry.team == claimant.team;
        let mut takeable = lender.takeable
            && if own {
                priority_of(books, entry) < claimant.priority
            } else {
                books.forest.beyond_guarantee(claimant.pool, &lender.levels, &entry.need, imagined)
            };
        let old_enough = old_enough(books, entry, started);
        let young = self.now < old_enough && !(self.foresees && self.lasts_until(entry, started, old_enough));
        // Within a team, and against a claim on the surplus, the minimum run time holds.
        if takeable && young && (own || self.ground == Ground::Surplus) {
            gathered.retry_at = [gathered.retry_at, Some(old_enough)].into_iter().flatten().min();
            takeable = false;
        }
        (takeable, young)
    }

    /// Whether somebody may still run by then: nine of ten like it do not take that long. Of whom that is
    /// not known, it may.
    fn lasts_until(&self, entry: &Entry, started: Time, then: Time) -> bool {
        let length = self.history.length(self.books, entry, Duration::ZERO);
        length.is_none_or(|length| started.after(length.late) >= then)
    }

    /// Sorts the candidates: the cheapest to lose first, judged one by one.
    fn put_in_order(&mut self) {
        let (books, claimant) = (self.books, self.claimant);
        let own_needed = self.ground == Ground::Owed
            && !books.forest.owed(claimant.pool, claimant.team, claimant.total, &self.state.imagined);
        let mut lowest: BTreeMap<TeamIx, (i32, i32)> = BTreeMap::new();
        let mut shares: BTreeMap<TeamIx, Ratio> = BTreeMap::new();
        for candidate in &self.candidates {
            let team = candidate.entry.team;
            let low = lowest.entry(team).or_insert(candidate.priority);
            *low = (*low).min(candidate.priority);
            shares.entry(team).or_insert_with(|| {
                books.forest.level_share(claimant.pool, team, self.state.imagined.get(&team))
            });
        }
        let state = &self.state;
        self.candidates.sort_by_cached_key(|c| {
            let lower = lowest.get(&c.entry.team).is_some_and(|low| *low < c.priority);
            let share = shares.get(&c.entry.team).copied().unwrap_or(Ratio::ZERO);
            (
                (
                    !c.takeable,
                    c.takeable && c.straddles(books, claimant.pool, &state.imagined),
                    c.young,
                    lower,
                    c.own && !own_needed,
                ),
                (c.lost, Reverse(share), c.priority, c.entry.charge.staying_pods(), Reverse(c.started)),
                Reverse(Seniority::of(&c.entry.workload)),
                c.entry.workload.id.clone(),
            )
        });
    }
}
