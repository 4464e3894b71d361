//! Builds a JSON patch next to the object it changes, so that later steps see what earlier ones did
//! and nothing is written that is already there.

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use serde_json::{Map, Value};

/// An object under change.
#[derive(Debug)]
pub struct Editor {
    object: Value,
    operations: Vec<PatchOperation>,
}

impl Editor {
    /// Begins with the object as it came.
    #[must_use]
    pub fn new(object: &Value) -> Self {
        Self { object: object.clone(), operations: Vec::new() }
    }

    /// The object with all changes made so far.
    #[must_use]
    pub fn object(&self) -> &Value {
        &self.object
    }

    /// Sets the field at `path`, creating the maps on the way; does nothing when it has that value.
    pub fn set(&mut self, path: &[&str], value: impl Into<Value>) {
        let value = value.into();
        let Some((last, parents)) = path.split_last() else { return };
        let mut depth = 0;
        let mut node = &mut self.object;
        for (index, key) in parents.iter().enumerate() {
            depth = index + 1;
            let slot = &mut node[*key];
            if !slot.is_object() {
                *slot = Value::Object(Map::new());
                self.operations.push(add(&path[..depth], Value::Object(Map::new())));
            }
            node = slot;
        }
        debug_assert_eq!(depth, parents.len());
        if node.get(*last) == Some(&value) {
            return;
        }
        node[*last] = value.clone();
        self.operations.push(add(path, value));
    }

    /// Removes the field at `path`, if it is there.
    pub fn remove(&mut self, path: &[&str]) {
        let Some((last, parents)) = path.split_last() else { return };
        let parent = parents.iter().try_fold(&mut self.object, |node, key| node.get_mut(*key));
        if parent.and_then(Value::as_object_mut).and_then(|map| map.remove(*last)).is_some() {
            self.operations.push(PatchOperation::Remove(RemoveOperation {
                path: PointerBuf::from_tokens(path.iter().copied()),
            }));
        }
    }

    /// The patch, and the object it leads to.
    #[must_use]
    pub fn finish(self) -> (Patch, Value) {
        (Patch(self.operations), self.object)
    }
}

fn add(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(path.iter().copied()), value })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_patch_leads_to_the_edited_object() {
        let before = json!({"metadata": {"annotations": {"x/y": "1"}}, "spec": {"priority": 0}});
        let mut editor = Editor::new(&before);
        editor.set(&["metadata", "labels", "sluice.dev/team"], "vision");
        editor.set(&["metadata", "annotations", "x/y"], "1");
        editor.remove(&["spec", "priority"]);
        editor.remove(&["spec", "absent", "deep"]);
        let (patch, after) = editor.finish();
        let mut patched = before;
        json_patch::patch(&mut patched, &patch).expect("the patch applies");
        assert_eq!(patched, after);
        assert_eq!(
            after,
            json!({"metadata": {"annotations": {"x/y": "1"}, "labels": {"sluice.dev/team": "vision"}}, "spec": {}})
        );
        assert_eq!(patch.len(), 3);
    }
}
