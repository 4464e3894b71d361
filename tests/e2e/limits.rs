//! Queues that bound how long a workload waits and runs, and with that the start of the next one.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use sluice::view::{EtaRow, NodeRow, WhatIfRow, WorkloadRow};
use sluice_harness::{User, World, eventually, patience};
use tokio::process::Command;

use crate::support::{Job, SLUICE, complete, items, nodes, quota, running, team_of};

/// Output of the command line for the administrator, about all namespaces unless the arguments name one.
pub async fn says(world: &World, arguments: &[&str]) -> Result<String> {
    let everywhere = (!arguments.contains(&"-n")).then_some("-A");
    let mut command = Command::new(SLUICE);
    command.args(arguments).args(everywhere).env("KUBECONFIG", world.cluster.kubeconfig(User::Admin));
    let output = command.output().await?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "{arguments:?}: {text} {}", String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

/// The expected start of a waiting Job, once Sluice reports one.
async fn expected(world: &World, name: &str) -> Result<Arc<EtaRow>> {
    eventually(&format!("{name} has an expected start"), patience(), async || {
        let text = says(world, &["explain", &format!("a/{name}"), "--output=json"]).await;
        let rows: Vec<WorkloadRow> =
            items(&text.map_err(|error| error.to_string())?).map_err(|error| error.to_string())?;
        match rows.first().and_then(|row| row.eta.clone()) {
            Some(eta) if eta.late.is_some() => Ok(eta),
            _ => Err(format!("{rows:?}")),
        }
    })
    .await
}

/// Job `runs` holds both GPUs of the node until its limit, and Job `next` is expected there then.
async fn the_run_in_the_way_has_an_end(world: &World, eta: &EtaRow) -> Result<()> {
    let nodes: Vec<NodeRow> = serde_json::from_value(world.replicas[0].ask(json!({"nodes": {}})).await?)?;
    let there = nodes.first().and_then(|node| node.workloads.first()).context("a workload on the node")?;
    ensure!((there.workload.as_str(), there.gpus) == ("a/runs", 2.0) && !there.borrowed, "{nodes:?}");
    let (until, start) = (there.until.context("its end")?, eta.likely.context("a start")?);
    ensure!(
        (until.as_second() - start.as_second()).abs() <= 10,
        "ends at {until}, and the next starts at {start}"
    );
    let rows: Vec<WorkloadRow> = serde_json::from_value(world.replicas[0].workload("a", "next").await?)?;
    let run = rows.first().and_then(|row| row.run.clone()).context("an expected run")?;
    ensure!(run.nodes == [("gpu-0".to_owned(), 1)].into(), "{run:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_waits_or_runs_too_long_fails_with_a_reason() {
    World::run("limits", SLUICE, 1, async |world| {
        let queues =
            "queues: [{name: short, maxWait: 4s, onMaxWait: Fail, maxRuntime: 16s}, {name: patient}]";
        world.apply(&format!("{}{}", nodes(1, 2), team_of("a", &[&quota(2), queues]))).await?;
        world.kubectl.apply(&Job::new("a", "runs").gpus(2).manifest()).await?;
        running(world, "a", 1).await?;
        world.kubectl.apply(&Job::new("a", "waits").gpus(2).manifest()).await?;
        let next = Job::new("a", "next").gpus(2).lasts(Duration::from_secs(1)).queue("patient");
        world.kubectl.apply(&next.manifest()).await?;
        let eta = expected(world, "next").await?;
        the_run_in_the_way_has_an_end(world, &eta).await?;
        let queue = says(world, &["queue", "--columns=name,eta", "--no-headers"]).await?;
        ensure!(queue.lines().any(|line| line.starts_with("next ") && line.ends_with('s')), "{queue}");
        let explained = says(world, &["explain", "a/next"]).await?;
        ensure!(explained.contains("Expected    start in"), "{explained}");
        let same = says(world, &["explain", "job/next", "-n", "a"]).await?;
        ensure!(same.starts_with("Job a/next is Pending"), "{same}");
        let wrong = says(world, &["explain", "po/next", "-n", "a"]).await;
        let wrong = wrong.unwrap_or_else(|error| error.to_string());
        ensure!(wrong.contains("there is no po a/next, but a Job of that name"), "{wrong}");
        // A what-if question is answered without submitting the Job.
        let file = world.cluster.scratch()?.join("another.yaml");
        let another = Job::new("a", "another").gpus(2).annotated("time-limit", "1m").queue("patient");
        std::fs::write(&file, another.manifest())?;
        let file = file.display().to_string();
        let answer = says(world, &["what-if", "--file", &file, "--output=json"]).await?;
        let row: WhatIfRow = items(&answer)?.pop().context("a row")?;
        ensure!(
            row.head.team == "a" && row.head.queue == "patient" && row.head.state == "Pending",
            "{answer}"
        );
        world
            .until("both have failed", |view| {
                let failed = view.jobs_in("a").filter(|job| job.failed).count();
                if failed == 2 { Ok(()) } else { Err(view.summary("a")) }
            })
            .await?;
        for (name, reason) in [("waits", "MaxWait"), ("runs", "MaxRuntime")] {
            let path = r#"jsonpath={.status.conditions[?(@.type=="Failed")].reason}"#;
            let job = format!("job/{name}");
            let found = world.kubectl.ok(&["get", &job, "--namespace=a", "-o", path]).await?;
            ensure!(found == reason, "{name} has failed with {found:?}");
            let selector = format!("--field-selector=reason={reason},involvedObject.name={name}");
            eventually(&format!("an Event {reason}"), patience(), async || {
                let list = ["get", "events", "--namespace=a", "-o", "name", &selector];
                match world.kubectl.ok(&list).await {
                    Ok(names) if names.lines().count() == 1 => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            })
            .await?;
        }
        // The capacity is free for the Job in the patient queue, from the reported time on.
        let view = world
            .until("the patient Job is admitted", |view| {
                let admitted = view.job("a", "next").is_some_and(|job| job.admission.is_some());
                if admitted { Ok(()) } else { Err(view.summary("a")) }
            })
            .await?;
        let started =
            view.job("a", "next").and_then(|job| job.admission.as_ref()).context("the Job never started")?.at;
        let seconds = |at: Option<jiff::Timestamp>| Some(at?.as_second());
        let (early, late) = (seconds(eta.early).context("no start")?, seconds(eta.late).context("no end")?);
        // A run that ends in time takes a moment more to stop and disappear.
        ensure!(
            (early - 1..=late + 10).contains(&started.as_second()),
            "started at {started}, expected {eta:?}"
        );
        complete(world, "a", 1).await?;
        let view = world.view().await?;
        ensure!(
            view.job("a", "waits").is_some_and(|job| job.admission.is_none()),
            "the Job ran after its deadline"
        );
        ensure!(view.job("a", "another").is_none(), "a what-if question created the Job");
        Ok(())
    })
    .await;
}
