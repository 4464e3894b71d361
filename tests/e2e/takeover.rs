//! The leader is killed while it admits; another replica takes over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use sluice::api::names;
use sluice_harness::World;

use crate::support::{Job, SLUICE, complete, nodes, team};

const JOBS: usize = 200;

/// Longest time from the leader's death to the next admission.
const TAKEOVER: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn when_the_leader_is_killed_another_replica_admits_and_no_job_is_lost_or_admitted_twice() {
    World::run("takeover", SLUICE, 2, async |world| {
        world.apply(&format!("{}{}", nodes(4, 10), team("a", 40))).await?;
        let leader = world.leader().await?;
        let jobs = Job::new("a", "work").copies(JOBS).lasts(Duration::from_secs(3));
        let mut submission = world.play(&jobs.scenario()).await?;
        let (submitted, died) = tokio::join!(submission.all(), kill_leader(world, leader));
        submitted?;
        died?;
        let view = complete(world, "a", JOBS).await?;
        let pods = view.pods.iter().filter(|pod| pod.namespace == "a").count();
        ensure!(pods == JOBS, "{JOBS} Jobs had {pods} pods");
        let twice: Vec<_> = admissions(world)?.into_iter().filter(|(_, writes)| *writes != 1).collect();
        ensure!(twice.is_empty(), "admitted more than once: {twice:?}");
        Ok(())
    })
    .await;
}

/// Kills the leader while admissions are in progress, and waits until the other replica admits.
async fn kill_leader(world: &mut World, leader: usize) -> Result<()> {
    world
        .until("admissions are in progress", |view| {
            let admitted = view.jobs_in("a").filter(|job| job.admission.is_some()).count();
            if admitted >= 20 { Ok(()) } else { Err(format!("{admitted} admitted")) }
        })
        .await?;

    world.replicas[leader].kill().await?;
    let killed = Instant::now();
    // The API server may still answer requests of the dead leader. The baseline is therefore the state at the
    // moment when it was last seen to hold the Lease.
    let mut before = 0;
    sluice_harness::eventually("the other replica leads", TAKEOVER, async || {
        let holder = world.leader().await.map_err(|error| format!("{error:#}"))?;
        if holder != leader {
            return Ok(());
        }
        before = admissions(world).map_err(|error| format!("{error:#}"))?.len();
        Err("the dead replica still holds the Lease".to_owned())
    })
    .await?;
    sluice_harness::eventually("the other replica admits", TAKEOVER, async || {
        let now = admissions(world).map_err(|error| format!("{error:#}"))?.len();
        if now > before { Ok(()) } else { Err(format!("{now} admissions")) }
    })
    .await?;
    let gap = killed.elapsed();
    println!("the next admission came {gap:.1?} after the leader's death");
    ensure!(gap < TAKEOVER, "no admission for {gap:.1?} after the leader's death");
    Ok(())
}

/// Number of successful writes of Sluice by Job.
fn admissions(world: &World) -> Result<BTreeMap<String, usize>> {
    let mut jobs = BTreeMap::new();
    for write in world.cluster.audit().by(names::ACCOUNT)? {
        if write.resource == "jobs" && write.namespace == "a" {
            *jobs.entry(write.name).or_default() += 1;
        }
    }
    Ok(jobs)
}
