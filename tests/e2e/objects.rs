//! Jobs in the forms in which users and controllers create them.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use sluice_harness::{View, World, running_uids};

use crate::support::{Job, SLUICE, complete, nodes, queued, running, team};

#[tokio::test(flavor = "multi_thread")]
async fn jobs_of_a_cronjob_and_jobs_named_by_the_server_run() {
    World::run("made", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}", nodes(1, 2), team("a", 2))).await?;
        let cron = "
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: a}
spec:
  schedule: '* * * * *'
  jobTemplate:
    spec:
      template:
        metadata: {annotations: {simulate.sluice.dev/duration: 1s}}
        spec:
          restartPolicy: Never
          containers: [{name: main, image: registry.example/train, resources: {limits: {nvidia.com/gpu: 1}}}]
";
        world.kubectl.apply(cron).await?;
        let generated = Job::new("a", "x").lasts(Duration::from_secs(1)).manifest();
        let generated = generated.replacen("  name: x", "  generateName: named-by-the-server-", 1);
        world.kubectl.create(&generated).await?;
        world.kubectl.create(&generated).await?;
        complete(world, "a", 2).await?;

        // The next full minute starts it.
        let what = "the CronJob's Job is Complete";
        let view = sluice_harness::until(&world.client, what, Duration::from_secs(100), |view| {
            let made = view.jobs_in("a").filter(|job| job.name.starts_with("nightly-") && job.complete);
            if made.count() > 0 { Ok(()) } else { Err(view.summary("a")) }
        })
        .await?;
        let unmanaged = view.jobs_in("a").filter(|job| job.admission.is_none()).count();
        ensure!(unmanaged == 0, "{unmanaged} Jobs ran without admission");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_its_user_suspends_waits_for_its_user() {
    World::run("own-hold", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}", nodes(1, 1), team("a", 1))).await?;
        world.kubectl.apply(&Job::new("a", "mine").spec("suspend: true").manifest()).await?;
        let held = |view: &sluice_harness::View| match view.job("a", "mine") {
            Some(job) if job.suspended && !job.held && job.admission.is_none() => Ok(()),
            other => Err(format!("{other:?}")),
        };
        world.stays("the Job is on hold despite free capacity", Duration::from_secs(3), held).await?;

        // Resumed while the capacity is in use: it is queued, not started.
        let short = Job::new("a", "short").lasts(Duration::from_secs(6));
        world.kubectl.apply(&short.manifest()).await?;
        running(world, "a", 1).await?;
        let release = ["patch", "job", "mine", "--namespace=a", "-p", r#"{"spec":{"suspend":false}}"#];
        world.kubectl.ok(&release).await?;
        queued(world, "a", 1).await?;
        complete(world, "a", 1).await?;
        let view = running(world, "a", 1).await?;
        let job = view.job("a", "mine").context("the Job does not exist")?;
        ensure!(job.admitted(), "{job:?}");
        Ok(())
    })
    .await;
}

