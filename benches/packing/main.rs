//! How much of a cluster each policy fills, on the openb trace of GPU workloads.
//!
//! Pods arrive one by one until 130 % of the devices have been requested, and never leave; a pod that does
//! not fit is dropped. All policies see the same pods in the same order. The baselines must first reproduce
//! the figures of the FGD paper (USENIX ATC'23). The paper shuffled the pods with another random number
//! generator, and its orders are not published. This benchmark uses the same seeds with other orders, and
//! compares means over ten seeds.

mod baselines;
mod cluster;
mod fgd;
mod frag;
mod gate;
mod policy;
#[path = "../readme.rs"]
mod readme;
mod registry;
mod report;
mod run;
mod sluice;
mod trace;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Error, Result, bail};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use cluster::Cluster;
use frag::Typical;
use gate::Gate;
use registry::Kind;
use report::{Key, Names, Results};
use run::Outcome;
use trace::{Pod, Trace, VARIANTS};

/// The number of seeds of the published means; the comparison binds only for as many.
const PUBLISHED_SEEDS: u64 = 10;
/// The first seed; the others follow it.
const FIRST_SEED: u64 = 42;
/// Offset from the run's seed to the seed of the names' order.
const NAMES_SEED: u64 = 1 << 32;

/// Compares how well policies pack the openb trace.
#[derive(Parser)]
struct Arguments {
    /// Number of seeds, from 42 on.
    #[arg(long, default_value = "10")]
    seeds: NonZeroU64,
    /// Lists of pods.
    #[arg(long, value_delimiter = ',', default_values = VARIANTS, value_parser = VARIANTS)]
    variants: Vec<String>,
    /// Policies.
    #[arg(
        long,
        value_delimiter = ',',
        value_enum,
        default_value = "random,dot-prod,gpu-clustering,gpu-packing,best-fit,fgd,sluice"
    )]
    policies: Vec<Kind>,
    /// Whether nodes have the trace's names or shuffled ones.
    #[arg(long, value_delimiter = ',', value_enum, default_value = "given,shuffled")]
    names: Vec<Names>,
    /// Number of runs at the same time.
    #[arg(long, default_value = "2")]
    threads: NonZeroU64,
    /// File for the figures as CSV.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/bench-packing.csv"))]
    csv: PathBuf,
    /// Write the table into benches/README.md.
    #[arg(long)]
    write: bool,
    /// Added by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// One list of pods, and its typical classes.
struct Workload {
    pods: Vec<Pod>,
    typical: Typical,
}

