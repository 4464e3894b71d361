//! One reading of the cluster: the engine, the mirror, and the writes that follow from them.

mod told;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Controller;
use super::decided::{
    Decided, admission_of, carried_out, eviction_of, failure_of, pod_group_of, record, resize_of,
    still_holds, write_on,
};
use super::grouped;
use super::placing::Placing;
use super::questions::{Question, answer};
use super::refusals::Refusals;
use super::restores::Restores;
use crate::api::record::{Eviction, timestamp};
use crate::cluster::actuator::{Actuator, End, Look, Outcome, Purpose, Task, Write};
use crate::cluster::clock::now;
use crate::cluster::events::Notices;
use crate::cluster::mirror::{Change, Mirror};
use crate::cluster::place;
use crate::cluster::target::Operation;
use crate::cluster::watch;
use crate::directory::Directory;
use crate::engine::Engine;
use crate::engine::types::Action;
use crate::engine::types::{Event, Name, Time, WorkloadId, WorkloadKind};
use crate::metrics::Metrics;

/// How many messages of the watches may wait; a full channel slows the watches down, not the loop.
const CHANGES: usize = 4096;
/// How much is taken along at once, so that decisions come in between.
const BATCH: usize = 4096;
/// How often a decision is written again when the object keeps moving.
const TRIES: u32 = 10;

/// The engine with all that keeps it informed and obeyed.
pub struct Session {
    engine: Engine,
    mirror: Mirror,
    changes: mpsc::Receiver<Change>,
    outcomes: mpsc::UnboundedReceiver<Outcome>,
    first: Option<News>,
    actuator: Actuator,
    leads: bool,
    lost_track: bool,
    decided: BTreeMap<WorkloadId, Decided>,
    decisions: u64,
    restores: Restores,
    releases: Restores,
    placing: Placing,
    refusals: Refusals,
    metrics: Arc<Metrics>,
    notices: Notices,
    _watches: JoinSet<()>,
}

