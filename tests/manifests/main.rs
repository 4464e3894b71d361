//! Checks that manifests and policies match the program and affect labelled namespaces only.

mod content;
mod reach;
mod rights;

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The policies that judge the writes of Sluice, and no others.
const CONFINING: [&str; 3] = ["sluice-confined", "sluice-confined-images", "sluice-confined-names"];
/// The policy that judges which account moves a namespace to a team.
const MEMBERSHIP: &str = "sluice-namespace-team";
/// The policies of Questions, which may be asked in every namespace.
const QUESTIONS: [&str; 2] = ["sluice-question", "sluice-question-proof"];
/// The policy that warns of keys without effect in CronJobs.
const CRON_JOB: &str = "sluice-cron-job";
/// The webhook that answers Questions.
const ASK: &str = "questions.mutate.sluice.dev";

/// All objects of the YAML files under `manifests/` and `policies/`.
fn objects() -> Vec<(PathBuf, Value)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = vec![root.join("manifests"), root.join("policies")];
    let mut objects = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder can be read") {
            let path = entry.expect("the folder can be listed").path();
            // The chart's templates are no YAML, and it reads the same files; its own test compares.
            if path.is_dir() {
                folders.extend((!path.ends_with("manifests/chart")).then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                let text = std::fs::read_to_string(&path).expect("the file can be read");
                let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
                    .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                objects.extend(documents.into_iter().map(|object| (path.clone(), object)));
            }
        }
    }
    objects
}

fn of_kind(kinds: &[&str]) -> Vec<Value> {
    let found: Vec<Value> = objects()
        .into_iter()
        .map(|(_, object)| object)
        .filter(|o| kinds.iter().any(|kind| o["kind"] == *kind))
        .collect();
    assert!(!found.is_empty(), "no {kinds:?}");
    found
}

fn policy(name: &str) -> Value {
    let mut policies = of_kind(&["ValidatingAdmissionPolicy"]).into_iter();
    policies.find(|policy| policy["metadata"]["name"] == name).unwrap_or_else(|| panic!("no policy {name}"))
}

/// The object of this kind and name.
fn named(kind: &str, name: &str) -> Value {
    let mut found = of_kind(&[kind]).into_iter().filter(|object| object["metadata"]["name"] == name);
    let object = found.next().unwrap_or_else(|| panic!("no {kind} {name}"));
    assert!(found.next().is_none(), "more than one {kind} {name}");
    object
}
