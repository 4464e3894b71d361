//! Very many Jobs that wait.

use std::time::{Duration, Instant};

use anyhow::Result;
use sluice_harness::User;

use crate::figures::{Rows, seconds, seconds_of};
use crate::jobs::Shape;
use crate::listing;
use crate::load;
use crate::measures::resident_megabytes;
use crate::stage::{RAW, Running, Side, Stage, say};

/// Jobs that start at once.
const OPENED: usize = 2_000;
/// Teams with Jobs that wait.
const TEAMS: usize = 10;

fn objects(limit: usize) -> String {
    let waiting: String = (0..TEAMS)
        .map(|team| {
            format!(
                "---
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {{name: waits-{team}}}
spec: {{quotas: [{{limit: {{nvidia.com/gpu: 0}}}}]}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: waits-{team}, labels: {{sluice.dev/team: waits-{team}}}}}
"
            )
        })
        .collect();
    format!(
        "
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {{name: opens}}
spec: {{quotas: [{{limit: {{nvidia.com/gpu: {limit}}}}}]}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: opens, labels: {{sluice.dev/team: opens}}}}
{waiting}"
    )
}

/// Memory, admissions and `sluice queue` while so many wait.
pub async fn run(stage: &mut Stage, count: usize, rows: &mut Rows) -> Result<()> {
    const PART: &str = "waiting";
    let few_wait = format!("{OPENED} Jobs of another team start, none waits");
    let client = stage.client.clone();
    let mut raw_took = None;
    if stage.runs(Side::Raw) {
        stage.without_sluice().await?;
        let raw = Shape { suspend: true, ..Shape::single("raw-opens", &RAW) };
        raw.create(&client, OPENED).await?;
        load::quiet().await?;
        let mut running = Running::watch(&client, raw.step);
        let began = Instant::now();
        let ((), ended) = tokio::try_join!(raw.start(&client, OPENED), running.reaches(OPENED))?;
        raw_took = Some(ended - began);
    }
    if !stage.runs(Side::Sluice) {
        rows.add(PART, &few_wait, &seconds_of(raw_took), "", "", "");
        return Ok(());
    }
    load::clear(&client, &RAW).await?;

    stage.with_sluice(&objects(0)).await?;
    let few = opened(stage, "opens-first").await?;
    load::clear(&client, &["opens"]).await?;
    let names: Vec<String> = (0..TEAMS).map(|team| format!("waits-{team}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (before, processors) = (Instant::now(), stage.processors()?);
    Shape::single("waits", &names).create(&client, count).await?;
    say(&format!("  {count} created after {}", seconds(before.elapsed())));
    stage.say_processors(&processors)?;
    load::quiet().await?;
    let idle = resident_megabytes(stage.process()?)?;
    let many = opened(stage, "opens-then").await?;
    let busy = resident_megabytes(stage.process()?)?;
    // The first question to this process, and one after it.
    load::quiet().await?;
    let admin = stage.cluster.kubeconfig(User::Admin);
    let (first, megabytes, lines) = listing::queue(&stage.program, &admin).await?;
    let (again, _, _) = listing::queue(&stage.program, &admin).await?;

    rows.add(PART, &few_wait, &seconds_of(raw_took), &seconds(few), "", "");
    let figure = format!("{OPENED} Jobs of another team start, {count} wait");
    rows.add(PART, &figure, "", &seconds(many), "unchanged", "");
    let memory = format!("{idle:.0} / {busy:.0} MB");
    rows.add(PART, &format!("memory while {count} wait, and after that"), "", &memory, "< 500 MB", "");
    let took = format!("{} / {}", seconds(first), seconds(again));
    rows.add(PART, &format!("`sluice queue -A`, {lines} rows, first and again"), "", &took, "< 1 s", "");
    rows.add(PART, "memory of `sluice queue`", "", &format!("{megabytes:.0} MB"), "", "");
    Ok(())
}

/// From the time at which the limit is lifted until all run.
async fn opened(stage: &mut Stage, step: &str) -> Result<Duration> {
    let client = stage.client.clone();
    stage.with_sluice(&objects(0)).await?;
    Shape::single(step, &["opens"]).create(&client, OPENED).await?;
    load::quiet().await?;
    let mut running = Running::watch(&client, step);
    let (before, began) = (stage.processors()?, Instant::now());
    stage.with_sluice(&objects(OPENED)).await?;
    let took = running.reaches(OPENED).await? - began;
    stage.say_processors(&before)?;
    Ok(took)
}
