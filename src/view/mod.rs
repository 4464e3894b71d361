//! Rows of the answers to Questions, which the command line prints.

mod accelerators;
pub mod accounts;
mod amounts;
pub mod answers;
mod count;
mod eta;
mod sentences;
mod teams;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::record::timestamp;
use crate::engine::Engine;
use crate::engine::replay::forecast::{self, ExpectedRun, RunEnd};
use crate::engine::replay::grounds::Unbounded;
use crate::engine::types::amount::Amount;
use crate::engine::types::{
    Admission, Name, NodeView, Observed, Reason, ReservationView, State, Time, Verdict, Workload, WorkloadId,
};

pub use accelerators::{Accelerators, PoolAccelerators, is_gpu};
pub use amounts::{Amounts, amounts};
pub use count::Count;
pub use eta::{EtaRow, PlaceRow};
pub use sentences::{Clock, counted, utc, warning};
pub use teams::{BudgetRow, QueueRow, TeamRow, Teams, TeamsRow, UnadmittedRow};

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// The node.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// Whether it takes new pods.
    pub schedulable: bool,
    /// Whether it takes none because it is not Ready; else a node that takes none is cordoned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_ready: bool,
    /// Its allocatable resources.
    pub allocatable: Amounts,
    /// Its free resources.
    pub free: Amounts,
    /// Number of GPUs (see [`Accelerators`]).
    pub gpus: u32,
    /// Number of free GPUs.
    pub gpus_free: u32,
    /// The same numbers as they are, where parts of GPUs are used or offered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_parts: Option<GpuParts>,
    /// Its workloads.
    pub workloads: Vec<NodeWorkload>,
    /// The waiting workloads that have a reservation on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reserved: Vec<NodeWorkload>,
}

/// The GPUs of a node in numbers that need not be whole.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GpuParts {
    /// All of them.
    pub all: Count,
    /// What is free of them.
    pub free: Count,
}

/// A workload on a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeWorkload {
    /// The workload, `namespace/name`; absent for the sum of a team's workloads that the caller does not see by name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workload: String,
    /// Its team.
    pub team: String,
    /// Number of its pods on the node.
    pub pods: u32,
    /// The GPUs of these pods, parts of one as fractions.
    #[serde(default)]
    pub gpus: f64,
    /// Whether it borrowed when it was admitted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub borrowed: bool,
    /// The expected end of a run of the usual length, or the expected start of a reservation's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What rows of nodes say besides the node itself.
#[derive(Debug)]
pub struct NodeContext<'a> {
    engine: &'a Engine,
    accelerators: PoolAccelerators,
    /// The owners of reservations by node, so that no node looks through all reservations.
    reserved: BTreeMap<Name, Vec<NodeWorkload>>,
    now: Time,
}

impl<'a> NodeContext<'a> {
    /// The context at `now`.
    #[must_use]
    pub fn new(engine: &'a Engine, accelerators: PoolAccelerators, now: Time) -> Self {
        let mut context = Self { engine, accelerators, reserved: BTreeMap::new(), now };
        for ReservationView { owner, nodes, start, .. } in engine.reservations() {
            for (node, pods) in nodes {
                let until = start.map(second);
                let owner = NodeWorkload { until, borrowed: false, ..context.workload(&owner, pods) };
                context.reserved.entry(node).or_default().push(owner);
            }
        }
        context
    }

    /// This many pods of a workload on a node.
    fn workload(&self, id: &WorkloadId, pods: u32) -> NodeWorkload {
        let Some(known) = self.engine.workload(id) else {
            return NodeWorkload { workload: id.to_string(), pods, ..NodeWorkload::default() };
        };
        // A pod that was never admitted is charged to its team, but is no workload that could be named.
        let label = match id.unadmitted_pod() {
            Some(_) => id.to_string(),
            None => format!("{}/{}", known.namespace, known.name),
        };
        let borrowed = admission_of(known).is_some_and(|admission| admission.borrowed);
        let end = forecast::expected_end(self.engine, id, self.now);
        NodeWorkload {
            workload: label,
            team: known.team.to_string(),
            pods,
            gpus: self.accelerators.of_workload(known).count(known.requests()) * f64::from(pods),
            borrowed,
            until: end.map(|end| second(end.likely)),
        }
    }
}

