//! Real objects, from which the hostile ones are made.

use serde_json::{Value, json};

/// The record of an admission on two nodes.
pub const RECORD: &str =
    r#"{"pool":"default","nodes":{"n0":1,"n1":1},"pods":2,"borrowed":false,"at":"2026-11-21T08:00:00Z"}"#;
/// The note of an eviction.
pub const EVICTION: &str = r#"{"at":"2026-11-21T09:00:00Z","for":"ns/y","reason":"Reclaimed"}"#;

/// A kind with its group, and the objects of it that changes start from.
pub struct Sample {
    pub group: &'static str,
    pub kind: &'static str,
    pub object: Value,
}

/// Objects that users make, and so reviews are about.
pub const REVIEWED: std::ops::Range<usize> = 0..14;

/// Every sample.
pub fn all() -> Vec<Sample> {
    let mut all = Vec::new();
    let mut add = |group, kind, object| all.push(Sample { group, kind, object });
    add("batch", "Job", job());
    add("batch", "Job", admitted(job(), "/spec/suspend"));
    add("batch", "Job", stopping(admitted(indexed(), "/spec/suspend")));
    add("batch", "Job", indexed());
    add("", "Pod", bare_pod());
    add("", "Pod", pod_of_job());
    add("", "Pod", group_pod());
    add("jobset.x-k8s.io", "JobSet", job_set());
    add("ray.io", "RayJob", ray_job());
    add("ray.io", "RayJob", admitted(ray_job(), "/spec/suspend"));
    add("kubeflow.org", "PyTorchJob", pytorch_job());
    add("trainer.kubeflow.org", "TrainJob", train_job());
    add("kubeflow.org", "MPIJob", mpi_job());
    add("ray.io", "RayCluster", ray_cluster());
    assert_eq!(REVIEWED.end, all.len(), "the kinds of users come first");
    let mut add = |group, kind, object| all.push(Sample { group, kind, object });
    add("", "Node", node("n0"));
    add("", "Namespace", namespace());
    add("sluice.dev", "Team", team("vision", &json!({"nvidia.com/gpu": "8", "cpu": 32})));
    add("sluice.dev", "NodePool", pool());
    add("scheduling.k8s.io", "PriorityClass", class());
    add("resource.k8s.io", "ResourceSlice", slice());
    add("resource.k8s.io", "DeviceClass", device_class());
    add("resource.k8s.io", "ResourceClaim", claim());
    add("resource.k8s.io", "ResourceClaimTemplate", claim_template());
    all
}

fn metadata(name: &str) -> Value {
    json!({
        "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "generation": 1,
        "creationTimestamp": "2026-11-21T07:00:00Z",
        "labels": {"sluice.dev/team": "vision", "sluice.dev/queue": "training", "app": "x"},
        "annotations": {"sluice.dev/user": "alice", "sluice.dev/held": "true", "sluice.dev/time-limit": "2h",
            "sluice.dev/pool": "a100,default", "example.com/other": "y"},
        "managedFields": [{"manager": "kubectl", "operation": "Apply", "apiVersion": "batch/v1",
            "time": "2026-11-21T07:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": {"f:suspend": {}, "f:parallelism": {}}}}],
    })
}

fn pod_spec() -> Value {
    json!({
        "containers": [
            {"name": "c", "image": "x", "resources": {
                "requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": "1", "memory": "2Gi"}}},
            {"name": "d", "image": "x", "resources": {"requests": {"cpu": 1}}},
        ],
        "initContainers": [{"name": "i", "image": "x", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}],
        "overhead": {"cpu": "10m"},
        "nodeSelector": {"gpu": "yes"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["yes", "no"]}],
                 "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}]},
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "preference": {"matchExpressions": [{"key": "slots", "operator": "Gt", "values": ["3"]}]}}]},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}]}},
        "priorityClassName": "high",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        "schedulingGates": [{"name": "example.com/other"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}],
    })
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "x"}, "annotations": {"a": "b"}}, "spec": pod_spec()})
}

