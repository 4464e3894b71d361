//! Amounts of resources as people read them.

use std::collections::BTreeMap;

use crate::engine::types::amount::ResourceList;

/// Amounts by resource, as Kubernetes quantities.
pub type Amounts = BTreeMap<String, String>;

/// Amounts as Kubernetes quantities: binary suffixes for bytes only.
#[must_use]
pub fn amounts(list: &ResourceList) -> Amounts {
    list.iter().map(|(resource, amount)| (resource.to_string(), amount.quantity(resource))).collect()
}
