//! The cluster of a soak, and the manifests of its work.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::books::Team;
use crate::plan::{Kind, Load};

/// Nodes, with GPUs each.
pub const NODES: usize = 5;
const GPUS: usize = 4;

/// The teams as they are at the beginning and again at the end.
pub fn teams() -> BTreeMap<String, Team> {
    let team = |parent: Option<&str>, guarantee, limit| Team {
        parent: parent.map(Into::into),
        guarantee,
        limit,
        capped: false,
    };
    BTreeMap::from([
        ("p".to_owned(), team(None, 10, Some(14))),
        ("a".to_owned(), team(Some("p"), 6, None)),
        ("b".to_owned(), team(Some("p"), 4, Some(8))),
        ("c".to_owned(), team(None, 6, Some(16))),
    ])
}

/// A Team.
pub fn team(name: &str, team: &Team) -> Value {
    let mut quota = json!({"guaranteed": {"nvidia.com/gpu": team.guarantee}});
    if let Some(limit) = team.limit {
        quota["limit"] = json!({"nvidia.com/gpu": limit});
    }
    let queues = json!([
        {"name": "train", "fairShareWindow": "5s", "reserveAfter": "5s"},
        {"name": "gangs", "onPodLoss": "Restart"},
        {"name": "fixed", "preemptible": false, "priority": 10},
        {"name": "impatient", "maxWait": "15s", "onMaxWait": "Fail"},
    ]);
    let mut spec = json!({"quotas": [quota], "queues": queues});
    if let Some(parent) = &team.parent {
        spec["parent"] = json!(parent);
    }
    json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Team", "metadata": {"name": name}, "spec": spec})
}

/// All that is there before the load: namespaces, and the right of the user alice to edit in all of them.
pub fn scene() -> Vec<Value> {
    let mut objects: Vec<Value> = teams().iter().map(|(name, spec)| team(name, spec)).collect();
    for name in crate::plan::NAMESPACES {
        let labels = if name == "free" { json!({}) } else { json!({"sluice.dev/team": name}) };
        objects.push(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}),
        );
        objects.push(json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "alice-edits", "namespace": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
        }));
    }
    objects
}

/// The nodes.
pub fn nodes() -> String {
    (0..NODES).map(|number| node(&format!("gpu-{number}")).to_string() + "\n---\n").collect()
}

/// A node.
pub fn node(name: &str) -> Value {
    let resources =
        json!({"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": GPUS.to_string()});
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"capacity": resources, "allocatable": resources},
    })
}

/// The objects of one submission.
pub fn work(number: usize, load: &Load) -> Vec<Value> {
    let Load { kind, namespace, gpus, pods, runs, ends } = load;
    let name = format!("w{number}-{}", format!("{kind:?}").to_lowercase());
    let container = json!({
        "name": "main", "image": "registry.example/train",
        "resources": {"limits": {"nvidia.com/gpu": gpus}, "requests": {"nvidia.com/gpu": gpus}},
    });
    let (runs, ends) = (format!("{}ms", runs.as_millis()), format!("{}ms", ends.as_millis()));
    let mut simulated =
        json!({"simulate.sluice.dev/duration": runs, "simulate.sluice.dev/termination": ends});
    if *kind == Kind::Failing {
        simulated["simulate.sluice.dev/exit-code"] = json!("1");
    }
    let spec =
        json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 6, "containers": [container]});
    let metadata = json!({"name": name, "namespace": namespace});
    match kind {
        Kind::Pod => {
            let metadata = json!({"name": name, "namespace": namespace, "annotations": simulated});
            vec![json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})]
        }
        Kind::PodGroup => (0..*pods)
            .map(|member| {
                let mut annotations = simulated.clone();
                annotations["sluice.dev/group-size"] = json!(pods.to_string());
                let metadata = json!({
                    "name": format!("{name}-{member}"), "namespace": namespace,
                    "labels": {"sluice.dev/group": name}, "annotations": annotations,
                });
                json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
            })
            .collect(),
        _ => {
            let mut job = json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata,
                "spec": {
                    "parallelism": pods, "completions": pods, "backoffLimit": 1,
                    "template": {"metadata": {"annotations": simulated}, "spec": spec},
                },
            });
            match kind {
                Kind::RestartingGang => job["metadata"]["labels"] = json!({"sluice.dev/queue": "gangs"}),
                Kind::Fixed => job["metadata"]["labels"] = json!({"sluice.dev/queue": "fixed"}),
                Kind::Impatient => job["metadata"]["labels"] = json!({"sluice.dev/queue": "impatient"}),
                Kind::Elastic => job["metadata"]["annotations"] = json!({"sluice.dev/min-parallelism": "1"}),
                Kind::TimeLimited => job["metadata"]["annotations"] = json!({"sluice.dev/time-limit": "20s"}),
                Kind::SuspendedByUser => job["spec"]["suspend"] = json!(true),
                _ => {}
            }
            if *namespace == "free" {
                job["metadata"].as_object_mut().map(|metadata| {
                    metadata.remove("labels");
                    metadata.remove("annotations")
                });
            }
            vec![job]
        }
    }
}