/// A Job that a user suspends and resumes at once, and the time between the two.
struct Paused {
    name: String,
    between: Duration,
    /// Whether it is suspended again, also at once.
    held: bool,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_word_of_a_user_counts_while_a_job_stops() {
    World::run("last-word", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}", nodes(1, 16), team("a", 16))).await?;
        let mut all = Vec::new();
        for (kind, ends) in [("quick", 0), ("slow", 10)] {
            let pauses = [(0, false), (300, false), (1000, false), (6000, false), (0, true), (300, true)];
            // A Job whose pods have ended already waits, and then suspending it is no change.
            for (millis, held) in pauses.into_iter().filter(|(_, held)| !held || ends > 0) {
                let name = format!("{kind}-{millis}{}", if held { "-held" } else { "" });
                let job = Job::new("a", &name).ends_slowly(Duration::from_secs(ends));
                world.kubectl.apply(&job.manifest()).await?;
                all.push(Paused { name, between: Duration::from_millis(millis), held });
            }
        }
        let before = running_uids(&running(world, "a", all.len()).await?, "a");
        let suspend = async |name: &str, suspend: bool| {
            let patch = format!(r#"{{"spec":{{"suspend":{suspend}}}}}"#);
            world.kubectl.ok(&["patch", "job", name, "--namespace=a", "-p", &patch]).await.map(drop)
        };
        let pauses = all.iter().map(async |paused: &Paused| {
            suspend(&paused.name, true).await?;
            tokio::time::sleep(paused.between).await;
            suspend(&paused.name, false).await?;
            if paused.held {
                suspend(&paused.name, true).await?;
            }
            Ok::<_, anyhow::Error>(())
        });
        try_join_all(pauses).await?;

        let settled = |view: &View| {
            for Paused { name, held, .. } in &all {
                let job = view.job("a", name).ok_or_else(|| format!("there is no Job {name}"))?;
                let on_hold = job.suspended && !job.held && job.admission.is_none();
                if if *held { !on_hold } else { !job.admitted() || job.active != 1 } {
                    return Err(view.summary("a"));
                }
            }
            Ok(())
        };
        let view = world.until("every Job runs again, or is on hold by its user", settled).await?;
        let again = running_uids(&view, "a");
        ensure!(again.is_disjoint(&before), "each has stopped in between: {}", view.summary("a"));
        ensure!(view.jobs_in("a").all(|job| job.failed_pods == 0), "{}", view.summary("a"));
        world.stays("the Jobs on hold stay there", Duration::from_secs(3), settled).await?;
        Ok(())
    })
    .await;
}

const AFFINITY: &str = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
    {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: DoesNotExist}]}]}}}";

#[tokio::test(flavor = "multi_thread")]
async fn applying_an_unchanged_manifest_again_changes_nothing() {
    World::run("apply-twice", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}", nodes(1, 4), team("a", 4))).await?;
        // Two Jobs that run and two that wait; each pair once with each kind of apply.
        for (name, gpus) in [("runs", 2), ("waits", 4)] {
            for how in ["--server-side=false", "--server-side=true"] {
                let name = format!("{name}-{}", if how.ends_with("true") { "server" } else { "client" });
                let manifest = Job::new("a", &name).gpus(gpus).manifest();
                apply(world, how, &manifest).await?;
                world
                    .until("the Job runs or waits as expected", |view| {
                        let job = view.job("a", &name).ok_or_else(|| "the Job does not exist".to_owned())?;
                        let there = if gpus == 2 { job.admitted() && job.active == 1 } else { job.queued() };
                        if there { Ok(()) } else { Err(format!("{job:?}")) }
                    })
                    .await?;
                for _ in 0..2 {
                    apply(world, how, &manifest).await.with_context(|| format!("{name} again"))?;
                }
            }
        }
        let view = running(world, "a", 2).await?;
        ensure!(view.jobs_in("a").filter(|job| job.queued()).count() == 2, "{}", view.summary("a"));
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_with_an_affinity_can_be_applied_again_while_its_job_runs() {
    World::run("apply-affinity", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}", nodes(2, 1), team("a", 2))).await?;
        for (name, how) in [("client", "--server-side=false"), ("server", "--server-side=true")] {
            let manifest = Job::new("a", name).pod_spec(AFFINITY).manifest();
            apply(world, how, &manifest).await?;
            world
                .until("the Job runs", |view| match view.job("a", name) {
                    Some(job) if job.admitted() && job.active == 1 => Ok(()),
                    other => Err(format!("{other:?}")),
                })
                .await?;
            apply(world, how, &manifest).await.with_context(|| format!("{name} again"))?;
        }
        running(world, "a", 2).await?;
        Ok(())
    })
    .await;
}

async fn apply(world: &World, how: &str, manifest: &str) -> Result<()> {
    let outcome = world.kubectl.run(&["apply", how, "-f", "-"], Some(manifest)).await?;
    ensure!(outcome.success, "kubectl apply {how} failed: {}", outcome.stderr.trim());
    Ok(())
}
