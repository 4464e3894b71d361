//! What the JSON API answers and the command line prints.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::api::record::timestamp;
use crate::engine::Engine;
use crate::engine::replay::forecast::{self, Eta};
use crate::engine::types::amount::{Amount, ResourceList};
use crate::engine::types::{NodeView, QueueView, Reason, State, TeamView, Verdict};
use crate::engine::types::{Observed, Time, Workload};

/// Amounts by resource, as people write them.
pub type Amounts = BTreeMap<String, String>;

/// A team in one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TeamRow {
    /// The team.
    pub team: String,
    /// The pool.
    pub pool: String,
    /// What it is promised.
    pub guaranteed: Amounts,
    /// Its cap.
    pub limit: Amounts,
    /// What it holds.
    pub used: Amounts,
    /// What of that is beyond its guarantee.
    pub borrowed: Amounts,
    /// What of its idle guarantee others use.
    pub lent: Amounts,
    /// What it would hold if the pool were shared out anew to the present demand.
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
    /// How many workloads wait.
    pub pending: usize,
    /// How many run.
    pub running: usize,
    /// When the one that waits longest was submitted.
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
    /// Promises that cannot all be kept.
    pub overcommitments: Vec<String>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRow {
    /// The node.
    pub name: String,
    /// Its pool.
    pub pool: String,
    /// Whether new pods may go there.
    pub schedulable: bool,
    /// What it offers.
    pub allocatable: Amounts,
    /// What is free.
    pub free: Amounts,
    /// GPUs in all.
    pub gpus: u32,
    /// GPUs that are free.
    pub gpus_free: u32,
    /// Who holds how many pods there.
    pub workloads: Vec<NodeShare>,
}

/// A workload's part of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShare {
    /// The workload, `namespace/name`.
    pub workload: String,
    /// Its team.
    pub team: String,
    /// Its pods there.
    pub pods: u32,
}

impl NodeRow {
    /// The row of a node; `names` gives the name and team of a workload.
    #[must_use]
    pub fn new(view: &NodeView, names: &BTreeMap<&str, &Workload>) -> Self {
        let share = |(id, pods): &(crate::engine::types::WorkloadId, u32)| {
            let known = names.get(&*id.0);
            NodeShare {
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
            gpus: whole(gpus(&view.allocatable)),
            gpus_free: whole(gpus(&view.free)),
            workloads: view.workloads.iter().map(share).collect(),
        }
    }
}

/// A workload and why it is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRow {
    /// `Job` or `Pod`.
    pub kind: String,
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
    /// The machine-readable reason.
    pub reason: String,
    /// One sentence with the numbers and the parties.
    pub message: String,
    /// The value of its PriorityClass.
    pub priority: i32,
    /// How many pods it wants to run.
    pub pods: u32,
    /// What each of them requests.
    pub requests: Amounts,
    /// How many run on which node.
    pub nodes: BTreeMap<String, u32>,
    /// The pool that pays.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Whether it runs beyond its team's guarantee.
    pub borrowed: bool,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// When it was admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted: Option<Timestamp>,
    /// When it is expected to start, if it waits and was there when that was last worked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta: Option<EtaRow>,
}

/// When a waiting workload is expected to start, if nobody else comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtaRow {
    /// If runs are as long as usual; absent when that cannot be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub likely: Option<Timestamp>,
    /// The earliest, if runs are short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early: Option<Timestamp>,
    /// The latest, if runs are long; absent when that cannot be bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<Timestamp>,
    /// When this was worked out.
    pub foretold: Timestamp,
}

impl EtaRow {
    /// What was worked out at `at`.
    #[must_use]
    pub fn new(eta: &Eta, at: Time) -> Self {
        Self {
            likely: eta.likely.map(timestamp),
            early: eta.early.map(timestamp),
            late: eta.late.map(timestamp),
            foretold: timestamp(at),
        }
    }
}

