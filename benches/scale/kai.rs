//! KAI's scale tests: a cluster is filled, and owners take back what others have borrowed.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};

use crate::figures::{Rows, mean, seconds, seconds_of};
use crate::jobs::{self, GPU, Shape};
use crate::load::{self, IN_FLIGHT};
use crate::stage::{RAW, Running, STEP, Side, Stage, say};

/// Two teams: one has all GPUs guaranteed, the other only borrows.
fn teams(gpus: usize, limit: usize) -> String {
    format!(
        "
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {{name: owners}}
spec: {{quotas: [{{guaranteed: {{nvidia.com/gpu: {gpus}}}}}]}}
---
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {{name: borrowers}}
spec: {{quotas: [{{limit: {{nvidia.com/gpu: {limit}}}}}]}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: owners, labels: {{sluice.dev/team: owners}}}}
---
apiVersion: v1
kind: Namespace
metadata: {{name: borrowers, labels: {{sluice.dev/team: borrowers}}}}
"
    )
}

const OWNERS: [&str; 1] = ["owners"];
const BORROWERS: [&str; 1] = ["borrowers"];

/// All GPUs by Jobs of one that wait and start together.
pub async fn fill(stage: &mut Stage, gpus: usize, rows: &mut Rows) -> Result<()> {
    let client = stage.client.clone();
    let mut raw = None;
    if stage.runs(Side::Raw) {
        stage.without_sluice().await?;
        let waiting = Shape { suspend: true, ..Shape::single("raw-fill", &RAW) };
        waiting.create(&client, gpus).await?;
        load::quiet().await?;
        let mut running = Running::watch(&client, waiting.step);
        say("  raw-fill: they start");
        let (before, began) = (stage.processors()?, Instant::now());
        let ((), ended) = tokio::try_join!(waiting.start(&client, gpus), running.reaches(gpus))?;
        raw = Some(ended - began);
        stage.say_processors(&before)?;
    }
    let mut sluice = None;
    if stage.runs(Side::Sluice) {
        load::clear(&client, &RAW).await?;
        stage.with_sluice(&teams(gpus, 0)).await?;
        let held = Shape::single("fill", &BORROWERS);
        held.create(&client, gpus).await?;
        load::quiet().await?;
        let mut running = Running::watch(&client, held.step);
        say("  fill: they start");
        let (before, began) = (stage.processors()?, Instant::now());
        stage.with_sluice(&teams(gpus, gpus)).await?;
        sluice = Some(running.reaches(gpus).await? - began);
        stage.say_processors(&before)?;
    }
    let figure = format!("{gpus} Jobs of one GPU wait, then all run");
    rows.add("fill", &figure, &seconds_of(raw), &seconds_of(sluice), "< 40 s", "KAI 397.8 s");
    Ok(())
}

/// All GPUs by Jobs of one that start while they are created.
pub async fn stream(stage: &mut Stage, gpus: usize, rows: &mut Rows) -> Result<()> {
    let mut raw = None;
    if stage.runs(Side::Raw) {
        stage.without_sluice().await?;
        raw = Some(submitted(stage, "raw-stream", &RAW, gpus).await?);
    }
    let mut sluice = None;
    if stage.runs(Side::Sluice) {
        load::clear(&stage.client, &RAW).await?;
        stage.with_sluice(&teams(gpus, gpus)).await?;
        load::quiet().await?;
        sluice = Some(submitted(stage, "stream", &BORROWERS, gpus).await?);
    }
    let figure = format!("{gpus} Jobs of one GPU, created and run");
    rows.add("stream", &figure, &seconds_of(raw), &seconds_of(sluice), "< 40 s", "KAI 460.5 s");
    Ok(())
}

/// From the first create until all run.
async fn submitted(stage: &Stage, step: &str, namespaces: &[&str], count: usize) -> Result<Duration> {
    let mut running = Running::watch(&stage.client, step);
    let (before, began) = (stage.processors()?, Instant::now());
    let created = Shape::single(step, namespaces).create(&stage.client, count).await?;
    let all = running.reaches(count).await? - began;
    say(&format!("  {step}: created after {}, all run after {}", seconds(created), seconds(all)));
    stage.say_processors(&before)?;
    Ok(all)
}

/// Fills all GPUs with borrowers.
async fn borrowed(stage: &mut Stage, gpus: usize, pods_of: usize) -> Result<Running> {
    stage.with_sluice(&teams(gpus, gpus)).await?;
    let mut running = Running::watch(&stage.client, "borrowed");
    let shape = Shape { asks: (GPU, pods_of), ..Shape::single("borrowed", &BORROWERS) };
    shape.create(&stage.client, gpus / pods_of).await?;
    running.reaches(gpus / pods_of).await?;
    load::quiet().await?;
    Ok(running)
}

