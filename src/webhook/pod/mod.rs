//! The rules for new Pods: pods outside of an admitted Job get the admission gate, pods of an admitted Job their nodes.

use serde_json::{Value, json};

use super::context::Context;
use super::object::{annotation, annotation_at, controlled_by, label_at};
use super::review::{Request, Verdict};
use super::rules::check_new_annotations;
use super::view::View;
use super::{caps, gang, gpu_fraction, pod_placement, requests};
use crate::api::names;
use crate::kinds::Pointer;

/// The account of all controllers in a cluster where they share one.
const CONTROLLER_MANAGER: &str = "system:kube-controller-manager";
const JOB_CONTROLLER: &str = "system:serviceaccount:kube-system:job-controller";
const DAEMON_SET_CONTROLLER: &str = "system:serviceaccount:kube-system:daemon-set-controller";
const NODES: &str = "system:nodes";
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Answers `/mutate` for a Pod.
#[must_use]
pub fn mutate(view: &View<'_>, request: &Request) -> Verdict {
    if request.operation != "CREATE" || request.by_sluice() {
        return Verdict::pass();
    }
    let mut context = Context::new(view, request);
    if by_job_controller(request) {
        gang::leave_pod_group(&mut context);
        if pod_placement::has_gate(context.submitted) {
            pod_placement::place(&mut context);
        }
    }
    pod_placement::apply_annotation(&mut context);
    let needs_no_gate = needs_no_gate(request) || context.has_parent();
    let result = if needs_no_gate { Ok(()) } else { edit(&mut context).and_then(|()| check(&mut context)) };
    context.answer(result)
}

/// Whether the pod starts without the admission gate: it is admitted with its Job, or belongs to a node.
///
/// Labels and owners are open to any user, so the account that creates the pod must fit as well.
fn needs_no_gate(request: &Request) -> bool {
    let (pod, user) = (&request.object, request.user_info.username.as_str());
    // A bound pod cannot have a gate. A policy in the API server refuses it unless a node creates it.
    let bound = pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let by_node = request.user_info.groups.iter().any(|group| group == NODES);
    let mirror = annotation(pod, MIRROR).is_some() && by_node;
    let of_daemon_set =
        controlled_by(pod, "DaemonSet") && [DAEMON_SET_CONTROLLER, CONTROLLER_MANAGER].contains(&user);
    bound || mirror || of_daemon_set || by_job_controller(request)
}

/// Whether the Job controller creates the pod for a Job.
fn by_job_controller(request: &Request) -> bool {
    let user = request.user_info.username.as_str();
    controlled_by(&request.object, "Job") && [JOB_CONTROLLER, CONTROLLER_MANAGER].contains(&user)
}

fn edit(context: &mut Context<'_>) -> Result<(), String> {
    let pod = context.submitted;
    let assignment = context.assignment()?.clone();
    let gates = pod["spec"]["schedulingGates"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !gates.iter().any(|gate| gate["name"] == names::GATE_ADMISSION) {
        let mut gates = gates.to_vec();
        gates.push(json!({"name": names::GATE_ADMISSION}));
        context.draft.set(&Pointer::to(["spec", "schedulingGates"]), Value::Array(gates));
    }
    for (key, value) in assignment.labels() {
        context.draft.set(&label_at(key), value);
    }
    context.draft.set(&annotation_at(names::USER), context.user());
    gpu_fraction::request_devices(context, &Pointer::to(["spec"]), false)?;
    let has_class = pod["spec"]["priorityClassName"].as_str().is_some_and(|class| !class.is_empty());
    if let Some(default) = assignment.priority_class.filter(|_| !has_class) {
        context.draft.set(&Pointer::to(["spec", "priorityClassName"]), &*default);
        // The API server has filled these in for the class of the submitted pod. It fills them in again for the
        // new class, and refuses values that do not match.
        context.draft.remove(&Pointer::to(["spec", "priority"]));
        context.draft.remove(&Pointer::to(["spec", "preemptionPolicy"]));
    }
    Ok(())
}

fn check(context: &mut Context<'_>) -> Result<(), String> {
    check_new_annotations(context, false)?;
    caps::check(context, |pod| caps::of_pod(&pod["spec"]))?;
    requests::check(context.view, context.object())?;
    context.warnings = requests::warnings(context.object());
    Ok(())
}

#[cfg(test)]
mod tests;
