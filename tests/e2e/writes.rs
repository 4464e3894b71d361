//! Writes that Sluice costs the API server.

use anyhow::{Result, ensure};
use sluice::api::names;
use sluice_harness::{World, Write};

use crate::support::{Job, SLUICE, nodes, queued, running, team};

#[tokio::test(flavor = "multi_thread")]
async fn an_admission_is_one_write_and_an_eviction_at_most_three() {
    World::run("writes", SLUICE, 1, async |world| {
        world.apply(&format!("{}{}{}", nodes(2, 10), team("a", 10), team("b", 10))).await?;
        world.apply(&Job::new("a", "job").copies(20).scenario()).await?;
        running(world, "a", 20).await?;
        let admitted = written(world)?;
        for job in (0..20).map(|job| format!("job-{job}")) {
            let writes = about(&admitted, &job);
            ensure!(writes == ["patch jobs"], "the admission of {job} took {writes:?}");
        }
        let events = admitted.iter().filter(|write| write.resource == "events").count();
        ensure!(events <= 20, "20 admissions make {events} events");

        world.apply(&Job::new("b", "owner").copies(10).scenario()).await?;
        running(world, "b", 10).await?;
        let view = queued(world, "a", 10).await?;
        let all = written(world)?;
        for job in view.jobs_in("a").filter(|job| job.queued()) {
            let writes = about(&all[admitted.len()..], &job.name);
            ensure!(
                (1..=3).contains(&writes.len()),
                "the eviction of {} took {} writes: {writes:?}",
                job.name,
                writes.len()
            );
        }
        for job in view.jobs_in("a").filter(|job| job.admitted()) {
            let writes = about(&all[admitted.len()..], &job.name);
            ensure!(writes.is_empty(), "{} was not evicted, and yet written: {writes:?}", job.name);
        }
        Ok(())
    })
    .await;
}

/// The writes of Sluice, except those of its own Lease.
fn written(world: &World) -> Result<Vec<Write>> {
    let mut writes = world.cluster.audit().by(names::ACCOUNT)?;
    writes.retain(|write| write.resource != "leases");
    Ok(writes)
}

/// The writes on a Job and on its pods.
fn about(writes: &[Write], job: &str) -> Vec<String> {
    let of_pod = format!("{job}-");
    let ours = writes.iter().filter(|write| match write.resource.as_str() {
        "jobs" | "jobs/status" => write.name == job,
        "pods" | "pods/status" => {
            write.name.starts_with(&of_pod) && !write.name[of_pod.len()..].contains('-')
        }
        _ => false,
    });
    ours.map(|write| format!("{} {}", write.verb, write.resource)).collect()
}
