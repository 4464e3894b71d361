//! The expected ends of running workloads, and so the earliest slot for a waiting workload.
//!
//! The end of a workload is computed once when it starts, and again only when that time has passed. Ends are
//! kept in order, so that the search for a slot visits only as many as it needs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use crate::capacity::fit;
use crate::placement::waiting::{Attempt, WaitingWorkload};
use crate::placement::{self, Capacity, Placement};
use crate::prediction::run_times::RunTimes;
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::lending;
use crate::state::rules;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{NodeId, PoolId};
use crate::types::{Admission, Name, Node, Time, WorkloadId};

/// The timeline's record of a running workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    pool: PoolId,
    started: Time,
    limit: Option<Duration>,
    /// Its latest expected end. `None` when the end cannot be predicted.
    end: Option<Time>,
}

impl Record {
    /// Whether a time limit sets its end, rather than an estimate from other runs.
    fn is_certain(&self) -> bool {
        let limited = |limit: Duration| self.end.is_some_and(|end| end <= self.started.after(limit));
        self.limit.is_some_and(limited)
    }
}

/// Workloads by pool, ordered by a time.
type Ordered = BTreeMap<PoolId, BTreeSet<(Time, WorkloadId)>>;

/// The expected ends of running workloads, by pool.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    known: BTreeMap<WorkloadId, Record>,
    /// Ends that time limits set.
    certain: Ordered,
    /// Ends that are estimated from similar runs.
    estimated: Ordered,
    /// A number that changes with every end.
    revision: u64,
}

/// Capacity that becomes free at some time: a start time and a placement.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The start time. `None` when it cannot be predicted.
    pub at: Option<Time>,
    /// The nodes, with the number of pods on each.
    pub placement: Placement,
}

impl Timeline {
    /// Updates the record of a workload after a change.
    pub fn update(&mut self, state: &ClusterState, run_times: &RunTimes, id: &WorkloadId) {
        let running = state.get(id).and_then(|info| Some((info, running_admission(info)?)));
        let Some((info, admission)) = running else {
            self.forget(id);
            return;
        };
        let (pool, started, limit) = (info.usage.pool, admission.at, rules::time_limit(state, info));
        let same = |known: &Record| (known.pool, known.started, known.limit) == (pool, started, limit);
        if self.known.get(id).is_some_and(same) {
            return;
        }
        let known = Record { pool, started, limit, end: None };
        self.set(id, Record { end: expected(state, run_times, info, &known, Duration::ZERO), ..known });
    }

    /// Predicts the ends of a team's running workloads again, from their starts.
    pub fn predict_again(&mut self, state: &ClusterState, run_times: &RunTimes, team: &Name) {
        let of_team = |id: &WorkloadId| state.get(id).filter(|info| info.workload.team == *team);
        let ids: Vec<WorkloadId> = self.known.keys().filter(|id| of_team(id).is_some()).cloned().collect();
        for id in &ids {
            if let (Some(info), Some(known)) = (of_team(id), self.known.get(id).copied()) {
                self.set(
                    id,
                    Record { end: expected(state, run_times, info, &known, Duration::ZERO), ..known },
                );
            }
        }
    }

    fn set(&mut self, id: &WorkloadId, known: Record) {
        self.forget(id);
        if let Some((index, end)) = self.index(&known) {
            index.entry(known.pool).or_default().insert((end, id.clone()));
        }
        self.known.insert(id.clone(), known);
        self.revision += 1;
    }

    /// The index that lists a workload with an expected end, and that end.
    fn index(&mut self, known: &Record) -> Option<(&mut Ordered, Time)> {
        let index = if known.is_certain() { &mut self.certain } else { &mut self.estimated };
        Some((index, known.end?))
    }

    fn forget(&mut self, id: &WorkloadId) {
        let Some(known) = self.known.remove(id) else { return };
        self.revision += 1;
        let Some((index, end)) = self.index(&known) else { return };
        if let Some(ids) = index.get_mut(&known.pool) {
            ids.remove(&(end, id.clone()));
            if ids.is_empty() {
                index.remove(&known.pool);
            }
        }
    }

    /// Predicts the end again for every workload that was expected to end before `now`.
    pub fn catch_up(&mut self, state: &ClusterState, run_times: &RunTimes, pool: PoolId, now: Time) {
        let overdue = |ends: &Ordered| {
            ends.get(&pool).and_then(BTreeSet::first).filter(|(end, _)| *end < now).map(|(_, id)| id.clone())
        };
        while let Some(id) = overdue(&self.certain).or_else(|| overdue(&self.estimated)) {
            let Some(known) = self.known.get(&id).copied() else { return };
            // Step by step from the start, so that the result does not depend on when it was asked for (law 11).
            let elapsed = known.end.unwrap_or(now).since(known.started);
            let end = state.get(&id).and_then(|info| expected(state, run_times, info, &known, elapsed));
            let end = end.filter(|end| Some(*end) > known.end);
            self.set(&id, Record { end, ..known });
        }
    }

    /// A number that changes with every expected end.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The latest expected end of a running workload. `None` when it cannot be predicted.
    #[must_use]
    pub fn end(&self, id: &WorkloadId) -> Option<Time> {
        self.known.get(id)?.end
    }

    /// What the running workloads of a pool leave that are expected to end by that time.
    #[must_use]
    pub fn freed_until(&self, state: &ClusterState, pool: PoolId, time: Time) -> Freed {
        let mut freed = Freed::new();
        for ends in [&self.certain, &self.estimated] {
            let in_time = ends.get(&pool).into_iter().flatten().take_while(|(end, _)| *end <= time);
            for info in in_time.filter_map(|(_, id)| state.get(id)) {
                rules::free(&mut freed, info);
            }
        }
        freed
    }

