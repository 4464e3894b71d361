//! The table that is built in, tables that are wrong, and what objects of its kinds ask for.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::policies::{Part, yaml};
use super::*;
use crate::engine::amount::describe;

fn pod(gpus: u64, cpu: u64) -> Value {
    let mut requests = json!({"cpu": cpu});
    if gpus > 0 {
        requests["nvidia.com/gpu"] = gpus.into();
    }
    json!({"spec": {"containers": [{"name": "c", "resources": {"limits": requests}}]}})
}

fn entry(name: &str) -> Arc<Kind> {
    let kinds = Kinds::default();
    let found = kinds.entries().find(|kind| kind.kind == name).cloned();
    found.unwrap_or_else(|| panic!("{name} is not in the table"))
}

/// An object of each kind, with its pods, what each of them needs, and how many templates go along.
fn examples() -> Vec<(&'static str, Value, u32, &'static str, usize)> {
    vec![
        (
            "JobSet",
            json!({"spec": {"replicatedJobs": [
                {"name": "driver", "replicas": 1, "template": {"spec": {"template": pod(0, 2)}}},
                {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 3, "completions": 2, "template": pod(8, 4)}}},
            ]}}),
            4,
            "cpu 6, nvidia.com/gpu 8, pods 1",
            2,
        ),
        (
            "TrainJob",
            json!({"spec": {"trainer": {"numNodes": 3, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}}}}),
            3,
            "nvidia.com/gpu 4",
            0,
        ),
        (
            "PyTorchJob",
            json!({"spec": {"pytorchReplicaSpecs": {
                "Master": {"template": pod(1, 4)}, "Worker": {"replicas": 3, "template": pod(1, 4)},
            }}}),
            4,
            "cpu 4, nvidia.com/gpu 1",
            2,
        ),
        (
            "RayJob",
            json!({"spec": {"rayClusterSpec": {
                "headGroupSpec": {"template": pod(0, 1)},
                "workerGroupSpecs": [
                    {"replicas": 2, "numOfHosts": 2, "template": pod(2, 8)},
                    {"groupName": "none yet", "template": pod(2, 8)},
                ],
            }}}),
            4,
            "cpu 9, nvidia.com/gpu 2, pods 1",
            2,
        ),
        (
            "MPIJob",
            json!({"spec": {"mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": pod(0, 1)}, "Worker": {"replicas": 2, "template": pod(8, 16)},
            }}}),
            2,
            "cpu 17, nvidia.com/gpu 8, pods 1",
            2,
        ),
    ]
}

fn asks(kind: &Kind, object: &Value) -> Gang {
    gang(kind, object, &|template| template.under("spec").under("affinity").read(object).cloned())
}

#[test]
fn every_kind_of_the_table_is_one_gang() {
    let examples = examples();
    assert_eq!(examples.len(), Kinds::default().entries().count(), "every kind has an example");
    for (name, object, pods, each, templates) in examples {
        let gang = asks(&entry(name), &object);
        assert_eq!(gang.pods, pods, "{name}");
        assert_eq!(describe(&gang.shape.requests), each, "{name}");
        assert_eq!(gang.templates.len(), templates, "{name}");
        assert_eq!((gang.missing, gang.inexact), (None, None), "{name}");
    }
}

#[test]
fn a_placement_goes_as_it_came() {
    for (name, object, ..) in examples() {
        let kind = entry(name);
        let templates = asks(&kind, &object).templates;
        let (operations, kept) = place(&kind, &object, &templates, &["n1", "n2"]);
        let mut placed = object.clone();
        json_patch::patch(&mut placed, &json_patch::Patch(operations)).expect("it applies");
        for node in ["n1", "n2"] {
            assert!(placed.to_string().contains(node), "{name}: {placed}");
        }
        // Once more elsewhere, as if nobody had tidied up: nothing piles up.
        let (again, _) = place(&kind, &placed, &templates, &["n3"]);
        let back = unplace(&kind, &placed, &templates, &kept);
        json_patch::patch(&mut placed, &json_patch::Patch(back)).expect("it applies");
        assert_eq!(placed, object, "{name}");
        assert!(!again.is_empty(), "{name}");
    }
}

