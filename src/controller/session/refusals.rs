//! Writes that the API server refused, and admissions that it refuses until their object changes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Session;
use crate::cluster::actuator::{End, Purpose, Task, Write};
use crate::cluster::clock::now;
use crate::cluster::mirror::Mirror;
use crate::cluster::target::Operation;
use crate::engine::types::{Event, Time, Workload, WorkloadId};

/// How long after its last refusal an eviction counts as another one: longer than any pause between two tries.
const FORGOTTEN: Duration = Duration::from_secs(180);

/// Since when the eviction of a pod is refused.
#[derive(Debug)]
pub struct Kept {
    since: Time,
    last: Time,
}

/// The workloads with a refused admission, with the version of the object as it was known then.
pub type Refusals = BTreeMap<WorkloadId, u64>;

impl Session {
    /// Handles a refused write: its decision is taken back. An admission is not refused for the object alone where the
    /// reason may pass.
    pub(super) fn refused(&mut self, id: WorkloadId, purpose: Purpose, end: End) {
        let (message, lasts) = match end {
            End::Refused(message) => (message, true),
            End::NotNow(message) => (message, false),
            _ => return,
        };
        let object = self.mirror.subject(&id).map(|(managed, _)| {
            let Workload { namespace, name, .. } = &*managed.workload;
            (format!("{namespace}/{name}"), version(&self.mirror, &id))
        });
        let name = object.as_ref().map(|(name, _)| name.as_str());
        tracing::warn!(workload = %id, name, ?purpose, message, "the API server refused a write");
        if purpose == Purpose::Evict {
            let now = now();
            let kept = self.kept.entry(id.clone()).or_insert(Kept { since: now, last: now });
            if now.since(kept.last) > FORGOTTEN {
                kept.since = now;
            }
            kept.last = now;
            self.report_blocked_eviction(&id, &message);
        }
        self.failed(id.clone(), message);
        if let Some((_, Some(version))) = object.filter(|_| lasts && purpose == Purpose::Admit) {
            self.engine.apply(Event::AdmissionRefused(id.clone()), now());
            self.refusals.insert(id, version);
        }
    }

    /// Lets no disruption budget keep pods from their eviction for longer than a grace period may last: the owner of the
    /// capacity waits for it.
    pub(super) fn end_in_time(&self, write: &mut Write, workload: &Workload, now: Time) {
        let cap = self.mirror.grace_cap(workload);
        let kept = self.kept.get(&workload.id).filter(|kept| now.since(kept.last) <= FORGOTTEN);
        if kept.is_some_and(|kept| now.since(kept.since) >= cap) {
            delete_instead(write);
        }
    }

    /// Tells the engine which of the refused objects have changed since.
    pub(super) fn note_changed_objects(&mut self, now: Time) {
        self.kept.retain(|_, kept| now.since(kept.last) <= FORGOTTEN);
        let (mirror, engine) = (&self.mirror, &mut self.engine);
        self.refusals.retain(|id, known| {
            let current = version(mirror, id);
            if current.is_some_and(|current| current != *known) {
                engine.apply(Event::ObjectChanged(id.clone()), now);
            }
            current == Some(*known)
        });
    }
}

/// Deletes pods where they would be evicted.
fn delete_instead(write: &mut Write) {
    match &mut write.task {
        Task::Each(writes) => writes.iter_mut().for_each(delete_instead),
        Task::Single(operation) if matches!(operation, Operation::Evict) => *operation = Operation::Delete,
        Task::Single(_) | Task::Impossible(_) => {}
    }
}

/// A number that changes with every change of a workload's objects.
fn version(mirror: &Mirror, id: &WorkloadId) -> Option<u64> {
    let (_, version) = mirror.subject(id)?;
    Some(mirror.members(id).map(|(_, version)| version).fold(version, u64::wrapping_add))
}
