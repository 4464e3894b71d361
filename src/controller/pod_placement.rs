//! Placement of single pods of admitted Jobs: the writes in flight, and how long misplaced pods have waited.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cluster::actuator::{Purpose, Task, Write};
use crate::cluster::mirror::Mirror;
use crate::cluster::place::{Duties, duties};
use crate::cluster::target::{Operation, Resource};
use crate::engine::types::{MisplacedPods, Name, Time, WorkloadId, backoff};

/// The pause after the first failed write; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The longest pause between two reports of the same misplaced pods.
const LONGEST_REPORT_PAUSE: Duration = Duration::from_secs(600);

/// The pods that are not on their nodes yet.
#[derive(Debug, Default)]
pub struct PodPlacement {
    /// Jobs to check again.
    dirty: BTreeSet<WorkloadId>,
    /// The writes in flight or waiting for a retry, by pod.
    writes: BTreeMap<Name, PodWrite>,
    stuck: BTreeMap<WorkloadId, Stuck>,
    /// Jobs with running pods that move to other nodes.
    moving: BTreeSet<WorkloadId>,
}

/// A write on a pod.
#[derive(Debug)]
struct PodWrite {
    job: WorkloadId,
    /// The target node; `None` if the pod is deleted so that its Job creates it again.
    node: Option<Name>,
    in_flight: bool,
    failures: u32,
    not_before: Time,
}

/// Pods of a Job that cannot reach their nodes.
#[derive(Debug)]
struct Stuck {
    astray: MisplacedPods,
    since: Time,
    reports: u32,
    due: Time,
}

impl Stuck {
    /// Whether the report is unchanged: with pods stuck on the same nodes, the other pods do not matter.
    fn same(&self, astray: &MisplacedPods) -> bool {
        self.astray.stuck == astray.stuck && (!astray.stuck.is_empty() || self.astray.there == astray.there)
    }
}

/// The writes and reports that are due.
#[derive(Debug, Default)]
pub struct Due {
    /// Writes to start.
    pub writes: Vec<Write>,
    /// Misplaced pods to report to the engine.
    pub misplaced: Vec<MisplacedPods>,
}

impl PodPlacement {
    /// Checks the Jobs in `changed` and those with a pending retry or report. Jobs with a decision in flight
    /// (`decided`) are checked later.
    pub fn run(
        &mut self,
        mirror: &Mirror,
        changed: BTreeSet<WorkloadId>,
        decided: impl Fn(&WorkloadId) -> bool,
        now: Time,
    ) -> Due {
        let mut due = Due::default();
        self.dirty.extend(changed);
        for id in std::mem::take(&mut self.dirty) {
            if decided(&id) {
                self.stuck.remove(&id);
                self.dirty.insert(id);
                continue;
            }
            let targets = self.targets(&id);
            let found = duties(mirror, &id, &targets, self.moving.contains(&id));
            if found.remakes.is_empty() && !self.writes.values().any(|write| write.job == id) {
                self.moving.remove(&id);
            }
            self.drop_unwanted(&id, &found);
            self.start(mirror, &id, &found, now, &mut due);
            self.report(&id, found, now, &mut due);
        }
        due
    }

    /// The target nodes of the pods of a Job with a write in flight.
    fn targets(&self, id: &WorkloadId) -> BTreeMap<Name, Name> {
        let ours = self.writes.iter().filter(|(_, write)| write.job == *id && write.in_flight);
        ours.filter_map(|(pod, write)| Some((pod.clone(), write.node.clone()?))).collect()
    }

    /// Drops failed writes that are no longer wanted.
    fn drop_unwanted(&mut self, id: &WorkloadId, found: &Duties) {
        let wanted: BTreeSet<&Name> =
            found.seats.iter().map(|(pod, _)| pod).chain(found.remakes.iter().map(|one| &one.pod)).collect();
        self.writes.retain(|pod, write| write.job != *id || write.in_flight || wanted.contains(pod));
    }

