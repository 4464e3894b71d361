//! An object that is not submitted, as a what-if question has it.

use serde_json::Value;

use crate::api::names;
use crate::api::record::timestamp;
use crate::api::values::is_extended;
use crate::cluster::target::unsubmitted::{self, Unsubmitted};
use crate::directory::Directory;
use crate::engine::types::amount::Amount;
use crate::engine::types::{Observed, Time};
use crate::kinds::Kinds;
use crate::webhook::offline::stored;

/// The workload that an object would become if `user` submitted it at `now` with this UID.
///
/// # Errors
/// One sentence for the author of the object.
pub fn submitted(
    directory: &Directory,
    user: &str,
    mut object: Value,
    (uid, now): (&str, Time),
) -> Result<Unsubmitted, String> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let [version, kind, namespace] = ["/apiVersion", "/kind", "/metadata/namespace"].map(text);
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let known = matches!((version.as_str(), kind.as_str()), ("batch/v1", "Job") | ("v1", "Pod"))
        || directory.kinds.find(group, &kind).is_some();
    if !known {
        return Err(format!(
            "expected a Job of batch/v1, a Pod of v1 or a custom kind that Sluice manages, got {kind:?} of {version:?}"
        ));
    }
    if let Some(why) = directory.unmanaged(&namespace) {
        return Err(why);
    }
    if let Some(problem) = object.get("spec").and_then(|spec| in_parts(spec, "spec")) {
        return Err(problem);
    }
    // A status would make it look like an object that has run.
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    let (object, _) = stored(directory, user, None, object)?;
    reviewed(&directory.kinds, object, (uid, now))?
        .ok_or_else(|| format!("Sluice would not manage this {kind}"))
}

/// An extended resource that a container requests in parts, which the API server refuses: its field and why.
fn in_parts(value: &Value, field: &str) -> Option<String> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| match name.as_str() {
            "resources" => ["limits", "requests"].into_iter().find_map(|list| {
                let amounts = value.get(list)?.as_object()?;
                let (resource, text) = amounts.iter().find_map(|(resource, written)| {
                    let text = written.as_str().map_or_else(|| written.to_string(), ToOwned::to_owned);
                    let split = Amount::parse(&text).is_ok_and(|amount| amount.as_milli() % 1_000 != 0);
                    (is_extended(resource) && split).then_some((resource, text))
                })?;
                Some(format!(
                    "{field}.resources.{list}[{resource}]: {text} is not a whole number, and {resource} cannot be split; \
                     the annotation {} asks for a part of a GPU",
                    names::GPU_FRACTION
                ))
            }),
            name => in_parts(value, &format!("{field}.{name}")),
        }),
        Value::Array(values) => {
            values.iter().enumerate().find_map(|(at, value)| in_parts(value, &format!("{field}[{at}]")))
        }
        _ => None,
    }
}

/// The workload that a Job would become that waits and is changed so; `None` where it does not wait before and after, or
/// asks for the same as before.
///
/// # Errors
/// Which field cannot be read.
pub fn changed(kinds: &Kinds, old: &Value, object: &Value, now: Time) -> Result<Option<Unsubmitted>, String> {
    let queued = |object: &Value| {
        let read = unsubmitted::read(kinds, object, now)?;
        Ok::<_, String>(read.filter(|one| one.managed.workload.state == Observed::Queued))
    };
    let (Some(old), Some(new)) = (queued(old)?, queued(object)?) else { return Ok(None) };
    Ok(Some(new).filter(|new| new.managed.workload != old.managed.workload))
}

/// The workload that an object would become that is stored at `now` as it is, with this UID; `None` where it is
/// none.
///
/// # Errors
/// Which field cannot be read.
pub fn reviewed(
    kinds: &Kinds,
    mut object: Value,
    (uid, now): (&str, Time),
) -> Result<Option<Unsubmitted>, String> {
    object["metadata"]["uid"] = uid.into();
    object["metadata"]["creationTimestamp"] = timestamp(now).to_string().into();
    unsubmitted::read(kinds, &object, now)
}
