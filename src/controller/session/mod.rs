//! A session: the engine and the cache, filled from one listing of the cluster, and the writes they cause.

mod ending;
mod overlong;
mod refusals;
mod repeated;
mod reports;
mod term;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::ending::Ending;
use self::refusals::{Kept, Refusals};
use super::allowance::Allowance;
use super::budget_news::BudgetNews;
use super::decisions::{
    Decision, admission_of, carried_out, eviction_of, failure_of, pod_group_of, resize_of, still_holds,
};
use super::long_waits::LongWaits;
use super::news::{note, shown};
use super::pod_groups;
use super::pod_placement::PodPlacement;
use super::preview::{Planned, Preview};
use super::queries::{Question, answer, copy};
use super::recorder::Recorder;
use super::retries::Retries;
use super::waiting::{Outlets, Waiting};
use crate::api::record::timestamp;
use crate::cluster::actuator::{Actuator, End, Look, Outcome, Purpose, Write};
use crate::cluster::catch_up::{Answer, CatchUp};
use crate::cluster::clock::now;
use crate::cluster::events::Notices;
use crate::cluster::mirror::{Change, Mirror};
use crate::cluster::place;
use crate::cluster::twins::Twins;
use crate::directory::Directory;
use crate::engine::Engine;
use crate::engine::types::Action;
use crate::engine::types::{Event, Name, PodId, Time, WorkloadId, WorkloadKind};
use crate::metrics::Metrics;
use crate::notify::Notifier;

/// The capacity of the watch channel; a full channel slows the watches, not the loop.
const CHANGES: usize = 4096;
/// The most arrivals in one batch, so that decisions are not delayed.
const BATCH: usize = 4096;
/// The most writes of one decision while its object keeps changing.
const TRIES: u32 = 10;

/// The engine with its inputs and writes.
pub struct Session {
    engine: Engine,
    mirror: Mirror,
    changes: mpsc::Receiver<Change>,
    outcomes: mpsc::UnboundedReceiver<Outcome>,
    previews: mpsc::UnboundedReceiver<Option<Planned>>,
    preview: Preview<Question>,
    first: Option<Arrival>,
    actuator: Actuator,
    /// The term in which it leads, if it does.
    term: Option<u64>,
    /// What keeps it from deciding yet in this term.
    catch_up: Option<CatchUp>,
    lost_track: bool,
    decisions: BTreeMap<WorkloadId, Decision>,
    last_number: u64,
    restores: Retries,
    releases: Retries,
    completions: Retries,
    /// The pods with a grace period that is being shortened.
    shortenings: Retries,
    /// The pods that are being ended on nodes that do not answer, with their workload.
    ending: BTreeMap<PodId, Ending>,
    placing: PodPlacement,
    /// The workloads with an admission that the API server refused.
    refusals: Refusals,
    /// The workloads with a refused eviction, and since when.
    kept: BTreeMap<WorkloadId, Kept>,
    waiting: Waiting,
    twins: Twins,
    metrics: Arc<Metrics>,
    notices: Notices,
    notifier: Notifier,
    recorder: Arc<Mutex<Recorder>>,
    budget_news: BudgetNews,
    long_waits: LongWaits,
    /// Bounds the Events about starts.
    starts: Allowance,
    /// The first decision of this term.
    leads_since: Option<Time>,
    watches: JoinSet<()>,
}

/// A message for the loop.
enum Arrival {
    Change(Change),
    Outcome(Outcome),
    Listed(Answer),
    Preview(Option<Planned>),
}

impl Session {
    /// The term in which this session leads, if it does.
    pub fn term(&self) -> Option<u64> {
        self.term
    }

    /// Whether it decides, once every first list is complete.
    pub fn decides(&self) -> bool {
        self.term.is_some() && self.catch_up.is_none()
    }

    /// Whether leadership expired during a write. The outcome of that write is unknown, so this session must not
    /// decide again, even if leadership returns.
    pub fn lost_track(&self) -> bool {
        self.lost_track
    }

    /// Whether every first list is complete.
    pub fn complete(&self) -> bool {
        self.mirror.complete()
    }

