//! Sluice on real traces beside the policies that people run today.
//!
//! First the reference simulator is held against published figures; a benchmark that fails this
//! compares nothing. Then every policy runs over the same jobs on the same nodes: teams alone on
//! what they own, one pool for all, quotas with borrowing and reclaim, and Sluice, whose decisions
//! are those of the engine that runs on a cluster. Who is evicted starts from zero.

mod baseline;
mod cluster;
mod gate;
mod outcome;
mod report;
mod sluice;
mod trace;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use baseline::{Order, Policy};
use outcome::{Outcome, figures, waits};
use report::{Report, Row};
use trace::Trace;

/// Which trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Ten clusters pooled: 160 nodes, 31 days.
    Itp,
    /// Eleven virtual clusters: 208 nodes, two months.
    Philly,
    /// One large queue: 133 nodes, 99,707 jobs.
    Venus,
}

/// Which policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Rule {
    /// Every team alone on its own nodes, first in first out.
    Private,
    /// One pool, strictly first in first out.
    Fifo,
    /// One pool, whoever fits starts.
    Backfill,
    /// Quotas, borrowing, reclaim; first in first out within a team.
    Quota,
    /// The same; within a team whoever fits starts.
    QuotaBackfill,
    /// The engine that runs on a cluster.
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
            Self::Sluice => "Sluice",
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
    /// Only the jobs of so many days.
    #[arg(long, value_name = "DAYS")]
    until: Option<f64>,
    /// All jobs but the one with this number: how much of a figure is chance shows when one early job less
    /// changes it.
    #[arg(long, value_name = "JOB")]
    without: Option<usize>,
    /// Sluice: for how many days a started job is not evicted for the sake of fair shares. The default
    /// is longer than any job: borrowers are pushed off by owners only.
    #[arg(long, value_name = "DAYS", default_value_t = 365.0)]
    min_runtime: f64,
    /// Sluice: after how many seconds the first that cannot start gets a reservation.
    #[arg(long, default_value_t = 600)]
    reserve_after: u64,
    /// Sluice: how many seconds pods take to end. The reference policies evict in no time.
    #[arg(long, default_value_t = 0)]
    grace: u64,
    /// Sluice: a forecast of all starts every so many hours of the trace; 0 for none.
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    forecast: u64,
    /// What `cargo bench` adds.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Arguments {
    fn choice(&self) -> sluice::Choice {
        sluice::Choice {
            min_runtime: Duration::from_secs_f64(self.min_runtime * 86_400.0),
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
        eprintln!("no traces in {}: set SLUICE_TRACES to the directory that holds them", root.display());
        return Ok(ExitCode::from(2));
    }
    println!("Calibration: reference simulator against published figures");
    if !gate::passes(&root)? {
        eprintln!("calibration failed: a figure is more than 1 % off; nothing is compared");
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
        .without(arguments.without);
        let alone = (trace.teams.len() > 1).then(|| private(&trace));
        let alone_waits = alone.as_ref().map(|outcome| waits(&trace, outcome));
        for rule in Rule::value_variants() {
            let wanted = arguments.policies.is_empty() || arguments.policies.contains(rule);
            let makes_sense =
                trace.teams.len() > 1 || matches!(rule, Rule::Fifo | Rule::Backfill | Rule::Sluice);
            if !wanted || !makes_sense {
                continue;
            }
            let began = Instant::now();
            let bar = progress_bar(&trace, rule.label());
            let progress = |done: usize| bar.set_position(done as u64);
            let outcome = match (rule, &alone) {
                (Rule::Private, Some(outcome)) => outcome.clone(),
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
    Ok(ExitCode::SUCCESS)
}

fn policy(rule: Rule) -> Policy {
    let (backfill, reclaim) = match rule {
        Rule::Private | Rule::Fifo => (false, false),
        Rule::Backfill => (true, false),
        Rule::Quota => (false, true),
        Rule::QuotaBackfill | Rule::Sluice => (true, true),
    };
    Policy { order: Order::Fifo, backfill, reclaim }
}

/// Every team alone on the nodes it owns, first in first out.
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
