//! Writes the placement of an admission into an object, and removes it again.

use std::collections::BTreeMap;

use json_patch::PatchOperation;
use serde_json::{Value, json};

use super::{Draft, Entry, Kind, Placement, Pointer};
use crate::api::affinity::pinned;
use crate::api::names;

/// The placeholder for the nodes in the text of a list entry.
const NODES: &str = "$(nodes)";

/// The patch that sends an object's pods to `nodes`, and the affinities that it replaces.
///
/// The second value maps each template (as a JSON pointer) to the affinity that its user wrote, or to null. It is
/// kept until [`unplace`] restores the template.
#[must_use]
pub fn place(
    kind: &Kind,
    object: &Value,
    templates: &[Pointer],
    nodes: &[&str],
) -> (Vec<PatchOperation>, BTreeMap<String, Value>) {
    let mut draft = Draft::new(object);
    let mut replaced = BTreeMap::new();
    match &kind.placement {
        Placement::Affinity => {
            for template in templates {
                let at = affinity(template);
                let user = at.read(object).filter(|written| !written.is_null()).cloned();
                draft.write(&at, pinned(user.as_ref(), nodes));
                replaced.insert(template.to_string(), user.unwrap_or_default());
            }
        }
        Placement::Annotation => {
            for template in templates {
                draft.write(&label(template), json!("true"));
                draft.write(&annotation(template), json!(nodes.join(",")));
            }
        }
        Placement::Entry(entry) => {
            let mut list = user_entries(entry, object);
            list.push(filled(&entry.value, &nodes.join(",")));
            draft.write(&entry.list, Value::Array(list));
        }
    }
    (draft.into_patch().0, replaced)
}

/// The patch that restores the templates to the text of the object's user; `replaced` comes from [`place`].
#[must_use]
pub fn unplace(
    kind: &Kind,
    object: &Value,
    templates: &[Pointer],
    replaced: &BTreeMap<String, Value>,
) -> Vec<PatchOperation> {
    let mut draft = Draft::new(object);
    match &kind.placement {
        Placement::Affinity => {
            for template in templates {
                match replaced.get(&template.to_string()) {
                    Some(Value::Null) => draft.remove(&affinity(template)),
                    Some(user) => draft.write(&affinity(template), user.clone()),
                    None => {}
                }
            }
        }
        Placement::Annotation => {
            for template in templates {
                draft.prune(&label(template));
                draft.prune(&annotation(template));
            }
        }
        Placement::Entry(entry) => {
            let list = user_entries(entry, object);
            if list.is_empty() {
                draft.remove(&entry.list);
            } else {
                draft.write(&entry.list, Value::Array(list));
            }
        }
    }
    draft.into_patch().0
}

/// The node names in the annotation `sluice.dev/nodes`.
pub fn nodes_of(annotation: &str) -> impl Iterator<Item = &str> {
    annotation.split(',').map(str::trim).filter(|node| !node.is_empty())
}

/// The list without Sluice's entry.
fn user_entries(entry: &Entry, object: &Value) -> Vec<Value> {
    let list = entry.list.read(object).and_then(Value::as_array).into_iter().flatten();
    list.filter(|one| one[&entry.key] != entry.value[&entry.key]).cloned().collect()
}

fn filled(value: &Value, nodes: &str) -> Value {
    match value {
        Value::String(text) => Value::String(text.replace(NODES, nodes)),
        Value::Array(list) => list.iter().map(|one| filled(one, nodes)).collect(),
        Value::Object(map) => map.iter().map(|(key, one)| (key.clone(), filled(one, nodes))).collect(),
        other => other.clone(),
    }
}

fn affinity(template: &Pointer) -> Pointer {
    template.under("spec").under("affinity")
}

fn label(template: &Pointer) -> Pointer {
    template.under("metadata").under("labels").under(names::PLACED)
}

fn annotation(template: &Pointer) -> Pointer {
    template.under("metadata").under("annotations").under(names::NODES)
}
