//! Writes that Sluice costs the API server.

use anyhow::{Context as _, Result, ensure};
use sluice::api::names;
use sluice_harness::{World, Write, eventually, patience};

use crate::limits::says;
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
        no_other_is_evicted_again_for_a_refused_admission(world).await
    })
    .await;
}

/// A policy of the cluster by which some Jobs may not start.
const FRIDAY: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: friday}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [batch], apiVersions: [v1], resources: [jobs], operations: [UPDATE]}]
  validations:
  - expression: \"!object.metadata.name.startsWith('release') || object.spec.suspend\"
    message: No release starts on a Friday.
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: friday}
spec: {policyName: friday, validationActions: [Deny]}
";
const SAID: &str = "No release starts on a Friday.";

/// Waits until the API server refuses the start of such a Job, or allows it.
async fn friday(world: &World, is: bool) -> Result<()> {
    eventually(&format!("the policy holds: {is}"), patience(), async || {
        let start = r#"{"spec":{"suspend":false}}"#;
        let patch = ["patch", "job", "release", "--namespace=default", "--dry-run=server", "-p", start];
        let outcome = world.kubectl.run(&patch, None).await.map_err(|error| format!("{error:#}"))?;
        let refused = !outcome.success && outcome.stderr.contains(SAID);
        if refused == is && (refused || outcome.success) { Ok(()) } else { Err(format!("{outcome:?}")) }
    })
    .await
}

/// The number of workloads of team a that were evicted.
async fn evicted(world: &World) -> Result<f64> {
    let metrics = world.replicas[0].get("/metrics").await?;
    let of_team = |line: &&str| line.starts_with("sluice_evicted_total{") && line.contains(r#"team="a""#);
    metrics
        .lines()
        .filter(of_team)
        .map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse::<f64>()?))
        .sum()
}

/// The API server refuses the start of a Job after two others were evicted for it.
async fn no_other_is_evicted_again_for_a_refused_admission(world: &World) -> Result<()> {
    world
        .kubectl
        .apply(&format!("{FRIDAY}---{}", Job::new("default", "release").spec("suspend: true").manifest()))
        .await?;
    friday(world, true).await?;
    let before = evicted(world).await?;
    world.kubectl.ok(&["delete", "job", "owner-0", "owner-1", "owner-2", "--namespace=b"]).await?;
    running(world, "a", 13).await?;

    world.kubectl.apply(&Job::new("b", "release").gpus(2).manifest()).await?;
    // It was attempted again after its pause, and took nothing from the others.
    let only_free = "Until its object changes it takes free capacity only";
    eventually("Sluice says so", patience(), async || {
        let rows = world.replicas[0].workload("b", "release").await.map_err(|error| format!("{error:#}"))?;
        let message = rows[0]["message"].as_str().unwrap_or_default();
        if message.contains(only_free) && message.contains(SAID) { Ok(()) } else { Err(rows.to_string()) }
    })
    .await?;
    let explained = says(world, &["explain", "b/release"]).await?;
    ensure!(explained.contains(SAID), "{explained}");
    // The others have what was freed, and the team goes on with its next Job.
    running(world, "a", 13).await?;
    ensure!(evicted(world).await? == before + 2.0, "{} evictions", evicted(world).await? - before);
    world.kubectl.apply(&Job::new("b", "next").manifest()).await?;
    running(world, "b", 8).await?;
    running(world, "a", 12).await?;
    ensure!(evicted(world).await? == before + 3.0, "{} evictions", evicted(world).await? - before);
    // An Event of the workload may have been about its victims, and the next one comes a minute later.
    eventually("kubectl describe says so", 2 * patience(), async || {
        let described = world.kubectl.ok(&["describe", "job", "release", "--namespace=b"]).await;
        let described = described.map_err(|error| format!("{error:#}"))?;
        if described.contains(SAID) { Ok(()) } else { Err(described) }
    })
    .await?;
    ensure!(evicted(world).await? == before + 3.0, "{} evictions", evicted(world).await? - before);

    world.kubectl.ok(&["delete", "validatingadmissionpolicybinding", "friday"]).await?;
    friday(world, false).await?;
    world.kubectl.ok(&["annotate", "job", "release", "--namespace=b", "day=monday"]).await?;
    running(world, "b", 9).await.context("once its object has changed")?;
    Ok(())
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
