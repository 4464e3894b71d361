//! Helm and kustomize, as people install with them.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use tokio::process::Command;

use crate::cluster::project;
use crate::wait::COMMAND;
use crate::{Cluster, User};

/// Helm with the chart of the project.
#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
    chart: PathBuf,
    kubeconfig: Option<PathBuf>,
    home: PathBuf,
}

impl Helm {
    /// A Helm that renders without a cluster. It is built if necessary, which takes minutes the first time.
    ///
    /// # Errors
    /// When it cannot be built.
    pub async fn build() -> Result<Self> {
        let script = project().join("tests/cluster/helm.sh");
        let output = Command::new(&script)
            .stderr(Stdio::inherit())
            .output()
            .await
            .with_context(|| format!("cannot run {}", script.display()))?;
        if !output.status.success() {
            bail!("{} failed ({})", script.display(), output.status);
        }
        let program = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let home = std::env::temp_dir().join("sluice-helm");
        Ok(Self { program, chart: project().join("manifests/chart"), kubeconfig: None, home })
    }

    /// A Helm that acts as the administrator of a cluster.
    ///
    /// # Errors
    /// When it cannot be built.
    pub async fn on(cluster: &Cluster) -> Result<Self> {
        let (kubeconfig, home) = (Some(cluster.kubeconfig(User::Admin)), cluster.scratch()?.join("helm"));
        Ok(Self { kubeconfig, home, ..Self::build().await? })
    }

    /// The same with the chart of another checkout.
    #[must_use]
    pub fn of(&self, checkout: &Path) -> Self {
        Self {
            program: self.program.clone(),
            chart: checkout.join("manifests/chart"),
            kubeconfig: self.kubeconfig.clone(),
            home: self.home.clone(),
        }
    }

    /// The rendered chart, as a stream of YAML documents.
    ///
    /// # Errors
    /// When the chart cannot be rendered with these arguments.
    pub async fn template(&self, arguments: &[&str]) -> Result<String> {
        let chart = self.chart.to_string_lossy().into_owned();
        self.run(&[&["template", "sluice", &chart], arguments].concat()).await
    }

    /// Installs the chart as the release `sluice`, or upgrades it.
    ///
    /// # Errors
    /// When Helm fails.
    pub async fn upgrade(&self, arguments: &[&str]) -> Result<String> {
        let chart = self.chart.to_string_lossy().into_owned();
        self.run(&[&["upgrade", "--install", "sluice", &chart], arguments].concat()).await
    }

    /// Runs Helm and returns its output.
    ///
    /// # Errors
    /// When Helm fails; the error has what it says.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(&self.program)
            .args(arguments)
            .env("KUBECONFIG", self.kubeconfig.as_deref().unwrap_or(Path::new("/dev/null")))
            .env("HELM_CACHE_HOME", self.home.join("cache"))
            .env("HELM_CONFIG_HOME", self.home.join("config"))
            .env("HELM_DATA_HOME", self.home.join("data"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(COMMAND, output).await;
        let output = output
            .with_context(|| format!("helm {} did not end within {COMMAND:?}", arguments.join(" ")))?
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            // Each followed link of the chart is a line of its own.
            let said: Vec<&str> = said.lines().filter(|line| !line.starts_with("walk.go")).collect();
            bail!("helm {} failed: {}", arguments.join(" "), said.join("\n"));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// What kustomize makes of a folder below `manifests`.
///
/// # Errors
/// When it fails.
pub async fn kustomize(folder: &str) -> Result<String> {
    let program = Cluster::build().await?;
    let folder = project().join("manifests").join(folder);
    let output = Command::new(&program).args(["kubectl", "kustomize"]).arg(&folder).output().await?;
    if !output.status.success() {
        bail!("kubectl kustomize {} failed: {}", folder.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
