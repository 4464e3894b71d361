//! The table of the measurements.

use std::fmt;

use comfy_table::{Table, presets};

use crate::measures::Quantiles;

/// All measurements of one run; pairs are without and with Sluice.
#[derive(Debug, Default)]
pub struct Report {
    /// Jobs started per second: raw before, raw after, by Sluice.
    pub open: [f64; 3],
    /// Times from an end to the next start.
    pub turnover: [Quantiles; 2],
    /// Creates per second.
    pub creates: [f64; 2],
    /// Time of a create.
    pub create_latency: [Quantiles; 2],
    /// Time of the webhook, from its own metrics.
    pub webhook: Quantiles,
    /// Sluice's writes per admitted Job, by kind.
    pub writes: Vec<(String, f64)>,
    /// Resident memory in MB before any load.
    pub idle_megabytes: f64,
    /// Resident memory in MB after the open phase.
    pub busy_megabytes: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN).set_header(["figure", "raw", "Sluice", "ratio", "goal"]);
        let mut row = |figure: &str, raw: String, sluice: String, ratio: String, goal: &str| {
            table.add_row([figure.to_owned(), raw, sluice, ratio, goal.to_owned()]);
        };
        let [before, after, open] = self.open;
        let ceiling = f64::midpoint(before, after);
        row(
            "open: Jobs started per second",
            format!("{before:.0} and {after:.0}"),
            format!("{open:.0}"),
            format!("{:.2}", open / ceiling),
            "ratio >= 0.8",
        );
        let [raw, sluice] = self.turnover;
        row(
            "turnover: end to next start, p50 / p99",
            raw.to_string(),
            sluice.to_string(),
            String::new(),
            "< 50 / < 150 ms",
        );
        let [plain, held] = self.creates;
        row(
            "creates per second",
            format!("{plain:.0}"),
            format!("{held:.0}"),
            format!("{:.2}", held / plain),
            "ratio >= 0.75",
        );
        let [plain, held] = self.create_latency;
        row("create, p50 / p99", plain.to_string(), held.to_string(), String::new(), "");
        row("webhook, p50 / p99", String::new(), self.webhook.to_string(), String::new(), "p99 < 5 ms");
        for (what, per_job) in &self.writes {
            let goal = match what.as_str() {
                "patch jobs" => "1",
                "create events" => "<= 0.2",
                _ => "",
            };
            row(
                &format!("writes per admitted Job: {what}"),
                String::new(),
                format!("{per_job:.3}"),
                String::new(),
                goal,
            );
        }
        row(
            "writes per admitted Job with Events",
            String::new(),
            format!("{:.3}", self.writes.iter().map(|(_, per_job)| per_job).sum::<f64>()),
            String::new(),
            "",
        );
        row(
            "resident memory, idle",
            String::new(),
            format!("{:.0} MB", self.idle_megabytes),
            String::new(),
            "< 50 MB",
        );
        row(
            "resident memory, after open",
            String::new(),
            format!("{:.0} MB", self.busy_megabytes),
            String::new(),
            "",
        );
        write!(f, "{table}")
    }
}
