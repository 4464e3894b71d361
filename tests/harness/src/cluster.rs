//! A separate control plane for each test: real Kubernetes, simulated nodes.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::process::Command;

use crate::wait::COMMAND;
use crate::{Audit, Kubectl, end_leftovers};

/// The users of the API server; the audit log distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// Has all rights.
    Admin,
    /// A plain user with the rights that a test grants.
    Alice,
    /// Sluice's own account.
    Sluice,
    /// Has all rights, under a name of its own that distinguishes load from other requests.
    Raw,
}

impl User {
    fn kubeconfig(self) -> &'static str {
        match self {
            Self::Admin => "admin.kubeconfig",
            Self::Alice => "alice.kubeconfig",
            Self::Sluice => "sluice.kubeconfig",
            Self::Raw => "raw.kubeconfig",
        }
    }
}

/// A version of Kubernetes that the control plane is built of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kubernetes {
    /// The one that has everything that Sluice uses.
    Newest,
    /// 1.34: without MutatingAdmissionPolicies, and with templates that stay as they are once a Job has run.
    V1_34,
}

impl Kubernetes {
    /// The argument of the build, if it takes one.
    fn argument(self) -> Option<&'static str> {
        match self {
            Self::Newest => None,
            Self::V1_34 => Some("1.34"),
        }
    }

    /// The directory of the manifests for a Sluice outside of the cluster.
    pub(crate) fn manifests(self) -> PathBuf {
        let folder = match self {
            Self::Newest => "local",
            Self::V1_34 => "local-without-mutating-policy",
        };
        project().join("manifests").join(folder)
    }
}

/// A running control plane. Dropping it stops it and, unless a test has failed, deletes its data.
#[derive(Debug)]
pub struct Cluster {
    name: String,
    program: PathBuf,
    directory: PathBuf,
    version: Kubernetes,
    keep: bool,
}

/// The directory of the project's sources.
pub(crate) fn project() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

impl Cluster {
    /// Builds the control plane if necessary, and returns the path of its program. The build writes to
    /// standard error; the first one takes minutes.
    pub async fn build() -> Result<PathBuf> {
        Self::build_of(Kubernetes::Newest).await
    }

