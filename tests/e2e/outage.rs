//! Behaviour while Sluice or the API server is down, and after it is back.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice_harness::{Sluice, View, World, eventually, patience};

use crate::support::{Job, SLUICE, complete, nodes, queued, running, team};

#[tokio::test(flavor = "multi_thread")]
async fn while_sluice_is_down_team_workloads_stay_held_and_all_others_run() {
    World::run("down", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}", nodes(1, 5), team("a", 5))).await?;
        let kubectl = world.kubectl.clone();
        kubectl.ok(&["create", "namespace", "free"]).await?;
        kubectl.apply(&Job::new("a", "killed").manifest()).await?;
        kubectl.apply(&Job::new("a", "deleted").manifest()).await?;
        let elastic = Job::new("a", "orphaned").annotated("min-parallelism", "1").spec("parallelism: 2");
        kubectl.apply(&elastic.manifest()).await?;
        kubectl.apply(&Job::new("a", "ends").lasts(Duration::from_secs(12)).manifest()).await?;
        running(world, "a", 5).await?;
        kubectl.apply(&Job::new("a", "waits").gpus(5).manifest()).await?;
        kubectl.apply(&Job::new("a", "forgotten").gpus(5).manifest()).await?;
        let view = queued(world, "a", 2).await?;
        let of = |job: &str| {
            let pod = view.running("a").find(|pod| pod.job.as_deref() == Some(job));
            pod.map(|pod| pod.name.clone()).context("the pod does not exist")
        };
        let (pod, replaced) = (of("killed")?, of("orphaned")?);

        world.replicas[0].kill().await?;
        // Other work of users continues meanwhile; only new workloads in the team's namespace wait.
        kubectl.ok(&["delete", "job", "deleted", "forgotten", "--namespace=a", "--timeout=30s"]).await?;
        kubectl.ok(&["delete", "pod", &pod, &replaced, "--namespace=a", "--timeout=30s"]).await?;
        // The Job goes before Sluice has given its new pod a node.
        let orphan = |view: &View| {
            view.pods
                .iter()
                .find(|pod| pod.name.starts_with("orphaned-") && pod.gated)
                .map(|pod| pod.name.clone())
        };
        let gated = |view: &View| orphan(view).map(drop).ok_or_else(|| view.summary("a"));
        let view = world.until("the new pod of the elastic Job is gated", gated).await?;
        let orphan = orphan(&view).context("the pod does not exist")?;
        kubectl
            .ok(&["delete", "job", "orphaned", "--namespace=a", "--cascade=orphan", "--timeout=30s"])
            .await?;
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
            .until("the new Job, the bare pod and the orphan run", |view| {
                let runs = |name: &str| {
                    view.pods.iter().any(|pod| pod.name == name && pod.running() && pod.admission.is_some())
                };
                let (bare, orphan) = (runs("bare"), runs(&orphan));
                let new = view.job("a", "new").is_some_and(|job| job.admitted() && job.active == 1);
                let error = || Err(format!("bare pod: {bare}; orphan: {orphan}; {}", view.summary("a")));
                if bare && orphan && new { Ok(()) } else { error() }
            })
            .await?;
        kubectl.ok(&["delete", "jobs/new", "jobs/killed", "pods/bare", "--namespace=a"]).await?;
        kubectl.ok(&["delete", "pods", "--selector=job-name=orphaned", "--namespace=a"]).await?;
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

/// What Sluice's account may do, as the manifests bind it.
const RIGHTS: [&str; 5] = [
    "clusterrolebinding/sluice",
    "clusterrolebinding/sluice-certificates",
    "clusterrolebinding/sluice-kinds",
    "rolebinding/sluice",
    "rolebinding/sluice-certificates",
];

/// The most lines, and bytes, by which the log of a replica grows during a trouble.
const MOST_LOGGED: (usize, usize) = (200, 100_000);
/// The most writes of Sluice during the trouble.
const MOST_WRITES: usize = 300;

/// The lines and bytes in each replica's log.
fn logged(world: &World) -> Result<Vec<(usize, usize)>> {
    let count = |replica: &Sluice| {
        let text = std::fs::read_to_string(replica.log())?;
        Ok((text.lines().count(), text.len()))
    };
    world.replicas.iter().map(count).collect()
}

/// The logs have grown by no more than they may since `before`.
fn quiet(world: &World, before: &[(usize, usize)]) -> Result<()> {
    for ((now, before), replica) in logged(world)?.into_iter().zip(before).zip(&world.replicas) {
        let (lines, bytes) = (now.0 - before.0, now.1 - before.1);
        ensure!(
            lines <= MOST_LOGGED.0 && bytes <= MOST_LOGGED.1,
            "{lines} lines and {bytes} bytes more. {}",
            replica.log_tail()
        );
    }
    Ok(())
}

/// The logs stay quiet for this long.
async fn quiet_for(world: &World, time: Duration, before: &[(usize, usize)]) -> Result<()> {
    let end = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < end {
        quiet(world, before)?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn in_trouble_sluice_writes_little_and_afterwards_it_goes_on() {
    World::run("trouble", SLUICE, 2, async |world| {
        world.apply(&format!("{}{}", nodes(1, 4), team("a", 4))).await?;
        world.kubectl.apply(&Job::new("a", "first").gpus(4).lasts(Duration::from_secs(8)).manifest()).await?;
        running(world, "a", 1).await?;
        for number in 0..20 {
            let waits = Job::new("a", &format!("waits-{number}")).gpus(2).lasts(Duration::from_secs(1));
            world.kubectl.apply(&waits.manifest()).await?;
        }

        // All rights of its account are taken away while capacity comes free for work that waits.
        let before = logged(world)?;
        let written = world.cluster.audit().writes()?.len();
        world.kubectl.ok(&[&["delete", "-n", "sluice-system"], &RIGHTS[..]].concat()).await?;
        world
            .until("the first Job has ended", |view| match view.job("a", "first") {
                Some(job) if job.complete => Ok(()),
                other => Err(format!("{other:?}")),
            })
            .await?;
        quiet_for(world, Duration::from_secs(10), &before).await?;
        let writes = world.cluster.audit().writes()?;
        let own = writes[written..].iter().filter(|write| write.user.ends_with(":sluice")).count();
        ensure!(own <= MOST_WRITES, "{own} writes without rights");
        for file in ["rbac", "kinds"] {
            let file = format!("{}/manifests/base/{file}.yaml", env!("CARGO_MANIFEST_DIR"));
            world.kubectl.ok(&["apply", "-f", &file]).await?;
        }
        complete(world, "a", 21).await?;

        // The API server is away for longer than the lease.
        let before = logged(world)?;
        world.cluster.stop("kube-apiserver").await?;
        for replica in &world.replicas {
            let follows = async || match replica.get("/metrics").await {
                Ok(metrics) if metrics.lines().any(|line| line == "sluice_leader 0") => Ok(()),
                Ok(_) => Err("it leads".to_owned()),
                Err(error) => Err(format!("{error:#}")),
            };
            eventually("no replica leads", patience(), follows).await?;
        }
        quiet_for(world, Duration::from_secs(15), &before).await?;
        world.cluster.start("kube-apiserver").await?;
        let job = Job::new("a", "after").lasts(Duration::from_secs(1)).manifest();
        let made = async || world.kubectl.apply(&job).await.map_err(|error| format!("{error:#}"));
        eventually("a Job can be created again", patience(), made).await?;
        // Other controllers pause for up to a minute after an outage, so its pod may come late.
        world
            .until("the Job is admitted", |view| match view.job("a", "after") {
                Some(job) if job.admission.is_some() => Ok(()),
                other => Err(format!("{other:?}")),
            })
            .await?;
        quiet(world, &before)?;
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
