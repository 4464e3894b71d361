//! The PodGroup of a Job whose pods start all or none.
//!
//! The pod template of a Job is immutable, so the PodGroup is named at create. The leader makes it before the Job is
//! admitted. kube-scheduler does not count pods that have ended, so a pod that is made after siblings have succeeded
//! would wait for `minCount` for ever. Such a pod leaves the group, in every admission of its Job: if that depended on
//! the moment, some pods of an admission would wait for others that have left.

use serde_json::Value;

use super::context::Context;
use super::object::{annotation, controller};
use crate::api::names;
use crate::api::pod_group::{is_own, name_of};
use crate::kinds::Pointer;

/// Names the PodGroup of a gang, if the API server has PodGroups and the user names none.
pub fn name_pod_group(context: &mut Context<'_>) {
    let job = context.submitted;
    if !context.view.pod_groups() || !is_gang(job) {
        return;
    }
    let metadata = &job["metadata"];
    let named = metadata["name"].as_str().filter(|name| !name.is_empty());
    let name = named.or(metadata["generateName"].as_str()).unwrap_or_default();
    let group = name_of(name, &context.request.uid);
    context.draft.set(&scheduling_group().under("podGroupName"), group);
}

/// Restores the PodGroup of a Job if a manifest without it replaces the Job.
pub fn keep_pod_group(context: &mut Context<'_>) {
    let old = group(context.old);
    let own = old["podGroupName"].as_str().is_some_and(is_own);
    if own && group(context.object()).is_null() {
        context.draft.set(&scheduling_group(), old.clone());
    }
}

/// Takes a new pod out of its PodGroup if siblings have succeeded.
pub fn leave_pod_group(context: &mut Context<'_>) {
    let pod = context.submitted;
    let own = pod["spec"]["schedulingGroup"]["podGroupName"].as_str().is_some_and(is_own);
    if own && controller(pod).is_some_and(|job| context.view.has_succeeded_pods(&job.uid)) {
        context.draft.remove(&Pointer::to(["spec", "schedulingGroup"]));
    }
}

/// Whether a Job names a PodGroup. The API server then refuses to change the Job's parallelism.
pub fn has_pod_group(job: &Value) -> bool {
    group(job).is_object()
}

fn scheduling_group() -> Pointer {
    Pointer::to(["spec", "template", "spec", "schedulingGroup"])
}

fn group(job: &Value) -> &Value {
    &job["spec"]["template"]["spec"]["schedulingGroup"]
}

/// Whether all pods of a Job run at the same time, which kube-scheduler expects of a PodGroup.
///
/// A Job with more completions than parallelism has fewer pods at its end. With a backoff limit per index it
/// continues with fewer pods after a failure. An elastic Job changes its parallelism.
fn is_gang(job: &Value) -> bool {
    let parallelism = job["spec"]["parallelism"].as_u64().unwrap_or(1);
    let completions = job["spec"]["completions"].as_u64();
    let elastic = annotation(job, names::MIN_PARALLELISM).is_some();
    let pods = completions.map_or(parallelism, |completions| completions.min(parallelism));
    let at_once =
        completions.is_none_or(|all| all <= parallelism) && job["spec"]["backoffLimitPerIndex"].is_null();
    pods > 1 && at_once && !elastic && !has_pod_group(job)
}
