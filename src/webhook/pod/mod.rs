//! The rules for new Pods: pods outside of an admitted Job get the admission gate, pods of an admitted Job their nodes.

use serde_json::{Value, json};

use super::context::Context;
use super::object::{annotation, annotation_at, controlled_by, label_at};
use super::review::{Request, Verdict};
use super::rules::check_new_annotations;
use super::view::View;
use super::{caps, constraints, gang, gpu_fraction, never, pod_placement, priority, requests};
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
    if request.by_sluice() {
        return Verdict::pass();
    }
    let mut context = Context::new(view, request);
    match request.operation.as_str() {
        "CREATE" => {}
        "UPDATE" => {
            priority::keep(&mut context, &Pointer::to(["spec"]));
            return context.answer(Ok(()));
        }
        _ => return Verdict::pass(),
    }
    if by_job_controller(request) {
        gang::leave_pod_group(&mut context);
        if pod_placement::has_gate(context.submitted) {
            pod_placement::place(&mut context);
        }
    }
    pod_placement::apply_annotation(&mut context);
    let needs_no_gate = needs_no_gate(request) || context.is_new_child();
    let result = if is_bound(&request.object) {
        Ok(())
    } else if needs_no_gate {
        // Its class is that of the template, in which the class of the queue stands already.
        priority::settle_pod(&mut context, None)
    } else {
        edit(&mut context).and_then(|()| check(&mut context))
    };
    context.answer(result)
}

/// Whether the pod starts without the admission gate: it is admitted with its Job, or belongs to a node.
///
/// Labels and owners are open to any user, so the account that creates the pod must fit as well.
fn needs_no_gate(request: &Request) -> bool {
    let (pod, user) = (&request.object, request.user_info.username.as_str());
    let by_node = request.user_info.groups.iter().any(|group| group == NODES);
    let mirror = annotation(pod, MIRROR).is_some() && by_node;
    let of_daemon_set = controlled_by(pod, "apps", "DaemonSet")
        && [DAEMON_SET_CONTROLLER, CONTROLLER_MANAGER].contains(&user)
        && !uses_devices(&pod["spec"]);
    is_bound(pod) || mirror || of_daemon_set || by_job_controller(request)
}

/// Whether a pod has a node. It cannot have a gate, and kube-scheduler does not look at it. A policy in the API server
/// refuses it unless a node creates it.
fn is_bound(pod: &Value) -> bool {
    pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
}

/// Whether a pod asks for devices: extended resources, named with a domain, or resource claims.
fn uses_devices(spec: &Value) -> bool {
    let list = |field: &str| spec[field].as_array().into_iter().flatten();
    let mut limits = list("containers")
        .chain(list("initContainers"))
        .flat_map(|container| container["resources"]["limits"].as_object().into_iter().flatten());
    list("resourceClaims").next().is_some() || limits.any(|(name, _)| name.contains('/'))
}

/// Whether the Job controller creates the pod for a Job.
fn by_job_controller(request: &Request) -> bool {
    let user = request.user_info.username.as_str();
    controlled_by(&request.object, "batch", "Job") && [JOB_CONTROLLER, CONTROLLER_MANAGER].contains(&user)
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
    priority::settle_pod(context, assignment.priority_class.as_deref())
}

fn check(context: &mut Context<'_>) -> Result<(), String> {
    check_new_annotations(context, false)?;
    caps::check(context, |pod| caps::of_pod(&pod["spec"]))?;
    requests::check(context.view, context.object())?;
    context.warnings = requests::warnings(context.object());
    context.warnings.extend(constraints::warnings(context.object(), &Pointer::to(["spec"])));
    context.warnings.extend(never::warning(context));
    Ok(())
}

#[cfg(test)]
mod tests;
