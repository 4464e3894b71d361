//! Figures computed from the measurements, and their table.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result};
use comfy_table::{Table, presets};

/// Median and 99th percentile of a set of times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantiles {
    /// Median.
    pub median: Duration,
    /// 99th percentile.
    pub p99: Duration,
}

impl Quantiles {
    /// Computes the quantiles of these times.
    pub fn of(times: &[Duration]) -> Self {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let at = |percent: usize| {
            sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied()
        };
        Self { median: at(50).unwrap_or_default(), p99: at(99).unwrap_or_default() }
    }
}

impl fmt::Display for Quantiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
        write!(f, "{:.1} / {:.1} ms", milliseconds(self.median), milliseconds(self.p99))
    }
}

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
            "ratio >= 0.9",
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

/// Resident memory of a process in MB.
pub fn resident_megabytes(process: u32) -> Result<f64> {
    let path = format!("/proc/{process}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes / 1000.0)
}

/// The webhook's own quantiles between two scrapes, interpolated inside a bucket like Prometheus does.
pub fn webhook_quantiles(before: &str, after: &str) -> Quantiles {
    let (before, mut after) = (buckets(before), buckets(after));
    for (bound, count) in &mut after {
        *count -= before.get(bound).copied().unwrap_or(0.0);
    }
    let total = after.values().copied().fold(0.0, f64::max);
    let quantile = |q: f64| {
        let (mut lower, mut below) = (0.0, 0.0);
        for (bound, count) in &after {
            let bound = f64::from_bits(*bound);
            if *count >= q * total {
                let part = if *count > below { (q * total - below) / (count - below) } else { 1.0 };
                let upper = if bound.is_finite() { bound } else { lower };
                return Duration::from_secs_f64(lower + (upper - lower) * part);
            }
            (lower, below) = (bound, *count);
        }
        Duration::ZERO
    };
    Quantiles { median: quantile(0.5), p99: quantile(0.99) }
}

/// The webhook's cumulative buckets by upper bound, over all labels. The bits of positive numbers keep their
/// order.
fn buckets(scrape: &str) -> BTreeMap<u64, f64> {
    let mut buckets = BTreeMap::new();
    for line in scrape.lines().filter(|line| line.starts_with("sluice_webhook_duration_seconds_bucket")) {
        let bound = line.split("le=\"").nth(1).and_then(|rest| rest.split('"').next());
        let bound = bound.map(|bound| if bound == "+Inf" { Ok(f64::INFINITY) } else { bound.parse() });
        let count = line.rsplit(' ').next().map(str::parse::<f64>);
        if let (Some(Ok(bound)), Some(Ok(count))) = (bound, count) {
            *buckets.entry(bound.to_bits()).or_insert(0.0) += count;
        }
    }
    buckets
}