fn main() -> ExitCode {
    let traces = std::env::var_os("SLUICE_TRACES")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces"), PathBuf::from);
    let directory = traces.join("openb-2023");
    if !directory.is_dir() {
        eprintln!(
            "bench-packing: {} does not exist; set SLUICE_TRACES to the directory of the traces",
            directory.display()
        );
        return ExitCode::from(2);
    }
    match bench(&Arguments::parse(), &directory) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-packing: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn bench(arguments: &Arguments, directory: &Path) -> Result<()> {
    let start = Instant::now();
    let trace = Trace::read(directory)?;
    let published = trace::published(directory)?;
    let mut workloads: BTreeMap<&'static str, Workload> = BTreeMap::new();
    for variant in VARIANTS.into_iter().filter(|known| arguments.variants.iter().any(|v| v == known)) {
        let pods = trace.pods(directory, variant)?;
        let typical = Typical::of(&pods);
        workloads.insert(variant, Workload { pods, typical });
    }
    let (for_gate, others): (Vec<Key>, Vec<Key>) = keys(arguments, &workloads)
        .into_iter()
        .partition(|key| key.kind.is_baseline() && key.names == Names::Given);

    let mut results = Results::new();
    run_all(arguments, &trace, &workloads, &for_gate, &mut results)?;
    let gate = Gate::new(&results, &published);
    println!(
        "Baselines beside their published figures, {} seeds, in per cent of the devices\n",
        arguments.seeds
    );
    println!("{gate}\n");
    let (failures, lines) = (gate.failures(), gate.lines());
    match (failures, arguments.seeds.get() >= PUBLISHED_SEEDS) {
        _ if lines == 0 => println!("Calibration: no policy with published figures was run.\n"),
        (0, _) => println!("Calibration: all {lines} figures are as published.\n"),
        (_, true) => bail!("{failures} of {lines} figures differ from the published ones; stopped"),
        (_, false) => println!(
            "Calibration: {failures} of {lines} figures differ from the published ones, which are means over \
             {PUBLISHED_SEEDS} seeds: the results below are preliminary.\n"
        ),
    }

    run_all(arguments, &trace, &workloads, &others, &mut results)?;
    println!(
        "Mean (standard deviation) over {} seeds; allocation and fragmentation in per cent of the cluster's \
         devices at these loads in per cent; idle devices and dropped pods of several devices at \
         100 %; time of a decision with {} runs at the same time\n",
        arguments.seeds, arguments.threads
    );
    println!("{}\n", report::figures(&results));
    println!("Allocation at 100 %\n\n{}\n", report::verdict(&results, &published));
    // After the tables: the figures of minutes are not lost with a file that cannot be written.
    report::write_csv(&results, &arguments.csv)?;
    if arguments.write {
        let table = report::summary(&results, &published).to_string();
        readme::write("bench-packing", &table).map_err(Error::msg)?;
    }
    println!("{}; {:.0} s", arguments.csv.display(), start.elapsed().as_secs_f64());
    Ok(())
}

fn keys(arguments: &Arguments, workloads: &BTreeMap<&'static str, Workload>) -> Vec<Key> {
    let mut keys = Vec::new();
    for variant in workloads.keys() {
        for kind in &arguments.policies {
            keys.extend(arguments.names.iter().map(|names| Key { variant, kind: *kind, names: *names }));
        }
    }
    // The slow policies first, so that no thread is left with one of them at the end.
    keys.sort_by_key(|key| std::cmp::Reverse(key.kind));
    keys.dedup();
    keys
}

/// Runs every key with every seed, several at a time.
fn run_all(
    arguments: &Arguments,
    trace: &Trace,
    workloads: &BTreeMap<&'static str, Workload>,
    keys: &[Key],
    results: &mut Results,
) -> Result<()> {
    let seeds = FIRST_SEED..FIRST_SEED + arguments.seeds.get();
    let runs: Vec<(Key, u64)> = keys.iter().flat_map(|key| seeds.clone().map(|seed| (*key, seed))).collect();
    let progress = ProgressBar::new(runs.len() as u64);
    let style = "{elapsed_precise} {wide_bar} {pos} of {len} runs, {eta} left, {msg}";
    progress.set_style(ProgressStyle::with_template(style)?);
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let shared = Mutex::new((std::mem::take(results), None));
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.get() {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let Some((key, seed)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                    progress.set_message(format!("{} {}", key.variant, key.kind));
                    let outcome = run_one(trace, &workloads[key.variant], *key, *seed);
                    let Ok(mut shared) = shared.lock() else { break };
                    match outcome {
                        Ok(outcome) => {
                            shared.0.entry(*key).or_default().insert(*seed, outcome);
                        }
                        Err(error) => {
                            stop.store(true, Ordering::Relaxed);
                            shared.1 = Some(error.context(format!("{key:?}, seed {seed}")));
                        }
                    }
                    progress.inc(1);
                }
            });
        }
    });
    progress.finish_and_clear();
    let Ok((all, error)) = shared.into_inner() else { bail!("a run panicked") };
    *results = all;
    error.map_or(Ok(()), Err)
}

fn run_one(trace: &Trace, workload: &Workload, key: Key, seed: u64) -> Result<Outcome> {
    let mut rank: Vec<usize> = (0..trace.machines.len()).collect();
    if key.names == Names::Shuffled {
        rank.shuffle(&mut ChaCha8Rng::seed_from_u64(NAMES_SEED + seed));
    }
    let cluster = Cluster::new(&trace.machines, rank);
    let mut policy = key.kind.start(trace, &cluster, &workload.typical, seed);
    let arrivals = trace.arrivals(&workload.pods, seed);
    run::run(cluster, trace.capacity, &arrivals, &workload.typical, policy.as_mut())
}
