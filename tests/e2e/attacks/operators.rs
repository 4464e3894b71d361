//! Routes through custom kinds. The test replaces their controllers: it creates their children under their accounts.

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use sluice_harness::{View, eventually, patience};

use super::stage::{Attacker, Books, Stage, owned_pod, owner, uid};
use crate::kinds::{definition, serve};

/// KubeRay's account.
const KUBERAY: &str = "system:serviceaccount:kuberay-system:kuberay-operator";

/// KubeRay may do in the team's namespace what its chart lets it do, and create children of workloads.
const RIGHTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-kuberay}
rules:
- {apiGroups: [''], resources: [pods], verbs: ['*']}
- {apiGroups: [batch], resources: [jobs], verbs: ['*']}
- {apiGroups: [ray.io], resources: ['*'], verbs: ['*']}
- {apiGroups: [sluice.dev], resources: [children], verbs: [create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-kuberay}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-kuberay}
subjects: [{kind: ServiceAccount, name: kuberay-operator, namespace: kuberay-system}]
";

fn template(gpus: u64) -> Value {
    json!({"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [
        {"name": "main", "image": "registry.example/ray", "resources": {"limits": {"nvidia.com/gpu": gpus}}},
    ]}})
}

fn ray_cluster(name: &str, owners: &Value) -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {"name": name, "namespace": "a", "ownerReferences": owners},
        "spec": {"headGroupSpec": {"template": template(1)}, "workerGroupSpecs": []},
    })
}

fn ray_job(name: &str, workers: &Value) -> Value {
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name, "namespace": "a"},
        "spec": {"rayClusterSpec": {"headGroupSpec": {"template": template(1)}, "workerGroupSpecs": workers}},
    })
}

fn training(name: &str) -> Value {
    json!({
        "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name, "namespace": "a"},
        "spec": {"pytorchReplicaSpecs": {"Master": {"template": template(1)}, "Worker": {"replicas": 1, "template": template(1)}}},
    })
}

fn train_job(name: &str) -> Value {
    json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"name": name, "namespace": "a"},
        "spec": {"trainer": {"numNodes": 1, "resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}}},
    })
}

/// Adds the kinds to the cluster.
pub async fn serve_kinds(stage: &Stage<'_>) -> Result<()> {
    let mut scaled: Value =
        serde_json::from_str(&definition("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"))?;
    scaled["spec"]["versions"][0]["subresources"]["scale"] = json!({
        "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas", "statusReplicasPath": ".status.replicas",
    });
    let job_set = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "dry", "namespace": "a"},
        "spec": {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": template(1)}}}]},
    });
    // The namespace of no team: what is tried there is judged by nothing.
    let dry = |mut object: Value| {
        object["metadata"]["namespace"] = "default".into();
        object
    };
    for (definition, object) in [
        (definition("ray.io", "v1", "RayCluster", "rayclusters"), ray_cluster("dry", &json!([]))),
        (definition("ray.io", "v1", "RayJob", "rayjobs"), ray_job("dry", &json!([]))),
        (scaled.to_string(), training("dry")),
        (definition("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"), train_job("dry")),
        (definition("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"), job_set),
    ] {
        serve(stage.world, &definition, &dry(object)).await?;
    }
    stage.world.kubectl.apply(RIGHTS).await.map(drop)
}

/// Deletes the custom objects of the team, which end only then.
async fn cleared(stage: &Stage<'_>, outcome: Result<()>) -> Result<()> {
    let kinds = "rayjobs,rayclusters,pytorchjobs,trainjobs";
    stage.world.kubectl.ok(&["delete", kinds, "--all", "--namespace=a"]).await?;
    outcome
}

/// Waits until this many pods of team a run.
async fn running(stage: &Stage<'_>, count: usize) -> Result<View> {
    stage
        .world
        .until(&format!("{count} pods run"), |view| {
            if view.running("a").count() == count { Ok(()) } else { Err(view.summary("a")) }
        })
        .await
}

/// A RayCluster without a RayJob is no workload, but its pods come from the same account.
pub async fn bare_cluster(stage: &mut Stage<'_>) -> Result<()> {
    let object = ray_cluster("bare", &json!([]));
    let made = stage.alice.tries_to_create(&object.to_string()).await?;
    if !made {
        return Ok(());
    }
    let operator = stage.account(KUBERAY);
    let cluster = get(&operator, "raycluster", "bare").await?;
    let owners = owner("ray.io/v1", "RayCluster", "bare", uid(&cluster)?);
    if operator.tries_to_create(&owned_pod("bare-head", 8, &owners)).await? {
        running(stage, 1).await?;
    }
    bail!("a RayCluster without a RayJob is not refused")
}

