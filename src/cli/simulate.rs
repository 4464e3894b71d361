//! `sluice simulate`: reads scenarios, plays them, prints the outcome.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Invalid, print, table};
use crate::policy::Policy;
use crate::scenario::{Scenario, ScenarioError};
use crate::simulate::{self, Error, Outcome, Progress, Snapshot};

/// How long a run may take before it shows how far it has come.
const PATIENCE: Duration = Duration::from_secs(1);

/// What to play and how to tell the outcome.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Scenario files (YAML), read as one; `-` is standard input.
    #[arg(value_name = "FILE", required_unless_present = "snapshot")]
    files: Vec<PathBuf>,
    /// Begin with what runs and waits in a cluster, and put the scenario on top: the output of
    /// `kubectl get teams,nodepools,nodes,namespaces,priorityclasses,jobs,pods -A -o yaml`, or `-` for
    /// standard input. What runs there ends at its time limit, without one never. Where devices are claimed (DRA),
    /// add `deviceclasses,resourceslices,resourceclaimtemplates,resourceclaims`.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Also write a page with pictures over time, which opens without a network.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// When to stop, such as 1h30m; without it when nothing more can happen.
    #[arg(long, value_name = "TIME", value_parser = crate::api::values::duration)]
    until: Option<Duration>,
    /// How to print the outcome.
    #[arg(long, short, value_enum, default_value_t = print::Output::Table)]
    output: print::Output,
    /// Also tell every decision: when, the rule, the parties, and why.
    #[arg(long)]
    events: bool,
    /// How decisions are made.
    #[command(flatten)]
    policy: Policy,
}

/// Plays the scenario and prints what came of it.
///
/// # Errors
/// [`Invalid`] when a file is wrong.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let snapshot = options.snapshot.as_deref().map(Snapshot::load).transpose().map_err(wrong)?;
    let scenario = Scenario::load(&options.files).map_err(wrong)?;
    let how = simulate::Options {
        until: options.until,
        events: options.events,
        timeline: options.report.is_some(),
        settings: options.policy.settings(),
    };
    let mut bar = Bar::new(scenario.steps.len(), options.until);
    let played = simulate::run_with(snapshot.as_ref(), &scenario, &how, &mut |progress| bar.show(progress));
    bar.clear();
    let outcome: Outcome = match played {
        Ok(outcome) => outcome,
        Err(Error::Scenario(error)) => return Err(wrong(error)),
        Err(error) => return Err(error).context("the simulation stopped"),
    };
    for warning in &outcome.warnings {
        eprintln!("sluice: warning: {warning}");
    }
    let written = options.report.as_deref().map_or(Ok(()), |file| report(options, file, &outcome));
    // What was played is told even where the page cannot be written.
    print::answer(options.output, &outcome, table::outcome)?;
    written
}

fn report(options: &Options, file: &Path, outcome: &Outcome) -> anyhow::Result<()> {
    let named = options.files.iter().chain(&options.snapshot).map(|file| file.display().to_string());
    let page = simulate::report::page(outcome, &named.collect::<Vec<_>>().join(", "));
    let wrong = |error: std::io::Error| Invalid(format!("--report {}: {error}", file.display()));
    Ok(std::fs::write(file, page).map_err(wrong)?)
}

fn wrong(error: ScenarioError) -> anyhow::Error {
    Invalid(error.to_string()).into()
}

/// A bar on the terminal, if there is one and the run takes long enough to wonder.
struct Bar {
    began: Instant,
    steps: usize,
    until: Option<Duration>,
    terminal: bool,
    bar: Option<ProgressBar>,
}

impl Bar {
    fn new(steps: usize, until: Option<Duration>) -> Self {
        Self { began: Instant::now(), steps, until, terminal: std::io::stderr().is_terminal(), bar: None }
    }

    fn show(&mut self, progress: Progress) {
        if !self.terminal || self.began.elapsed() < PATIENCE {
            return;
        }
        let whole = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        // Where no end is known, the steps are what can be counted, though what they begin takes its time.
        let (length, position) = match self.until {
            Some(until) => (until.as_secs(), progress.now.0.as_secs()),
            None => (whole(self.steps), whole(progress.steps)),
        };
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(length);
            let style = ProgressStyle::with_template("{wide_bar} {msg}");
            style.map(|style| bar.clone().with_style(style)).unwrap_or(bar)
        });
        bar.set_position(position);
        let now = table::span(i64::try_from(progress.now.0.as_secs()).unwrap_or(i64::MAX));
        bar.set_message(format!("step {} of {}, simulated time {now}", progress.steps, self.steps));
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
