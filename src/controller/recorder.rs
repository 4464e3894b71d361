//! What the loop tells the history and the log of decisions. It outlives sessions, so that a run goes on in the same record
//! whoever leads.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use super::decisions::{Decision, places, record};
use super::news::preemptor;
use super::samples::samples;
use crate::api::record::time;
use crate::cluster::mirror::Mirror;
use crate::engine::Engine;
use crate::engine::types::amount::Amount;
use crate::engine::types::{Action, Admission, Observed, Time, Workload, WorkloadId};
use crate::history::Historian;
use crate::history::record::{DECIDED, Fact, Transition};
use crate::history::tracker::{Ended, Past, Subject, Tracker};
use crate::view::Accelerators;

/// The time between samples of the figures of teams; their times are multiples of it.
const SAMPLE: Duration = Duration::from_secs(300);
/// The shortest time between two looks at the reservations.
const LOOK: Duration = Duration::from_secs(1);
/// The most objects that are written again at once.
const REFILL: usize = 256;

/// Tells the history and the log.
#[derive(Debug)]
pub struct Recorder {
    tracker: Tracker,
    historian: Historian,
    /// What counts as a GPU whatever the quotas list.
    configured: Accelerators,
    accelerators: Accelerators,
    counted: Option<Time>,
    complete: bool,
    sampled: Option<i64>,
    looked: Option<Time>,
    reserved: BTreeSet<WorkloadId>,
    refill: VecDeque<WorkloadId>,
}

impl Recorder {
    /// A recorder of this process.
    #[must_use]
    pub fn new(session: i64, historian: Historian, accelerators: Accelerators) -> Self {
        Self {
            tracker: Tracker::new(session, accelerators.clone()),
            historian,
            configured: accelerators.clone(),
            accelerators,
            counted: None,
            complete: false,
            sampled: None,
            looked: None,
            reserved: BTreeSet::new(),
            refill: VecDeque::new(),
        }
    }

    /// Another session begins, with an engine and a cache that are filled again.
    pub fn begin(&mut self, engine: &mut Engine) {
        self.complete = false;
        engine.note_charges();
    }

    /// Follows what has changed since the last call, once every first list is complete.
    pub fn follow(&mut self, engine: &mut Engine, mirror: &Mirror, leads: bool, now: Time) {
        self.count(engine, now);
        let touched = engine.take_recharged();
        for id in &touched {
            self.see(engine, mirror, id, now);
        }
        if !self.complete {
            self.complete = true;
            self.tracker.complete(|id| mirror.workload(id).is_some(), now);
        }
        if self.historian.take_refill() {
            self.tracker.write_again();
            self.refill = engine.workloads().map(|workload| workload.id.clone()).collect();
        }
        for _ in 0..REFILL {
            let Some(id) = self.refill.pop_front() else { break };
            self.see(engine, mirror, &id, now);
        }
        self.tracker.checkpoint(now);
        for fact in self.tracker.take_facts() {
            self.historian.send(fact);
        }
        for ended in self.tracker.take_ended() {
            if leads {
                log_end(&ended);
            }
        }
        if leads {
            self.look_at_reservations(engine, mirror, now);
        }
        // Each replica may have a store of its own.
        self.sample(engine, now);
    }

    /// Learns from the teams' quotas what counts as a GPU.
    fn count(&mut self, engine: &Engine, now: Time) {
        if !self.configured.depend_on_quotas() || self.counted.is_some_and(|last| last.after(LOOK) > now) {
            return;
        }
        self.counted = Some(now);
        let listed = engine.resources_in_quotas();
        let accelerators = self.configured.with_quotas(listed.iter().map(|resource| &**resource));
        if accelerators != self.accelerators {
            self.tracker.count(accelerators.clone());
            self.accelerators = accelerators;
        }
    }

    /// Writes what goes on, before this process ends.
    pub fn hand_over(&mut self, now: Time) {
        self.tracker.hand_over(now);
        for fact in self.tracker.take_facts() {
            self.historian.send(fact);
        }
    }

