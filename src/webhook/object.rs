//! Reading the few fields that matter out of raw objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

/// A label's value.
#[must_use]
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["labels"][key].as_str()
}

/// An annotation's value.
#[must_use]
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object["metadata"]["annotations"][key].as_str()
}

/// Whether the object is on its way out: such an object is never held up.
#[must_use]
pub fn deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Whether the object's controller is of the given kind.
#[must_use]
pub fn controlled_by(object: &Value, kind: &str) -> bool {
    object["metadata"]["ownerReferences"].as_array().is_some_and(|owners| {
        owners.iter().any(|owner| owner["controller"] == Value::Bool(true) && owner["kind"] == kind)
    })
}

/// Who controls the object.
#[must_use]
pub fn controller(object: &Value) -> Option<OwnerReference> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == Value::Bool(true))?;
    serde_json::from_value(owner.clone()).ok()
}
