//! When those who run are expected to end, and so when and where there will be room for somebody.
//!
//! Everybody's end is worked out once, when it starts, and again only when that time has passed.
//! Ends are kept in order, so that looking for room walks through as many as it needs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use crate::capacity::fit;
use crate::placement::waiting::{Attempt, WaitingWorkload};
use crate::placement::{self, Capacity, Placement};
use crate::prediction::run_times::{self, RunTimes};
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::rules;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{NodeId, PoolId};
use crate::types::{Admission, Node, Time, WorkloadId};

/// A workload that runs, as the timeline knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    pool: PoolId,
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
type Ordered = BTreeMap<PoolId, BTreeSet<(Time, WorkloadId)>>;

/// Expected ends, by pool.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    known: BTreeMap<WorkloadId, Known>,
    /// Those whose limits say when they have ended.
    ends: Ordered,
    /// Those of whom it is to be expected by how long others like them ran.
    guesses: Ordered,
}

/// Capacity that will be there.
#[derive(Clone, Debug)]
pub struct Slot {
    /// When; `None` when that cannot be predicted.
    pub at: Option<Time>,
    /// Where.
    pub placement: Placement,
}

impl Timeline {
    /// Takes note of whether a workload runs, and if so until when.
    pub fn note(&mut self, state: &ClusterState, run_times: &RunTimes, id: &WorkloadId) {
        let runs = state.get(id).and_then(|info| Some((info, runs(info)?)));
        let Some((info, admission)) = runs else {
            self.forget(id);
            return;
        };
        let (pool, started, limit) = (info.usage.pool, admission.at, run_times::limit(state, info));
        let same = |known: &Known| (known.pool, known.started, known.limit) == (pool, started, limit);
        if self.known.get(id).is_some_and(same) {
            return;
        }
        let known = Known { pool, started, limit, end: None };
        self.set(id, Known { end: expected(state, run_times, info, &known, Duration::ZERO), ..known });
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
    pub fn catch_up(&mut self, state: &ClusterState, run_times: &RunTimes, pool: PoolId, now: Time) {
        let late = |ends: &Ordered| {
            ends.get(&pool).and_then(BTreeSet::first).filter(|(end, _)| *end < now).map(|(_, id)| id.clone())
        };
        while let Some(id) = late(&self.ends).or_else(|| late(&self.guesses)) {
            let Some(known) = self.known.get(&id).copied() else { return };
            let elapsed = now.since(known.started);
            let end = state.get(&id).and_then(|info| expected(state, run_times, info, &known, elapsed));
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
    pub fn is_sure_before(&self, pool: PoolId, time: Time) -> bool {
        self.ends.get(&pool).and_then(BTreeSet::first).is_some_and(|(end, _)| *end < time)
    }

    /// The earliest room for a candidate on these nodes, if those who run end as expected and nobody
    /// else starts. Of those whose end no limit sets, who are on the emptiest nodes are taken to end first,
    /// for that is where the fewest have to; if one of them cannot be predicted, the time is open. `None`
    /// when there is no such room until then.
    #[must_use]
    pub fn slot(&self, state: &ClusterState, attempt: Attempt<'_>, until: Until) -> Option<Slot> {
        let Attempt { waiting, pool, nodes, now } = attempt;
        let mut walk = Walk::new(self, state, (waiting, pool), nodes, until);
        let (count, placement) = walk.fewest()?;
        let ends: Option<Vec<Time>> = walk.first(count).iter().map(|(end, _)| *end).collect();
        let at = ends.map(|ends| ends.into_iter().max().map_or(now, |end| end.max(now)));
        Some(Slot { at, placement })
    }
}

/// When a workload ends at the latest that has been running for `elapsed`: when its limit says, else, if
/// many like it took the same time, when nine of ten of them have ended.
fn expected(
    state: &ClusterState,
    run_times: &RunTimes,
    info: &WorkloadInfo,
    known: &Known,
    elapsed: Duration,
) -> Option<Time> {
    let limited = known.limit.is_some_and(|limit| limit > elapsed);
    let length = run_times.length(state, info, elapsed).filter(|length| limited || length.tells())?;
    Some(known.started.after(length.late))
}

/// The admission of a workload that runs and is to go on.
pub fn runs(info: &WorkloadInfo) -> Option<&Admission> {
    match &info.phase {
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
type Ending<'a> = (Option<Time>, &'a WorkloadInfo);

/// The way through those who run, in the order in which they end: those first for whom limits set that.
struct Walk<'a> {
    state: &'a ClusterState,
    waiting: &'a WaitingWorkload,
    pool: PoolId,
    nodes: &'a [NodeId],
    /// As far as was looked, and what comes then.
    seen: Vec<Ending<'a>>,
    rest: Box<dyn Iterator<Item = Ending<'a>> + 'a>,
}

impl<'a> Walk<'a> {
    fn new(
        timeline: &'a Timeline,
        state: &'a ClusterState,
        (waiting, pool): (&'a WaitingWorkload, PoolId),
        nodes: &'a [NodeId],
        until: Until,
    ) -> Self {
        let in_time = move |end: Time| !matches!(until, Until::Before(time) if end >= time);
        let limited = timeline.ends.get(&pool).into_iter().flatten();
        let limited = limited.take_while(move |(end, _)| in_time(*end));
        let limited = limited.filter_map(|(end, id)| Some((Some(*end), state.get(id)?)));
        let unsure = std::iter::once_with(move || unsure(timeline, state, (waiting, pool), until));
        let rest = Box::new(limited.chain(unsure.flatten()));
        Self { state, waiting, pool, nodes, seen: Vec::new(), rest }
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
        let state = self.state;
        let demand = state.nodes.demand(&self.waiting.need);
        let fits = |node: NodeId, freed: &Freed| {
            u64::from(placement::fits_on(state, node, &demand, Capacity::Settled(freed)))
        };
        let wanted = u64::from(self.waiting.pods);
        let mut freed = Freed::new();
        let request = self.waiting.request(self.pool);
        let mut total = placement::capacity(state, &request, Capacity::Settled(&freed));
        let mut count = 0;
        while total < wanted {
            let (_, info) = *self.first(count + 1).get(count)?;
            count += 1;
            let there: Vec<NodeId> =
                info.usage.nodes.keys().copied().filter(|node| self.usable(*node)).collect();
            let sum = |freed: &Freed| there.iter().map(|node| fits(*node, freed)).sum::<u64>();
            let before = sum(&freed);
            rules::free(&mut freed, info);
            total = total + sum(&freed) - before;
        }
        Some(count)
    }

    /// Whether a node may hold the candidate's pods.
    fn usable(&self, node: NodeId) -> bool {
        let info = self.state.nodes.get(node);
        let admits = |node: &Node| fit::admits(node, &self.waiting.shape);
        info.pool == self.pool && info.open() && info.node.as_ref().is_some_and(admits)
    }

    /// Where there is room once the first `count` have ended.
    fn after(&mut self, count: usize) -> Option<Placement> {
        let mut freed = Freed::new();
        for (_, info) in self.first(count) {
            rules::free(&mut freed, info);
        }
        let (waiting, pool) = (self.waiting, self.pool);
        let within_guarantee = waiting.within_guarantee(self.state, pool);
        let lent =
            within_guarantee || rules::lending_allows(self.state, waiting.team, pool, &waiting.total, &freed);
        if !lent {
            return None;
        }
        placement::place(self.state, self.nodes, &waiting.request(pool), Capacity::Settled(&freed))
    }
}

/// Those whose end no limit sets, on the emptiest nodes first. Nodes are put in order only as far as asked.
fn unsure<'a>(
    timeline: &'a Timeline,
    state: &'a ClusterState,
    (waiting, pool): (&WaitingWorkload, PoolId),
    until: Until,
) -> impl Iterator<Item = Ending<'a>> + use<'a> {
    let scarcest = rules::scarcest(state, &waiting.need);
    let free =
        |node: NodeId| scarcest.map_or(0, |resource| state.nodes.get(node).settled().amounts().get(resource));
    let nodes: BTreeSet<NodeId> = match until {
        Until::Before(_) => BTreeSet::new(),
        Until::Predicted => {
            let guesses = timeline.guesses.get(&pool).into_iter().flatten();
            let entries = guesses.filter_map(|(_, id)| state.get(id));
            entries.flat_map(|info| info.usage.nodes.keys().copied()).collect()
        }
        Until::Everybody => state.nodes.indices().collect(),
    };
    let mut emptiest: BinaryHeap<_> = nodes.into_iter().map(|node| (free(node), Reverse(node))).collect();
    let mut seen = BTreeSet::new();
    let in_order = std::iter::from_fn(move || emptiest.pop());
    in_order.flat_map(move |(_, Reverse(node))| {
        let known =
            |info: &WorkloadInfo| timeline.known.get(&info.workload.id).filter(|known| known.pool == pool);
        let there = state.occupants(node).filter_map(|(info, _)| {
            let known = known(info).filter(|known| !known.is_sure())?;
            let counts = known.end.is_some() || until == Until::Everybody;
            (counts && seen.insert(info.index)).then_some((known.end, info))
        });
        let mut there: Vec<Ending<'a>> = there.collect();
        there.sort_by_key(|(end, info)| (end.is_none(), *end, &info.workload.id));
        there
    })
}
