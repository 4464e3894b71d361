//! What an API server would refuse before any webhook: wrong types, unknown fields, wrong amounts.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::world::invalid;
use crate::api::convert::FieldError;
use crate::api::names;
use crate::engine::amount::Amount;
use crate::scenario::{Kind, Object, Origin, ScenarioError};

/// The names that a refusal may speak of, by the place where they stand.
const MARKS: [(&str, &[&str]); 2] = [
    ("metadata.labels", &[names::QUEUE, names::TEAM, names::GROUP]),
    (
        "metadata.annotations",
        &[
            names::POOL,
            names::TIME_LIMIT,
            names::MIN_PARALLELISM,
            names::TOPOLOGY_REQUIRED,
            names::TOPOLOGY_PREFERRED,
            names::CHECKPOINT_INTERVAL,
            names::LAST_CHECKPOINT,
            names::GPU_FRACTION,
            names::GPU_OFFER,
            names::GPU_SIZES,
            names::GROUP_SIZE,
            names::PREEMPTIBLE,
            names::HELD,
            names::ADMISSION,
            names::EVICTION,
            names::USER_AFFINITY,
        ],
    ),
];

/// Checks each document once, however many copies it asks for.
#[derive(Debug, Default)]
pub struct Checker {
    last: Option<(Arc<str>, usize)>,
}

impl Checker {
    /// Reads an object as its kind; with `strictly` a field that the kind does not have is an error.
    pub fn decode<T: DeserializeOwned + Serialize>(
        &self,
        object: &Object,
        strictly: bool,
    ) -> Result<T, ScenarioError> {
        let read: T = object.decode()?;
        if !strictly {
            return Ok(read);
        }
        let known =
            serde_json::to_value(&read).map_err(|error| invalid(object, "(document)", error.to_string()))?;
        match unknown(&object.manifest, &known, &mut String::new()) {
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
        for list in ["containers", "initContainers"] {
            for (index, container) in pod[list].as_array().into_iter().flatten().enumerate() {
                for kind in ["requests", "limits"] {
                    let field = format!("{spec}.{list}[{index}].resources.{kind}");
                    amounts(object, &container["resources"][kind], &field)?;
                }
            }
        }
        Ok(())
    }

    fn seen(&mut self, origin: &Origin) -> bool {
        let this = Some((Arc::clone(&origin.file), origin.document));
        let seen = self.last == this;
        self.last = this;
        seen
    }
}

/// The first field of `written` that `known` lacks. What is empty may have been left out.
fn unknown(written: &Value, known: &Value, path: &mut String) -> Option<String> {
    let length = path.len();
    match (written, known) {
        (Value::Object(fields), Value::Object(there)) => fields.iter().find_map(|(key, value)| {
            path.push_str(if length == 0 { "" } else { "." });
            path.push_str(key);
            let found = match there.get(key) {
                Some(known) => unknown(value, known, path),
                None => (!is_empty(value)).then(|| path.clone()),
            };
            path.truncate(length);
            found
        }),
        (Value::Array(items), Value::Array(there)) => {
            items.iter().zip(there).enumerate().find_map(|(index, (value, known))| {
                path.push_str(&format!("[{index}]"));
                let found = unknown(value, known, path);
                path.truncate(length);
                found
            })
        }
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::String(text) => text.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Checks amounts that were written for resources.
fn amounts(object: &Object, list: &Value, field: &str) -> Result<(), ScenarioError> {
    for (resource, written) in list.as_object().into_iter().flatten() {
        let text = written.as_str().map_or_else(|| written.to_string(), ToOwned::to_owned);
        let problem = match Amount::parse(&text) {
            Ok(amount) if amount >= Amount::ZERO => continue,
            Ok(_) => format!("{text} is negative"),
            Err(error) => error.to_string(),
        };
        return Err(invalid(object, &format!("{field}[{resource}]"), problem));
    }
    Ok(())
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
