//! The patches on a Job.

use json_patch::{Patch, PatchOperation};
use serde_json::{Value, json};

use super::super::super::patch::{add, annotate, at_version, hold, json, remove, seconds, test, unannotate};
use super::super::super::reduce::{uid, version};
use super::super::super::wire;
use super::super::{Facts, Failure, Grant, Pin, gates};
use super::{JobFacts, count, suspension};
use crate::api::affinity::pinned;
use crate::api::names;
use crate::api::record::{Eviction, Record, timestamp};
use crate::engine::types::Name;

/// The affinity of its pods.
const AFFINITY: [&str; 4] = ["spec", "template", "spec", "affinity"];
/// The gates of its pods.
const GATES: [&str; 4] = ["spec", "template", "spec", "schedulingGates"];
/// The limits of the first container of its pods.
const LIMITS: [&str; 7] = ["spec", "template", "spec", "containers", "0", "resources", "limits"];

impl JobFacts {
    pub(in crate::cluster::target) fn admit(
        &self,
        facts: &Facts,
        version: u64,
        record: &Record,
        grant: Grant,
        pin: Pin,
    ) -> Patch {
        let nodes = record.nodes_of(&facts.uid);
        let one_by_one = pin == Pin::OneByOne;
        let mut patch = facts.expect(version);
        patch.push(suspend(false));
        patch.extend(facts.release());
        patch.extend(self.resized_pods(record.share.as_deref()));
        patch.extend(self.granted_parallelism(grant, record.pods));
        patch.extend(self.take_over_larger());
        if one_by_one {
            let mut gates = gates::without(&self.gates, names::GATE_PLACEMENT);
            gates.push(json!({"name": names::GATE_PLACEMENT}));
            patch.push(add(&GATES, Value::Array(gates)));
        } else if !nodes.is_empty() {
            patch.push(add(&AFFINITY, pinned(self.written_affinity().as_ref(), &nodes)));
        }
        let record = self.with_done(self.with_wanted(record, grant), pin);
        let record = Record { failed: self.failed, ..record };
        patch.push(annotate(names::ADMISSION, json(&record.with_room())));
        if let Some(user) = self.user_affinity.as_ref().filter(|_| !one_by_one) {
            patch.push(annotate(names::USER_AFFINITY, user.to_string()));
        }
        if facts.has_eviction {
            patch.push(unannotate(names::EVICTION));
        }
        Patch(patch)
    }

    /// The nodes are among those of the admission: the template of a running Job cannot change. The patch tests
    /// the record that it replaces.
    pub(in crate::cluster::target) fn resize(
        &self,
        facts: &Facts,
        version: u64,
        record: &Record,
        grant: Grant,
    ) -> Patch {
        let mut patch = Self::expect_record(facts, version);
        patch.extend(self.granted_parallelism(grant, record.pods));
        patch.extend(self.take_over_larger());
        let record = Record { failed: self.failed_before, ..self.with_wanted(record, grant) };
        patch.push(annotate(names::ADMISSION, json(&record.with_room())));
        Patch(patch)
    }

    /// Shrinks a running Job by a patch that adds nothing: neither its user's parallelism nor room is kept.
    pub(in crate::cluster::target) fn shrink_only(
        &self,
        facts: &Facts,
        version: u64,
        record: &Record,
    ) -> Patch {
        let mut patch = Self::expect_record(facts, version);
        patch.extend(self.granted_parallelism(Grant::Part, record.pods));
        patch.extend(self.take_over_larger());
        let record = Record { failed: self.failed_before, ..record.clone() };
        patch.push(annotate(names::ADMISSION, json(&record.without_room())));
        Patch(patch)
    }

    /// The operations that make a patch fail unless the object has this record.
    fn expect_record(facts: &Facts, version: u64) -> Vec<PatchOperation> {
        let mut patch = facts.expect(version);
        if let Some(before) = &facts.record {
            let path = ["metadata", "annotations", names::ADMISSION];
            patch.push(test(&path, Value::String(before.to_string())));
        }
        patch
    }

    /// Fails the Job in its status: its controller ends the pods, and turns the target into a failure with the
    /// same reason and message. A Job that never ran needs a start time to have an end.
    pub(in crate::cluster::target) fn fail(&self, facts: &Facts, version: u64, why: &Failure<'_>) -> Patch {
        let target = json!({
            "type": "FailureTarget", "status": "True", "reason": why.reason, "message": why.message,
            "lastProbeTime": seconds(why.at), "lastTransitionTime": seconds(why.at),
        });
        let mut patch = vec![at_version(version), test(&["metadata", "uid"], json!(&*facts.uid))];
        if !self.started {
            patch.push(add(&["status", "startTime"], json!(seconds(why.at))));
        }
        patch.push(if self.conditioned {
            add(&["status", "conditions", "-"], target)
        } else {
            add(&["status", "conditions"], json!([target]))
        });
        Patch(patch)
    }