#[test]
fn a_users_own_affinity_is_narrowed_and_comes_back() {
    let kind = entry("PyTorchJob");
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]},
    ]}}});
    let mut object = json!({"spec": {"pytorchReplicaSpecs": {"Worker": {"template": pod(1, 1)}}}});
    object["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["affinity"] = affinity.clone();
    let gang = asks(&kind, &object);
    assert_eq!(gang.shape.node_terms.len(), 1);
    let (operations, kept) = place(&kind, &object, &gang.templates, &["n1", "n2"]);
    assert_eq!(kept.values().collect::<Vec<_>>(), [&affinity]);
    let mut placed = object.clone();
    json_patch::patch(&mut placed, &json_patch::Patch(operations)).expect("it applies");
    let after = asks(&kind, &placed).shape.node_terms;
    assert_eq!(after.len(), 2, "each node in each of its terms");
    assert!(after.iter().all(|term| term.labels.len() == 1 && term.fields.len() == 1), "{after:?}");
}

#[test]
fn roles_that_differ_are_counted_by_the_largest_and_that_is_told() {
    let object = json!({"spec": {"pytorchReplicaSpecs": {
        "Master": {"template": pod(1, 8)}, "Worker": {"replicas": 2, "template": pod(2, 4)},
    }}});
    let gang = asks(&entry("PyTorchJob"), &object);
    assert_eq!((gang.pods, describe(&gang.shape.requests)), (3, "cpu 8, nvidia.com/gpu 2".to_owned()));
    assert!(gang.inexact.is_some_and(|how| how.contains("3 pods")));
}

#[test]
fn who_claims_devices_makes_the_gang_and_others_ride_along() {
    let mut worker = pod(0, 8);
    worker["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimTemplateName": "one"}]);
    let object = json!({"spec": {"mpiReplicaSpecs": {
        "Launcher": {"replicas": 1, "template": pod(0, 1)}, "Worker": {"replicas": 2, "template": worker},
    }}});
    let gang = asks(&entry("MPIJob"), &object);
    assert_eq!((gang.pods, describe(&gang.shape.requests)), (2, "cpu 9, pods 1".to_owned()));
    let templates: Vec<_> = gang.claims.iter().flatten().map(|claim| claim.template.as_deref()).collect();
    assert_eq!(templates, [Some("one")]);
}

#[test]
fn a_launcher_that_asks_for_nodes_of_its_own_does_not_ride_along() {
    let mut object = examples().pop().expect("there are examples").1;
    object["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["nodeSelector"] =
        json!({"gpu": "none"});
    let gang = asks(&entry("MPIJob"), &object);
    assert_eq!((gang.pods, describe(&gang.shape.requests)), (2, "cpu 16, nvidia.com/gpu 8".to_owned()));
    assert_eq!(gang.templates.len(), 1);
    assert!(gang.shape.node_selector.is_empty());
}

#[test]
fn what_cannot_be_counted_is_missing() {
    for trainer in [json!({}), json!({"numNodes": 2}), json!({"resourcesPerNode": {}})] {
        let gang = asks(&entry("TrainJob"), &json!({"spec": {"trainer": trainer}}));
        assert_eq!(gang.missing.map(|at| at.to_string()).as_deref(), Some("/spec/trainer/resourcesPerNode"));
        assert_eq!(gang.pods, 0);
    }
}

#[test]
fn signs_are_conditions_or_fields() {
    let set = entry("JobSet");
    let with =
        |kind: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status}]}});
    assert!(set.has_finished(&with("Completed", "True")) && set.has_finished(&with("Failed", "True")));
    assert!(!set.has_finished(&with("Completed", "False")) && !set.has_finished(&json!({})));
    assert!(set.has_stopped(&with("Suspended", "True")) && !set.has_stopped(&with("Suspended", "False")));
    let ray = entry("RayJob");
    assert!(ray.has_finished(&json!({"status": {"jobDeploymentStatus": "Complete"}})));
    assert!(!ray.has_finished(&json!({"status": {"jobDeploymentStatus": "Running"}})));
}

