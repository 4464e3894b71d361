//! An object that is applied again: what `kubectl apply` changes of it, and what the webhook makes of that.

use serde_json::{Map, Value, json};

use crate::api::names;
use crate::api::record::Record;
use crate::directory::Directory;
use crate::engine::types::Admission;
use crate::webhook::offline::stored;

/// How far the workload of an object has come.
#[derive(Clone, Debug)]
pub enum Standing {
    /// It has no pods.
    Waits,
    /// It runs.
    Runs(Run),
    /// It is not to run, and its last pods are still there.
    Stops,
}

/// The present run of a workload.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Its admission; `None` for an unmanaged workload.
    pub admission: Option<Admission>,
    /// Whether it has fewer pods than it asks for.
    pub part: bool,
}

/// The object as the API server stores it when `user` applies `manifest` over `last`. The engine has the state of the
/// workload, so the object is returned as one that waits.
///
/// # Errors
/// The refusal of the webhook.
pub fn applied_again(
    directory: &Directory,
    user: &str,
    (last, last_without_user): (&Value, &Value),
    mut manifest: Value,
    standing: &Standing,
) -> Result<Value, String> {
    let (mut before, _) = stored(directory, user, None, last.clone())?;
    let queued = !before["metadata"]["annotations"][names::HELD].is_null();
    let held = manifest["spec"]["suspend"] == Value::Bool(true);
    if queued && held {
        return Ok(stored(directory, user, None, manifest)?.0);
    }
    let run = match standing {
        Standing::Runs(Run { admission: Some(admission), part }) => Some((admission, *part)),
        _ => None,
    };
    let wish = before["spec"]["parallelism"].clone();
    if let Some((admission, part)) = run {
        set_running(&mut before, last, admission, part);
    }
    // Applying a manifest again does not release a Job that Sluice holds; it releases one that its user had
    // suspended, if the manifest does not suspend it.
    manifest["spec"]["suspend"] = (queued && run.is_none() || held).into();
    let mut after = before.clone();
    remove_left_out(&mut after, last_without_user, &manifest);
    json_patch::merge(&mut after, &manifest);
    let (mut object, _) = stored(directory, user, Some(&before), after)?;
    if let Some((_, part)) = run {
        let annotations = object["metadata"]["annotations"].as_object_mut();
        let larger = annotations.and_then(|all| all.remove(names::WANTED_PARALLELISM));
        let larger = larger.and_then(|text| text.as_str()?.parse::<u64>().ok());
        if let Some(larger) = larger {
            object["spec"]["parallelism"] = larger.into();
        } else if part && object["spec"]["parallelism"] == before["spec"]["parallelism"] {
            object["spec"]["parallelism"] = wish;
        }
        set_waiting(&mut object);
    }
    Ok(object)
}

/// The annotation with the manifest that was applied last.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Writes what Sluice writes when it admits a Job, as far as the webhook reads it, and what `kubectl apply` writes.
fn set_running(job: &mut Value, last: &Value, admission: &Admission, part: bool) {
    let mut record = Record::from(admission);
    if part {
        record.wanted = job["spec"]["parallelism"].as_u64().and_then(|pods| u32::try_from(pods).ok());
        job["spec"]["parallelism"] = admission.pods.into();
    }
    job["spec"]["suspend"] = false.into();
    let annotations = &mut job["metadata"]["annotations"];
    annotations[names::ADMISSION] = json!(record).to_string().into();
    annotations[LAST_APPLIED] = last.to_string().into();
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove(names::HELD);
    }
}

/// Takes that back.
fn set_waiting(job: &mut Value) {
    job["spec"]["suspend"] = true.into();
    let annotations = &mut job["metadata"]["annotations"];
    annotations[names::HELD] = "true".into();
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove(names::ADMISSION);
        annotations.remove(LAST_APPLIED);
    }
}

/// The list of scheduling gates. Sluice adds its own, so the list of a user is not all of it.
const GATES: &str = "schedulingGates";

/// Removes from a stored object what the manifest applied last has and the one applied now has not. What others have written
/// stays, such as marks of Sluice. Lists are removed as a whole.
fn remove_left_out(stored: &mut Value, last: &Value, now: &Value) {
    if let (Value::Object(stored), Value::Object(last), Value::Object(now)) = (stored, last, now) {
        remove_from(stored, last, now);
    }
}

fn remove_from(stored: &mut Map<String, Value>, last: &Map<String, Value>, now: &Map<String, Value>) {
    for (key, before) in last {
        let Some(there) = stored.get_mut(key) else { continue };
        let is_left_out = match (there, before, now.get(key)) {
            (Value::Object(there), Value::Object(before), Some(Value::Object(now))) => {
                remove_from(there, before, now);
                false
            }
            (Value::Object(there), Value::Object(before), None) => {
                remove_from(there, before, &Map::new());
                there.is_empty()
            }
            (_, _, now) => now.is_none() && key != GATES,
        };
        if is_left_out {
            stored.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_last_manifest_had_is_removed() {
        let last = json!({
            "metadata": {"labels": {"a": "1"}, "annotations": {"hold": "true", "order": "5"}},
            "spec": {"parallelism": 4, "template": {"spec": {
                "nodeSelector": {"zone": "x"}, "tolerations": [{"key": "gpu"}], "schedulingGates": [{"name": "own"}],
            }}},
        });
        let mut stored = json!({
            "metadata": {"labels": {"a": "1", "team": "t"}, "annotations": {"hold": "true", "order": "5", "held": "true"}},
            "spec": {"parallelism": 4, "suspend": true, "template": {"spec": {
                "nodeSelector": {"zone": "x"}, "tolerations": [{"key": "gpu"}],
                "schedulingGates": [{"name": "own"}, {"name": "sluice"}], "priority": 0,
            }}},
        });
        let now = json!({"metadata": {"annotations": {"order": "6"}}, "spec": {"template": {"spec": {}}}});
        remove_left_out(&mut stored, &last, &now);
        let expected = json!({
            "metadata": {"labels": {"team": "t"}, "annotations": {"order": "5", "held": "true"}},
            "spec": {"suspend": true, "template": {"spec": {
                "schedulingGates": [{"name": "own"}, {"name": "sluice"}], "priority": 0,
            }}},
        });
        assert_eq!(stored, expected);
    }
}
