//! Whom to evict so that a claimant can start: the cheapest set that really makes room on nodes.
//!
//! Two kinds of claims exist. An *owed* one (its team and all above within their guarantees, without
//! the victims) may take borrowers of any team and lower priorities of its own. Any other may take
//! lower priorities of its own team only. Every set is judged by the same order, see [`Cost`].
//!
//! A claim that is not owed must not put its own head on the block: if somebody owed waits who could
//! evict the claimant in turn, the eviction would not pay and the two would take turns for ever.
//!
//! For the same reason a workload is never taken as straddling its team's guarantee if that guarantee
//! holds it once lower priorities of its team yield: it would be owed its room back at once.
//!
//! The search proposes sets (for every node the cheapest on it, the cheapest over all nodes, and on
//! small numbers of candidates every set), drops from each whoever is not needed, and keeps the best.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use super::books::Books;
use super::entry::{Entry, Phase};
use super::forest::{Imagined, PoolIx, TeamIx};
use super::model::{PodShape, Time, Topology, WorkloadId};
use super::nodes::NodeIx;
use super::placement::{self, Freed, Placement, Request, Room};
use super::rules::{free, lending_allows, preemptible, priority_of, work_lost, would_be_owed_again};
use super::vector::Vector;

/// Up to this many candidates every set is tried.
const EXHAUSTIVE: usize = 10;

/// Who asks.
#[derive(Clone, Debug)]
pub struct Claimant<'a> {
    /// Its team.
    pub team: TeamIx,
    /// The pool it would run in.
    pub pool: PoolIx,
    /// What each pod demands of a node.
    pub shape: &'a PodShape,
    /// Within which domains its pods are to lie.
    pub topology: &'a Topology,
    /// What one pod takes.
    pub need: &'a Vector,
    /// What all pods take.
    pub total: &'a Vector,
    /// How many pods it has.
    pub pods: u32,
    /// Its priority: the queue's, then its own.
    pub priority: (i32, i32),
    /// Whether it may run on surplus.
    pub preemptible: bool,
    /// The nodes that may hold its pods.
    pub nodes: &'a [NodeIx],
    /// Workloads of other teams that wait in vain.
    pub others: &'a [WorkloadId],
}

/// The answer of a search.
#[derive(Debug, Default)]
pub struct Found {
    /// The best set, if any frees the room.
    pub victims: Option<Victims>,
    /// When somebody too young to be taken now will be old enough.
    pub retry_at: Option<Time>,
    /// Whether somebody could not be considered because its start is not confirmed yet.
    pub skipped: bool,
}

/// A set of victims and what it is good for.
#[derive(Debug)]
pub struct Victims {
    /// Who goes.
    pub ids: Vec<WorkloadId>,
    /// Where the claimant goes.
    pub placement: Placement,
}

/// What a set of victims costs; compares less when it is to be preferred, criterion by criterion.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// Victims whose going leaves their team below its guarantee.
    straddling: usize,
    /// Victims still within their minimum run time.
    young: usize,
    /// Victims that, queued again, would themselves evict.
    cascades: usize,
    /// Victims of the claimant's own team that its guarantee and limit could hold beside it.
    own_unneeded: usize,
    /// Device-milliseconds (in thousandths) of work lost.
    lost: i128,
    /// The victims' priorities, the highest first.
    priorities: Vec<(i32, i32)>,
    /// How many pods are ended.
    pods: u32,
    /// When the victims started, the oldest first; later is better.
    started: Vec<Reverse<Time>>,
    /// Ties end here, so that the answer never depends on anything unseen.
    ids: Vec<WorkloadId>,
}

/// One that may be taken.
#[derive(Debug)]
struct Candidate<'a> {
    entry: &'a Entry,
    own: bool,
    /// The levels of its team's path that a claimant from elsewhere must respect.
    levels: Vec<TeamIx>,
    amount: Vector,
    priority: (i32, i32),
    started: Time,
    young: bool,
    lost: i128,
    straddles: bool,
    /// Its team's guarantee holds it once lower priorities of the team yield: they borrow, not it.
    covered: bool,
}

