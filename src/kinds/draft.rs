//! An object under change, together with the JSON patch that makes the same changes.
//!
//! Later steps read the object with all earlier changes.

use std::borrow::Cow;

use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use serde_json::{Map, Value};

use super::Pointer;

/// An object under change, and the operations so far.
#[derive(Debug)]
pub struct Draft<'a> {
    object: Cow<'a, Value>,
    operations: Vec<PatchOperation>,
}

impl<'a> Draft<'a> {
    /// Starts with an unchanged object.
    #[must_use]
    pub fn new(object: &'a Value) -> Self {
        Self { object: Cow::Borrowed(object), operations: Vec::new() }
    }

    /// The object with all changes so far.
    #[must_use]
    pub fn object(&self) -> &Value {
        &self.object
    }

    /// Sets a field and creates missing parents. A field that has the value already needs no operation.
    pub fn set(&mut self, at: &Pointer, value: impl Into<Value>) {
        let value = value.into();
        if at.read(&self.object) != Some(&value) {
            self.write(at, value);
        }
    }

    /// Sets a field and creates missing parents. The operation is written even if it changes nothing.
    pub fn write(&mut self, at: &Pointer, value: Value) {
        let mut parent = Pointer::default();
        for pair in at.tokens().windows(2) {
            let [token, next] = pair else { continue };
            parent = parent.under(token.as_str());
            let leads_on = match parent.read(&self.object) {
                Some(Value::Object(_)) => true,
                Some(Value::Array(_)) => next.parse::<usize>().is_ok(),
                _ => false,
            };
            if !leads_on {
                self.put(&parent, Value::Object(Map::new()));
            }
        }
        self.put(at, value);
    }

    /// Removes a field, if it exists.
    pub fn remove(&mut self, at: &Pointer) {
        if at.read(&self.object).is_some() {
            self.apply(PatchOperation::Remove(RemoveOperation { path: at.to_buf() }));
        }
    }

    /// Removes a field, and then its parent and grandparent if they are empty maps.
    pub fn prune(&mut self, at: &Pointer) {
        let tokens = at.tokens();
        for depth in (tokens.len().saturating_sub(2)..=tokens.len()).rev() {
            let here = tokens[..depth].iter().fold(Pointer::default(), |at, token| at.under(token.as_str()));
            let is_field = depth == tokens.len();
            let empty = here.read(&self.object).and_then(Value::as_object).is_some_and(Map::is_empty);
            if is_field || empty {
                self.remove(&here);
            }
        }
    }

    /// The patch that makes all changes.
    #[must_use]
    pub fn into_patch(self) -> Patch {
        Patch(self.operations)
    }

    fn put(&mut self, at: &Pointer, value: Value) {
        self.apply(PatchOperation::Add(AddOperation { path: at.to_buf(), value }));
    }

    fn apply(&mut self, operation: PatchOperation) {
        let patch = Patch(vec![operation]);
        // An operation that fails here fails in the API server too, which reports it.
        let _ = json_patch::patch(self.object.to_mut(), &patch);
        self.operations.extend(patch.0);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_patch_leads_to_the_edited_object() {
        let before = json!({"metadata": {"annotations": {"x/y": "1"}}, "spec": {"priority": 0}});
        let mut draft = Draft::new(&before);
        draft.set(&Pointer::to(["metadata", "labels", "sluice.dev/team"]), "vision");
        draft.set(&Pointer::to(["metadata", "annotations", "x/y"]), "1");
        draft.remove(&Pointer::to(["spec", "priority"]));
        draft.remove(&Pointer::to(["spec", "absent", "deep"]));
        let after = draft.object().clone();
        let patch = draft.into_patch();
        let mut patched = before;
        json_patch::patch(&mut patched, &patch).expect("the patch applies");
        assert_eq!(patched, after);
        assert_eq!(
            after,
            json!({"metadata": {"annotations": {"x/y": "1"}, "labels": {"sluice.dev/team": "vision"}}, "spec": {}})
        );
        assert_eq!(patch.len(), 3);
    }

    #[test]
    fn lists_are_followed_and_other_values_on_the_way_are_replaced() {
        let before = json!({"list": [{"name": "a"}], "text": "x"});
        let mut draft = Draft::new(&before);
        draft.set(&Pointer::to(["list", "0", "labels", "b"]), "1");
        draft.set(&Pointer::to(["text", "inner"]), true);
        assert_eq!(
            *draft.object(),
            json!({"list": [{"name": "a", "labels": {"b": "1"}}], "text": {"inner": true}})
        );
        draft.prune(&Pointer::to(["list", "0", "labels", "b"]));
        assert_eq!(draft.object()["list"], json!([{"name": "a"}]));
    }
}
