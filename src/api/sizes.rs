//! Shares of a GPU with which a Job would make do, as its mark says: each with what a pod asks for then.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::types::amount::Amount;

/// One of several shares; the annotation `sluice.dev/gpu-sizes` is a list of them, the most wanted first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The share, as people write it (`0.4`).
    pub share: String,
    /// What the limits of the pod's first container say of devices at that size. Nothing where only the
    /// engine knows of shares.
    pub limits: BTreeMap<String, String>,
}

impl Choice {
    /// The share as an amount.
    #[must_use]
    pub fn amount(&self) -> Option<Amount> {
        Amount::parse(&self.share).ok()
    }
}

/// A share as people write it.
#[must_use]
pub fn written(share: Amount) -> String {
    share.as_units_lossy().to_string()
}

/// The limits of a container at one of several sizes: what the choices speak of is replaced, all else stays.
#[must_use]
pub fn limits_at<'a>(
    limits: impl IntoIterator<Item = (&'a String, &'a Value)>,
    choices: &[Choice],
    choice: &Choice,
) -> BTreeMap<String, Value> {
    let others = limits.into_iter().filter(|(resource, _)| !speaks_of(choices, resource));
    let own = choice.limits.iter().map(|(resource, units)| (resource.clone(), Value::from(units.as_str())));
    others.map(|(resource, amount)| (resource.clone(), amount.clone())).chain(own).collect()
}

/// Whether limits are those of a choice, as far as the choices speak of them.
#[must_use]
pub fn are_at<'a>(
    limits: impl IntoIterator<Item = (&'a String, &'a Value)>,
    choices: &[Choice],
    choice: &Choice,
) -> bool {
    let amount = |text: &str| Amount::parse(text).ok();
    let there: BTreeMap<&str, Option<Amount>> = limits
        .into_iter()
        .filter(|(resource, _)| speaks_of(choices, resource))
        .map(|(resource, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            (resource.as_str(), amount(&text))
        })
        .collect();
    let due: BTreeMap<&str, Option<Amount>> =
        choice.limits.iter().map(|(resource, units)| (resource.as_str(), amount(units))).collect();
    there == due
}

/// Whether a resource is among those that a size decides about.
#[must_use]
pub fn speaks_of(choices: &[Choice], resource: &str) -> bool {
    choices.iter().any(|choice| choice.limits.contains_key(resource))
}
