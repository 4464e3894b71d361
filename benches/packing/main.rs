//! How much of a cluster each policy fills, on the openb trace of GPU workloads.
//!
//! Pods arrive one by one until 130 % of the devices have been asked for, and never leave; one that
//! does not fit is dropped. All policies see the same pods in the same order. Before anything is
//! compared, the baselines must come out as the paper on FGD (USENIX ATC'23) published them. Its
//! shuffles of the pods came from another generator of random numbers and cannot be had again; ours
//! have the same numbers as seeds and another order, and means over ten seeds are compared.

mod baselines;
mod cluster;
mod fgd;
mod frag;
mod gate;
mod policy;
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

use anyhow::{Result, bail};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use cluster::Cluster;
use frag::Typical;
use gate::Gate;
use policy::Kind;
use report::{Key, Names, Results};
use run::Outcome;
use trace::{Pod, Trace, VARIANTS};

/// Published means are over so many seeds; the gate binds only means over as many.
const PUBLISHED_SEEDS: u64 = 10;
/// The first seed; the others follow it.
const FIRST_SEED: u64 = 42;
/// The seed of the names' order is the run's plus this.
const NAMES_SEED: u64 = 1 << 32;

/// Compares how well policies pack the openb trace.
#[derive(Parser)]
struct Arguments {
    /// How many seeds are run, from 42 on.
    #[arg(long, default_value = "10")]
    seeds: NonZeroU64,
    /// Which lists of pods.
    #[arg(long, value_delimiter = ',', default_values = VARIANTS, value_parser = VARIANTS)]
    variants: Vec<String>,
    /// Which policies.
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
    /// How many runs go on at the same time.
    #[arg(long, default_value = "2")]
    threads: NonZeroU64,
    /// Where the figures are written besides.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/bench-packing.csv"))]
    csv: PathBuf,
    /// What `cargo bench` adds.
    #[arg(long, hide = true)]
    bench: bool,
}

/// One list of pods, and what is typical of it.
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
            "bench-packing: there is no {}; SLUICE_TRACES says where the traces lie",
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
        _ if lines == 0 => println!("Gate: nothing was run that figures are published for.\n"),
        (0, _) => println!("Gate: all {lines} lines are as published.\n"),
        (_, true) => bail!("{failures} of {lines} lines are not as published, so nothing is compared"),
        (_, false) => println!(
            "Gate: {failures} of {lines} lines are not as published, of means over fewer than \
             {PUBLISHED_SEEDS} seeds: what follows is a sketch.\n"
        ),
    }

    run_all(arguments, &trace, &workloads, &others, &mut results)?;
    report::write_csv(&results, &arguments.csv)?;
    println!(
        "Mean (standard deviation) over {} seeds; allocation and fragmentation in per cent of the cluster's \
         devices when so many per cent had been asked for; idle devices and failed pods of several devices at \
         100 %; time of a decision with {} runs side by side\n",
        arguments.seeds, arguments.threads
    );
    println!("{}\n", report::figures(&results));
    println!("Allocation at 100 %\n\n{}\n", report::verdict(&results, &published));
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
    // The slow ones first, so that no thread is left with one of them at the end.
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
    let Ok((all, error)) = shared.into_inner() else { bail!("a run came to a sudden end") };
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