/// What a set leads to.
struct Outcome {
    placement: Placement,
    straddling: usize,
    imagined: Imagined,
    freed: Freed,
}

/// The search for one claimant.
pub struct Search<'a> {
    books: &'a Books,
    claimant: &'a Claimant<'a>,
    candidates: Vec<Candidate<'a>>,
    /// Whether the claim is to be owed, or lives off its own team's lower priorities.
    owed: bool,
    lowest_priority: BTreeMap<TeamIx, (i32, i32)>,
    now: Time,
}

/// Finds the best set of victims; none when no set makes the claimant start.
#[must_use]
pub fn search(
    books: &Books,
    claimant: &Claimant<'_>,
    barred: &dyn Fn(&WorkloadId) -> bool,
    now: Time,
) -> Found {
    let mut found = Found::default();
    for owed in [true, false] {
        if !owed && !claimant.preemptible {
            break;
        }
        let (search, retry_at, skipped) = Search::gather(books, claimant, owed, barred, now);
        found.skipped |= skipped;
        found.retry_at = [found.retry_at, retry_at].into_iter().flatten().min();
        if let Some(victims) = search.best() {
            found.victims = Some(victims);
            break;
        }
    }
    found
}

impl<'a> Search<'a> {
    fn gather(
        books: &'a Books,
        claimant: &'a Claimant<'a>,
        owed: bool,
        barred: &dyn Fn(&WorkloadId) -> bool,
        now: Time,
    ) -> (Self, Option<Time>, bool) {
        let nothing = Imagined::new();
        let (mut retry_at, mut skipped): (Option<Time>, bool) = (None, false);
        let mut candidates = Vec::new();
        let mut lowest_priority: BTreeMap<TeamIx, (i32, i32)> = BTreeMap::new();
        for entry in books.holders_in(claimant.pool) {
            if !preemptible(books, entry) || barred(&entry.workload.id) {
                continue;
            }
            let started = match &entry.phase {
                Phase::Running(admission) => admission.at,
                Phase::Starting(_) => {
                    skipped = true;
                    continue;
                }
                _ => continue,
            };
            let priority = priority_of(books, entry);
            lowest_priority
                .entry(entry.team)
                .and_modify(|low| *low = (*low).min(priority))
                .or_insert(priority);
            let own = entry.team == claimant.team;
            if own && priority >= claimant.priority || !own && !owed {
                continue;
            }
            let levels: Vec<TeamIx> = books.forest.levels_below_common(entry.team, claimant.team).collect();
            let amount = entry.held();
            if !own && !books.forest.beyond_guarantee(claimant.pool, &levels, &amount, &nothing) {
                continue;
            }
            let min_runtime = books.queue_of(entry).map_or(Duration::ZERO, |queue| queue.min_runtime);
            let young = now < started.after(min_runtime);
            if young && !owed {
                retry_at = [retry_at, Some(started.after(min_runtime))].into_iter().flatten().min();
                continue;
            }
            let straddles = !own && books.forest.straddles(claimant.pool, &levels, &amount, &nothing);
            let lost = work_lost(books, entry, started, now);
            let covered = straddles && would_be_owed_again(books, entry, priority);
            candidates.push(Candidate {
                entry,
                own,
                levels,
                amount,
                priority,
                started,
                young,
                lost,
                straddles,
                covered,
            });
        }
        // The order in which a set is built up: the cheapest to lose first, judged one by one.
        let own_needed = owed && !books.forest.owed(claimant.pool, claimant.team, claimant.total, &nothing);
        candidates.sort_by_cached_key(|c| {
            let may_cascade = lowest_priority.get(&c.entry.team).is_some_and(|low| *low < c.priority);
            (
                (c.straddles, c.young, may_cascade, c.own && !own_needed),
                (c.lost, c.priority, c.entry.charge.pods, Reverse(c.started)),
                c.entry.workload.id.clone(),
            )
        });
        (Self { books, claimant, candidates, owed, lowest_priority, now }, retry_at, skipped)
    }

