//! One reading of the cluster: the engine, the mirror, and the writes that follow from them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Controller;
use super::decided::{Decided, admission_of, eviction_of, places, refuses, still_holds, write_on};
use super::questions::{Question, answer};
use crate::api::record::{Eviction, timestamp};
use crate::cluster::actuator::{Actuator, Failure, Outcome, Purpose, Written};
use crate::cluster::events::{Notice, Notices, reference};
use crate::cluster::mirror::{Change, Mirror};
use crate::cluster::patch;
use crate::cluster::watch::{self, now};
use crate::directory::Directory;
use crate::engine::Engine;
use crate::engine::decision::{Action, Reason};
use crate::engine::model::{Event, Observed, Time, WorkloadId};
use crate::metrics::Metrics;

/// How many messages of the watches may wait; a full channel slows the watches down, not the loop.
const CHANGES: usize = 4096;
/// How much is taken along at once, so that decisions come in between.
const BATCH: usize = 4096;
/// How long a decision that met a conflict waits to see the newer object.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a decision is written again when the object keeps moving.
const TRIES: u32 = 10;
/// How many refusals are looked for at once.
const LOOKS: usize = 256;
/// How long after a change of teams or nodes the refusals are looked for anew.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The engine with all that keeps it informed and obeyed.
pub struct Session {
    engine: Engine,
    mirror: Mirror,
    changes: mpsc::Receiver<Change>,
    outcomes: mpsc::UnboundedReceiver<Outcome>,
    first: Option<News>,
    actuator: Actuator,
    leads: bool,
    decided: BTreeMap<WorkloadId, Decided>,
    conflicts: BTreeMap<WorkloadId, Time>,
    restores: BTreeMap<WorkloadId, Restore>,
    unexplained: BTreeSet<WorkloadId>,
    refused: BTreeMap<WorkloadId, Reason>,
    look_again: Option<Time>,
    metrics: Arc<Metrics>,
    notices: Notices,
    _watches: JoinSet<()>,
}

/// Something that has arrived.
enum News {
    Change(Change),
    Outcome(Outcome),
}

/// A restoration that is being written, or waits to be tried again.
#[derive(Default)]
struct Restore {
    under_way: bool,
    failures: u32,
    not_before: Time,
}

impl Session {
    /// Reads the cluster from scratch.
    pub fn begin(controller: &Controller, leads: bool) -> Self {
        let (changes_in, changes) = mpsc::channel(CHANGES);
        let (outcomes_in, outcomes) = mpsc::unbounded_channel();
        let actuator = Actuator::new(
            controller.client.clone(),
            controller.claim.clone(),
            Arc::clone(&controller.metrics),
            Arc::clone(&controller.busy),
            outcomes_in,
        );
        Self {
            engine: Engine::new(),
            mirror: Mirror::default(),
            changes,
            outcomes,
            first: None,
            actuator,
            leads,
            decided: BTreeMap::new(),
            conflicts: BTreeMap::new(),
            restores: BTreeMap::new(),
            unexplained: BTreeSet::new(),
            refused: BTreeMap::new(),
            look_again: None,
            metrics: Arc::clone(&controller.metrics),
            notices: controller.notices.clone(),
            _watches: watch::start(&controller.client, &changes_in),
        }
    }

    /// Whether this session decides.
    pub fn leads(&self) -> bool {
        self.leads
    }

    /// Decides no more; what is under way is given up by the claim.
    pub fn stand_down(&mut self) {
        self.leads = false;
    }

    /// Whether every first list has been read.
    pub fn complete(&self) -> bool {
        self.mirror.complete()
    }

    /// The directory for the webhook if it has changed. A half-read one never replaces a whole one,
    /// but the lists it rests on are short, and it need not wait for those of Jobs and pods.
    pub fn directory(&mut self) -> Option<Directory> {
        self.mirror.directory().filter(|directory| directory.complete)
    }

    /// Waits until something arrives; false when nothing can any more. It may be abandoned.
    pub async fn arrived(&mut self) -> bool {
        if self.first.is_some() {
            return true;
        }
        self.first = tokio::select! {
            Some(outcome) = self.outcomes.recv() => Some(News::Outcome(outcome)),
            Some(change) = self.changes.recv() => Some(News::Change(change)),
            else => None,
        };
        self.first.is_some()
    }

    /// Takes note of all that has arrived; false when it was nothing.
    pub fn take_waiting(&mut self) -> bool {
        let mut worked = false;
        for _ in 0..BATCH {
            let news = self
                .first
                .take()
                .or_else(|| self.outcomes.try_recv().ok().map(News::Outcome))
                .or_else(|| self.changes.try_recv().ok().map(News::Change));
            match news {
                Some(News::Change(change)) => {
                    let events = self.mirror.take(change);
                    self.tell(events);
                }
                Some(News::Outcome(outcome)) => self.settle(outcome),
                None => break,
            }
            worked = true;
        }
        worked
    }