    /// The directory for the webhook, if it has changed and its lists are complete. It does not depend on the
    /// long lists of Jobs and pods.
    pub fn directory(&mut self) -> Option<Directory> {
        self.mirror.directory().filter(|directory| directory.complete)
    }

    /// Waits for the next arrival; false when every channel is closed. Safe to cancel.
    pub async fn arrived(&mut self) -> bool {
        if self.first.is_some() {
            return true;
        }
        self.first = tokio::select! {
            Some(outcome) = self.outcomes.recv() => Some(Arrival::Outcome(outcome)),
            Some(change) = self.changes.recv() => Some(Arrival::Change(change)),
            Some(planned) = self.previews.recv() => Some(Arrival::Preview(planned)),
            Some(answer) = term::next_answer(&mut self.catch_up) => Some(Arrival::Listed(answer)),
            else => None,
        };
        self.first.is_some()
    }

    /// Handles the arrivals in the channels, up to [`BATCH`]; false when there was none.
    pub fn take_waiting(&mut self) -> bool {
        let mut worked = false;
        for _ in 0..BATCH {
            let arrival = self
                .first
                .take()
                .or_else(|| self.outcomes.try_recv().ok().map(Arrival::Outcome))
                .or_else(|| self.changes.try_recv().ok().map(Arrival::Change));
            match arrival {
                Some(Arrival::Change(change)) => {
                    if let Some(catch_up) = &mut self.catch_up {
                        catch_up.note(&change);
                    }
                    let events = self.mirror.take(change);
                    self.apply(events);
                }
                Some(Arrival::Outcome(outcome)) => self.finish_write(outcome),
                Some(Arrival::Listed(answer)) => {
                    if let Some(catch_up) = &mut self.catch_up {
                        catch_up.take(answer, &self.mirror);
                    }
                }
                Some(Arrival::Preview(planned)) => {
                    for question in self.preview.finish(planned) {
                        self.give(question);
                    }
                }
                None => break,
            }
            worked = true;
        }
        worked
    }

    fn apply(&mut self, events: Vec<Event>) {
        let now = now();
        if !events.is_empty() {
            self.preview.changed();
        }
        for event in events {
            self.waiting.note(&event, now);
            self.long_waits.note(&event);
            self.engine.apply(event, now);
        }
    }

    /// When to run the next cycle if nothing arrives before.
    pub fn next_deadline(&self) -> Option<Time> {
        if !self.decides() {
            return None;
        }
        let deadlines =
            [self.restores.next(), self.releases.next(), self.placing.next(), self.waiting.next()];
        let deadlines = deadlines.into_iter().chain([self.long_waits.next(), self.budget_news.next()]);
        let deadlines = deadlines.chain([self.shortenings.next(), self.completions.next()]);
        deadlines.chain([self.twins.next(), self.engine.next_deadline()]).flatten().min()
    }

    /// Runs one scheduling cycle and starts its writes, if this session decides.
    pub fn decide(&mut self, now: Time) {
        let dirty = self.mirror.take_dirty_jobs();
        if !self.decides() {
            return;
        }
        self.twins.follow(&mut self.mirror, now);
        self.note_changed_objects(now);
        let due = self.placing.run(&self.mirror, dirty, |id| self.decisions.contains_key(id), now);
        for write in due.writes {
            self.actuator.start(write);
        }
        for pods in due.misplaced {
            self.engine.apply(Event::PodsMisplaced(pods), now);
        }
        for action in self.engine.plan(now).actions {
            if let Action::EndPod { workload, pod, message } = action {
                self.end_pod(workload, pod, message);
                continue;
            }
            let Some((managed, _)) = self.mirror.subject(action.workload()) else {
                self.failed(action.workload().clone(), "the object no longer exists".into());
                continue;
            };
            let about = Arc::clone(&managed.workload);
            let first = !managed.facts.has_eviction;
            let id = about.id.clone();
            self.retire(&id);
            self.last_number += 1;
            let decided = Decision { number: self.last_number, action, about, first, tries: 0 };
            self.decisions.insert(id.clone(), decided);
            self.write(&id, now);
        }
        self.restore(now);
        self.release(now);
        self.let_end(now);
        self.shorten(now);
        let since = *self.leads_since.get_or_insert(now);
        let to = Outlets { notices: &self.notices, metrics: &self.metrics, notifier: &self.notifier, since };
        self.waiting.report(&self.engine, &self.mirror, &to, now);
        self.long_waits.report(&self.engine, &self.mirror, &self.notifier, now);
        self.budget_news.report(&self.engine, &self.mirror, &self.notifier, now);
    }