impl NodeRow {
    /// Whether it takes new pods, or why not, in the words of `kubectl get nodes` where it is not Ready.
    #[must_use]
    pub fn state(&self) -> &'static str {
        match (self.schedulable, self.not_ready) {
            (true, _) => "ready",
            (false, true) => "NotReady",
            (false, false) => "unschedulable",
        }
    }

    /// The row of a node.
    #[must_use]
    pub fn new(view: &NodeView, context: &NodeContext<'_>) -> Self {
        let accelerators = context.accelerators.in_pool(&view.pool);
        let [all, free] = [&view.allocatable, &view.free].map(|list| accelerators.amount(list));
        let (gpus, gpus_free) = blocks(all, free);
        let is_whole = |amount: Amount| amount.as_milli() % 1_000 == 0;
        let parts = GpuParts { all: all.into(), free: free.into() };
        Self {
            name: view.name.to_string(),
            pool: view.pool.to_string(),
            schedulable: view.schedulable,
            not_ready: view.not_ready,
            allocatable: amounts(&view.allocatable),
            free: amounts(&view.free),
            gpus,
            gpus_free,
            gpu_parts: (!is_whole(all) || !is_whole(free)).then_some(parts),
            workloads: view.workloads.iter().map(|(id, pods)| context.workload(id, *pods)).collect(),
            reserved: context.reserved.get(&view.name).cloned().unwrap_or_default(),
        }
    }
}

/// Identity and verdict of a workload, the first fields of [`WorkloadRow`] and [`WhatIfRow`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadHead {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its team.
    pub team: String,
    /// Its queue.
    pub queue: String,
    /// `Held`, `Pending`, `Running`, `Evicting` or `Finished`.
    pub state: String,
    /// The reason code.
    pub reason: String,
    /// One sentence with the numbers and the workloads involved.
    pub message: String,
    /// Whether it can never start as nodes, quotas and queues are, so that it has no expected start and no place in the queue.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never_starts: bool,
}

impl WorkloadHead {
    /// Identity and verdict of a workload in the queue of this name; without a verdict it has not been considered yet.
    pub fn new(workload: &Workload, queue: &str, verdict: Option<Verdict>) -> Self {
        let not_considered = || Verdict {
            state: State::Pending,
            reason: Reason::NotYetConsidered,
            message: String::new(),
            never: false,
        };
        let verdict = verdict.unwrap_or_else(not_considered);
        Self {
            namespace: workload.namespace.to_string(),
            name: workload.name.to_string(),
            team: workload.team.to_string(),
            queue: queue.to_owned(),
            state: format!("{:?}", verdict.state),
            reason: verdict.reason.code().to_owned(),
            message: verdict.message,
            never_starts: verdict.never,
        }
    }
}

/// An expected time, in whole seconds: it is no more exact than that.
fn second(time: Time) -> Timestamp {
    Timestamp::from_second(timestamp(time).as_second()).unwrap_or_default()
}

/// The admission of a workload that runs or leaves.
fn admission_of(workload: &Workload) -> Option<&Admission> {
    match &workload.state {
        Observed::Admitted(admission) | Observed::Leaving { admission, .. } => Some(admission),
        _ => None,
    }
}

/// Pods by node of an admission; none without an admission.
fn nodes_of(admission: Option<&Admission>) -> BTreeMap<String, u32> {
    let nodes = admission.into_iter().flat_map(|admission| &admission.nodes);
    nodes.map(|(node, pods)| (node.to_string(), *pods)).collect()
}