    fn start(&mut self, mirror: &Mirror, id: &WorkloadId, found: &Duties, now: Time, due: &mut Due) {
        let seats = found.seats.iter().map(|(pod, node)| (pod, Some(node.clone()), Purpose::Place));
        let remakes = found.remakes.iter().map(|remake| {
            let purpose = Purpose::Remake { lost: remake.lost };
            (&remake.pod, None, purpose)
        });
        for (pod, node, purpose) in seats.chain(remakes) {
            let before = self.writes.get(pod);
            if before.is_some_and(|write| write.in_flight) {
                continue;
            }
            if before.is_some_and(|write| write.not_before > now) {
                self.dirty.insert(id.clone());
                continue;
            }
            let Some(write) = write(mirror, pod, node.as_ref(), purpose) else { continue };
            let failures = before.map_or(0, |write| write.failures);
            let pending = PodWrite { job: id.clone(), node, in_flight: true, failures, not_before: now };
            self.writes.insert(pod.clone(), pending);
            due.writes.push(write);
        }
    }

    fn report(&mut self, id: &WorkloadId, found: Duties, now: Time, due: &mut Due) {
        let Some((astray, grace)) = found.trouble else {
            self.stuck.remove(id);
            return;
        };
        self.dirty.insert(id.clone());
        let known = self.stuck.get_mut(id).filter(|known| known.same(&astray));
        let Some(known) = known else {
            let stuck = Stuck { astray, since: now, reports: 0, due: now.after(grace) };
            self.stuck.insert(id.clone(), stuck);
            return;
        };
        // A node that was cordoned since then has a shorter grace period.
        if known.reports == 0 {
            known.due = known.due.min(known.since.after(grace));
        }
        if known.due <= now {
            known.reports += 1;
            let pause = backoff(grace, LONGEST_REPORT_PAUSE, known.reports);
            known.due = now.after(pause);
            due.misplaced.push(astray);
        }
    }

    /// Records that a write on a pod has succeeded or is no longer needed.
    pub fn ended(&mut self, pod: &Name) {
        if let Some(write) = self.writes.remove(pod) {
            self.dirty.insert(write.job);
        }
    }

    /// Records that a write on a pod has failed; it is due again after a pause.
    pub fn failed(&mut self, pod: &Name, now: Time) {
        let Some(write) = self.writes.get_mut(pod) else { return };
        let pause = backoff(FIRST_PAUSE, LONGEST_PAUSE, write.failures);
        write.in_flight = false;
        write.failures += 1;
        write.not_before = now.after(pause);
        self.dirty.insert(write.job.clone());
    }

    /// Records that running pods of a Job move to the nodes of its new record.
    pub fn moves(&mut self, id: &WorkloadId) {
        self.moving.insert(id.clone());
        self.dirty.insert(id.clone());
    }

    /// When the next retry or report is due.
    pub fn next(&self) -> Option<Time> {
        let pauses = self.writes.values().filter(|write| !write.in_flight).map(|write| write.not_before);
        self.stuck.values().map(|stuck| stuck.due).chain(pauses).min()
    }
}

/// The write on a pod in its current version; `None` if the pod is gone.
fn write(mirror: &Mirror, pod: &Name, node: Option<&Name>, purpose: Purpose) -> Option<Write> {
    let seen = mirror.pod(pod)?;
    let way = seen.way.as_deref()?;
    let patch = node.map(|node| way.place(pod, node)).unwrap_or_default();
    Some(Write {
        id: WorkloadId(pod.clone()),
        resource: Resource::Pod,
        namespace: way.namespace.clone(),
        name: seen.name.clone(),
        purpose,
        decision: 0,
        task: Task::Single(Operation::Patch(patch)),
        smaller: Vec::new(),
        disrupted: Vec::new(),
        message: String::new(),
        group: None,
    })
}
