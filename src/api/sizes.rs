//! The GPU fractions of a Job with several, each with the devices that a pod requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::types::amount::Amount;

/// One of several GPU fractions. The annotation `sluice.dev/gpu-sizes` is a list of them in order of preference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The fraction in decimal form (`0.4`).
    pub share: String,
    /// The device limits of the first container at this fraction. Empty if only the engine counts fractions.
    pub limits: BTreeMap<String, String>,
}

impl Choice {
    /// The fraction as an amount.
    #[must_use]
    pub fn amount(&self) -> Option<Amount> {
        Amount::parse(&self.share).ok()
    }
}

/// A GPU fraction in decimal form.
#[must_use]
pub fn written(fraction: Amount) -> String {
    fraction.as_units_lossy().to_string()
}

/// The limits of a container at one of several choices. Only resources that a choice names are replaced.
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

/// Whether the limits match a choice. Only resources that a choice names are compared.
#[must_use]
pub fn are_at<'a>(
    limits: impl IntoIterator<Item = (&'a String, &'a Value)>,
    choices: &[Choice],
    choice: &Choice,
) -> bool {
    let amount = |text: &str| Amount::parse(text).ok();
    let actual: BTreeMap<&str, Option<Amount>> = limits
        .into_iter()
        .filter(|(resource, _)| speaks_of(choices, resource))
        .map(|(resource, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            (resource.as_str(), amount(&text))
        })
        .collect();
    let expected: BTreeMap<&str, Option<Amount>> =
        choice.limits.iter().map(|(resource, units)| (resource.as_str(), amount(units))).collect();
    actual == expected
}

/// Whether any choice names a resource.
#[must_use]
pub fn speaks_of(choices: &[Choice], resource: &str) -> bool {
    choices.iter().any(|choice| choice.limits.contains_key(resource))
}
