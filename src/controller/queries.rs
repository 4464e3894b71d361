//! What people and monitoring ask, answered by the loop from what it knows at that moment.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::preview::Preview;
use crate::cluster::clock::now;
use crate::cluster::mirror::Mirror;
use crate::cluster::status::Report;
use crate::cluster::target::{Managed, Target};
use crate::engine::Engine;
use crate::engine::types::amount::ResourceList;
use crate::engine::types::{FailReason, Name, Observed, TeamView, Time, Workload, WorkloadId, WorkloadKind};
use crate::metrics::Figures;
use crate::view::{
    Accelerators, BudgetRow, NodeContext, NodeRow, PoolAccelerators, QueueRow, TeamRow, Teams, UnadmittedRow,
    WorkloadHead, WorkloadRow,
};

/// With more workloads than this no copies of the engine are made: they would take the memory, and making them
/// the time, of decisions.
const MOST_COPIED: usize = 50_000;

/// The most rows of a part of the workloads, and the most workloads that are looked at for it: some ten milliseconds of the loop.
const MOST_ROWS: usize = 1_024;
const MOST_LOOKED_AT: usize = 32_768;

/// A question with the place for its answer.
#[derive(Debug)]
pub enum Question {
    /// Teams and queues.
    Teams(oneshot::Sender<Teams>),
    /// Nodes, with these resources counted as GPUs besides those in quotas.
    Nodes(Accelerators, oneshot::Sender<Vec<NodeRow>>),
    /// Some of the workloads that a choice leaves, by identity: those after a workload, or the first ones. With these resources
    /// counted as GPUs besides those in quotas.
    Workloads(Choice, Option<WorkloadId>, Accelerators, oneshot::Sender<WorkloadsPart>),
    /// The workloads of a name in a namespace: a Job, a Pod, or both.
    Workload((String, String), Accelerators, oneshot::Sender<Vec<WorkloadRow>>),
    /// The engine as it stands, to be played forward elsewhere; `None` until the first lists are complete, and
    /// where it knows more than [`MOST_COPIED`] workloads.
    Engine(oneshot::Sender<Option<Box<Engine>>>),
    /// The same, and what an object would be that has not been submitted. Without the engine where that has changed so
    /// often already.
    Candidate(Box<Managed>, Option<u64>, oneshot::Sender<Option<Candidate>>),
    /// How often the engine has changed.
    Changes(oneshot::Sender<u64>),
    /// What the metrics are read off; `None` until the first lists are complete.
    Figures(oneshot::Sender<Option<Figures>>),
    /// What the statuses are made of; `None` unless this process leads.
    Report(oneshot::Sender<Option<Report>>),
}

/// A part of the workloads that are asked for: decisions come between two parts.
#[derive(Debug, Default)]
pub struct WorkloadsPart {
    /// The workloads.
    pub rows: Vec<WorkloadRow>,
    /// The last workload that was looked at, if there may be more.
    pub more_after: Option<WorkloadId>,
}

/// Which workloads are asked for; every condition that is set must hold.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Their namespace.
    pub namespace: Option<String>,
    /// Their team.
    pub team: Option<String>,
    /// Their queue.
    pub queue: Option<String>,
    /// The user that submitted them.
    pub user: Option<String>,
}

impl Choice {
    /// Whether a workload is asked for.
    fn has(&self, workload: &Workload, mirror: &Mirror) -> bool {
        let is = |wanted: &Option<String>, name: Option<&Name>| {
            wanted.as_deref().is_none_or(|wanted| name.is_some_and(|name| **name == *wanted))
        };
        is(&self.namespace, Some(&workload.namespace))
            && is(&self.team, Some(&workload.team))
            && is(&self.user, workload.user.as_ref())
            && (self.queue.is_none() || is(&self.queue, Some(&mirror.queue_of(workload))))
    }
}

/// A workload that is not there, and the engine that it would come to.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The engine as it stands, unless it is known already.
    pub engine: Option<Box<Engine>>,
    /// How often that has changed.
    pub changes: u64,
    /// The workload.
    pub workload: Workload,
    /// The name of the queue it would be in.
    pub queue: Name,
    /// The pools with `shares`.
    pub shares: BTreeMap<Name, ResourceList>,
}

impl Question {
    /// Whether the answer has verdicts on workloads.
    pub fn asks_for_verdicts(&self) -> bool {
        matches!(self, Self::Workloads(..) | Self::Workload(..))
    }
}

/// Puts questions to the loop.
#[derive(Clone, Debug)]
pub struct Asker(mpsc::Sender<Question>);