    async fn build_of(version: Kubernetes) -> Result<PathBuf> {
        let script = project().join("tests/cluster/build.sh");
        let output = Command::new(&script)
            .args(version.argument())
            .stderr(Stdio::inherit())
            .output()
            .await
            .with_context(|| format!("cannot run {}", script.display()))?;
        if !output.status.success() {
            bail!("{} failed ({})", script.display(), output.status);
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let directory = text.lines().last().context("the build of the cluster printed no directory")?;
        Ok(Path::new(directory).join("sluice-cluster"))
    }

    /// Starts a new control plane on free ports. The name gets a suffix for the checkout of the sources, so
    /// that two checkouts can be tested at the same time.
    pub async fn up(name: &str) -> Result<Self> {
        Self::up_with(name, &[]).await
    }

    /// Like [`Self::up`], with extra flags such as `--pod-groups`.
    pub async fn up_with(name: &str, flags: &[&str]) -> Result<Self> {
        Self::up_of(name, Kubernetes::Newest, flags).await
    }

    /// Like [`Self::up_with`], of another version of Kubernetes.
    pub async fn up_of(name: &str, version: Kubernetes, flags: &[&str]) -> Result<Self> {
        let checkout = project()
            .to_string_lossy()
            .bytes()
            .fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
        Self::start_as(&format!("{name}-{:04x}", checkout & 0xffff), version, Some(0), flags).await
    }

    /// Starts a new control plane with exactly this name, by default on its default ports. Data of an earlier
    /// cluster of this name is deleted.
    pub async fn up_as(name: &str, port: Option<u16>) -> Result<Self> {
        Self::start_as(name, Kubernetes::Newest, port, &[]).await
    }

    async fn start_as(name: &str, version: Kubernetes, port: Option<u16>, flags: &[&str]) -> Result<Self> {
        let mut cluster = Self::of(name, Self::build_of(version).await?)?;
        cluster.version = version;
        let mut up = vec!["up".to_owned(), "--fresh".to_owned()];
        if let Some(port) = port {
            up.extend(["--port".to_owned(), port.to_string()]);
        }
        let up: Vec<&str> = up.iter().map(String::as_str).chain(flags.iter().copied()).collect();
        cluster.command(&up).await?;
        Ok(cluster)
    }

    /// The cluster's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version of Kubernetes it was started with.
    #[must_use]
    pub fn version(&self) -> Kubernetes {
        self.version
    }

    /// The cluster's data directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The program that runs the control plane; its subcommand `kubectl` is the real one.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A directory for files that belong to this cluster but not to its control plane.
    pub fn scratch(&self) -> Result<PathBuf> {
        let scratch = self.directory.with_extension("sluice");
        std::fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
        Ok(scratch)
    }

    /// The kubeconfig of a user.
    #[must_use]
    pub fn kubeconfig(&self, user: User) -> PathBuf {
        self.directory.join(user.kubeconfig())
    }

    /// A client that acts as this user.
    pub async fn client(&self, user: User) -> Result<Client> {
        // Only one crypto provider is compiled in; another part of the process may have installed it first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig(user))?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// A kubectl that acts as this user.
    #[must_use]
    pub fn kubectl(&self, user: User) -> Kubectl {
        Kubectl::new(&self.program, self.kubeconfig(user), self.directory.with_extension("sluice"))
    }

    /// The audit log of this cluster.
    #[must_use]
    pub fn audit(&self) -> Audit {
        Audit::new(self.directory.join("audit.log"))
    }

    /// Stops a component.
    pub async fn stop(&self, component: &str) -> Result<()> {
        self.command(&["stop", component]).await
    }

    /// Starts a stopped component.
    pub async fn start(&self, component: &str) -> Result<()> {
        self.command(&["start", component]).await
    }

    /// Stops a component and starts it again.
    pub async fn restart(&self, component: &str) -> Result<()> {
        self.command(&["restart", component]).await
    }

    /// Leaves the control plane running when this value is dropped.
    pub fn leave_running(mut self) {
        self.keep = true;
    }

    /// Deletes the control plane of this name, and ends the replicas of Sluice that still run there.
    pub async fn remove(name: &str) -> Result<()> {
        let scratch = directory(name)?.with_extension("sluice");
        end_leftovers(&scratch).await?;
        if directory(name)?.exists() {
            drop(Self::of(name, Self::build().await?)?);
        }
        match std::fs::remove_dir_all(&scratch) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn of(name: &str, program: PathBuf) -> Result<Self> {
        let (name, directory) = (name.to_owned(), directory(name)?);
        Ok(Self { name, program, directory, version: Kubernetes::Newest, keep: false })
    }

    async fn command(&self, arguments: &[&str]) -> Result<()> {
        let output = Command::new(&self.program)
            .args(arguments)
            .args(["--name", &self.name])
            .stdin(Stdio::null())
            .output();
        let output = tokio::time::timeout(COMMAND, output).await;
        let output = output
            .with_context(|| format!("sluice-cluster {arguments:?} did not end within {COMMAND:?}"))?
            .with_context(|| format!("cannot run {}", self.program.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("sluice-cluster {} failed: {}", arguments.join(" "), said.trim());
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        let failed = std::thread::panicking();
        let mut down = std::process::Command::new(&self.program);
        down.args(["down", "--name", &self.name]);
        if !failed {
            down.arg("--purge");
        }
        // A failure here cannot be handled; the next cluster of this name deletes the rest.
        let _ = down.stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !failed {
            let _ = std::fs::remove_dir_all(self.directory.with_extension("sluice"));
        }
    }
}

/// The directory in which the cluster tool keeps a cluster of this name.
fn directory(name: &str) -> Result<PathBuf> {
    let state = match std::env::var_os("XDG_STATE_HOME").filter(|state| !state.is_empty()) {
        Some(state) => PathBuf::from(state),
        None => {
            PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".local").join("state")
        }
    };
    Ok(state.join("sluice").join(format!("cluster-{name}")))
}
