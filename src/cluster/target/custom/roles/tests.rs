//! The pods of objects of each kind in the table, and their placement.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::engine::types::amount::describe;
use crate::kinds::{Kinds, place, unplace};

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

/// An object of each kind, with its number of pods, the requests of each, and its number of templates.
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
    gang(kind, (object, None), &|template| template.under("spec").under("affinity").read(object).cloned())
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
fn a_removed_placement_leaves_the_object_as_it_was() {
    for (name, object, ..) in examples() {
        let kind = entry(name);
        let templates = asks(&kind, &object).templates;
        let (operations, kept) = place(&kind, &object, &templates, &["n1", "n2"]);
        let mut placed = object.clone();
        json_patch::patch(&mut placed, &json_patch::Patch(operations)).expect("it applies");
        for node in ["n1", "n2"] {
            assert!(placed.to_string().contains(node), "{name}: {placed}");
        }
        // A second placement over the first leaves nothing of the first behind.
        let (again, _) = place(&kind, &placed, &templates, &["n3"]);
        let back = unplace(&kind, &placed, &templates, &kept);
        json_patch::patch(&mut placed, &json_patch::Patch(back)).expect("it applies");
        assert_eq!(placed, object, "{name}");
        assert!(!again.is_empty(), "{name}");
    }
}

#[test]
fn a_users_affinity_is_narrowed_and_kept() {
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
fn roles_that_differ_are_counted_by_the_largest_and_reported() {
    let object = json!({"spec": {"pytorchReplicaSpecs": {
        "Master": {"template": pod(1, 8)}, "Worker": {"replicas": 2, "template": pod(2, 4)},
    }}});
    let gang = asks(&entry("PyTorchJob"), &object);
    assert_eq!((gang.pods, describe(&gang.shape.requests)), (3, "cpu 8, nvidia.com/gpu 2".to_owned()));
    assert!(gang.inexact.is_some_and(|how| how.contains("3 pods")));
}

#[test]
fn roles_that_claim_devices_make_the_gang_and_other_roles_ride_along() {
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
fn a_launcher_with_a_node_selector_of_its_own_does_not_ride_along() {
    let mut object = examples().pop().expect("there are examples").1;
    object["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["nodeSelector"] =
        json!({"gpu": "none"});
    let gang = asks(&entry("MPIJob"), &object);
    assert_eq!((gang.pods, describe(&gang.shape.requests)), (2, "cpu 16, nvidia.com/gpu 8".to_owned()));
    assert_eq!(gang.templates.len(), 1);
    assert!(gang.shape.node_selector.is_empty());
}

#[test]
fn a_trainer_without_nodes_or_resources_is_missing_them() {
    for (trainer, missing) in [
        (json!({}), "numNodes"),
        (json!({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 4}}}), "numNodes"),
        (json!({"numNodes": 2}), "resourcesPerNode"),
        (json!({"numNodes": 2, "resourcesPerNode": {}}), "resourcesPerNode"),
    ] {
        let gang = asks(&entry("TrainJob"), &json!({"spec": {"trainer": trainer}}));
        assert_eq!(gang.missing.map(|at| at.to_string()), Some(format!("/spec/trainer/{missing}")));
        assert_eq!(gang.pods, 0);
    }
}

#[test]
fn a_worker_group_of_ray_has_its_smallest_size_at_least() {
    for (group, pods) in [
        (json!({"replicas": 0, "minReplicas": 50, "maxReplicas": 50}), 50),
        (json!({"replicas": 3, "minReplicas": 1}), 3),
        (json!({"minReplicas": 2, "numOfHosts": 2}), 4),
    ] {
        let mut group = group;
        group["template"] = pod(1, 1);
        let object = json!({"spec": {"rayClusterSpec": {"workerGroupSpecs": [group]}}});
        assert_eq!(asks(&entry("RayJob"), &object).pods, pods, "{object}");
    }
}
