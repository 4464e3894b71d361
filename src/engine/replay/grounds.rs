//! What an expected start rests on: how the end of every run in its way is known, or which end is not.
//!
//! A play notes at each end what that end rests on, for the nodes, the root team and the pool of the run. A start rests
//! on the ends on its nodes; where none was needed there, on the ends below its root team, where it waited for quota; and
//! else on those in its pool. An end rests also on what the start of that run rested on.

use std::collections::{BTreeMap, BTreeSet};

use crate::capacity::fit;
use crate::engine::Engine;
use crate::prediction::class;
use crate::prediction::run_times::{FEWEST, Length};
use crate::prediction::timeline::running_admission;
use crate::state::cluster::ClusterState;
use crate::state::rules;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::TeamId;
use crate::types::{Admission, DEFAULT_POOL, Likeness, Name, Reason, Time, Workload, WorkloadId};

/// The most runs without a foreseeable end that are looked at for one waiting workload.
const MOST_LOOKED_AT: usize = 16;

/// What an expected start rests on, the surest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// No run has to end.
    #[default]
    AtOnce,
    /// A budget that is full again at the start of its next period.
    Refill,
    /// Pods that end within their grace period.
    EndingPods,
    /// Every run in the way has a time limit.
    TimeLimits,
    /// Not every run in the way has a time limit, but at least so many runs like each have ended.
    History {
        /// The fewest such runs.
        runs: usize,
        /// What they have in common with it, at least.
        like: Likeness,
    },
}

impl Basis {
    /// What the end of a run of that length rests on.
    #[must_use]
    pub fn of(length: Length) -> Self {
        if length.limited { Self::TimeLimits } else { Self::History { runs: length.runs, like: length.like } }
    }

    /// What a start rests on that needs both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::History { runs, like }, Self::History { runs: others, like: theirs }) => {
                Self::History { runs: runs.min(others), like: like.max(theirs) }
            }
            _ => self.max(other),
        }
    }

    /// The machine-readable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::AtOnce => "AtOnce",
            Self::Refill => "BudgetRefill",
            Self::EndingPods => "EndingPods",
            Self::TimeLimits => "TimeLimits",
            Self::History { .. } => "History",
        }
    }

    /// One sentence.
    #[must_use]
    pub fn sentence(self) -> String {
        match self {
            Self::AtOnce => "No run has to end for it.".to_owned(),
            Self::Refill => "Rests on the day on which a budget is full again.".to_owned(),
            Self::EndingPods => "Rests on the grace period of pods that end for it.".to_owned(),
            Self::TimeLimits => "Rests on the time limits of the runs in its way.".to_owned(),
            Self::History { runs, like } => format!(
                "Rests on how long runs took that are like those in its way, of the same {}, where these have no time \
                 limit: at least {runs} of each; one run in ten takes longer.",
                in_common(like)
            ),
        }
    }
}

/// What the expected length of a workload's run rests on, in one sentence.
#[must_use]
pub fn of_run(workload: &Workload, length: Length, started: bool) -> String {
    let Length { runs, limited, like, .. } = length;
    if runs == 0 {
        return "Rests on its time limit.".to_owned();
    }
    let user = workload.user.as_deref().unwrap_or_default();
    let class = match like {
        Likeness::Name => {
            format!("of user {user} named {}, of the same queue and size", class::pattern(&workload.name))
        }
        Likeness::User => format!("of user {user} of the same queue and size"),
        Likeness::Size => format!("of the same {}", in_common(like)),
    };
    let longer = if started { " that took longer than it has so far" } else { "" };
    let limit = if limited { ", and on its time limit" } else { "" };
    format!("Rests on the last {runs} runs {class}{longer}{limit}.")
}

/// The properties that runs share.
fn in_common(like: Likeness) -> &'static str {
    match like {
        Likeness::Name => "team, queue, size, user and name, numbers aside",
        Likeness::User => "team, queue, size and user",
        Likeness::Size => "team, queue and size",
    }
}

/// The sentence on a workload of a paused queue.
pub const QUEUE_PAUSED: &str = "No estimate: nothing of a paused queue starts.";

/// Why no start can be expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unbounded {
    /// The end of a run in its way is not known.
    Run(WorkloadId),
    /// No end that is known lets it start.
    NothingEnds,
    /// Its queue is paused, and no end opens it.
    QueuePaused,
    /// The forecast was cut short by its bounds.
    Cut,
}