/// Deletes the owners' Jobs and waits until the borrowers run again.
async fn returned(stage: &Stage, borrowers: &mut Running, count: usize) -> Result<()> {
    load::clear(&stage.client, &OWNERS).await?;
    borrowers.reaches(count).await?;
    load::quiet().await
}

/// One GPU at a time, and half of all by Jobs of one GPU.
pub async fn reclaim(stage: &mut Stage, gpus: usize, rows: &mut Rows) -> Result<()> {
    const SAMPLES: usize = 10;
    let half = gpus / 2;
    let client = stage.client.clone();
    let figure = format!("{half} GPUs by {half} Jobs of one, created and run");
    let mut raw = None;
    if stage.runs(Side::Raw) {
        stage.without_sluice().await?;
        raw = Some(reclaim_raw(stage, gpus, half).await?);
    }
    if !stage.runs(Side::Sluice) {
        rows.add("reclaim", &figure, &seconds_of(raw), "", "< 60 s", "");
        return Ok(());
    }
    load::clear(&client, &RAW).await?;
    let mut borrowers = borrowed(stage, gpus, 1).await?;
    let one = Shape::single("one", &OWNERS);
    let mut running = Running::watch(&client, one.step);
    let mut each = Vec::new();
    for at in 0..SAMPLES {
        let began = Instant::now();
        one.create_one(&client, at).await?;
        each.push(running.reaches(at + 1).await? - began);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let single = format!("one GPU of {gpus} that are lent, mean and longest of {SAMPLES}");
    let longest = each.iter().max().copied().unwrap_or_default();
    let took = format!("{} / {}", seconds(mean(&each)), seconds(longest));
    rows.add("reclaim", &single, "", &took, "< 1.5 s", "KAI 13.9 s");
    returned(stage, &mut borrowers, gpus).await?;

    let took = submitted(stage, "many", &OWNERS, half).await?;
    rows.add("reclaim", &figure, &seconds_of(raw), &seconds(took), "< 60 s", "");
    Ok(())
}

/// The same without Sluice: the generator suspends a Job for each that it creates, and kube-scheduler does the rest.
async fn reclaim_raw(stage: &Stage, gpus: usize, count: usize) -> Result<Duration> {
    let client = &stage.client;
    let borrowers = Shape::single("raw-borrowed", &RAW[..1]);
    let mut running = Running::watch(client, borrowers.step);
    borrowers.create(client, gpus).await?;
    running.reaches(gpus).await?;
    load::quiet().await?;
    let owners = Shape::single("raw-many", &RAW[1..]);
    let mut running = Running::watch(client, owners.step);
    let (before, began) = (stage.processors()?, Instant::now());
    let take = |at: usize| async move {
        borrowers.suspend(client, at).await?;
        owners.create_one(client, at).await
    };
    let mut taken = stream::iter((0..count).map(take)).buffer_unordered(IN_FLIGHT);
    while let Some(one) = taken.next().await {
        one?;
    }
    let took = running.reaches(count).await? - began;
    stage.say_processors(&before)?;
    Ok(took)
}

/// All GPUs by Jobs of one.
pub async fn reclaim_all(stage: &mut Stage, gpus: usize, rows: &mut Rows) -> Result<()> {
    borrowed(stage, gpus, 1).await?;
    let took = submitted(stage, "all", &OWNERS, gpus).await?;
    let figure = format!("{gpus} GPUs by {gpus} Jobs of one, created and run");
    rows.add("reclaim-all", &figure, "", &seconds(took), "", "KAI 694.5 s");
    Ok(())
}

/// Half of all GPUs for one gang, and 50 gangs of ten pods.
pub async fn reclaim_gangs(stage: &mut Stage, gpus: usize, rows: &mut Rows) -> Result<()> {
    let mut borrowers = borrowed(stage, gpus, 1).await?;
    let pods = gpus / 16;
    let gang = Shape { pods, asks: (GPU, 8), ..Shape::single("gang", &OWNERS) };
    let took = gangs_run(stage, gang, 1).await?;
    let figure = format!("{} GPUs for one Job of {pods} pods", pods * 8);
    rows.add("reclaim-gangs", &figure, "", &seconds(took), "", "KAI 102 s");
    returned(stage, &mut borrowers, gpus).await?;

    let (count, pods) = (gpus / 80, 10);
    let gangs = Shape { pods, asks: (GPU, 5), ..Shape::single("gangs-of-ten", &OWNERS) };
    let took = gangs_run(stage, gangs, count).await?;
    let figure = format!("{count} Jobs of {pods} pods with 5 GPUs");
    rows.add("reclaim-gangs", &figure, "", &seconds(took), "", "KAI 716.9 s");
    Ok(())
}

/// All GPUs for one gang, from Jobs of whole nodes.
pub async fn reclaim_nodes(stage: &mut Stage, nodes: usize, rows: &mut Rows) -> Result<()> {
    borrowed(stage, nodes * 8, 8).await?;
    let gang = Shape { pods: nodes, asks: (GPU, 8), ..Shape::single("gang-of-nodes", &OWNERS) };
    let took = gangs_run(stage, gang, 1).await?;
    let figure = format!("{} GPUs for one Job of {nodes} pods, from Jobs of whole nodes", nodes * 8);
    rows.add("reclaim-nodes", &figure, "", &seconds(took), "", "KAI 85 s");
    Ok(())
}

/// From the first create until all pods of these Jobs run.
async fn gangs_run(stage: &Stage, shape: Shape<'_>, count: usize) -> Result<Duration> {
    let mut running = Running::watch(&stage.client, shape.step);
    let (before, began) = (stage.processors()?, Instant::now());
    shape.create(&stage.client, count).await?;
    let took = running.reaches(count * shape.pods).await? - began;
    stage.say_processors(&before)?;
    Ok(took)
}

/// A gang of 512 pods on an empty cluster, in racks of two nodes where possible and anywhere.
pub async fn gangs(stage: &mut Stage, rows: &mut Rows) -> Result<()> {
    const PODS: usize = 512;
    let gang = |step, namespaces| Shape { pods: PODS, asks: (GPU, 2), ..Shape::single(step, namespaces) };
    let mut raw = None;
    if stage.runs(Side::Raw) {
        stage.without_sluice().await?;
        load::quiet().await?;
        raw = Some(gangs_run(stage, gang("raw-gang", &RAW[..1]), 1).await?);
        load::clear(&stage.client, &RAW).await?;
    }
    for (step, topology, peer) in
        [("anywhere", None, "KAI 49.4 s"), ("in-racks", Some("bench-rack"), "KAI 48.7 s")]
    {
        let mut sluice = None;
        if stage.runs(Side::Sluice) {
            stage.with_sluice(&teams(PODS * 2, 0)).await?;
            load::clear(&stage.client, &OWNERS).await?;
            sluice = Some(gangs_run(stage, Shape { topology, ..gang(step, &OWNERS) }, 1).await?);
        }
        let racks = if topology.is_some() { ", in racks where possible" } else { "" };
        let figure = format!("one Job of {PODS} pods with 2 GPUs{racks}");
        rows.add("gangs", &figure, &seconds_of(raw), &seconds_of(sluice), "", peer);
    }
    Ok(())
}

/// Five of the eight GPUs of each node are free, and gangs need six on a node.
pub async fn consolidate(stage: &mut Stage, nodes: usize, rows: &mut Rows) -> Result<()> {
    const FREE: usize = 5;
    let gpus = nodes * 8;
    let client = stage.client.clone();
    let mut borrowers = borrowed(stage, gpus, 1).await?;
    let api: Api<Pod> = Api::namespaced(client.clone(), "borrowers");
    let pods = api.list(&ListParams::default().labels(&format!("{STEP}=borrowed"))).await?;
    let mut on = std::collections::BTreeMap::<String, Vec<String>>::new();
    for pod in &pods.items {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let job = pod.labels().get("batch.kubernetes.io/job-name").cloned().unwrap_or_default();
        on.entry(node).or_default().push(job);
    }
    ensure!(on.len() == nodes && on.values().all(|jobs| jobs.len() == 8), "not every node is full");
    let leave = on.into_values().flat_map(|jobs| jobs.into_iter().take(FREE)).collect();
    jobs::delete(&client, "borrowers", leave).await?;
    load::quiet().await?;

    let (each, pods) = (FREE + 1, 10);
    let count = nodes * FREE / (each * pods);
    let gangs = Shape { pods, asks: (GPU, each), ..Shape::single("consolidated", &OWNERS) };
    let began = Instant::now();
    let took = gangs_run(stage, gangs, count).await?;
    let moved = borrowers.reaches(gpus - nodes * FREE).await? - began;
    let figure = format!("{count} Jobs of {pods} pods with {each} GPUs, {FREE} are free on each node");
    rows.add("consolidate", &figure, "", &seconds(took), "", "KAI 455.7 s");
    let figure = "until those that made room run elsewhere";
    rows.add("consolidate", figure, "", &seconds(moved), "", "");
    Ok(())
}
