//! The placement in an object: how it gets there, and how it goes again.

use std::collections::BTreeMap;

use json_patch::{AddOperation, PatchOperation, RemoveOperation};
use serde_json::{Map, Value, json};

use super::{Entry, Kind, Placement, Pointer};
use crate::api::affinity::pinned;
use crate::api::names;

/// What the text of an entry says in the place of the nodes.
const NODES: &str = "$(nodes)";

/// An object under change, with the operations that lead there.
struct Draft {
    object: Value,
    operations: Vec<PatchOperation>,
}

impl Draft {
    fn new(object: &Value) -> Self {
        Self { object: object.clone(), operations: Vec::new() }
    }

    /// Sets a field, and makes the maps on the way to it.
    fn set(&mut self, at: &Pointer, value: Value) {
        let mut here = Pointer::default();
        let Some((last, way)) = at.tokens().split_last() else { return };
        for token in way {
            here = here.under(token.as_str());
            if here.read(&self.object).is_none_or(Value::is_null) {
                self.put(&here, Value::Object(Map::new()));
            }
        }
        self.put(&here.under(last.as_str()), value);
    }

    fn put(&mut self, at: &Pointer, value: Value) {
        let operation = PatchOperation::Add(AddOperation { path: at.to_buf(), value });
        self.carry_out(operation);
    }

    fn remove(&mut self, at: &Pointer) {
        if at.read(&self.object).is_some() {
            self.carry_out(PatchOperation::Remove(RemoveOperation { path: at.to_buf() }));
        }
    }

    /// Removes a mark, and of the two maps around it those that are left with nothing.
    fn prune(&mut self, at: &Pointer) {
        let all = at.tokens();
        for depth in (all.len().saturating_sub(2)..=all.len()).rev() {
            let here = all[..depth].iter().fold(Pointer::default(), |here, token| here.under(token.as_str()));
            let mark = depth == all.len();
            let empty = here.read(&self.object).and_then(Value::as_object).is_some_and(Map::is_empty);
            if mark || empty {
                self.remove(&here);
            }
        }
    }

    fn carry_out(&mut self, operation: PatchOperation) {
        let one = json_patch::Patch(vec![operation.clone()]);
        // What cannot be done here the API server would refuse as well; it says so with its own words.
        let _ = json_patch::patch(&mut self.object, &one);
        self.operations.push(operation);
    }
}

/// What leads an object's pods to these nodes. Of the affinities that its user wrote, those that are
/// replaced come as a map from the templates to them, to be kept.
#[must_use]
pub fn place(
    kind: &Kind,
    object: &Value,
    templates: &[Pointer],
    nodes: &[&str],
) -> (Vec<PatchOperation>, BTreeMap<String, Value>) {
    let mut draft = Draft::new(object);
    let mut kept = BTreeMap::new();
    match &kind.placement {
        Placement::Affinity => {
            for template in templates {
                let at = affinity(template);
                let user = at.read(object).filter(|written| !written.is_null()).cloned();
                draft.set(&at, pinned(user.as_ref(), nodes));
                kept.insert(template.to_string(), user.unwrap_or_default());
            }
        }
        Placement::Annotation => {
            for template in templates {
                draft.set(&label(template), json!("true"));
                draft.set(&annotation(template), json!(nodes.join(",")));
            }
        }
        Placement::Entry(entry) => {
            let mut listed = others(entry, object);
            listed.push(filled(&entry.value, &nodes.join(",")));
            draft.set(&entry.list, Value::Array(listed));
        }
    }
    (draft.operations, kept)
}

/// What makes an object's templates its user's again; `kept` are the affinities that were replaced.
#[must_use]
pub fn unplace(
    kind: &Kind,
    object: &Value,
    templates: &[Pointer],
    kept: &BTreeMap<String, Value>,
) -> Vec<PatchOperation> {
    let mut draft = Draft::new(object);
    match &kind.placement {
        Placement::Affinity => {
            for template in templates {
                match kept.get(&template.to_string()) {
                    Some(Value::Null) => draft.remove(&affinity(template)),
                    Some(user) => draft.set(&affinity(template), user.clone()),
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
            let left = others(entry, object);
            if left.is_empty() {
                draft.remove(&entry.list);
            } else {
                draft.set(&entry.list, Value::Array(left));
            }
        }
    }
    draft.operations
}

/// The nodes that a pod was told by an annotation.
pub fn nodes_of(annotation: &str) -> impl Iterator<Item = &str> {
    annotation.split(',').map(str::trim).filter(|node| !node.is_empty())
}

/// The entries of the list but ours.
fn others(entry: &Entry, object: &Value) -> Vec<Value> {
    let listed = entry.list.read(object).and_then(Value::as_array).into_iter().flatten();
    listed.filter(|one| one[&entry.key] != entry.value[&entry.key]).cloned().collect()
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