/// A user makes the RayCluster of an admitted RayJob larger.
pub async fn cluster_of_a_job(stage: &mut Stage<'_>) -> Result<()> {
    stage.world.kubectl.ok(&["delete", "rayclusters", "--all", "--namespace=a"]).await?;
    stage.alice.create(&ray_job("small", &json!([])).to_string()).await?;
    let job = admitted(stage, "rayjob", "small", "/spec/suspend").await?;
    let operator = stage.account(KUBERAY);
    let owners = owner("ray.io/v1", "RayJob", "small", uid(&job)?);
    let cluster = operator.create(&ray_cluster("small-x", &owners).to_string()).await?;
    let owners = owner("ray.io/v1", "RayCluster", "small-x", uid(&cluster)?);
    operator.create(&owned_pod("small-head", 1, &owners)).await?;
    running(stage, 1).await?;
    let workers = json!({"spec": {"workerGroupSpecs": [{"replicas": 50, "template": template(1)}]}});
    let grow = format!("-p={workers}");
    let grown = stage.alice.tries(&["patch", "raycluster", "small-x", "--type=merge", &grow], None).await?;
    // A pod that the RayJob was not admitted with is charged as well.
    let surplus = operator.tries_to_create(&owned_pod("small-worker", 1, &owners)).await?;
    let outcome = async {
        if surplus {
            running(stage, 2).await?;
            eventually("both pods are charged", patience(), async || {
                let books = stage.books("a").await.map_err(|error| format!("{error:#}"))?;
                if books.used == 2 { Ok(()) } else { Err(format!("{books:?}")) }
            })
            .await?;
        }
        ensure!(!grown, "a user's change of a RayCluster is not refused");
        Ok(())
    };
    let outcome = outcome.await;
    cleared(stage, outcome).await
}

async fn get(attacker: &Attacker, kind: &str, name: &str) -> Result<Value> {
    let found = attacker.kubectl(&["get", kind, name, "-o", "json"], None).await?;
    ensure!(found.success, "{kind}/{name} does not exist: {}", found.stderr);
    Ok(serde_json::from_str(&found.stdout)?)
}

/// Waits until an object is admitted.
async fn admitted(stage: &Stage<'_>, kind: &str, name: &str, suspend: &str) -> Result<Value> {
    eventually(&format!("{kind}/{name} is admitted"), patience(), async || {
        let object = get(&stage.alice, kind, name).await.map_err(|error| format!("{error:#}"))?;
        if object.pointer(suspend) == Some(&false.into()) { Ok(object) } else { Err(object.to_string()) }
    })
    .await
}

/// Kinds with controllers that make more pods than the counted fields say.
pub async fn undercount(stage: &mut Stage<'_>) -> Result<()> {
    let outcome = async {
        let workers = json!([{"replicas": 0, "minReplicas": 50, "maxReplicas": 50, "template": template(1)}]);
        if stage.alice.tries_to_create(&ray_job("under", &workers).to_string()).await? {
            eventually("the RayJob counts as more than 50 pods", patience(), async || {
                let question = json!({"explain": {"namespace": "a", "name": "under"}});
                let rows = stage.ask(question).await.map_err(|error| format!("{error:#}"))?;
                let pods = rows[0]["pods"].as_u64().unwrap_or_default();
                if pods >= 50 { Ok(()) } else { Err(format!("it counts as {pods} pods")) }
            })
            .await?;
        }
        let mut grows = ray_job("grows", &json!([]));
        grows["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] = true.into();
        stage.alice.refused_to_create("a RayJob that scales itself", &grows.to_string()).await?;
        let mut vague = train_job("vague");
        vague["spec"]["trainer"] = json!({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 1}}});
        stage.alice.refused_to_create("a TrainJob without numNodes", &vague.to_string()).await
    };
    let outcome = outcome.await;
    cleared(stage, outcome).await
}

/// The scale subresource changes the number of pods past the object's policies.
pub async fn scale(stage: &mut Stage<'_>) -> Result<()> {
    stage.alice.create(&training("scaled").to_string()).await?;
    admitted(stage, "pytorchjob", "scaled", "/spec/runPolicy/suspend").await?;
    stage.charged("a", Books { used: 2, unadmitted: 0 }).await?;
    let scale = ["scale", "pytorchjob/scaled", "--replicas=50"];
    let outcome = stage.alice.refused("scaling an admitted PyTorchJob", &scale, None).await;
    cleared(stage, outcome).await
}
