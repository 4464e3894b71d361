//! An object of a custom kind: one gang of pods, read and patched at the places that the table of kinds names.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use json_patch::{Patch, PatchOperation};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use self::roles::{Gang, gang};
use super::super::patch::{add_at, annotate, hold, json, unannotate};
use super::super::reduce::claims::Claims;
use super::super::reduce::counts::{values, with_metadata};
use super::super::reduce::{annotation, controller, label, uid, version};
use super::marks::{Marks, Requests, Stage};
use super::{Facts, Failure, JobSeen, Managed, Suspension, Target};
use crate::api::caps::Counts;
use crate::api::names;
use crate::api::record::{Eviction, Record, time};
use crate::engine::types::{Observed, Time, Workload, WorkloadKind};
use crate::kinds::{Kind, Placement, Pointer, Watched, place, unplace};

pub mod roles;

/// Facts that only an object of a custom kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomFacts {
    /// The entry of its kind in the table.
    pub kind: Arc<Kind>,
    /// An object with its spec alone; null once it is over.
    pub object: Value,
    /// The pod templates that its placement is written to.
    pub templates: Vec<Pointer>,
    /// The user's affinities by template, while an admission has replaced them.
    pub kept: BTreeMap<String, Value>,
    /// Whether rules say which pod failures count.
    pub has_failure_policy: bool,
}

/// Reads an object of a watched kind seen at `now`.
#[must_use]
pub fn custom(watched: &Watched, object: &DynamicObject, now: Time) -> JobSeen {
    let metadata = &object.metadata;
    JobSeen {
        uid: uid(metadata),
        version: version(metadata),
        controller: controller(metadata).cloned().map(Box::new),
        managed: watched.entry.as_ref().and_then(|kind| managed(kind, object, now)),
    }
}

/// The pods that an object requests with its user's affinities, also while an admission has replaced them.
#[must_use]
pub fn asked(
    kind: &Kind,
    (object, namespace): (&Value, Option<&String>),
    kept: &BTreeMap<String, Value>,
) -> Gang {
    gang(kind, (object, namespace), &|template| match kept.get(&template.to_string()) {
        Some(user) => Some(user.clone()),
        None => template.under("spec").under("affinity").read(object).cloned(),
    })
}

fn managed(kind: &Arc<Kind>, object: &DynamicObject, now: Time) -> Option<Box<Managed>> {
    let (metadata, data) = (&object.metadata, &object.data);
    let marks = Marks::read(metadata);
    let suspended = kind.suspended(data);
    let finished = metadata.deletion_timestamp.is_some() || kind.has_finished(data);
    if !marks.manage(suspended, finished) {
        return None;
    }
    let kept: BTreeMap<String, Value> = annotation(metadata, names::USER_AFFINITY)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let gang = asked(kind, (data, metadata.namespace.as_ref()), &kept);
    let (stopped, admissible) = (kind.has_stopped(data), gang.pods > 0 && gang.missing.is_none());
    let state = marks.state(&Stage { suspended, stopped, finished, admissible }, now);
    let over = state == Observed::Finished;
    let deadline = kind.deadline.as_ref().and_then(|at| at.read(data)).and_then(Value::as_i64);
    let common = Requests::read(metadata, deadline).workload(kind_of(kind), metadata, state);
    let claims = Claims::of_template(&common.namespace, gang.claims, &gang.shape.requests, &[]);
    let counts = Counts { pools: common.pools.len() as u64, values: values(&data["spec"]), ..gang.counts };
    let counts = with_metadata(counts, metadata, gang.counts.notes);
    Some(Box::new(Managed {
        counts,
        claims,
        own_queue: label(metadata, names::QUEUE),
        class: gang.class,
        workload: Workload {
            pods: gang.pods,
            // Pods of an object that is over may run on, such as those of a RayJob that keeps its cluster.
            shape: gang.shape.into(),
            profile: gang.profile,
            grace: gang.grace,
            ran: marks.record.as_ref().filter(|_| over).and_then(|record| ran(record, data)),
            ..common
        }
        .into(),
        facts: Facts { suspension: Suspension::read(stopped), ..marks.facts(metadata) },
        target: Target::Custom(Box::new(CustomFacts {
            kind: Arc::clone(kind),
            object: if over { Value::Null } else { json!({"spec": data["spec"]}) },
            templates: gang.templates,
            kept,
            has_failure_policy: mentions(&data["spec"], "podFailurePolicy"),
        })),
    }))
}

fn kind_of(kind: &Kind) -> WorkloadKind {
    WorkloadKind::Other { api_version: kind.api_version.as_str().into(), kind: kind.kind.as_str().into() }
}

/// How long the run of an admission took, where the status has the time of its end.
fn ran(record: &Record, data: &Value) -> Option<Duration> {
    let ended = data["status"]["completionTime"].as_str()?.parse::<Timestamp>().ok()?;
    Some(time(ended).since(time(record.at)))
}

/// Whether a field of that name is anywhere in a value.
fn mentions(value: &Value, field: &str) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, one)| key == field || mentions(one, field)),
        Value::Array(list) => list.iter().any(|one| mentions(one, field)),
        _ => false,
    }
}

impl CustomFacts {
    pub(super) fn admit(&self, facts: &Facts, version: u64, record: &Record) -> Patch {
        let nodes: Vec<&str> = record.nodes.keys().map(String::as_str).collect();
        let (placed, kept) = place(&self.kind, &self.object, &self.templates, &nodes);
        let mut patch = facts.expect(version);
        patch.push(self.suspend(false));
        patch.extend(facts.release());
        patch.extend(placed);
        patch.push(annotate(names::ADMISSION, json(&record.clone().with_room())));
        if self.kind.placement == Placement::Affinity {
            patch.push(annotate(names::USER_AFFINITY, json(&kept)));
        }
        if facts.has_eviction {
            patch.push(unannotate(names::EVICTION));
        }
        Patch(patch)
    }

    pub(super) fn evict(&self, facts: &Facts, version: u64, note: &Eviction) -> Patch {
        let mut patch = self.stop(facts, version, note);
        patch.push(hold());
        Patch(patch)
    }

    /// Stops the object without a mark, so that the patch adds nothing to it.
    pub(super) fn suspend_only(&self, facts: &Facts, version: u64) -> Patch {
        let mut patch = facts.expect(version);
        patch.push(self.suspend(true));
        patch.extend(facts.take_room());
        Patch(patch)
    }

    /// Stops the object for good. Only its own controller can mark it as failed, so it remains suspended as if by
    /// its user, with a note of the reason.
    pub(super) fn fail(&self, facts: &Facts, version: u64, why: &Failure<'_>) -> Patch {
        let mut patch = self.stop(facts, version, &why.note());
        patch.extend(facts.release());
        Patch(patch)
    }

    pub(super) fn restore(&self, facts: &Facts, version: u64) -> Patch {
        let mut patch = facts.expect(version);
        patch.extend(unplace(&self.kind, &self.object, &self.templates, &self.kept));
        patch.push(unannotate(names::ADMISSION));
        if !self.kept.is_empty() {
            patch.push(unannotate(names::USER_AFFINITY));
        }
        Patch(patch)
    }

    fn stop(&self, facts: &Facts, version: u64, note: &Eviction) -> Vec<PatchOperation> {
        let mut patch = facts.expect(version);
        patch.extend([self.suspend(true), annotate(names::EVICTION, json(note))]);
        patch.extend(facts.take_room());
        patch
    }

    fn suspend(&self, suspended: bool) -> PatchOperation {
        add_at(self.kind.suspend.to_buf(), Value::Bool(suspended))
    }
}