    /// Starts the write of a decision, against the current version of the object.
    fn write(&mut self, id: &WorkloadId, now: Time) {
        let Some(decided) = self.decisions.get_mut(id) else { return };
        let Some((managed, version)) = self.mirror.subject(id) else {
            self.decisions.remove(id);
            return;
        };
        decided.tries += 1;
        let mut write = match &decided.action {
            action if managed.workload.kind == WorkloadKind::PodGroup => {
                let members: Vec<pod_groups::Member<'_>> = self.mirror.members(id).collect();
                pod_groups::write_of(&managed, action, &members, timestamp(now))
            }
            Action::Admit { admission, message, .. } => {
                let pin = place::pin(&self.mirror, &managed, admission);
                if let Some(seats) = managed.seats_by(admission.into(), pin) {
                    self.mirror.places().expect(&id.0, seats);
                }
                let may_be_there = !decided.first || decided.tries > 1;
                let group = pod_group_of(&managed, admission, may_be_there);
                let group = group.filter(|_| self.mirror.pod_groups());
                Write { group, ..admission_of(&managed, version, admission, pin, message) }
            }
            Action::Evict { preemptor, reason, message, .. } => {
                let note = note(&self.mirror, &managed.workload, preemptor.as_ref(), (*reason, now));
                eviction_of(&managed, version, &note, message, || self.mirror.pods_of(id))
            }
            Action::Resize { admission, cause, message, .. } => {
                let pods = || self.mirror.pods_by_node(id);
                resize_of(&managed, version, admission, *cause, message, pods)
            }
            // It is a write on a pod, not on the object of the workload.
            Action::EndPod { .. } => return,
            Action::Fail { reason, message, .. } => {
                failure_of(&managed, version, *reason, message, timestamp(now))
            }
        };
        write.decision = decided.number;
        // It becomes the condition of pods.
        write.message = shown(&self.mirror, &managed.workload, &write.message);
        if write.purpose == Purpose::Evict {
            self.end_in_time(&mut write, &managed.workload, now);
        }
        self.actuator.start(write);
    }

    /// Retires an earlier decision on the workload. The watch may show the effect of its write, and the engine may
    /// decide on that, before the write is answered.
    fn retire(&mut self, id: &WorkloadId) {
        let Some(before) = self.decisions.remove(id) else { return };
        if self.mirror.subject(id).is_some_and(|(managed, _)| carried_out(&before, &managed)) {
            self.report(&before);
        }
    }

    fn failed(&mut self, workload: WorkloadId, message: String) {
        tracing::debug!(%workload, message, "decision not applied");
        self.decisions.remove(&workload);
        self.engine.apply(Event::WriteFailed { workload, message }, now());
    }

    /// Handles the outcome of a write.
    fn finish_write(&mut self, outcome: Outcome) {
        let Outcome { id, purpose, decision, end } = outcome;
        if matches!(purpose, Purpose::Place | Purpose::Remake { .. }) {
            self.finish_placement(&id.0, end);
            return;
        }
        if matches!(purpose, Purpose::Restore | Purpose::Release | Purpose::Complete) {
            self.finish_retry(id, purpose, end);
            return;
        }
        if matches!(purpose, Purpose::Shorten { .. }) {
            self.finish_shortening(&id.0, end);
            return;
        }
        if purpose == Purpose::EndPod {
            self.finish_end(&PodId(id.0), end);
            return;
        }
        let superseded = self.decisions.get(&id).is_none_or(|decided| decided.number != decision);
        // A second write of the same decision expects the places again.
        if !matches!(end, End::Done(_)) {
            self.mirror.places().settled(&id.0);
        }
        match end {
            // A superseded decision contributes only the newer object.
            End::Moved(look) if superseded => self.observe(look),
            End::Gone | End::Refused(_) | End::NotNow(_) if superseded => {}
            End::Done(look) => {
                let decided = if superseded { None } else { self.decisions.remove(&id) };
                if let Some(decided) = decided {
                    self.report(&decided);
                }
                self.observe(look);
                self.mirror.places().settled(&id.0);
            }
            End::Moved(look) => {
                self.observe(look);
                self.resolve_conflict(id);
            }
            End::Gone => {
                self.decisions.remove(&id);
            }
            End::Refused(_) | End::NotNow(_) => self.refused(id, purpose, end),
            End::Abandoned => {
                self.lost_track = true;
                self.failed(id, "this replica is no longer the leader".into());
            }
        }
    }

