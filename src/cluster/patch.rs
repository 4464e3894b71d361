//! The patches Sluice makes, as values.
//!
//! Each is a JSON Patch that begins with what it was decided on: this very object, not another that
//! has been made under its name since, and of a Job the generation of its spec. Admitting, stopping and
//! restoring all change that, so no patch can be made twice, while the Job controller may write its
//! status in between (which it does right after a Job is created). For a pod it is the version of the
//! whole object. The affinity is replaced whole, so that what the user wrote comes back exactly.

use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, TestOperation};
use kube::core::Status;
use serde_json::{Value, json};

use super::reduce::{Facts, pod::Way};
use crate::api::affinity::pinned;
use crate::api::names;
use crate::api::record::{Eviction, Record};
use crate::api::seats::Seats;
use crate::api::sizes::{are_at, limits_at};
use crate::engine::types::{Name, WorkloadKind};

mod other;

/// Where the affinity of a Job's pods stands.
const TEMPLATE_AFFINITY: [&str; 4] = ["spec", "template", "spec", "affinity"];
/// Where that of a pod of its own stands.
const OWN_AFFINITY: [&str; 2] = ["spec", "affinity"];

/// Lets a workload run on the nodes of `record`, with as many pods of a Job as it says if it `grants`
/// fewer than there could be.
#[must_use]
pub fn admit(
    kind: WorkloadKind,
    facts: &Facts,
    version: u64,
    record: &Record,
    grants: Grant,
    pin: Pin,
) -> Patch {
    if let Some(other) = &facts.other {
        return other::admit(facts, other, version, record);
    }
    let user: Option<Value> = facts.user_affinity.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let nodes = record.nodes_of(&facts.uid);
    let one_by_one = kind == WorkloadKind::Job && pin == Pin::OneByOne;
    let mut patch = expect(facts, version);
    let of_pod = kind.is_pods();
    if of_pod {
        patch.push(add(&["spec", "schedulingGates"], without(&facts.gates, names::GATE_ADMISSION)));
    } else {
        patch.push(add(&["spec", "suspend"], json!(false)));
        patch.extend(sized(facts, record.share.as_deref()));
        patch.extend(grants.parallelism(facts, record.pods));
    }
    if one_by_one {
        let mut gates = without(&facts.gates, names::GATE_PLACEMENT);
        if let Value::Array(gates) = &mut gates {
            gates.push(json!({"name": names::GATE_PLACEMENT}));
        }
        patch.push(add(&TEMPLATE_GATES, gates));
    } else if !nodes.is_empty() {
        let path: &[&str] = if of_pod { &OWN_AFFINITY } else { &TEMPLATE_AFFINITY };
        patch.push(add(path, pinned(user.as_ref(), &nodes)));
    }
    // A bare pod gated by the API server's own policy may carry no annotation at all yet.
    if of_pod && !facts.annotated {
        patch.push(add(&["metadata", "annotations"], json!({})));
    }
    patch.push(annotate(names::ADMISSION, json(&pin.noted(facts, grants.noted(facts, record)))));
    if !of_pod
        && !one_by_one
        && let Some(user) = &facts.user_affinity
    {
        patch.push(annotate(names::USER_AFFINITY, user.to_string()));
    }
    if facts.has_eviction {
        patch.push(unannotate(names::EVICTION));
    }
    Patch(patch)
}

/// Lets a pod of a Job go to its place.
#[must_use]
pub fn seat(uid: &Name, way: &Way, node: &str) -> Patch {
    let user: Option<Value> = way.affinity.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let gates = ["spec", "schedulingGates"];
    Patch(vec![
        test(&["metadata", "uid"], json!(&**uid)),
        test(&gates, without(&way.gates, "")),
        add(&gates, without(&way.gates, names::GATE_PLACEMENT)),
        add(&OWN_AFFINITY, pinned(user.as_ref(), &[node])),
    ])
}

/// Has the first container of a Job's pods ask for what they were granted of the sizes that they would make do
/// with, or without any for what is wanted most; nothing where it does.
fn sized(facts: &Facts, share: Option<&str>) -> Option<PatchOperation> {
    let sizes = facts.sizes.as_deref()?;
    let choice = share.and_then(|share| sizes.choices.iter().find(|choice| choice.share == share));
    let choice = choice.or(sizes.choices.first())?;
    let limits = limits_at(&sizes.limits, &sizes.choices, choice);
    let same = are_at(&sizes.limits, &sizes.choices, choice);
    let path = ["spec", "template", "spec", "containers", "0", "resources", "limits"];
    (!same).then(|| add(&path, if limits.is_empty() { Value::Null } else { json!(limits) }))
}

/// Scheduling gates without the one of that name.
fn without(gates: &[Name], name: &str) -> Value {
    gates.iter().filter(|gate| &***gate != name).map(|gate| json!({"name": &**gate})).collect()
}

