//! The same scenario with other names for its workloads, which change nobody's place in any order.

use std::collections::BTreeMap;

use serde_json::Value;

/// A scenario whose workloads are called otherwise: who was first by name is last.
pub struct Renamed {
    /// The scenario, a JSON document after the other.
    pub text: String,
    /// The new names and the old.
    names: BTreeMap<String, String>,
}

impl Renamed {
    /// Renames the Jobs and Pods of a scenario.
    pub fn of(text: &str) -> Self {
        // A y or n is a name here, as it is in the scenario.
        let options = serde_saphyr::options! { strict_booleans: true };
        let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
            .expect("the scenario has been read before");
        let mut names = BTreeMap::new();
        let mut renamed = Vec::new();
        for (index, mut document) in documents.into_iter().enumerate() {
            if matches!(document["kind"].as_str(), Some("Job" | "Pod")) {
                let old = document["metadata"]["name"].as_str().expect("every object has a name").to_owned();
                let new = format!("q{:03}q{old}", 999 - index);
                document["metadata"]["name"] = Value::String(new.clone());
                names.insert(new, old);
            }
            renamed.push(document.to_string());
        }
        Self { text: renamed.join("\n---\n"), names }
    }

    /// What a simulation of it says, with the names as they were.
    pub fn back(&self, outcome: &str) -> String {
        self.names.iter().fold(outcome.to_owned(), |text, (new, old)| text.replace(new, old))
    }
}
