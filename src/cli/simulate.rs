//! `sluice simulate`: reads and plays a scenario, prints the outcome.

use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Invalid, print, standard_input_once, table};
use crate::api::record::time;
use crate::engine::types::{Settings, Time};
use crate::options::{AcceleratorOptions, CapOptions, SchedulingOptions};
use crate::scenario::{Scenario, ScenarioError};
use crate::simulate::{self, Error, Outcome, Progress, Snapshot};

/// Time before progress is shown.
const PATIENCE: Duration = Duration::from_secs(1);

/// Options of `sluice simulate`.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Scenario files (YAML), read as one scenario; `-` is standard input.
    #[arg(value_name = "FILE", required_unless_present = "snapshot")]
    files: Vec<PathBuf>,
    /// Start from a snapshot of a cluster and play the scenario on top: the output of
    /// `kubectl get teams,nodepools,nodes,namespaces,priorityclasses,jobs,pods -A -o yaml`, or `-` for standard input.
    /// Running workloads end at their time limit, or run for ever without one. For claimed devices (DRA) add
    /// `deviceclasses,resourceslices,resourceclaimtemplates,resourceclaims`.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Also write a self-contained HTML page with charts over time.
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
    /// Simulated time at which to stop, e.g. 1h30m; default: when nothing more can happen.
    #[arg(long, value_name = "TIME", value_parser = crate::api::values::duration)]
    until: Option<Duration>,
    /// Time of the calendar at which the scenario begins, for the periods of budgets, e.g. 2026-11-25T08:00:00Z. A snapshot begins
    /// when it was taken.
    #[arg(long, value_name = "TIME", value_parser = calendar, conflicts_with = "snapshot",
        default_value = "1970-01-01T00:00:00Z")]
    date: Time,
    /// Output format.
    #[arg(long, short, value_enum, default_value_t = print::Output::Table)]
    output: print::Output,
    /// Print teams and totals, not every workload.
    #[arg(long)]
    summary: bool,
    /// Also print every decision with its time, rule and reason.
    #[arg(long)]
    events: bool,
    /// Scheduling options.
    #[command(flatten)]
    scheduling: SchedulingOptions,
    /// Caps on workloads.
    #[command(flatten)]
    caps: CapOptions,
    /// Resources that count as GPUs.
    #[command(flatten)]
    accelerators: AcceleratorOptions,
}

/// Reads `--date`.
///
/// # Errors
/// A sentence for the user.
fn calendar(text: &str) -> Result<Time, String> {
    let at: jiff::Timestamp =
        text.parse().map_err(|_| "expected a time in UTC such as 2026-11-25T08:00:00Z".to_owned())?;
    Ok(time(at))
}

/// Plays the scenario and prints the outcome.
///
/// # Errors
/// [`Invalid`] when a file is invalid.
pub fn run(options: &Options) -> anyhow::Result<()> {
    standard_input_once(options.files.iter().chain(&options.snapshot))?;
    let snapshot = options.snapshot.as_deref().map(Snapshot::load).transpose().map_err(wrong)?;
    let scenario = Scenario::load(&options.files).map_err(wrong)?;
    let settings = simulate::Options {
        until: options.until,
        events: options.events,
        timeline: options.report.is_some(),
        settings: Settings { calendar: options.date, ..options.scheduling.settings() },
        caps: options.caps.caps(),
        accelerators: options.accelerators.accelerators(),
    };
    // A path that cannot be written is said before a play that may take long.
    let page = options.report.as_deref().map(Page::open).transpose()?;
    let mut bar = Bar::new(scenario.steps.len(), options.until);
    let played =
        simulate::run_with(snapshot.as_ref(), &scenario, &settings, &mut |progress| bar.show(progress));
    bar.clear();
    let outcome: Outcome = match played {
        Ok(outcome) => outcome,
        Err(Error::Scenario(error)) => return Err(wrong(error)),
        Err(error) => return Err(error).context("simulation failed"),
    };
    for warning in &outcome.warnings {
        eprintln!("sluice: warning: {warning}");
    }
    let written = page.map_or(Ok(()), |page| page.write(&report(options, &outcome)));
    // The outcome is printed even if the page cannot be written.
    print::answer(options.output, &outcome, |outcome| table::outcome(outcome, options.summary))?;
    written
}

/// The page of `--report`.
fn report(options: &Options, outcome: &Outcome) -> String {
    let named = options.files.iter().chain(&options.snapshot).map(|file| {
        file.file_name().map_or_else(|| file.display().to_string(), |name| name.display().to_string())
    });
    simulate::report::page(outcome, &named.collect::<Vec<_>>().join(", "))
}

/// The file of `--report`. What it has stays until the new page is written, and a new file without a page is removed.
struct Page<'a> {
    path: &'a Path,
    file: File,
    is_empty: bool,
}

impl<'a> Page<'a> {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// [`Invalid`] when it cannot be written.
    fn open(path: &'a Path) -> Result<Self, Invalid> {
        let (file, is_empty) = match File::create_new(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                (File::options().write(true).open(path), false)
            }
            new => (new, true),
        };
        file.map(|file| Self { path, file, is_empty }).map_err(|error| Self::wrong(path, &error))
    }

    /// Replaces what the file has.
    ///
    /// # Errors
    /// [`Invalid`] when it cannot be written.
    fn write(mut self, text: &str) -> anyhow::Result<()> {
        self.replace(text).map_err(|error| Self::wrong(self.path, &error))?;
        self.is_empty = false;
        Ok(())
    }

    fn replace(&mut self, text: &str) -> std::io::Result<()> {
        // A device or a pipe has no length.
        if self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        self.file.write_all(text.as_bytes())
    }

    fn wrong(path: &Path, error: &std::io::Error) -> Invalid {
        Invalid(format!("--report {}: {error}", path.display()))
    }
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        if self.is_empty {
            // It was not there before, so nothing is missed if it stays.
            _ = std::fs::remove_file(self.path);
        }
    }
}

fn wrong(error: ScenarioError) -> anyhow::Error {
    Invalid(error.to_string()).into()
}

/// A progress bar, shown on a terminal after [`PATIENCE`].
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
        // Without a known end, progress is counted in steps.
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
        let now = progress.now.span();
        bar.set_message(format!("step {} of {}, simulated time {now}", progress.steps, self.steps));
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
