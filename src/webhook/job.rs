//! What happens to Jobs: held at create, kept in the queue until Sluice starts them.
//!
//! The same rules stand in `policies/` as CEL, where they hold while Sluice is down; here they come
//! with better sentences and with what CEL cannot know (teams, queues, an apply of an unchanged manifest).

use serde_json::Value;

use super::membership::{Standing, standing};
use super::object::{annotation, deleting, label};
use super::other::left_to_parent;
use super::patch::Editor;
use super::review::{Request, Verdict};
use super::view::View;
use super::{gang, shares, wishes};
use crate::api::names;
use crate::api::record::Record;

const ANNOTATIONS: [&str; 2] = ["metadata", "annotations"];
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The Job as the rules see it.
struct Job<'a>(&'a Value);

impl<'a> Job<'a> {
    fn suspended(&self) -> bool {
        self.0["spec"]["suspend"] == Value::Bool(true)
    }

    fn held(&self) -> bool {
        annotation(self.0, names::HELD).is_some()
    }

    fn admitted(&self) -> bool {
        annotation(self.0, names::ADMISSION).is_some()
    }

    /// Whether it waits: in the queue or for its user, and nothing of it is granted.
    fn waits(&self) -> bool {
        self.suspended() && !self.admitted()
    }

    fn parallelism(&self) -> u64 {
        self.0["spec"]["parallelism"].as_u64().unwrap_or(1)
    }

    /// How many pods it may run: what the record grants, or what runs outside of any grant.
    fn grant(&self) -> u64 {
        annotation(self.0, names::ADMISSION)
            .and_then(|text| serde_json::from_str::<Record>(text).ok())
            .map_or(self.parallelism(), |record| u64::from(record.pods))
    }

    /// The affinity its user wrote, kept while the template carries Sluice's placement.
    fn user_affinity(&self) -> Option<Value> {
        serde_json::from_str(annotation(self.0, names::USER_AFFINITY)?).ok()
    }

    fn template_label(&self, key: &str) -> Option<&'a str> {
        label(&self.0["spec"]["template"], key)
    }

    /// Whether the API server lets the template change: suspended, and nothing of it runs.
    fn template_open(&self) -> bool {
        let status = &self.0["status"];
        let confirmed = status["conditions"].as_array().is_some_and(|conditions| {
            conditions
                .iter()
                .any(|condition| condition["type"] == "Suspended" && condition["status"] == "True")
        });
        self.suspended()
            && (status["startTime"].is_null() || confirmed)
            && status["active"].as_u64().unwrap_or(0) == 0
    }
}

/// Answers `/mutate` for a Job.
#[must_use]
pub fn mutate(view: &View<'_>, request: &Request) -> Verdict {
    if request.by_sluice() || deleting(&request.object) || left_to_parent(view.kinds(), &request.object) {
        return Verdict::pass();
    }
    let mut editor = Editor::new(&request.object);
    let mut warnings = Vec::new();
    let edited = match request.operation.as_str() {
        "CREATE" => {
            warnings = wishes::warnings(&request.object);
            create(view, request, &mut editor)
        }
        "UPDATE" => update(view, request, &mut editor, &mut warnings),
        _ => return Verdict::pass(),
    };
    let (patch, object) = editor.finish();
    match edited.and_then(|()| check(view, request, &object)) {
        Ok(()) => Verdict::Allow { patch, warnings },
        Err(problem) => Verdict::Deny(format!("{}: {problem}", request.object_name())),
    }
}

/// Answers `/validate` for a Job: the same rules on what the other webhooks have left.
#[must_use]
pub fn validate(view: &View<'_>, request: &Request) -> Verdict {
    if request.by_sluice() || deleting(&request.object) || left_to_parent(view.kinds(), &request.object) {
        return Verdict::pass();
    }
    match check(view, request, &request.object) {
        Ok(()) => Verdict::pass(),
        Err(problem) => Verdict::Deny(format!("{}: {problem}", request.object_name())),
    }
}

fn create(view: &View<'_>, request: &Request, editor: &mut Editor) -> Result<(), String> {
    let standing = standing(view, &request.namespace, &request.object)?;
    // A Job that the policy in the API server has held is suspended already and carries the mark; one
    // that is suspended without it is its user's to release.
    if !Job(&request.object).suspended() {
        hold(editor);
    }
    stamp(editor, &standing, true);
    editor.set(&[ANNOTATIONS[0], ANNOTATIONS[1], names::USER], request.user_info.username.as_str());
    gang::name(view, request, editor);
    shares::offer(view, editor, &["spec", "template", "spec"], true)?;
    let affinity = request.object.pointer("/spec/template/spec/affinity/nodeAffinity");
    let elastic = annotation(&request.object, names::MIN_PARALLELISM).is_some();
    if elastic || affinity.is_some_and(Value::is_object) {
        editor.set(&["metadata", "labels", names::OWN_AFFINITY], "true");
    }
    let class = ["spec", "template", "spec", "priorityClassName"];
    let named = request.object["spec"]["template"]["spec"]["priorityClassName"].as_str().unwrap_or_default();
    if let Some(wanted) = standing.priority_class.filter(|_| named.is_empty()) {
        editor.set(&class, &*wanted);
    }
    Ok(())
}