/// A table of one kind, with a part of its text replaced.
fn table(from: &str, to: &str) -> String {
    let text = "kinds:
- apiVersion: example.com/v1
  kind: Sweep
  plural: sweeps
  suspend: /spec/suspend
  roles: [{each: /spec/groups, template: /template, pods: [{at: /count}]}]
  placement: affinity
  finished: [{condition: Done}]
  stopped: [{field: /status/phase, values: [Held]}]
";
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

#[test]
fn a_new_kind_is_an_entry_and_a_mistake_one_line() {
    let kinds = Kinds::parse(&table("Sweep", "Sweep"), "t.yaml").expect("it is a table");
    assert!(kinds.find("example.com", "Sweep").is_some() && kinds.find("example.com", "JobSet").is_none());
    for (from, to, expected) in [
        (
            "suspend: /spec/suspend",
            "suspend: spec",
            "t.yaml: Sweep: field suspend: \"spec\" is not a JSON pointer",
        ),
        (
            "suspend: /spec/suspend",
            "suspend: /spec/0",
            "Sweep: field suspend: /spec/0 does not lead to a field",
        ),
        ("  plural: sweeps\n", "", "Sweep: field .: missing field `plural`"),
        ("plural: sweeps", "plural: Sweeps", "Sweep: field plural: \"Sweeps\" is written in small letters"),
        ("example.com/v1", "v1", "Sweep: field apiVersion: \"v1\" is not GROUP/VERSION"),
        ("{at: /count}", "{at: count}", "Sweep: field roles[0].pods[0].at: \"count\" is not a JSON pointer"),
        ("{at: /count}", "{from: /count}", "Sweep: field roles[0].pods[0].from: unknown field `from`"),
        ("template: /template", "at: /spec/x", "Sweep: field roles[0].at: exactly one of `at` and `each`"),
        ("template: /template", "resources: /r", "Sweep: field roles[0].resources: without a template"),
        ("[{condition: Done}]", "[]", "Sweep: field finished: at least one is needed"),
        ("condition: Done", "values: [x]", "Sweep: field finished[0]: either a `condition`, or a `field`"),
        ("placement: affinity", "placement: magic", "Sweep: field placement: unknown variant `magic`"),
        (
            "placement: affinity",
            "placement: affinity\n  operators: [me]",
            "Sweep: field operators[0]: \"me\" is not",
        ),
        ("kind: Sweep", "kind: 3", "kinds[0]: field kind: invalid type"),
        ("kinds:", "sorts:", "t.yaml: \"sorts\" is not known here"),
        ("kinds:", "kinds: 3 #", "t.yaml: "),
    ] {
        let error = Kinds::parse(&table(from, to), "t.yaml").expect_err(to).to_string();
        assert!(error.contains(expected) && !error.trim().contains('\n'), "{to}: {error}");
    }
    let twice = format!("{}{}", table("x", "x"), table("kinds:\n", ""));
    let error = Kinds::parse(&twice, "t.yaml").expect_err("twice").to_string();
    assert_eq!(error, "t.yaml: Sweep: field kind: it stands in the table twice");
    let error = Kinds::load(Some(Path::new("/nowhere/kinds.yaml"))).expect_err("there is none").to_string();
    assert!(error.starts_with("/nowhere/kinds.yaml: "), "{error}");
}

#[test]
fn the_manifests_are_what_the_table_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (part, file, name) in [
        (Part::Mutating, "policies/mutating/kinds.yaml", "mutating"),
        (Part::Validating, "policies/validating/kinds.yaml", "validating"),
        (Part::Rights, "manifests/base/kinds.yaml", "rights"),
    ] {
        let generated = yaml(&Kinds::default(), part).expect("the objects serialize");
        if std::env::var_os("UPDATE_MANIFESTS").is_some() {
            std::fs::write(root.join(file), &generated).expect("the manifest can be written");
        }
        let written = std::fs::read_to_string(root.join(file)).expect("the manifest can be read");
        assert!(
            written == generated,
            "{file} is stale: regenerate it with `sluice kinds --part {name} > {file}`"
        );
    }
}

#[test]
fn the_webhook_is_asked_about_every_kind() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/webhooks/webhooks.yaml");
    let text = std::fs::read_to_string(path).expect("the manifest can be read");
    let configurations: Vec<Value> = serde_saphyr::from_multiple(&text).expect("it is YAML");
    let expected: Vec<(String, String, String)> = Kinds::default()
        .entries()
        .map(|kind| {
            let (group, version) = kind.api_version.split_once('/').expect("a group and a version");
            (group.to_owned(), version.to_owned(), kind.plural.clone())
        })
        .collect();
    let mut found = 0;
    for webhook in configurations.iter().flat_map(|one| one["webhooks"].as_array().into_iter().flatten()) {
        if !webhook["name"].as_str().is_some_and(|name| name.starts_with("kinds.")) {
            continue;
        }
        let first = |rule: &Value, field: &str| rule[field][0].as_str().unwrap_or_default().to_owned();
        let rules = webhook["rules"].as_array().into_iter().flatten();
        let told: Vec<_> = rules
            .map(|rule| (first(rule, "apiGroups"), first(rule, "apiVersions"), first(rule, "resources")))
            .collect();
        assert_eq!(told, expected, "{}", webhook["name"]);
        found += 1;
    }
    assert_eq!(found, 2, "one that changes and one that refuses");
}

#[test]
fn an_annotation_names_nodes() {
    assert_eq!(nodes_of("n1, n2,").collect::<Vec<_>>(), ["n1", "n2"]);
    let kept = BTreeMap::new();
    assert!(unplace(&entry("JobSet"), &json!({"spec": {}}), &[], &kept).is_empty());
}