/// What would become of a Job if it were submitted now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProspectRow {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its team.
    pub team: String,
    /// Its queue.
    pub queue: String,
    /// `Running` if it would start at once, else what its state would be.
    pub state: String,
    /// The machine-readable reason.
    pub reason: String,
    /// One sentence with the numbers and the parties.
    pub message: String,
    /// When it would start.
    pub eta: EtaRow,
    /// The pool that would pay, if runs are as usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// How many pods would run on which node, if runs are as usual.
    pub nodes: BTreeMap<String, u32>,
    /// Whether it would run beyond its team's guarantee.
    pub borrowed: bool,
    /// Who would be evicted or shrunk for it.
    pub displaced: Vec<String>,
}

impl ProspectRow {
    /// What the engine says at `at` of a workload in the queue of that name.
    #[must_use]
    pub fn new(
        engine: &Engine,
        workload: &Workload,
        queue: &str,
        prospect: &forecast::Prospect,
        at: Time,
    ) -> Self {
        let verdict = prospect.verdict.clone().unwrap_or_else(unconsidered);
        let admission = prospect.admission.as_ref();
        let nodes = admission.into_iter().flat_map(|admission| &admission.nodes);
        let label = |id| {
            engine.workload(id).map_or_else(|| id.to_string(), |w| format!("{}/{}", w.namespace, w.name))
        };
        Self {
            namespace: workload.namespace.to_string(),
            name: workload.name.to_string(),
            team: workload.team.to_string(),
            queue: queue.to_owned(),
            state: format!("{:?}", verdict.state),
            reason: verdict.reason.code().to_owned(),
            message: verdict.message,
            eta: EtaRow::new(&prospect.eta, at),
            pool: admission.map(|admission| admission.pool.to_string()),
            nodes: nodes.map(|(node, pods)| (node.to_string(), *pods)).collect(),
            borrowed: admission.is_some_and(|admission| admission.borrowed),
            displaced: prospect.displaced.iter().map(label).collect(),
        }
    }
}

/// What is said of a workload that has not been looked at.
fn unconsidered() -> Verdict {
    Verdict { state: State::Pending, reason: Reason::NotYetConsidered, message: String::new() }
}

impl WorkloadRow {
    /// Whether it waits to be started, so that it can be foretold when it will be.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.state == "Pending"
    }

    /// The row of a workload of the engine, in the queue of that name.
    #[must_use]
    pub fn new(engine: &Engine, workload: &Workload, queue: &str) -> Self {
        let verdict = engine.verdict(&workload.id).unwrap_or_else(unconsidered);
        let admission = match &workload.state {
            Observed::Admitted(admission) | Observed::Leaving { admission, .. } => Some(admission),
            _ => None,
        };
        let nodes = admission.into_iter().flat_map(|admission| &admission.nodes);
        Self {
            kind: workload.kind.to_string(),
            namespace: workload.namespace.to_string(),
            name: workload.name.to_string(),
            team: workload.team.to_string(),
            queue: queue.to_owned(),
            state: format!("{:?}", verdict.state),
            reason: verdict.reason.code().to_owned(),
            message: verdict.message,
            priority: workload.priority,
            pods: workload.pods,
            requests: amounts(workload.requests()),
            nodes: nodes.map(|(node, pods)| (node.to_string(), *pods)).collect(),
            pool: admission.map(|admission| admission.pool.to_string()),
            borrowed: admission.is_some_and(|admission| admission.borrowed),
            submitted: timestamp(workload.submitted),
            admitted: admission.map(|admission| timestamp(admission.at)),
            eta: None,
        }
    }
}

/// Amounts as people write them.
#[must_use]
pub fn amounts(list: &ResourceList) -> Amounts {
    list.iter().map(|(resource, amount)| (resource.to_string(), amount.to_string())).collect()
}

/// Whether a resource is GPUs, whoever makes them.
#[must_use]
pub fn is_gpu(resource: &str) -> bool {
    resource.ends_with("/gpu")
}

/// How many GPUs there are in a list.
#[must_use]
pub fn gpus(list: &ResourceList) -> f64 {
    let gpus = list.iter().filter(|(resource, _)| is_gpu(resource));
    gpus.fold(Amount::ZERO, |sum, (_, amount)| sum + *amount).as_units_lossy()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count, never negative")]
fn whole(count: f64) -> u32 {
    count.clamp(0.0, 1_000_000.0) as u32
}