impl Unbounded {
    /// The machine-readable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Run(_) => "UnknownEnd",
            Self::NothingEnds => "NothingEnds",
            Self::QueuePaused => "QueuePaused",
            Self::Cut => "TooFarAhead",
        }
    }

    /// One sentence.
    #[must_use]
    pub fn sentence(&self, engine: &Engine) -> String {
        match self {
            Self::Run(id) => {
                let run = engine.workload(id);
                let run = run.map_or_else(|| id.to_string(), |run| format!("{}/{}", run.namespace, run.name));
                format!(
                    "No estimate: the run of {run} in its way has no time limit or is past it, and fewer than \
                     {FEWEST} runs of the same team, queue and size have taken longer than it has so far."
                )
            }
            Self::NothingEnds => {
                "No estimate: no end that is known lets it start; it waits for a change of the cluster, of a quota \
                 or of its request."
                    .to_owned()
            }
            Self::QueuePaused => QUEUE_PAUSED.to_owned(),
            Self::Cut => "No estimate: it starts, if at all, farther ahead than a forecast looks.".to_owned(),
        }
    }
}

/// What the expected start of a workload rests on, or why it has none.
pub type Grounds = Result<Basis, Unbounded>;

/// A workload of a play.
#[derive(Clone, Debug)]
struct Source {
    /// What its end rests on; `None` when it is not known.
    end: Option<Basis>,
    /// What its start rests on.
    start: Basis,
    root: Option<TeamId>,
    pool: Name,
    nodes: Vec<Name>,
    /// Whether it waits for quota rather than for nodes.
    lacks_quota: bool,
    /// Whether it waits for a budget.
    lacks_budget: bool,
}

impl Source {
    fn new(engine: &Engine, info: &WorkloadInfo, length: Option<Length>) -> Self {
        let pending = &engine.scheduler.queue.pending;
        let refusal = pending.class_of(&info.workload.id).and_then(|class| pending.refusal(class));
        let admission = info.phase.admission();
        Self {
            end: length.map(Basis::of),
            start: Basis::AtOnce,
            root: root(&engine.scheduler.state, info),
            pool: admission.map_or_else(|| first_pool(info), |admission| admission.pool.clone()),
            nodes: admission.map(|admission| admission.nodes.keys().cloned().collect()).unwrap_or_default(),
            lacks_quota: refusal.is_some_and(|(verdict, _)| lacks_quota(verdict.reason)),
            lacks_budget: refusal.is_some_and(|(verdict, _)| verdict.reason == Reason::BudgetSpent),
        }
    }
}

/// Notes during a play what ends and starts rest on.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    sources: BTreeMap<WorkloadId, Source>,
    nodes: BTreeMap<Name, Basis>,
    roots: BTreeMap<Option<TeamId>, Basis>,
    pools: BTreeMap<Name, Basis>,
}

impl Ledger {
    /// The notes at the beginning of a play of these workloads, each with the length of its run.
    pub fn new(engine: &Engine, runs: &[(&WorkloadInfo, Option<Length>)]) -> Self {
        let source = |(info, length): &(&WorkloadInfo, Option<Length>)| {
            (info.workload.id.clone(), Source::new(engine, info, *length))
        };
        Self { sources: runs.iter().map(source).collect(), ..Self::default() }
    }

    /// Notes why a workload waits that was not considered when it was taken in.
    pub fn refused(&mut self, id: &WorkloadId, reason: Reason) {
        if let Some(source) = self.sources.get_mut(id) {
            source.lacks_quota = lacks_quota(reason);
            source.lacks_budget = reason == Reason::BudgetSpent;
        }
    }

    /// Notes a start, and returns what it rests on; `waited` when it did not start at the beginning of the play, `refilled` when a
    /// budget was full again at that instant.
    pub fn start(&mut self, id: &WorkloadId, admission: &Admission, waited: bool, refilled: bool) -> Basis {
        let Some(source) = self.sources.get_mut(id) else { return Basis::AtOnce };
        let root = self.roots.get(&source.root).copied().unwrap_or_default();
        let there = admission.nodes.keys().filter_map(|node| self.nodes.get(node).copied());
        let there = there.fold(Basis::AtOnce, Basis::and);
        let among = if source.lacks_quota { there.and(root) } else { there };
        let all = || self.pools.get(&admission.pool).copied().unwrap_or_default();
        let basis = match among {
            _ if !waited => Basis::AtOnce,
            Basis::AtOnce if root == Basis::AtOnce => all(),
            Basis::AtOnce => root,
            found => found,
        };
        let basis = if waited && refilled && source.lacks_budget { Basis::Refill } else { basis };
        source.start = basis;
        (source.pool, source.nodes) =
            (admission.pool.clone(), admission.nodes.keys().cloned().collect::<Vec<_>>());
        basis
    }

