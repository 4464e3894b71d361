//! The webhook configurations of custom kinds, for installations that have no rules of them.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::api::names;
use crate::kinds::Kind;
use crate::yaml;

/// The webhook configurations of all kinds. Their webhooks for custom kinds are the pattern of those made here.
const CONFIGURATIONS: &str = include_str!("../../../manifests/webhooks/webhooks.yaml");

/// The webhook that gives verdicts, for Jobs and custom kinds.
const VERDICTS: &str = "verdicts.validate.sluice.dev";

/// A mutating and a validating configuration with rules of these kinds alone; none without a kind.
pub fn webhooks(kinds: &[&Arc<Kind>]) -> Vec<Value> {
    if kinds.is_empty() {
        return Vec::new();
    }
    // The file is part of the program, so it can be read.
    let configurations = yaml::documents(CONFIGURATIONS, yaml::Trust::Own).unwrap_or_default();
    configurations.into_iter().map(|configuration| of_kinds(configuration, kinds)).collect()
}

fn of_kinds(mut configuration: Value, kinds: &[&Arc<Kind>]) -> Value {
    configuration["metadata"]["name"] = json!(names::KINDS);
    let webhooks = configuration["webhooks"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let webhooks = webhooks.into_iter().filter_map(|mut webhook| {
        let is_verdict = webhook["name"] == VERDICTS;
        if is_verdict {
            webhook["name"] = json!("verdicts.kinds.validate.sluice.dev");
        } else if !webhook["name"].as_str()?.starts_with("kinds.") {
            return None;
        }
        let operations = if is_verdict { json!(["CREATE"]) } else { json!(["CREATE", "UPDATE"]) };
        let rules = kinds.iter().map(|kind| {
            json!({"apiGroups": [kind.group()], "apiVersions": [kind.version()], "resources": [kind.plural],
                "operations": operations, "scope": "Namespaced"})
        });
        webhook["rules"] = rules.collect();
        Some(webhook)
    });
    configuration["webhooks"] = webhooks.collect();
    configuration
}
