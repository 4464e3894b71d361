//! The pods of admitted Jobs on their way to their places: which writes are under way, and for how long
//! something has been in the way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cluster::actuator::{Purpose, Task, Write};
use crate::cluster::mirror::Mirror;
use crate::cluster::place::{Duties, duties};
use crate::cluster::target::{Operation, Resource};
use crate::engine::types::{MisplacedPods, Name, Time, WorkloadId, backoff};

/// The first pause after a write that failed; it doubles with every further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The longest time between two times that the same trouble is told.
const LONGEST_GRACE: Duration = Duration::from_secs(600);

/// The pods that are not where they belong yet.
#[derive(Debug, Default)]
pub struct Placing {
    /// Jobs to be looked at again.
    open: BTreeSet<WorkloadId>,
    /// The writes under way, and those that are not tried again yet, by pod.
    writes: BTreeMap<Name, Under>,
    troubles: BTreeMap<WorkloadId, Trouble>,
    /// Jobs of which running pods go elsewhere.
    moving: BTreeSet<WorkloadId>,
}

/// A write on a pod.
#[derive(Debug)]
struct Under {
    job: WorkloadId,
    /// Where it goes to; nothing if it is to be made anew.
    node: Option<Name>,
    under_way: bool,
    failures: u32,
    not_before: Time,
}

/// Something that keeps pods from their places.
#[derive(Debug)]
struct Trouble {
    astray: MisplacedPods,
    since: Time,
    told: u32,
    due: Time,
}

impl Trouble {
    /// Whether it is still the same: as long as pods are stuck on the same nodes, it does not matter what
    /// becomes of the others.
    fn is(&self, astray: &MisplacedPods) -> bool {
        self.astray.stuck == astray.stuck && (!astray.stuck.is_empty() || self.astray.there == astray.there)
    }
}

/// What is due.
#[derive(Debug, Default)]
pub struct Due {
    /// To be written.
    pub writes: Vec<Write>,
    /// To be told to the engine.
    pub astray: Vec<MisplacedPods>,
}

impl Placing {
    /// Looks at the Jobs of which something has changed and at those that wait for something to pass;
    /// `decided` are those of which another decision is being written.
    pub fn run(
        &mut self,
        mirror: &Mirror,
        stirred: BTreeSet<WorkloadId>,
        decided: impl Fn(&WorkloadId) -> bool,
        now: Time,
    ) -> Due {
        let mut due = Due::default();
        self.open.extend(stirred);
        for id in std::mem::take(&mut self.open) {
            if decided(&id) {
                self.troubles.remove(&id);
                self.open.insert(id);
                continue;
            }
            let aims = self.aims(&id);
            let found = duties(mirror, &id, &aims, self.moving.contains(&id));
            if found.remakes.is_empty() && !self.writes.values().any(|under| under.job == id) {
                self.moving.remove(&id);
            }
            self.forget(&id, &found);
            self.start(mirror, &id, &found, now, &mut due);
            self.tell(&id, found, now, &mut due);
        }
        due
    }

    /// Where pods of a Job are being let go to.
    fn aims(&self, id: &WorkloadId) -> BTreeMap<Name, Name> {
        let ours = self.writes.iter().filter(|(_, under)| under.job == *id && under.under_way);
        ours.filter_map(|(pod, under)| Some((pod.clone(), under.node.clone()?))).collect()
    }

    /// Forgets writes that failed and are not wanted any more.
    fn forget(&mut self, id: &WorkloadId, found: &Duties) {
        let wanted: BTreeSet<&Name> =
            found.seats.iter().map(|(pod, _)| pod).chain(found.remakes.iter().map(|one| &one.pod)).collect();
        self.writes.retain(|pod, under| under.job != *id || under.under_way || wanted.contains(pod));
    }

    fn start(&mut self, mirror: &Mirror, id: &WorkloadId, found: &Duties, now: Time, due: &mut Due) {
        let seats = found.seats.iter().map(|(pod, node)| (pod, Some(node.clone()), Purpose::Place));
        let remakes = found.remakes.iter().map(|remake| {
            let purpose = Purpose::Remake { lost: remake.lost };
            (&remake.pod, None, purpose)
        });
        for (pod, node, purpose) in seats.chain(remakes) {
            let before = self.writes.get(pod);
            if before.is_some_and(|under| under.under_way) {
                continue;
            }
            if before.is_some_and(|under| under.not_before > now) {
                self.open.insert(id.clone());
                continue;
            }
            let Some(write) = write(mirror, pod, node.as_ref(), purpose) else { continue };
            let failures = before.map_or(0, |under| under.failures);
            let under = Under { job: id.clone(), node, under_way: true, failures, not_before: now };
            self.writes.insert(pod.clone(), under);
            due.writes.push(write);
        }
    }

    fn tell(&mut self, id: &WorkloadId, found: Duties, now: Time, due: &mut Due) {
        let Some((astray, grace)) = found.trouble else {
            self.troubles.remove(id);
            return;
        };
        self.open.insert(id.clone());
        let known = self.troubles.get_mut(id).filter(|known| known.is(&astray));
        let Some(known) = known else {
            let trouble = Trouble { astray, since: now, told: 0, due: now.after(grace) };
            self.troubles.insert(id.clone(), trouble);
            return;
        };
        // A node that has been closed meanwhile need not be waited for as long.
        if known.told == 0 {
            known.due = known.due.min(known.since.after(grace));
        }
        if known.due <= now {
            known.told += 1;
            let pause = backoff(grace, LONGEST_GRACE, known.told);
            known.due = now.after(pause);
            due.astray.push(astray);
        }
    }

    /// A write on a pod has been made, or is no longer to be.
    pub fn ended(&mut self, pod: &Name) {
        if let Some(under) = self.writes.remove(pod) {
            self.open.insert(under.job);
        }
    }

    /// A write on a pod could not be made; it is tried again after a pause.
    pub fn failed(&mut self, pod: &Name, now: Time) {
        let Some(under) = self.writes.get_mut(pod) else { return };
        let pause = backoff(FIRST_PAUSE, LONGEST_PAUSE, under.failures);
        under.under_way = false;
        under.failures += 1;
        under.not_before = now.after(pause);
        self.open.insert(under.job.clone());
    }

    /// Running pods of a Job are to go elsewhere, as its record says now.
    pub fn moves(&mut self, id: &WorkloadId) {
        self.moving.insert(id.clone());
        self.open.insert(id.clone());
    }

    /// When to look again although nothing happens.
    pub fn next(&self) -> Option<Time> {
        let pauses = self.writes.values().filter(|under| !under.under_way).map(|under| under.not_before);
        self.troubles.values().map(|trouble| trouble.due).chain(pauses).min()
    }
}

/// The write on a pod, as it is now.
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
        disrupted: Vec::new(),
        message: String::new(),
        group: None,
    })
}