    /// Notes that a run has ended by itself or by a limit.
    pub fn end(&mut self, id: &WorkloadId) {
        let end = self.sources.get(id).map(|source| source.end.unwrap_or_default().and(source.start));
        self.note(id, end.unwrap_or_default());
    }

    /// Notes that the pods of an evicted or shrunk run are gone.
    pub fn gone(&mut self, id: &WorkloadId) {
        let start = self.sources.get(id).map(|source| source.start).unwrap_or_default();
        self.note(id, start.and(Basis::EndingPods));
    }

    fn note(&mut self, id: &WorkloadId, basis: Basis) {
        let Self { sources, nodes, roots, pools } = self;
        let Some(source) = sources.get(id) else { return };
        for node in &source.nodes {
            let known = nodes.entry(node.clone()).or_default();
            *known = known.and(basis);
        }
        let root = roots.entry(source.root).or_default();
        *root = root.and(basis);
        let pool = pools.entry(source.pool.clone()).or_default();
        *pool = pool.and(basis);
    }

    /// The runs at the end of a play that have no known end, the oldest first.
    pub fn endless(&self, played: &Engine) -> Endless {
        let state = &played.scheduler.state;
        let unknown = |info: &&WorkloadInfo| {
            self.sources.get(&info.workload.id).is_some_and(|source| source.end.is_none())
        };
        let mut runs: Vec<(Time, WorkloadId)> = state
            .iter()
            .filter(|info| !info.removed)
            .filter(unknown)
            .filter_map(|info| Some((running_admission(info)?.at, info.workload.id.clone())))
            .collect();
        runs.sort_unstable();
        let lacking = self.sources.iter().filter(|(_, source)| source.lacks_quota);
        Endless {
            runs: runs.into_iter().map(|(_, id)| id).collect(),
            lacking: lacking.map(|(id, _)| id.clone()).collect(),
        }
    }
}

/// The runs without a known end.
#[derive(Debug, Default)]
pub struct Endless {
    runs: Vec<WorkloadId>,
    /// The workloads that wait for quota rather than for nodes.
    lacking: BTreeSet<WorkloadId>,
}

impl Endless {
    /// Why a workload has no expected start that was still waiting at the end of the play.
    #[must_use]
    pub fn in_the_way(&self, played: &Engine, waiting: &WorkloadId) -> Unbounded {
        let state = &played.scheduler.state;
        let Some(info) = state.get(waiting) else { return Unbounded::NothingEnds };
        let found = self.runs.iter().filter(|id| *id != waiting).take(MOST_LOOKED_AT).find(|id| {
            let lacks_quota = self.lacking.contains(waiting);
            state.get(id).is_some_and(|run| stands_in_the_way(state, info, run, lacks_quota))
        });
        found.map_or(Unbounded::NothingEnds, |id| Unbounded::Run(id.clone()))
    }
}

/// Whether a run holds what a waiting workload lacks: quota of its root team, or a node that may hold its pods.
fn stands_in_the_way(
    state: &ClusterState,
    waiting: &WorkloadInfo,
    run: &WorkloadInfo,
    lacks_quota: bool,
) -> bool {
    let wanted = rules::scarcest(state, &waiting.need);
    if wanted.is_none_or(|resource| run.need.get(resource) <= 0) {
        return false;
    }
    if lacks_quota {
        return root(state, waiting) == root(state, run);
    }
    let pools = &waiting.workload.pools;
    let in_pool = run.phase.admission().is_some_and(|admission| match pools.is_empty() {
        true => *admission.pool == *DEFAULT_POOL,
        false => pools.contains(&admission.pool),
    });
    let mut nodes = run.usage.nodes.keys();
    in_pool
        && nodes.any(|node| {
            let there = state.nodes.get(*node);
            let mut needs = waiting.need.nonzero();
            needs.all(|(resource, need)| there.allocatable.get(resource) >= need)
                && there.node.as_ref().is_some_and(|node| fit::admits(node, &waiting.shape))
        })
}

/// Whether a workload with this reason waits for quota.
fn lacks_quota(reason: Reason) -> bool {
    use Reason::{BudgetSpent, NotPreemptibleOverGuarantee, QueueLimit, TeamLimit};
    matches!(reason, TeamLimit | QueueLimit | NotPreemptibleOverGuarantee | BudgetSpent)
}

/// The uppermost team on the path of a workload's team.
fn root(state: &ClusterState, info: &WorkloadInfo) -> Option<TeamId> {
    state.quotas.team(info.team).path.last().copied()
}

/// The pool that a workload asks for first.
fn first_pool(info: &WorkloadInfo) -> Name {
    info.workload.pools.first().cloned().unwrap_or_else(|| DEFAULT_POOL.into())
}
