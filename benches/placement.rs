//! Checks for a random run of Jobs that every pod runs where the record of its Job says, and measures the
//! delay and the writes on the API server.

mod readme;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Error, Result};
use clap::Parser;
use comfy_table::{Table, presets};
use sluice_harness::World;
use sluice_harness::fidelity::{self, Fidelity, Mix};

/// Runs Jobs of mixed shapes on a local control plane.
#[derive(Parser)]
struct Arguments {
    /// Number of Jobs.
    #[arg(long, default_value_t = 500)]
    jobs: usize,
    /// Number of nodes with 8 GPUs.
    #[arg(long, default_value_t = 50)]
    nodes: usize,
    /// Seed of the Jobs' shapes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Shortest run time of a pod in seconds; the longest is three times that. A shorter time loads a small
    /// machine with pod starts, and pods wait longer for its scheduler.
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Write the table into benches/README.md.
    #[arg(long)]
    write: bool,
    /// Added by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Longest time of the whole run.
const PATIENCE: Duration = Duration::from_secs(1200);
/// Longest time that a pod should be Pending.
const LONGEST_PENDING: Duration = Duration::from_secs(1);

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let world = World::up("placement", env!("CARGO_BIN_EXE_sluice"), 1).await?;
    eprintln!("bench: {} Jobs on {} nodes with 8 GPUs each", arguments.jobs, arguments.nodes);
    world.apply(&setting(arguments.nodes)).await?;
    let mix = Mix { jobs: arguments.jobs, seed: arguments.seed, shortest: arguments.runs * 1000 };
    let seen = fidelity::run(&world.cluster, "mix", mix, PATIENCE).await?;
    let unseen = fidelity::unseen(&world.replicas).await?;
    let table = table(&seen, unseen);
    println!("{table}");
    if arguments.write {
        readme::write("bench-placement", &table.to_string()).map_err(Error::msg)?;
    }
    let wrong: Vec<&String> = seen.misplaced.iter().chain(&seen.miswritten).collect();
    wrong.iter().for_each(|wrong| println!("{wrong}"));
    Ok(if wrong.is_empty() && seen.writes[1] == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn setting(nodes: usize) -> String {
    let gpus = nodes * 8;
    format!(
        "
apiVersion: v1
kind: Node
metadata:
  name: gpu
  annotations: {{simulate.sluice.dev/count: \"{nodes}\"}}
status:
  capacity: &resources {{cpu: \"64\", memory: 512Gi, pods: \"110\", nvidia.com/gpu: \"8\"}}
  allocatable: *resources
---
apiVersion: sluice.dev/v1alpha1
kind: Team
metadata: {{name: mix}}
spec:
  quotas:
  - guaranteed: {{nvidia.com/gpu: {gpus}}}
  # No workload is moved for another, so every Job starts once.
  queues: [{{name: training, preemptible: false}}]
---
apiVersion: v1
kind: Namespace
metadata:
  name: mix
  labels: {{sluice.dev/team: mix}}
"
    )
}

fn table(seen: &Fidelity, unseen: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(["figure", "measured", "goal"]);
    let mut row = |figure: &str, measured: String, goal: &str| {
        table.add_row([figure.to_owned(), measured, goal.to_owned()]);
    };
    let [indexed, others] = seen.pods;
    row("Jobs, of these on several nodes", format!("{}, {}", seen.jobs, seen.spread), "");
    row("pods of Indexed Jobs, of other Jobs", format!("{indexed}, {others}"), "");
    row("pods on other nodes than recorded", seen.misplaced.len().to_string(), "0");
    row("admission to binding, p50 / p99 / max", quantiles(&seen.bound_after), "");
    row("Pending, p50 / p99 / max", quantiles(&seen.pending), "");
    let long = seen.pending.iter().filter(|pending| **pending > LONGEST_PENDING).count();
    row("pods Pending for more than a second", long.to_string(), "0");
    let each = |writes: usize, of: usize| format!("{:.3}", writes as f64 / of.max(1) as f64);
    let [jobs, of_indexed, of_others] = seen.writes;
    row("writes per admitted Job", each(jobs, seen.jobs), "1");
    row("of these, answered too late by the API server", seen.unanswered.to_string(), "");
    row("writes per pod of an Indexed Job", each(of_indexed, indexed), "0");
    row("of these, admission not yet seen by the webhook", unseen.to_string(), "0");
    row("writes per pod of another Job", each(of_others, others), "< 1");
    table
}

fn quantiles(times: &[Duration]) -> String {
    let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len().saturating_sub(1)));
    let milliseconds = |time: Option<&Duration>| time.map_or(0, Duration::as_millis);
    format!("{} / {} / {} ms", milliseconds(at(50)), milliseconds(at(99)), milliseconds(at(100)))
}
