//! Pods that were never admitted: charged to the team of their namespace, and ended where another needs the room.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use sluice::api::names;
use sluice_harness::{eventually, patience, stays};

use super::routes::gated;
use super::stage::{Books, LIMIT, Stage, held, job, owner, uid, whole};
use crate::support::{Job, queued};

/// The limit of a team is lowered below what its orphans hold: the newest is ended, and no more.
pub async fn above_the_limit(stage: &mut Stage<'_>) -> Result<()> {
    for name in ["older", "newer"] {
        stage.alice.create(&job(name, 1).manifest()).await?;
        stage.runs("a", name, 1).await?;
        stage.orphans(&stage.alice, name).await?;
        // Creation times have whole seconds.
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    stage.charged("a", Books { used: 2, unadmitted: 2 }).await?;
    limit(stage, 1).await?;
    let outcome = stage.charged("a", Books { used: 1, unadmitted: 1 }).await;
    let left = stage.running("a").await?;
    limit(stage, LIMIT).await?;
    outcome?;
    ensure!(left.iter().all(|pod| pod.starts_with("older")) && left.len() == 1, "{left:?} are left");
    Ok(())
}

async fn limit(stage: &Stage<'_>, gpus: i64) -> Result<()> {
    let amount = json!({"nvidia.com/gpu": gpus});
    let quota = json!({"spec": {"quotas": [{"guaranteed": amount, "limit": amount}]}}).to_string();
    stage.world.kubectl.ok(&["patch", "team", "a", "--type=merge", "-p", &quota]).await.map(drop)
}

/// An orphan of a team is ended when a Job of the same team needs its room, and not before.
pub async fn room_for_the_team(stage: &mut Stage<'_>) -> Result<()> {
    stage.alice.create(&job("gone", 2).manifest()).await?;
    stage.runs("a", "gone", 1).await?;
    stage.orphans(&stage.alice, "gone").await?;
    stage.charged("a", Books { used: 2, unadmitted: 2 }).await?;
    let runs = |view: &sluice_harness::View| match held(view, "a") {
        2 => Ok(()),
        other => Err(format!("{other} GPUs held")),
    };
    stays(&stage.world.client, "the orphan runs on", Duration::from_secs(3), runs).await?;
    stage.alice.create(&job("next", 2).manifest()).await?;
    stage.runs("a", "next", 1).await?;
    stage.charged("a", Books { used: 2, unadmitted: 0 }).await?;
    ensure!(stage.peak() <= LIMIT, "{} GPUs held", stage.peak());
    Ok(())
}

/// A borrowed orphan is ended for another team's work within its guarantee.
pub async fn room_for_an_owner(stage: &mut Stage<'_>) -> Result<()> {
    let admin = &stage.world.kubectl;
    admin
        .create(&Job::new("c", "gone").gpus(8).pod_spec("terminationGracePeriodSeconds: 2").manifest())
        .await?;
    stage.runs("c", "gone", 1).await?;
    admin.ok(&["delete", "job", "gone", "--namespace=c", "--cascade=orphan"]).await?;
    stage.charged("c", Books { used: 8, unadmitted: 8 }).await?;
    admin.create(&whole("owner").manifest()).await?;
    stage.runs("b", "owner", 2).await?;
    stage.charged("c", Books::default()).await
}

/// Sluice is killed while an orphan and a Job run. Meanwhile nothing slips past, and then the charges are the same.
pub async fn restart(stage: &mut Stage<'_>) -> Result<()> {
    stage.alice.create(&job("gone", 1).manifest()).await?;
    stage.runs("a", "gone", 1).await?;
    stage.orphans(&stage.alice, "gone").await?;
    stage.alice.create(&job("kept", 1).manifest()).await?;
    stage.runs("a", "kept", 1).await?;
    let books = Books { used: 2, unadmitted: 1 };
    let before = stage.charged("a", books).await;
    stage.kill().await?;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
    let map = stage.nora.create(&map.to_string()).await?;
    let held = gated(&stage.nora, "while-down", &owner("v1", "ConfigMap", "owner", uid(&map)?)).await;
    stage.alice.create(&job("next", 2).manifest()).await?;
    stage.world.start_replica().await?;
    stage.charged("a", books).await?;
    // The limit has no room for two GPUs beside the admitted Job, so the orphan is left alone.
    stage.waits("a", "next").await?;
    queued(stage.world, "a", 1).await?;
    stage.charged("a", books).await?;
    ensure!(stage.peak() <= LIMIT, "{} GPUs held", stage.peak());
    before.context("before the restart")?;
    held.context("while Sluice was down")
}

/// Number of pods that a team takes over with their namespace: half of a Job, half without.
const ADOPTED: i64 = 50;

/// Pods are older than the membership of their namespace: all are charged, none is ended, and they go before new work.
pub async fn adoption(stage: &mut Stage<'_>) -> Result<()> {
    let admin = &stage.world.kubectl;
    admin.ok(&["create", "namespace", "adopted"]).await?;
    let half = ADOPTED / 2;
    let job = Job::new("adopted", "half")
        .spec(&format!("parallelism: {half}"))
        .spec(&format!("completions: {half}"));
    let pods: Vec<Value> = (0..half).map(plain_pod).collect();
    let pods = json!({"apiVersion": "v1", "kind": "List", "items": pods});
    admin.create(&job.manifest()).await?;
    admin.create(&pods.to_string()).await?;
    let view = crate::support::running(stage.world, "adopted", usize::try_from(ADOPTED)?).await?;
    let adopted = sluice_harness::running_uids(&view, "adopted");
    admin.ok(&["label", "namespace", "adopted", "sluice.dev/team=c"]).await?;
    let outcome = charged_and_kept(stage, &adopted).await;
    // They end by themselves, which lets the Job start.
    admin
        .ok(&["annotate", "pods", "--all", "--namespace=adopted", "simulate.sluice.dev/duration=1s"])
        .await?;
    let started = stage.runs("c", "new", 1).await;
    admin.ok(&["delete", "namespace", "adopted", "--wait=false"]).await?;
    outcome?;
    started.context("the adopted pods have ended").map(drop)
}

fn plain_pod(number: i64) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("plain-{number}"), "namespace": "adopted"},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 2, "containers": [
            {"name": "main", "image": "registry.example/x", "resources": {"limits": {"nvidia.com/gpu": 1}}},
        ]},
    })
}

