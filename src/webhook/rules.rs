//! The rules shared by Jobs and custom kinds: held at create, kept in the queue until Sluice starts them.
//!
//! The policies in `policies/` repeat these rules in CEL and hold while Sluice is down. The rules here have clearer
//! messages and know teams, queues and manifests that are applied again unchanged.

use serde_json::Value;

use super::context::Context;
use super::object::{annotation, annotation_at, label, label_at, same_annotation};
use super::{caps, requests};
use crate::api::caps::Counts;
use crate::api::names;
use crate::kinds::Pointer;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The parts of the rules that differ between kinds of workloads.
pub trait Target {
    /// The kind, as messages name it.
    fn kind(&self) -> &str;

    /// The field that suspends an object.
    fn suspend_field(&self) -> Pointer;

    /// Whether an object is suspended.
    fn is_suspended(&self, object: &Value) -> bool;

    /// Whether server-side apply of an unchanged manifest is recognised, besides client-side apply.
    fn knows_server_side_apply(&self) -> bool {
        false
    }

    /// The field in the pod template for a label of the object, if the label is copied there.
    fn template_label(&self, _key: &str) -> Option<Pointer> {
        None
    }

    /// Whether the API server accepts a change of the pod template.
    fn is_template_mutable(&self, _object: &Value) -> bool {
        false
    }

    /// What an object has of everything that is capped.
    fn counts(&self, object: &Value) -> Counts;

