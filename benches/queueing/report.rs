//! The tables for readers and the CSV file with all figures.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use comfy_table::{Table, presets};

use super::outcome::{Figures, Forecasts, Predictor, SIZES};
use super::trace::Trace;

/// One policy on one trace.
pub struct Row {
    /// Name of the policy.
    pub policy: &'static str,
    /// Its figures.
    pub figures: Figures,
    /// Time of the simulation.
    pub took: Duration,
}

/// The goals on a trace.
struct Goals {
    trace: &'static str,
    title: &'static str,
    /// Mean wait in seconds.
    wait: &'static str,
    /// Mean wait weighted by GPUs, in seconds.
    by_gpus: &'static str,
    /// Lost GPU-hours.
    lost: &'static str,
    /// Part of the jobs that wait over a minute longer than on private nodes.
    worse: &'static str,
}

const GOALS: [Goals; 2] = [
    Goals { trace: "itp", title: "ITP", wait: "2,300", by_gpus: "14,300", lost: "4,800", worse: "0.03 %" },
    Goals {
        trace: "philly",
        title: "Philly",
        wait: "4,400",
        by_gpus: "22,000",
        lost: "20,500",
        worse: "0.17 %",
    },
];

struct Section {
    trace: &'static str,
    size: String,
    title: String,
    teams: Vec<String>,
    rows: Vec<Row>,
}

/// All rows of all traces.
#[derive(Default)]
pub struct Report {
    sections: Vec<Section>,
}

impl Report {
    /// Adds a row to a trace's table.
    pub fn add(&mut self, trace: &Trace, row: Row) {
        if self.sections.last().is_none_or(|section| section.trace != trace.name) {
            let teams = trace.teams.iter().map(|team| format!("{}={}", team.name, team.nodes));
            self.sections.push(Section {
                trace: trace.name,
                size: format!(
                    "{} teams, {} GPUs, {} jobs",
                    trace.teams.len(),
                    thousands(f64::from(trace.gpus())),
                    thousands(trace.jobs.len() as f64)
                ),
                title: format!(
                    "{}: {} jobs, {} nodes with 8 GPUs; nodes owned: {}",
                    trace.name,
                    trace.jobs.len(),
                    trace.nodes,
                    teams.collect::<Vec<_>>().join(" ")
                ),
                teams: trace.teams.iter().map(|team| team.name.clone()).collect(),
                rows: Vec::new(),
            });
        }
        if let Some(section) = self.sections.last_mut() {
            section.rows.push(row);
        }
    }

    /// Prints the tables of the last trace.
    pub fn print_last(&self) {
        let Some(section) = self.sections.last() else { return };
        println!("\n{}", section.title);
        println!("{}", main_table(section));
        if section.rows.iter().any(|row| !row.figures.forecasts.is_empty()) {
            println!("Forecasts of starts");
            println!("{}", forecasts(section));
        }
        if section.teams.len() > 1 {
            println!("Mean wait by team, seconds");
            println!("{}", waits(section, section.teams.iter().map(String::as_str), |f| &f.team_wait));
        }
        println!("Mean wait by requested GPUs, seconds");
        println!("{}", waits(section, SIZES.iter().map(|(name, _)| *name), |f| &f.size_wait));
    }

    /// The tables of `benches/README.md` by marker, of the traces with goals.
    pub fn summaries(&self) -> impl Iterator<Item = (String, Table)> {
        let tables = self.sections.iter().filter_map(|section| {
            let goals = GOALS.iter().find(|goals| goals.trace == section.trace)?;
            let marker = format!("bench-queueing-{}", goals.trace);
            let forecasts = (format!("{marker}-forecasts"), forecasts(section));
            Some([(marker, summary(section, goals)), forecasts])
        });
        tables.flatten()
    }