/// A workload with its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRow {
    /// `Job`, `Pod`, `PodGroup` or a custom kind.
    pub kind: String,
    /// Identity and verdict.
    #[serde(flatten)]
    pub head: WorkloadHead,
    /// The UID of its object, where one workload is asked for by name. A group of pods has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The user that submitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The value of its PriorityClass.
    pub priority: i32,
    /// The priority of its queue, which orders the workloads of a team before their PriorityClass does.
    #[serde(default)]
    pub queue_priority: i32,
    /// Whether it may be preempted while it runs.
    #[serde(default)]
    pub preemptible: bool,
    /// The GPUs of the pods that it was granted, or while it waits of all that it asks for.
    #[serde(default)]
    pub gpus: Count,
    /// Number of pods it asks for.
    pub pods: u32,
    /// Requests of each pod.
    pub requests: Amounts,
    /// Pods by node.
    pub nodes: BTreeMap<String, u32>,
    /// The pool it runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Whether it borrowed when it was admitted. What its team borrows now is said of the team.
    pub borrowed: bool,
    /// Submission time.
    pub submitted: Timestamp,
    /// Admission time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted: Option<Timestamp>,
    /// Whether it runs outside all quotas: it asks for nothing that they list.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside_quotas: bool,
    /// Whether none of its pods exists although it was admitted a while ago; the message says how to find out why.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_pods: bool,
    /// The expected start of a waiting workload and its place in the queue, if the last forecast covers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<Arc<EtaRow>>,
    /// The run that is expected, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunRow>,
}

/// What is expected of a run: of one that goes on its end, of one to come its nodes too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunRow {
    /// The end, if it has the usual length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likely_end: Option<Timestamp>,
    /// The end, if it is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_end: Option<Timestamp>,
    /// Whether a time limit ends it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub limited: bool,
    /// What the end rests on, in one sentence: how many runs, and what they have in common with this one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub basis: String,
    /// Pods by node of a run to come; empty where they are on more than 64 nodes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, u32>,
}

/// The most nodes of a run to come that an answer lists: 1,000 workloads have one.
const MOST_NODES: usize = 64;

impl RunRow {
    /// The run of a waiting workload.
    #[must_use]
    pub fn to_come(run: &ExpectedRun) -> Self {
        let nodes = nodes_of(Some(&run.admission).filter(|admission| admission.nodes.len() <= MOST_NODES));
        Self { likely_end: run.end.map(second), nodes, basis: run.sentence.clone(), ..Self::default() }
    }

    fn going_on(end: RunEnd) -> Self {
        let RunEnd { likely, latest, limited, sentence: basis, .. } = end;
        let [likely_end, latest_end] = [likely, latest].map(|end| Some(second(end)));
        Self { likely_end, latest_end, limited, basis, ..Self::default() }
    }
}

/// The what-if result of a Job: its state if it were submitted now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfRow {
    /// Identity and verdict; the state is `Running` if it would start at once.
    #[serde(flatten)]
    pub head: WorkloadHead,
    /// The expected start.
    pub eta: EtaRow,
    /// The pool it would run in, with runs of the usual length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Pods by node, with runs of the usual length.
    pub nodes: BTreeMap<String, u32>,
    /// Whether it would borrow.
    pub borrowed: bool,
    /// Whether it would run outside all quotas: it asks for nothing that they list.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outside_quotas: bool,
    /// The workloads it would evict or shrink.
    pub displaced: Vec<String>,
    /// What would become of each of these.
    #[serde(default)]
    pub victims: Vec<VictimRow>,
}

/// A workload that would be evicted or shrunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VictimRow {
    /// `namespace/name`.
    pub workload: String,
    /// `Evicted` or `Shrunk`.
    pub fate: String,
    /// The number of pods it would lose.
    pub pods: u32,
    /// The GPUs it would lose.
    pub gpus: Count,
    /// Seconds of work that each of these pods would lose, on average.
    pub lost_seconds: u64,
    /// When it would start again, with runs of the usual length; absent if that is not known, or it is shrunk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub back: Option<Timestamp>,
}

impl VictimRow {
    fn new(engine: &Engine, id: &WorkloadId, fate: &forecast::Fate, accelerators: &PoolAccelerators) -> Self {
        let each = engine.workload(id);
        let each = each.map(|workload| accelerators.of_workload(workload).amount(workload.requests()));
        Self {
            workload: eta::label(engine, id),
            fate: if fate.keeps.is_some() { "Shrunk" } else { "Evicted" }.to_owned(),
            pods: fate.pods,
            gpus: each.map(|each| (each * fate.pods).into()).unwrap_or_default(),
            lost_seconds: fate.lost.as_secs() / u64::from(fate.pods.max(1)),
            back: fate.back.map(timestamp),
        }
    }
}