/// Takes a pod out of its Job's books, in a strategic merge patch, as the Job controller does before it
/// deletes pods of a Job that shrinks: one that goes after that does not count as failed.
#[must_use]
pub fn disown(uid: &Name) -> Value {
    json!({"metadata": {"uid": &**uid, "$deleteFromPrimitiveList/finalizers": [JOB_TRACKING]}})
}

/// The finalizer by which the Job controller sees to it that it counts a pod.
const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// Where the gates stand of the pods that a Job makes.
const TEMPLATE_GATES: [&str; 4] = ["spec", "template", "spec", "schedulingGates"];

/// How the pods of a Job come to the nodes of its admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// By the template: it does not matter which goes where, or they cannot but go where they should.
    Template,
    /// One by one: each is made with a gate, which is lifted when its place is written in.
    OneByOne,
}

impl Pin {
    /// The record with what tells the places of pods that have numbers, if each gets its own.
    fn noted(self, facts: &Facts, record: Record) -> Record {
        let done = facts.done.as_deref().filter(|_| self == Self::OneByOne).map(ToOwned::to_owned);
        Record { done, ..record }
    }

    /// The places of its pods by their numbers, once a Job has been admitted by this record.
    #[must_use]
    pub fn seats(self, facts: &Facts, record: Record) -> Option<Seats> {
        let record = self.noted(facts, record);
        record.done.is_some().then(|| Seats::of(&record))
    }
}

/// Lets a running Job go on with the pods of `record`. The nodes are among those of its admission: the
/// template of a running Job cannot change. It takes the place of the very record it was decided on.
#[must_use]
pub fn resize(facts: &Facts, version: u64, record: &Record, grants: Grant) -> Patch {
    let mut patch = expect(facts, version);
    if let Some(before) = &facts.record {
        let path = ["metadata", "annotations", names::ADMISSION];
        patch.push(test(&path, Value::String(before.to_string())));
    }
    patch.extend(grants.parallelism(facts, record.pods));
    patch.push(annotate(names::ADMISSION, json(&grants.noted(facts, record))));
    Patch(patch)
}

/// Ends a Job as failed, in its status: its controller ends the pods, if there are any, and makes the
/// target a failure with the same reason and sentence. One that never ran needs a start to have an end.
#[must_use]
pub fn fail_job(facts: &Facts, version: u64, why: &Failure<'_>) -> Patch {
    let target = json!({
        "type": "FailureTarget", "status": "True", "reason": why.reason, "message": why.message,
        "lastProbeTime": seconds(why.at), "lastTransitionTime": seconds(why.at),
    });
    let mut patch = vec![at_version(version), test(&["metadata", "uid"], json!(&*facts.uid))];
    if !facts.started {
        patch.push(add(&["status", "startTime"], json!(seconds(why.at))));
    }
    patch.push(if facts.conditioned {
        add(&["status", "conditions", "-"], target)
    } else {
        add(&["status", "conditions"], json!([target]))
    });
    Patch(patch)
}

/// Stops an object of another kind for good; nothing for a Job or a Pod.
#[must_use]
pub fn fail_other(facts: &Facts, version: u64, why: &Failure<'_>) -> Patch {
    let stopped = facts.other.as_ref().map(|other| other::fail(facts, other, version, why));
    stopped.unwrap_or_default()
}

/// Ends a pod as failed that no kubelet has yet, in its status.
#[must_use]
pub fn fail_held_pod(facts: &Facts, version: u64, why: &Failure<'_>) -> Patch {
    let mut patch = expect(facts, version);
    for (field, text) in [("phase", "Failed"), ("reason", why.reason), ("message", why.message)] {
        patch.push(add(&["status", field], json!(text)));
    }
    Patch(patch)
}

/// Has the kubelet of a running pod end it as failed, by a deadline that is past; a note says why.
#[must_use]
pub fn fail_running_pod(facts: &Facts, version: u64, why: &Failure<'_>) -> Patch {
    let note = Eviction { at: why.at, preemptor: String::new(), reason: why.reason.to_owned() };
    let mut patch = expect(facts, version);
    patch.push(add(&["spec", "activeDeadlineSeconds"], json!(1)));
    patch.push(annotate(names::EVICTION, json(&note)));
    Patch(patch)
}

/// What asks the API server to end this very pod as soon as its disruption budgets allow.
#[must_use]
pub fn eviction(namespace: &str, name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": {"preconditions": {"uid": uid}},
    })
}

/// Why a workload is ended as failed.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    /// The rule, a word.
    pub reason: &'a str,
    /// The numbers, in one sentence.
    pub message: &'a str,
    /// When that was decided.
    pub at: Timestamp,
}

/// Whether a Job gets all the pods it has use for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// All; its parallelism is its user's.
    All,
    /// So many at most; its user's parallelism is kept in the record.
    Part,
}

