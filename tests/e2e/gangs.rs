//! Gangs on an API server with PodGroups, by which kube-scheduler starts all of their pods or none.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sluice::api::names;
use sluice_harness::{Cluster, Options, World, eventually, patience};

use crate::placement::faults;
use crate::support::{Job, SLUICE, nodes, queued, running, team};

/// Runs a test on a cluster that serves PodGroups.
async fn with_pod_groups(name: &str, test: impl AsyncFnOnce(&mut World) -> Result<()>) {
    let cluster = Cluster::up_with(name, &["--pod-groups"]).await;
    World::run_on(cluster, Options::new(SLUICE), 1, test).await;
}

/// The objects of a kind in team a's namespace.
async fn list(world: &World, kind: &str) -> Result<Vec<Value>> {
    let list = world.kubectl.ok(&["get", kind, "--namespace=a", "-o", "json"]).await?;
    let list: Value = serde_json::from_str(&list)?;
    Ok(list["items"].as_array().context("a list")?.clone())
}

/// The only PodGroup.
async fn pod_group(world: &World) -> Result<Value> {
    let groups = list(world, "podgroups").await?;
    ensure!(groups.len() == 1, "not exactly one PodGroup: {groups:?}");
    groups.into_iter().next().context("a PodGroup")
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Four GPUs on two nodes. `b` owns all of them; `a` borrows.
async fn set_up(world: &World) -> Result<()> {
    world.apply(&format!("{}{}{}", nodes(2, 2), team("a", 0), team("b", 4))).await
}

/// The owner takes a GPU for a moment, so that the gang is evicted and starts again with this many pods.
async fn evict_for_a_moment(world: &World, owner: &str, pods: usize) -> Result<()> {
    let owner = Job::new("b", owner).lasts(Duration::from_secs(2));
    world.kubectl.apply(&owner.manifest()).await?;
    queued(world, "a", 1).await?;
    running(world, "a", pods).await?;
    Ok(())
}

/// The writes of Sluice on PodGroups of team a.
fn written(world: &World) -> Result<Vec<String>> {
    let writes = world.cluster.audit().by(names::ACCOUNT)?;
    let writes = writes.into_iter().filter(|write| write.resource == "podgroups" && write.namespace == "a");
    Ok(writes.map(|write| write.verb).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gang_has_one_pod_group_from_its_first_admission_to_its_end() {
    with_pod_groups("gangs", async |world| {
        set_up(world).await?;
        let gang = Job::new("a", "gang").spec("parallelism: 4").spec("completions: 4");
        world.kubectl.apply(&gang.spec("completionMode: Indexed").manifest()).await?;
        let view = running(world, "a", 4).await?;
        let group = pod_group(world).await?;
        let name = group["metadata"]["name"].as_str().context("a name")?;
        ensure!(name.starts_with("sluice-gang-"), "{name}");
        ensure!(group["spec"]["schedulingPolicy"]["gang"]["minCount"] == 4, "{group}");
        let job = view.job("a", "gang").context("the Job does not exist")?;
        ensure!(group["metadata"]["ownerReferences"][0]["uid"] == job.uid.as_str(), "{group}");
        for pod in list(world, "pods").await? {
            ensure!(pod["spec"]["schedulingGroup"]["podGroupName"] == name, "{pod}");
        }

        evict_for_a_moment(world, "first", 4).await?;
        let again = pod_group(world).await?;
        ensure!(uid(&again) == uid(&group), "the PodGroup was replaced by an eviction");
        ensure!(written(world)? == ["create"], "{:?}", written(world)?);

        // Kubernetes keeps it for as long as its pods exist.
        world.kubectl.ok(&["delete", "podgroup", name, "--namespace=a", "--wait=false"]).await?;
        evict_for_a_moment(world, "second", 4).await?;
        let again = pod_group(world).await?;
        ensure!(uid(&again) != uid(&group) && again["metadata"]["name"] == name, "{again}");
        ensure!(again["spec"]["schedulingPolicy"]["gang"]["minCount"] == 4, "{again}");

        world.kubectl.ok(&["delete", "job", "gang", "--namespace=a", "--wait=false"]).await?;
        eventually("the PodGroup is deleted with its Job", patience(), async || {
            match list(world, "podgroups").await {
                Ok(groups) if groups.is_empty() => Ok(()),
                left => Err(format!("{left:?}")),
            }
        })
        .await
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_pod_of_a_gang_that_cannot_start_is_replaced_elsewhere() {
    with_pod_groups("gang-faults", async |world| faults(world).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_remaining_pods_of_a_gang_become_ready_alone() {
    with_pod_groups("gang-rest", async |world| {
        set_up(world).await?;
        // Two pods go to one node and one to the other. Each has its own node, so they are gated first.
        let gang = Job::new("a", "gang").spec("parallelism: 3").spec("completions: 3");
        let gang = gang.manifest().replace("  name: gang\n", "  generateName: gang-\n");
        world.kubectl.create(&gang).await?;
        let view = running(world, "a", 3).await?;
        let group = pod_group(world).await?;
        ensure!(group["spec"]["schedulingPolicy"]["gang"]["minCount"] == 3, "{group}");

        let mut pods = view.running("a").map(|pod| pod.name.clone());
        for (phase, left) in [("Succeeded", 2), ("Failed", 1)] {
            let pod = pods.next().context("a pod")?;
            let status = format!(r#"{{"status":{{"phase":"{phase}"}}}}"#);
            let patch = ["patch", "pod", &pod, "--namespace=a", "--subresource=status", "-p", &status];
            world.kubectl.ok(&patch).await?;
            running(world, "a", left).await?;
        }
        // The Job controller replaces the failed pod, and there are never three again.
        running(world, "a", 2).await?;
        // The owner needs all GPUs.
        let owner = Job::new("b", "owner").spec("parallelism: 4").lasts(Duration::from_secs(2));
        world.kubectl.apply(&owner.manifest()).await?;
        queued(world, "a", 1).await?;
        running(world, "a", 2).await?;
        // No PodGroup holds the rest: neither the old one, which waits for three, nor another.
        for pod in list(world, "pods").await?.iter().filter(|pod| pod["status"]["phase"] == "Running") {
            ensure!(pod["spec"]["schedulingGroup"].is_null(), "{pod}");
        }
        ensure!(uid(&pod_group(world).await?) == uid(&group), "the PodGroup was replaced");
        ensure!(written(world)? == ["create"], "{:?}", written(world)?);
        Ok(())
    })
    .await;
}
