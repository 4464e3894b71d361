//! Queues that bound how long a workload waits and runs.

use std::time::Duration;

use anyhow::ensure;
use sluice_harness::{World, eventually, patience};

use crate::support::{Job, SLUICE, complete, nodes, running};

const TEAM: &str = "
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {name: a}
spec:
  quotas:
  - guaranteed: {nvidia.com/gpu: 2}
  queues:
  - {name: short, maxWait: 4s, onMaxWait: Fail, maxRuntime: 8s}
---
apiVersion: v1
kind: Namespace
metadata:
  name: a
  labels: {sluice.dev/team: a}
---";

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_or_runs_too_long_fails_and_says_why() {
    World::run("limits", SLUICE, 1, async |world| {
        world.apply(&format!("{}{TEAM}", nodes(1, 2))).await?;
        world.kubectl.apply(&Job::new("a", "runs").gpus(2).manifest()).await?;
        running(world, "a", 1).await?;
        world.kubectl.apply(&Job::new("a", "waits").gpus(2).manifest()).await?;
        world
            .until("both have failed", |view| {
                let failed = view.jobs_in("a").filter(|job| job.failed).count();
                if failed == 2 { Ok(()) } else { Err(view.summary("a")) }
            })
            .await?;
        for (name, reason) in [("waits", "MaxWait"), ("runs", "MaxRuntime")] {
            let path = r#"jsonpath={.status.conditions[?(@.type=="Failed")].reason}"#;
            let job = format!("job/{name}");
            let told = world.kubectl.ok(&["get", &job, "--namespace=a", "-o", path]).await?;
            ensure!(told == reason, "{name} has failed with {told:?}");
            let selector = format!("--field-selector=reason={reason},involvedObject.name={name}");
            eventually(&format!("an Event says {reason}"), patience(), async || {
                let list = ["get", "events", "--namespace=a", "-o", "name", &selector];
                match world.kubectl.ok(&list).await {
                    Ok(names) if names.lines().count() == 1 => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            })
            .await?;
        }
        // Their room is free for others.
        let next = Job::new("a", "next").gpus(2).lasts(Duration::from_secs(1));
        world.kubectl.apply(&next.manifest()).await?;
        let view = complete(world, "a", 1).await?;
        ensure!(view.job("a", "next").is_some_and(|job| job.complete), "{}", view.summary("a"));
        ensure!(view.job("a", "waits").is_some_and(|job| job.admission.is_none()), "it ran all the same");
        Ok(())
    })
    .await;
}
