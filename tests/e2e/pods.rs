//! Pods that no Job owns: by themselves, and evicted only where their users let them be.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice::api::names;
use sluice_harness::{View, World, eventually, patience};

use crate::support::{Job, SLUICE, nodes, running, team};

/// A pod of its own with so many GPUs and annotations, that runs for ever.
pub fn pod(namespace: &str, name: &str, gpus: usize, annotations: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: {namespace}
  labels: {{app: {name}}}
  annotations: {{{annotations}}}
spec:
  containers:
  - name: main
    image: registry.example/shell
    resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}
---"
    )
}

const LETS: &str = "sluice.dev/preemptible: \"true\"";

/// A pod by its name.
pub fn find<'a>(view: &'a View, namespace: &str, name: &str) -> Result<&'a sluice_harness::PodView, String> {
    let found = view.pods.iter().find(|pod| pod.namespace == namespace && pod.name == name);
    found.ok_or_else(|| format!("{namespace}/{name} is not there; {}", view.summary(namespace)))
}

/// Waits until what Sluice answers about a workload has this reason, and gives its sentence.
pub async fn explained(world: &World, namespace: &str, name: &str, reason: &str) -> Result<String> {
    let what = format!("Sluice says {reason} of {namespace}/{name}");
    eventually(&what, patience(), async || {
        let path = format!("/api/v1/workloads/{namespace}/{name}");
        let told = world.replicas[0].get(&path).await.map_err(|error| format!("{error:#}"))?;
        let rows: serde_json::Value = serde_json::from_str(&told).map_err(|error| error.to_string())?;
        let row = rows.as_array().and_then(|rows| rows.first()).unwrap_or(&rows);
        if row["reason"] == reason { Ok(row["message"].to_string()) } else { Err(told) }
    })
    .await
}

/// Waits until an Event with this reason is told of a pod, and gives its note.
pub async fn told(world: &World, namespace: &str, pod: &str, reason: &str) -> Result<String> {
    let selector = format!("--field-selector=reason={reason},involvedObject.name={pod}");
    eventually(&format!("an Event says {reason} of {pod}"), patience(), async || {
        let list =
            ["get", "events", "--namespace", namespace, "-o", "jsonpath={.items[*].message}", &selector];
        match world.kubectl.ok(&list).await {
            Ok(note) if !note.is_empty() => Ok(note),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

/// How often Sluice has asked for the eviction of a pod, and how often it has otherwise ended one.
fn evictions(world: &World, pod: &str) -> Result<(usize, usize)> {
    let writes = world.cluster.audit().by(names::ACCOUNT)?;
    let evictions = writes.iter().filter(|write| write.resource == "pods/eviction" && write.name == pod);
    let deletions = writes.iter().filter(|write| write.verb.starts_with("delete"));
    Ok((evictions.count(), deletions.count()))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_takes_back_what_pods_borrow_that_let_themselves_be_evicted() {
    World::run("pod-evicted", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}{}", nodes(1, 4), team("a", 0), team("b", 4))).await?;
        world.kubectl.apply(&format!("{}{}", pod("a", "lent", 4, LETS), pod("a", "stays", 1, ""))).await?;
        running(world, "a", 1).await?;
        let why = explained(world, "a", "stays", "NotPreemptibleOverGuarantee").await?;
        ensure!(why.contains("guarantee"), "{why}");
        // What it was let borrow by cannot be taken back.
        let revoke = r#"{"metadata":{"annotations":{"sluice.dev/preemptible":null}}}"#;
        let patch = ["patch", "pod", "lent", "--namespace=a", "-p", revoke];
        let refusal = world.kubectl.refused(&patch).await?;
        ensure!(refusal.contains("stays so once it is admitted"), "{refusal}");

        world.kubectl.apply(&Job::new("b", "owner").gpus(4).manifest()).await?;
        let view = running(world, "b", 1).await?;
        ensure!(!find(&view, "a", "lent").is_ok_and(|pod| pod.holds()), "it holds its GPUs still");
        ensure!(evictions(world, "lent")? == (1, 0), "{:?}", evictions(world, "lent")?);
        let note = told(world, "a", "lent", "Evicted").await?;
        ensure!(note.starts_with("Reclaimed: ") && note.contains("b/owner"), "{note}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disruption_budget_keeps_a_pod_until_it_allows_its_eviction() {
    World::run("pod-budget", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}{}", nodes(1, 2), team("a", 0), team("b", 2))).await?;
        let budget = "
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: keep, namespace: a}
spec: {minAvailable: 1, selector: {matchLabels: {app: lent}}}
";
        world.kubectl.apply(&format!("{}{budget}", pod("a", "lent", 2, LETS))).await?;
        running(world, "a", 1).await?;
        world.kubectl.apply(&Job::new("b", "owner").gpus(2).manifest()).await?;
        let note = told(world, "a", "lent", "EvictionBlocked").await?;
        ensure!(note.contains("disruption budget keep needs 1 healthy pods and has 1"), "{note}");
        let waits = explained(world, "b", "owner", "WaitingForEviction").await?;
        ensure!(waits.contains("making a/lent leave was refused"), "{waits}");
        let stays = |view: &View| match find(view, "a", "lent")? {
            pod if pod.running() => Ok(()),
            pod => Err(format!("{pod:?}")),
        };
        world.stays("the pod runs on", Duration::from_secs(4), stays).await?;
        // With a pause that doubles each time, some seconds have room for a few.
        let metrics = world.replicas[0].get("/metrics").await?;
        let refused = r#"sluice_api_writes_total{kind="evict",outcome="refused"} "#;
        let refused = metrics.lines().find_map(|line| line.strip_prefix(refused)).unwrap_or_default();
        let refused: f64 = refused.parse().with_context(|| format!("{refused:?} is no number"))?;
        ensure!((2.0..=12.0).contains(&refused), "it was refused {refused} times");

        world.kubectl.ok(&["delete", "pdb", "keep", "--namespace=a"]).await?;
        let view = running(world, "b", 1).await.context("the budget is gone")?;
        ensure!(!find(&view, "a", "lent").is_ok_and(|pod| pod.holds()), "it holds its GPUs still");
        Ok(())
    })
    .await;
}
