//! Rows of the answers to Questions, which the command line prints.

mod accelerators;
mod eta;
mod sentences;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::record::timestamp;
use crate::engine::Engine;
use crate::engine::replay::forecast;
use crate::engine::types::amount::ResourceList;
use crate::engine::types::{Admission, Observed, Time, Workload, WorkloadId};
use crate::engine::types::{NodeView, QueueView, Reason, State, TeamView, UnadmittedView, Verdict};

pub use accelerators::{Accelerators, is_gpu};
pub use eta::{EtaRow, PlaceRow};
pub use sentences::{counted, span, warning};

/// Amounts by resource, as Kubernetes quantities.
pub type Amounts = BTreeMap<String, String>;

/// A team in one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TeamRow {
    /// The team.
    pub team: String,
    /// The pool.
    pub pool: String,
    /// Its guarantee.
    pub guaranteed: Amounts,
    /// Its limit.
    pub limit: Amounts,
    /// Its usage, with that of the teams below it.
    pub used: Amounts,
    /// The part of this usage that was never admitted.
    #[serde(default)]
    pub unadmitted: Amounts,
    /// Its usage beyond its guarantee.
    pub borrowed: Amounts,
    /// The part of its idle guarantee that other teams use.
    pub lent: Amounts,
    /// Its fair share of the pool for the current demand.
    #[serde(default)]
    pub fair_share: Amounts,
}

impl From<TeamView> for TeamRow {
    fn from(view: TeamView) -> Self {
        Self {
            team: view.team.to_string(),
            pool: view.pool.to_string(),
            guaranteed: amounts(&view.guaranteed),
            limit: amounts(&view.limit),
            used: amounts(&view.used),
            unadmitted: amounts(&view.unadmitted),
            borrowed: amounts(&view.borrowed),
            lent: amounts(&view.lent),
            fair_share: amounts(&view.fair_share),
        }
    }
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueRow {
    /// The team.
    pub team: String,
    /// The queue.
    pub queue: String,
    /// Number of waiting workloads.
    pub pending: usize,
    /// Number of running workloads.
    pub running: usize,
    /// Submission time of the oldest waiting workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Timestamp>,
}

impl From<QueueView> for QueueRow {
    fn from(view: QueueView) -> Self {
        Self {
            team: view.team.to_string(),
            queue: view.queue.to_string(),
            pending: view.pending,
            running: view.running,
            oldest: view.oldest.map(timestamp),
        }
    }
}

/// Teams and their queues.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Teams {
    /// Each team in each pool.
    pub teams: Vec<TeamRow>,
    /// Each queue.
    pub queues: Vec<QueueRow>,
    /// Guarantees that exceed the capacity behind them, one sentence each.
    pub overcommitments: Vec<String>,
    /// Pods that were never admitted and are charged to their team.
    #[serde(default)]
    pub unadmitted: Vec<UnadmittedRow>,
}

/// One row of what is known about teams, so that an answer of many teams comes in parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "about")]
pub enum TeamsRow {
    /// A team in one pool.
    Team(TeamRow),
    /// A queue.
    Queue(QueueRow),
    /// Guarantees that exceed the capacity behind them.
    Overcommitment {
        /// One sentence.
        message: String,
    },
    /// Pods that were never admitted and are charged to their team.
    Unadmitted(UnadmittedRow),
}

impl Teams {
    /// The rows, in the order of the fields.
    #[must_use]
    pub fn into_rows(self) -> Vec<TeamsRow> {
        let Self { teams, queues, overcommitments, unadmitted } = self;
        let over = overcommitments.into_iter().map(|message| TeamsRow::Overcommitment { message });
        let queues = queues.into_iter().map(TeamsRow::Queue);
        let rows = teams.into_iter().map(TeamsRow::Team).chain(queues).chain(over);
        rows.chain(unadmitted.into_iter().map(TeamsRow::Unadmitted)).collect()
    }
}

impl FromIterator<TeamsRow> for Teams {
    fn from_iter<I: IntoIterator<Item = TeamsRow>>(rows: I) -> Self {
        let mut all = Self::default();
        for row in rows {
            match row {
                TeamsRow::Team(row) => all.teams.push(row),
                TeamsRow::Queue(row) => all.queues.push(row),
                TeamsRow::Overcommitment { message } => all.overcommitments.push(message),
                TeamsRow::Unadmitted(row) => all.unadmitted.push(row),
            }
        }
        all
    }
}

/// Pods of one owner that were never admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnadmittedRow {
    /// The team that is charged.
    pub team: String,
    /// The pool of their nodes.
    pub pool: String,
    /// Their namespace.
    pub namespace: String,
    /// The owner as kind and name, or the pod where there is none.
    pub owner: String,
    /// Whether and when they are evicted: `First`, `Adopted` or `Fixed`.
    pub standing: String,
    /// Number of pods.
    pub pods: u32,
    /// What they hold together.
    pub resources: Amounts,
    /// The same as one sentence.
    pub message: String,
}

impl From<&UnadmittedView> for UnadmittedRow {
    fn from(view: &UnadmittedView) -> Self {
        Self {
            team: view.team.to_string(),
            pool: view.pool.to_string(),
            namespace: view.namespace.to_string(),
            owner: view.owner.to_string(),
            standing: view.standing.code().to_owned(),
            pods: view.pods,
            resources: amounts(&view.resources),
            message: view.sentence(),
        }
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// The node.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// Whether it takes new pods.
    pub schedulable: bool,
    /// Its allocatable resources.
    pub allocatable: Amounts,
    /// Its free resources.
    pub free: Amounts,
    /// Number of GPUs (see [`Accelerators`]).
    pub gpus: u32,
    /// Number of free GPUs.
    pub gpus_free: u32,
    /// Its workloads.
    pub workloads: Vec<NodeWorkload>,
}

/// A workload on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeWorkload {
    /// The workload, `namespace/name`; absent for the sum of a team's workloads that the caller does not see by name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workload: String,
    /// Its team.
    pub team: String,
    /// Number of its pods on the node.
    pub pods: u32,
}

