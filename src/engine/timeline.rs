//! When those who run are expected to end, and so when and where there will be room for somebody.
//!
//! Everybody's end is worked out once, when it starts, and again only when that time has passed.
//! Ends are kept in order, so that looking for room walks through as many as it needs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use super::books::Books;
use super::candidate::Candidate;
use super::entry::{Entry, Phase};
use super::fit;
use super::forest::PoolIx;
use super::history::{self, History};
use super::model::{Admission, Node, Time, WorkloadId};
use super::nodes::NodeIx;
use super::placement::{self, Freed, Placement, Room};
use super::rules;

/// A workload that runs, as the timeline knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    pool: PoolIx,
    started: Time,
    limit: Option<Duration>,
    /// When it ends at the latest; `None` when that cannot be predicted.
    end: Option<Time>,
}

impl Known {
    /// Whether its end is not merely to be expected from how long others ran.
    fn is_sure(&self) -> bool {
        let limited = |limit: Duration| self.end.is_some_and(|end| end <= self.started.after(limit));
        self.limit.is_some_and(limited)
    }
}

/// Workloads by pool, in the order of a time.
type Ordered = BTreeMap<PoolIx, BTreeSet<(Time, WorkloadId)>>;

/// Expected ends, by pool.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    known: BTreeMap<WorkloadId, Known>,
    /// Those whose limits say when they have ended.
    ends: Ordered,
    /// Those of whom it is to be expected by how long others like them ran.
    guesses: Ordered,
}

/// Room that will be there.
#[derive(Clone, Debug)]
pub struct Opening {
    /// When; `None` when that cannot be predicted.
    pub at: Option<Time>,
    /// Where.
    pub placement: Placement,
}

impl Timeline {
    /// Takes note of whether a workload runs, and if so until when.
    pub fn note(&mut self, books: &Books, history: &History, id: &WorkloadId) {
        let runs = books.get(id).and_then(|entry| Some((entry, runs(entry)?)));
        let Some((entry, admission)) = runs else {
            self.forget(id);
            return;
        };
        let (pool, started, limit) = (entry.charge.pool, admission.at, history::limit(books, entry));
        let same = |known: &Known| (known.pool, known.started, known.limit) == (pool, started, limit);
        if self.known.get(id).is_some_and(same) {
            return;
        }
        let known = Known { pool, started, limit, end: None };
        self.set(id, Known { end: expected(books, history, entry, &known, Duration::ZERO), ..known });
    }

    fn set(&mut self, id: &WorkloadId, known: Known) {
        self.forget(id);
        if let Some((index, end)) = self.index(&known) {
            index.entry(known.pool).or_default().insert((end, id.clone()));
        }
        self.known.insert(id.clone(), known);
    }

    /// Where somebody stands whose end is expected, and by which time.
    fn index(&mut self, known: &Known) -> Option<(&mut Ordered, Time)> {
        let index = if known.is_sure() { &mut self.ends } else { &mut self.guesses };
        Some((index, known.end?))
    }

    fn forget(&mut self, id: &WorkloadId) {
        let Some(known) = self.known.remove(id) else { return };
        let Some((index, end)) = self.index(&known) else { return };
        if let Some(ids) = index.get_mut(&known.pool) {
            ids.remove(&(end, id.clone()));
            if ids.is_empty() {
                index.remove(&known.pool);
            }
        }
    }

    /// Expects those anew who should have ended before `now`.
    pub fn catch_up(&mut self, books: &Books, history: &History, pool: PoolIx, now: Time) {
        let late = |ends: &Ordered| {
            ends.get(&pool).and_then(BTreeSet::first).filter(|(end, _)| *end < now).map(|(_, id)| id.clone())
        };
        while let Some(id) = late(&self.ends).or_else(|| late(&self.guesses)) {
            let Some(known) = self.known.get(&id).copied() else { return };
            let elapsed = now.since(known.started);
            let end = books.get(&id).and_then(|entry| expected(books, history, entry, &known, elapsed));
            let end = end.filter(|end| *end >= now);
            self.set(&id, Known { end, ..known });
        }
    }

    /// When a running workload ends at the latest; `None` when that cannot be predicted.
    #[must_use]
    pub fn end(&self, id: &WorkloadId) -> Option<Time> {
        self.known.get(id)?.end
    }