    fn tell(&mut self, events: Vec<Event>) {
        let now = now();
        for event in events {
            match &event {
                Event::WorkloadApplied(workload) if workload.state == Observed::Queued => {
                    self.unexplained.insert(workload.id.clone());
                }
                Event::WorkloadRemoved(id) => {
                    self.unexplained.remove(id);
                    self.refused.remove(id);
                }
                Event::TeamApplied(_) | Event::TeamRemoved(_) | Event::NodeApplied(_) => {
                    self.look_again.get_or_insert(now.after(LOOK_AGAIN));
                }
                _ => {}
            }
            self.engine.apply(event, now);
        }
    }

    /// When to look again although nothing arrives.
    pub fn next_deadline(&self) -> Option<Time> {
        if !self.leads {
            return None;
        }
        let restores =
            self.restores.values().filter(|r| !r.under_way && r.failures > 0).map(|r| r.not_before);
        let conflicts = self.conflicts.values().copied();
        let engine = self.engine.next_deadline();
        restores.chain(conflicts).chain(engine).chain(self.look_again).min()
    }

    /// Decides and acts, if this session leads.
    pub fn decide(&mut self, now: Time) {
        if !self.leads {
            return;
        }
        self.try_again(now);
        for action in self.engine.plan(now).actions {
            let Some((managed, _)) = self.mirror.workload(action.workload()) else {
                self.failed(action.workload().clone(), "the object is gone".into());
                continue;
            };
            let about = managed.workload.clone();
            let id = about.id.clone();
            self.decided.insert(id.clone(), Decided { action, about, version: 0, tries: 0 });
            self.write(&id, now);
        }
        self.restore(now);
        self.explain(now);
    }

    /// Starts the write of a decision on the object as it is now.
    fn write(&mut self, id: &WorkloadId, now: Time) {
        let Some(decided) = self.decided.get_mut(id) else { return };
        let Some((managed, version)) = self.mirror.workload(id) else {
            self.decided.remove(id);
            return;
        };
        decided.version = version;
        decided.tries += 1;
        let write = match &decided.action {
            Action::Admit { admission, message, .. } => admission_of(managed, version, admission, message),
            Action::Evict { claimant, reason, message, .. } => {
                let claimant = self.mirror.workload(claimant).map_or_else(
                    || claimant.to_string(),
                    |(managed, _)| format!("{}/{}", managed.workload.namespace, managed.workload.name),
                );
                let note = Eviction { at: timestamp(now), claimant, reason: reason.code().into() };
                eviction_of(managed, version, &note, message, || self.mirror.pods_of(id))
            }
        };
        self.actuator.start(write);
    }

    /// Writes decisions again that met a conflict, once the newer object is known and they still hold.
    fn try_again(&mut self, now: Time) {
        if self.conflicts.is_empty() {
            return;
        }
        for (id, until) in std::mem::take(&mut self.conflicts) {
            let Some(decided) = self.decided.get(&id) else { continue };
            match self.mirror.workload(&id) {
                None => {
                    self.decided.remove(&id);
                }
                Some((managed, version)) if version > decided.version => {
                    if decided.tries < TRIES && still_holds(decided, managed) {
                        self.write(&id, now);
                    } else {
                        self.failed(id, "the object has changed since the decision".into());
                    }
                }
                Some(_) if now >= until => {
                    self.failed(id, "the object has changed and the change has not been seen".into());
                }
                Some(_) => {
                    self.conflicts.insert(id, until);
                }
            }
        }
    }

    fn failed(&mut self, workload: WorkloadId, message: String) {
        tracing::debug!(%workload, message, "a decision was not carried out");
        self.decided.remove(&workload);
        self.engine.apply(Event::WriteFailed { workload, message }, now());
    }

    /// Takes note of how a write ended.
    fn settle(&mut self, outcome: Outcome) {
        let Outcome { id, purpose, result } = outcome;
        match result {
            Ok(written) => {
                if purpose == Purpose::Restore {
                    self.restores.remove(&id);
                } else if let Some(decided) = self.decided.remove(&id) {
                    self.done(&decided);
                }
                let events = match written {
                    Written::Job(seen) => self.mirror.take_own_job(seen),
                    Written::Pod(seen) => self.mirror.take_own_pod(seen),
                    Written::Deleted => Vec::new(),
                };
                self.tell(events);
            }
            Err(failure) if purpose == Purpose::Restore => self.restore_failed(&id, &failure),
            Err(Failure::Gone) => {
                self.decided.remove(&id);
            }
            Err(Failure::Conflict) => {
                self.conflicts.insert(id, now().after(PATIENCE));
            }
            Err(Failure::Refused(message)) => {
                tracing::warn!(workload = %id, message, "the API server refused a decision");
                self.failed(id, message);
            }
            Err(Failure::Unanswered) => self.failed(id, "the API server did not answer in time".into()),
            Err(Failure::NotLeading) => self.failed(id, "another replica leads".into()),
        }
    }

