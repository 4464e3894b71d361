//! Pods of Deployments and StatefulSets: each waits for quota, and rollouts continue.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice::api::names;
use sluice_harness::{View, World, eventually, patience};

use crate::pods::{event_note, explained, pod};
use crate::support::{Job, SLUICE, nodes, quota, running, team, team_of};

/// A Deployment or StatefulSet `web` of pods with one GPU each, with extra lines in its spec.
fn replicas(kind: &str, namespace: &str, count: usize, annotations: &str, spec: &str) -> String {
    format!(
        "
apiVersion: apps/v1
kind: {kind}
metadata: {{name: web, namespace: {namespace}}}
spec:
  replicas: {count}
  selector: {{matchLabels: {{app: web}}}}
{spec}  template:
    metadata:
      labels: {{app: web}}
      annotations: {{{annotations}}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - name: main
        image: registry.example/serve:1
        resources: {{limits: {{nvidia.com/gpu: 1}}}}
---"
    )
}

async fn scale(world: &World, kind: &str, namespace: &str, count: usize) -> Result<()> {
    let (what, count) = (format!("{kind}/web"), format!("--replicas={count}"));
    world.kubectl.ok(&["scale", &what, "--namespace", namespace, &count]).await.map(drop)
}

async fn roll_out(world: &World, namespace: &str) -> Result<()> {
    let image = ["set", "image", "deployment/web", "--namespace", namespace, "main=registry.example/serve:2"];
    world.kubectl.ok(&image).await.map(drop)
}

/// Exactly this many pods of a namespace run the new image, and none runs the old one.
async fn rolled_out(world: &World, namespace: &str, count: usize) -> Result<()> {
    eventually(&format!("{namespace} runs {count} new pods"), patience(), async || {
        let path =
            r#"jsonpath={range .items[?(@.status.phase=="Running")]}{.spec.containers[0].image}{"\n"}{end}"#;
        let list = ["get", "pods", "--namespace", namespace, "-o", path];
        let images = world.kubectl.ok(&list).await.map_err(|error| format!("{error:#}"))?;
        let new = images.lines().filter(|image| image.ends_with(":2")).count();
        if new == count && images.lines().count() == count { Ok(()) } else { Err(images) }
    })
    .await
}

/// The single gated pod of a namespace.
fn gated(view: &View, namespace: &str) -> Result<String, String> {
    let mut gated = view.pods.iter().filter(|pod| pod.namespace == namespace && pod.gated);
    match (gated.next(), gated.next()) {
        (Some(pod), None) => Ok(pod.name.clone()),
        _ => Err(view.summary(namespace)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_grows_when_its_team_has_quota_again() {
    World::run("scale-up", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}", nodes(1, 8), team("a", 3))).await?;
        world.kubectl.apply(&pod("a", "first", 1, "")).await?;
        world.kubectl.apply(&replicas("Deployment", "a", 2, "", "")).await?;
        running(world, "a", 3).await?;
        scale(world, "deployment", "a", 3).await?;
        let view = world.until("the third waits", |view| gated(view, "a").map(drop)).await?;
        let third = gated(&view, "a").map_err(anyhow::Error::msg)?;
        explained(world, "a", &third, "NotPreemptibleOverGuarantee").await?;
        let waits = |view: &View| gated(view, "a").map(drop);
        world.stays("the third waits despite free GPUs", Duration::from_secs(3), waits).await?;
        world.kubectl.ok(&["delete", "pod", "first", "--namespace=a", "--wait=false"]).await?;
        world
            .until("all three run", |view| {
                let web = view.running("a").filter(|pod| pod.name.starts_with("web-")).count();
                if web == 3 { Ok(()) } else { Err(view.summary("a")) }
            })
            .await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_at_full_quota_continues_or_explains_its_wait() {
    World::run("rollout", SLUICE, 1, async |world| {
        let teams = [team("quarter", 4), team("inplace", 2), team("surge", 1)].concat();
        world.apply(&format!("{}{teams}", nodes(1, 16))).await?;
        let inplace = "  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}\n";
        let all = [
            replicas("Deployment", "quarter", 4, "", ""),
            replicas("Deployment", "inplace", 2, "", inplace),
            replicas("Deployment", "surge", 1, "", ""),
        ];
        world.kubectl.apply(&all.concat()).await?;
        for (namespace, count) in [("quarter", 4), ("inplace", 2), ("surge", 1)] {
            running(world, namespace, count).await?;
        }
        for namespace in ["quarter", "inplace", "surge"] {
            roll_out(world, namespace).await?;
        }
        // A quarter of four pods may be missing, so the first old pod is deleted for the first new one.
        rolled_out(world, "quarter", 4).await?;
        rolled_out(world, "inplace", 2).await?;
        // A quarter of one pod is zero: the new pod needs capacity beside the old one, and its user is
        // notified.
        let view = world.until("the new one waits", |view| gated(view, "surge").map(drop)).await?;
        let new = gated(&view, "surge").map_err(anyhow::Error::msg)?;
        let why = explained(world, "surge", &new, "NotPreemptibleOverGuarantee").await?;
        ensure!(why.contains("replaces 1 pod of surge/web") && why.contains("maxUnavailable"), "{why}");
        let note = event_note(world, "surge", &new, "Waiting").await?;
        ensure!(note.contains("maxUnavailable"), "{note}");
        let more = r#"{"spec":{"quotas":[{"guaranteed":{"nvidia.com/gpu":2}}]}}"#;
        world.kubectl.ok(&["patch", "team", "surge", "--type=merge", "-p", more]).await?;
        rolled_out(world, "surge", 1).await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stateful_set_starts_in_order_within_its_quota() {
    World::run("in-order", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}", nodes(1, 8), team("a", 2))).await?;
        world.kubectl.apply(&replicas("StatefulSet", "a", 3, "", "  serviceName: web\n")).await?;
        let view = running(world, "a", 2).await?;
        let mut names: Vec<&str> = view.running("a").map(|pod| &*pod.name).collect();
        names.sort_unstable();
        ensure!(names == ["web-0", "web-1"], "{names:?}");
        explained(world, "a", "web-2", "NotPreemptibleOverGuarantee").await?;
        let more = r#"{"spec":{"quotas":[{"guaranteed":{"nvidia.com/gpu":3}}]}}"#;
        world.kubectl.ok(&["patch", "team", "a", "--type=merge", "-p", more]).await?;
        running(world, "a", 3).await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_evicted_comes_back_and_queues() {
    World::run("replica-evicted", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}{}", nodes(1, 2), team("a", 0), team("b", 2))).await?;
        let lets = "sluice.dev/preemptible: 'true'";
        world.kubectl.apply(&replicas("Deployment", "a", 2, lets, "")).await?;
        running(world, "a", 2).await?;
        world.kubectl.apply(&Job::new("b", "owner").lasts(Duration::from_secs(6)).manifest()).await?;
        running(world, "b", 1).await?;
        let view = world.until("a replacement waits", |view| gated(view, "a").map(drop)).await?;
        ensure!(view.running("a").count() == 1, "{}", view.summary("a"));
        running(world, "a", 2).await.context("after the owner ended")?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notebook_keeps_to_the_limits_of_its_queue() {
    World::run("notebook", SLUICE, 1, async |world| {
        let queues = "queues: [{name: training}, {name: interactive, priority: 100, preemptible: false, \
                      limit: {nvidia.com/gpu: 1}, maxRuntime: 10s}]";
        world.apply(&format!("{}{}", nodes(1, 4), team_of("a", &[&quota(2), queues]))).await?;
        let notebook =
            replicas("StatefulSet", "a", 2, "", "  serviceName: web\n  podManagementPolicy: Parallel\n");
        let notebook =
            notebook.replace("labels: {app: web}\n", "labels: {app: web, sluice.dev/queue: interactive}\n");
        world.kubectl.apply(&notebook).await?;
        let view = running(world, "a", 1).await?;
        let first = view.running("a").next().context("no pod runs")?.name.clone();
        let view = world.until("the second waits", |view| gated(view, "a").map(drop)).await?;
        let second = gated(&view, "a").map_err(anyhow::Error::msg)?;
        explained(world, "a", &second, "QueueLimit").await?;
        let note = event_note(world, "a", &first, "MaxRuntime").await?;
        ensure!(note.contains("interactive"), "{note}");
        let path = format!(
            "jsonpath={{.spec.activeDeadlineSeconds}} {{.metadata.annotations.{}}}",
            names::EVICTION.replace('.', "\\.")
        );
        let deadline = world.kubectl.ok(&["get", "pod", &first, "--namespace=a", "-o", &path]).await?;
        ensure!(deadline.starts_with("1 ") && deadline.contains("MaxRuntime"), "{deadline}");
        Ok(())
    })
    .await;
}