fn update(
    view: &View<'_>,
    request: &Request,
    editor: &mut Editor,
    warnings: &mut Vec<String>,
) -> Result<(), String> {
    let (old, new) = (Job(&request.old_object), Job(&request.object));
    match (old.suspended(), new.suspended()) {
        (true, false) if old.held() && reapplied(request, "suspend") => {
            editor.set(&["spec", "suspend"], true);
            warnings.push("sluice: the Job stays in the queue; `suspend` is Sluice's to set".to_owned());
        }
        // Its user lets go: from now on it is in the queue.
        (true, false) if !old.held() => hold(editor),
        // Its user stops it: from now on it is held by its user, not by Sluice.
        (false, true) if new.admitted() => editor.remove(&[ANNOTATIONS[0], ANNOTATIONS[1], names::HELD]),
        (false, false) if raised(&old, &new) && reapplied(request, "parallelism") => {
            for field in ["parallelism", "completions"] {
                if request.object["spec"][field] != request.old_object["spec"][field] {
                    editor.set(&["spec", field], request.old_object["spec"][field].clone());
                }
            }
            warnings.push(format!("sluice: the Job keeps the {} pods it was granted", old.grant()));
        }
        _ => {}
    }
    // A manifest that replaces the whole Job does not say who submitted it.
    if let (Some(user), None) =
        (annotation(&request.old_object, names::USER), annotation(&request.object, names::USER))
    {
        editor.set(&[ANNOTATIONS[0], ANNOTATIONS[1], names::USER], user);
    }
    // The template of an admitted Job carries the placement; a manifest that brings back what its user
    // wrote there is the unchanged one, not a change.
    let affinity = &request.object["spec"]["template"]["spec"]["affinity"];
    if old.admitted() && old.user_affinity().as_ref() == Some(affinity) {
        let placed = request.old_object["spec"]["template"]["spec"]["affinity"].clone();
        editor.set(&["spec", "template", "spec", "affinity"], placed);
    }
    if old.admitted() {
        shares::keep(editor, &request.old_object);
    }
    gang::keep(editor, &request.old_object);
    // So are the gates with which its pods wait for their places.
    let path = ["spec", "template", "spec", "schedulingGates"];
    let gates = |object: &Value| object["spec"]["template"]["spec"]["schedulingGates"].clone();
    let (before, after) = (gates(&request.old_object), gates(&request.object));
    let places = |gates: &Value| {
        gates.as_array().is_some_and(|gates| gates.iter().any(|gate| gate["name"] == names::GATE_PLACEMENT))
    };
    if old.admitted() && places(&before) && !places(&after) {
        editor.set(&path, before);
    }
    if old.waits() && Job(editor.object()).waits() {
        let standing = standing(view, &request.namespace, &request.object)?;
        stamp(editor, &standing, old.template_open());
    }
    Ok(())
}

fn hold(editor: &mut Editor) {
    editor.set(&["spec", "suspend"], true);
    editor.set(&[ANNOTATIONS[0], ANNOTATIONS[1], names::HELD], "true");
}

fn stamp(editor: &mut Editor, standing: &Standing, template: bool) {
    for (key, value) in [(names::TEAM, &standing.team), (names::QUEUE, &standing.queue)] {
        let Some(value) = value else { continue };
        editor.set(&["metadata", "labels", key], &**value);
        if template {
            editor.set(&["spec", "template", "metadata", "labels", key], &**value);
        }
    }
}

/// Whether it runs more pods than it was granted, and more than before.
fn raised(old: &Job<'_>, new: &Job<'_>) -> bool {
    new.parallelism() > old.grant().max(old.parallelism())
}

/// Whether a field of the spec came back by an apply of a manifest that has always said so, and not
/// because somebody set it now.
fn reapplied(request: &Request, field: &str) -> bool {
    let value = &request.object["spec"][field];
    // Applied by the client: the manifest that was applied last is kept with the object.
    let manifest = annotation(&request.old_object, LAST_APPLIED)
        .and_then(|text| serde_json::from_str::<Value>(text).ok())
        .unwrap_or_default();
    if !value.is_null() && manifest["spec"][field] == *value {
        return true;
    }
    // Applied by the server: the applying manager owns the field.
    let manager = &request.options["fieldManager"];
    let owned = format!("f:{field}");
    request.object["metadata"]["managedFields"].as_array().is_some_and(|entries| {
        entries.iter().any(|entry| {
            entry["operation"] == "Apply"
                && entry["manager"] == *manager
                && entry["fieldsV1"]["f:spec"].get(&owned).is_some()
        })
    })
}

