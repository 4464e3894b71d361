//! Sluice on real traces beside the policies in use today.
//!
//! The reference simulator is first calibrated against published figures; if that fails, the benchmark stops.
//! Then every policy runs over the same jobs on the same nodes: private nodes per team, one pool for all,
//! quotas with borrowing and reclaiming, and Sluice with the engine that runs on a cluster. An evicted job
//! starts from zero.

mod baseline;
mod cluster;
mod gate;
mod literature;
mod outcome;
#[path = "../readme.rs"]
mod readme;
mod report;
mod sluice;
mod trace;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use baseline::{Order, Policy};
use outcome::{Outcome, figures, waits};
use report::{Report, Row};
use trace::Trace;

/// A trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Ten clusters pooled: 160 nodes, 31 days.
    Itp,
    /// Eleven virtual clusters: 208 nodes, two months.
    Philly,
    /// One large queue: 133 nodes, 99,707 jobs.
    Venus,
}

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rule {
    /// Every team on its own nodes, first in first out.
    Private,
    /// One pool, strictly first in first out.
    Fifo,
    /// One pool, with backfill.
    Backfill,
    /// Quotas with borrowing and reclaiming; first in first out within a team.
    Quota,
    /// Quotas with borrowing and reclaiming; backfill within a team.
    QuotaBackfill,
    /// The engine that runs on a cluster, with the settings of a team that chooses none.
    SluiceDefault,
    /// The same with the settings of the options.
    Sluice,
}

impl Rule {
    fn label(self) -> &'static str {
        match self {
            Self::Private => "private clusters, FIFO",
            Self::Fifo => "one pool, FIFO",
            Self::Backfill => "one pool, backfill",
            Self::Quota => "quota + reclaim, FIFO per team",
            Self::QuotaBackfill => "quota + reclaim, backfill",
            Self::SluiceDefault => "Sluice, no option set",
            Self::Sluice => "Sluice, owners reclaim only",
        }
    }
}