    fn see(&mut self, engine: &Engine, mirror: &Mirror, id: &WorkloadId, now: Time) {
        if id.unadmitted_pod().is_some() {
            return;
        }
        let charged = engine.charge_of(id);
        let Some((managed, _)) = mirror.workload(id) else {
            self.tracker.gone(id, &charged, now);
            return;
        };
        let workload = &managed.workload;
        if workload.team.is_empty() {
            self.tracker.gone(id, &charged, now);
            return;
        }
        let facts = &managed.facts;
        let kept = (workload.state == Observed::Finished).then(|| record(managed)).flatten();
        let kept = kept.as_ref().map(Admission::from);
        let admission = match &workload.state {
            Observed::Admitted(admission) | Observed::Leaving { admission, .. } => Some(admission),
            _ => kept.as_ref(),
        };
        let note = facts.eviction.as_ref().map(|note| (note, preemptor(mirror, note)));
        let subject = Subject {
            workload,
            queue: &mirror.queue_of(workload),
            eviction: note
                .as_ref()
                .map(|(note, preemptor)| (time(note.at), preemptor.as_str(), note.reason.as_str())),
            admission,
            failure: facts.failure.as_deref(),
            past: facts.past.as_ref().map(|past| Past {
                requests: &past.requests,
                ended: past.ended,
                succeeded: past.succeeded,
            }),
        };
        self.tracker.see(&subject, &charged, now);
    }

    /// A decision has taken effect.
    pub fn decided(&self, decided: &Decision, mirror: &Mirror, now: Time) {
        let workload = &decided.about;
        let runs = match &workload.state {
            Observed::Admitted(admission) | Observed::Leaving { admission, .. } => Some(admission),
            _ => None,
        };
        let label = |id: &Option<WorkloadId>| id.as_ref().map_or_else(String::new, |id| label(mirror, id));
        let (decision, rule, message) = match &decided.action {
            Action::Admit { admission, message, .. } => {
                ("Admitted", if admission.borrowed { "Borrowed" } else { "Guaranteed" }, message)
            }
            Action::Resize { cause, message, .. } => ("Resized", cause.code(), message),
            Action::Evict { reason, message, .. } => ("Evicted", reason.code(), message),
            Action::Fail { reason, message, .. } => ("Failed", reason.code(), message),
            Action::EndPod { message, .. } => ("PodEnded", "NodeUnreachable", message),
        };
        let (admission, for_workload) = match &decided.action {
            Action::Admit { admission, .. } => (Some(admission), String::new()),
            Action::Resize { admission, preemptor, .. } => (Some(admission), label(preemptor)),
            Action::Evict { preemptor, .. } => (runs, label(preemptor)),
            Action::Fail { .. } | Action::EndPod { .. } => (runs, String::new()),
        };
        let since = runs.map_or(workload.evicted.unwrap_or(workload.submitted), |run| run.at);
        let line = Line { decision, rule, for_workload: &for_workload, message };
        self.log(&line, workload, mirror, admission, now.since(since));
        let admitted_at = admission.or(runs).map_or(0, |run| run.at.0);
        let resized = matches!(decided.action, Action::Resize { .. });
        let at = if decision == "Admitted" { admitted_at } else { now.0 };
        let occasion = if resized { now.0 } else { 0 };
        self.tell(&line, workload, (admitted_at, occasion, at));
    }

    /// A pod was ended on a node that does not answer.
    pub fn ended_pod(&self, workload: &Workload, mirror: &Mirror, message: &str, now: Time) {
        let Observed::Admitted(run) = &workload.state else { return };
        let line = Line { decision: "PodEnded", rule: "NodeUnreachable", for_workload: "", message };
        self.log(&line, workload, mirror, Some(run), now.since(run.at));
        self.tell(&line, workload, (run.at.0, now.0, now.0));
    }

    fn tell(&self, line: &Line<'_>, workload: &Workload, (admitted_at, occasion, at): (i64, i64, i64)) {
        self.historian.send(Fact::Transition(Transition {
            uid: workload.id.0.to_string(),
            admitted_at,
            transition: line.decision.to_owned(),
            occasion,
            at,
            namespace: workload.namespace.to_string(),
            name: workload.name.to_string(),
            team: workload.team.to_string(),
            reason: line.rule.to_owned(),
            for_workload: line.for_workload.to_owned(),
            message: line.message.to_owned(),
            grade: DECIDED,
        }));
    }

