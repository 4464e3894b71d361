//! Fields that an API server lets no client change.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::applied_again::Standing;
use crate::engine::types::amount::Amount;
use crate::scenario::{Kind, Object, ScenarioError};

/// Checks an object that is applied again: the template of a Job with pods and the resources of a Pod stay as they are.
///
/// # Errors
/// The first field that differs.
pub fn check(object: &Object, last: &Object, standing: &Standing) -> Result<(), ScenarioError> {
    let pod = object.kind == Kind::Pod;
    let why = match standing {
        _ if pod => "a Pod that exists keeps its resources",
        Standing::Waits => return Ok(()),
        Standing::Runs(_) => "a Job that runs keeps its template",
        Standing::Stops => "a Job keeps its template until its last pod is gone",
    };
    let field = if pod { "spec" } else { "spec.template" };
    let read = |object: &Object| {
        let template = field.split('.').fold(&object.manifest, |value, key| &value[key]);
        if pod { resources(template) } else { comparable(template.clone(), "/spec") }
    };
    match difference(&read(last), &read(object), field) {
        Some(field) => Err(object.invalid(&field, format!("cannot be changed: {why}"))),
        None => Ok(()),
    }
}

const CONTAINERS: [&str; 2] = ["containers", "initContainers"];

/// The resources of a pod spec, with nothing else.
fn resources(spec: &Value) -> Value {
    let spec = comparable(spec.clone(), "");
    let mut lists = Map::new();
    for list in CONTAINERS {
        let containers = spec[list].as_array().into_iter().flatten();
        let of =
            |container: &Value| Map::from_iter([("resources".to_owned(), container["resources"].clone())]);
        lists.insert(list.to_owned(), containers.map(|container| Value::Object(of(container))).collect());
    }
    Value::Object(lists)
}

/// A template in which equal amounts are written alike, and requests that follow from limits are there.
fn comparable(mut template: Value, spec: &str) -> Value {
    for list in CONTAINERS {
        let containers = template.pointer_mut(&format!("{spec}/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let Some(resources) = container.get_mut("resources").and_then(Value::as_object_mut) else {
                continue;
            };
            for kind in ["limits", "requests"] {
                for amount in resources.get_mut(kind).and_then(Value::as_object_mut).into_iter().flatten() {
                    let text = amount.1.as_str().map_or_else(|| amount.1.to_string(), ToOwned::to_owned);
                    if let Ok(parsed) = Amount::parse(&text) {
                        *amount.1 = parsed.to_string().into();
                    }
                }
            }
            if let Some(Value::Object(mut all)) = resources.get("limits").cloned() {
                all.extend(resources.get("requests").and_then(Value::as_object).cloned().unwrap_or_default());
                resources.insert("requests".to_owned(), Value::Object(all));
            }
        }
    }
    template
}

/// The first field in which two values differ; what is empty is as good as missing.
fn difference(before: &Value, after: &Value, field: &str) -> Option<String> {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            keys.into_iter().find_map(|key| {
                let plain = key.chars().all(|letter| letter.is_ascii_alphanumeric());
                let field = if plain { format!("{field}.{key}") } else { format!("{field}[{key}]") };
                let of = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
                difference(&of(before), &of(after), &field)
            })
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            let pairs = before.iter().zip(after).enumerate();
            pairs
                .into_iter()
                .find_map(|(index, (before, after))| difference(before, after, &format!("{field}[{index}]")))
        }
        _ => (before != after && !(is_empty(before) && is_empty(after))).then(|| field.to_owned()),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}
