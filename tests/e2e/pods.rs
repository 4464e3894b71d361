//! Pods without a Job: charged like Jobs, and evicted only where their users allow it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sluice::api::names;
use sluice_harness::{View, World, eventually, patience};

use crate::support::{Job, SLUICE, nodes, quota, running, team, team_of};

/// A pod with this many GPUs and these annotations that runs until it is deleted.
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

/// The pod of this name.
pub fn find<'a>(view: &'a View, namespace: &str, name: &str) -> Result<&'a sluice_harness::PodView, String> {
    let found = view.pods.iter().find(|pod| pod.namespace == namespace && pod.name == name);
    found.ok_or_else(|| format!("{namespace}/{name} does not exist; {}", view.summary(namespace)))
}

/// Waits until Sluice explains a workload with this reason, and returns the message.
pub async fn explained(world: &World, namespace: &str, name: &str, reason: &str) -> Result<String> {
    let what = format!("Sluice says {reason} of {namespace}/{name}");
    eventually(&what, patience(), async || {
        let rows = world.replicas[0].workload(namespace, name).await;
        let rows = rows.map_err(|error| format!("{error:#}"))?;
        let row = &rows[0];
        if row["reason"] == reason { Ok(row["message"].to_string()) } else { Err(rows.to_string()) }
    })
    .await
}