    /// One line of the log of decisions.
    fn log(
        &self,
        line: &Line<'_>,
        workload: &Workload,
        mirror: &Mirror,
        admission: Option<&Admission>,
        lasted: Duration,
    ) {
        let pods = admission.map_or(workload.pods, |admission| admission.pods);
        let each = self.accelerators.amount(workload.requests_at(admission.and_then(|run| run.share)));
        let gpus = Amount::milli(each.as_milli().saturating_mul(i64::from(pods)));
        tracing::info!(
            target: "sluice::decisions",
            decision = line.decision,
            rule = line.rule,
            workload = %format_args!("{}/{}", workload.namespace, workload.name),
            kind = %workload.kind,
            uid = %workload.id,
            team = %workload.team,
            queue = %mirror.queue_of(workload),
            user = workload.user.as_deref(),
            pool = admission.map(|admission| &*admission.pool),
            pods,
            gpus = %gpus,
            places = admission.map(places),
            borrowed = admission.map(|admission| admission.borrowed),
            after_seconds = lasted.as_secs(),
            for_workload = Some(line.for_workload).filter(|text| !text.is_empty()),
            "{}",
            line.message
        );
    }

    /// Writes the reservations that are new.
    fn look_at_reservations(&mut self, engine: &Engine, mirror: &Mirror, now: Time) {
        if self.looked.is_some_and(|last| last.after(LOOK) > now) {
            return;
        }
        self.looked = Some(now);
        let views = engine.reservations();
        for view in views.iter().filter(|view| !self.reserved.contains(&view.owner)) {
            let Some((managed, _)) = mirror.workload(&view.owner) else { continue };
            let workload = &managed.workload;
            let nodes: Vec<&str> = view.nodes.keys().take(8).map(|node| &**node).collect();
            let what = match nodes.is_empty() {
                true => format!("Quota in pool {} is reserved", view.pool),
                false => format!("Quota in pool {} and nodes {} are reserved", view.pool, nodes.join(", ")),
            };
            let message = match view.start {
                Some(start) => format!("{what} from about {}.", crate::api::record::timestamp(start)),
                None => format!("{what}; its start cannot be predicted."),
            };
            let line =
                Line { decision: "Reserved", rule: "Reservation", for_workload: "", message: &message };
            self.log(&line, workload, mirror, None, now.since(workload.submitted));
            self.tell(&line, workload, (0, now.0, now.0));
        }
        self.reserved = views.into_iter().map(|view| view.owner).collect();
    }

    /// Writes the figures of every team, at multiples of [`SAMPLE`].
    fn sample(&mut self, engine: &Engine, now: Time) {
        let step = i64::try_from(SAMPLE.as_millis()).unwrap_or(i64::MAX);
        let at = now.0.div_euclid(step) * step;
        if !self.historian.is_on() || self.sampled == Some(at) {
            return;
        }
        let first = self.sampled.replace(at).is_none();
        // A session begins at the next multiple, with a whole view.
        if first && now.0 - at > 2_000 {
            return;
        }
        for sample in samples(engine, &self.accelerators, at) {
            self.historian.send(Fact::Sample(sample));
        }
    }
}

/// The words of a decision.
struct Line<'a> {
    decision: &'static str,
    rule: &'a str,
    for_workload: &'a str,
    message: &'a str,
}

fn label(mirror: &Mirror, id: &WorkloadId) -> String {
    mirror.subject(id).map_or_else(
        || id.to_string(),
        |(managed, _)| format!("{}/{}", managed.workload.namespace, managed.workload.name),
    )
}

fn log_end(ended: &Ended) {
    let Ended { key, head, end } = ended;
    let seconds = end.at.saturating_sub(key.admitted_at) / 1000;
    tracing::info!(
        target: "sluice::decisions",
        decision = "Ended",
        rule = if end.reason.is_empty() { end.how.name() } else { &end.reason },
        workload = %format_args!("{}/{}", head.namespace, head.name),
        kind = %head.kind,
        uid = %key.uid,
        team = %head.team,
        queue = %head.queue,
        user = Some(&*head.username).filter(|user| !user.is_empty()),
        pool = %head.pool,
        pods = head.pods,
        gpus = %Amount::milli(head.devices),
        borrowed = head.borrowed,
        after_seconds = seconds,
        for_workload = Some(&*end.for_workload).filter(|text| !text.is_empty()),
        "{} after {seconds} s",
        end.how.name()
    );
}
