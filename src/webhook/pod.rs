//! What happens to Pods at create: those that nobody has admitted get a gate.

use serde_json::{Value, json};

use super::membership::standing;
use super::object::{annotation, controlled_by};
use super::patch::Editor;
use super::review::{Request, Verdict};
use super::view::View;
use super::wishes;
use crate::api::names;

/// The one process that runs all controllers when they have no accounts of their own.
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
const JOB_CONTROLLER: &str = "system:serviceaccount:kube-system:job-controller";
const DAEMON_SET_CONTROLLER: &str = "system:serviceaccount:kube-system:daemon-set-controller";
const NODES: &str = "system:nodes";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether the pod needs no gate: it is admitted with its Job, or belongs to a node.
///
/// What a user could write alone never exempts; the account that creates the pod must fit.
fn exempt(request: &Request) -> bool {
    let (pod, user) = (&request.object, request.user_info.username.as_str());
    let bound = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let mirror =
        annotation(pod, MIRROR).is_some() && request.user_info.groups.iter().any(|group| group == NODES);
    let of_job = controlled_by(pod, "Job") && [JOB_CONTROLLER, CONTROLLER_MANAGER].contains(&user);
    let of_daemon_set =
        controlled_by(pod, "DaemonSet") && [DAEMON_SET_CONTROLLER, CONTROLLER_MANAGER].contains(&user);
    // A bound pod cannot have a gate; a policy in the API server refuses it unless it is a node's own.
    bound || mirror || of_job || of_daemon_set
}

/// Answers `/mutate` for a Pod.
#[must_use]
pub fn mutate(view: &View<'_>, request: &Request) -> Verdict {
    if request.operation != "CREATE" || request.by_sluice() || exempt(request) {
        return Verdict::pass();
    }
    let mut editor = Editor::new(&request.object);
    let (patch, object) = match edit(view, request, &mut editor) {
        Ok(()) => editor.finish(),
        Err(problem) => return Verdict::Deny(format!("{}: {problem}", request.object_name())),
    };
    match check(view, request, &object) {
        Ok(()) => Verdict::Allow { patch, warnings: wishes::warnings(&object) },
        Err(problem) => Verdict::Deny(format!("{}: {problem}", request.object_name())),
    }
}

fn edit(view: &View<'_>, request: &Request, editor: &mut Editor) -> Result<(), String> {
    let pod = &request.object;
    let standing = standing(view, &request.namespace, pod)?;
    let gates = pod["spec"]["schedulingGates"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !gates.iter().any(|gate| gate["name"] == names::GATE_ADMISSION) {
        let mut gates = gates.to_vec();
        gates.push(json!({"name": names::GATE_ADMISSION}));
        editor.set(&["spec", "schedulingGates"], Value::Array(gates));
    }
    for (key, value) in [(names::TEAM, &standing.team), (names::QUEUE, &standing.queue)] {
        if let Some(value) = value {
            editor.set(&["metadata", "labels", key], &**value);
        }
    }
    editor.set(&["metadata", "annotations", names::USER], request.user_info.username.as_str());
    let named = pod["spec"]["priorityClassName"].as_str().unwrap_or_default();
    if let Some(wanted) = standing.priority_class.filter(|_| named.is_empty()) {
        editor.set(&["spec", "priorityClassName"], &*wanted);
        // The API server has filled these in for the class the pod came with, computes them anew for
        // the class it has now, and refuses what does not agree.
        editor.remove(&["spec", "priority"]);
        editor.remove(&["spec", "preemptionPolicy"]);
    }
    Ok(())
}

fn check(view: &View<'_>, request: &Request, pod: &Value) -> Result<(), String> {
    for key in names::OWN_ANNOTATIONS {
        let own_name = key == names::USER && annotation(pod, key) == Some(&*request.user_info.username);
        if annotation(pod, key).is_some() && !own_name {
            return Err(format!("annotation {key} is written by Sluice alone; leave it out"));
        }
    }
    wishes::check(view, pod)
}

#[cfg(test)]
mod tests;
