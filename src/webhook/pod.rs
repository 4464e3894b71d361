//! What happens to Pods at create: those that nobody has admitted get a gate, and those of admitted Jobs
//! their places.

mod pin;

use serde_json::{Value, json};

use super::membership::standing;
use super::object::{annotation, controlled_by};
use super::other::left_to_parent;
use super::patch::Editor;
use super::review::{Request, Verdict};
use super::view::View;
use super::{gang, shares, wishes};
use crate::api::affinity::{REQUIRED_TERMS, pinned};
use crate::api::names;
use crate::kinds::nodes_of;

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
    let of_job = of_job(request);
    let of_daemon_set =
        controlled_by(pod, "DaemonSet") && [DAEMON_SET_CONTROLLER, CONTROLLER_MANAGER].contains(&user);
    // A bound pod cannot have a gate; a policy in the API server refuses it unless it is a node's own.
    bound || mirror || of_job || of_daemon_set
}

/// Whether the pod's Job makes it.
fn of_job(request: &Request) -> bool {
    let user = request.user_info.username.as_str();
    controlled_by(&request.object, "Job") && [JOB_CONTROLLER, CONTROLLER_MANAGER].contains(&user)
}

/// Answers `/mutate` for a Pod.
#[must_use]
pub fn mutate(view: &View<'_>, request: &Request) -> Verdict {
    if request.operation != "CREATE" || request.by_sluice() {
        return Verdict::pass();
    }
    let mut editor = Editor::new(&request.object);
    if of_job(request) {
        gang::leave(view, &mut editor);
        if pin::waits(&request.object) {
            pin::place(view, &mut editor);
        }
    }
    pin(&mut editor);
    if exempt(request) || left_to_parent(view.kinds(), &request.object) {
        let (patch, _) = editor.finish();
        return Verdict::Allow { patch, warnings: Vec::new() };
    }
    let (patch, object) = match edit(view, request, &mut editor) {
        Ok(()) => editor.finish(),
        Err(problem) => return Verdict::Deny(format!("{}: {problem}", request.object_name())),
    };
    match check(view, request, &object) {
        Ok(()) => Verdict::Allow { patch, warnings: wishes::warnings(&object) },
        Err(problem) => Verdict::Deny(format!("{}: {problem}", request.object_name())),
    }
}

/// Leads a pod to the nodes that its template names for it, once.
fn pin(editor: &mut Editor) {
    let Some(nodes) = annotation(editor.object(), names::NODES) else { return };
    let nodes: Vec<String> = nodes_of(nodes).map(ToOwned::to_owned).collect();
    let affinity = &editor.object()["spec"]["affinity"];
    let terms = affinity.pointer(REQUIRED_TERMS).and_then(Value::as_array);
    let named = |term: &Value| {
        term["matchFields"]
            .as_array()
            .is_some_and(|fields| fields.iter().any(|f| f["key"] == "metadata.name"))
    };
    if nodes.is_empty() || terms.is_some_and(|terms| terms.iter().all(named)) {
        return;
    }
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let led = pinned(Some(affinity), &nodes);
    editor.set(&["spec", "affinity"], led);
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
    shares::offer(view, editor, &["spec"], false)?;
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
