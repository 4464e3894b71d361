//! The commands that act: each is a write of an ordinary object with the rights of its caller.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::Value;
use sluice::view::answers::Kind;
use sluice_harness::{User, World};

use crate::command::{answered, comes_to_say, refused, sluice};
use crate::support::{Job, quota, team_of};

/// Job `mine` of namespace a waits for a Job of team b. `dora` may view namespace a, `erin` may edit it.
pub async fn act(world: &World, dora: &Path, erin: &Path) -> Result<()> {
    waiting_work_is_held_and_ordered(world, dora, erin).await?;
    running_work_is_requeued_and_cancelled(world, dora, erin).await?;
    queues_are_paused(world, erin).await
}

async fn waiting_work_is_held_and_ordered(world: &World, dora: &Path, erin: &Path) -> Result<()> {
    for verb in [&["hold", "mine"][..], &["top", "mine"], &["order", "1", "mine"]] {
        refused(dora, verb, "forbidden").await?;
    }
    let waits = answered(erin, &["requeue", "mine"]).await?;
    ensure!(waits == "job a/mine waits already, so there is no run to evict\n", "{waits}");
    refused(erin, &["hold", "b/secret-train"], "sluice-user").await?;
    refused(erin, &["hold", "pod/mine"], "manages no workload pod a/mine").await?;
    let held = sluice(erin, &["hold", "mine", "--verbose"]).await?;
    ensure!(held.success && held.stdout.contains("job a/mine is on hold"), "{held:?}");
    let same = "kubectl -n a annotate --overwrite job mine sluice.dev/hold=true";
    ensure!(held.stderr.trim() == same, "{held:?}");
    comes_to_say(erin, &["explain", "mine", "--output=json"], "\"OnHold\"").await?;
    answered(erin, &["release", "job/mine"]).await?;
    comes_to_say(erin, &["explain", "mine", "--output=json"], "\"state\": \"Pending\"").await?;
    ensure!(answered(erin, &["order", "4", "mine", "-o", "name"]).await? == "job/mine\n");
    let printed = answered(erin, &["order", "5", "mine", "--output=json"]).await?;
    let document: Value = serde_json::from_str(&printed)?;
    let schema = jsonschema::validator_for(&Kind::ActionList.schema())?;
    ensure!(schema.is_valid(&document), "{document}");
    let row = &document["items"][0];
    ensure!(row["action"] == "order" && row["done"] == true && row["name"] == "mine", "{document}");
    answered(erin, &["top", "mine"]).await?;
    let order =
        ["get", "job", "mine", "--namespace=a", "-o", r"jsonpath={.metadata.annotations.sluice\.dev/order}"];
    ensure!(world.kubectl.ok(&order).await? == "6", "top is one above the highest order");
    refused(erin, &["order", "7", "mine", "--across-users"], "needs the verb manage on the Team").await?;
    let admin = world.cluster.kubeconfig(User::Admin);
    answered(&admin, &["order", "7", "a/mine", "--across-users"]).await?;
    refused(erin, &["order", "8", "mine", "--across-users"], "needs the verb manage on the Team").await?;
    answered(erin, &["order", "6", "mine"]).await?;
    ensure!(answered(erin, &["release", "mine"]).await? == "job a/mine is not on hold\n");
    world.kubectl.apply(&Job::new("a", "none").spec("parallelism: 0").manifest()).await?;
    comes_to_say(erin, &["explain", "none", "--output=json"], "\"HeldByUser\"").await?;
    refused(erin, &["release", "none"], "asks for no pods, so there is nothing to release").await?;
    world.kubectl.ok(&["delete", "job", "none", "--namespace=a"]).await?;
    let waits = sluice(erin, &["wait", "mine", "--timeout=1s"]).await?;
    ensure!(!waits.success && waits.stderr.contains("job a/mine still waits"), "{waits:?}");
    Ok(())
}

async fn running_work_is_requeued_and_cancelled(world: &World, dora: &Path, erin: &Path) -> Result<()> {
    world.kubectl.ok(&["delete", "job", "secret-train", "--namespace=b"]).await?;
    let runs = answered(erin, &["wait", "mine", "--timeout=3m"]).await?;
    ensure!(runs == "job a/mine runs\n", "{runs}");
    let held = answered(erin, &["hold", "mine"]).await?;
    ensure!(held.starts_with("job a/mine runs on"), "{held}");
    answered(erin, &["release", "mine"]).await?;
    refused(dora, &["requeue", "mine"], "forbidden").await?;
    answered(erin, &["requeue", "mine"]).await?;
    world
        .until("it is requeued", |view| match view.job("a", "mine").and_then(|job| job.eviction.as_ref()) {
            Some(note) if note.reason == "Requeued" => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .await?;
    let listed = answered(erin, &["cancel", "--team", "a", "--dry-run"]).await?;
    ensure!(listed.starts_with("job a/mine ("), "{listed}");
    refused(erin, &["cancel"], "name the workloads to delete").await?;
    refused(erin, &["cancel", "mine"], "add --yes").await?;
    refused(dora, &["cancel", "mine", "--yes"], "forbidden").await?;
    ensure!(answered(erin, &["cancel", "mine", "--yes"]).await? == "job a/mine is deleted\n");
    let gone = |view: &sluice_harness::View| match view.job("a", "mine") {
        None => Ok(()),
        Some(job) => Err(format!("{job:?}")),
    };
    world.until("the Job has gone", gone).await.map(drop)
}

async fn queues_are_paused(world: &World, erin: &Path) -> Result<()> {
    let admin = world.cluster.kubeconfig(User::Admin);
    refused(erin, &["pause", "a"], "forbidden").await?;
    refused(&admin, &["pause", "a"], "lists no queue").await?;
    world.apply(&team_of("a", &[&quota(2), "queues: [{name: work}, {name: rest}]"])).await?;
    refused(&admin, &["pause", "a", "night"], "has no queue night; it has: work, rest").await?;
    let paused = ["get", "team", "a", "-o", "jsonpath={.spec.queues[*].paused}"];
    let printed = answered(&admin, &["pause", "a", "rest", "-o", "yaml"]).await?;
    ensure!(printed.contains("kind: Queue") && printed.contains("team: a"), "{printed}");
    ensure!(world.kubectl.ok(&paused).await? == "Hold", "one queue is paused");
    answered(&admin, &["pause", "a", "--drain"]).await?;
    ensure!(world.kubectl.ok(&paused).await? == "Drain Drain", "both are");
    answered(&admin, &["resume", "a"]).await?;
    ensure!(world.kubectl.ok(&paused).await?.trim().is_empty(), "both are open again");
    Ok(())
}
