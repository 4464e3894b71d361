//! The table for people and the CSV file for everything else.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use comfy_table::{Table, presets};

use super::outcome::{Figures, SIZES};
use super::trace::Trace;

/// One policy on one trace.
pub struct Row {
    /// What the policy is called.
    pub policy: &'static str,
    /// Its figures.
    pub figures: Figures,
    /// How long the simulation took.
    pub took: Duration,
}

struct Section {
    trace: &'static str,
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

    /// Prints the tables of the trace added last.
    pub fn print_last(&self) {
        let Some(section) = self.sections.last() else { return };
        println!("\n{}", section.title);
        println!("{}", main_table(section));
        if section.teams.len() > 1 {
            println!("Mean wait by team, seconds");
            println!("{}", waits(section, section.teams.iter().map(String::as_str), |f| &f.team_wait));
        }
        println!("Mean wait by GPUs asked for, seconds");
        println!("{}", waits(section, SIZES.iter().map(|(name, _)| *name), |f| &f.size_wait));
    }

    /// Writes every figure to `target/bench-queueing.csv`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self) -> Result<()> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/bench-queueing.csv");
        let context = || format!("cannot write {}", path.display());
        let mut writer = csv::Writer::from_path(&path).with_context(context)?;
        writer.write_record([
            "trace",
            "policy",
            "jobs",
            "mean_wait_s",
            "p50_wait_s",
            "p95_wait_s",
            "p99_wait_s",
            "mean_jct_s",
            "utilization_pct",
            "useful_utilization_pct",
            "evictions",
            "wasted_gpu_h",
            "jain_slowdown",
            "worse_than_private_pct",
            "worst_excess_s",
            "owed_wait_p50_s",
            "owed_wait_p99_s",
            "eta_error_p50_s",
            "eta_error_p90_s",
            "simulation_s",
            "team_mean_wait_s",
            "size_mean_wait_s",
        ])?;
        for section in &self.sections {
            for row in &section.rows {
                let f = &row.figures;
                let mut fields = vec![section.trace.to_owned(), row.policy.to_owned(), f.jobs.to_string()];
                fields.extend(f.wait.iter().chain([&f.jct]).map(|seconds| format!("{seconds:.0}")));
                fields.extend([format!("{:.2}", f.used), format!("{:.2}", f.useful)]);
                fields.extend([
                    f.evictions.to_string(),
                    format!("{:.0}", f.wasted),
                    format!("{:.3}", f.jain),
                ]);
                fields.extend([
                    text(f.anomaly, |a| format!("{:.4}", a.0)),
                    text(f.anomaly, |a| a.1.to_string()),
                ]);
                fields.extend([f.reclaim.0.to_string(), f.reclaim.1.to_string()]);
                fields.extend([text(f.eta, |e| e.0.to_string()), text(f.eta, |e| e.1.to_string())]);
                fields.push(format!("{:.1}", row.took.as_secs_f64()));
                fields.push(named(section.teams.iter().map(String::as_str), &f.team_wait));
                fields.push(named(SIZES.iter().map(|(name, _)| *name), &f.size_wait));
                writer.write_record(&fields)?;
            }
        }
        writer.flush().with_context(context)?;
        println!("\nAll figures: {}", path.display());
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
        "mean JCT s",
        "util %",
        "useful %",
        "evictions",
        "wasted GPU-h",
        "worse than private",
        "worst by s",
        "Jain",
        "owed wait p50/p99 s",
        "ETA off p50/p90 s",
        "took s",
    ]);
    for row in &section.rows {
        let f = &row.figures;
        let mut cells = vec![row.policy.to_owned()];
        cells.extend(f.wait.iter().chain([&f.jct]).map(|seconds| thousands(*seconds)));
        cells.extend([format!("{:.1}", f.used), format!("{:.1}", f.useful)]);
        cells.extend([thousands(f.evictions as f64), thousands(f.wasted)]);
        cells.extend([text(f.anomaly, |a| format!("{:.3} %", a.0)), text(f.anomaly, |a| a.1.to_string())]);
        cells.push(format!("{:.3}", f.jain));
        cells.push(format!("{} / {}", f.reclaim.0, f.reclaim.1));
        cells.push(text(f.eta, |e| format!("{} / {}", e.0, e.1)));
        cells.push(format!("{:.1}", row.took.as_secs_f64()));
        table.add_row(cells);
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