fn job() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata("j"),
        "spec": {"suspend": true, "parallelism": 2, "completions": 2, "backoffLimit": 3,
            "activeDeadlineSeconds": 3600, "template": template()},
        "status": {"active": 0, "ready": 0, "terminating": 0, "conditions": [
            {"type": "Suspended", "status": "True", "lastTransitionTime": "2026-11-21T07:00:00Z"}]},
    })
}

fn indexed() -> Value {
    let mut job = job();
    job["metadata"]["annotations"]["sluice.dev/min-parallelism"] = json!("1");
    job["spec"]["completionMode"] = json!("Indexed");
    job["spec"]["template"]["spec"]["schedulingGates"] = json!([{"name": "sluice.dev/placement"}]);
    job["spec"]["template"]["spec"]["schedulingGroup"] = json!({"podGroupName": "sluice-j-0815"});
    job["status"]["completedIndexes"] = json!("0");
    job
}

fn admitted(mut object: Value, suspend: &str) -> Value {
    object["metadata"]["annotations"]["sluice.dev/admission"] = json!(RECORD);
    object["metadata"]["annotations"]["sluice.dev/user-affinity"] = json!("{}");
    if let Some(suspend) = object.pointer_mut(suspend) {
        *suspend = json!(false);
    }
    object
}

fn stopping(mut object: Value) -> Value {
    object["metadata"]["annotations"]["sluice.dev/eviction"] = json!(EVICTION);
    object["spec"]["suspend"] = json!(true);
    object
}

fn bare_pod() -> Value {
    let mut spec = pod_spec();
    spec["schedulingGates"] = json!([{"name": "sluice.dev/admission"}]);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata("p"), "spec": spec,
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "x"}]}})
}

fn pod_of_job() -> Value {
    let mut pod = bare_pod();
    pod["metadata"]["name"] = json!("j-0");
    pod["metadata"]["uid"] = json!("j-0");
    pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = json!("0");
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": true}]);
    pod["spec"]["schedulingGates"] = json!([{"name": "sluice.dev/placement"}]);
    pod["spec"]["nodeName"] = json!("n0");
    pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    pod
}

fn group_pod() -> Value {
    let mut pod = bare_pod();
    pod["metadata"]["labels"]["sluice.dev/group"] = json!("g");
    pod["metadata"]["annotations"]["sluice.dev/group-size"] = json!("2");
    pod["metadata"]["annotations"]["sluice.dev/gpu-fraction"] = json!("0.5,0.25");
    pod
}

fn job_set() -> Value {
    json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata("js"),
        "spec": {"suspend": true, "replicatedJobs": [
            {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 1, "completions": 1, "template": template()}}},
            {"name": "d", "template": {"spec": {"template": template()}}}]}})
}

fn ray_job() -> Value {
    json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata("rj"),
        "spec": {"suspend": true, "entrypoint": "x", "submitterPodTemplate": template(), "rayClusterSpec": {
            "enableInTreeAutoscaling": false,
            "headGroupSpec": {"rayStartParams": {}, "template": template()},
            "workerGroupSpecs": [{"groupName": "w", "replicas": 1, "minReplicas": 1, "maxReplicas": 2, "numOfHosts": 1,
                "template": template()}]}},
        "status": {"jobDeploymentStatus": "Suspended"}})
}

