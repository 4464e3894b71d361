//! Indexes from a key to the names of objects.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::types::Name;

/// Removes a name from an index.
pub fn remove<K: Ord>(index: &mut BTreeMap<K, BTreeSet<Name>>, key: &K, name: &Name) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}