impl Asker {
    /// An asker and where its questions come out.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Question>) {
        let (sender, receiver) = mpsc::channel(64);
        (Self(sender), receiver)
    }

    /// Asks; `None` when the loop has ended.
    pub async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        self.0.send(question(sender)).await.ok()?;
        receiver.await.ok()
    }
}

/// Answers from the engine and the cache. A replica that does not lead has its verdicts from `preview`. It does not matter
/// whether the caller still waits for the answer.
pub fn answer(question: Question, engine: &Engine, mirror: &Mirror, preview: Option<&Preview<Question>>) {
    let (leads, at) = (preview.is_none(), now());
    let row = |workload: &Workload, accelerators: &PoolAccelerators| {
        let queue = mirror.queue_of(workload);
        let mut row = WorkloadRow::new(engine, workload, &queue, accelerators.of_workload(workload), at);
        if let Some(verdict) = preview.and_then(|preview| preview.verdict(workload)) {
            row.head = WorkloadHead::new(workload, &queue, Some(verdict.clone()));
        }
        if workload.state == Observed::Queued
            && let Some(rollout) = mirror.rollout(&workload.id)
        {
            row.head.message = format!("{} {rollout}", row.head.message);
        }
        if matches!(workload.state, Observed::Finished | Observed::OnHold)
            && let Some((managed, _)) = mirror.workload(&workload.id)
            && let Some(why) = failure(managed, &queue)
        {
            row.head.message = why;
        }
        if workload.kind == WorkloadKind::Job
            && matches!(workload.state, Observed::Admitted(_))
            && mirror.pods_with_uid(&workload.id).next().is_none()
            && let Some((managed, _)) = mirror.subject(&workload.id)
            && let Some(missing) = missing_pods(&managed, at)
        {
            row.head.message = format!("{} {missing}", row.head.message);
            row.without_pods = true;
        }
        row
    };
    match question {
        Question::Teams(to) => drop(to.send(teams(engine, mirror, at))),
        Question::Nodes(accelerators, to) => {
            let context = NodeContext::new(engine, counted(&accelerators, engine, mirror), at);
            let rows = engine.nodes().iter().map(|node| NodeRow::new(node, &context)).collect();
            drop(to.send(rows));
        }
        Question::Workloads(choice, after, accelerators, to) => {
            let accelerators = counted(&accelerators, engine, mirror);
            let mut part = WorkloadsPart::default();
            for (looked_at, workload) in (1..).zip(engine.workloads_after(after.as_ref())) {
                if choice.has(workload, mirror) {
                    part.rows.push(row(workload, &accelerators));
                }
                if part.rows.len() == MOST_ROWS || looked_at == MOST_LOOKED_AT {
                    part.more_after = Some(workload.id.clone());
                    break;
                }
            }
            drop(to.send(part));
        }
        Question::Workload((namespace, name), accelerators, to) => {
            let accelerators = counted(&accelerators, engine, mirror);
            let found = engine.workloads().filter(|w| *w.namespace == *namespace && *w.name == *name);
            let mut found: Vec<&Workload> = found.map(|workload| &**workload).collect();
            // Of a pod of a group people ask by its own name.
            let group = mirror.group_of(&namespace, &name).filter(|_| found.is_empty());
            found.extend(group.and_then(|id| engine.workload(id)));
            let named = |workload: &Workload| {
                let seen = mirror.workload(&workload.id).filter(|_| workload.kind != WorkloadKind::PodGroup);
                let uid = seen.map(|(managed, _)| managed.facts.uid.to_string());
                WorkloadRow { uid, ..row(workload, &accelerators) }
            };
            drop(to.send(found.into_iter().map(named).collect()));
        }
        Question::Engine(to) => drop(to.send(copy(engine, mirror))),
        Question::Candidate(managed, known, to) => {
            let workload = mirror.completed_workload(*managed);
            let queue = mirror.queue_of(&workload);
            let changes = engine.changes();
            let shares = shares(mirror);
            let candidate = |engine| Candidate { engine, changes, workload, queue, shares };
            drop(to.send(if known == Some(changes) {
                Some(candidate(None))
            } else {
                copy(engine, mirror).map(|engine| candidate(Some(engine)))
            }));
        }
        Question::Changes(to) => drop(to.send(engine.changes())),
        Question::Figures(to) => drop(to.send(mirror.complete().then(|| figures(engine, mirror, at)))),
        Question::Report(to) => {
            let report = (leads && mirror.complete()).then(|| Report {
                at: at.0,
                figures: figures(engine, mirror, at),
                teams: mirror
                    .teams()
                    .map(|(name, generation, fault)| (name.to_string(), (generation, fault)))
                    .collect(),
                run_lengths: engine.run_lengths().collect(),
                uids: mirror.uids_of_teams().collect(),
                pools: mirror.pools().map(|(name, seen)| (name.to_string(), seen.generation)).collect(),
            });
            drop(to.send(report));
        }
    }
}