impl Grant {
    /// The parallelism to be written, if it is not there yet.
    fn parallelism(self, facts: &Facts, pods: u32) -> Option<PatchOperation> {
        let granted = if self == Self::All { facts.wanted } else { pods };
        (granted != facts.parallelism).then(|| add(&["spec", "parallelism"], json!(granted)))
    }

    fn noted(self, facts: &Facts, record: &Record) -> Record {
        let wanted = (self == Self::Part).then_some(facts.wanted);
        Record { wanted, ..record.clone() }
    }
}

/// Stops a Job; its record stays until nothing of it is left.
#[must_use]
pub fn evict(facts: &Facts, version: u64, eviction: &Eviction) -> Patch {
    if let Some(other) = &facts.other {
        return other::evict(facts, other, version, eviction);
    }
    let mut patch = expect(facts, version);
    patch.extend([add(&["spec", "suspend"], json!(true)), annotate(names::EVICTION, json(eviction))]);
    Patch(patch)
}

/// Gives a stopped Job its user's template back and ends the admission. One that Sluice evicted is
/// queued again; one without a note of an eviction was suspended by its user, whose hold it is now.
#[must_use]
pub fn restore(facts: &Facts, version: u64) -> Patch {
    if let Some(other) = &facts.other {
        return other::restore(facts, other, version);
    }
    let user: Option<Value> = facts.user_affinity.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let mut patch = expect(facts, version);
    patch.extend([add(&TEMPLATE_AFFINITY, user.unwrap_or(Value::Null)), unannotate(names::ADMISSION)]);
    if facts.gates.iter().any(|gate| &**gate == names::GATE_PLACEMENT) {
        let gates = without(&facts.gates, names::GATE_PLACEMENT);
        let none = gates.as_array().is_some_and(Vec::is_empty);
        patch.push(add(&TEMPLATE_GATES, if none { Value::Null } else { gates }));
    }
    if facts.held && !facts.has_eviction {
        patch.push(unannotate(names::HELD));
    }
    if facts.keeps_affinity {
        patch.push(unannotate(names::USER_AFFINITY));
    }
    patch.extend(Grant::All.parallelism(facts, facts.wanted));
    patch.extend(sized(facts, None));
    Patch(patch)
}

/// Tells pod failure policies, and people, that a pod ends because Sluice needs its room. Without a
/// fresh time the disruption controller would take the condition for stale and withdraw it.
#[must_use]
pub fn disruption(now: Timestamp, message: &str) -> Value {
    json!({"status": {"conditions": [disrupted(now, message)]}})
}

/// Tells the same, and has the Job controller take this pod first when its Job shrinks: it takes pods
/// that are not ready before others, and has no other ear for which are to go.
#[must_use]
pub fn first_to_go(now: Timestamp, message: &str) -> Value {
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

/// A time as Kubernetes writes it, in whole seconds.
fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What the object must still be like; [`does_not_apply`] knows the answer when it is not.
fn expect(facts: &Facts, version: u64) -> Vec<PatchOperation> {
    let unmoved = match facts.generation {
        Some(generation) => test(&["metadata", "generation"], json!(generation)),
        None => at_version(version),
    };
    vec![unmoved, test(&["metadata", "uid"], json!(&*facts.uid))]
}

/// Has the API server refuse the patch as a conflict on any other version of the object.
fn at_version(version: u64) -> PatchOperation {
    add(&["metadata", "resourceVersion"], json!(version.to_string()))
}

/// Whether a conflict says that the object is not what the patch was decided on.
#[must_use]
pub fn is_versioned(patch: &Patch) -> bool {
    let version = PointerBuf::from_tokens(["metadata", "resourceVersion"]);
    patch.0.iter().any(|operation| matches!(operation, PatchOperation::Add(add) if add.path == version))
}

/// Whether the API server refused a patch because the object is not what it was decided on: a test
/// of the patch fails. That is told from an invalid result by its lack of any detail: no object is
/// named, because none came out.
#[must_use]
pub fn does_not_apply(answer: &Status) -> bool {
    let names_nothing =
        answer.details.as_ref().is_none_or(|details| details.name.is_empty() && details.causes.is_empty());
    answer.code == 422 && names_nothing
}

fn test(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation { path: PointerBuf::from_tokens(path.iter().copied()), value })
}

fn add(path: &[&str], value: Value) -> PatchOperation {
    add_at(PointerBuf::from_tokens(path.iter().copied()), value)
}

fn add_at(path: PointerBuf, value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path, value })
}

fn annotate(key: &str, text: String) -> PatchOperation {
    add(&["metadata", "annotations", key], Value::String(text))
}

fn unannotate(key: &str) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation {
        path: PointerBuf::from_tokens(["metadata", "annotations", key]),
    })
}

fn json(record: &impl serde::Serialize) -> String {
    serde_json::to_string(record).expect("strings, numbers and string-keyed maps always serialize")
}

#[cfg(test)]
#[path = "patch_tests.rs"]
mod tests;