    /// Writes the start time without which the controller of a stopped Job cannot end it.
    pub(in crate::cluster::target) fn add_start_time(&self, facts: &Facts, version: u64) -> Option<Patch> {
        let at = timestamp(self.missing_start?);
        let start = add(&["status", "startTime"], json!(seconds(at)));
        Some(Patch(vec![at_version(version), test(&["metadata", "uid"], json!(&*facts.uid)), start]))
    }

    pub(in crate::cluster::target) fn restore(&self, facts: &Facts, version: u64) -> Patch {
        let mut patch = facts.expect(version);
        patch.extend([
            add(&AFFINITY, self.written_affinity().unwrap_or(Value::Null)),
            unannotate(names::ADMISSION),
        ]);
        if gates::has(&self.gates, names::GATE_PLACEMENT) {
            let gates = gates::without(&self.gates, names::GATE_PLACEMENT);
            patch.push(add(&GATES, if gates.is_empty() { Value::Null } else { Value::Array(gates) }));
        }
        if self.keeps_affinity {
            patch.push(unannotate(names::USER_AFFINITY));
        }
        patch.extend(self.granted_parallelism(Grant::All, self.wanted));
        patch.extend(self.take_over_larger());
        patch.extend(self.resized_pods(None));
        Patch(patch)
    }

    /// The record with the ended indexes, from which the nodes of the other indexes follow, if each pod has its
    /// own node.
    pub(in crate::cluster::target) fn with_done(&self, record: Record, pin: Pin) -> Record {
        let done = self.done.as_deref().filter(|_| pin == Pin::OneByOne).map(ToOwned::to_owned);
        Record { done, ..record }
    }

    /// The record with the user's parallelism, if the spec gets a smaller one.
    fn with_wanted(&self, record: &Record, grant: Grant) -> Record {
        let wanted = (grant == Grant::Part).then_some(self.wanted);
        Record { wanted, ..record.clone() }
    }

    /// Removes the annotation with the user's larger parallelism, which record or spec have from now on. Writing it changes no
    /// generation, so the patch tests its value.
    fn take_over_larger(&self) -> Vec<PatchOperation> {
        let path = ["metadata", "annotations", names::WANTED_PARALLELISM];
        let larger = self.larger.as_deref().map(|text| [test(&path, json!(text)), remove(&path)]);
        larger.into_iter().flatten().collect()
    }

    /// Sets the granted parallelism, unless the spec has it.
    fn granted_parallelism(&self, grant: Grant, pods: u32) -> Option<PatchOperation> {
        let granted = if grant == Grant::All { self.wanted } else { pods };
        (granted != self.parallelism).then(|| add(&["spec", "parallelism"], json!(granted)))
    }

    /// Sets the limits of the first container to the granted size, or without one to the most wanted, unless the
    /// template has them.
    fn resized_pods(&self, share: Option<&str>) -> Option<PatchOperation> {
        self.sizes.as_ref()?.change(share).map(|limits| add(&LIMITS, limits))
    }

    fn written_affinity(&self) -> Option<Value> {
        serde_json::from_str(self.user_affinity.as_deref()?).ok()
    }
}

/// Stops a Job, and holds it: it is queued again.
pub fn evict(facts: &Facts, version: u64, note: &Eviction) -> Patch {
    let mut patch = facts.expect(version);
    patch.extend([suspend(true), hold(), annotate(names::EVICTION, json(note))]);
    patch.extend(facts.take_room());
    Patch(patch)
}

/// Stops a Job without a mark, so that the patch adds nothing to it.
pub fn suspend_only(facts: &Facts, version: u64) -> Patch {
    let mut patch = facts.expect(version);
    patch.push(suspend(true));
    patch.extend(facts.take_room());
    Patch(patch)
}

/// What makes a Job one that has never started, for the API server.
#[derive(Debug, PartialEq, Eq)]
pub enum Unstart {
    /// This patch on the status of the Job, which is suspended and has no pods.
    Patch(Patch),
    /// It has no start time, so something else is in the way.
    NeverRan,
    /// Its controller still counts pods, or has not seen that it is suspended.
    Stopping,
    /// It is not suspended any more, or another Job has its name.
    Resumed,
}

/// Clears the start time of the Job with this UID.
#[must_use]
pub fn unstart(job: &wire::Job, expected: &Name) -> Unstart {
    if job.spec.suspend != Some(true) || uid(&job.metadata) != *expected {
        return Unstart::Resumed;
    }
    if job.status.start_time.is_none() {
        return Unstart::NeverRan;
    }
    if suspension(job).is_none() || count(job.status.active) > 0 {
        return Unstart::Stopping;
    }
    Unstart::Patch(Patch(vec![
        at_version(version(&job.metadata)),
        test(&["metadata", "uid"], json!(&**expected)),
        remove(&["status", "startTime"]),
    ]))
}

fn suspend(suspended: bool) -> PatchOperation {
    add(&["spec", "suspend"], json!(suspended))
}
