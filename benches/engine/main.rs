//! Cost of a decision: events per second, time per event and memory of the engine, by the number of nodes, of
//! waiting workloads and of teams.
//!
//! Every size is measured in a process of its own, so that its memory is its own. A step is the API server's
//! events of one change (an end includes the end of its pods) and the plan that follows. Work that this plan
//! leaves for further plans waits until the next step, because new events come first: this is a cluster that
//! changes all the time. The number and time of further plans after a single step are measured separately,
//! after that. Times are processor time, so other load on the machine does not count.

mod clock;
mod random;
#[path = "../readme.rs"]
mod readme;
mod report;
mod world;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use sluice_engine::types::Effort;

use clock::processor_time;
use report::{Figures, Memory, Rest, Row};
use world::{Size, Step, World};

/// How many of the longest steps are printed.
const LONGEST: usize = 5;

/// Measures the cost of the engine's decisions.
#[derive(Parser)]
struct Arguments {
    /// Numbers of nodes (of 8 GPUs) to measure with.
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    nodes: Vec<usize>,
    /// Numbers of waiting workloads to measure with.
    #[arg(long, value_delimiter = ',', default_value = "10000,100000")]
    pending: Vec<usize>,
    /// Numbers of teams to measure with.
    #[arg(long, value_delimiter = ',', default_value = "10,1000")]
    teams: Vec<usize>,
    /// Number of steps at each size.
    #[arg(long, default_value_t = 10_000)]
    steps: usize,
    /// Stop the measurement of a size after so many seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of the cluster's random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Every team is at its limit: each waits for quota, and may own a reservation of it.
    #[arg(long)]
    at_limits: bool,
    /// Only a size of 200 nodes, 2,000 waiting and 10 teams, as a test.
    #[arg(long)]
    quick: bool,
    /// File for the table as CSV.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/bench-engine.csv"))]
    csv: std::path::PathBuf,
    /// File for every step of the last size as CSV: its number, its event, its time and its effort. Runs with one seed
    /// take the same steps, so the least time of several runs is that of a step without other load.
    #[arg(long)]
    trace: Option<std::path::PathBuf>,
    /// Measure one size in this process and print its figures.
    #[arg(long, hide = true)]
    single: bool,
    /// Write the table into benches/README.md.
    #[arg(long)]
    write: bool,
    /// Added by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> ExitCode {
    let mut arguments = Arguments::parse();
    if arguments.quick {
        (arguments.nodes, arguments.pending, arguments.teams) = (vec![200], vec![2_000], vec![10]);
    }
    let result = if arguments.single { single(&arguments) } else { all(&arguments) };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("bench-engine: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Measures every size, each in a process of its own.
fn all(arguments: &Arguments) -> Result<(), String> {
    let mut rows: Vec<Row> = Vec::new();
    for nodes in &arguments.nodes {
        for pending in &arguments.pending {
            for teams in &arguments.teams {
                eprintln!("{nodes} nodes, {pending} waiting, {teams} teams ...");
                let (nodes, pending, teams) = (*nodes, *pending, *teams);
                let size = Size { nodes, pending, teams, at_limits: arguments.at_limits };
                rows.push(in_child(arguments, size)?);
            }
        }
    }
    println!("{}", report::table(&rows));
    println!("{}", report::growth(&rows));
    if arguments.write {
        readme::write("bench-engine", &report::summary(&rows).to_string())?;
    }
    // There is no directory `target` with `CARGO_TARGET_DIR`.
    let directory = arguments.csv.parent().map_or(Ok(()), std::fs::create_dir_all);
    directory
        .and_then(|()| std::fs::write(&arguments.csv, report::csv(&rows)))
        .map_err(|error| format!("{}: {error}", arguments.csv.display()))
}

fn in_child(arguments: &Arguments, size: Size) -> Result<Row, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let output = Command::new(program)
        .arg("--single")
        .args(["--nodes", &size.nodes.to_string()])
        .args(["--pending", &size.pending.to_string()])
        .args(["--teams", &size.teams.to_string()])
        .args(["--steps", &arguments.steps.to_string()])
        .args(["--seconds", &arguments.seconds.to_string()])
        .args(["--seed", &arguments.seed.to_string()])
        .args(arguments.at_limits.then_some("--at-limits"))
        .args(arguments.trace.iter().flat_map(|file| ["--trace".as_ref(), file.as_os_str()]))
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures = text.lines().find_map(Figures::parse);
    figures.map(|figures| Row { size, figures }).ok_or_else(|| format!("no figures for {size:?}"))
}

/// Measures one size.
fn single(arguments: &Arguments) -> Result<(), String> {
    let first = |list: &[usize]| list.first().copied().ok_or("a size is missing");
    let size = Size {
        nodes: first(&arguments.nodes)?,
        pending: first(&arguments.pending)?,
        teams: first(&arguments.teams)?,
        at_limits: arguments.at_limits,
    };
    let empty = resident_bytes()?;
    let mut world = World::full(size, arguments.seed);
    let with_running = resident_bytes()?;
    for _ in 0..size.pending {
        world.submit();
    }
    let begun = processor_time();
    world.plan();
    let first_plan = processor_time() - begun;
    world.settle();
    eprintln!("  first plan {first_plan:.1?}, settled after {:.1?}", processor_time() - begun);

    let before = world.engine.effort();
    let (mut times, mut by_step, mut trace) = (Vec::new(), BTreeMap::new(), Vec::new());
    let (mut decisions, started) = (0, Instant::now());
    let (limit, mut left_over) = (Duration::from_secs(arguments.seconds), 0);
    while times.len() < arguments.steps && started.elapsed() < limit {
        let (begun, searched) = (processor_time(), world.engine.effort());
        let step = world.step();
        let decided = world.plan();
        let time = processor_time() - begun;
        decisions += decided;
        let searches = world.engine.effort().searches - searched.searches;
        trace.push(Traced { number: times.len(), step, time, decided, searches });
        times.push(time);
        by_step.entry(step).or_insert_with(Vec::new).push(time);
        left_over += usize::from(world.engine.has_more());
    }
    let effort = world.engine.effort();
    let resident = resident_bytes()?;
    let (waiting, running) = world.counts();
    for (step, times) in &mut by_step {
        let [p50, p99, max] = report::quantiles(times);
        eprintln!(
            "  {:8} {:6} times: p50 {p50:.1?}, p99 {p99:.1?}, longest {max:.1?}",
            format!("{step:?}"),
            times.len()
        );
    }
    eprintln!("  {waiting} wait, {running} run, {decisions} decisions");
    if let Some(file) = &arguments.trace {
        let lines: String = trace.iter().map(Traced::line).collect();
        std::fs::write(file, format!("{}{lines}", Traced::HEADER))
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    trace.sort_by_key(|traced| Reverse(traced.time));
    trace.truncate(LONGEST);
    eprint!("  longest: {}{}", Traced::HEADER, trace.iter().map(Traced::line).collect::<String>());
    let figures = Figures::new(
        &mut times,
        Rest::of(&mut world, left_over, limit),
        first_plan,
        Memory {
            resident: resident.saturating_sub(empty),
            per_pending: resident.saturating_sub(with_running) / waiting.max(1) as u64,
        },
        decisions,
        Effort {
            searches: effort.searches - before.searches,
            bounded: effort.bounded - before.bounded,
            sets: effort.sets - before.sets,
        },
    );
    println!("{}", figures.line());
    Ok(())
}

/// A measured step.
struct Traced {
    number: usize,
    step: Step,
    time: Duration,
    decided: usize,
    searches: u64,
}

impl Traced {
    const HEADER: &str = "number,event,us,decisions,searches\n";

    fn line(&self) -> String {
        let Self { number, step, time, decided, searches } = self;
        format!("{number},{step:?},{},{decided},{searches}\n", time.as_micros())
    }
}

/// Resident memory of this process in bytes.
fn resident_bytes() -> Result<u64, String> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.map(|kibibytes| kibibytes * 1024).ok_or_else(|| "no VmRSS in /proc/self/status".to_owned())
}
