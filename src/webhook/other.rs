//! What happens to objects of the kinds of the table: as to Jobs, at the places that the table says.

use std::collections::BTreeMap;

use serde_json::Value;

use super::membership::standing;
use super::object::{annotation, controller, deleting, label};
use super::patch::Editor;
use super::review::{Request, Verdict};
use super::view::View;
use super::wishes;
use crate::api::names;
use crate::cluster::target::custom::asked;
use crate::kinds::{Kind, Kinds, Pointer, unplace};

const ANNOTATIONS: [&str; 2] = ["metadata", "annotations"];
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Wishes that only Jobs and Pods can have.
const NOT_HERE: [&str; 2] = [names::MIN_PARALLELISM, names::GPU_FRACTION];

/// Whether an object is left to its parent, a workload of one of the kinds. A user may write any owner; that
/// its account may make children, the policies in the API server see to.
#[must_use]
pub fn left_to_parent(kinds: &Kinds, object: &Value) -> bool {
    controller(object).is_some_and(|owner| kinds.is_parent(&owner))
}

/// Answers `/mutate` for an object of a kind.
#[must_use]
pub fn mutate(view: &View<'_>, request: &Request, kind: &Kind) -> Verdict {
    if passes(view, request) {
        return Verdict::pass();
    }
    let mut editor = Editor::new(&request.object);
    let mut warnings = Vec::new();
    let edited = match request.operation.as_str() {
        "CREATE" => create(view, request, kind, &mut editor, &mut warnings),
        "UPDATE" => update(view, request, kind, &mut editor, &mut warnings),
        _ => return Verdict::pass(),
    };
    let (patch, object) = editor.finish();
    match edited.and_then(|()| check(view, request, kind, &object)) {
        Ok(()) => Verdict::Allow { patch, warnings },
        Err(problem) => Verdict::Deny(format!("{}: {problem}", request.object_name())),
    }
}

/// Answers `/validate` for an object of a kind: the same rules on what the other webhooks have left.
#[must_use]
pub fn validate(view: &View<'_>, request: &Request, kind: &Kind) -> Verdict {
    if passes(view, request) {
        return Verdict::pass();
    }
    match check(view, request, kind, &request.object) {
        Ok(()) => Verdict::pass(),
        Err(problem) => Verdict::Deny(format!("{}: {problem}", request.object_name())),
    }
}

fn passes(view: &View<'_>, request: &Request) -> bool {
    request.by_sluice() || deleting(&request.object) || left_to_parent(view.kinds(), &request.object)
}

fn waits(kind: &Kind, object: &Value) -> bool {
    kind.suspended(object) && annotation(object, names::ADMISSION).is_none()
}

fn create(
    view: &View<'_>,
    request: &Request,
    kind: &Kind,
    editor: &mut Editor,
    warnings: &mut Vec<String>,
) -> Result<(), String> {
    // One that the policy in the API server has held is suspended already and carries the mark; one that is
    // suspended without it is its user's to release.
    if !kind.suspended(&request.object) {
        hold(kind, editor);
    }
    stamp(view, request, editor)?;
    editor.set(&[ANNOTATIONS[0], ANNOTATIONS[1], names::USER], request.user_info.username.as_str());
    warnings.extend(wishes::without_effect(&request.object));
    if let Some(how) = asked(kind, &request.object, &BTreeMap::new()).inexact {
        warnings.push(format!("sluice: {how}"));
    }
    Ok(())
}

fn update(
    view: &View<'_>,
    request: &Request,
    kind: &Kind,
    editor: &mut Editor,
    warnings: &mut Vec<String>,
) -> Result<(), String> {
    let (old, new) = (&request.old_object, &request.object);
    let held = annotation(old, names::HELD).is_some();
    match (kind.suspended(old), kind.suspended(new)) {
        (true, false) if held && always_said(old, new, &kind.suspend) => {
            set(editor, &kind.suspend, true.into());
            warnings.push(format!(
                "sluice: the {} stays in the queue; {} is Sluice's to set",
                kind.kind, kind.suspend
            ));
        }
        // Its user lets go: from now on it is in the queue.
        (true, false) if !held => hold(kind, editor),
        // Its user stops it: from now on it is held by its user, not by Sluice.
        (false, true) if annotation(new, names::ADMISSION).is_some() => {
            editor.remove(&[ANNOTATIONS[0], ANNOTATIONS[1], names::HELD]);
        }
        _ => {}
    }
    // A manifest that replaces the whole object does not say who submitted it.
    if let (Some(user), None) = (annotation(old, names::USER), annotation(new, names::USER)) {
        editor.set(&[ANNOTATIONS[0], ANNOTATIONS[1], names::USER], user);
    }
    if annotation(old, names::ADMISSION).is_some() {
        keep_placement(kind, old, new, editor);
    }
    if waits(kind, old) && waits(kind, editor.object()) {
        stamp(view, request, editor)?;
    }
    Ok(())
}