    /// Whether a time limit ends a workload of the pool before that time.
    #[must_use]
    pub fn has_certain_end_before(&self, pool: PoolId, time: Time) -> bool {
        self.certain.get(&pool).and_then(BTreeSet::first).is_some_and(|(end, _)| *end < time)
    }

    /// The earliest slot for a waiting workload on these nodes, if running workloads end as expected and no
    /// other workload starts.
    ///
    /// Workloads without a time limit are assumed to end on the emptiest nodes first, where the fewest have to
    /// end. If the end of one of them cannot be predicted, the slot has no start time. `None` when there is no
    /// slot until then.
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

/// The latest expected end of a workload that has been running for `elapsed`: its time limit, or else the ninth
/// decile of runs of the same team, queue and size if these are reliable.
fn expected(
    state: &ClusterState,
    run_times: &RunTimes,
    info: &WorkloadInfo,
    known: &Record,
    elapsed: Duration,
) -> Option<Time> {
    let limited = known.limit.is_some_and(|limit| limit > elapsed);
    let length = run_times.length_of_like(state, info, elapsed);
    let length = length.filter(|length| limited || length.is_reliable())?;
    Some(known.started.after(length.late))
}

/// The admission of a workload that runs and is not being evicted.
pub fn running_admission(info: &WorkloadInfo) -> Option<&Admission> {
    match &info.phase {
        Phase::Starting(admission) | Phase::Running(admission) | Phase::Resizing { to: admission, .. } => {
            Some(admission)
        }
        _ => None,
    }
}

/// How far ahead to search for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until all workloads have ended.
    All,
    /// Until all workloads with a predictable end have ended.
    Predicted,
    /// Only ends before that time that time limits set. A reserved slot is not moved for an estimate.
    Before(Time),
}

/// A running workload with its expected end.
type Ending<'a> = (Option<Time>, &'a WorkloadInfo);

/// An iteration over running workloads in the order of their ends. Ends set by time limits come first.
struct Walk<'a> {
    state: &'a ClusterState,
    waiting: &'a WaitingWorkload,
    pool: PoolId,
    nodes: &'a [NodeId],
    /// The workloads visited so far, and the rest.
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
        let limited = timeline.certain.get(&pool).into_iter().flatten();
        let limited = limited.take_while(move |(end, _)| in_time(*end));
        let limited = limited.filter_map(|(end, id)| Some((Some(*end), state.get(id)?)));
        let uncertain = std::iter::once_with(move || uncertain(timeline, state, (waiting, pool), until));
        let rest = Box::new(limited.chain(uncertain.flatten()));
        Self { state, waiting, pool, nodes, seen: Vec::new(), rest }
    }

    /// The first `count` workloads, or all if there are fewer.
    fn first(&mut self, count: usize) -> &[Ending<'a>] {
        let missing = count.saturating_sub(self.seen.len());
        self.seen.extend(self.rest.by_ref().take(missing));
        &self.seen[..count.min(self.seen.len())]
    }

    /// The smallest number of workloads that have to end before the pods fit, and the placement then.
    fn fewest(&mut self) -> Option<(usize, Placement)> {
        let enough = self.enough_headroom()?;
        if let Some(placement) = self.after(enough) {
            return Some((enough, placement));
        }
        // More free capacity never hurts, so where the headroom alone does not decide, bisection finds the number.
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

    /// The number of workloads that have to end before the headroom suffices, topology aside.
    fn enough_headroom(&mut self) -> Option<usize> {
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

    /// Whether a node may hold the workload's pods.
    fn usable(&self, node: NodeId) -> bool {
        let info = self.state.nodes.get(node);
        let admits = |node: &Node| fit::admits(node, &self.waiting.shape);
        info.pool == self.pool && info.open() && info.node.as_ref().is_some_and(admits)
    }

    /// The placement once the first `count` workloads have ended.
    fn after(&mut self, count: usize) -> Option<Placement> {
        let mut freed = Freed::new();
        for (_, info) in self.first(count) {
            rules::free(&mut freed, info);
        }
        let (waiting, pool) = (self.waiting, self.pool);
        let within_guarantee = waiting.within_guarantee(self.state, pool);
        let lent = within_guarantee || lending::will_allow(self.state, waiting.loan(pool), &freed, None);
        if !lent {
            return None;
        }
        placement::place(self.state, self.nodes, &waiting.request(pool), Capacity::Settled(&freed))
    }
}

/// Workloads without a certain end, on the emptiest nodes first. Nodes are ordered only as far as asked.
fn uncertain<'a>(
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
            let estimated = timeline.estimated.get(&pool).into_iter().flatten();
            let workloads = estimated.filter_map(|(_, id)| state.get(id));
            workloads.flat_map(|info| info.usage.nodes.keys().copied()).collect()
        }
        Until::All => state.nodes.indices().collect(),
    };
    let mut emptiest: BinaryHeap<_> = nodes.into_iter().map(|node| (free(node), Reverse(node))).collect();
    let mut seen = BTreeSet::new();
    let in_order = std::iter::from_fn(move || emptiest.pop());
    in_order.flat_map(move |(_, Reverse(node))| {
        let known =
            |info: &WorkloadInfo| timeline.known.get(&info.workload.id).filter(|known| known.pool == pool);
        let there = state.occupants(node).filter_map(|(info, _)| {
            let known = known(info).filter(|known| !known.is_certain())?;
            let counts = known.end.is_some() || until == Until::All;
            (counts && seen.insert(info.index)).then_some((known.end, info))
        });
        let mut there: Vec<Ending<'a>> = there.collect();
        there.sort_by_key(|(end, info)| (end.is_none(), *end, &info.workload.id));
        there
    })
}
