//! Behaviour while Sluice or the API server is down, and after it is back.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice_harness::World;

use crate::support::{Job, SLUICE, complete, nodes, queued, running, team};

#[tokio::test(flavor = "multi_thread")]
async fn while_sluice_is_down_team_workloads_stay_held_and_all_others_run() {
    World::run("down", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}", nodes(1, 4), team("a", 4))).await?;
        let kubectl = world.kubectl.clone();
        kubectl.ok(&["create", "namespace", "free"]).await?;
        kubectl.apply(&Job::new("a", "ends").lasts(Duration::from_secs(12)).manifest()).await?;
        kubectl.apply(&Job::new("a", "killed").manifest()).await?;
        kubectl.apply(&Job::new("a", "deleted").manifest()).await?;
        running(world, "a", 3).await?;
        kubectl.apply(&Job::new("a", "waits").gpus(4).manifest()).await?;
        kubectl.apply(&Job::new("a", "forgotten").gpus(4).manifest()).await?;
        let view = queued(world, "a", 2).await?;
        let pod = view.running("a").find(|pod| pod.job.as_deref() == Some("killed"));
        let pod = pod.context("the pod does not exist")?.name.clone();

        world.replicas[0].kill().await?;
        // Other work of users continues meanwhile; only new workloads in the team's namespace wait.
        kubectl.ok(&["delete", "job", "deleted", "forgotten", "--namespace=a", "--timeout=30s"]).await?;
        kubectl.ok(&["delete", "pod", &pod, "--namespace=a", "--timeout=30s"]).await?;
        kubectl.apply(&Job::new("free", "other").lasts(Duration::from_secs(1)).manifest()).await?;
        kubectl.apply(&Job::new("a", "new").manifest()).await?;
        let pod = "
apiVersion: v1
kind: Pod
metadata: {name: bare, namespace: a}
spec:
  containers: [{name: main, image: registry.example/train, resources: {limits: {nvidia.com/gpu: 1}}}]
";
        kubectl.create(pod).await?;
        complete(world, "free", 1).await?;
        let view = complete(world, "a", 1).await?;
        ensure!(view.job("a", "ends").is_some_and(|job| job.complete), "{}", view.summary("a"));
        let held = |view: &sluice_harness::View| {
            let suspended = |name: &str| view.job("a", name).is_some_and(|job| job.suspended);
            let gated = view.pods.iter().any(|pod| pod.name == "bare" && pod.gated && pod.node.is_none());
            if suspended("waits") && suspended("new") && gated {
                Ok(())
            } else {
                Err(format!("{}; bare pod gated: {gated}", view.summary("a")))
            }
        };
        world.stays("waiting and new workloads stay held", Duration::from_secs(3), held).await?;

        // After its restart Sluice admits all of them.
        world.start_replica().await?;
        world
            .until("the new Job and the bare pod run", |view| {
                let bare = view.pods.iter().any(|pod| pod.name == "bare" && pod.running());
                let new = view.job("a", "new").is_some_and(|job| job.admitted() && job.active == 1);
                if bare && new { Ok(()) } else { Err(format!("bare pod: {bare}; {}", view.summary("a"))) }
            })
            .await?;
        kubectl.ok(&["delete", "jobs/new", "jobs/killed", "pods/bare", "--namespace=a"]).await?;
        world
            .until("the Job queued before the outage runs", |view| match view.job("a", "waits") {
                Some(job) if job.admitted() && job.active == 1 => Ok(()),
                other => Err(format!("{other:?}")),
            })
            .await?;
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_api_server_under_load_loses_nothing() {
    World::run("apiserver", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}", nodes(2, 10), team("a", 20))).await?;
        let jobs = Job::new("a", "load").copies(100).lasts(Duration::from_secs(2));
        world.apply(&jobs.scenario()).await?;
        world
            .until("some Jobs have run", |view| {
                let complete = view.jobs_in("a").filter(|job| job.complete).count();
                if complete >= 10 { Ok(()) } else { Err(view.summary("a")) }
            })
            .await?;
        world.cluster.restart("kube-apiserver").await?;
        let view = complete(world, "a", 100).await?;
        once(&view, 100)?;
        // The webhook answers again too.
        world.kubectl.apply(&Job::new("a", "after").lasts(Duration::from_secs(1)).manifest()).await?;
        complete(world, "a", 101).await?;
        Ok(())
    })
    .await;
}

/// Every Job of the team has had exactly one pod, and that pod has succeeded.
fn once(view: &sluice_harness::View, jobs: usize) -> Result<()> {
    let pods: Vec<_> = view.pods.iter().filter(|pod| pod.namespace == "a").collect();
    ensure!(pods.len() == jobs, "{jobs} Jobs had {} pods", pods.len());
    ensure!(pods.iter().all(|pod| pod.phase == "Succeeded"), "some pods have failed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_between_an_eviction_and_the_next_admission_loses_nothing() {
    World::run("half-way", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}{}", nodes(1, 4), team("a", 0), team("b", 4))).await?;
        let borrower = Job::new("a", "borrower").gpus(4).ends_slowly(Duration::from_secs(8));
        world.kubectl.apply(&borrower.manifest()).await?;
        running(world, "a", 1).await?;
        let owner = Job::new("b", "owner").gpus(4).lasts(Duration::from_secs(6));
        world.kubectl.apply(&owner.manifest()).await?;
        world
            .until("the eviction of the borrower has begun", |view| match view.job("a", "borrower") {
                Some(job) if job.suspended && job.admission.is_some() => Ok(()),
                other => Err(format!("{other:?}")),
            })
            .await?;
        world.replicas[0].kill().await?;
        world
            .until("its pod is gone", |view| match view.pods.iter().any(|pod| pod.namespace == "a") {
                false => Ok(()),
                true => Err("the pod still exists".to_owned()),
            })
            .await?;
        world.start_replica().await?;
        running(world, "b", 1).await?;
        let view = queued(world, "a", 1).await?;
        let job = view.job("a", "borrower").context("the Job does not exist")?;
        ensure!(job.failed_pods == 0, "the eviction is counted as a failure: {job:?}");
        complete(world, "b", 1).await?;
        running(world, "a", 1).await?;
        Ok(())
    })
    .await;
}
