//! A snapshot of a cluster: `kubectl get teams,nodepools,nodes,namespaces,priorityclasses,jobs,pods -A -o yaml`, with
//! `deviceclasses,resourceslices,resourceclaimtemplates,resourceclaims` where devices are claimed.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::engine::types::Time;
use crate::scenario::{Kind, Origin, ScenarioError, documents, read};

/// The objects of a cluster at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The objects of the relevant kinds, with their origin.
    pub objects: Vec<(Origin, Kind, Value)>,
    /// The latest time in any object: about the time of the snapshot.
    pub taken: Time,
}

impl Snapshot {
    /// Reads a snapshot from a file, or from standard input if it is named `-`.
    ///
    /// # Errors
    /// [`ScenarioError`] when it cannot be read, and as [`Snapshot::parse`].
    pub fn load(file: &Path) -> Result<Self, ScenarioError> {
        Self::parse(&file.display().to_string(), &read(file)?)
    }

    /// Reads a snapshot of Lists or single objects; skips irrelevant kinds.
    ///
    /// # Errors
    /// [`ScenarioError`] when it is not YAML, has no relevant object, or has a workload without `metadata.uid`.
    pub fn parse(name: &str, text: &str) -> Result<Self, ScenarioError> {
        let file: Arc<str> = name.into();
        let mut snapshot = Self { objects: Vec::new(), taken: Time(0) };
        for (index, document) in documents(&file, text)?.into_iter().enumerate() {
            let items = match document {
                Value::Object(mut list) if list.get("items").is_some_and(Value::is_array) => {
                    match list.remove("items") {
                        Some(Value::Array(items)) => (1..).map(Some).zip(items).collect(),
                        _ => Vec::new(),
                    }
                }
                other => vec![(None, other)],
            };
            for (item, object) in items {
                snapshot.add(&file, (index + 1, item), object)?;
            }
        }
        if snapshot.objects.is_empty() {
            return Err(ScenarioError::Empty { file: name.to_owned() });
        }
        // Teams and pools come before the workloads that depend on them.
        snapshot.objects.sort_by_key(|(_, kind, _)| *kind);
        Ok(snapshot)
    }

    /// Adds an object of a relevant kind.
    ///
    /// # Errors
    /// When a workload has no UID: two of them would be one.
    fn add(
        &mut self,
        file: &Arc<str>,
        (document, item): (usize, Option<usize>),
        object: Value,
    ) -> Result<(), ScenarioError> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let group = |api_version: &str| api_version.split_once('/').map(|(group, _)| group.to_owned());
        let api_version = text(&object["apiVersion"]);
        let is =
            |kind: &&Kind| object["kind"] == kind.name() && group(&api_version) == group(kind.api_version());
        let Some(kind) = Kind::ALL.iter().find(is).copied() else { return Ok(()) };
        let metadata = &object["metadata"];
        let name = match metadata["namespace"].as_str() {
            Some(namespace) => format!("{namespace}/{}", text(&metadata["name"])),
            None => text(&metadata["name"]),
        };
        let object_named = Some(format!("{kind} {name}"));
        let origin = Origin { file: Arc::clone(file), document, item, object: object_named };
        if kind.is_workload() && text(&metadata["uid"]).is_empty() {
            let message = "is missing: a snapshot is the output of kubectl get -o yaml".to_owned();
            return Err(ScenarioError::Invalid { origin, field: "metadata.uid".to_owned(), message });
        }
        self.taken = self.taken.max(latest(&object));
        self.objects.push((origin, kind, object));
        Ok(())
    }
}

