//! The set-ups in `tests/import`, and Jobs at the switch.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::super::note::Verdict;
use super::super::source::{Source, read};
use super::*;
use crate::api::node_pool::NodePool;
use crate::api::team::Team;
use crate::engine::types;

/// The objects of a set-up, and its document `expected`.
fn case(file: &Path) -> (Vec<Source>, Value) {
    let text = std::fs::read_to_string(file).expect("the file can be read");
    let (setup, expected) = text.rsplit_once("---\nexpected:").expect("the file ends with what is expected");
    let expected: Value = serde_saphyr::from_str(&format!("expected:{expected}")).expect("it is YAML");
    (read([("set-up", setup)]).expect("it has objects"), expected["expected"].clone())
}

fn specs(plan: &Plan, kind: &str, part: &str) -> Value {
    let objects = plan.objects.iter().filter(|object| object["kind"] == kind);
    let pairs = objects.map(|object| {
        (object["metadata"]["name"].as_str().expect("a name").to_owned(), object[part].clone())
    });
    Value::Object(pairs.collect())
}

fn noted(plan: &Plan, verdict: Verdict) -> Vec<String> {
    let notes = plan.notes.iter().filter(|note| note.verdict == verdict);
    notes.map(|note| format!("{} {}", note.object, note.field)).collect()
}

/// A queue with its fields in any order.
fn sorted(teams: &Value) -> Value {
    serde_json::from_str(&teams.to_string()).expect("it is JSON")
}

#[test]
fn every_set_up_has_the_quotas_that_it_has_in_kueue() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let file = path.display();
        let (sources, expected) = case(&path);
        let plan = plan(&sources, Options::default()).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(specs(&plan, "NodePool", "spec"), expected["pools"], "{file}: pools");
        assert_eq!(sorted(&specs(&plan, "Team", "spec")), expected["teams"], "{file}: teams");
        assert_eq!(json!(plan.namespaces), expected["namespaces"], "{file}: namespaces");
        assert_eq!(json!(noted(&plan, Verdict::Lost)), expected["lost"], "{file}: lost");
        for (field, verdict) in [("differs", Verdict::Differs), ("byHand", Verdict::ByHand)] {
            for wanted in expected[field].as_array().into_iter().flatten() {
                let noted = noted(&plan, verdict);
                assert!(noted.iter().any(|note| json!(note) == *wanted), "{file}: {wanted} not in {noted:?}");
            }
        }
        if expected["classes"].is_object() {
            assert_eq!(specs(&plan, "PriorityClass", "value"), expected["classes"], "{file}: classes");
        }
        accepted(&plan);
        count += 1;
    }
    assert!(count >= 20, "{count} set-ups");
}

/// The engine takes the objects, and no Team is at fault for its guarantees.
fn accepted(plan: &Plan) {
    let mut guarantees: BTreeMap<String, types::Team> = BTreeMap::new();
    for object in &plan.objects {
        let name = &object["metadata"]["name"];
        match object["kind"].as_str() {
            Some("Team") => {
                let team: Team = serde_json::from_value(object.clone()).expect("it is a Team");
                let team = types::Team::try_from(&team).unwrap_or_else(|error| panic!("{error}"));
                guarantees.insert(team.name.to_string(), team);
            }
            Some("NodePool") => {
                let pool: NodePool = serde_json::from_value(object.clone()).expect("it is a NodePool");
                types::Pool::try_from(&pool).unwrap_or_else(|error| panic!("{error}"));
            }
            other => assert_eq!(other, Some("PriorityClass"), "{name}"),
        }
    }
    for parent in guarantees.values() {
        let children: Vec<&types::Team> =
            guarantees.values().filter(|team| team.parent.as_ref() == Some(&parent.name)).collect();
        for child in &children {
            for (pool, quota) in &child.quotas {
                for resource in quota.guaranteed.keys() {
                    let of = |team: &types::Team| {
                        let quota = team.quotas.get(pool)?;
                        quota.guaranteed.get(resource).copied()
                    };
                    let sum: i64 =
                        children.iter().filter_map(|team| of(team)).map(|amount| amount.as_milli()).sum();
                    let own = of(parent).map_or(0, |amount| amount.as_milli());
                    assert!(sum <= own, "{}: {resource} in {pool}: {sum} of {own}", parent.name);
                }
            }
        }
    }
}