fn ray_cluster() -> Value {
    let mut metadata = metadata("rc");
    metadata["ownerReferences"] =
        json!([{"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "rj", "uid": "rj", "controller": true}]);
    json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": ray_job()["spec"]["rayClusterSpec"]})
}

fn pytorch_job() -> Value {
    json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata("pj"),
        "spec": {"runPolicy": {"suspend": true, "activeDeadlineSeconds": 60}, "pytorchReplicaSpecs": {
            "Master": {"replicas": 1, "template": template()}, "Worker": {"replicas": 2, "template": template()}}},
        "status": {"conditions": [{"type": "Created", "status": "True"}]}})
}

fn train_job() -> Value {
    json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata("tj"),
        "spec": {"suspend": true, "runtimeRef": {"name": "torch"}, "runtimePatches": [{"manager": "x"}],
            "trainer": {"numNodes": 2, "resourcesPerNode": {"limits": {"nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}}}}})
}

fn mpi_job() -> Value {
    json!({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": metadata("mj"),
        "spec": {"runPolicy": {"suspend": true}, "mpiReplicaSpecs": {
            "Launcher": {"template": template()}, "Worker": {"replicas": 2, "template": template()}}}})
}

/// A node with 8 GPUs.
pub fn node(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "labels": {"gpu": "yes", "slots": "4", "zone": "a"}},
        "spec": {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T07:00:00Z"}]}})
}

/// Namespace `ns` of team `vision`.
pub fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "uid": "ns", "resourceVersion": "1",
        "labels": {"sluice.dev/team": "vision", "sluice.dev/queue": "serving"},
        "managedFields": [{"manager": "k", "operation": "Update", "time": "2026-11-21T06:00:00Z",
            "fieldsV1": {"f:metadata": {"f:labels": {"f:sluice.dev/team": {}}}}}]}})
}

/// A team with two queues.
pub fn team(name: &str, guaranteed: &Value) -> Value {
    json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Team", "metadata": {"name": name, "uid": name, "generation": 1},
        "spec": {"weight": 2, "parent": "research", "quotas": [{"guaranteed": guaranteed, "limit": {"nvidia.com/gpu": "12"}}],
            "queues": [
                {"name": "training", "preemptible": true, "priority": 1, "maxGrace": "5m", "timeLimit": "24h"},
                {"name": "serving", "preemptible": false, "priorityClassName": "urgent"}]}})
}

/// Pool `a100`, which selects nodes by zone.
pub fn pool() -> Value {
    json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "NodePool", "metadata": {"name": "a100", "uid": "a100", "generation": 1},
        "spec": {"nodeSelector": {"zone": "a"}, "topology": ["zone", "rack"], "weights": {"nvidia.com/gpu": "2"},
            "shares": {"nvidia.com/gpu.shared": "250m"}}})
}

/// A PriorityClass that preempts.
pub fn class() -> Value {
    json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "high", "uid": "high", "labels": {}, "annotations": {"sluice.dev/twin-of": "x"}},
        "value": 1000, "globalDefault": false, "preemptionPolicy": "PreemptLowerPriority"})
}

fn slice() -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s0", "uid": "s0"},
        "spec": {"driver": "gpu.example.com", "nodeName": "n0", "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": "first", "attributes": {"model": {"string": "a"}, "version": {"version": "1.2.3"}},
                 "capacity": {"memory": {"value": "80Gi"}}},
                {"name": "second", "capacity": {"memory": {"value": "80Gi"}}, "taints": [{"key": "a", "effect": "NoSchedule"}]}]}})
}

fn device_class() -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.example.com", "uid": "dc"},
        "spec": {"extendedResourceName": "example.com/gpu", "selectors": [{"cel": {"expression":
            "device.driver == 'gpu.example.com' && device.capacity['gpu.example.com'].memory.compareTo(quantity('40Gi')) >= 0"}}]}})
}

fn claim_spec() -> Value {
    json!({"devices": {"requests": [
        {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1}},
        {"name": "other", "firstAvailable": [{"name": "a", "deviceClassName": "gpu.example.com", "count": 2}]}]}})
}

fn claim() -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "one", "namespace": "ns", "uid": "claim"},
        "spec": claim_spec(), "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "p"}], "allocation": {
            "devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "n0", "device": "first"}]}}}})
}

fn claim_template() -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
        "metadata": {"name": "one", "namespace": "ns", "uid": "template"}, "spec": {"spec": claim_spec()}})
}
