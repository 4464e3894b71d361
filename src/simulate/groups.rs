//! The pods of groups as their objects are: gated, released or ended.
//!
//! What else a pod does in a simulation is no concern of the mirror's. But whoever comes into a group has to
//! be told from those who started before.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api::names;
use crate::api::record::Record;
use crate::cluster::target::pod::{PodSeen, pod};
use crate::engine::types::WorkloadId;

/// All pods of groups.
#[derive(Debug, Default)]
pub struct Groups {
    objects: BTreeMap<WorkloadId, Value>,
    /// Those that have started together, in order.
    started: BTreeMap<WorkloadId, Vec<WorkloadId>>,
}

impl Groups {
    /// A pod was submitted or changed.
    pub fn note(&mut self, pod: WorkloadId, object: Value) {
        self.objects.insert(pod, object);
    }

    /// Whether a pod runs with its group.
    #[must_use]
    pub fn has_started(&self, pod: &WorkloadId) -> bool {
        self.started.values().any(|pods| pods.contains(pod))
    }

    /// A pod was deleted; the group it ran in, and its number there.
    pub fn forget(&mut self, pod: &WorkloadId) -> Option<(WorkloadId, u32)> {
        self.objects.remove(pod)?;
        self.started.iter().find_map(|(group, pods)| {
            let number = pods.iter().position(|other| other == pod)?;
            Some((group.clone(), u32::try_from(number).ok()?))
        })
    }

    /// Pods start as their group's record says; what they look like then.
    pub fn start(&mut self, group: &WorkloadId, pods: Vec<WorkloadId>, record: &Record) -> Vec<PodSeen> {
        let note = serde_json::to_string(record).unwrap_or_default();
        let seen = pods.iter().filter_map(|id| {
            let object = self.objects.get_mut(id)?;
            object["metadata"]["annotations"][names::ADMISSION] = note.clone().into();
            object["spec"]["schedulingGates"] = Value::Null;
            look(object)
        });
        let seen = seen.collect();
        self.started.insert(group.clone(), pods);
        seen
    }

    /// The pods of a group have ended; what they look like then.
    pub fn end(&mut self, group: &WorkloadId) -> Vec<PodSeen> {
        let pods = self.started.remove(group).unwrap_or_default();
        let seen = pods.iter().filter_map(|id| {
            let object = self.objects.get_mut(id)?;
            object["status"] = json!({"phase": "Succeeded"});
            look(object)
        });
        seen.collect()
    }
}

fn look(object: &Value) -> Option<PodSeen> {
    Some(pod(&serde_json::from_value(object.clone()).ok()?))
}
