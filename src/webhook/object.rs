//! Reads the few fields of a raw object that the webhook needs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

use crate::kinds::Pointer;

/// The value of a label.
#[must_use]
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"][key].as_str()
}

/// The value of an annotation.
#[must_use]
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

/// The field of a label.
#[must_use]
pub fn label_at(key: &str) -> Pointer {
    Pointer::to(["metadata", "labels", key])
}

/// The field of an annotation.
#[must_use]
pub fn annotation_at(key: &str) -> Pointer {
    Pointer::to(["metadata", "annotations", key])
}

/// Whether an annotation has the same value in both objects.
#[must_use]
pub fn same_annotation(old: &Value, new: &Value, key: &str) -> bool {
    annotation(old, key) == annotation(new, key)
}

/// Whether the object is being deleted.
#[must_use]
pub fn deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The owner that controls the object.
#[must_use]
pub fn controller(object: &Value) -> Option<OwnerReference> {
    serde_json::from_value(controlling(object).next()?.clone()).ok()
}

/// Whether an owner of this kind controls the object.
#[must_use]
pub fn controlled_by(object: &Value, group: &str, kind: &str) -> bool {
    let of_group = |owner: &Value| {
        owner["apiVersion"].as_str().and_then(|version| version.split_once('/')).map(|(it, _)| it == group)
    };
    controlling(object).any(|owner| owner["kind"] == kind && of_group(owner) == Some(true))
}

/// The UID of the Job that controls a pod.
#[must_use]
pub fn job_of(pod: &Value) -> Option<&str> {
    controlling(pod).find(|owner| owner["kind"] == "Job")?["uid"].as_str()
}

fn controlling(object: &Value) -> impl Iterator<Item = &Value> {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.filter(|owner| owner["controller"] == Value::Bool(true))
}