/// Compares Sluice with reference policies on real traces.
#[derive(Parser)]
struct Arguments {
    /// The traces to run.
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["itp", "philly", "venus"])]
    trace: Vec<Which>,
    /// The policies to run; all by default.
    #[arg(long, value_enum, value_delimiter = ',')]
    policies: Vec<Rule>,
    /// Only jobs submitted in the first days of the trace.
    #[arg(long, value_name = "DAYS")]
    until: Option<f64>,
    /// Leave out the job with this number: the change of a figure shows how much of it is chance.
    #[arg(long, value_name = "JOB")]
    without: Option<usize>,
    /// Only this percentage of the nodes, as a stand-in for a month of lasting overload.
    #[arg(long, value_name = "PERCENT", default_value_t = 100)]
    nodes: u32,
    /// Sluice: days after its start during which a job is not evicted for fair shares. The default is longer
    /// than any job, so borrowers are evicted for owners only.
    #[arg(long, value_name = "DAYS", default_value_t = 365.0)]
    min_runtime: f64,
    /// Sluice: minutes after `min_runtime` during which a job may be evicted for fair shares.
    #[arg(long, value_name = "MINUTES", default_value_t = 10)]
    window: u64,
    /// Sluice: seconds after which the first workload that cannot start gets a reservation.
    #[arg(long, default_value_t = 600)]
    reserve_after: u64,
    /// Sluice: seconds that pods take to stop. The reference policies evict in no time.
    #[arg(long, default_value_t = 0)]
    grace: u64,
    /// Sluice: hours of the trace between forecasts of all starts; 0 for none.
    #[arg(long, value_name = "HOURS", default_value_t = 6)]
    forecast: u64,
    /// Write the tables of ITP and Philly into benches/README.md.
    #[arg(long)]
    write: bool,
    /// Added by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    fn choice(&self) -> sluice::Choice {
        sluice::Choice {
            min_runtime: Duration::from_secs_f64(self.min_runtime * 86_400.0),
            window: Duration::from_secs(self.window * 60),
            reserve_after: Duration::from_secs(self.reserve_after),
            grace: Duration::from_secs(self.grace),
            forecast_every: Duration::from_secs(self.forecast * 3600),
        }
    }
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let root = trace::directory();
    if !root.is_dir() {
        eprintln!("no traces in {}: set SLUICE_TRACES to the directory that contains them", root.display());
        return Ok(ExitCode::from(2));
    }
    println!("Calibration: reference simulator against published figures");
    if !gate::passes(&root)? {
        eprintln!("calibration failed: a figure differs by more than 1 %; stopped");
        return Ok(ExitCode::FAILURE);
    }
    let mut report = Report::default();
    for which in &arguments.trace {
        let trace = match which {
            Which::Itp => trace::itp(&root),
            Which::Philly => trace::philly(&root),
            Which::Venus => trace::venus(&root),
        }?
        .within(arguments.until)
        .on(arguments.nodes)
        .without(arguments.without);
        let alone = (trace.teams.len() > 1).then(|| private(&trace));
        let alone_waits = alone.as_ref().map(|outcome| waits(&trace, outcome));
        for rule in Rule::value_variants() {
            let wanted = arguments.policies.is_empty() || arguments.policies.contains(rule);
            let makes_sense =
                trace.teams.len() > 1 || matches!(rule, Rule::Fifo | Rule::Backfill | Rule::SluiceDefault);
            if !wanted || !makes_sense {
                continue;
            }
            let began = Instant::now();
            let bar = progress_bar(&trace, rule.label());
            let progress = |done: usize| bar.set_position(done as u64);
            let outcome = match (rule, &alone) {
                (Rule::Private, Some(outcome)) => outcome.clone(),
                (Rule::SluiceDefault, _) => {
                    let default = sluice::Choice { min_runtime: Duration::ZERO, ..arguments.choice() };
                    sluice::run(&trace, default, &progress)?
                }
                (Rule::Sluice, _) => sluice::run(&trace, arguments.choice(), &progress)?,
                _ => baseline::run(&trace, policy(*rule), &progress),
            };
            bar.finish_and_clear();
            let anomalies = alone_waits.as_deref().filter(|_| *rule != Rule::Private);
            let mut figures = figures(&trace, &outcome, anomalies);
            if *rule == Rule::Private {
                let owned: u32 = trace.teams.iter().map(|team| team.nodes).sum();
                figures.used *= f64::from(trace.nodes) / f64::from(owned);
                figures.useful = figures.used;
            }
            report.add(&trace, Row { policy: rule.label(), figures, took: began.elapsed() });
        }
        report.print_last();
    }
    report.write()?;
    if arguments.write {
        for (name, table) in report.summaries() {
            readme::write(&name, &table.to_string()).map_err(Error::msg)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn policy(rule: Rule) -> Policy {
    let (backfill, reclaim) = match rule {
        Rule::Private | Rule::Fifo => (false, false),
        Rule::Backfill => (true, false),
        Rule::Quota => (false, true),
        Rule::QuotaBackfill | Rule::SluiceDefault | Rule::Sluice => (true, true),
    };
    Policy { order: Order::Fifo, backfill, reclaim }
}

/// Every team on its own nodes, first in first out.
fn private(trace: &Trace) -> Outcome {
    let mut all = Outcome::default();
    for team in 0..trace.teams.len() {
        let (own, places) = trace.private(team);
        let outcome = baseline::run(&own, policy(Rule::Private), &|_| ());
        all.runs.extend(outcome.runs.into_iter().map(|run| outcome::Run { job: places[run.job], ..run }));
    }
    all
}

fn progress_bar(trace: &Trace, label: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(trace.jobs.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{prefix:>8} {msg:32} {wide_bar} {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    bar.with_prefix(trace.name).with_message(label)
}