/// The rules on the Job as it would be stored.
fn check(view: &View<'_>, request: &Request, object: &Value) -> Result<(), String> {
    match request.operation.as_str() {
        "CREATE" => check_create(view, request, object),
        "UPDATE" => check_update(view, request, object),
        _ => Ok(()),
    }
}

fn check_create(view: &View<'_>, request: &Request, object: &Value) -> Result<(), String> {
    standing(view, &request.namespace, object)?;
    for key in names::OWN_ANNOTATIONS {
        match annotation(object, key) {
            Some("true") if key == names::HELD => {}
            Some(user) if key == names::USER && user == request.user_info.username => {}
            Some(_) => return Err(format!("annotation {key} is written by Sluice alone; leave it out")),
            None => {}
        }
    }
    if !Job(object).suspended() {
        return Err(
            "a Job starts suspended in a namespace of a team, and something has released it again".into()
        );
    }
    if annotation(object, names::GPU_SIZES).is_some() && !shares::has_choice(object) {
        return Err(format!("annotation {} is written by Sluice alone; leave it out", names::GPU_SIZES));
    }
    wishes::check(view, object)
}

fn check_update(view: &View<'_>, request: &Request, object: &Value) -> Result<(), String> {
    let before = &request.old_object;
    let (old, new) = (Job(before), Job(object));
    if old.suspended() && !new.suspended() {
        let team = label(before, names::TEAM).unwrap_or("its team");
        return Err(format!("it waits in the queue of {team}, and only Sluice starts it"));
    }
    for key in names::OWN_ANNOTATIONS {
        // The hold is the one mark that a user's own suspend and release move.
        let moved = key == names::HELD
            && match (annotation(before, key), annotation(object, key)) {
                (None, Some("true")) => new.suspended(),
                (Some(_), None) => !old.suspended() && new.suspended(),
                _ => false,
            };
        if annotation(before, key) != annotation(object, key) && !moved {
            return Err(format!("annotation {key} is written by Sluice alone; leave it as it is"));
        }
    }
    check_labels(view, request, object)?;
    if !new.suspended() && raised(&old, &new) {
        return Err(format!(
            "spec.parallelism {} is more than the {} pods it was granted; suspend it first to queue for more",
            new.parallelism(),
            old.grant()
        ));
    }
    if let Some(key) = shares::moved(before, object) {
        return Err(format!(
            "annotation {key}: its pods have been made to ask for what their pool offers; create it anew to change that"
        ));
    }
    if annotation(before, names::GPU_SIZES) != annotation(object, names::GPU_SIZES) {
        return Err(format!("annotation {} is written by Sluice alone; leave it as it is", names::GPU_SIZES));
    }
    let fraction = |object: &Value| annotation(object, names::GPU_FRACTION).map(ToOwned::to_owned);
    if fraction(before) != fraction(object) && !(old.waits() && new.waits()) {
        return Err(format!("annotation {} can be changed only while the Job waits", names::GPU_FRACTION));
    }
    // What has been there all along is not judged again: an old object must stay editable.
    let asks = |object: &Value| wishes::ANNOTATIONS.map(|key| annotation(object, key).map(ToOwned::to_owned));
    if asks(before) != asks(object) { wishes::check(view, object) } else { Ok(()) }
}

fn check_labels(view: &View<'_>, request: &Request, object: &Value) -> Result<(), String> {
    let before = &request.old_object;
    let (old, new) = (Job(before), Job(object));
    if label(before, names::TEAM) != label(object, names::TEAM) {
        if label(before, names::TEAM).is_some() {
            return Err(format!("label {} is written by Sluice alone; leave it as it is", names::TEAM));
        }
        standing(view, &request.namespace, object)?;
    }
    let managed = label(before, names::TEAM).is_some() || old.admitted();
    if managed && label(before, names::QUEUE) != label(object, names::QUEUE) {
        if !(old.waits() && new.waits()) {
            return Err(format!("label {} can be changed only while the Job waits", names::QUEUE));
        }
        standing(view, &request.namespace, object)?;
    }
    for key in [names::TEAM, names::QUEUE] {
        let stamped = old.template_label(key).filter(|_| managed);
        if stamped.is_some() && new.template_label(key).is_none() {
            return Err(format!(
                "label {key} of spec.template is written by Sluice alone; leave it as it is"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
