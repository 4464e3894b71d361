//! What an API server would refuse whatever a webhook says: wrong types, unknown fields, wrong amounts, Jobs whose
//! pods do not end.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::Value;

use super::read::invalid;
use crate::api::convert::FieldError;
use crate::api::names;
use crate::engine::types::amount::Amount;
use crate::scenario::{Kind, Object, Origin, ScenarioError};

/// The names that a refusal may speak of, by the place where they stand.
const MARKS: [(&str, &[&str]); 2] =
    [("metadata.labels", &names::LABELS), ("metadata.annotations", &names::ANNOTATIONS)];

/// Checks each document once, however many copies it asks for.
#[derive(Debug, Default)]
pub struct Checker {
    last: Option<(Arc<str>, usize, Option<usize>)>,
}

impl Checker {
    /// Reads an object as its kind; with `strictly` a field that the kind does not have is an error.
    pub fn decode<T: DeserializeOwned>(&self, object: &Object, strictly: bool) -> Result<T, ScenarioError> {
        let read = object.decode()?;
        if !strictly {
            return Ok(read);
        }
        let mut unknown = None;
        // It has just been read without an error.
        let _: Result<T, _> = serde_ignored::deserialize(&object.manifest, |path| {
            unknown = unknown.take().or_else(|| field_of(&path));
        });
        match unknown {
            Some(field) => Err(invalid(object, &field, format!("a {} has no such field", object.kind))),
            None => Ok(read),
        }
    }

    /// Checks a node.
    pub fn node(&mut self, object: &Object) -> Result<(), ScenarioError> {
        if self.seen(&object.origin) {
            return Ok(());
        }
        self.decode::<Node>(object, true)?;
        for list in ["allocatable", "capacity"] {
            amounts(object, &object.manifest["status"][list], &format!("status.{list}"))?;
        }
        Ok(())
    }

    /// Checks a Job or a Pod.
    pub fn workload(&mut self, object: &Object) -> Result<(), ScenarioError> {
        if self.seen(&object.origin) {
            return Ok(());
        }
        let spec = if object.kind == Kind::Job {
            self.decode::<Job>(object, true)?;
            "spec.template.spec"
        } else {
            self.decode::<Pod>(object, true)?;
            "spec"
        };
        let pod = spec.split('.').fold(&object.manifest, |value, key| &value[key]);
        if pod.is_null() {
            return Err(invalid(object, spec, "is missing".to_owned()));
        }
        if object.kind == Kind::Job {
            ends(object, &pod["restartPolicy"], &format!("{spec}.restartPolicy"))?;
        }
        for list in ["containers", "initContainers"] {
            for (index, container) in pod[list].as_array().into_iter().flatten().enumerate() {
                let field = format!("{spec}.{list}[{index}].resources");
                for kind in ["requests", "limits"] {
                    amounts(object, &container["resources"][kind], &format!("{field}.{kind}"))?;
                }
                requests_within_limits(object, &container["resources"], &field)?;
            }
        }
        Ok(())
    }

    fn seen(&mut self, origin: &Origin) -> bool {
        let this = Some((Arc::clone(&origin.file), origin.document, origin.item));
        let seen = self.last == this;
        self.last = this;
        seen
    }
}

/// The path of a field that the kind does not have; the kind itself is no field.
fn field_of(path: &Path) -> Option<String> {
    let mut text = String::new();
    written(path, &mut text);
    (!matches!(text.as_str(), "apiVersion" | "kind")).then_some(text)
}

fn written(path: &Path, text: &mut String) {
    match path {
        Path::Root => {}
        Path::Seq { parent, index } => {
            written(parent, text);
            text.push_str(&format!("[{index}]"));
        }
        Path::Map { parent, key } => {
            written(parent, text);
            text.push_str(if text.is_empty() { "" } else { "." });
            text.push_str(key);
        }
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            written(parent, text);
        }
    }
}

