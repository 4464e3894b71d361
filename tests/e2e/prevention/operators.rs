//! What operators of custom kinds may make, and no other account.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sluice::api::names;
use sluice_harness::World;

use super::objects::{
    FALSE_RAY, RAY, SETS, create, get, job, job_set, object, owned, passes, pod, ray_job, refused, run, with,
};
use crate::kinds::template;

/// Only the account of an operator makes objects and pods below its own kinds.
pub async fn operators_make_children_of_workloads_alone(world: &World) -> Result<()> {
    create(world, "alice", &ray_job("ray", json!({}))).await?;
    let uid = get(world, &["rayjob", "ray"]).await?["metadata"]["uid"].clone();
    let cluster =
        object("ray.io/v1", "RayCluster", "below", json!({"headGroupSpec": {"template": template(1)}}));
    create(world, RAY, &owned(cluster, "ray.io/v1", "RayJob", "ray", &uid)).await?;
    let grow = r#"{"spec":{"workerGroupSpecs":[{"replicas":50}]}}"#;
    let patch = ["patch", "raycluster", "below", "--type=merge", "-p", grow];
    refused(world, &patch, "keeps the pods that were admitted with its RayJob").await?;
    let leave = r#"{"metadata":{"ownerReferences":null}}"#;
    let patch = ["patch", "raycluster", "below", "--type=merge", "-p", leave];
    refused(world, &patch, "keeps its controlling owner").await?;
    passes(world, &["label", "raycluster", "below", "mine=yes"]).await?;
    let shrink = run(world, RAY, &["patch", "raycluster", "below", "--type=merge", "-p", grow], None).await?;
    ensure!(shrink.success, "its operator: {}", shrink.stderr);

    // Only the operator's account makes pods without a gate, and only below its own kinds.
    let uid = get(world, &["raycluster", "below"]).await?["metadata"]["uid"].clone();
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}});
    create(world, "alice", &config).await?;
    let config = get(world, &["configmap", "c"]).await?["metadata"]["uid"].clone();
    for (account, api_version, kind, name, uid, gated) in [
        (RAY, "ray.io/v1", "RayCluster", "below", &uid, false),
        (FALSE_RAY, "ray.io/v1", "RayCluster", "below", &uid, true),
        (SETS, "ray.io/v1", "RayCluster", "below", &uid, true),
        ("alice", "ray.io/v1", "RayCluster", "below", &uid, true),
        ("alice", "v1", "ConfigMap", "c", &config, true),
        (RAY, "v1", "ConfigMap", "c", &config, true),
    ] {
        create(world, account, &owned(pod(template(8)), api_version, kind, name, uid)).await?;
        let stored = get(world, &["pod", "pod"]).await?;
        let gate = stored["spec"]["schedulingGates"][0]["name"] == names::GATE_ADMISSION;
        ensure!(gate == gated, "{account} below {kind}: {stored}");
        passes(world, &["delete", "pod", "pod", "--grace-period=0", "--force"]).await?;
    }

    // A Job below a set belongs to the set: it starts by itself, and its user cannot make it larger, also suspended.
    create(world, "alice", &job_set("set", template(1))).await?;
    let uid = get(world, &["jobset", "set"]).await?["metadata"]["uid"].clone();
    let below = |template: Value| owned(job(template), "jobset.x-k8s.io/v1alpha2", "JobSet", "set", &uid);
    let pinned = below(with(json!({"spec": {"nodeName": "gpu-0"}})));
    let outcome = run(world, SETS, &["create", "-f", "-"], Some(&pinned)).await?;
    ensure!(!outcome.success && outcome.stderr.contains("must not set spec.nodeName"), "{outcome:?}");
    create(world, SETS, &below(template(1))).await?;
    let stored = get(world, &["job", "job"]).await?;
    ensure!(stored["spec"]["suspend"] == false && stored["metadata"]["annotations"].is_null(), "{stored}");
    let grow = r#"{"spec":{"suspend":true,"parallelism":8}}"#;
    let patch = ["patch", "job", "job", "--type=merge", "-p", grow];
    refused(world, &patch, "belongs to another workload and keeps the pods").await?;
    for suspend in [true, false] {
        let patch = json!({"spec": {"suspend": suspend}}).to_string();
        let outcome = run(world, SETS, &["patch", "job", "job", "--type=merge", "-p", &patch], None).await?;
        ensure!(outcome.success, "its operator: {}", outcome.stderr);
    }
    // Children first: the garbage collector deletes those of a deleted object at any time.
    passes(world, &["delete", "job/job", "jobset/set", "raycluster/below", "rayjob/ray", "configmap/c"])
        .await?;
    Ok(())
}