    /// Whether limits say of anybody in a pool that it has ended before that time.
    #[must_use]
    pub fn is_sure_before(&self, pool: PoolIx, time: Time) -> bool {
        self.ends.get(&pool).and_then(BTreeSet::first).is_some_and(|(end, _)| *end < time)
    }

    /// The earliest room for a candidate on these nodes, if those who run end as expected and nobody
    /// else starts. Of those whose end no limit sets, who are on the emptiest nodes are taken to end first,
    /// for that is where the fewest have to; if one of them cannot be predicted, the time is open. `None`
    /// when there is no such room until then.
    #[must_use]
    pub fn opening(
        &self,
        books: &Books,
        candidate: &Candidate,
        pool: PoolIx,
        nodes: &[NodeIx],
        now: Time,
        until: Until,
    ) -> Option<Opening> {
        let mut walk = Walk::new(self, books, (candidate, pool), nodes, until);
        let (count, placement) = walk.fewest()?;
        let ends: Option<Vec<Time>> = walk.first(count).iter().map(|(end, _)| *end).collect();
        let at = ends.map(|ends| ends.into_iter().max().map_or(now, |end| end.max(now)));
        Some(Opening { at, placement })
    }
}

/// When a workload ends at the latest that has been running for `elapsed`: when its limit says, else, if
/// many like it took the same time, when nine of ten of them have ended.
fn expected(
    books: &Books,
    history: &History,
    entry: &Entry,
    known: &Known,
    elapsed: Duration,
) -> Option<Time> {
    let limited = known.limit.is_some_and(|limit| limit > elapsed);
    let length = history.length(books, entry, elapsed).filter(|length| limited || length.tells())?;
    Some(known.started.after(length.late))
}

/// The admission of a workload that runs and is to go on.
pub fn runs(entry: &Entry) -> Option<&Admission> {
    match &entry.phase {
        Phase::Starting(admission) | Phase::Running(admission) | Phase::Resizing { to: admission, .. } => {
            Some(admission)
        }
        _ => None,
    }
}

/// How far to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until everybody has ended.
    Everybody,
    /// Until everybody has ended whose end can be predicted.
    Predicted,
    /// For ends before that time only, and only such as limits set: a promise is not changed for a guess.
    Before(Time),
}

/// One who runs, with when it ends.
type Ending<'a> = (Option<Time>, &'a Entry);

/// The way through those who run, in the order in which they end: those first for whom limits set that.
struct Walk<'a> {
    books: &'a Books,
    candidate: &'a Candidate,
    pool: PoolIx,
    nodes: &'a [NodeIx],
    /// As far as was looked, and what comes then.
    seen: Vec<Ending<'a>>,
    rest: Box<dyn Iterator<Item = Ending<'a>> + 'a>,
}

