//! Reads single objects of a scenario, and the lists of a cluster without objects.

use std::time::Duration;

use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::check::Checker;
use crate::api::names;
use crate::cluster::dra::{News, key};
use crate::cluster::mirror::Change;
use crate::cluster::reduce::claims;
use crate::cluster::table::Seen;
use crate::engine::replay::Life;
use crate::engine::types::{Name, Workload};
use crate::scenario::{Kind, Object, ScenarioError};

/// The annotation that lets a workload run from the start, as errors name it.
pub const RUNNING_ON: &str = "metadata.annotations[simulate.sluice.dev/running-on]";

/// The change of claimed devices that an object means, if its kind is one of those.
pub fn devices(checker: &Checker, object: &Object, strictly: bool) -> Result<Option<News>, ScenarioError> {
    let key = devices_key(object);
    Ok(Some(match object.kind {
        Kind::DeviceClass => {
            let class: DeviceClass = checker.decode(object, strictly)?;
            News::Class(Seen::Object(key, claims::device_class(&class)))
        }
        Kind::ResourceSlice => {
            let slice: ResourceSlice = checker.decode(object, strictly)?;
            News::Slice(Seen::Object(key, claims::slice(&slice)))
        }
        Kind::ResourceClaimTemplate => {
            let template: ResourceClaimTemplate = checker.decode(object, strictly)?;
            News::Template(Seen::Object(key, claims::template(&template)))
        }
        Kind::ResourceClaim => {
            let claim: ResourceClaim = checker.decode(object, strictly)?;
            News::Claim(Seen::Object(key, claims::claim(&claim)))
        }
        _ => return Ok(None),
    }))
}

/// The change that deleting an object means for claimed devices, if its kind is one of those.
pub fn devices_deleted(object: &Object) -> Option<News> {
    let key = devices_key(object);
    Some(match object.kind {
        Kind::DeviceClass => News::Class(Seen::Deleted(key)),
        Kind::ResourceSlice => News::Slice(Seen::Deleted(key)),
        Kind::ResourceClaimTemplate => News::Template(Seen::Deleted(key)),
        Kind::ResourceClaim => News::Claim(Seen::Deleted(key)),
        _ => return None,
    })
}

fn devices_key(object: &Object) -> Name {
    match &object.namespace {
        Some(namespace) => key(namespace, &object.name),
        None => object.name.as_str().into(),
    }
}

/// Run time, completions and grace of a Job or Pod.
pub fn life(object: &Object) -> Life {
    let job = object.kind == Kind::Job;
    let spec = &object.manifest["spec"];
    let pod = if job { &spec["template"]["spec"] } else { spec };
    let completions = spec["completions"].as_u64().filter(|_| job);
    Life {
        run: object.duration,
        completions: completions.and_then(|number| u32::try_from(number).ok()),
        grace: Duration::from_secs(pod["terminationGracePeriodSeconds"].as_u64().unwrap_or(0)),
    }
}

/// The life of a workload of a snapshot, which ends at its time limit.
pub fn life_in_snapshot(workload: &Workload) -> Life {
    Life { run: workload.time_limit, completions: None, grace: workload.grace }
}

/// The life of pods that are one workload: that of the longest.
pub fn longest(lives: impl Iterator<Item = Life>) -> Option<Life> {
    lives.reduce(|left, right| Life {
        run: left.run.zip(right.run).map(|(left, right)| left.max(right)),
        grace: left.grace.max(right.grace),
        ..left
    })
}

/// Refuses `running-on` for a pod of a group: a group starts complete, and one pod cannot place all of it.
pub fn refuse_running(object: &Object) -> Result<(), ScenarioError> {
    if object.running_on.is_none() {
        return Ok(());
    }
    let message =
        format!("cannot be combined with the label {}: a group starts when it is complete", names::GROUP);
    Err(object.invalid(RUNNING_ON, message))
}

/// The `activeDeadlineSeconds` of a Job or pod.
pub fn deadline(object: &Object) -> Option<Duration> {
    object.manifest["spec"]["activeDeadlineSeconds"].as_u64().map(Duration::from_secs)
}

/// A node with the fields that its kubelet sets: condition Ready, hostname label, and capacity as allocatable.
pub fn node_as_kubelet(manifest: &Value) -> Value {
    let mut node = manifest.clone();
    let labels = &mut node["metadata"]["labels"];
    if labels["kubernetes.io/hostname"].is_null() {
        labels["kubernetes.io/hostname"] = manifest["metadata"]["name"].clone();
    }
    let status = &mut node["status"];
    if status["allocatable"].is_null() {
        status["allocatable"] = status["capacity"].clone();
    }
    let has_ready = |conditions: &Vec<Value>| conditions.iter().any(|condition| condition["type"] == "Ready");
    if !status["conditions"].as_array().is_some_and(has_ready) {
        let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        conditions.push(json!({"type": "Ready", "status": "True"}));
        status["conditions"] = conditions.into();
    }
    node
}

/// Reads a changed manifest of an object; the error names the field.
pub fn decode_value<T: DeserializeOwned>(object: &Object, value: Value) -> Result<T, ScenarioError> {
    serde_path_to_error::deserialize(value).map_err(|error| object.misread(&error))
}

/// The annotation with the submitting user; on a real cluster the webhook writes it.
const USER: &str = "sluice.dev/user";

/// Takes the submitting user out of a manifest: on a real cluster the API server knows it.
pub fn take_user(manifest: &mut Value) -> Value {
    let annotations = manifest.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
    annotations.and_then(|annotations| annotations.remove(USER)).unwrap_or_default()
}

/// The changes that report complete, empty lists of every kind.
pub fn empty_lists() -> Vec<Change> {
    fn empty<T>() -> [Seen<T>; 2] {
        [Seen::ListBegins, Seen::ListEnds]
    }
    let mut changes: Vec<Change> = Vec::new();
    changes.extend(empty().map(Change::Namespace));
    changes.extend(empty().map(Change::Team));
    changes.extend(empty().map(Change::Pool));
    changes.extend(empty().map(Change::Node));
    changes.extend(empty().map(Change::Class));
    changes.extend(empty().map(Change::Job));
    changes.extend(empty().map(Change::Pod));
    changes.push(Change::PodGroups(false));
    changes.extend(News::nothing().map(Change::Devices));
    changes
}
