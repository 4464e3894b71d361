//! Objects that cost much: refused with the name of the cap, and others' Jobs start meanwhile.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};
use sluice_harness::{World, until};

use super::stage::{Stage, job};

/// The most memory that a replica may have after an object of a user, in MB. An idle one has about 30.
const MEMORY: u64 = 300;

fn hostile_job(name: &str, affinity: &Value, limits: &Value) -> String {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "affinity": affinity, "containers": [
            {"name": "main", "image": "registry.example/x", "resources": {"limits": limits}},
        ]}}},
    })
    .to_string()
}

fn terms(prefix: &str, count: usize) -> Value {
    let term = |i| json!({"matchExpressions": [{"key": format!("{prefix}{i}"), "operator": "Exists"}]});
    let terms: Vec<Value> = (0..count).map(term).collect();
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

/// Resident memory of Sluice in MB.
fn memory(world: &World) -> Result<u64> {
    let process =
        world.replicas.last().and_then(sluice_harness::Sluice::process).context("Sluice has ended")?;
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).context("Sluice has ended")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").trim().parse()?;
    Ok(kilobytes / 1024)
}

/// Sluice is small, and another Job starts soon.
async fn unharmed(stage: &Stage<'_>, name: &str) -> Result<()> {
    let began = std::time::Instant::now();
    stage.alice.create(&job("other", 1).manifest()).await?;
    let soon = until(&stage.world.client, "another Job runs", Duration::from_secs(20), |view| {
        if view.running("a").any(|pod| pod.job.as_deref() == Some("other")) {
            Ok(())
        } else {
            Err(view.summary("a"))
        }
    });
    let soon = soon.await;
    let memory = memory(stage.world)?;
    println!("  {name}: another Job runs after {:.1?}, memory {memory} MB", began.elapsed());
    soon?;
    ensure!(memory <= MEMORY, "Sluice has {memory} MB");
    Ok(())
}

/// Creates it, which must be refused, and returns the fault if it is not.
async fn refused(stage: &Stage<'_>, what: &str, manifest: &str) -> Result<()> {
    stage.alice.refused_to_create(what, manifest).await
}

/// A Job with 20,000 terms of node affinity: each is held against each node, and written with each.
pub async fn many_terms(stage: &mut Stage<'_>) -> Result<()> {
    let manifest = hostile_job("terms", &terms("k", 20_000), &json!({"nvidia.com/gpu": 1}));
    let outcome = refused(stage, "a Job with 20,000 terms", &manifest).await;
    unharmed(stage, "many terms").await?;
    outcome
}

/// Jobs with made-up resources, which only wait.
pub async fn many_resources(stage: &mut Stage<'_>) -> Result<()> {
    let mut outcome = Ok(());
    for made in 0..5 {
        let limits: Map<String, Value> =
            (0..12_000).map(|i| (format!("x.y/r{made}-{i}"), "1".into())).collect();
        let manifest = hostile_job(&format!("resources-{made}"), &json!({}), &Value::Object(limits));
        outcome = outcome.and(refused(stage, "a Job with 12,000 resources", &manifest).await);
    }
    // Each of these would be as large as the number of the names.
    let last = hostile_job("last", &json!({}), &json!({"x.y/r4-11999": "1"}));
    for copy in 0..20 {
        let name = format!("\"last-{copy}\"");
        stage.alice.create(&last.replacen("\"last\"", &name, 1)).await?;
    }
    unharmed(stage, "many resources").await?;
    outcome
}

/// A pod with gates of others: their rules must not cost more than the API server allows.
pub async fn many_gates(stage: &mut Stage<'_>) -> Result<()> {
    let gates: Vec<Value> = (0..3000).map(|i| json!({"name": format!("a{i:05x}")})).collect();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "gates"},
        "spec": {"schedulingGates": gates, "containers": [{"name": "main", "image": "registry.example/x"}]},
    });
    let outcome = refused(stage, "a pod with 3,000 gates", &pod.to_string()).await;
    unharmed(stage, "many gates").await?;
    outcome
}

/// Two roles with 3,000 terms each: their product has 9,000,000.
pub async fn product_of_terms(stage: &mut Stage<'_>) -> Result<()> {
    let role = |name: &str| {
        json!({"name": name, "template": {"spec": {"template": {"spec": {
            "affinity": terms(name, 3000), "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "registry.example/x", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
        }}}}})
    };
    let set = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "product"},
        "spec": {"replicatedJobs": [role("a"), role("b")]},
    });
    let outcome = refused(stage, "a JobSet with two roles of 3,000 terms", &set.to_string()).await;
    let unharmed = unharmed(stage, "product of terms").await;
    stage.world.kubectl.ok(&["delete", "jobsets", "--all", "--namespace=a"]).await?;
    outcome.and(unharmed)
}