    fn best(&self) -> Option<Victims> {
        let everyone: Vec<usize> = (0..self.candidates.len()).collect();
        if everyone.is_empty() || !self.possible(&everyone) {
            return None;
        }
        let mut best: Option<(Cost, Vec<usize>, Outcome)> = None;
        let mut consider = |set: Vec<usize>| {
            let Some(outcome) = self.outcome(&set, self.claimant.nodes) else { return };
            let cost = self.cost(&set, &outcome);
            if best.as_ref().is_none_or(|(least, _, _)| cost < *least) {
                best = Some((cost, set, outcome));
            }
        };
        if everyone.len() <= EXHAUSTIVE {
            self.every_minimal_set().into_iter().for_each(&mut consider);
        } else {
            self.build_up(&everyone, self.claimant.nodes).into_iter().for_each(&mut consider);
            for node in self.claimant.nodes {
                self.on_node(*node).into_iter().for_each(&mut consider);
            }
        }
        best.map(|(_, set, outcome)| Victims {
            ids: set.iter().map(|i| self.candidates[*i].entry.workload.id.clone()).collect(),
            placement: outcome.placement,
        })
    }

    /// Whether taking everyone would do, rules about whom to spare aside. If not, nothing will.
    fn possible(&self, everyone: &[usize]) -> bool {
        let mut freed = Freed::new();
        for i in everyone {
            free(&mut freed, self.candidates[*i].entry);
        }
        placement::place(self.books, self.claimant.nodes, &self.request(), Room::Settled(&freed)).is_some()
    }

    /// Every set from which nobody can be left out.
    fn every_minimal_set(&self) -> Vec<Vec<usize>> {
        let mut minimal: Vec<u32> = Vec::new();
        // A set's number is greater than those of its subsets, so subsets come first.
        for set in 1_u32..(1 << self.candidates.len()) {
            if minimal.iter().all(|smaller| set & smaller != *smaller)
                && self.outcome(&members(set), self.claimant.nodes).is_some()
            {
                minimal.push(set);
            }
        }
        minimal.into_iter().map(members).collect()
    }

    /// A set for a start on that node alone: those on it, then whoever the quota needs besides.
    fn on_node(&self, node: NodeIx) -> Option<Vec<usize>> {
        let (mut order, elsewhere): (Vec<usize>, Vec<usize>) = (0..self.candidates.len())
            .partition(|i| self.candidates[*i].entry.charge.nodes.contains_key(&node));
        order.extend(elsewhere.into_iter().filter(|i| self.helps_quota(*i)));
        self.build_up(&order, &[node])
    }

    /// Whether a candidate stands under a team that the claimant stands under too, so that its
    /// going makes room in a quota of the claimant's.
    fn helps_quota(&self, i: usize) -> bool {
        let root = |team: TeamIx| self.books.forest.team(team).path.last().copied();
        root(self.candidates[i].entry.team) == root(self.claimant.team)
    }