const SETUP: &str = r#"
{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: a100}, spec: {nodeLabels: {gpu: a100}}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: high}, value: 1000}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: vision}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: a100, resources: [{name: nvidia.com/gpu, nominalQuota: 8}]}]
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {namespace: vision, name: main}, spec: {clusterQueue: vision}}
---
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {namespace: vision, name: night}, spec: {clusterQueue: vision}}
"#;

fn job(name: &str, queue: &str, class: Option<&str>, created: &str, suspend: bool) -> Source {
    let mut labels = json!({"kueue.x-k8s.io/queue-name": queue});
    if let Some(class) = class {
        labels["kueue.x-k8s.io/priority-class"] = json!(class);
    }
    let value = json!({"apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "vision", "labels": labels, "creationTimestamp": created},
        "spec": {"suspend": suspend, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "main", "image": "registry.example/train"}]}}}});
    super::super::source::source(value, "a test").expect("it is an object")
}

/// The Workload of a Job.
fn workload(job: &str, namespace: Option<&str>, active: bool) -> Source {
    let value = json!({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": format!("job-{job}"), "namespace": namespace, "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": "1", "controller": true}]},
        "spec": {"active": active, "queueName": "main"}});
    super::super::source::source(value, "a test").expect("it is an object")
}

#[test]
fn jobs_that_wait_keep_their_order_queue_and_pool() {
    let mut sources = read([("set-up", SETUP)]).expect("it has objects");
    sources.extend([
        job("late", "main", None, "2026-11-20T10:00:02Z", true),
        job("early", "main", None, "2026-11-20T10:00:01Z", true),
        job("first", "night", Some("high"), "2026-11-20T10:00:03Z", true),
        job("runs", "main", None, "2026-11-20T10:00:00Z", false),
        job("elsewhere", "unknown", None, "2026-11-20T10:00:00Z", true),
    ]);
    let plan = plan(&sources, Options::default()).expect("it can be planned");
    let names: Vec<&str> = plan.pending.iter().map(|job| job.name.as_str()).collect();
    assert_eq!((names, plan.running), (vec!["first", "early", "late"], 1));
    let first = &plan.pending[0];
    assert_eq!(json!(first.labels), json!({"sluice.dev/queue": "night"}));
    assert_eq!(json!(first.annotations), json!({"sluice.dev/team-order": "1000", "sluice.dev/pool": "a100"}));
    assert_eq!(json!(plan.pending[1].annotations), json!({"sluice.dev/pool": "a100"}));
    assert!(noted(&plan, Verdict::ByHand).contains(&"Job vision/elsewhere ".to_owned()));
    let steps = plan.steps();
    let at = |text: &str| steps.find(text).unwrap_or_else(|| panic!("no {text:?} in {steps}"));
    let order = [
        at("scale deployment kueue-controller-manager"),
        at("kubectl label namespace vision --overwrite sluice.dev/queue=main sluice.dev/team=vision"),
        at("delete mutatingwebhookconfiguration"),
        at("kubectl label job -n vision first --overwrite sluice.dev/queue=night"),
        at("kubectl patch job -n vision first"),
        at("kubectl patch job -n vision early"),
        at("kubectl patch job -n vision late"),
    ];
    assert!(order.is_sorted(), "{steps}");
}

