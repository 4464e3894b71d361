//! The scale tests that peers have published, as real Jobs on a local control plane. *Raw* is the same without Sluice: the
//! generator itself starts and suspends the Jobs.

mod figures;
mod jobs;
mod kai;
mod kueue;
#[path = "../listing.rs"]
mod listing;
#[path = "../cluster/load.rs"]
#[expect(dead_code, reason = "shared with the benchmark of one cluster")]
mod load;
#[path = "../measures.rs"]
#[expect(dead_code, reason = "shared with the other benchmarks")]
mod measures;
#[path = "../processors.rs"]
mod processors;
#[path = "../readme.rs"]
#[expect(dead_code, reason = "this benchmark keeps rows of its table")]
mod readme;
mod shapes;
mod stage;
mod waiting;

use std::time::Instant;

use anyhow::{Error, Result, bail, ensure};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

use figures::{Rows, seconds};
use stage::{Side, Stage};

/// Repeats the scale tests of KAI, Volcano and Kueue.
#[derive(Parser)]
struct Arguments {
    /// The parts to run.
    #[arg(value_name = "PART", value_parser = PARTS, default_values = ["fill", "reclaim"])]
    parts: Vec<String>,
    /// Run the parts without Sluice only, or with it only. The other column of the table stays as it is.
    #[arg(long, value_name = "SIDE")]
    only: Option<Side>,
    /// Number of nodes with 8 GPUs.
    #[arg(long, default_value_t = 500)]
    nodes: usize,
    /// Number of Jobs of `waiting`.
    #[arg(long, default_value_t = 100_000)]
    waiting: usize,
    /// The program to measure; by default the one that is built with the benchmark.
    #[arg(long, value_name = "FILE", default_value = env!("CARGO_BIN_EXE_sluice"))]
    program: String,
    /// Write the rows into benches/README.md, instead of those of the same parts.
    #[arg(long)]
    write: bool,
    /// Added by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The parts, in the order of the table.
const PARTS: [&str; 15] = [
    "fill",
    "stream",
    "reclaim",
    "reclaim-all",
    "reclaim-gangs",
    "reclaim-nodes",
    "gangs",
    "consolidate",
    "10000x1",
    "500x20",
    "20x500",
    "1x10000",
    "kueue-baseline",
    "kueue-large",
    "waiting",
];
/// The parts with a load that also runs without Sluice.
const WITH_RAW: [&str; 10] = [
    "fill",
    "stream",
    "reclaim",
    "gangs",
    "10000x1",
    "500x20",
    "20x500",
    "1x10000",
    "kueue-baseline",
    "waiting",
];
const TABLE: &str = "bench-scale";

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.only == Some(Side::Raw) {
        for part in &arguments.parts {
            ensure!(WITH_RAW.contains(&part.as_str()), "{part} has no load without Sluice");
        }
    }
    // What is dropped takes the control plane down, also when the run is ended early.
    tokio::select! {
        done = run(&arguments) => done,
        signal = ended_early() => bail!("ended by {}", signal?),
    }
}

async fn run(arguments: &Arguments) -> Result<()> {
    let mut stage = Stage::up(&arguments.program, arguments.nodes, arguments.only).await?;
    let mut rows = Rows::of(arguments.only);
    let gpus = arguments.nodes * 8;
    for (at, part) in arguments.parts.iter().enumerate() {
        if at > 0 {
            stage.clear_all().await?;
        }
        stage::say(part);
        let (began, before) = (Instant::now(), stage.failed_creates()?);
        match part.as_str() {
            "fill" => kai::fill(&mut stage, gpus, &mut rows).await?,
            "stream" => kai::stream(&mut stage, gpus, &mut rows).await?,
            "reclaim" => kai::reclaim(&mut stage, gpus, &mut rows).await?,
            "reclaim-all" => kai::reclaim_all(&mut stage, gpus, &mut rows).await?,
            "reclaim-gangs" => kai::reclaim_gangs(&mut stage, gpus, &mut rows).await?,
            "reclaim-nodes" => kai::reclaim_nodes(&mut stage, arguments.nodes, &mut rows).await?,
            "gangs" => kai::gangs(&mut stage, &mut rows).await?,
            "consolidate" => kai::consolidate(&mut stage, arguments.nodes, &mut rows).await?,
            "kueue-baseline" => kueue::run(&mut stage, &kueue::BASELINE, &mut rows).await?,
            "kueue-large" => kueue::run(&mut stage, &kueue::LARGE, &mut rows).await?,
            "waiting" => waiting::run(&mut stage, arguments.waiting, &mut rows).await?,
            shape => shapes::run(&mut stage, shape, &mut rows).await?,
        }
        let failed = stage.failed_creates()?;
        let raw = if stage.runs(Side::Raw) && WITH_RAW.contains(&part.as_str()) {
            (failed.raw - before.raw).to_string()
        } else {
            String::new()
        };
        let sluice = if stage.runs(Side::Sluice) {
            (failed.sluice - before.sluice).to_string()
        } else {
            String::new()
        };
        rows.add(
            part,
            "creates of Jobs and pods that failed",
            &raw,
            &sluice,
            "0",
            shapes::failed_there(part),
        );
        stage::say(&format!("{part} took {}", seconds(began.elapsed())));
        if arguments.write {
            readme::update(TABLE, |former| rows.table(former, &PARTS)).map_err(Error::msg)?;
        }
    }
    println!("{}", rows.table("", &PARTS));
    Ok(())
}

/// Waits for a signal that ends the run.
async fn ended_early() -> Result<&'static str> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(tokio::select! {
        _ = interrupt.recv() => "SIGINT",
        _ = terminate.recv() => "SIGTERM",
    })
}