    /// Handles the outcome of a write on a pod of a Job.
    fn finish_placement(&mut self, pod: &Name, end: End) {
        match end {
            End::Done(look) | End::Moved(look) => {
                self.observe(look);
                self.placing.ended(pod);
            }
            End::Gone => self.placing.ended(pod),
            End::Refused(message) | End::NotNow(message) => {
                tracing::warn!(%pod, message, "the API server refused to place a pod");
                self.placing.failed(pod, now());
            }
            End::Abandoned => {
                self.lost_track = true;
                self.placing.failed(pod, now());
            }
        }
    }

    /// Caches the object in a write's answer, as if the watch had sent it.
    fn observe(&mut self, look: Look) {
        let events = match look {
            Look::Job(seen) => self.mirror.take_own_job(seen),
            Look::Pod(seen) => self.mirror.take_own_pod(seen),
            Look::Other(kind, seen) => self.mirror.take_own_custom(&kind, seen),
            Look::Pods(seen) => seen.into_iter().flat_map(|seen| self.mirror.take_own_pod(seen)).collect(),
        };
        self.apply(events);
    }

    /// Handles a conflict: the object has changed since the decision. If the change is the decision's own effect,
    /// the decision is done; if the decision still holds, it is written again; else it is reverted.
    fn resolve_conflict(&mut self, id: WorkloadId) {
        let Some(decided) = self.decisions.get(&id) else { return };
        let Some((managed, _)) = self.mirror.subject(&id) else {
            self.decisions.remove(&id);
            return;
        };
        if carried_out(decided, &managed) {
            if let Some(decided) = self.decisions.remove(&id) {
                self.report(&decided);
            }
        } else if decided.tries < TRIES && still_holds(decided, &managed) {
            self.write(&id, now());
        } else {
            self.failed(id, "the object has changed since the decision".into());
        }
    }

    /// Answers a question from the current state; unless it decides, a question about workloads waits for a plan.
    pub fn answer(&mut self, question: Question) {
        let question = if !self.decides() && question.asks_for_verdicts() {
            self.preview.hold(question, || copy(&self.engine, &self.mirror))
        } else {
            Some(question)
        };
        if let Some(question) = question {
            self.give(question);
        }
    }

    /// Answers the questions that wait for a plan without it.
    pub fn answer_held(&mut self) {
        for question in self.preview.give_up() {
            self.give(question);
        }
    }

    fn give(&self, question: Question) {
        let preview = (!self.decides()).then_some(&self.preview);
        answer(question, &self.engine, &self.mirror, preview);
    }

    /// Tells the history and the log of decisions what has changed.
    pub fn record(&mut self, now: Time) {
        let leads = self.decides();
        let mut recorder = self.recorder.lock().unwrap_or_else(PoisonError::into_inner);
        recorder.follow(&mut self.engine, &self.mirror, leads, now);
    }

    /// Writes what goes on to the history, before this process ends.
    pub fn hand_over(&self, now: Time) {
        self.recorder().hand_over(now);
    }

    fn recorder(&self) -> MutexGuard<'_, Recorder> {
        self.recorder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the writes in flight; false when the outcome of some is unknown.
    pub async fn finish(self, at_most: Duration) -> bool {
        self.actuator.finish(at_most).await
    }
}

#[cfg(test)]
mod tests;
