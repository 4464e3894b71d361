//! The same scenario with other names for its workloads, which must change no order.

use std::collections::BTreeMap;

use serde_json::Value;

/// A scenario with renamed workloads: the first by name becomes the last.
pub struct Renamed {
    /// The scenario, as JSON documents.
    pub text: String,
    /// The old names by the new ones.
    names: BTreeMap<String, String>,
}

impl Renamed {
    /// Renames the Jobs and Pods of a scenario.
    pub fn of(text: &str) -> Self {
        // `y` and `n` are names here, as in the scenario.
        let options = serde_saphyr::options! { strict_booleans: true };
        let documents: Vec<Value> =
            serde_saphyr::from_multiple_with_options(text, options).expect("the scenario was parsed before");
        let mut names = BTreeMap::new();
        // An object that is applied again keeps its name.
        let mut objects: BTreeMap<[String; 3], String> = BTreeMap::new();
        let mut renamed = Vec::new();
        for (index, mut document) in documents.into_iter().enumerate() {
            if matches!(document["kind"].as_str(), Some("Job" | "Pod")) {
                let old = document["metadata"]["name"].as_str().expect("every object has a name").to_owned();
                let metadata = &document["metadata"];
                let object = [&document["kind"], &metadata["namespace"], &metadata["name"]];
                let new = format!("q{:03}q{old}", 999 - index);
                let new = objects.entry(object.map(Value::to_string)).or_insert(new).clone();
                document["metadata"]["name"] = Value::String(new.clone());
                names.insert(new, old);
            }
            renamed.push(document.to_string());
        }
        Self { text: renamed.join("\n---\n"), names }
    }

    /// The simulation's outcome with the original names.
    pub fn back(&self, outcome: &str) -> String {
        self.names.iter().fold(outcome.to_owned(), |text, (new, old)| text.replace(new, old))
    }
}
