//! Building blocks of JSON patches, and the answers that refuse one.

use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, TestOperation};
use kube::core::Status;
use serde_json::Value;

use crate::api::names;

/// The patch applies only while the field has this value.
pub(super) fn test(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Test(TestOperation { path: PointerBuf::from_tokens(path.iter().copied()), value })
}

/// Sets a field.
pub(super) fn add(path: &[&str], value: Value) -> PatchOperation {
    add_at(PointerBuf::from_tokens(path.iter().copied()), value)
}

/// Sets the field at a pointer.
pub(super) fn add_at(path: PointerBuf, value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path, value })
}

/// Sets an annotation; the object must have annotations.
pub(super) fn annotate(key: &str, text: String) -> PatchOperation {
    add(&["metadata", "annotations", key], Value::String(text))
}

/// Removes a field; it must exist.
pub(super) fn remove(path: &[&str]) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: PointerBuf::from_tokens(path.iter().copied()) })
}

/// Marks an object as held by Sluice.
pub(super) fn hold() -> PatchOperation {
    annotate(names::HELD, "true".to_owned())
}

/// Removes an annotation; it must exist.
pub(super) fn unannotate(key: &str) -> PatchOperation {
    remove(&["metadata", "annotations", key])
}

/// A record as the text of an annotation.
pub(super) fn json(record: &impl serde::Serialize) -> String {
    serde_json::to_string(record).expect("strings, numbers and string-keyed maps always serialize")
}

/// A time as Kubernetes writes it, in whole seconds.
pub(super) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The API server refuses the patch as a conflict on any other version of the object.
pub(super) fn at_version(version: u64) -> PatchOperation {
    add(&["metadata", "resourceVersion"], Value::String(version.to_string()))
}

/// Whether the patch names a version, so that a conflict means that the object has changed since the decision.
#[must_use]
pub fn is_versioned(patch: &Patch) -> bool {
    let version = PointerBuf::from_tokens(["metadata", "resourceVersion"]);
    patch.0.iter().any(|operation| matches!(operation, PatchOperation::Add(add) if add.path == version))
}

/// Whether the API server refused a patch because a `test` operation of it failed: the object has changed since
/// the decision. An invalid result has the same code, but names the object and the causes; a failed test has
/// no result to name.
#[must_use]
pub fn does_not_apply(answer: &Status) -> bool {
    let names_nothing =
        answer.details.as_ref().is_none_or(|details| details.name.is_empty() && details.causes.is_empty());
    answer.code == 422 && names_nothing
}

/// Whether the API server refused a patch on a Job because its pod template cannot be changed in this state.
#[must_use]
pub fn finds_template_immutable(answer: &Status) -> bool {
    let mut causes = answer.details.iter().flat_map(|details| &details.causes);
    answer.code == 422
        && causes.any(|cause| cause.field == "spec.template" && cause.message.contains("immutable"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_that_does_not_apply_is_told_from_an_invalid_result() {
        let answer = |code: u16, reason: &str, details: Value| -> Status {
            serde_json::from_value(
                json!({"status": "Failure", "code": code, "reason": reason, "message": "m", "details": details}),
            )
            .expect("a status")
        };
        let cause =
            json!({"reason": "FieldValueInvalid", "message": "field is immutable", "field": "spec.template"});
        let invalid = json!({"name": "j", "group": "batch", "kind": "Job", "causes": [cause]});
        assert!(does_not_apply(&answer(422, "Invalid", json!({}))), "as Kubernetes 1.36 answers");
        assert!(!does_not_apply(&answer(409, "Conflict", json!({"name": "j"}))));
        assert!(!does_not_apply(&answer(422, "Invalid", invalid.clone())));
        assert!(finds_template_immutable(&answer(422, "Invalid", invalid)));
        let other =
            json!({"reason": "FieldValueInvalid", "message": "field is immutable", "field": "spec.selector"});
        let other = json!({"name": "j", "group": "batch", "kind": "Job", "causes": [other]});
        assert!(!finds_template_immutable(&answer(422, "Invalid", other)));
        assert!(!finds_template_immutable(&answer(422, "Invalid", json!({}))));
        assert!(!does_not_apply(&answer(403, "Forbidden", json!({"name": "j"}))));
    }
}