/// How long the pods of an admitted Job may take to be created before their absence is worth a word.
const CREATION: Duration = Duration::from_secs(10);

/// What is said of an admitted Job without any pod, if it has had none: the API server may refuse them, for a PriorityClass
/// or ServiceAccount that does not exist or by another webhook, and only its controller's Events tell.
fn missing_pods(managed: &Managed, now: Time) -> Option<String> {
    let (Target::Job(facts), Observed::Admitted(admission)) = (&managed.target, &managed.workload.state)
    else {
        return None;
    };
    let had_any =
        facts.active > 0 || facts.terminating > 0 || facts.succeeded || facts.failed > facts.failed_before;
    if had_any || managed.workload.pods == 0 || admission.at.after(CREATION) > now {
        return None;
    }
    let Workload { namespace, name, .. } = &*managed.workload;
    let none = match admission.pods {
        1 => "Its pod does not exist yet".to_owned(),
        pods => format!("None of its {pods} pods exists yet"),
    };
    Some(format!("{none}; `kubectl describe job {name} -n {namespace}` tells why."))
}

/// Why a workload has failed: by a rule of its queue, or as its object says. An object of a custom kind that failed by a rule is on
/// hold until its user resumes it; the note of that goes with the next admission.
fn failure(managed: &Managed, queue: &Name) -> Option<String> {
    let facts = &managed.facts;
    let codes = [facts.eviction.as_ref().map(|note| note.reason.as_str()), facts.failure.as_deref()];
    let rule = FailReason::ALL.into_iter().find(|rule| codes.contains(&Some(rule.code())));
    let by_rule = rule.map(|rule| match rule {
        FailReason::MaxWait => format!("waited longer than queue {queue} allows (maxWait)"),
        FailReason::MaxRuntime => format!("ran longer than queue {queue} allows (maxRuntime)"),
    });
    match (&managed.workload.state, by_rule, &facts.failure) {
        (Observed::OnHold, Some(by_rule), _) => {
            Some(format!("On hold: it {by_rule}, so Sluice stopped it. Its user may resume it."))
        }
        (Observed::Finished, Some(by_rule), _) => {
            Some(format!("Has ended: it {by_rule}, so Sluice failed it."))
        }
        (Observed::Finished, None, Some(reason)) if !reason.is_empty() => {
            Some(format!("Has ended: it failed ({reason})."))
        }
        _ => None,
    }
}

/// The engine as it stands, if the lists are complete and it is not too large to have several of.
pub fn copy(engine: &Engine, mirror: &Mirror) -> Option<Box<Engine>> {
    let fits = mirror.complete() && engine.workloads().nth(MOST_COPIED).is_none();
    fits.then(|| Box::new(engine.clone()))
}

/// These resources and the devices in quotas, and in each pool its shares of GPUs.
fn counted(accelerators: &Accelerators, engine: &Engine, mirror: &Mirror) -> PoolAccelerators {
    PoolAccelerators::of(engine, accelerators, mirror.pools().map(|(name, seen)| (name, &seen.shares)))
}

/// The pools with `shares`.
fn shares(mirror: &Mirror) -> BTreeMap<Name, ResourceList> {
    let pools = mirror.pools().filter(|(_, seen)| !seen.shares.is_empty());
    pools.map(|(name, seen)| (name.clone(), seen.shares.clone())).collect()
}

fn figures(engine: &Engine, mirror: &Mirror, now: Time) -> Figures {
    Figures {
        shares: shares(mirror),
        teams: engine.teams(),
        queues: engine.queues(),
        nodes: engine.nodes(),
        oldest_within_guarantee: engine.oldest_within_guarantee(),
        overcommitments: engine.overcommitments(),
        unadmitted: engine.unadmitted(),
        budgets: engine.budgets(now),
    }
}

