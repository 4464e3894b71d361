//! Processor time of processes, as Linux counts it.

use std::path::Path;
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

/// Processor time by process.
pub struct Processors(Vec<(&'static str, Duration)>);

impl Processors {
    /// The times so far of the control plane with its data in this directory, of this program, and of Sluice.
    pub fn now(directory: &Path, sluice: Option<u32>) -> Result<Self> {
        let component = |name: &'static str| {
            let file = directory.join(format!("{name}.pid"));
            let text = std::fs::read_to_string(&file).with_context(|| format!("no {}", file.display()))?;
            let process = text.split_whitespace().next().and_then(|word| word.parse().ok());
            anyhow::Ok((name, processor_time(process.context("no process")?)?))
        };
        let mut times = ["kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler", "kwok"]
            .into_iter()
            .map(component)
            .collect::<Result<Vec<_>>>()?;
        times.push(("the generator", processor_time(std::process::id())?));
        if let Some(process) = sluice {
            times.push(("Sluice", processor_time(process)?));
        }
        Ok(Self(times))
    }

    /// What each process has used since then.
    pub fn since(&self, before: &Self) -> Vec<(&'static str, Duration)> {
        let then =
            |name: &str| before.0.iter().find(|(other, _)| *other == name).map_or(Duration::ZERO, |it| it.1);
        self.0.iter().map(|(name, now)| (*name, now.saturating_sub(then(name)))).collect()
    }
}