#[test]
fn what_kueue_knows_of_a_job_that_waits_is_kept_or_named() {
    let with = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut value = job(name, "main", None, "2026-11-20T10:00:02Z", true).value;
        change(&mut value);
        super::super::source::source(value, "a test").expect("it is an object")
    };
    let mut sources = read([("set-up", SETUP)]).expect("it has objects");
    sources.extend([
        with("kept", &|job| {
            job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"] = json!("3600");
            job["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "2"});
            job["spec"]["template"]["metadata"] =
                json!({"annotations": {"kueue.x-k8s.io/podset-slice-size": "4"}});
        }),
        with("held", &|job| job["metadata"]["annotations"] = json!({"sluice.dev/held": "true"})),
        with("afar", &|job| job["spec"]["managedBy"] = json!("kueue.x-k8s.io/multikueue")),
        with("stray", &|job| job["metadata"]["namespace"] = json!("elsewhere")),
        with("stopped", &|_| {}),
        workload("stopped", Some("vision"), false),
        workload("kept", Some("vision"), true),
        workload("kept", None, false),
    ]);
    let setup = objects::Setup::read(&sources, &mut Notes::default()).expect("it can be read");
    let deactivated = [("default", "kept"), ("vision", "stopped")];
    assert!(setup.deactivated.iter().map(|(namespace, name)| (&**namespace, &**name)).eq(deactivated));
    let plan = plan(&sources, Options::default()).expect("it can be planned");
    let names: Vec<&str> = plan.pending.iter().map(|job| job.name.as_str()).collect();
    assert_eq!(names, ["kept", "stopped"]);
    assert_eq!(
        json!(plan.pending[1].annotations),
        json!({"sluice.dev/pool": "a100", "sluice.dev/hold": "true"})
    );
    assert_eq!(
        json!(plan.pending[0].annotations),
        json!({"sluice.dev/pool": "a100", "sluice.dev/min-parallelism": "2", "sluice.dev/time-limit": "3600s"})
    );
    let by_hand = noted(&plan, Verdict::ByHand);
    for note in ["Job vision/afar spec.managedBy", "Job elsewhere/stray ", "Job vision/stopped spec.active"] {
        assert!(by_hand.contains(&note.to_owned()), "{by_hand:?}");
    }
    assert!(
        noted(&plan, Verdict::Lost).contains(&"Job vision/kept kueue.x-k8s.io/podset-slice-size".to_owned())
    );
    assert!(plan.steps().contains("|| left_out vision/kept\n"), "{}", plan.steps());
}

#[test]
fn a_mistake_is_one_line_with_object_and_field() {
    let planned = |text: &str| {
        let sources = read([("set-up", text)])?;
        plan(&sources, Options::default()).map(|_| ())
    };
    for (text, error) in [
        (SETUP.replace("nominalQuota: 8", "nominalQuota: many"), "ClusterQueue vision: flavor a100, nvidia.com/gpu, nominalQuota: \"many\" is not a quantity"),
        (SETUP.replace("value: 1000", "value: high"), "WorkloadPriorityClass high: value: is missing or is no whole number"),
        (SETUP.replace("nodeLabels: {gpu: a100}", "nodeLabels: a100"), "ResourceFlavor a100: spec.nodeLabels: expected a map, not \"a100\""),
        (
            SETUP.replace("name: main", "name: a.b").replace("name: night", "name: a-b"),
            "LocalQueue vision/a.b: metadata.name: another queue of its ClusterQueue would be a-b too",
        ),
        ("a: [".to_owned(), "set-up: document 1: line 1, column 4: "),
        ("apiVersion: v1\nkind: Job".to_owned(), "set-up: document 1: metadata.name: is missing"),
        (
            "{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: a}, spec: {parentName: b}}\n---\n{apiVersion: \
             kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: b}, spec: {parentName: a}}".to_owned(),
            "Cohort a: spec.parentName: the Cohorts are in a circle",
        ),
    ] {
        let found = planned(&text).expect_err(error).to_string();
        assert!(found.starts_with(error) && !found.contains('\n'), "{found}");
    }
}

#[test]
fn a_field_that_is_not_known_is_lost_and_not_an_error() {
    let text = SETUP.replace("namespaceSelector: {}", "namespaceSelector: {}\n  newInKueue: {deep: true}");
    let plan = plan(&read([("set-up", text.as_str())]).expect("it has objects"), Options::default())
        .expect("it can be planned");
    assert_eq!(noted(&plan, Verdict::Lost), ["ClusterQueue vision spec.newInKueue"]);
}
