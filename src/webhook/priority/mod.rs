//! The PriorityClass of pods: one that does not let kube-scheduler preempt.
//!
//! kube-scheduler preempts by priority alone, without regard to guarantees, and Sluice sees the victims only as lost
//! pods. So a class that preempts is replaced by its twin, of the same value: in the templates of Jobs and custom kinds
//! at create, and on every new pod whose class preempts after all. A policy in the API server does the latter too, and
//! also while the webhook is down.

use serde_json::Value;

use super::context::Context;
use super::object::label_at;
use super::view::View;
use crate::api::names;
use crate::api::priority::{NEVER, twin_of};
use crate::kinds::Pointer;

/// The field in a pod spec.
const CLASS: &str = "priorityClassName";

/// A choice for pods.
#[derive(Debug, PartialEq, Eq)]
enum Choice {
    /// The pods keep their class, or have none.
    Keep,
    /// A class that is good as it is.
    Class(String),
    /// A class that Sluice has not seen. The API server refuses pods of a class that does not exist.
    Unknown(String),
    /// A class that Sluice makes, instead of this one, which is empty for none.
    Twin { name: String, class: String },
}

/// The class for pods that name `named`, in a queue with the class `queue`.
fn choose(view: &View<'_>, named: Option<&str>, queue: Option<&str>) -> Choice {
    let kept =
        |class: &str| if named == Some(class) { Choice::Keep } else { Choice::Class(class.to_owned()) };
    let own = named.or(queue);
    if !view.replaces_classes() {
        return own.map_or(Choice::Keep, kept);
    }
    let Some(wanted) = own.or_else(|| view.default_class()) else {
        return Choice::Twin { name: names::CLASS.to_owned(), class: String::new() };
    };
    let Some(class) = view.class(wanted) else { return Choice::Unknown(wanted.to_owned()) };
    if !class.needs_twin() {
        // Pods without a class get the cluster's own default from the API server.
        return if own.is_none() { Choice::Keep } else { kept(wanted) };
    }
    Choice::Twin { name: twin_of(wanted), class: wanted.to_owned() }
}

/// Writes the class into the spec of a pod template. It may be made a moment later: pods are created after the admission.
pub fn settle_template(context: &mut Context<'_>, spec: &Pointer) {
    let at = spec.under(CLASS);
    let queue = context.assignment().ok().and_then(|assignment| assignment.priority_class.clone());
    let choice = choose(context.view, text(&at, context.object()), queue.as_deref());
    if let Choice::Unknown(name) = &choice
        && context.view.lacks_class(name)
    {
        context.warnings.push(format!(
            "sluice: PriorityClass {name:?} does not exist: the API server refuses every pod of this {} until it does",
            context.submitted["kind"].as_str().unwrap_or("workload")
        ));
    }
    match choice {
        Choice::Keep => {}
        Choice::Class(name) | Choice::Unknown(name) | Choice::Twin { name, .. } => {
            context.draft.set(&at, name);
        }
    }
}

/// Restores a stored class if a manifest resets it to the class for which it stands, or to none: the class of a pod, and
/// of the template of a Job, cannot be changed. False if it is changed to another one.
pub fn keep(context: &mut Context<'_>, spec: &Pointer) -> bool {
    let at = spec.under(CLASS);
    let (old, new) = (text(&at, context.old), text(&at, context.submitted));
    let reset = new.is_none_or(|new| old.is_some_and(|old| twin_of(new) == old));
    if let Some(old) = old.filter(|old| reset && new != Some(*old)) {
        context.draft.set(&at, old);
    }
    reset || new == old
}

/// Gives a new pod a class that does not preempt; `queue` is the class of its queue.
///
/// The API server has already filled in priority and policy for the class of the submitted pod. It fills them in again
/// for the new class, and refuses values that do not match. When it asks again after that, nothing is left to change.
///
/// # Errors
/// One sentence if the class does not exist yet.
pub fn settle_pod(context: &mut Context<'_>, queue: Option<&str>) -> Result<(), String> {
    let spec = &context.submitted["spec"];
    let named = spec[CLASS].as_str().filter(|class| !class.is_empty());
    // The policy in the API server has given this one to a pod without a class; it does not know queues.
    let named = named.filter(|class| *class != names::CLASS || queue.is_none());
    if named.is_some() && spec["preemptionPolicy"] == NEVER {
        return Ok(());
    }
    let (name, class) = match choose(context.view, named, queue) {
        Choice::Keep => return Ok(()),
        Choice::Class(name) => (name, None),
        Choice::Unknown(name) => {
            return Err(format!("PriorityClass {name:?} is not known yet; try again in a moment"));
        }
        Choice::Twin { name, class } => (name, Some(class)),
    };
    if let Some(class) = class {
        if !context.view.twin_exists(&name, &class) {
            let preempting = if class.is_empty() {
                "a pod without a PriorityClass".to_owned()
            } else {
                format!("a pod of PriorityClass {class:?}")
            };
            return Err(format!(
                "{preempting} lets kube-scheduler preempt, and Sluice has not made PriorityClass {name:?} for it yet; try again in a moment"
            ));
        }
        context.draft.set(&label_at(names::TWIN), "true");
    }
    context.draft.set(&Pointer::to(["spec", CLASS]), name);
    for field in ["priority", "preemptionPolicy"] {
        context.draft.remove(&Pointer::to(["spec", field]));
    }
    Ok(())
}

fn text<'a>(at: &Pointer, object: &'a Value) -> Option<&'a str> {
    at.read(object).and_then(Value::as_str).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