async fn charged_and_kept(stage: &Stage<'_>, adopted: &BTreeSet<String>) -> Result<()> {
    let books = Books { used: ADOPTED, unadmitted: ADOPTED };
    let charged = stage.charged("c", books).await;
    stage.world.kubectl.create(&Job::new("c", "new").manifest()).await?;
    charged?;
    let why = stage.waits("c", "new").await?;
    ensure!(why.contains("50"), "the reason does not name what is held: {why}");
    let all = |view: &sluice_harness::View| {
        let left = sluice_harness::running_uids(view, "adopted");
        let new = view.running("c").count();
        if left == *adopted && new == 0 {
            Ok(())
        } else {
            Err(format!("{} of them are left, {new} new", left.len()))
        }
    };
    stays(&stage.world.client, "all adopted pods run, and the Job waits", Duration::from_secs(8), all).await
}

/// The controller of a DaemonSet puts back at once what is evicted, so its pods are charged and left alone.
pub async fn adopted_daemon_set(stage: &mut Stage<'_>) -> Result<()> {
    let admin = &stage.world.kubectl;
    admin.ok(&["create", "namespace", "fixed"]).await?;
    let set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "profiler", "namespace": "fixed"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"terminationGracePeriodSeconds": 2, "containers": [
                {"name": "main", "image": "registry.example/x", "resources": {"limits": {"nvidia.com/gpu": 4}}},
            ]},
        }},
    });
    admin.create(&set.to_string()).await?;
    let view = crate::support::running(stage.world, "fixed", 2).await?;
    let fixed = sluice_harness::running_uids(&view, "fixed");
    admin.ok(&["label", "namespace", "fixed", "sluice.dev/team=d"]).await?;
    let charged = stage.charged("d", Books { used: 8, unadmitted: 8 }).await;
    // The owner of the whole cluster waits for them in vain.
    admin.create(&whole("owner").manifest()).await?;
    let runs = |view: &sluice_harness::View| {
        let left = sluice_harness::running_uids(view, "fixed");
        if left == fixed { Ok(()) } else { Err(format!("{left:?}")) }
    };
    let kept =
        stays(&stage.world.client, "the pods of the DaemonSet run", Duration::from_secs(6), runs).await;
    let named = eventually("the team's status names the DaemonSet", patience(), async || {
        let status = admin.ok(&["get", "team", "d", "-o", "jsonpath={.status}"]).await;
        let status = status.map_err(|error| format!("{error:#}"))?;
        if status.contains("DaemonSet") && status.contains("profiler") { Ok(()) } else { Err(status) }
    });
    let named = match &charged {
        Ok(()) => named.await,
        Err(_) => Ok(()),
    };
    let evicted = stage.world.cluster.audit().by(names::ACCOUNT)?;
    let of_pods =
        |write: &&sluice_harness::Write| write.namespace == "fixed" && write.resource.starts_with("pods");
    let evicted = evicted.iter().filter(of_pods).count();
    admin.ok(&["delete", "namespace", "fixed", "--wait=false"]).await?;
    charged?;
    kept?;
    named?;
    ensure!(evicted == 0, "Sluice has written {evicted} times to the pods of the DaemonSet");
    Ok(())
}
