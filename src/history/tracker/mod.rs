//! Turns what this process sees of workloads into facts: runs begin, are charged other amounts, and end.

mod subject;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use self::subject::{Past, Subject};
use self::subject::{Stop, ending, happened, head, key_of, stop};
use super::record::{DEVICES, End, Ending, FILLED, Fact, Head, RunKey, SEEN, Segment, Sighting, Transition};
use crate::engine::types::amount::{Amount, ResourceList};
use crate::engine::types::{Admission, CURRENCY, Observed, Time, WorkloadId};
use crate::view::Accelerators;

/// How often a run that goes on is written, so that little of it depends on its end being seen.
const CHECKPOINT: Duration = Duration::from_secs(300);
/// The most runs that are written for that at once.
const AT_ONCE: usize = 64;
/// The most segments of one sighting, and the most sightings of a run by one process.
const SEGMENTS: usize = 256;
const PARTS: i64 = 1 << 11;

/// A run that has ended, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub key: RunKey,
    /// The run.
    pub head: Head,
    /// The end.
    pub end: End,
}

/// The runs that go on.
#[derive(Debug)]
pub struct Tracker {
    session: i64,
    accelerators: Accelerators,
    /// Since when every admission is seen at once.
    since: Option<i64>,
    open: BTreeMap<WorkloadId, Open>,
    /// When to write each of them next.
    due: BTreeSet<(i64, WorkloadId)>,
    /// The workloads that do not run.
    waiting: BTreeMap<WorkloadId, Wait>,
    /// The runs with an end that was written, of objects that are still there.
    closed: BTreeMap<WorkloadId, i64>,
    facts: Vec<Fact>,
    ended: Vec<Ended>,
}

/// The wait of a workload.
#[derive(Clone, Copy, Debug)]
struct Wait {
    /// Since when it waits.
    since: i64,
    /// Its user holds it, so its wait begins once that ends.
    held: bool,
}

/// A run that goes on.
#[derive(Debug)]
struct Open {
    head: Head,
    admitted_at: i64,
    /// Beyond [`SEGMENTS`] the run goes on as if another process saw the rest.
    part: i64,
    seen_from: i64,
    segments: Vec<Segment>,
    from: i64,
    amounts: BTreeMap<String, i64>,
    due: i64,
    stop: Option<Stop>,
}

impl Tracker {
    /// Another list of resources counts as GPUs from now on.
    pub fn count(&mut self, accelerators: Accelerators) {
        self.accelerators = accelerators;
    }

