//! Volcano's shapes: 10,000 pods in Jobs of different sizes.

use std::time::Instant;

use anyhow::{Context as _, Result};

use crate::figures::{Rows, seconds_of};
use crate::jobs::Shape;
use crate::load;
use crate::stage::{RAW, Running, Side, Stage};

const TEAM: &str = "
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {name: shapes}
spec: {quotas: [{guaranteed: {cpu: 10000}}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: shapes, labels: {sluice.dev/team: shapes}}
";

/// What Volcano says about failed creates in such a part.
pub fn failed_there(part: &str) -> &'static str {
    if part == "20x500" { "Volcano: 98.7 %" } else { "" }
}

/// A shape such as `500x20`, from the first create until all pods run.
pub async fn run(stage: &mut Stage, shape: &str, rows: &mut Rows) -> Result<()> {
    let (jobs, pods) = shape.split_once('x').context("JOBSxPODS")?;
    let (jobs, pods): (usize, usize) = (jobs.parse()?, pods.parse()?);
    let took = async |stage: &Stage, namespaces: &[&str]| {
        let mut running = Running::watch(&stage.client, shape);
        let (before, began) = (stage.processors()?, Instant::now());
        let all = Shape { pods, asks: ("cpu", 1), ..Shape::single(shape, namespaces) };
        all.create(&stage.client, jobs).await?;
        let took = running.reaches(jobs * pods).await? - began;
        stage.say_processors(&before)?;
        anyhow::Ok(took)
    };
    let mut raw = None;
    if stage.runs(Side::Raw) {
        stage.without_sluice().await?;
        load::quiet().await?;
        raw = Some(took(stage, &RAW[..1]).await?);
    }
    let mut sluice = None;
    if stage.runs(Side::Sluice) {
        load::clear(&stage.client, &RAW).await?;
        stage.with_sluice(TEAM).await?;
        load::quiet().await?;
        sluice = Some(took(stage, &["shapes"]).await?);
    }
    let figure = format!("{jobs} Jobs of {pods} pods, created and run");
    let peer = if pods == 1 { "Volcano 250 s, 180 s without webhooks" } else { "" };
    rows.add(shape, &figure, &seconds_of(raw), &seconds_of(sluice), "", peer);
    Ok(())
}
