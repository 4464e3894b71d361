//! The leader is killed while it admits; another replica takes over.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sluice::api::names;
use sluice_harness::{Options, Sluice, World, eventually, patience};

use crate::support::{Job, SLUICE, complete, nodes, queued, running, team, team_of};

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

/// What a replica says of a waiting Job: its reason and sentence.
async fn verdict(replica: &Sluice, job: &str) -> Result<(String, String), String> {
    let rows = replica.workload("a", job).await.map_err(|error| format!("{error:#}"))?;
    let row = &rows[0];
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
    Ok((text("reason"), text("message")))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_says_of_waiting_jobs_what_the_leader_says() {
    World::run("standby", SLUICE, 2, async |world| {
        let quota = "quotas: [{guaranteed: {nvidia.com/gpu: 2}, limit: {nvidia.com/gpu: 3}}]";
        let queues = "queues: [{name: train}, {name: fixed, preemptible: false}]";
        world.apply(&format!("{}{}", nodes(1, 4), team_of("a", &[quota, queues]))).await?;
        world.kubectl.apply(&Job::new("a", "first").gpus(2).manifest()).await?;
        running(world, "a", 1).await?;
        let waiting = [
            Job::new("a", "above-the-limit").gpus(2),
            Job::new("a", "too-large").gpus(5),
            Job::new("a", "fixed").gpus(3).queue("fixed"),
        ];
        for job in &waiting {
            world.kubectl.apply(&job.manifest()).await?;
        }
        queued(world, "a", 3).await?;
        for job in ["above-the-limit", "too-large", "fixed"] {
            let (leader, standby) = eventually("both replicas say the same", patience(), async || {
                let leader = world.leader().await.map_err(|error| format!("{error:#}"))?;
                let leads = verdict(&world.replicas[leader], job).await?;
                let stands_by = verdict(&world.replicas[1 - leader], job).await?;
                if leads == stands_by {
                    Ok((leads, stands_by))
                } else {
                    Err(format!("{leads:?}, {stands_by:?}"))
                }
            })
            .await?;
            println!("{job}: {standby:?}");
            ensure!(leader.0 != "NotYetConsidered" && !leader.1.is_empty(), "{leader:?}");
        }
        Ok(())
    })
    .await;
}

/// The terms that a replica has begun, warm and cold.
async fn takeovers(replica: &Sluice) -> Result<[u64; 2]> {
    let metrics = replica.get("/metrics").await?;
    let count = |kind: &str| {
        let series = format!("sluice_takeovers_total{{kind=\"{kind}\"}} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&series));
        value.and_then(|value| value.parse().ok()).with_context(|| format!("{series}is missing"))
    };
    Ok([count("warm")?, count("cold")?])
}

/// Waits until the status of team a counts so many runs by class.
async fn run_lengths(world: &World, runs: &str) -> Result<()> {
    eventually("the status of team a has run lengths", patience(), async || {
        let path = "jsonpath={.status.runLengths[*].runs}";
        let counted = world.kubectl.ok(&["get", "team", "a", "-o", path]).await;
        let counted = counted.map_err(|error| format!("{error:#}"))?;
        if counted.trim() == runs { Ok(()) } else { Err(counted) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_takes_over_with_what_it_knows_and_keeps_the_order_of_past_usage() {
    let mut options = Options::new(SLUICE);
    // The past usage of a few seconds is then far from what a status rounds away.
    options.flags = vec!["--usage-half-life=2m".to_owned()];
    World::run_with("warm", options, 2, async |world| {
        let owner = team("owner", 2);
        let borrowers = [team("a", 0), team("b", 0)].concat();
        world.apply(&format!("{}{owner}{borrowers}", nodes(1, 2))).await?;
        let leader = world.leader().await?;
        // Team a has borrowed, and its status says so.
        let borrows = Job::new("a", "borrows").gpus(2).lasts(Duration::from_secs(6));
        world.kubectl.apply(&borrows.manifest()).await?;
        complete(world, "a", 1).await?;
        eventually("the status of team a has past usage", patience(), async || {
            let path = r"jsonpath={.status.pools[*].decayedUsage.nvidia\.com/gpu}";
            let past = world.kubectl.ok(&["get", "team", "a", "-o", path]).await;
            let past = past.map_err(|error| format!("{error:#}"))?;
            let milli = past.trim().strip_suffix('m').and_then(|milli| milli.parse::<u32>().ok());
            if milli.is_some_and(|milli| milli >= 20) { Ok(()) } else { Err(past) }
        })
        .await?;
        // One run, counted by size, by queue and for the whole team.
        run_lengths(world, "1 1 1").await?;
        world.kubectl.ok(&["delete", "job", "borrows", "--namespace=a", "--wait=false"]).await?;
        world.kubectl.apply(&Job::new("owner", "keeps").gpus(2).manifest()).await?;
        running(world, "owner", 1).await?;
        // The Job of team a is the older one; team b comes first, because it has borrowed nothing.
        for (namespace, waiting) in [("a", 1), ("b", 1)] {
            world.kubectl.apply(&Job::new(namespace, "waits").gpus(2).manifest()).await?;
            queued(world, namespace, waiting).await?;
        }
        world.replicas[leader].kill().await?;
        let killed = Instant::now();
        let next = 1 - leader;
        eventually("the other replica decides", patience(), async || {
            match takeovers(&world.replicas[next]).await.map_err(|error| format!("{error:#}"))? {
                [0, 0] => Err("not yet".to_owned()),
                terms => Ok(terms),
            }
        })
        .await?;
        println!("the other replica decides {:.1?} after the leader's death", killed.elapsed());
        let terms = takeovers(&world.replicas[next]).await?;
        ensure!(terms == [1, 0], "{terms:?} terms, warm and cold");
        let log = std::fs::read_to_string(world.replicas[next].log())?;
        for line in log.lines().filter(|line| line.contains("leader")) {
            println!("{line}");
        }
        world.kubectl.ok(&["delete", "job", "keeps", "--namespace=owner", "--wait=false"]).await?;
        let view = running(world, "b", 1).await?;
        ensure!(view.jobs_in("a").any(|job| job.queued()), "{}", view.summary("a"));
        // The Job is gone, and the new leader goes on with what the status says.
        run_lengths(world, "1 1 1").await?;
        Ok(())
    })
    .await;
}
