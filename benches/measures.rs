//! What benchmarks on a control plane measure.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result};

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
