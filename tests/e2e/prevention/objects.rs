//! Objects that Alice and the operators write, and what they ask of the API server.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice_harness::{Outcome, User, World};

use crate::kinds::template;

/// The operator of Ray.
pub const RAY: &str = "system:serviceaccount:kuberay-system:kuberay-operator";
/// The operator of JobSets.
pub const SETS: &str = "system:serviceaccount:jobset-system:jobset-controller-manager";
/// An account with the rights of an operator that no manifest binds.
pub const FALSE_RAY: &str = "system:serviceaccount:default:kuberay-operator";
/// The Job controller.
pub const JOBS: &str = "system:serviceaccount:kube-system:job-controller";

/// Alice owns the namespace: she may do everything in it. The operators may make and change its objects.
pub const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: owner, namespace: a}
rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: owner, namespace: a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: owner}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}
- {kind: ServiceAccount, name: kuberay-operator, namespace: kuberay-system}
- {kind: ServiceAccount, name: kuberay-operator, namespace: default}
- {kind: ServiceAccount, name: jobset-controller-manager, namespace: jobset-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: alice-edits}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
";

/// Runs kubectl in namespace `a` as Alice, or as this account.
pub async fn run(world: &World, account: &str, arguments: &[&str], input: Option<&Value>) -> Result<Outcome> {
    let input = input.map(Value::to_string);
    let mut all: Vec<&str> = arguments.to_vec();
    if !arguments.iter().any(|argument| argument.starts_with("--namespace")) {
        all.push("--namespace=a");
    }
    if account == "alice" {
        return world.cluster.kubectl(User::Alice).run(&all, input.as_deref()).await;
    }
    let account = format!("--as={account}");
    all.push(&account);
    world.kubectl.run(&all, input.as_deref()).await
}

/// Creates an object as this account.
pub async fn create(world: &World, account: &str, object: &Value) -> Result<()> {
    let outcome = run(world, account, &["create", "-f", "-"], Some(object)).await?;
    ensure!(outcome.success, "{account} creates {object}: {}", outcome.stderr);
    Ok(())
}

/// A request of Alice that passes.
pub async fn passes(world: &World, arguments: &[&str]) -> Result<Outcome> {
    let outcome = run(world, "alice", arguments, None).await?;
    ensure!(outcome.success, "{arguments:?}: {}", outcome.stderr);
    Ok(outcome)
}

/// A request of Alice that is refused with this sentence.
pub async fn refused(world: &World, arguments: &[&str], sentence: &str) -> Result<()> {
    let outcome = run(world, "alice", arguments, None).await?;
    ensure!(!outcome.success && outcome.stderr.contains(sentence), "{arguments:?}: {outcome:?}");
    Ok(())
}

/// Reads an object, or a list of them.
pub async fn get(world: &World, what: &[&str]) -> Result<Value> {
    let arguments: Vec<&str> = ["get"].iter().chain(what).chain(&["-o", "json"]).copied().collect();
    let outcome = run(world, "alice", &arguments, None).await?;
    serde_json::from_str(&outcome.stdout).with_context(|| outcome.stderr)
}

/// A template with changes.
pub fn with(change: Value) -> Value {
    let mut changed = template(1);
    json_patch::merge(&mut changed, &change);
    changed
}

/// An object of any kind.
pub fn object(api_version: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// A Job with this template.
pub fn job(template: Value) -> Value {
    object("batch/v1", "Job", "job", json!({"template": template}))
}

/// The pod of a template.
pub fn pod(template: Value) -> Value {
    let mut pod = object("v1", "Pod", "pod", template["spec"].clone());
    if template["metadata"].is_object() {
        json_patch::merge(&mut pod, &json!({"metadata": template["metadata"]}));
    }
    pod
}

/// A DaemonSet of which the pods have these limits, and these fields in their spec.
pub fn daemon_set(name: &str, limits: Value, spec: Value) -> Value {
    let mut pods = json!({"containers": [{"name": "m", "image": "x", "resources": {"limits": limits}}]});
    json_patch::merge(&mut pods, &spec);
    let labels = json!({"app": name});
    let spec = json!({"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pods}});
    object("apps/v1", "DaemonSet", name, spec)
}

/// A RayJob with these fields in the spec of its cluster.
pub fn ray_job(name: &str, cluster: Value) -> Value {
    let mut spec = json!({"headGroupSpec": {"template": template(1)}});
    json_patch::merge(&mut spec, &cluster);
    object("ray.io/v1", "RayJob", name, json!({"rayClusterSpec": spec}))
}

/// A PyTorchJob with these fields in its spec.
pub fn training(spec: Value) -> Value {
    let mut all = json!({"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template(1)}}});
    json_patch::merge(&mut all, &spec);
    object("kubeflow.org/v1", "PyTorchJob", "training", all)
}

/// A JobSet with one Job of this template.
pub fn job_set(name: &str, template: Value) -> Value {
    let job = json!({"name": "w", "replicas": 1, "template": {"spec": {"template": template}}});
    object("jobset.x-k8s.io/v1alpha2", "JobSet", name, json!({"replicatedJobs": [job]}))
}

/// An object with a controlling owner.
pub fn owned(mut object: Value, api_version: &str, kind: &str, name: &str, uid: &Value) -> Value {
    object["metadata"]["ownerReferences"] =
        json!([{"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true}]);
    object
}

/// A template with so many terms of required node affinity.
pub fn terms(count: usize) -> Value {
    let terms: Vec<Value> = (0..count)
        .map(|n| json!({"matchExpressions": [{"key": format!("k{n}"), "operator": "Exists"}]}))
        .collect();
    json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}})
}

/// A template with so many scheduling gates.
pub fn gates(count: usize) -> Value {
    let gates: Vec<Value> = (0..count).map(|n| json!({"name": format!("example.com/g{n}")})).collect();
    json!({"spec": {"schedulingGates": gates}})
}

/// A template that asks for so many different resources.
pub fn resources(count: usize) -> Value {
    let limits: serde_json::Map<String, Value> =
        (0..count).map(|n| (format!("x.y/r{n}"), json!("1"))).collect();
    json!({"spec": {"containers": [{"name": "m", "image": "x", "resources": {"limits": limits}}]}})
}

/// What the policies say of too many annotations.
pub const NOTES: &str = "The annotations may be at most 256, and 192 KiB in all";
/// What they say of too many labels.
pub const LABELS: &str = "may have at most 256 labels";

/// An object with an annotation of so many bytes.
pub fn noted(mut object: Value, bytes: usize) -> Value {
    object["metadata"]["annotations"]["example.com/note"] = "x".repeat(bytes).into();
    object
}

/// An object with so many labels.
pub fn labelled(mut object: Value, count: usize) -> Value {
    let labels = (0..count).map(|n| (format!("l{n}"), json!(""))).collect::<serde_json::Map<_, _>>();
    object["metadata"]["labels"] = labels.into();
    object
}