/// The latest time in any field of an object.
fn latest(value: &Value) -> Time {
    match value {
        Value::String(text) if text.len() >= 20 && text.ends_with('Z') => {
            text.parse::<Timestamp>().map_or(Time(0), |time| Time(time.as_millisecond()))
        }
        Value::Array(items) => items.iter().map(latest).max().unwrap_or_default(),
        Value::Object(fields) => fields.values().map(latest).max().unwrap_or_default(),
        _ => Time(0),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::super::{Options, State, run_with};
    use super::*;
    use crate::scenario::Scenario;

    const TAKEN: &str = "2026-11-21T10:00:00Z";
    const RECORD: &str =
        r#"{"pool":"default","nodes":{"n0":2},"pods":2,"borrowed":true,"at":"2026-11-21T09:59:00Z"}"#;

    fn job(name: &str, spec: Value, annotations: Value) -> Value {
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": name, "namespace": "a", "uid": format!("uid-{name}"), "resourceVersion": "7",
                "creationTimestamp": "2026-11-21T09:58:00Z", "labels": {"sluice.dev/team": "a"},
            },
            "spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"containers": [
                {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}},
            ]}}},
        });
        json_patch::merge(&mut job, &json!({"metadata": {"annotations": annotations}, "spec": spec}));
        job
    }

    fn pod(number: u32) -> Value {
        let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "runs", "uid": "uid-runs", "controller": true}]);
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("runs-{number}"), "namespace": "a", "uid": format!("pod-{number}"),
                "resourceVersion": "8", "ownerReferences": owner},
            "spec": {"nodeName": "n0", "containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
            "status": {"phase": "Running"},
        })
    }

    /// A cluster of one node with two GPUs, a Job that uses both, and a waiting Job.
    fn dump() -> String {
        let team = |name: &str, gpus: u32| {
            json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Team", "metadata": {"name": name},
                "spec": {"quotas": [{"guaranteed": {"nvidia.com/gpu": gpus}}]}})
        };
        let namespace = |name: &str| {
            json!({"apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": name, "labels": {"sluice.dev/team": name}}})
        };
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"},
            "status": {"allocatable": {"nvidia.com/gpu": "2"},
                "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": TAKEN}]},
        });
        let held = json!({"sluice.dev/held": "true"});
        let mut admitted = held.clone();
        admitted["sluice.dev/admission"] = RECORD.into();
        admitted["sluice.dev/time-limit"] = "100s".into();
        let service =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "other", "namespace": "a"}});
        json!({"apiVersion": "v1", "kind": "List", "items": [
            job("waits", json!({"suspend": true}), held), job("runs", json!({"suspend": false}), admitted),
            pod(0), pod(1), service, node, namespace("a"), namespace("b"), team("a", 0), team("b", 2),
        ]})
        .to_string()
    }

    #[test]
    fn a_scenario_plays_on_top_of_a_snapshot() {
        let snapshot = Snapshot::parse("dump.yaml", &dump()).expect("a snapshot");
        let text = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: new, namespace: b, annotations: \
                    {simulate.sluice.dev/at: 5s, simulate.sluice.dev/duration: 8s}}\nspec: {template: {spec: \
                    {restartPolicy: Never, containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}}}\n";
        let scenario = Scenario::parse([("s.yaml", text)]).expect("a scenario");
        let play = |scenario: &Scenario| {
            let options = Options { until: Some(Duration::from_secs(60)), ..Options::default() };
            run_with(Some(&snapshot), scenario, &options, &mut |_| ()).expect("an outcome")
        };
        let before = play(&Scenario::default());
        let states: Vec<_> = before.workloads.iter().map(|row| (row.name.as_str(), row.state)).collect();
        // It started a minute before the snapshot and has a time limit of 100 s.
        assert_eq!(states, [("runs", State::Succeeded), ("waits", State::Running)]);
        assert_eq!(before.workloads[0].finished.map(|at| at.to_string()).as_deref(), Some("40s"));
        let after = play(&scenario);
        let runs = &after.workloads[0];
        assert_eq!(
            (runs.evictions[0].at.to_string(), runs.evictions[0].preemptor.as_str()),
            ("5s".into(), "b/new")
        );
        // Pods of a snapshot take 30 s to end.
        let new = after.workloads.iter().find(|row| row.name == "new").expect("it was submitted");
        assert_eq!(new.admissions[0].at.to_string(), "35s");
        assert_eq!(new.finished.map(|at| at.to_string()).as_deref(), Some("43s"));
    }

    #[test]
    fn an_error_in_a_snapshot_names_file_document_and_field() {
        let text = dump().replace("\"parallelism\":2", "\"parallelism\":\"two\"");
        let snapshot = Snapshot::parse("dump.yaml", &text).expect("a snapshot");
        let played = run_with(Some(&snapshot), &Scenario::default(), &Options::default(), &mut |_| ());
        let error = played.expect_err("parallelism is a number").to_string();
        assert!(error.starts_with("dump.yaml: document 1, item 1 (Job a/"), "{error}");
        assert!(error.contains("): spec.parallelism: expected a whole number, not \"two\""), "{error}");
    }

    #[test]
    fn a_workload_of_a_snapshot_has_a_uid() {
        for (kind, uid) in [("Job a/waits", "uid-waits"), ("Pod a/runs-0", "pod-0")] {
            let text = dump().replace(&format!("\"uid\":\"{uid}\""), "\"other\":\"x\"");
            let error = Snapshot::parse("dump.yaml", &text).expect_err("it has no uid").to_string();
            let end = format!(
                "({kind}): metadata.uid: is missing: a snapshot is the output of kubectl get -o yaml"
            );
            assert!(error.starts_with("dump.yaml: document 1, item ") && error.ends_with(&end), "{error}");
        }
    }
}
