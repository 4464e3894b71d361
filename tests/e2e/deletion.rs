//! Jobs deleted at any time free their capacity.

use std::time::Duration;

use anyhow::{Result, ensure};
use sluice_harness::World;

use crate::support::{Job, SLUICE, complete, nodes, running, team};

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