    /// Takes candidates in order, those that straddle last, until the claimant can start on
    /// `nodes`; then lets go again whoever is not needed, the costliest first.
    fn build_up(&self, order: &[usize], nodes: &[NodeIx]) -> Option<Vec<usize>> {
        let sequence = self.legal_sequence(order);
        // More victims never hurt, so the shortest beginning that does can be searched by halving.
        let enough = |length: usize| self.outcome(&sequence[..length], nodes).is_some();
        let (mut low, mut high) = (0, sequence.len());
        if high == 0 || !enough(high) {
            return None;
        }
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if enough(middle) { high = middle } else { low = middle }
        }
        let mut set = sequence[..high].to_vec();
        for position in (0..set.len()).rev() {
            let mut without = set.clone();
            without.remove(position);
            if !without.is_empty() && self.outcome(&without, nodes).is_some() {
                set = without;
            }
        }
        Some(set)
    }

    /// The candidates in an order in which each may be taken after those before it.
    fn legal_sequence(&self, order: &[usize]) -> Vec<usize> {
        let mut imagined = Imagined::new();
        let mut sequence = Vec::new();
        for straddling in [false, true] {
            for i in order {
                if !sequence.contains(i) && self.may_take(*i, &imagined, straddling) {
                    self.books.forest.imagine(
                        &mut imagined,
                        self.candidates[*i].entry.team,
                        &self.candidates[*i].amount,
                        -1,
                    );
                    sequence.push(*i);
                }
            }
        }
        sequence
    }

    fn may_take(&self, i: usize, imagined: &Imagined, straddling: bool) -> bool {
        let candidate = &self.candidates[i];
        let (forest, pool) = (&self.books.forest, self.claimant.pool);
        candidate.own
            || forest.beyond_guarantee(pool, &candidate.levels, &candidate.amount, imagined)
                && (straddling && !candidate.covered
                    || !forest.straddles(pool, &candidate.levels, &candidate.amount, imagined))
    }

    /// What taking `set` leads to; `None` when it is not allowed or the claimant still cannot start.
    fn outcome(&self, set: &[usize], nodes: &[NodeIx]) -> Option<Outcome> {
        let (forest, claimant) = (&self.books.forest, self.claimant);
        let mut imagined = Imagined::new();
        let mut freed = Freed::new();
        let mut left: Vec<usize> = set.to_vec();
        let mut straddling = 0;
        // Smaller ones first, so that as few as possible straddle.
        left.sort_by_key(|i| (self.candidates[*i].amount.entries().map(|(_, m)| m).max(), *i));
        while !left.is_empty() {
            let next = left.iter().position(|i| self.may_take(*i, &imagined, false)).or_else(|| {
                straddling += 1;
                left.iter().position(|i| self.may_take(*i, &imagined, true))
            })?;
            let candidate = &self.candidates[left.remove(next)];
            forest.imagine(&mut imagined, candidate.entry.team, &candidate.amount, -1);
            free(&mut freed, candidate.entry);
        }
        if self.owed && !forest.owed(claimant.pool, claimant.team, claimant.total, &imagined)
            || forest.over_limit(claimant.pool, claimant.team, claimant.total, &imagined, true).is_some()
            || !self.owed && !lending_allows(self.books, claimant.team, claimant.pool, claimant.total, &freed)
        {
            return None;
        }
        let placement = placement::place(self.books, nodes, &self.request(), Room::Settled(&freed))?;
        if !self.owed && self.exposed(&imagined, &freed) {
            return None;
        }
        Some(Outcome { placement, straddling, imagined, freed })
    }

    fn request(&self) -> Request<'a> {
        Request {
            pool: self.claimant.pool,
            shape: self.claimant.shape,
            topology: self.claimant.topology,
            need: self.claimant.need,
            pods: self.claimant.pods,
            beside: None,
        }
    }

    fn cost(&self, set: &[usize], outcome: &Outcome) -> Cost {
        let victims = || set.iter().map(|i| &self.candidates[*i]);
        let mut priorities: Vec<(i32, i32)> = victims().map(|c| c.priority).collect();
        priorities.sort_unstable_by_key(|priority| Reverse(*priority));
        let mut started: Vec<Reverse<Time>> = victims().map(|c| Reverse(c.started)).collect();
        started.sort_unstable_by_key(|Reverse(time)| *time);
        let mut ids: Vec<WorkloadId> = victims().map(|c| c.entry.workload.id.clone()).collect();
        ids.sort();
        Cost {
            straddling: outcome.straddling,
            young: victims().filter(|c| c.young).count(),
            cascades: victims().filter(|c| self.would_evict(c, set, outcome)).count(),
            own_unneeded: victims().filter(|c| c.own && self.own_unneeded(c, outcome)).count(),
            lost: victims().map(|c| c.lost).sum(),
            priorities,
            pods: victims().map(|c| c.entry.charge.pods).sum(),
            started,
            ids,
        }
    }

    /// Whether guarantee and limit would hold a victim of the claimant's own team beside it, so that
    /// only the nodes' room asks for it.
    fn own_unneeded(&self, victim: &Candidate<'_>, outcome: &Outcome) -> bool {
        let (forest, claimant) = (&self.books.forest, self.claimant);
        let mut kept = outcome.imagined.clone();
        forest.imagine(&mut kept, victim.entry.team, &victim.amount, 1);
        self.owed
            && forest.owed(claimant.pool, claimant.team, claimant.total, &kept)
            && forest.over_limit(claimant.pool, claimant.team, claimant.total, &kept, true).is_none()
    }

    /// Whether a victim, queued again once the claimant runs, could start only by evicting somebody.
    fn would_evict(&self, victim: &Candidate<'_>, set: &[usize], outcome: &Outcome) -> bool {
        let (forest, claimant) = (&self.books.forest, self.claimant);
        let entry = victim.entry;
        let total = &victim.amount;
        let mut imagined = outcome.imagined.clone();
        forest.imagine(&mut imagined, claimant.team, claimant.total, 1);
        let owed_plainly = forest.owed(claimant.pool, entry.team, total, &imagined);
        let has_lower = self.lowest_priority.get(&entry.team).is_some_and(|low| *low < victim.priority);
        if !owed_plainly && !has_lower {
            return false;
        }
        let mut freed = outcome.freed.clone();
        for (node, pods) in &outcome.placement {
            freed.take(*node, claimant.need, *pods);
        }
        if self.fits(entry, entry.charge.pods, &freed) {
            return false;
        }
        // Could it, by taking everyone it may?
        let taken = |id: &WorkloadId| set.iter().any(|i| self.candidates[*i].entry.workload.id == *id);
        for (other, admitted) in self.evictable().filter(|(other, _)| !taken(&other.workload.id)) {
            let takeable = if other.team == entry.team {
                let min_runtime = self.books.queue_of(other).map_or(Duration::ZERO, |q| q.min_runtime);
                let old_enough = self.now >= admitted.after(min_runtime);
                priority_of(self.books, other) < victim.priority && (old_enough || owed_plainly)
            } else {
                owed_plainly && self.borrows(other, entry.team, &imagined)
            };
            if takeable {
                free(&mut freed, other);
            }
        }
        self.fits(entry, entry.charge.pods, &freed)
    }

    /// Whether somebody of another team waits who is owed what the claimant would take, so that the
    /// claimant would be evicted in turn.
    fn exposed(&self, imagined: &Imagined, freed: &Freed) -> bool {
        let (forest, claimant) = (&self.books.forest, self.claimant);
        let mut with = imagined.clone();
        forest.imagine(&mut with, claimant.team, claimant.total, 1);
        claimant.others.iter().filter_map(|id| self.books.get(id)).any(|waiting| {
            // The claimant's room is free again here, as if it had been evicted with all borrowers.
            let (mut without, mut freed) = (imagined.clone(), freed.clone());
            for (other, _) in self.evictable() {
                if other.team != waiting.team && self.borrows(other, waiting.team, &with) {
                    forest.imagine(&mut without, other.team, &other.held(), -1);
                    free(&mut freed, other);
                }
            }
            forest.owed(claimant.pool, waiting.team, &waiting.total(), &without)
                && self.fits(waiting, waiting.workload.pods, &freed)
        })
    }

    /// Whether so many pods of somebody find room in the pool once `freed` is free.
    fn fits(&self, entry: &Entry, pods: u32, freed: &Freed) -> bool {
        let request = Request {
            pool: self.claimant.pool,
            shape: &entry.workload.shape,
            topology: &entry.workload.topology,
            need: &entry.need,
            pods,
            beside: None,
        };
        let nodes = placement::eligible(self.books, &request);
        placement::place(self.books, &nodes, &request, Room::Settled(freed)).is_some()
    }

    /// Everybody in the pool who runs and may be evicted by somebody, with when it was admitted.
    fn evictable(&self) -> impl Iterator<Item = (&'a Entry, Time)> {
        let (books, pool) = (self.books, self.claimant.pool);
        books.holders_in(pool).filter_map(move |entry| match &entry.phase {
            Phase::Running(admission) if preemptible(books, entry) => Some((entry, admission.at)),
            _ => None,
        })
    }

    /// Whether somebody owed in team `by` may take this one as a borrower.
    fn borrows(&self, entry: &Entry, by: TeamIx, imagined: &Imagined) -> bool {
        let forest = &self.books.forest;
        let levels: Vec<TeamIx> = forest.levels_below_common(entry.team, by).collect();
        forest.beyond_guarantee(self.claimant.pool, &levels, &entry.held(), imagined)
    }
}

fn members(set: u32) -> Vec<usize> {
    (0..32).filter(|i| set & (1 << i) != 0).collect()
}