    /// A tracker that has seen nothing yet. The number of the session is unique among all processes.
    #[must_use]
    pub fn new(session: i64, accelerators: Accelerators) -> Self {
        Self {
            session,
            accelerators,
            since: None,
            open: BTreeMap::new(),
            due: BTreeSet::new(),
            waiting: BTreeMap::new(),
            closed: BTreeMap::new(),
            facts: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Every object has been seen by now. Runs of which none is left have ended.
    pub fn complete(&mut self, is_there: impl Fn(&WorkloadId) -> bool, now: Time) {
        self.since.get_or_insert(now.0);
        let gone = self.open.keys().chain(self.waiting.keys()).filter(|id| !is_there(id)).cloned();
        for id in gone.collect::<BTreeSet<_>>() {
            self.gone(&id, &ResourceList::new(), now);
        }
        self.closed.retain(|id, _| is_there(id));
    }

    /// The facts since the last call.
    pub fn take_facts(&mut self) -> Vec<Fact> {
        std::mem::take(&mut self.facts)
    }

    /// The runs that ended since the last call.
    pub fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// Forgets which ends were written, so that they are written again as far as objects show them.
    pub fn write_again(&mut self) {
        self.closed.clear();
    }

    /// A workload has changed, or what it is charged.
    pub fn see(&mut self, subject: &Subject<'_>, charged: &ResourceList, now: Time) {
        let id = &subject.workload.id;
        match &subject.workload.state {
            Observed::OnHold | Observed::Unready(_) | Observed::Queued => {
                let has_run = self.open.contains_key(id);
                self.close(id, None, now);
                self.closed.remove(id);
                self.wait(subject, has_run, now);
            }
            Observed::Admitted(admission) => {
                self.run(subject, admission, charged, now);
            }
            Observed::Leaving { admission, since, .. } => {
                self.run(subject, admission, charged, now);
                let stop = stop(subject, admission, *since);
                self.stop(subject, admission, stop, now);
                if charged.is_empty() {
                    self.close(id, None, now);
                }
            }
            Observed::Finished => self.finish(subject, charged, now),
        }
    }

    /// The object of a workload is gone; its last pods may still be charged.
    pub fn gone(&mut self, id: &WorkloadId, charged: &ResourceList, now: Time) {
        self.waiting.remove(id);
        let deleted = || Stop {
            how: Ending::Deleted,
            reason: String::new(),
            for_workload: String::new(),
            at: None,
            saved_at: None,
        };
        if let Some(open) = self.open.get_mut(id) {
            open.stop.get_or_insert_with(deleted);
        }
        if charged.is_empty() {
            self.close(id, None, now);
            self.closed.remove(id);
        } else {
            self.charge(id, charged, now);
        }
    }

    /// Writes runs that go on and were not written for long.
    pub fn checkpoint(&mut self, now: Time) {
        for _ in 0..AT_ONCE {
            let Some((_, id)) = self.due.first().filter(|(at, _)| *at <= now.0).cloned() else { return };
            self.write(&id, now);
        }
    }

    /// Writes all runs that go on, before the process ends.
    pub fn hand_over(&mut self, now: Time) {
        for id in self.open.keys().cloned().collect::<Vec<_>>() {
            self.write(&id, now);
        }
    }

    /// It does not run. Its wait begins with its submission, its last eviction, or now if its user has stopped or held it until now.
    fn wait(&mut self, subject: &Subject<'_>, has_run: bool, now: Time) {
        let workload = subject.workload;
        let known = self.waiting.get(&workload.id).copied();
        let held = matches!(workload.state, Observed::OnHold);
        let queued = workload.evicted.map_or(workload.submitted, |at| at.max(workload.submitted)).0;
        let since = match known {
            Some(known) if !known.held => known.since.max(queued),
            // An eviction has its time in its record; a stop by the user has none.
            None if !held && (workload.evicted.is_some() || !has_run) => queued,
            _ => now.0.max(queued),
        };
        let is_new = self.waiting.insert(workload.id.clone(), Wait { since, held }).is_none();
        if is_new && workload.evicted.is_none() {
            let submitted = happened(subject, 0, "Submitted", workload.submitted.0);
            self.facts.push(Fact::Transition(Transition { grade: SEEN, ..submitted }));
        }
    }

    /// It runs by this admission.
    fn run(&mut self, subject: &Subject<'_>, admission: &Admission, charged: &ResourceList, now: Time) {
        let id = &subject.workload.id;
        if self.closed.get(id) == Some(&admission.at.0) {
            return;
        }
        if self.open.get(id).is_some_and(|open| open.admitted_at != admission.at.0) {
            self.close(id, None, now);
        }
        if self.open.contains_key(id) {
            self.charge(id, charged, now);
            return;
        }
        let queued_at = self.waiting.remove(id).map(|wait| wait.since);
        let whole = queued_at.is_some() || self.since.is_some_and(|since| admission.at.0 >= since);
        let seen_from = if whole { admission.at.0 } else { now.0.max(admission.at.0) };
        let amounts = self.amounts(charged);
        let mut head = head(subject, admission, queued_at);
        head.devices = amounts.get(DEVICES).copied().unwrap_or(0);
        let due = now.after(CHECKPOINT).0;
        let open = Open {
            head,
            admitted_at: admission.at.0,
            part: 0,
            seen_from,
            segments: Vec::new(),
            from: seen_from,
            amounts,
            due,
            stop: None,
        };
        self.open.insert(id.clone(), open);
        self.due.insert((due, id.clone()));
        self.admitted(subject, admission, if whole { SEEN } else { FILLED });
        self.write(id, now);
    }

    fn admitted(&mut self, subject: &Subject<'_>, admission: &Admission, grade: i64) {
        let reason = if admission.borrowed { "Borrowed" } else { "Guaranteed" };
        let what = happened(subject, admission.at.0, "Admitted", admission.at.0);
        self.facts.push(Fact::Transition(Transition { reason: reason.into(), grade, ..what }));
    }

    /// It is charged these amounts from now on.
    fn charge(&mut self, id: &WorkloadId, charged: &ResourceList, now: Time) {
        let amounts = self.amounts(charged);
        let Some(open) = self.open.get_mut(id) else { return };
        if open.amounts == amounts {
            return;
        }
        open.end_segment(now.0);
        open.amounts = amounts;
        let is_long = open.segments.len() >= SEGMENTS && open.part < PARTS;
        self.write(id, now);
        if let Some(open) = self.open.get_mut(id).filter(|_| is_long) {
            open.part += 1;
            open.seen_from = open.from;
            open.segments.clear();
        }
    }

    /// Something stops it.
    fn stop(&mut self, subject: &Subject<'_>, admission: &Admission, stop: Stop, now: Time) {
        let Some(open) = self.open.get_mut(&subject.workload.id) else { return };
        if open.stop.is_some() {
            return;
        }
        if stop.how == Ending::Evicted {
            let what = happened(subject, admission.at.0, "Evicted", stop.at.unwrap_or(now.0));
            let (reason, for_workload) = (stop.reason.clone(), stop.for_workload.clone());
            self.facts.push(Fact::Transition(Transition { reason, for_workload, grade: SEEN, ..what }));
        }
        open.stop = Some(stop);
    }

    /// It has ended; its last pods may still be charged.
    fn finish(&mut self, subject: &Subject<'_>, charged: &ResourceList, now: Time) {
        let id = &subject.workload.id;
        let waited = self.waiting.remove(id).is_some();
        let Some(admission) = subject.admission else {
            if waited && !self.open.contains_key(id) {
                let (how, reason) = ending(subject);
                let ended = happened(subject, 0, "Ended", now.0);
                let reason = if reason.is_empty() { how.name() } else { reason };
                self.facts.push(Fact::Transition(Transition { reason: reason.into(), grade: SEEN, ..ended }));
            }
            return self.close(id, Some(subject), now);
        };
        if self.closed.get(id) == Some(&admission.at.0) {
            return;
        }
        if self.open.contains_key(id) {
            self.charge(id, charged, now);
            if charged.is_empty() {
                self.close(id, Some(subject), now);
            }
        } else if charged.is_empty() {
            self.fill(subject, admission);
        } else {
            // Its last pods end before the eyes of this process.
            self.run(subject, admission, charged, now);
        }
    }

    /// Writes a run that ended unseen, from its object.
    fn fill(&mut self, subject: &Subject<'_>, admission: &Admission) {
        let Some(past) = &subject.past else { return };
        let id = &subject.workload.id;
        self.closed.insert(id.clone(), admission.at.0);
        let note = subject.eviction.filter(|(at, ..)| *at >= admission.at);
        let Some(at) = past.ended.or(note.map(|(at, ..)| at)) else { return };
        let requests: ResourceList = past
            .requests
            .iter()
            .map(|(resource, each)| {
                let all = each.as_milli().saturating_mul(i64::from(admission.pods));
                (resource.clone(), Amount::milli(all))
            })
            .collect();
        let amounts = self.amounts(&requests);
        let mut head = head(subject, admission, None);
        head.devices = amounts.get(DEVICES).copied().unwrap_or(0);
        let (from, to) = (admission.at.0, at.0.max(admission.at.0));
        let (how, reason) = ending(subject);
        let mut end = End {
            at: to,
            how,
            reason: reason.to_owned(),
            for_workload: String::new(),
            stopped_at: None,
            saved_at: None,
        };
        if note.is_some() {
            let stop = stop(subject, admission, at);
            (end.how, end.stopped_at, end.saved_at) = (stop.how, stop.at, stop.saved_at);
            (end.reason, end.for_workload) = (stop.reason, stop.for_workload);
        }
        self.admitted(subject, admission, FILLED);
        let reason = if end.reason.is_empty() { end.how.name().to_owned() } else { end.reason.clone() };
        let ended = happened(subject, from, "Ended", to);
        self.facts.push(Fact::Transition(Transition { reason, grade: FILLED, ..ended }));
        let sighting = Sighting {
            // What an object says is kept apart from what the same process saw.
            session: -self.session,
            head,
            seen_from: None,
            seen_until: to,
            end: Some(end),
            segments: vec![Segment { from, to, amounts }],
        };
        self.facts.push(Fact::Sighting(key_of(id, admission.at.0), sighting));
    }

    /// Nothing of it is charged any more.
    fn close(&mut self, id: &WorkloadId, subject: Option<&Subject<'_>>, now: Time) {
        let Some(mut open) = self.open.remove(id) else { return };
        self.due.remove(&(open.due, id.clone()));
        self.closed.insert(id.clone(), open.admitted_at);
        open.end_segment(now.0);
        let at = now.0.max(open.seen_from);
        let stop = open.stop.take().unwrap_or_else(|| {
            let (how, reason) = subject.map_or((Ending::Stopped, ""), ending);
            Stop { how, reason: reason.to_owned(), for_workload: String::new(), at: None, saved_at: None }
        });
        let end = End {
            at,
            how: stop.how,
            reason: stop.reason,
            for_workload: stop.for_workload,
            stopped_at: stop.at,
            saved_at: stop.saved_at,
        };
        let key = key_of(id, open.admitted_at);
        self.facts.push(Fact::Transition(Transition {
            uid: key.uid.clone(),
            admitted_at: open.admitted_at,
            transition: "Ended".into(),
            at,
            namespace: open.head.namespace.clone(),
            name: open.head.name.clone(),
            team: open.head.team.clone(),
            reason: if end.reason.is_empty() { end.how.name().to_owned() } else { end.reason.clone() },
            for_workload: end.for_workload.clone(),
            grade: SEEN,
            ..Transition::default()
        }));
        self.ended.push(Ended { key: key.clone(), head: open.head.clone(), end: end.clone() });
        let sighting = Sighting {
            session: open.session(self.session),
            head: open.head,
            seen_from: Some(open.seen_from),
            seen_until: at,
            end: Some(end),
            segments: open.segments,
        };
        self.facts.push(Fact::Sighting(key, sighting));
    }

    /// Writes a run that goes on as it is now.
    fn write(&mut self, id: &WorkloadId, now: Time) {
        let Some(open) = self.open.get_mut(id) else { return };
        let session = open.session(self.session);
        self.due.remove(&(open.due, id.clone()));
        open.due = now.after(CHECKPOINT).0;
        self.due.insert((open.due, id.clone()));
        let until = now.0.max(open.from);
        let mut segments = open.segments.clone();
        if until > open.from {
            segments.push(Segment { from: open.from, to: until, amounts: open.amounts.clone() });
        }
        let sighting = Sighting {
            session,
            head: open.head.clone(),
            seen_from: Some(open.seen_from),
            seen_until: until,
            end: None,
            segments,
        };
        self.facts.push(Fact::Sighting(key_of(id, open.admitted_at), sighting));
    }

    /// The amounts as they are written, with the devices together.
    fn amounts(&self, list: &ResourceList) -> BTreeMap<String, i64> {
        let mut amounts: BTreeMap<String, i64> =
            list.iter().map(|(resource, amount)| (resource.to_string(), amount.as_milli())).collect();
        let devices = list.get(CURRENCY).copied().unwrap_or_else(|| self.accelerators.amount(list));
        if devices > Amount::ZERO {
            amounts.insert(DEVICES.to_owned(), devices.as_milli());
        }
        amounts.retain(|_, amount| *amount != 0);
        amounts
    }
}

impl Open {
    /// Sessions are below 2⁵².
    fn session(&self, process: i64) -> i64 {
        process.saturating_add(self.part.saturating_mul(1 << 52))
    }

    fn end_segment(&mut self, now: i64) {
        if now > self.from {
            let amounts = std::mem::take(&mut self.amounts);
            self.segments.push(Segment { from: self.from, to: now, amounts });
            self.from = now;
        }
    }
}

#[cfg(test)]
mod tests;
