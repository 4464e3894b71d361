//! The PodGroup of a Job whose pods start all or none: named here at create, the only time that can be done, and
//! made by the leader before the Job is admitted.
//!
//! kube-scheduler does not count pods that have ended. So a pod that is made anew when others of its gang have
//! succeeded would wait for ever for as many as there were: it goes without.

use serde_json::Value;

use super::object::{annotation, controller};
use super::patch::Editor;
use super::review::Request;
use super::view::View;
use crate::api::names;
use crate::api::pod_group::{is_own, name_of};

/// Where a Job names the PodGroup of its pods.
const SCHEDULING_GROUP: [&str; 4] = ["spec", "template", "spec", "schedulingGroup"];

/// Names the PodGroup of a gang, where the API server knows PodGroups and its user names none.
pub fn name(view: &View<'_>, request: &Request, editor: &mut Editor) {
    if !view.pod_groups() || !is_gang(&request.object) {
        return;
    }
    let metadata = &request.object["metadata"];
    let named = metadata["name"].as_str().filter(|name| !name.is_empty());
    let job = named.or(metadata["generateName"].as_str()).unwrap_or_default();
    let [spec, template, pods, group] = SCHEDULING_GROUP;
    editor.set(&[spec, template, pods, group, "podGroupName"], name_of(job, &request.uid));
}

/// Keeps the name when a manifest comes that has never had it.
pub fn keep(editor: &mut Editor, before: &Value) {
    let group = group(before);
    let own = group["podGroupName"].as_str().is_some_and(is_own);
    if own && self::group(editor.object()).is_null() {
        editor.set(&SCHEDULING_GROUP, group.clone());
    }
}

/// Has a pod that is made anew start by itself, if of its gang some have succeeded.
pub fn leave(view: &View<'_>, editor: &mut Editor) {
    let pod = editor.object();
    let own = pod["spec"]["schedulingGroup"]["podGroupName"].as_str().is_some_and(is_own);
    let thinned = || controller(pod).is_some_and(|job| view.thinned(&job.uid));
    if own && thinned() {
        editor.remove(&["spec", "schedulingGroup"]);
    }
}

/// Whether a Job names a PodGroup. The API server refuses to change the parallelism of one that is a gang.
pub fn is_grouped(job: &Value) -> bool {
    group(job).is_object()
}

fn group(job: &Value) -> &Value {
    &job["spec"]["template"]["spec"]["schedulingGroup"]
}

/// Whether all pods of a Job run at the same time. One that does its work in turns has fewer of them in the last
/// turn, and one that goes on when an index has failed for good has fewer from then on, which kube-scheduler would
/// not start; an elastic one changes its parallelism.
fn is_gang(job: &Value) -> bool {
    let parallelism = job["spec"]["parallelism"].as_u64().unwrap_or(1);
    let completions = job["spec"]["completions"].as_u64();
    let elastic = annotation(job, names::MIN_PARALLELISM).is_some();
    let pods = completions.map_or(parallelism, |completions| completions.min(parallelism));
    let whole =
        completions.is_none_or(|all| all <= parallelism) && job["spec"]["backoffLimitPerIndex"].is_null();
    pods > 1 && whole && !elastic && !is_grouped(job)
}