    fn forecasts(&self) -> impl Iterator<Item = (&Section, &Row, &Forecasts)> {
        self.sections.iter().flat_map(|section| {
            let rows = section.rows.iter();
            rows.flat_map(move |row| row.figures.forecasts.iter().map(move |f| (section, row, f)))
        })
    }

    /// Writes every figure to `target/bench-queueing.csv`. The directory is made where there is none, as with `CARGO_TARGET_DIR`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self) -> Result<()> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/bench-queueing.csv");
        let context = || format!("cannot write {}", path.display());
        path.parent().map_or(Ok(()), std::fs::create_dir_all).with_context(context)?;
        let mut writer = csv::Writer::from_path(&path).with_context(context)?;
        writer.write_record([
            "trace",
            "policy",
            "jobs",
            "mean_wait_s",
            "p50_wait_s",
            "p95_wait_s",
            "p99_wait_s",
            "wait_by_gpus_s",
            "mean_jct_s",
            "utilization_pct",
            "useful_utilization_pct",
            "evictions",
            "lost_gpu_h",
            "jain_slowdown",
            "worse_than_private_pct",
            "worst_excess_s",
            "guaranteed_wait_p50_s",
            "guaranteed_wait_p99_s",
            "simulation_s",
            "team_mean_wait_s",
            "size_mean_wait_s",
        ])?;
        for section in &self.sections {
            for row in &section.rows {
                let f = &row.figures;
                let mut fields = vec![section.trace.to_owned(), row.policy.to_owned(), f.jobs.to_string()];
                fields.extend(
                    f.wait.iter().chain([&f.wait_by_gpus, &f.jct]).map(|seconds| format!("{seconds:.0}")),
                );
                fields.extend([format!("{:.2}", f.used), format!("{:.2}", f.useful)]);
                fields.extend([f.evictions.to_string(), format!("{:.0}", f.lost), format!("{:.3}", f.jain)]);
                fields.extend([
                    text(f.anomaly, |a| format!("{:.4}", a.0)),
                    text(f.anomaly, |a| a.1.to_string()),
                ]);
                fields.extend([f.guaranteed_wait.0.to_string(), f.guaranteed_wait.1.to_string()]);
                fields.push(format!("{:.1}", row.took.as_secs_f64()));
                fields.push(named(section.teams.iter().map(String::as_str), &f.team_wait));
                fields.push(named(SIZES.iter().map(|(name, _)| *name), &f.size_wait));
                writer.write_record(&fields)?;
            }
        }
        writer.flush().with_context(context)?;
        println!("\nAll figures: {}", path.display());
        self.write_forecasts()
    }

    /// Writes how good the forecasts were to `target/bench-queueing-forecasts.csv`.
    fn write_forecasts(&self) -> Result<()> {
        let path =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/bench-queueing-forecasts.csv");
        let context = || format!("cannot write {}", path.display());
        let mut writer = csv::Writer::from_path(&path).with_context(context)?;
        writer.write_record([
            "trace",
            "policy",
            "predictor",
            "made",
            "forecasts",
            "error_p50_s",
            "error_p90_s",
            "error_of_wait_p50_pct",
            "error_of_wait_p90_pct",
            "covered_pct",
        ])?;
        for (section, row, f) in self.forecasts() {
            writer.write_record([
                section.trace,
                row.policy,
                f.by.label(),
                made(f),
                &f.count.to_string(),
                &f.error.0.to_string(),
                &f.error.1.to_string(),
                &f.of_wait.0.to_string(),
                &f.of_wait.1.to_string(),
                &format!("{:.1}", f.covered),
            ])?;
        }
        writer.flush().with_context(context)?;
        println!("Forecasts: {}", path.display());
        Ok(())
    }
}