fn teams(engine: &Engine, mirror: &Mirror, now: Time) -> Teams {
    let shares: BTreeMap<_, _> = mirror.pools().map(|(name, seen)| (name, &seen.shares)).collect();
    let row = |view: TeamView| {
        let shares = shares.get(&view.pool).copied();
        TeamRow::new(view, shares)
    };
    let told = |over: crate::engine::types::Overcommitment| match over.team {
        Some(team) => format!("{team} in {}: {}", over.pool, over.message),
        None => format!("{}: {}", over.pool, over.message),
    };
    Teams {
        teams: engine.teams().into_iter().map(row).collect(),
        queues: engine.queues().into_iter().map(QueueRow::from).collect(),
        overcommitments: engine.overcommitments().into_iter().map(told).collect(),
        unadmitted: engine.unadmitted().iter().map(UnadmittedRow::from).collect(),
        budgets: engine.budgets(now).iter().map(BudgetRow::from).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::api::record::Eviction;
    use crate::cluster::target::job::job;
    use crate::engine::types::{Event, PodShape};

    /// An admitted Job of two pods with this status.
    fn admitted(status: serde_json::Value) -> Box<Managed> {
        let record = serde_json::json!({"pool": "default", "nodes": {"n": 2}, "pods": 2, "borrowed": false,
            "at": "1970-01-01T00:00:00Z", "failed": 1});
        let object = serde_json::json!({
            "metadata": {"name": "train", "namespace": "a", "uid": "1",
                "annotations": {"sluice.dev/held": "true", "sluice.dev/admission": record.to_string()}},
            "spec": {"parallelism": 2, "template": {"spec": {"containers": []}}}, "status": status,
        });
        let read = job(&serde_json::from_value(object).expect("a Job"), Time(0));
        read.managed.expect("Sluice manages it")
    }

    #[test]
    fn an_admitted_job_without_pods_says_so_once_they_are_overdue() {
        let said = |status, at| missing_pods(&admitted(status), Time(at));
        let none = serde_json::json!({"failed": 1});
        assert_eq!(said(none.clone(), 9_000), None, "pods take a moment");
        let message = said(none, 10_000).expect("they are overdue");
        assert_eq!(message, "None of its 2 pods exists yet; `kubectl describe job train -n a` tells why.");
        for had in [
            serde_json::json!({"active": 1}),
            serde_json::json!({"terminating": 1}),
            serde_json::json!({"succeeded": 1}),
            serde_json::json!({"failed": 2}),
        ] {
            assert_eq!(said(had.clone(), 60_000), None, "{had}");
        }
    }

    #[test]
    fn what_failed_says_by_which_rule_of_its_queue_or_for_which_reason() {
        let ended = |kind: &str, reason: &str| {
            let condition = serde_json::json!({"type": kind, "status": "True", "reason": reason});
            failure(&admitted(serde_json::json!({"conditions": [condition]})), &"day".into())
        };
        assert_eq!(
            ended("FailureTarget", "MaxRuntime").as_deref(),
            Some("Has ended: it ran longer than queue day allows (maxRuntime), so Sluice failed it.")
        );
        assert_eq!(
            ended("Failed", "MaxWait").as_deref(),
            Some("Has ended: it waited longer than queue day allows (maxWait), so Sluice failed it.")
        );
        assert_eq!(
            ended("Failed", "BackoffLimitExceeded").as_deref(),
            Some("Has ended: it failed (BackoffLimitExceeded).")
        );
        assert_eq!(ended("Complete", "CompletionsReached"), None);
        assert_eq!(failure(&admitted(serde_json::json!({})), &"day".into()), None, "it runs");
        let mut stopped = admitted(serde_json::json!({}));
        stopped.facts.eviction = Some(Eviction::new(Default::default(), "MaxRuntime"));
        Arc::make_mut(&mut stopped.workload).state = Observed::OnHold;
        let said = failure(&stopped, &"day".into()).unwrap_or_default();
        assert!(said.starts_with("On hold: it ran longer than queue day allows (maxRuntime)"), "{said}");
    }

    #[test]
    fn the_parts_of_a_large_queue_have_each_workload_once() {
        let (mut engine, mirror) = (Engine::new(), Mirror::default());
        for number in 0..MOST_ROWS * 2 + 10 {
            let (team, name) = (["a", "b"][number % 2], format!("job-{number}"));
            let job = Workload::job(&team.into(), &name.as_str().into(), 1, PodShape::default(), Time(0));
            engine.apply(Event::workload(job), Time(0));
        }
        let parts = |choice: Choice| {
            let (mut parts, mut after) = (Vec::new(), None);
            loop {
                let (to, mut part) = oneshot::channel();
                let question = Question::Workloads(choice.clone(), after, Accelerators::default(), to);
                answer(question, &engine, &mirror, None);
                let WorkloadsPart { rows, more_after } = part.try_recv().expect("an answer");
                parts.push(rows.into_iter().map(|row| row.head.name).collect::<Vec<_>>());
                after = more_after;
                if after.is_none() {
                    return parts;
                }
            }
        };
        let all = parts(Choice::default());
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [MOST_ROWS, MOST_ROWS, 10]);
        assert_eq!(all.concat().into_iter().collect::<BTreeSet<_>>().len(), MOST_ROWS * 2 + 10);
        let of_one = parts(Choice { team: Some("b".to_owned()), ..Choice::default() });
        assert_eq!(of_one.iter().map(Vec::len).collect::<Vec<_>>(), [MOST_ROWS, 5]);
    }
}