/// Something that has arrived.
enum News {
    Change(Change),
    Outcome(Outcome),
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
        // While the cluster is read anew, the webhook goes on with what was known before.
        let places = controller.directory.load().places.clone();
        places.expect_nothing();
        Self {
            engine: Engine::with_settings(controller.settings),
            mirror: Mirror::new(controller.kinds.clone(), places),
            changes,
            outcomes,
            first: None,
            actuator,
            leads,
            lost_track: false,
            decided: BTreeMap::new(),
            decisions: 0,
            restores: Restores::default(),
            releases: Restores::default(),
            placing: Placing::default(),
            refusals: Refusals::default(),
            metrics: Arc::clone(&controller.metrics),
            notices: controller.notices.clone(),
            _watches: watch::start(&controller.client, &controller.kinds, &changes_in),
        }
    }

    /// Whether this session decides.
    pub fn leads(&self) -> bool {
        self.leads
    }

    /// Whether the claim ran out under a write: nobody here knows what became of it, so this session
    /// must not go on deciding, not even if the lead is there again.
    pub fn lost_track(&self) -> bool {
        self.lost_track
    }

    /// Decides no more; what is under way ends with the claim.
    pub fn stand_down(&mut self) {
        self.leads = false;
        self.lost_track = false;
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
            self.refusals.note(&event, now);
            self.engine.apply(event, now);
        }
    }

    /// When to look again although nothing arrives.
    pub fn next_deadline(&self) -> Option<Time> {
        if !self.leads {
            return None;
        }
        let upkeep = [self.restores.next(), self.releases.next(), self.placing.next(), self.refusals.next()];
        upkeep.into_iter().chain([self.engine.next_deadline()]).flatten().min()
    }

    /// Decides and acts, if this session leads.
    pub fn decide(&mut self, now: Time) {
        let stirred = self.mirror.take_stirred();
        if !self.leads {
            return;
        }
        let due = self.placing.run(&self.mirror, stirred, |id| self.decided.contains_key(id), now);
        for write in due.writes {
            self.actuator.start(write);
        }
        for astray in due.astray {
            self.engine.apply(Event::PodsMisplaced(astray), now);
        }
        for action in self.engine.plan(now).actions {
            let Some((managed, _)) = self.mirror.workload(action.workload()) else {
                self.failed(action.workload().clone(), "the object is gone".into());
                continue;
            };
            let about = managed.workload.clone();
            let first = !managed.facts.has_eviction;
            let id = about.id.clone();
            self.overtaken(&id);
            self.decisions += 1;
            let decided = Decided { number: self.decisions, action, about, first, tries: 0 };
            self.decided.insert(id.clone(), decided);
            self.write(&id, now);
        }
        self.restore(now);
        self.release(now);
        self.refusals.tell(&self.engine, &self.mirror, &self.notices, now);
    }

    /// Starts the write of a decision on the object as it is now.
    fn write(&mut self, id: &WorkloadId, now: Time) {
        let Some(decided) = self.decided.get_mut(id) else { return };
        let Some((managed, version)) = self.mirror.workload(id) else {
            self.decided.remove(id);
            return;
        };
        decided.tries += 1;
        let note = |preemptor: Option<&WorkloadId>, reason: &str| {
            let label = |id: &WorkloadId| {
                self.mirror.workload(id).map_or_else(
                    || id.to_string(),
                    |(managed, _)| format!("{}/{}", managed.workload.namespace, managed.workload.name),
                )
            };
            let preemptor = preemptor.map(label).unwrap_or_default();
            Eviction { at: timestamp(now), preemptor, reason: reason.to_owned() }
        };
        let mut write = match &decided.action {
            action if managed.workload.kind == WorkloadKind::PodGroup => {
                let members: Vec<grouped::Member<'_>> = self.mirror.members(id).collect();
                grouped::write_of(managed, action, &members, timestamp(now))
            }
            Action::Admit { admission, message, .. } => {
                let pin = place::pin(&self.mirror, managed, admission);
                if let Some(seats) = managed.seats_by(admission.into(), pin) {
                    self.mirror.places().expect(&id.0, seats);
                }
                let may_be_there = !decided.first || decided.tries > 1;
                let group = pod_group_of(managed, admission, may_be_there);
                let group = group.filter(|_| self.mirror.pod_groups());
                Write { group, ..admission_of(managed, version, admission, pin, message) }
            }
            Action::Evict { preemptor, reason, message, .. } => {
                let note = note(preemptor.as_ref(), reason.code());
                eviction_of(managed, version, &note, message, || self.mirror.pods_of(id))
            }
            Action::Resize { admission, message, .. } => {
                resize_of(managed, version, admission, message, || self.mirror.pods_by_node(id))
            }
            Action::Fail { reason, message, .. } => {
                failure_of(managed, version, *reason, message, timestamp(now))
            }
        };
        write.decision = decided.number;
        self.actuator.start(write);
    }

    /// The watch may show what a decision has done, and the engine decide on that, before the answer
    /// to its write is there.
    fn overtaken(&mut self, id: &WorkloadId) {
        let Some(before) = self.decided.remove(id) else { return };
        if self.mirror.workload(id).is_some_and(|(managed, _)| carried_out(&before, managed)) {
            self.done(&before);
        }
    }

    fn failed(&mut self, workload: WorkloadId, message: String) {
        tracing::debug!(%workload, message, "a decision was not carried out");
        self.decided.remove(&workload);
        self.engine.apply(Event::WriteFailed { workload, message }, now());
    }

    /// Takes note of how a write ended.
    fn settle(&mut self, outcome: Outcome) {
        let Outcome { id, purpose, decision, end } = outcome;
        if matches!(purpose, Purpose::Place | Purpose::Remake { .. }) {
            self.placed(&id.0, end);
            return;
        }
        if matches!(purpose, Purpose::Restore | Purpose::Release) {
            self.settle_upkeep(id, purpose, end);
            return;
        }
        let overtaken = self.decided.get(&id).is_none_or(|decided| decided.number != decision);
        // Before it is written again, if it is.
        if !matches!(end, End::Done(_)) {
            self.mirror.places().settled(&id.0);
        }
        match end {
            // Of a decision that another has followed, or none, only the object is of interest.
            End::Moved(look) if overtaken => self.see(look),
            End::Gone | End::Refused(_) if overtaken => {}
            End::Done(look) => {
                let decided = if overtaken { None } else { self.decided.remove(&id) };
                if let Some(decided) = decided {
                    self.done(&decided);
                }
                self.see(look);
                self.mirror.places().settled(&id.0);
            }
            End::Moved(look) => {
                self.see(look);
                self.moved(id);
            }
            End::Gone => {
                self.decided.remove(&id);
            }
            End::Refused(message) => {
                tracing::warn!(workload = %id, ?purpose, message, "the API server refused a write");
                if purpose == Purpose::Evict {
                    self.tell_blocked(&id, &message);
                }
                self.failed(id, message);
            }
            End::Abandoned => {
                self.lost_track = true;
                self.failed(id, "another replica leads".into());
            }
        }
    }

    /// Takes note of how a write ended that nobody had to decide: it is made again for as long as it is of
    /// use.
    fn settle_upkeep(&mut self, id: WorkloadId, purpose: Purpose, end: End) {
        let mut ended = false;
        match end {
            End::Done(look) => {
                ended = true;
                self.see(look);
            }
            End::Moved(look) => self.see(look),
            End::Gone => ended = true,
            End::Refused(message) => {
                tracing::warn!(workload = %id, ?purpose, message, "the API server refused a write");
            }
            End::Abandoned => self.lost_track = true,
        }
        let upkeep = if purpose == Purpose::Restore { &mut self.restores } else { &mut self.releases };
        // Of a group some pods may have been left out.
        if ended && self.mirror.unreached(&id).next().is_none() {
            upkeep.ended(&id);
        } else {
            upkeep.failed(&id, now());
        }
    }

    /// Takes note of how a write on a pod of a Job ended.
    fn placed(&mut self, pod: &Name, end: End) {
        match end {
            End::Done(look) | End::Moved(look) => {
                self.see(look);
                self.placing.ended(pod);
            }
            End::Gone => self.placing.ended(pod),
            End::Refused(message) => {
                tracing::warn!(%pod, message, "the API server refused to let a pod go to its place");
                self.placing.failed(pod, now());
            }
            End::Abandoned => {
                self.lost_track = true;
                self.placing.failed(pod, now());
            }
        }
    }

    /// Takes an object that a write brought back as if the watch had.
    fn see(&mut self, look: Look) {
        let events = match look {
            Look::Job(seen) => self.mirror.take_own_job(seen),
            Look::Pod(seen) => self.mirror.take_own_pod(seen),
            Look::Other(kind, seen) => self.mirror.take_own_other(&kind, seen),
            Look::Pods(seen) => seen.into_iter().flat_map(|seen| self.mirror.take_own_pod(seen)).collect(),
        };
        self.tell(events);
    }

    /// The object of a decision is another than it was decided on: either that is the decision's own
    /// doing, or it is written again if it still holds, or it is taken back.
    fn moved(&mut self, id: WorkloadId) {
        let Some(decided) = self.decided.get(&id) else { return };
        let Some((managed, _)) = self.mirror.workload(&id) else {
            self.decided.remove(&id);
            return;
        };
        if carried_out(decided, managed) {
            if let Some(decided) = self.decided.remove(&id) {
                self.done(&decided);
            }
        } else if decided.tries < TRIES && still_holds(decided, managed) {
            self.write(&id, now());
        } else {
            self.failed(id, "the object has changed since the decision".into());
        }
    }

    /// Gives stopped Jobs of which nothing is left their template back.
    fn restore(&mut self, now: Time) {
        let wanted =
            self.mirror.restorable(now).filter(|id| !self.decided.contains_key(*id)).cloned().collect();
        for id in self.restores.due(&wanted, now) {
            let Some((managed, version)) = self.mirror.workload(&id) else { continue };
            let task = Task::Single(Operation::Patch(managed.restore(version)));
            let write = write_on(managed, Purpose::Restore, task, String::new());
            self.actuator.start(write);
            self.restores.started(id);
        }
    }

    /// Lets those pods of admitted groups run that their admission has not reached: one was refused, or
    /// whoever admitted them did not come to the end.
    fn release(&mut self, now: Time) {
        let all = self.mirror.half_released();
        let wanted = all.filter(|id| !self.decided.contains_key(*id)).cloned().collect();
        for id in self.releases.due(&wanted, now) {
            let Some((managed, _)) = self.mirror.workload(&id) else { continue };
            let Some(record) = record(managed) else { continue };
            let unreached: Vec<grouped::Member<'_>> = self.mirror.unreached(&id).collect();
            self.actuator.start(grouped::release_of(managed, &unreached, &record));
            self.releases.started(id);
        }
    }

    /// Answers a question from what is known now.
    pub fn answer(&self, question: Question) {
        answer(question, &self.engine, &self.mirror, self.leads);
    }

    /// Waits for the writes under way; false when what became of some is not known.
    pub async fn finish(self, at_most: Duration) -> bool {
        self.actuator.finish(at_most).await
    }
}
