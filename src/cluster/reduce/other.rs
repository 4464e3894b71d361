//! An object of a kind of the table as the engine sees it: one gang of pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::claims::Claims;
use super::job::JobSeen;
use super::roles::{Gang, gang};
use super::{
    Facts, Managed, annotation, controller, created, eviction, label, name, record, uid, version, wishes,
};
use crate::api::names;
use crate::api::record::time;
use crate::engine::types::{Admission, Observed, PodShape, Time, Workload, WorkloadId, WorkloadKind};
use crate::kinds::{Kind, Pointer, Watched};

/// What the patches on an object of another kind depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    /// Its entry of the table.
    pub kind: Arc<Kind>,
    /// Its spec, as an object with that field alone.
    pub object: Value,
    /// The pod templates that its placement goes into.
    pub templates: Vec<Pointer>,
    /// The affinities that its user wrote, by template, while others stand in their places.
    pub kept: BTreeMap<String, Value>,
}

/// Reduces an object of a watched kind seen at `now`.
#[must_use]
pub fn other(watched: &Watched, object: &DynamicObject, now: Time) -> JobSeen {
    let metadata = &object.metadata;
    JobSeen {
        uid: uid(metadata),
        version: version(metadata),
        controller: controller(metadata).cloned().map(Box::new),
        managed: watched.entry.as_ref().and_then(|kind| managed(kind, object, now)),
    }
}

/// What an object asks for, whatever stands in its templates for the time of an admission.
#[must_use]
pub fn asked(kind: &Kind, object: &Value, kept: &BTreeMap<String, Value>) -> Gang {
    gang(kind, object, &|template| match kept.get(&template.to_string()) {
        Some(user) => Some(user.clone()),
        None => template.under("spec").under("affinity").read(object).cloned(),
    })
}

fn managed(kind: &Arc<Kind>, object: &DynamicObject, now: Time) -> Option<Box<Managed>> {
    let (metadata, data) = (&object.metadata, &object.data);
    let record = record(metadata);
    let held = annotation(metadata, names::HELD) == Some("true");
    let suspended = kind.suspended(data);
    let finished = metadata.deletion_timestamp.is_some() || kind.has_finished(data);
    if record.is_none() && !suspended && !(held && finished) {
        return None;
    }
    let eviction = eviction(metadata);
    let kept: BTreeMap<String, Value> = annotation(metadata, names::USER_AFFINITY)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    let gang = asked(kind, data, &kept);
    let state = match (suspended, record.as_ref().map(Admission::from)) {
        _ if finished => Observed::Finished,
        (false, Some(admission)) => Observed::Admitted(admission),
        (true, Some(admission)) => {
            let since = eviction.as_ref().map_or(now, |eviction| time(eviction.at));
            Observed::Leaving { admission, since, stopped: kind.has_stopped(data) }
        }
        (_, None) if held && gang.pods > 0 && gang.missing.is_none() => Observed::Queued,
        (_, None) => Observed::OnHold,
    };
    let over = state == Observed::Finished;
    let deadline = kind.deadline.as_ref().and_then(|at| at.read(data)).and_then(Value::as_i64);
    let wishes = wishes(metadata, deadline);
    let ran = record.as_ref().filter(|_| over).and_then(|record| {
        let ended = data["status"]["completionTime"].as_str()?.parse::<Timestamp>().ok()?;
        Some(time(ended).since(time(record.at)))
    });
    let namespace = name(metadata.namespace.as_ref());
    let claims = Claims::of_template(&namespace, gang.claims, &gang.shape.requests, &[]);
    Some(Box::new(Managed {
        claims: claims.filter(|_| !over),
        own_queue: label(metadata, names::QUEUE),
        class: gang.class,
        facts: Facts {
            uid: uid(metadata),
            record: annotation(metadata, names::ADMISSION).map(Into::into),
            has_eviction: annotation(metadata, names::EVICTION).is_some(),
            held,
            has_failure_policy: mentions(&data["spec"], "podFailurePolicy"),
            eviction,
            generation: metadata.generation,
            parallelism: gang.pods,
            wanted: gang.pods,
            annotated: metadata.annotations.is_some(),
            other: Some(Arc::new(Other {
                kind: Arc::clone(kind),
                object: if over { Value::Null } else { json!({"spec": data["spec"]}) },
                templates: gang.templates,
                kept,
            })),
            ..Facts::default()
        },
        workload: Workload {
            id: WorkloadId(uid(metadata)),
            kind: WorkloadKind::Other {
                api_version: kind.api_version.as_str().into(),
                kind: kind.kind.as_str().into(),
            },
            namespace,
            name: name(metadata.name.as_ref()),
            team: "".into(),
            queue: None,
            priority: 0,
            submitted: created(metadata),
            pods: gang.pods,
            min_pods: None,
            shape: if over { PodShape::default() } else { gang.shape },
            sizes: Vec::new(),
            topology: wishes.topology,
            user: wishes.user,
            pools: wishes.pools,
            resumable: true,
            expendable: false,
            resizable: false,
            time_limit: wishes.time_limit,
            last_checkpoint: wishes.last_checkpoint,
            checkpoint_interval: wishes.checkpoint_interval,
            ran,
            state,
        },
    }))
}

/// Whether a field of that name is anywhere in a value.
fn mentions(value: &Value, field: &str) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, one)| key == field || mentions(one, field)),
        Value::Array(list) => list.iter().any(|one| mentions(one, field)),
        _ => false,
    }
}