/// Waits for an Event with this reason about a pod, and returns its note.
pub async fn event_note(world: &World, namespace: &str, pod: &str, reason: &str) -> Result<String> {
    let selector = format!("--field-selector=reason={reason},involvedObject.name={pod}");
    eventually(&format!("an Event {reason} about {pod}"), patience(), async || {
        let list =
            ["get", "events", "--namespace", namespace, "-o", "jsonpath={.items[*].message}", &selector];
        match world.kubectl.ok(&list).await {
            Ok(note) if !note.is_empty() => Ok(note),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

/// Number of evictions that Sluice requested of a pod, and number of other ways in which it ended the pod.
fn evictions(world: &World, pod: &str) -> Result<(usize, usize)> {
    let writes = world.cluster.audit().by(names::ACCOUNT)?;
    let evictions = writes.iter().filter(|write| write.resource == "pods/eviction" && write.name == pod);
    let deletions = writes.iter().filter(|write| write.verb.starts_with("delete"));
    Ok((evictions.count(), deletions.count()))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_reclaims_from_borrowing_pods_that_allow_their_eviction() {
    World::run("pod-evicted", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}{}", nodes(1, 4), team("a", 0), team("b", 4))).await?;
        world.kubectl.apply(&format!("{}{}", pod("a", "lent", 4, LETS), pod("a", "stays", 1, ""))).await?;
        running(world, "a", 1).await?;
        let why = explained(world, "a", "stays", "NotPreemptibleOverGuarantee").await?;
        ensure!(why.contains("guarantee"), "{why}");
        // The permission to evict cannot be withdrawn after the pod has borrowed.
        let revoke = r#"{"metadata":{"annotations":{"sluice.dev/preemptible":null}}}"#;
        let patch = ["patch", "pod", "lent", "--namespace=a", "-p", revoke];
        let refusal = world.kubectl.refused(&patch).await?;
        ensure!(refusal.contains("An admitted pod that may be evicted stays so"), "{refusal}");

        world.kubectl.apply(&Job::new("b", "owner").gpus(4).manifest()).await?;
        let view = running(world, "b", 1).await?;
        ensure!(!find(&view, "a", "lent").is_ok_and(|pod| pod.holds()), "the pod still holds its GPUs");
        ensure!(evictions(world, "lent")? == (1, 0), "{:?}", evictions(world, "lent")?);
        let note = event_note(world, "a", "lent", "Evicted").await?;
        ensure!(
            note.starts_with("Reclaimed: A workload of team b "),
            "names of other namespaces are hidden: {note}"
        );
        an_owner_reclaims_from_deleted_jobs(world).await
    })
    .await;
}

/// A finalizer of its user keeps each Job, so its controller neither ends its pods nor follows its suspension.
async fn an_owner_reclaims_from_deleted_jobs(world: &World) -> Result<()> {
    world.kubectl.ok(&["delete", "pod/stays", "--namespace=a"]).await?;
    world.kubectl.ok(&["delete", "job/owner", "--namespace=b"]).await?;
    let kept = ["first", "second"];
    for name in kept {
        world.kubectl.apply(&Job::new("a", name).gpus(2).manifest()).await?;
        let keep = r#"{"metadata":{"finalizers":["example.com/keep"]}}"#;
        world.kubectl.ok(&["patch", "job", name, "--namespace=a", "--type=merge", "-p", keep]).await?;
    }
    running(world, "a", 2).await?;
    world.kubectl.ok(&["delete", "job", "first", "second", "--namespace=a", "--wait=false"]).await?;

    world.kubectl.apply(&Job::new("b", "again").gpus(4).manifest()).await?;
    let view = running(world, "b", 1).await.context("the owner of the GPUs")?;
    let there = view.jobs_in("a").filter(|job| job.deleting).count();
    ensure!(there == kept.len(), "their finalizers keep the Jobs: {}", view.summary("a"));
    let release = r#"{"metadata":{"finalizers":null}}"#;
    for name in kept {
        world.kubectl.ok(&["patch", "job", name, "--namespace=a", "--type=merge", "-p", release]).await?;
    }
    world
        .until("the deleted Jobs are gone", |view| match view.jobs_in("a").count() {
            0 => Ok(()),
            _ => Err(view.summary("a")),
        })
        .await?;
    Ok(())
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
        let note = event_note(world, "a", "lent", "EvictionBlocked").await?;
        ensure!(note.contains("disruption budget keep needs 1 healthy pods and has 1"), "{note}");
        let waits = explained(world, "b", "owner", "WaitingForEviction").await?;
        ensure!(waits.contains("The API server refused the eviction of a/lent"), "{waits}");
        let stays = |view: &View| match find(view, "a", "lent")? {
            pod if pod.running() => Ok(()),
            pod => Err(format!("{pod:?}")),
        };
        world.stays("the pod runs on", Duration::from_secs(4), stays).await?;
        // The pause doubles each time, so only a few attempts fit in some seconds.
        let metrics = world.replicas[0].get("/metrics").await?;
        let refused = r#"sluice_api_writes_total{kind="evict",outcome="refused"} "#;
        let refused = metrics.lines().find_map(|line| line.strip_prefix(refused)).unwrap_or_default();
        let refused: f64 = refused.parse().with_context(|| format!("{refused:?} is not a number"))?;
        ensure!((2.0..=12.0).contains(&refused), "refused {refused} times");

        world.kubectl.ok(&["delete", "pdb", "keep", "--namespace=a"]).await?;
        let view = running(world, "b", 1).await.context("after the budget was deleted")?;
        ensure!(!find(&view, "a", "lent").is_ok_and(|pod| pod.holds()), "the pod still holds its GPUs");
        no_budget_outlasts_the_longest_grace(world, budget).await
    })
    .await;
}

/// A budget that never allows an eviction keeps the pod for `maxGrace` of its queue and no longer.
async fn no_budget_outlasts_the_longest_grace(world: &World, budget: &str) -> Result<()> {
    const MOST: Duration = Duration::from_secs(4);
    world.kubectl.ok(&["delete", "job/owner", "--namespace=b"]).await?;
    let queues = format!("queues: [{{name: shells, maxGrace: {}s}}]", MOST.as_secs());
    world.kubectl.apply(&team_of("a", &[&quota(0), &queues])).await?;
    let grace = "spec:\n  terminationGracePeriodSeconds: 1\n";
    let lent = pod("a", "lent", 2, LETS).replacen("spec:\n", grace, 1);
    world.kubectl.apply(&format!("{lent}{budget}")).await?;
    running(world, "a", 1).await?;
    let (evicted, deleted) = evictions(world, "lent")?;

    let began = Instant::now();
    world.kubectl.apply(&Job::new("b", "again").gpus(2).manifest()).await?;
    let view = running(world, "b", 1).await.context("while the budget stands")?;
    ensure!(!find(&view, "a", "lent").is_ok_and(|pod| pod.holds()), "the pod still holds its GPUs");
    ensure!(began.elapsed() >= MOST, "the budget has kept the pod for {:?} only", began.elapsed());
    let ended = evictions(world, "lent")?;
    ensure!(ended == (evicted, deleted + 1), "evictions that passed, and deletions: {ended:?}");
    world.kubectl.ok(&["get", "pdb", "keep", "--namespace=a"]).await.map(drop)
}