impl NodeRow {
    /// The row of a node; `names` finds workloads by identity.
    #[must_use]
    pub fn new(view: &NodeView, names: &BTreeMap<&str, &Workload>, accelerators: &Accelerators) -> Self {
        let workload = |(id, pods): &(WorkloadId, u32)| {
            let known = names.get(&*id.0);
            NodeWorkload {
                workload: known.map_or_else(|| id.to_string(), |w| format!("{}/{}", w.namespace, w.name)),
                team: known.map(|workload| workload.team.to_string()).unwrap_or_default(),
                pods: *pods,
            }
        };
        Self {
            name: view.name.to_string(),
            pool: view.pool.to_string(),
            schedulable: view.schedulable,
            allocatable: amounts(&view.allocatable),
            free: amounts(&view.free),
            gpus: whole(accelerators.count(&view.allocatable)),
            gpus_free: whole(accelerators.count(&view.free)),
            workloads: view.workloads.iter().map(workload).collect(),
        }
    }
}

/// Identity and verdict of a workload, the first fields of [`WorkloadRow`] and [`WhatIfRow`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

impl WorkloadHead {
    /// Identity and verdict of a workload in the queue of this name; without a verdict it has not been considered yet.
    pub fn new(workload: &Workload, queue: &str, verdict: Option<Verdict>) -> Self {
        let not_considered =
            || Verdict { state: State::Pending, reason: Reason::NotYetConsidered, message: String::new() };
        let verdict = verdict.unwrap_or_else(not_considered);
        Self {
            namespace: workload.namespace.to_string(),
            name: workload.name.to_string(),
            team: workload.team.to_string(),
            queue: queue.to_owned(),
            state: format!("{:?}", verdict.state),
            reason: verdict.reason.code().to_owned(),
            message: verdict.message,
        }
    }
}

/// Pods by node of an admission; none without an admission.
fn nodes_of(admission: Option<&Admission>) -> BTreeMap<String, u32> {
    let nodes = admission.into_iter().flat_map(|admission| &admission.nodes);
    nodes.map(|(node, pods)| (node.to_string(), *pods)).collect()
}

/// A workload with its verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRow {
    /// `Job`, `Pod`, `PodGroup` or a custom kind.
    pub kind: String,
    /// Identity and verdict.
    #[serde(flatten)]
    pub head: WorkloadHead,
    /// The user that submitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The value of its PriorityClass.
    pub priority: i32,
    /// Number of pods it asks for.
    pub pods: u32,
    /// Requests of each pod.
    pub requests: Amounts,
    /// Pods by node.
    pub nodes: BTreeMap<String, u32>,
    /// The pool it runs in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Whether it borrows.
    pub borrowed: bool,
    /// Submission time.
    pub submitted: Timestamp,
    /// Admission time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted: Option<Timestamp>,
    /// The expected start of a waiting workload and its place in the queue, if the last forecast covers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<EtaRow>,
}

/// The what-if result of a Job: its state if it were submitted now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The workloads it would evict or shrink.
    pub displaced: Vec<String>,
}

impl WhatIfRow {
    /// The row of a what-if result of `at`, for a workload in the queue of this name.
    #[must_use]
    pub fn new(
        engine: &Engine,
        workload: &Workload,
        queue: &str,
        result: &forecast::Prospect,
        at: Time,
    ) -> Self {
        let admission = result.admission.as_ref();
        let forecast::Prospect { eta, grounds, place, .. } = result;
        Self {
            head: WorkloadHead::new(workload, queue, result.verdict.clone()),
            eta: EtaRow::new(engine, eta, grounds, place.as_ref(), at),
            pool: admission.map(|admission| admission.pool.to_string()),
            nodes: nodes_of(admission),
            borrowed: admission.is_some_and(|admission| admission.borrowed),
            displaced: result.displaced.iter().map(|id| eta::label(engine, id)).collect(),
        }
    }
}

impl WorkloadRow {
    /// Whether it waits for admission, so that it has an expected start.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.head.state == "Pending"
    }

    /// The row of a workload of the engine, in the queue of this name.
    #[must_use]
    pub fn new(engine: &Engine, workload: &Workload, queue: &str) -> Self {
        let admission = match &workload.state {
            Observed::Admitted(admission) | Observed::Leaving { admission, .. } => Some(admission),
            _ => None,
        };
        Self {
            kind: workload.kind.to_string(),
            head: WorkloadHead::new(workload, queue, engine.verdict(&workload.id)),
            user: workload.user.as_ref().map(ToString::to_string),
            priority: workload.priority,
            pods: workload.pods,
            requests: amounts(workload.requests()),
            nodes: nodes_of(admission),
            pool: admission.map(|admission| admission.pool.to_string()),
            borrowed: admission.is_some_and(|admission| admission.borrowed),
            submitted: timestamp(workload.submitted),
            admitted: admission.map(|admission| timestamp(admission.at)),
            eta: None,
        }
    }
}

/// Amounts as Kubernetes quantities: binary suffixes for bytes only.
#[must_use]
pub fn amounts(list: &ResourceList) -> Amounts {
    list.iter().map(|(resource, amount)| (resource.to_string(), amount.quantity(resource))).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count, never negative")]
fn whole(count: f64) -> u32 {
    count.clamp(0.0, 1_000_000.0) as u32
}

#[cfg(test)]
mod tests;