/// The templates of what is admitted carry the placement; a manifest that brings back what its user wrote there
/// is the unchanged one, not a change.
fn keep_placement(kind: &Kind, old: &Value, new: &Value, editor: &mut Editor) {
    let kept = kept(old);
    let templates = asked(kind, old, &kept).templates;
    let mut bare = old.clone();
    if json_patch::patch(&mut bare, &json_patch::Patch(unplace(kind, old, &templates, &kept))).is_err() {
        return;
    }
    for place in kind.placed_in() {
        let (placed, written) = (place.read(old), place.read(new));
        if let Some(placed) = placed
            && written == place.read(&bare)
            && written != Some(placed)
        {
            set(editor, &place, placed.clone());
        }
    }
}

fn kept(object: &Value) -> BTreeMap<String, Value> {
    let text = annotation(object, names::USER_AFFINITY);
    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Whether a field came back by an apply of a manifest that has always said so, and not because somebody set
/// it now.
fn always_said(old: &Value, new: &Value, field: &Pointer) -> bool {
    let manifest: Option<Value> =
        annotation(old, LAST_APPLIED).and_then(|text| serde_json::from_str(text).ok());
    let said = manifest.as_ref().and_then(|manifest| field.read(manifest));
    said.is_some() && said == field.read(new)
}

fn set(editor: &mut Editor, at: &Pointer, value: Value) {
    let path: Vec<&str> = at.tokens().iter().map(String::as_str).collect();
    editor.set(&path, value);
}

fn hold(kind: &Kind, editor: &mut Editor) {
    set(editor, &kind.suspend, true.into());
    editor.set(&[ANNOTATIONS[0], ANNOTATIONS[1], names::HELD], "true");
}

fn stamp(view: &View<'_>, request: &Request, editor: &mut Editor) -> Result<(), String> {
    let standing = standing(view, &request.namespace, &request.object)?;
    for (key, value) in [(names::TEAM, &standing.team), (names::QUEUE, &standing.queue)] {
        if let Some(value) = value {
            editor.set(&["metadata", "labels", key], &**value);
        }
    }
    Ok(())
}

/// The rules on the object as it would be stored.
fn check(view: &View<'_>, request: &Request, kind: &Kind, object: &Value) -> Result<(), String> {
    match request.operation.as_str() {
        "CREATE" => check_create(view, request, kind, object),
        "UPDATE" => check_update(view, request, kind, object),
        _ => Ok(()),
    }
}

fn check_create(view: &View<'_>, request: &Request, kind: &Kind, object: &Value) -> Result<(), String> {
    standing(view, &request.namespace, object)?;
    for key in names::OWN_ANNOTATIONS {
        match annotation(object, key) {
            Some("true") if key == names::HELD => {}
            Some(user) if key == names::USER && user == request.user_info.username => {}
            Some(_) => return Err(format!("annotation {key} is written by Sluice alone; leave it out")),
            None => {}
        }
    }
    if !kind.suspended(object) {
        return Err(format!(
            "a {} starts suspended in a namespace of a team, and something has released it again",
            kind.kind
        ));
    }
    check_wishes(view, kind, object)
}

fn check_wishes(view: &View<'_>, kind: &Kind, object: &Value) -> Result<(), String> {
    if let Some(key) = NOT_HERE.into_iter().find(|key| annotation(object, key).is_some()) {
        return Err(format!("annotation {key}: a {} cannot have it", kind.kind));
    }
    if let Some(missing) = asked(kind, object, &kept(object)).missing {
        return Err(format!("{missing} is needed: it says what a pod asks for, and nothing else here does"));
    }
    wishes::check(view, object)
}

fn check_update(view: &View<'_>, request: &Request, kind: &Kind, object: &Value) -> Result<(), String> {
    let old = &request.old_object;
    let (suspended_before, suspended) = (kind.suspended(old), kind.suspended(object));
    if suspended_before && !suspended {
        let team = label(old, names::TEAM).unwrap_or("its team");
        return Err(format!("it waits in the queue of {team}, and only Sluice starts it"));
    }
    for key in names::OWN_ANNOTATIONS {
        // The hold is the one mark that a user's own suspend and release move.
        let moved = key == names::HELD
            && match (annotation(old, key), annotation(object, key)) {
                (None, Some("true")) => suspended,
                (Some(_), None) => !suspended_before && suspended,
                _ => false,
            };
        if annotation(old, key) != annotation(object, key) && !moved {
            return Err(format!("annotation {key} is written by Sluice alone; leave it as it is"));
        }
    }
    if label(old, names::TEAM).is_some() && label(old, names::TEAM) != label(object, names::TEAM) {
        return Err(format!("label {} is written by Sluice alone; leave it as it is", names::TEAM));
    }
    if label(old, names::QUEUE) != label(object, names::QUEUE) {
        if label(old, names::QUEUE).is_some() && !(waits(kind, old) && waits(kind, object)) {
            return Err(format!("label {} can be changed only while the {} waits", names::QUEUE, kind.kind));
        }
        standing(view, &request.namespace, object)?;
    }
    // What has been there all along is not judged again: an old object must stay editable.
    let asks = |object: &Value| wishes::ANNOTATIONS.map(|key| annotation(object, key).map(ToOwned::to_owned));
    if asks(old) != asks(object) || (suspended && old["spec"] != object["spec"]) {
        check_wishes(view, kind, object)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
