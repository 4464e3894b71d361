//! Pod objects of groups: gated, released or ended.
//!
//! The mirror needs them to distinguish new pods of a group from started ones.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api::names;
use crate::api::record::Record;
use crate::cluster::target::pod::{PodSeen, pod};
use crate::engine::types::WorkloadId;

/// The pods of all groups.
#[derive(Debug, Default)]
pub struct Groups {
    objects: BTreeMap<WorkloadId, Value>,
    /// Pods that have started together, in order, by group.
    started: BTreeMap<WorkloadId, Vec<WorkloadId>>,
}

impl Groups {
    /// Stores a pod that was submitted or changed.
    pub fn store(&mut self, pod: WorkloadId, object: Value) {
        self.objects.insert(pod, object);
    }

    /// Whether a pod has started with its group.
    #[must_use]
    pub fn has_started(&self, pod: &WorkloadId) -> bool {
        self.started.values().any(|pods| pods.contains(pod))
    }

    /// Removes a deleted pod; returns its running group and its number in it.
    pub fn remove(&mut self, pod: &WorkloadId) -> Option<(WorkloadId, u32)> {
        self.objects.remove(pod)?;
        self.started.iter().find_map(|(group, pods)| {
            let number = pods.iter().position(|other| other == pod)?;
            Some((group.clone(), u32::try_from(number).ok()?))
        })
    }

    /// Starts pods with their group's record; returns the started pods.
    pub fn start(&mut self, group: &WorkloadId, pods: Vec<WorkloadId>, record: &Record) -> Vec<PodSeen> {
        let record = serde_json::to_string(record).unwrap_or_default();
        let started = pods.iter().filter_map(|id| {
            let object = self.objects.get_mut(id)?;
            object["metadata"]["annotations"][names::ADMISSION] = record.clone().into();
            object["spec"]["schedulingGates"] = Value::Null;
            seen(object)
        });
        let started = started.collect();
        self.started.insert(group.clone(), pods);
        started
    }

    /// Ends the pods of a group; returns the ended pods.
    pub fn end(&mut self, group: &WorkloadId) -> Vec<PodSeen> {
        let pods = self.started.remove(group).unwrap_or_default();
        let ended = pods.iter().filter_map(|id| {
            let object = self.objects.get_mut(id)?;
            object["status"] = json!({"phase": "Succeeded"});
            seen(object)
        });
        ended.collect()
    }
}

fn seen(object: &Value) -> Option<PodSeen> {
    Some(pod(&serde_json::from_value(object.clone()).ok()?))
}