    /// Edits of this kind at create, after the object is held and labelled.
    ///
    /// # Errors
    /// One sentence if the object cannot be accepted.
    fn create(&self, context: &mut Context<'_>) -> Result<(), String>;

    /// Restores the granted number of pods if an unchanged manifest resets it.
    fn keep_granted_pods(&self, _context: &mut Context<'_>) {}

    /// Restores Sluice's other fields if an unchanged manifest resets them.
    fn keep_placement(&self, context: &mut Context<'_>);

    /// Checks of this kind at create.
    ///
    /// # Errors
    /// One sentence if the object must be refused.
    fn check_create(&self, context: &Context<'_>) -> Result<(), String>;

    /// Checks of this kind at update.
    ///
    /// # Errors
    /// One sentence if the change must be refused.
    fn check_update(&self, context: &Context<'_>) -> Result<(), String>;
}

/// Whether an object waits: it is suspended and not admitted. Held by its user counts too.
#[must_use]
pub fn is_waiting(target: &dyn Target, object: &Value) -> bool {
    target.is_suspended(object) && !is_admitted(object)
}

/// Whether an object carries the record of an admission.
#[must_use]
pub fn is_admitted(object: &Value) -> bool {
    annotation(object, names::ADMISSION).is_some()
}

/// Edits the object of a request.
///
/// # Errors
/// One sentence if the object cannot be accepted.
pub fn edit(context: &mut Context<'_>, target: &dyn Target) -> Result<(), String> {
    match context.request.operation.as_str() {
        "CREATE" => create(context, target),
        "UPDATE" => update(context, target),
        _ => Ok(()),
    }
}

/// Judges the object as it would be stored.
///
/// # Errors
/// One sentence if the request must be refused.
pub fn check(context: &Context<'_>, target: &dyn Target) -> Result<(), String> {
    match context.request.operation.as_str() {
        "CREATE" => check_create(context, target),
        "UPDATE" => check_update(context, target),
        _ => Ok(()),
    }
}

fn create(context: &mut Context<'_>, target: &dyn Target) -> Result<(), String> {
    context.assignment()?;
    // An object that the policy in the API server has held is suspended and carries the mark. A suspended object
    // without the mark is held by its user.
    if !target.is_suspended(context.submitted) {
        hold(context, target);
    }
    set_labels(context, target, true)?;
    context.draft.set(&annotation_at(names::USER), context.user());
    target.create(context)
}

fn update(context: &mut Context<'_>, target: &dyn Target) -> Result<(), String> {
    let (old, submitted) = (context.old, context.submitted);
    let held = annotation(old, names::HELD).is_some();
    let suspend = target.suspend_field();
    match (target.is_suspended(old), target.is_suspended(submitted)) {
        (true, false) if held && is_reapplied(context, target, &suspend) => {
            context.draft.set(&suspend, true);
            context.warnings.push(format!(
                "sluice: the {} stays in the queue; only Sluice sets {}",
                target.kind(),
                suspend.dotted()
            ));
        }
        // The user releases an own hold: the object enters the queue.
        (true, false) if !held => hold(context, target),
        // The user suspends an admitted object: from now on the hold is the user's. An object that an older Sluice has
        // admitted carries the mark still.
        (false, true) if is_admitted(submitted) => context.draft.remove(&annotation_at(names::HELD)),
        (true, true) if held => suspend_again(context, target, &suspend),
        _ => {}
    }
    context.warnings.extend(requests::newly_without_effect(old, submitted));
    target.keep_granted_pods(context);
    // A manifest that replaces the whole object lacks the submitter.
    if let (Some(user), None) = (annotation(old, names::USER), annotation(submitted, names::USER)) {
        context.draft.set(&annotation_at(names::USER), user);
    }
    target.keep_placement(context);
    if is_waiting(target, old) && is_waiting(target, context.object()) {
        set_labels(context, target, target.is_template_mutable(old))?;
    }
    Ok(())
}

/// The user suspends an object that Sluice holds already. While it stops the hold becomes the user's, so the last word
/// counts in whichever order a user suspends and resumes. One that waits stays in the queue, and a warning says so.
///
/// A request that suspends what is suspended changes nothing. It is known as an applied manifest that has come to say so,
/// or, while an object stops that its user has suspended and resumed, by being without any effect at all: nothing else is
/// likely to be written in those seconds.
fn suspend_again(context: &mut Context<'_>, target: &dyn Target, suspend: &Pointer) {
    let (old, submitted) = (context.old, context.submitted);
    let applied = |object: &Value| suspend.read(&last_applied(object)) == Some(&Value::Bool(true));
    let by_manifest = applied(submitted) && !applied(old);
    // A manifest that is applied again and does not say so means something else, or nothing.
    let by_silent_manifest =
        context.request.options["fieldManager"] == "kubectl-client-side-apply" && !applied(submitted);
    let by_patch = is_unchanged(old, submitted) && !is_applied(context) && !by_silent_manifest;
    let stops = is_admitted(old);
    let of_user = annotation(old, names::EVICTION).is_none();
    if stops && (by_manifest || by_patch && of_user) {
        context.draft.remove(&annotation_at(names::HELD));
    } else if by_manifest || by_patch {
        context.warnings.push(format!(
            "sluice: the {} stays in the queue: while it waits Sluice has set {} itself, so setting it changes nothing; \
             to hold the {0} run `sluice hold`, or write the annotation {}: \"true\"",
            target.kind(),
            suspend.dotted(),
            names::HOLD
        ));
    }
}

/// Whether two states of an object say the same, apart from the managers of their fields.
fn is_unchanged(old: &Value, new: &Value) -> bool {
    let metadata = ["labels", "annotations", "ownerReferences", "finalizers"];
    old["spec"] == new["spec"]
        && metadata.iter().all(|field| old["metadata"][field] == new["metadata"][field])
}

/// The manifest that client-side apply keeps in an annotation of the object.
fn last_applied(object: &Value) -> Value {
    annotation(object, LAST_APPLIED).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// What the request's manager has applied on the server's side.
fn applied_entries<'a>(context: &Context<'a>) -> impl Iterator<Item = &'a Value> {
    let manager = &context.request.options["fieldManager"];
    let entries = context.submitted["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.filter(move |entry| entry["operation"] == "Apply" && entry["manager"] == *manager)
}

/// Whether the request's manager applies on the server's side, as tools do again and again without a change.
fn is_applied(context: &Context<'_>) -> bool {
    applied_entries(context).next().is_some()
}

/// Suspends the object and marks it as held by Sluice.
fn hold(context: &mut Context<'_>, target: &dyn Target) {
    context.draft.set(&target.suspend_field(), true);
    context.draft.set(&annotation_at(names::HELD), "true");
}

/// Writes the labels of team and queue, in the pod template too if `template` is set.
fn set_labels(context: &mut Context<'_>, target: &dyn Target, template: bool) -> Result<(), String> {
    let assignment = context.assignment()?.clone();
    for (key, value) in assignment.labels() {
        context.draft.set(&label_at(key), value);
        if let Some(at) = target.template_label(key).filter(|_| template) {
            context.draft.set(&at, value);
        }
    }
    Ok(())
}

/// Whether a field was reset by an apply of a manifest that always had this value, and not by an edit.
pub fn is_reapplied(context: &Context<'_>, target: &dyn Target, field: &Pointer) -> bool {
    let manifest = last_applied(context.old);
    let value = field.read(context.submitted).filter(|value| !value.is_null());
    if value.is_some() && field.read(&manifest) == value {
        return true;
    }
    // In server-side apply the manager of the request owns the field.
    let owns = |fields: &Value| {
        let mut tokens = field.tokens().iter();
        tokens.try_fold(fields, |fields, token| fields.get(format!("f:{token}"))).is_some()
    };
    target.knows_server_side_apply() && applied_entries(context).any(|entry| owns(&entry["fieldsV1"]))
}

fn check_create(context: &Context<'_>, target: &dyn Target) -> Result<(), String> {
    context.assignment()?;
    check_new_annotations(context, true)?;
    if !target.is_suspended(context.object()) {
        return Err(format!(
            "{} is not true: a {} in a team's namespace starts suspended, and another webhook or policy has released it",
            target.suspend_field().dotted(),
            target.kind()
        ));
    }
    caps::check(context, |object| target.counts(object))?;
    target.check_create(context)
}

/// Refuses Sluice's annotations on a new object, except the submitter's own name and, where `may_be_held`, the hold.
///
/// # Errors
/// One sentence that names the annotation.
pub fn check_new_annotations(context: &Context<'_>, may_be_held: bool) -> Result<(), String> {
    for key in names::OWN_ANNOTATIONS {
        match annotation(context.object(), key) {
            Some("true") if may_be_held && key == names::HELD => {}
            Some(user) if key == names::USER && user == context.user() => {}
            Some(_) => return Err(format!("annotation {key} is written by Sluice alone; leave it out")),
            None => {}
        }
    }
    Ok(())
}

fn check_update(context: &Context<'_>, target: &dyn Target) -> Result<(), String> {
    if target.is_suspended(context.old) && !target.is_suspended(context.object()) {
        let team = label(context.old, names::TEAM).unwrap_or("its team");
        return Err(format!("it waits in the queue of {team}, and only Sluice starts it"));
    }
    check_own_annotations(context, target)?;
    check_labels(context, target)?;
    // A workload that runs keeps the place it has started from.
    let reordered = [names::ORDER, names::TEAM_ORDER]
        .into_iter()
        .find(|key| !same_annotation(context.old, context.object(), key));
    if let Some(key) = reordered.filter(|_| !is_waiting(target, context.object())) {
        return Err(format!("annotation {key} can be changed only while the {} waits", target.kind()));
    }
    caps::check(context, |object| target.counts(object))?;
    target.check_update(context)
}

fn check_own_annotations(context: &Context<'_>, target: &dyn Target) -> Result<(), String> {
    let (old, new) = (context.old, context.object());
    for key in names::OWN_ANNOTATIONS {
        // The hold is the only mark that changes with a user's own suspend and release. While the object waits it stays.
        let allowed = key == names::HELD
            && match (annotation(old, key), annotation(new, key)) {
                (None, Some("true")) => target.is_suspended(new),
                (Some(_), None) => !is_waiting(target, old) && target.is_suspended(new),
                _ => false,
            };
        if !same_annotation(old, new, key) && !allowed {
            return Err(written_by_sluice("annotation", key));
        }
    }
    Ok(())
}

fn check_labels(context: &Context<'_>, target: &dyn Target) -> Result<(), String> {
    let (old, new) = (context.old, context.object());
    if label(old, names::TEAM) != label(new, names::TEAM) {
        if label(old, names::TEAM).is_some() {
            return Err(written_by_sluice("label", names::TEAM));
        }
        context.assignment()?;
    }
    // Labels of an object that Sluice has neither labelled nor admitted have no effect.
    let managed = label(old, names::TEAM).is_some() || is_admitted(old);
    if managed && label(old, names::QUEUE) != label(new, names::QUEUE) {
        if !(is_waiting(target, old) && is_waiting(target, new)) {
            return Err(format!(
                "label {} can be changed only while the {} waits",
                names::QUEUE,
                target.kind()
            ));
        }
        context.assignment()?;
    }
    for key in [names::TEAM, names::QUEUE] {
        let Some(at) = target.template_label(key).filter(|_| managed) else { continue };
        let is_text = |object| at.read(object).is_some_and(Value::is_string);
        if is_text(old) && !is_text(new) {
            return Err(written_by_sluice("label", &format!("{key} of spec.template")));
        }
    }
    Ok(())
}

/// The refusal of a change to a key that only Sluice writes.
#[must_use]
pub fn written_by_sluice(what: &str, key: &str) -> String {
    format!("{what} {key} is written by Sluice alone; leave it as it is")
}
