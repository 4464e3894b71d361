//! Nodes that die without being deleted, and pods that are lost one by one.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sluice_harness::{Options, World, eventually, patience, running_uids};

use crate::support::{Job, SLUICE, node, nodes_with, running, team_of};

/// A team whose queue `gangs` restarts a workload that loses a pod, and whose queue `once` never runs work twice.
fn team() -> String {
    let queues =
        "queues: [{name: plain}, {name: gangs, onPodLoss: Restart}, {name: once, onUnreachable: Wait}]";
    team_of("a", &["quotas: [{guaranteed: {nvidia.com/gpu: 8}}]", queues])
}

/// The names of the pods of a Job, with their nodes.
async fn pods(world: &World, job: &str) -> Result<Vec<(String, String)>> {
    let selector = format!("batch.kubernetes.io/job-name={job}");
    let list = world.kubectl.ok(&["get", "pods", "-n", "a", "-l", &selector, "-o", "json"]).await?;
    let list: Value = serde_json::from_str(&list)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let items = list["items"].as_array().context("a list")?.iter();
    Ok(items.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["spec"]["nodeName"]))).collect())
}

/// Waits for an Event with this in its message.
async fn told(world: &World, part: &str) -> Result<()> {
    eventually(&format!("an Event says {part:?}"), patience(), async || {
        let list = ["get", "events", "-n", "a", "-o", "jsonpath={.items[*].message}"];
        let said = world.kubectl.ok(&list).await.map_err(|error| format!("{error:#}"))?;
        if said.contains(part) { Ok(()) } else { Err(said) }
    })
    .await
}

/// Kills a node: it answers no more, and no kubelet ends these pods on it.
async fn kill(world: &World, node: &str, pods: &BTreeSet<&String>) -> Result<()> {
    for pod in pods {
        let never = "simulate.sluice.dev/termination=600s";
        world.kubectl.ok(&["annotate", "pod", pod, "-n", "a", never]).await?;
    }
    world.kubectl.ok(&["annotate", "node", node, "simulate.sluice.dev/down=true"]).await?;
    Ok(())
}

/// A pod on a dead node stays `Terminating` for ever, because no kubelet confirms its end. Its gang must not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn work_goes_on_when_nodes_die_and_pods_are_lost() {
    let options = Options { flags: vec!["--unreachable-after=5s".to_owned()], ..Options::new(SLUICE) };
    World::run_with("dead-nodes", options, 1, async |world| {
        let solo = node("solo", "solo: \"true\"", "nvidia.com/gpu: \"1\"");
        world
            .apply(&format!("{}{solo}{}", nodes_with(4, "large: \"true\"", "nvidia.com/gpu: \"2\""), team()))
            .await?;
        let grace = "terminationGracePeriodSeconds: 600";
        let once = Job::new("a", "once").queue("once").pod_spec("nodeSelector: {solo: \"true\"}");
        world.kubectl.apply(&once.pod_spec(grace).manifest()).await?;
        let gang = Job::new("a", "gang").spec("parallelism: 4").spec("completions: 4");
        let gang = gang.spec("backoffLimit: 0").pod_spec(grace).pod_spec("nodeSelector: {large: \"true\"}");
        world.kubectl.apply(&gang.manifest()).await?;
        running(world, "a", 5).await?;
        let before = pods(world, "gang").await?;
        let dead = &before[0].1;
        let lost: BTreeSet<&String> =
            before.iter().filter(|(_, at)| at == dead).map(|(name, _)| name).collect();
        kill(world, dead, &lost).await?;
        kill(world, "solo", &BTreeSet::new()).await?;
        eventually("the gang runs on nodes that answer", patience(), async || {
            let now = pods(world, "gang").await.map_err(|error| format!("{error:#}"))?;
            let well =
                |(name, node): &(String, String)| node != dead && !node.is_empty() && !lost.contains(name);
            if now.len() == 4 && now.iter().all(well) {
                Ok(())
            } else {
                Err(format!("{now:?}, {dead} is dead"))
            }
        })
        .await?;
        told(world, "Lost pods with node").await?;
        told(world, "the pod is ended without its kubelet").await?;
        let status =
            world.kubectl.ok(&["get", "job", "gang", "-n", "a", "-o", "jsonpath={.status.failed}"]).await?;
        ensure!(status.is_empty() || status == "0", "the pods of the dead node count as {status} failures");
        ensure!(pods(world, "once").await?.len() == 1, "work that must never run twice was ended");
        world.kubectl.ok(&["delete", "job", "gang", "-n", "a"]).await?;
        running(world, "a", 1).await?;

        // A deleted pod of a gang in a queue with Restart takes the others with it.
        let gang = Job::new("a", "mpi")
            .queue("gangs")
            .pod_spec("nodeSelector: {large: \"true\"}")
            .spec("parallelism: 3")
            .spec("completions: 3");
        world.kubectl.apply(&gang.spec("completionMode: Indexed").manifest()).await?;
        let before = running_uids(&running(world, "a", 4).await?, "a");
        let (one, _) = pods(world, "mpi").await?.into_iter().next().context("a pod")?;
        world.kubectl.ok(&["delete", "pod", &one, "-n", "a", "--wait=false"]).await?;
        world
            .until("all pods of the gang are new", |view| {
                let now = running_uids(view, "a");
                let kept = now.intersection(&before).count();
                if now.len() == 4 && kept == 1 {
                    Ok(())
                } else {
                    Err(format!("{kept} of {} kept", now.len()))
                }
            })
            .await?;
        told(world, "all its pods restart together").await?;
        Ok(())
    })
    .await;
}
