//! An object that is not submitted, as a what-if question has it.

use serde_json::Value;

use crate::api::record::timestamp;
use crate::cluster::target::unsubmitted::{self, Unsubmitted};
use crate::directory::Directory;
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
    // A status would make it look like an object that has run.
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    let (object, _) = stored(directory, user, None, object)?;
    reviewed(&directory.kinds, object, (uid, now))?
        .ok_or_else(|| format!("Sluice would not manage this {kind}"))
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
