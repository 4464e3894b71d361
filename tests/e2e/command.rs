//! Runs the command line as the user of a kubeconfig.

use std::path::Path;

use anyhow::{Result, ensure};
use sluice_harness::{Outcome, eventually, patience};
use tokio::process::Command;

use crate::support::SLUICE;

/// Runs the command line with this kubeconfig.
pub async fn sluice(kubeconfig: &Path, arguments: &[&str]) -> Result<Outcome> {
    let output = Command::new(SLUICE).args(arguments).env("KUBECONFIG", kubeconfig).output().await?;
    Ok(Outcome {
        success: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

pub async fn answered(kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
    let outcome = sluice(kubeconfig, arguments).await?;
    ensure!(outcome.success, "{arguments:?}: {}", outcome.stderr);
    Ok(outcome.stdout)
}

pub async fn refused(kubeconfig: &Path, arguments: &[&str], why: &str) -> Result<()> {
    let Outcome { success, stdout, stderr } = sluice(kubeconfig, arguments).await?;
    ensure!(!success && stderr.contains(why), "{arguments:?} is not refused for {why:?}: {stdout}{stderr}");
    ensure!(stderr.trim().lines().count() == 1, "more than one line: {stderr}");
    Ok(())
}

/// Waits until the command succeeds and says this.
pub async fn comes_to_say(kubeconfig: &Path, arguments: &[&str], text: &str) -> Result<String> {
    eventually(&format!("{arguments:?} says {text:?}"), patience(), async || {
        match sluice(kubeconfig, arguments).await {
            Ok(outcome) if outcome.success && outcome.stdout.contains(text) => Ok(outcome.stdout),
            Ok(outcome) => Err(format!("{}{}", outcome.stdout, outcome.stderr)),
            Err(error) => Err(format!("{error:#}")),
        }
    })
    .await
}
