//! Queries of the HTTP API and of monitoring, answered by the loop from its current state.

use std::collections::BTreeMap;

use tokio::sync::{mpsc, oneshot};

use crate::cluster::mirror::Mirror;
use crate::cluster::reduce::Managed;
use crate::cluster::status::Report;
use crate::engine::Engine;
use crate::engine::types::{Name, Observed, Workload};
use crate::metrics::Figures;
use crate::view::{NodeRow, QueueRow, TeamRow, Teams, WorkloadRow};

/// The most workloads in an engine that is copied for forecasts. A larger copy takes too much memory and
/// delays decisions.
const MOST_COPIED: usize = 50_000;

/// A question and the channel for its answer.
#[derive(Debug)]
pub enum Question {
    /// The rows of teams and queues.
    Teams(oneshot::Sender<Teams>),
    /// The rows of nodes.
    Nodes(oneshot::Sender<Vec<NodeRow>>),
    /// The rows of the workloads of a team, or of all.
    Workloads(Option<String>, oneshot::Sender<Vec<WorkloadRow>>),
    /// The workloads with a namespace and name: a Job, a Pod, or both.
    Workload(String, String, oneshot::Sender<Vec<WorkloadRow>>),
    /// A copy of the engine for forecasts; `None` until the first lists are complete, and with more than
    /// [`MOST_COPIED`] workloads.
    Engine(oneshot::Sender<Option<Box<Engine>>>),
    /// A copy of the engine, and the workload that an object not yet submitted would become.
    Candidate(Box<Managed>, oneshot::Sender<Option<Candidate>>),
    /// The figures behind the metrics; `None` until the first lists are complete.
    Figures(oneshot::Sender<Option<Figures>>),
    /// The input of the Team and NodePool statuses; `None` unless this process leads.
    Report(oneshot::Sender<Option<Report>>),
}

/// A workload not yet submitted, and a copy of the engine to submit it to.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// A copy of the engine.
    pub engine: Box<Engine>,
    /// The workload.
    pub workload: Workload,
    /// The name of its queue.
    pub queue: Name,
}

/// Sends questions to the loop.
#[derive(Clone, Debug)]
pub struct Asker(mpsc::Sender<Question>);

impl Asker {
    /// A sender and the receiving end for the loop.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Question>) {
        let (sender, receiver) = mpsc::channel(64);
        (Self(sender), receiver)
    }

    /// Sends a question and waits for the answer; `None` when the loop has ended.
    pub async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        self.0.send(question(sender)).await.ok()?;
        receiver.await.ok()
    }
}

/// Answers a question from the engine and the cache. An answer without a receiver is dropped.
pub fn answer(question: Question, engine: &Engine, mirror: &Mirror, leads: bool) {
    let row = |workload: &Workload| {
        let mut row = WorkloadRow::new(engine, workload, &mirror.queue_of(workload));
        if workload.state == Observed::Queued
            && let Some(rollout) = mirror.rollout(&workload.id)
        {
            row.message = format!("{}; {rollout}", row.message);
        }
        row
    };
    match question {
        Question::Teams(to) => drop(to.send(teams(engine))),
        Question::Nodes(to) => {
            let names: BTreeMap<&str, &Workload> = engine.workloads().map(|w| (&*w.id.0, w)).collect();
            let rows = engine.nodes().iter().map(|node| NodeRow::new(node, &names)).collect();
            drop(to.send(rows));
        }
        Question::Workloads(team, to) => {
            let mut chosen: Vec<&Workload> =
                engine.workloads().filter(|w| team.as_deref().is_none_or(|team| team == &*w.team)).collect();
            chosen.sort_by_key(|workload| (workload.submitted, &workload.namespace, &workload.name));
            drop(to.send(chosen.into_iter().map(row).collect()));
        }
        Question::Workload(namespace, name, to) => {
            let found = engine.workloads().filter(|w| *w.namespace == *namespace && *w.name == *name);
            let mut found: Vec<&Workload> = found.collect();
            // A pod of a group is also found by its own name.
            let group = mirror.group_of(&namespace, &name).filter(|_| found.is_empty());
            found.extend(group.and_then(|id| engine.workload(id)));
            drop(to.send(found.into_iter().map(row).collect()));
        }
        Question::Engine(to) => drop(to.send(copy(engine, mirror))),
        Question::Candidate(managed, to) => {
            let workload = mirror.completed_workload(*managed);
            let queue = mirror.queue_of(&workload);
            drop(to.send(copy(engine, mirror).map(|engine| Candidate { engine, workload, queue })));
        }
        Question::Figures(to) => drop(to.send(mirror.complete().then(|| figures(engine)))),
        Question::Report(to) => {
            let report = (leads && mirror.complete()).then(|| Report {
                figures: figures(engine),
                teams: mirror
                    .teams()
                    .map(|(name, generation, fault)| (name.to_string(), (generation, fault)))
                    .collect(),
                pools: mirror.pools().map(|(name, seen)| (name.to_string(), seen.generation)).collect(),
            });
            drop(to.send(report));
        }
    }
}

/// A copy of the engine, if the lists are complete and it is small enough.
fn copy(engine: &Engine, mirror: &Mirror) -> Option<Box<Engine>> {
    let fits = mirror.complete() && engine.workloads().nth(MOST_COPIED).is_none();
    fits.then(|| Box::new(engine.clone()))
}

fn figures(engine: &Engine) -> Figures {
    Figures {
        teams: engine.teams(),
        queues: engine.queues(),
        nodes: engine.nodes(),
        owed: engine.oldest_within_guarantee(),
        overcommitments: engine.overcommitments(),
    }
}

fn teams(engine: &Engine) -> Teams {
    let sentence = |over: crate::engine::types::Overcommitment| match over.team {
        Some(team) => format!("{team} in {}: {}", over.pool, over.message),
        None => format!("{}: {}", over.pool, over.message),
    };
    Teams {
        teams: engine.teams().into_iter().map(TeamRow::from).collect(),
        queues: engine.queues().into_iter().map(QueueRow::from).collect(),
        overcommitments: engine.overcommitments().into_iter().map(sentence).collect(),
    }
}
