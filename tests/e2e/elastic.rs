//! Elastic Jobs shrink before a workload is evicted, grow back, and grow when their user asks for more.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use sluice_harness::{View, World};

use crate::support::{Job, SLUICE, complete, nodes, team};

/// Waits until the elastic Job runs with this many granted pods, `of` those that it requests.
async fn runs_with(world: &World, pods: u32, of: u32) -> Result<()> {
    world
        .until(&format!("{pods} pods of the elastic Job run"), |view| {
            let job = view.job("a", "elastic").ok_or_else(|| "the Job does not exist".to_owned())?;
            let granted = job.admission.as_ref().map(|record| (record.pods, record.wanted));
            let wanted = (pods < of).then_some(of);
            let there = granted == Some((pods, wanted)) && view.running("a").count() == pods as usize;
            if there { Ok(()) } else { Err(format!("{job:?}")) }
        })
        .await
        .map(|_| ())
}

/// Waits until that many pods of the elastic Job run.
async fn runs(world: &World, pods: u32) -> Result<()> {
    let check = |view: &View| match view.running("a").count() {
        there if there == pods as usize => Ok(()),
        there => Err(format!("{there}")),
    };
    world.until(&format!("{pods} pods of the elastic Job run"), check).await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_elastic_job_shrinks_instead_of_being_evicted_grows_back_and_grows_for_its_user() {
    World::run("elastic", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}{}", nodes(1, 4), team("a", 1), team("b", 2))).await?;
        let elastic = Job::new("a", "elastic").annotated("min-parallelism", "1").spec("parallelism: 4");
        world.kubectl.apply(&elastic.manifest()).await?;
        runs_with(world, 4, 4).await?;
        let owner = Job::new("b", "owner").gpus(2).lasts(Duration::from_secs(8));
        world.kubectl.apply(&owner.manifest()).await?;
        runs_with(world, 2, 4).await?;
        // Its manifest still requests four pods, and may be applied again.
        world.kubectl.apply(&elastic.manifest()).await?;
        let view = complete(world, "b", 1).await?;
        ensure!(view.job("b", "owner").is_some_and(|job| job.complete), "{}", view.summary("b"));
        runs_with(world, 4, 4).await?;
        let view = world.view().await?;
        let job = view.job("a", "elastic").context("the Job does not exist")?;
        ensure!(job.eviction.is_none() && job.failed_pods == 0 && !job.suspended, "{job:?}");
        // A larger parallelism is granted as far as there is capacity, on any node. A smaller one is followed at once, and the room is
        // kept while no other workload wants it.
        world.apply(&nodes(2, 4)).await?;
        for parallelism in [10, 3, 5] {
            let patch = format!(r#"{{"spec":{{"parallelism":{parallelism}}}}}"#);
            world.kubectl.ok(&["patch", "job", "elastic", "--namespace=a", "-p", &patch]).await?;
            match parallelism {
                10 => runs_with(world, 8, parallelism).await?,
                _ => runs(world, parallelism).await?,
            }
        }
        let view = world.view().await?;
        let job = view.job("a", "elastic").context("the Job does not exist")?;
        ensure!(job.eviction.is_none() && job.failed_pods == 0 && !job.suspended, "{job:?}");
        Ok(())
    })
    .await;
}