    /// Counts and tells a decision that has been carried out.
    fn done(&mut self, decided: &Decided) {
        let workload = &decided.about;
        let team = &*workload.team;
        let queue = self.mirror.queue_of(workload);
        let about = reference(workload);
        match &decided.action {
            Action::Admit { admission, message, .. } => {
                let kind = if admission.borrowed { "borrowed" } else { "guaranteed" };
                self.metrics.admitted.with_label_values(&[team, &*queue, kind]).inc();
                let known = self.mirror.workload(&workload.id);
                if known.is_some_and(|(managed, _)| !managed.facts.has_eviction) {
                    let waited = now().since(workload.submitted).as_secs_f64();
                    self.metrics.time_to_start.with_label_values(&[team, &*queue]).observe(waited);
                }
                let note = format!("{} in pool {} ({kind}): {message}", places(admission), admission.pool);
                self.notices.publish(Notice {
                    about,
                    warning: false,
                    reason: "Admitted",
                    action: "Admit",
                    note,
                });
            }
            Action::Evict { reason, message, .. } => {
                self.metrics.evicted.with_label_values(&[team, reason.code()]).inc();
                if let Observed::Admitted(admission) = &workload.state {
                    let ran = now().since(admission.at).as_secs_f64();
                    self.metrics.evicted_after.with_label_values(&[team]).observe(ran);
                }
                let note = format!("{}: {message}", reason.code());
                self.notices.publish(Notice {
                    about,
                    warning: true,
                    reason: "Evicted",
                    action: "Evict",
                    note,
                });
            }
        }
    }

    /// Gives stopped Jobs of which nothing is left their template back.
    fn restore(&mut self, now: Time) {
        let due: Vec<WorkloadId> = self
            .mirror
            .restorable()
            .filter(|id| !self.decided.contains_key(*id))
            .filter(|id| self.restores.get(*id).is_none_or(|r| !r.under_way && r.not_before <= now))
            .cloned()
            .collect();
        for id in due {
            let Some((managed, version)) = self.mirror.workload(&id) else { continue };
            let patch = Some(patch::restore(&managed.facts, version));
            let write = write_on(managed, Purpose::Restore, patch, String::new());
            self.actuator.start(write);
            self.restores.entry(id).or_default().under_way = true;
        }
        self.restores.retain(|id, _| self.mirror.workload(id).is_some());
    }

    fn restore_failed(&mut self, id: &WorkloadId, failure: &Failure) {
        let (first, longest) = (Duration::from_millis(200), Duration::from_secs(60));
        let Some(restore) = self.restores.get_mut(id) else { return };
        restore.under_way = false;
        if let Failure::Refused(message) = failure {
            tracing::warn!(workload = %id, message, "a template could not be restored yet");
        }
        let pause = first.saturating_mul(1 << restore.failures.min(16)).min(longest);
        restore.failures += 1;
        restore.not_before = now().after(pause);
    }

    /// Tells the owners of waiting workloads that cannot start as things are, once for each reason.
    fn explain(&mut self, now: Time) {
        if self.look_again.is_some_and(|at| at <= now) {
            self.look_again = None;
            let queued = self.engine.workloads().filter(|workload| workload.state == Observed::Queued);
            self.unexplained.extend(queued.map(|workload| workload.id.clone()));
        }
        for _ in 0..LOOKS {
            let Some(id) = self.unexplained.pop_first() else { break };
            let Some(verdict) = self.engine.verdict(&id) else { continue };
            if !refuses(verdict.reason) {
                self.refused.remove(&id);
                continue;
            }
            if self.refused.insert(id.clone(), verdict.reason) == Some(verdict.reason) {
                continue;
            }
            if let Some((managed, _)) = self.mirror.workload(&id) {
                self.notices.publish(Notice {
                    about: reference(&managed.workload),
                    warning: true,
                    reason: "Refused",
                    action: "Hold",
                    note: format!("{}: {}", verdict.reason.code(), verdict.message),
                });
            }
        }
    }

    /// Answers a question from what is known now.
    pub fn answer(&self, question: Question) {
        answer(question, &self.engine, &self.mirror, self.leads);
    }

    /// Waits for the writes under way.
    pub async fn finish(self, at_most: Duration) {
        self.actuator.finish(at_most).await;
    }
}
