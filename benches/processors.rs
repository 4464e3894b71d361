//! Processor time of processes, as Linux counts it.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// The processor time of a process so far.
pub fn processor_time(process: u32) -> Result<Duration> {
    /// Ticks a second, in which Linux counts for programs.
    const TICKS: u32 = 100;
    let path = format!("/proc/{process}/stat");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u32>().ok()).context("no time");
    Ok(Duration::from_secs(1) * (ticks(11)? + ticks(12)?) / TICKS)
}
