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

use anyhow::{Error, Result};
use clap::Parser;

use figures::Rows;
use stage::Stage;

/// Repeats the scale tests of KAI, Volcano and Kueue.
#[derive(Parser)]
struct Arguments {
    /// The parts to run.
    #[arg(value_name = "PART", value_parser = PARTS, default_values = ["fill", "reclaim"])]
    parts: Vec<String>,
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
const PARTS: [&str; 14] = [
    "fill",
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
const TABLE: &str = "bench-scale";

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut stage = Stage::up(&arguments.program, arguments.nodes).await?;
    let mut rows = Rows::default();
    let gpus = arguments.nodes * 8;
    for part in &arguments.parts {
        stage::say(part);
        let before = stage.failed_creates()?;
        match part.as_str() {
            "fill" => kai::fill(&mut stage, gpus, &mut rows).await?,
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
        let failed = stage.failed_creates()? - before;
        rows.add(
            part,
            "creates of Jobs and pods that failed",
            "",
            &failed.to_string(),
            "0",
            shapes::failed_there(part),
        );
    }
    println!("{}", rows.table("", &PARTS));
    if arguments.write {
        readme::update(TABLE, |former| rows.table(former, &PARTS)).map_err(Error::msg)?;
    }
    Ok(())
}