impl WhatIfRow {
    /// The row of a what-if result of `at`, for a workload in the queue of this name. The second engine has decided about it.
    #[must_use]
    pub fn new(
        (engine, decided): (&Engine, &Engine),
        (workload, queue): (&Workload, &str),
        result: &forecast::Prospect,
        accelerators: &PoolAccelerators,
        at: Time,
    ) -> Self {
        let admission = result.admission.as_ref();
        let forecast::Prospect { eta, grounds, place, .. } = result;
        // What can never start waits for no run, and has no place among what may.
        let never = result.verdict.as_ref().is_some_and(|verdict| verdict.never);
        let grounds = if never { &Err(Unbounded::NothingEnds) } else { grounds };
        let place = place.as_ref().filter(|_| !never);
        let victims = result.displaced.iter().zip(&result.fates);
        let victims = victims.map(|(id, fate)| VictimRow::new(engine, id, fate, accelerators));
        Self {
            head: WorkloadHead::new(workload, queue, result.verdict.clone()),
            eta: EtaRow::new(engine, eta, grounds, place, at),
            pool: admission.map(|admission| admission.pool.to_string()),
            nodes: nodes_of(admission),
            borrowed: admission.is_some_and(|admission| admission.borrowed),
            outside_quotas: admission
                .is_some_and(|admission| decided.is_outside_quotas_of(&workload.id, &admission.pool)),
            displaced: result.displaced.iter().map(|id| eta::label(engine, id)).collect(),
            victims: victims.collect(),
        }
    }
}

impl WorkloadRow {
    /// Whether it waits for admission, so that it has an expected start.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.head.state == "Pending"
    }

    /// The number of pods that it was granted, or while it waits of those that it asks for.
    #[must_use]
    pub fn granted(&self) -> u32 {
        if self.admitted.is_some() { self.nodes.values().sum() } else { self.pods }
    }

    /// The row of a workload of the engine, in the queue of this name.
    #[must_use]
    pub fn new(
        engine: &Engine,
        workload: &Workload,
        queue: &str,
        accelerators: &Accelerators,
        now: Time,
    ) -> Self {
        let (queue_priority, preemptible) = engine.standing(&workload.id).unwrap_or_default();
        let admission = admission_of(workload);
        let granted = admission.map_or(workload.pods, |admission| admission.pods);
        let end = admission.and_then(|_| forecast::expected_end(engine, &workload.id, now));
        Self {
            kind: workload.kind.to_string(),
            head: WorkloadHead::new(workload, queue, engine.verdict(&workload.id)),
            uid: None,
            user: workload.user.as_ref().map(ToString::to_string),
            priority: workload.priority,
            queue_priority,
            preemptible,
            gpus: (accelerators.amount(workload.requests()) * granted).into(),
            pods: workload.pods,
            requests: amounts(workload.requests()),
            nodes: nodes_of(admission),
            pool: admission.map(|admission| admission.pool.to_string()),
            borrowed: admission.is_some_and(|admission| admission.borrowed),
            submitted: timestamp(workload.submitted),
            admitted: admission.map(|admission| timestamp(admission.at)),
            outside_quotas: engine.is_outside_quotas(&workload.id),
            without_pods: false,
            eta: None,
            run: end.map(RunRow::going_on),
        }
    }
}

/// Whole GPUs, and those of them of which nothing is used. Slices of a GPU may add up to a little less than one.
fn blocks(all: Amount, free: Amount) -> (u32, u32) {
    let whole = |milli: i64| u32::try_from(milli.clamp(0, 1_000_000_000) / 1_000).unwrap_or_default();
    let some = u32::from(all > Amount::ZERO);
    let gpus = whole(all.as_milli().saturating_add(500)).max(some);
    let used = whole(all.as_milli().saturating_sub(free.as_milli()).saturating_add(999));
    (gpus, gpus.saturating_sub(used))
}

#[cfg(test)]
mod tests;
