//! Checks of the API server that do not depend on a webhook: types, unknown fields, amounts, restart policies.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::Value;

use crate::api::convert::FieldError;
use crate::api::names;
use crate::api::values::is_extended;
use crate::engine::types::amount::Amount;
use crate::scenario::{Kind, Object, Origin, ScenarioError};

/// Labels and annotations that a refusal may name, with their field.
const FIELDS: [(&str, &[&str]); 2] =
    [("metadata.labels", &names::LABELS), ("metadata.annotations", &names::ANNOTATIONS)];

/// Checks each document once, not each of its copies.
#[derive(Debug, Default)]
pub struct Checker {
    last: Option<(Arc<str>, usize, Option<usize>)>,
}

impl Checker {
    /// Reads an object as its kind; with `strictly` an unknown field is an error.
    pub fn decode<T: DeserializeOwned>(&self, object: &Object, strictly: bool) -> Result<T, ScenarioError> {
        let read = object.decode()?;
        if !strictly {
            return Ok(read);
        }
        let mut unknown = None;
        // The first read succeeded, so this one does.
        let _: Result<T, _> = serde_ignored::deserialize(&object.manifest, |path| {
            unknown = unknown.take().or_else(|| field_of(&path));
        });
        match unknown {
            Some(field) => Err(object.invalid(&field, format!("a {} has no such field", object.kind))),
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
            check_amounts(object, &object.manifest["status"][list], &format!("status.{list}"))?;
        }
        let taints = object.manifest["spec"]["taints"].as_array().into_iter().flatten();
        for (index, taint) in taints.enumerate() {
            check_taint(object, &taint["effect"], &format!("spec.taints[{index}].effect"))?;
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
            return Err(object.invalid(spec, "is missing".to_owned()));
        }
        if object.kind == Kind::Job {
            check_counts(object)?;
            check_job(object)?;
            check_restart_policy(object, &pod["restartPolicy"], &format!("{spec}.restartPolicy"))?;
        } else {
            check_group(object)?;
        }
        if pod["containers"].as_array().is_none_or(Vec::is_empty) {
            let problem = "is empty or missing; a pod needs at least one container";
            return Err(object.invalid(&format!("{spec}.containers"), problem.to_owned()));
        }
        for list in ["containers", "initContainers"] {
            for (index, container) in pod[list].as_array().into_iter().flatten().enumerate() {
                let field = format!("{spec}.{list}[{index}].resources");
                for kind in ["requests", "limits"] {
                    check_amounts(object, &container["resources"][kind], &format!("{field}.{kind}"))?;
                }
                check_requests(object, &container["resources"], &field)?;
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

/// The path of an unknown field; `apiVersion` and `kind` are known.
fn field_of(path: &Path) -> Option<String> {
    let mut text = String::new();
    write_path(path, &mut text);
    (!matches!(text.as_str(), "apiVersion" | "kind")).then_some(text)
}

fn write_path(path: &Path, text: &mut String) {
    match path {
        Path::Root => {}
        Path::Seq { parent, index } => {
            write_path(parent, text);
            text.push_str(&format!("[{index}]"));
        }
        Path::Map { parent, key } => {
            write_path(parent, text);
            text.push_str(if text.is_empty() { "" } else { "." });
            text.push_str(key);
        }
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            write_path(parent, text);
        }
    }
}

/// Checks a Job's numbers of pods and failures; the API server refuses negative ones.
fn check_counts(object: &Object) -> Result<(), ScenarioError> {
    for field in ["parallelism", "completions", "backoffLimit"] {
        let number = object.manifest["spec"][field].as_i64();
        if let Some(number) = number.filter(|number| *number < 0) {
            return Err(object.invalid(&format!("spec.{field}"), format!("{number} is negative")));
        }
    }
    Ok(())
}

/// Checks the fields of a Job that depend on each other.
fn check_job(object: &Object) -> Result<(), ScenarioError> {
    let spec = &object.manifest["spec"];
    let wrong =
        |field: &str, problem: &str| Err(object.invalid(&format!("spec.{field}"), problem.to_owned()));
    match spec["completionMode"].as_str() {
        None | Some("NonIndexed") => {}
        Some("Indexed") if spec["completions"].is_null() => {
            return wrong("completions", "is missing; completionMode Indexed needs it");
        }
        Some("Indexed") => {}
        Some(other) => {
            return wrong("completionMode", &format!("{other:?} is none of NonIndexed and Indexed"));
        }
    }
    if spec["manualSelector"] == true && spec["selector"].is_null() {
        return wrong("selector", "is missing; manualSelector needs it");
    }
    Ok(())
}

/// Checks the restart policy of a Job's pods; the default `Always` is not allowed.
fn check_restart_policy(object: &Object, policy: &Value, field: &str) -> Result<(), ScenarioError> {
    let problem = match policy.as_str() {
        Some("Never" | "OnFailure") => return Ok(()),
        Some(other) => {
            format!("{other:?} is not allowed for a Job: it must be Never or OnFailure")
        }
        None => "is missing; for a Job it must be Never or OnFailure".to_owned(),
    };
    Err(object.invalid(field, problem))
}

/// Checks the effect of a taint.
fn check_taint(object: &Object, effect: &Value, field: &str) -> Result<(), ScenarioError> {
    let problem = match effect.as_str().filter(|effect| !effect.is_empty()) {
        Some("NoSchedule" | "PreferNoSchedule" | "NoExecute") => return Ok(()),
        Some(other) => format!("{other:?} is none of NoSchedule, PreferNoSchedule and NoExecute"),
        None => "is missing; it must be NoSchedule, PreferNoSchedule or NoExecute".to_owned(),
    };
    Err(object.invalid(field, problem))
}

/// Checks that a pod with the size of a group names the group. A cluster takes it for a pod without a group.
fn check_group(object: &Object) -> Result<(), ScenarioError> {
    let metadata = &object.manifest["metadata"];
    let is_named = metadata["labels"][names::GROUP].as_str().is_some_and(|group| !group.is_empty());
    if is_named || metadata["annotations"][names::GROUP_SIZE].is_null() {
        return Ok(());
    }
    let message = format!("has no effect without the label {}, which names the group", names::GROUP);
    Err(object.invalid(&format!("metadata.annotations[{}]", names::GROUP_SIZE), message))
}

/// Checks that no request exceeds its limit; for devices and huge pages both must be equal.
fn check_requests(object: &Object, resources: &Value, field: &str) -> Result<(), ScenarioError> {
    for (resource, written) in resources["requests"].as_object().into_iter().flatten() {
        let limit = &resources["limits"][resource];
        let (request, limit) = (text_of(written), (!limit.is_null()).then(|| text_of(limit)));
        let fixed = is_extended(resource) || resource.starts_with("hugepages-");
        let (kind, problem) = match limit {
            None if fixed => {
                ("limits", format!("is missing; the limit of {resource} must equal the request, {request}"))
            }
            None => continue,
            Some(limit) => {
                // Both were parsed before.
                let order = Amount::parse(&request).ok().cmp(&Amount::parse(&limit).ok());
                if fixed && order.is_ne() {
                    ("requests", format!("{request} must equal the limit, {limit}"))
                } else if order.is_gt() {
                    ("requests", format!("{request} is more than the limit, {limit}"))
                } else {
                    continue;
                }
            }
        };
        return Err(object.invalid(&format!("{field}.{kind}[{resource}]"), problem));
    }
    Ok(())
}

/// An amount as written, with or without quotes.
fn text_of(written: &Value) -> String {
    written.as_str().map_or_else(|| written.to_string(), ToOwned::to_owned)
}

/// Checks the amounts of a resource list.
fn check_amounts(object: &Object, list: &Value, field: &str) -> Result<(), ScenarioError> {
    for (resource, written) in list.as_object().into_iter().flatten() {
        let text = text_of(written);
        let problem = match Amount::parse(&text) {
            Ok(amount) if amount < Amount::ZERO => format!("{text} is negative"),
            Ok(amount) if is_extended(resource) && amount.as_milli() % 1000 != 0 => {
                format!("{text} is not a whole number, and {resource} cannot be split")
            }
            Ok(_) => continue,
            Err(error) => error.to_string(),
        };
        return Err(object.invalid(&format!("{field}[{resource}]"), problem));
    }
    Ok(())
}

/// Adds an object's origin to the error of a conversion.
pub fn converted<T>(object: &Object, result: Result<T, FieldError>) -> Result<T, ScenarioError> {
    result.map_err(|error| object.invalid(&error.field, error.problem))
}

/// A refusal of the webhook, with the field that it names.
pub fn refused(object: &Object, problem: &str) -> ScenarioError {
    let prefix =
        format!("{} {}/{}: ", object.kind, object.namespace.as_deref().unwrap_or_default(), object.name);
    let problem = problem.strip_prefix(&prefix).unwrap_or(problem);
    let keys = FIELDS.iter().flat_map(|(place, keys)| keys.iter().map(move |key| (place, key)));
    let named = keys
        .filter_map(|(place, key)| {
            Some((problem.find(&format!("{key}:")).or_else(|| problem.find(key))?, place, key))
        })
        .min();
    match named {
        // The namespace's label names its team.
        Some((_, _, key)) if problem.contains(&format!("(label {key} of namespace")) => {
            object.invalid("metadata.namespace", problem.to_owned())
        }
        Some((_, place, key)) => {
            let message = problem.strip_prefix(&format!("annotation {key}: ")).unwrap_or(problem);
            object.invalid(&format!("{place}[{key}]"), message.to_owned())
        }
        None => match problem.split_once(' ').filter(|(field, _)| field.starts_with("spec.")) {
            Some((field, message)) => object.invalid(field.trim_end_matches(':'), message.to_owned()),
            None => object.invalid("spec", problem.to_owned()),
        },
    }
}
