//! Writes that the API server refused, and admissions that it refuses until their object changes.

use std::collections::BTreeMap;

use super::Session;
use crate::cluster::actuator::{End, Purpose};
use crate::cluster::clock::now;
use crate::cluster::mirror::Mirror;
use crate::engine::types::{Event, Time, Workload, WorkloadId};

/// The workloads whose admission was refused, with the version of the object as it was known then.
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
            let Workload { namespace, name, .. } = &managed.workload;
            (format!("{namespace}/{name}"), version(&self.mirror, &id))
        });
        let name = object.as_ref().map(|(name, _)| name.as_str());
        tracing::warn!(workload = %id, name, ?purpose, message, "the API server refused a write");
        if purpose == Purpose::Evict {
            self.report_blocked_eviction(&id, &message);
        }
        self.failed(id.clone(), message);
        if let Some((_, Some(version))) = object.filter(|_| lasts && purpose == Purpose::Admit) {
            self.engine.apply(Event::AdmissionRefused(id.clone()), now());
            self.refusals.insert(id, version);
        }
    }

    /// Tells the engine which of the refused objects have changed since.
    pub(super) fn note_changed_objects(&mut self, now: Time) {
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

/// A number that changes with every change of a workload's objects.
fn version(mirror: &Mirror, id: &WorkloadId) -> Option<u64> {
    let (_, version) = mirror.subject(id)?;
    Some(mirror.members(id).map(|(_, version)| version).fold(version, u64::wrapping_add))
}
