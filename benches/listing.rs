//! Measures `sluice queue`.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

/// Time, largest memory in MB and rows of `sluice queue` over all namespaces, as the user of this kubeconfig.
pub async fn queue(program: &str, kubeconfig: &Path) -> Result<(Duration, f64, usize)> {
    let began = Instant::now();
    let child = Command::new(program)
        .args(["queue", "--all-namespaces"])
        .env("KUBECONFIG", kubeconfig)
        .stdout(Stdio::piped())
        .spawn()?;
    let process = child.id().context("it runs")?;
    let largest = async {
        let mut largest = 0.0_f64;
        while let Some(now) = peak_megabytes(process) {
            largest = largest.max(now);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        largest
    };
    let ended = async { anyhow::Ok((child.wait_with_output().await?, began.elapsed())) };
    let (largest, ended) = tokio::join!(largest, ended);
    let (output, took) = ended?;
    ensure!(output.status.success(), "sluice queue failed");
    Ok((took, largest, String::from_utf8_lossy(&output.stdout).lines().count().saturating_sub(1)))
}

/// The most memory that a process had so far, while it runs.
fn peak_megabytes(process: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes / 1000.0)
}