/// Checks that a Job's pods may end, which by default they may not.
fn ends(object: &Object, policy: &Value, field: &str) -> Result<(), ScenarioError> {
    let problem = match policy.as_str() {
        Some("Never" | "OnFailure") => return Ok(()),
        Some(other) => {
            format!("{other:?} is not for the pods of a Job, which end: it must be Never or OnFailure")
        }
        None => "is missing; for the pods of a Job it must be Never or OnFailure".to_owned(),
    };
    Err(invalid(object, field, problem))
}

/// Checks that no more is requested than the limit, and of what cannot be overcommitted as much.
fn requests_within_limits(object: &Object, resources: &Value, field: &str) -> Result<(), ScenarioError> {
    for (resource, written) in resources["requests"].as_object().into_iter().flatten() {
        let limit = &resources["limits"][resource];
        let (request, limit) = (text_of(written), (!limit.is_null()).then(|| text_of(limit)));
        let fixed = is_device(resource) || resource.starts_with("hugepages-");
        let (kind, problem) = match limit {
            None if fixed => (
                "limits",
                format!("is missing; of {resource} the limit must be as large as the request, {request}"),
            ),
            None => continue,
            Some(limit) => {
                // Both have been read without an error.
                let order = Amount::parse(&request).ok().cmp(&Amount::parse(&limit).ok());
                if fixed && order.is_ne() {
                    ("requests", format!("{request} must be as large as the limit, {limit}"))
                } else if order.is_gt() {
                    ("requests", format!("{request} is more than the limit, {limit}"))
                } else {
                    continue;
                }
            }
        };
        return Err(invalid(object, &format!("{field}.{kind}[{resource}]"), problem));
    }
    Ok(())
}

/// An amount as it was written, with quotes or without.
fn text_of(written: &Value) -> String {
    written.as_str().map_or_else(|| written.to_string(), ToOwned::to_owned)
}

/// Checks amounts that were written for resources.
fn amounts(object: &Object, list: &Value, field: &str) -> Result<(), ScenarioError> {
    for (resource, written) in list.as_object().into_iter().flatten() {
        let text = text_of(written);
        let problem = match Amount::parse(&text) {
            Ok(amount) if amount < Amount::ZERO => format!("{text} is negative"),
            Ok(amount) if is_device(resource) && amount.as_milli() % 1000 != 0 => {
                format!("{text} is not a whole number, and {resource} cannot be split")
            }
            Ok(_) => continue,
            Err(error) => error.to_string(),
        };
        return Err(invalid(object, &format!("{field}[{resource}]"), problem));
    }
    Ok(())
}

/// Whether a resource is one that Kubernetes knows by name only, and counts in whole numbers.
fn is_device(resource: &str) -> bool {
    resource.contains('/') && !resource.contains("kubernetes.io/")
}

/// The error of a conversion, with where it stands.
pub fn field<T>(object: &Object, converted: Result<T, FieldError>) -> Result<T, ScenarioError> {
    converted.map_err(|error| invalid(object, &error.field, error.problem))
}

/// What the webhook refused, with the field that it speaks of.
pub fn refused(object: &Object, problem: &str) -> ScenarioError {
    let prefix =
        format!("{} {}/{}: ", object.kind, object.namespace.as_deref().unwrap_or_default(), object.name);
    let problem = problem.strip_prefix(&prefix).unwrap_or(problem);
    let marks = MARKS.iter().flat_map(|(place, keys)| keys.iter().map(move |key| (place, key)));
    let named = marks
        .filter_map(|(place, key)| {
            Some((problem.find(&format!("{key}:")).or_else(|| problem.find(key))?, place, key))
        })
        .min();
    match named {
        // Whose the namespace is stands on the namespace.
        Some((_, _, key)) if problem.contains(&format!("(label {key} of namespace")) => {
            invalid(object, "metadata.namespace", problem.to_owned())
        }
        Some((_, place, key)) => {
            let message = problem.strip_prefix(&format!("annotation {key}: ")).unwrap_or(problem);
            invalid(object, &format!("{place}[{key}]"), message.to_owned())
        }
        None => invalid(object, "spec", problem.to_owned()),
    }
}
