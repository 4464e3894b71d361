//! The caps on new workloads: refused with the cap's name and the number found.

use serde::Deserialize;
use serde_json::Value;

use super::context::Context;
use super::object::annotation;
use crate::api::caps::Counts;
use crate::api::names;
use crate::cluster::reduce::counts::counts;
use crate::cluster::wire::PodSpec;

/// Refuses a new object above a cap, and a change that exceeds a cap by more than before. `count` counts an object.
///
/// # Errors
/// One clause with the cap, the number found, and where the cap is set.
pub fn check(context: &Context<'_>, count: impl Fn(&Value) -> Counts) -> Result<(), String> {
    let (old, new) = (context.old, context.object());
    let pools = |object: &Value| annotation(object, names::POOL).map_or(0, |text| text.split(',').count());
    if old["spec"] == new["spec"] && pools(old) == pools(new) {
        return Ok(());
    }
    let all = |object: &Value| Counts { pools: pools(object) as u64, ..count(object) };
    let before = if old.is_object() { all(old) } else { Counts::default() };
    let exceeded = context.view.caps().exceeded_anew(&before, &all(new), context.grace());
    exceeded.map_or(Ok(()), Err)
}

/// The counts of a pod of this spec.
#[must_use]
pub fn of_pod(spec: &Value) -> Counts {
    // The API server has decoded every Job and Pod already, by types with these fields.
    PodSpec::deserialize(spec).map(|spec| counts(&spec, spec.affinity.as_ref())).unwrap_or_default()
}

/// The counts of a Job.
#[must_use]
pub fn of_job(job: &Value) -> Counts {
    let spec = &job["spec"];
    let completions = spec["completions"].as_u64().unwrap_or(u64::MAX);
    let pods = spec["parallelism"].as_u64().unwrap_or(1).min(completions);
    Counts { pods, ..of_pod(&spec["template"]["spec"]) }
}

#[cfg(test)]
mod tests;
