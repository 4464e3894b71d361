//! The real kubectl, as users run it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::wait::COMMAND;

/// A kubectl that acts as one user of one cluster.
#[derive(Clone, Debug)]
pub struct Kubectl {
    program: PathBuf,
    first: Option<OsString>,
    kubeconfig: PathBuf,
    cache: PathBuf,
}

/// The result of a call of kubectl.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Whether the exit code is 0.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Kubectl {
    /// Uses the system's kubectl if it is installed, else the one inside the cluster's program.
    pub(crate) fn new(cluster_program: &Path, kubeconfig: PathBuf, cache: PathBuf) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .map(|directory| directory.join("kubectl"))
            .find(|candidate| candidate.is_file());
        match found {
            Some(program) => Self { program, first: None, kubeconfig, cache },
            None => {
                Self { program: cluster_program.to_owned(), first: Some("kubectl".into()), kubeconfig, cache }
            }
        }
    }

    /// Runs kubectl with these arguments and this standard input.
    pub async fn run(&self, arguments: &[&str], input: Option<&str>) -> Result<Outcome> {
        let mut child = Command::new(&self.program)
            .args(&self.first)
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            // New clusters reuse the ports of old ones, so discovery results must not be cached.
            .env("KUBECACHEDIR", &self.cache)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        let talk = async {
            if let Some(mut stdin) = child.stdin.take()
                && let Some(input) = input
            {
                stdin.write_all(input.as_bytes()).await?;
            }
            child.wait_with_output().await
        };
        let talk = tokio::time::timeout(COMMAND, talk).await;
        let output =
            talk.with_context(|| format!("kubectl {} did not end within {COMMAND:?}", arguments.join(" ")))??;
        Ok(Outcome {
            success: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Runs kubectl, expects success, and returns its output.
    pub async fn ok(&self, arguments: &[&str]) -> Result<String> {
        let outcome = self.run(arguments, None).await?;
        if !outcome.success {
            bail!("kubectl {} failed: {}", arguments.join(" "), outcome.stderr.trim());
        }
        Ok(outcome.stdout)
    }

    /// Runs kubectl, expects failure, and returns its error output.
    pub async fn refused(&self, arguments: &[&str]) -> Result<String> {
        let outcome = self.run(arguments, None).await?;
        if outcome.success {
            bail!("kubectl {} was expected to be refused: {}", arguments.join(" "), outcome.stdout.trim());
        }
        Ok(outcome.stderr)
    }

    /// Runs `kubectl apply` with this manifest.
    pub async fn apply(&self, manifest: &str) -> Result<String> {
        self.feed(&["apply", "-f", "-"], manifest).await
    }

    /// Runs `kubectl create` with this manifest.
    pub async fn create(&self, manifest: &str) -> Result<String> {
        self.feed(&["create", "-f", "-"], manifest).await
    }

    async fn feed(&self, arguments: &[&str], manifest: &str) -> Result<String> {
        let outcome = self.run(arguments, Some(manifest)).await?;
        if !outcome.success {
            bail!("kubectl {} failed: {}", arguments.join(" "), outcome.stderr.trim());
        }
        Ok(outcome.stdout)
    }
}
