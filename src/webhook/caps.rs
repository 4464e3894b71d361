//! The caps on new workloads: refused with the cap's name and the number found.

use serde::Deserialize;
use serde_json::Value;

use super::context::Context;
use super::object::{annotation, same_annotation};
use crate::api::caps::Counts;
use crate::api::names;
use crate::cluster::reduce::counts;
use crate::cluster::wire::PodSpec;

/// Refuses a new object above a cap, and a change that exceeds a cap by more than before. `count` counts an object.
///
/// # Errors
/// One clause with the cap, the number found, and where the cap is set.
pub fn check(context: &Context<'_>, count: impl Fn(&Value) -> Counts) -> Result<(), String> {
    let (old, new) = (context.old, context.object());
    let pools = |object: &Value| annotation(object, names::POOL).map_or(0, |text| text.split(',').count());
    let no_larger = notes(new) <= notes(old) && labels(new) <= labels(old);
    let same_larger = same_annotation(old, new, names::WANTED_PARALLELISM);
    if old["spec"] == new["spec"] && pools(old) == pools(new) && no_larger && same_larger {
        return Ok(());
    }
    let all = |object: &Value| {
        let counts = count(object);
        Counts {
            pools: pools(object) as u64,
            notes: counts.notes + notes(object),
            labels: labels(object),
            bytes: size(object),
            ..counts
        }
    };
    let before = if old.is_object() { all(old) } else { Counts::default() };
    let exceeded = context.view.caps().exceeded_anew(&before, &all(new), context.grace());
    exceeded.map_or(Ok(()), Err)
}

/// The bytes of the annotations that are not records of Sluice.
fn notes(object: &Value) -> u64 {
    let all = object["metadata"]["annotations"].as_object().into_iter().flatten();
    counts::notes(all.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?))))
}

fn labels(object: &Value) -> u64 {
    object["metadata"]["labels"].as_object().map_or(0, serde_json::Map::len) as u64
}

/// The bytes of spec and metadata. The API server drops the managers of fields from what is too large.
fn size(object: &Value) -> u64 {
    let metadata = object["metadata"].as_object().into_iter().flatten();
    let own = metadata.filter(|(key, _)| *key != "managedFields");
    counts::bytes(&object["spec"]) + own.map(|(_, value)| counts::bytes(value)).sum::<u64>()
}

/// The counts of a pod of this spec.
#[must_use]
pub fn of_pod(spec: &Value) -> Counts {
    // The API server has decoded every Job and Pod already, by types with these fields.
    PodSpec::deserialize(spec).map(|spec| counts::counts(&spec, spec.affinity.as_ref())).unwrap_or_default()
}

/// The counts of a Job.
#[must_use]
pub fn of_job(job: &Value) -> Counts {
    let spec = &job["spec"];
    let completions = spec["completions"].as_u64().unwrap_or(u64::MAX);
    // An elastic Job may come to run more pods than it was granted.
    let larger = annotation(job, names::WANTED_PARALLELISM).and_then(|text| text.parse().ok());
    let pods = spec["parallelism"].as_u64().unwrap_or(1).max(larger.unwrap_or(0)).min(completions);
    let counts = of_pod(&spec["template"]["spec"]);
    // The affinity of an admitted template is Sluice's own, and that of its user stands in an annotation.
    let kept = annotation(job, names::USER_AFFINITY).map_or(0, |text| text.len() as u64);
    let notes = if annotation(job, names::ADMISSION).is_some() { kept } else { counts.affinity_bytes };
    Counts { pods, notes, ..counts }
}

#[cfg(test)]
mod tests;