impl<'a> Walk<'a> {
    fn new(
        timeline: &'a Timeline,
        books: &'a Books,
        (candidate, pool): (&'a Candidate, PoolIx),
        nodes: &'a [NodeIx],
        until: Until,
    ) -> Self {
        let in_time = move |end: Time| !matches!(until, Until::Before(time) if end >= time);
        let limited = timeline.ends.get(&pool).into_iter().flatten();
        let limited = limited.take_while(move |(end, _)| in_time(*end));
        let limited = limited.filter_map(|(end, id)| Some((Some(*end), books.get(id)?)));
        let unsure = std::iter::once_with(move || unsure(timeline, books, (candidate, pool), until));
        let rest = Box::new(limited.chain(unsure.flatten()));
        Self { books, candidate, pool, nodes, seen: Vec::new(), rest }
    }

    /// The first so many; fewer if there are no more.
    fn first(&mut self, count: usize) -> &[Ending<'a>] {
        let missing = count.saturating_sub(self.seen.len());
        self.seen.extend(self.rest.by_ref().take(missing));
        &self.seen[..count.min(self.seen.len())]
    }

    /// How many have to end so that there is room, and where it is then.
    fn fewest(&mut self) -> Option<(usize, Placement)> {
        let enough = self.enough_slots()?;
        if let Some(placement) = self.after(enough) {
            return Some((enough, placement));
        }
        // More room never hurts, so what the slots alone do not show can be searched by halving.
        let (mut low, mut step) = (enough, 1);
        let mut best = loop {
            let high = low + step;
            match self.after(high) {
                Some(placement) => break (high, placement),
                None if self.first(high).len() < high => return None,
                None => (low, step) = (high, step * 2),
            }
        };
        while best.0 - low > 1 {
            let middle = usize::midpoint(low, best.0);
            match self.after(middle) {
                Some(placement) => best = (middle, placement),
                None => low = middle,
            }
        }
        Some(best)
    }

    /// How many have to end so that the nodes have room for as many pods one by one.
    fn enough_slots(&mut self) -> Option<usize> {
        let books = self.books;
        let demand = books.nodes.demand(&self.candidate.need);
        let fits = |node: NodeIx, freed: &Freed| {
            u64::from(placement::fits_on(books, node, &demand, Room::Settled(freed)))
        };
        let wanted = u64::from(self.candidate.pods);
        let mut freed = Freed::new();
        let request = self.candidate.request(self.pool);
        let mut total = placement::capacity(books, &request, Room::Settled(&freed));
        let mut count = 0;
        while total < wanted {
            let (_, entry) = *self.first(count + 1).get(count)?;
            count += 1;
            let there: Vec<NodeIx> =
                entry.charge.nodes.keys().copied().filter(|node| self.usable(*node)).collect();
            let sum = |freed: &Freed| there.iter().map(|node| fits(*node, freed)).sum::<u64>();
            let before = sum(&freed);
            rules::free(&mut freed, entry);
            total = total + sum(&freed) - before;
        }
        Some(count)
    }

    /// Whether a node may hold the candidate's pods.
    fn usable(&self, node: NodeIx) -> bool {
        let entry = self.books.nodes.get(node);
        let admits = |node: &Node| fit::admits(node, &self.candidate.shape);
        entry.pool == self.pool && entry.open() && entry.node.as_ref().is_some_and(admits)
    }

    /// Where there is room once the first `count` have ended.
    fn after(&mut self, count: usize) -> Option<Placement> {
        let mut freed = Freed::new();
        for (_, entry) in self.first(count) {
            rules::free(&mut freed, entry);
        }
        let (candidate, pool) = (self.candidate, self.pool);
        let owed = candidate.owed(self.books, pool);
        let lent = owed || rules::lending_allows(self.books, candidate.team, pool, &candidate.total, &freed);
        if !lent {
            return None;
        }
        placement::place(self.books, self.nodes, &candidate.request(pool), Room::Settled(&freed))
    }
}

/// Those whose end no limit sets, on the emptiest nodes first. Nodes are put in order only as far as asked.
fn unsure<'a>(
    timeline: &'a Timeline,
    books: &'a Books,
    (candidate, pool): (&Candidate, PoolIx),
    until: Until,
) -> impl Iterator<Item = Ending<'a>> + use<'a> {
    let scarcest = rules::scarcest(books, &candidate.need);
    let free =
        |node: NodeIx| scarcest.map_or(0, |resource| books.nodes.get(node).settled().amounts().get(resource));
    let nodes: BTreeSet<NodeIx> = match until {
        Until::Before(_) => BTreeSet::new(),
        Until::Predicted => {
            let guesses = timeline.guesses.get(&pool).into_iter().flatten();
            let entries = guesses.filter_map(|(_, id)| books.get(id));
            entries.flat_map(|entry| entry.charge.nodes.keys().copied()).collect()
        }
        Until::Everybody => books.nodes.indices().collect(),
    };
    let mut emptiest: BinaryHeap<_> = nodes.into_iter().map(|node| (free(node), Reverse(node))).collect();
    let mut seen = BTreeSet::new();
    let in_order = std::iter::from_fn(move || emptiest.pop());
    in_order.flat_map(move |(_, Reverse(node))| {
        let known = |entry: &Entry| timeline.known.get(&entry.workload.id).filter(|known| known.pool == pool);
        let there = books.occupants(node).filter_map(|(entry, _)| {
            let known = known(entry).filter(|known| !known.is_sure())?;
            let counts = known.end.is_some() || until == Until::Everybody;
            (counts && seen.insert(entry.place)).then_some((known.end, entry))
        });
        let mut there: Vec<Ending<'a>> = there.collect();
        there.sort_by_key(|(end, entry)| (end.is_none(), *end, &entry.workload.id));
        there
    })
}