fn main_table(section: &Section) -> Table {
    let mut table = markdown();
    table.set_header([
        "policy",
        "mean wait s",
        "p50",
        "p95",
        "p99",
        "by GPUs",
        "mean JCT s",
        "util %",
        "useful %",
        "evictions",
        "lost GPU-h",
        "worse than private",
        "worst by s",
        "Jain",
        "guaranteed wait p50/p99 s",
        "took s",
    ]);
    for row in &section.rows {
        let f = &row.figures;
        let mut cells = vec![row.policy.to_owned()];
        cells.extend(f.wait.iter().chain([&f.wait_by_gpus, &f.jct]).map(|seconds| thousands(*seconds)));
        cells.extend([format!("{:.1}", f.used), format!("{:.1}", f.useful)]);
        cells.extend([thousands(f.evictions as f64), thousands(f.lost)]);
        cells.extend([text(f.anomaly, |a| format!("{:.3} %", a.0)), text(f.anomaly, |a| a.1.to_string())]);
        cells.push(format!("{:.3}", f.jain));
        cells.push(format!("{} / {}", f.guaranteed_wait.0, f.guaranteed_wait.1));
        cells.push(format!("{:.1}", row.took.as_secs_f64()));
        table.add_row(cells);
    }
    table
}

fn summary(section: &Section, goals: &Goals) -> Table {
    let mut table = markdown();
    let heading = format!("{}: {}", goals.title, section.size);
    table.set_header([heading.as_str(), "mean wait s", "p99", "by GPUs", "evictions", "GPU-h lost", "worse"]);
    for row in &section.rows {
        let f = &row.figures;
        table.add_row([
            row.policy.to_owned(),
            thousands(f.wait[0]),
            thousands(f.wait[3]),
            thousands(f.wait_by_gpus),
            thousands(f.evictions as f64),
            thousands(f.lost),
            f.anomaly.map_or_else(String::new, |(percent, _)| format!("{percent:.3} %")),
        ]);
    }
    table.add_row(["goal", goals.wait, "", goals.by_gpus, "", goals.lost, goals.worse]);
    table
}

/// When a forecast was made.
fn made(forecasts: &Forecasts) -> &'static str {
    if forecasts.at_submission { "at submission" } else { "while waiting" }
}

/// How good the forecasts were, by policy and predictor.
fn forecasts(section: &Section) -> Table {
    let mut table = markdown();
    table.set_header([
        "policy",
        "made",
        "run times by",
        "forecasts",
        "error p50 / p90 s",
        "error / wait left, p50 / p90",
        "starts in range",
    ]);
    for row in &section.rows {
        for f in &row.figures.forecasts {
            // A predictor of one length states no range.
            let covered = match f.by {
                Predictor::Sluice => format!("{:.0} %", f.covered),
                Predictor::LastTwo | Predictor::Request => String::new(),
            };
            table.add_row([
                row.policy.to_owned(),
                made(f).to_owned(),
                f.by.label().to_owned(),
                thousands(f.count as f64),
                format!("{} / {}", f.error.0, f.error.1),
                format!("{} % / {} %", f.of_wait.0, f.of_wait.1),
                covered,
            ]);
        }
    }
    table
}

/// Mean waits by group, a row for each policy.
fn waits<'s>(
    section: &Section,
    groups: impl Iterator<Item = &'s str>,
    of: impl Fn(&Figures) -> &[Option<f64>],
) -> Table {
    let mut table = markdown();
    table.set_header(std::iter::once("policy").chain(groups));
    for row in &section.rows {
        let waits = of(&row.figures).iter().map(|wait| text(*wait, thousands));
        table.add_row(std::iter::once(row.policy.to_owned()).chain(waits));
    }
    table
}

/// Mean waits by group in one field.
fn named<'s>(groups: impl Iterator<Item = &'s str>, waits: &[Option<f64>]) -> String {
    let named = groups.zip(waits).filter_map(|(group, wait)| Some(format!("{group}={:.0}", (*wait)?)));
    named.collect::<Vec<_>>().join(" ")
}

fn markdown() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    table
}

fn text<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), show)
}

/// A rounded number with commas between thousands.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) && digit.is_ascii_digit() {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
