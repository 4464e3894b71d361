//! Work that is deleted or fails at any time frees its capacity, and not before its pods have gone.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice::api::names;
use sluice_harness::{View, World};

use crate::support::{Job, SLUICE, complete, nodes, queued, running, team};

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_jobs_deleted_while_pending_and_while_running_leave_nothing_behind() {
    World::run("deletion", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}", nodes(10, 10), team("a", 100))).await?;
        let jobs = |name: &str| Job::new("a", name).copies(100).scenario();
        world.apply(&jobs("first")).await?;
        running(world, "a", 100).await?;
        world.apply(&jobs("second")).await?;

        // First all that wait, then all that run: capacity freed meanwhile must not matter.
        delete(world, "second").await?;
        gone(world, "second").await?;
        let view = world.view().await?;
        ensure!(view.running("a").count() == 100, "{}", view.summary("a"));
        delete(world, "first").await?;
        gone(world, "first").await?;

        // The whole capacity is free again at once.
        let third = Job::new("a", "third").copies(100).lasts(Duration::from_secs(1));
        world.apply(&third.scenario()).await?;
        complete(world, "a", 100).await?;
        Ok(())
    })
    .await;
}

/// A pod of four GPUs that takes ten seconds to end.
const BARE: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: bare
  namespace: a
  annotations: {simulate.sluice.dev/termination: 10s}
spec:
  containers:
  - name: main
    image: registry.example/train
    resources: {limits: {nvidia.com/gpu: 4}}
---";

#[tokio::test(flavor = "multi_thread")]
async fn what_ends_holds_its_capacity_until_its_last_pod_has_gone() {
    World::run("last-pods", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}", nodes(3, 4), team("a", 12))).await?;
        let slow = |name: &str| Job::new("a", name).gpus(4).ends_slowly(Duration::from_secs(10));
        let timed = slow("timed").spec("activeDeadlineSeconds: 15");
        world.kubectl.apply(&format!("{BARE}{}{}", slow("deleted").manifest(), timed.manifest())).await?;
        running(world, "a", 3).await?;
        world.apply(&Job::new("a", "next").gpus(4).copies(3).scenario()).await?;
        queued(world, "a", 3).await?;
        let foreground =
            ["delete", "job", "deleted", "--namespace=a", "--cascade=foreground", "--wait=false"];
        world.kubectl.ok(&foreground).await?;
        world.kubectl.ok(&["delete", "pod", "bare", "--namespace=a", "--wait=false"]).await?;
        // Each of the three leaves room for one.
        let (mut most, mut ending) = (0, 0);
        loop {
            let view = world.view().await?;
            let next = view.jobs_in("a").filter(|job| job.name.starts_with("next") && job.admitted()).count();
            let old = view.pods.iter().filter(|pod| pod.holds() && !pod.name.starts_with("next"));
            let (left, leaving) = (old.clone().count(), old.filter(|pod| pod.deleting).count());
            (most, ending) = (most.max(next + left), ending.max(leaving));
            if next == 3 || most > 3 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        ensure!(most == 3, "{most} hold capacity of three: {}", world.view().await?.summary("a"));
        ensure!(ending > 0, "their pods took time to end");
        running(world, "a", 3).await?;
        a_job_ends_that_was_stopped_when_its_pods_had_done_their_work(world).await
    })
    .await;
}

/// A Job is stopped so soon after its start that its controller has not written the start time yet, and its only pod succeeds
/// before it can be ended. The API server takes no end without a start, and the controller gives none to a suspended Job.
async fn a_job_ends_that_was_stopped_when_its_pods_had_done_their_work(world: &World) -> Result<()> {
    const CONTROLLER: &str = "kube-controller-manager";
    let within = "--namespace=a";
    world.kubectl.ok(&["delete", "job", "next-0", within]).await?;
    world.kubectl.apply(&Job::new("a", "done").gpus(4).manifest()).await?;
    let running = |view: &View| view.running("a").find(|pod| pod.name.starts_with("done")).cloned();
    let view = world.until("it runs", |view| running(view).map(drop).ok_or(view.summary("a"))).await?;
    let pod = running(&view).context("a pod")?;
    world
        .until("its controller has counted the pod", |view| match view.job("a", "done") {
            Some(job) if job.active == 1 => Ok(()),
            _ => Err(view.summary("a")),
        })
        .await?;
    world.cluster.stop(CONTROLLER).await?;
    let succeeded = r#"{"status": {"phase": "Succeeded"}}"#;
    let patch = ["patch", "pod", &pod.name, within, "--subresource=status", "--type=merge", "-p", succeeded];
    world.kubectl.ok(&patch).await?;
    // The hold keeps Sluice from starting it again before its controller is back.
    let (hold, requeue) =
        (format!("{}=true", names::HOLD), format!("{}={}", names::REQUEUE, jiff::Timestamp::now()));
    world.kubectl.ok(&["annotate", "job", "done", within, &hold, &requeue]).await?;
    world
        .until("it is suspended", |view| match view.job("a", "done") {
            Some(job) if job.suspended => Ok(()),
            _ => Err(view.summary("a")),
        })
        .await?;
    let unstarted = r#"{"status": {"startTime": null}}"#;
    let patch = ["patch", "job", "done", within, "--subresource=status", "--type=merge", "-p", unstarted];
    world.kubectl.ok(&patch).await?;
    world.cluster.start(CONTROLLER).await?;
    world
        .until("it is Complete", |view| match view.job("a", "done") {
            Some(job) if job.complete => Ok(()),
            _ => Err(view.summary("a")),
        })
        .await
        .map(drop)
}

async fn delete(world: &World, prefix: &str) -> Result<()> {
    let names: Vec<String> = (0..100).map(|job| format!("job/{prefix}-{job}")).collect();
    let mut arguments = vec!["delete", "--namespace=a", "--wait=false"];
    arguments.extend(names.iter().map(String::as_str));
    world.kubectl.ok(&arguments).await.map(drop)
}

async fn gone(world: &World, prefix: &str) -> Result<()> {
    world
        .until(&format!("the {prefix} Jobs and their pods are gone"), |view| {
            let jobs = view.jobs_in("a").filter(|job| job.name.starts_with(prefix)).count();
            let pods = view.pods.iter().filter(|pod| pod.name.starts_with(prefix)).count();
            if jobs + pods == 0 { Ok(()) } else { Err(format!("{jobs} Jobs, {pods} pods")) }
        })
        .await
        .map(drop)
}
