//! The patches on a pod, and the other writes that end or mark one.

use jiff::Timestamp;
use json_patch::Patch;
use serde_json::{Value, json};

use super::super::super::patch::{add, annotate, json, seconds, test, unannotate};
use super::super::{Facts, Failure, Operation, gates};
use super::{PodFacts, Way};
use crate::api::affinity::pinned;
use crate::api::names;
use crate::api::record::Record;
use crate::engine::types::Name;

const AFFINITY: [&str; 2] = ["spec", "affinity"];
const GATES: [&str; 2] = ["spec", "schedulingGates"];

/// The finalizer that keeps a pod until the Job controller has counted it.
const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";

impl PodFacts {
    pub(in crate::cluster::target) fn admit(&self, facts: &Facts, version: u64, record: &Record) -> Patch {
        let nodes = record.nodes_of(&facts.uid);
        let mut patch = facts.expect(version);
        patch.push(add(&GATES, Value::Array(gates::others(&self.gates))));
        if !nodes.is_empty() {
            patch.push(add(&AFFINITY, pinned(parsed(self.user_affinity.as_deref()).as_ref(), &nodes)));
        }
        // A pod that the API server's own policy has gated may have no annotations yet.
        if !self.annotated {
            patch.push(add(&["metadata", "annotations"], json!({})));
        }
        patch.push(annotate(names::ADMISSION, json(record)));
        if facts.has_eviction {
            patch.push(unannotate(names::EVICTION));
        }
        Patch(patch)
    }
}

impl Way {
    /// Writes the node of a pod of this UID and removes its gate.
    #[must_use]
    pub fn place(&self, uid: &Name, node: &str) -> Patch {
        let user = parsed(self.affinity.as_deref());
        Patch(vec![
            test(&["metadata", "uid"], json!(&**uid)),
            test(&GATES, Value::Array(gates::written(&self.gates))),
            add(&GATES, Value::Array(gates::without(&self.gates, names::GATE_PLACEMENT))),
            add(&AFFINITY, pinned(user.as_ref(), &[node])),
        ])
    }
}

/// Ends a pod as failed: in its status while it has no kubelet, and otherwise by its kubelet, through a deadline
/// that has passed and a note with the reason.
pub fn fail(facts: &Facts, version: u64, why: &Failure<'_>) -> Operation {
    let mut patch = facts.expect(version);
    if facts.held {
        for (field, text) in [("phase", "Failed"), ("reason", why.reason), ("message", why.message)] {
            patch.push(add(&["status", field], json!(text)));
        }
        return Operation::PatchStatus(Patch(patch));
    }
    patch.push(add(&["spec", "activeDeadlineSeconds"], json!(1)));
    patch.push(annotate(names::EVICTION, json(&why.note())));
    Operation::Patch(Patch(patch))
}

/// The Eviction that ends this very pod as soon as its disruption budgets allow.
#[must_use]
pub fn eviction(namespace: &str, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": {"preconditions": {"uid": uid}},
    })
}

/// A strategic merge patch that removes a pod from the count of its Job, as the Job controller does before it
/// deletes surplus pods: a pod that ends afterwards does not count as failed.
#[must_use]
pub fn disown(uid: &Name) -> Value {
    json!({"metadata": {"uid": &**uid, "$deleteFromPrimitiveList/finalizers": [JOB_TRACKING]}})
}

/// A strategic merge patch on the status that marks a pod as disrupted by Sluice, for pod failure policies and for
/// people. The disruption controller withdraws a condition without a fresh time as stale.
#[must_use]
pub fn disruption(now: Timestamp, message: &str) -> Value {
    json!({"status": {"conditions": [disrupted(now, message)]}})
}

/// The same mark on a pod that its Job is to lose when it shrinks. The Job controller deletes pods that are not
/// ready first, and accepts no other order.
#[must_use]
pub fn delete_first(now: Timestamp, message: &str) -> Value {
    let unready = json!({
        "type": "Ready", "status": "False", "reason": "EvictedBySluice", "message": message,
        "lastTransitionTime": seconds(now),
    });
    json!({"status": {"conditions": [disrupted(now, message), unready]}})
}

fn disrupted(now: Timestamp, message: &str) -> Value {
    json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictedBySluice", "message": message,
        "lastTransitionTime": seconds(now),
    })
}

fn parsed(affinity: Option<&str>) -> Option<Value> {
    serde_json::from_str(affinity?).ok()
}
