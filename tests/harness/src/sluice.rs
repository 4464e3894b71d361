//! One replica of the real program, as a separate process.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use kube::Client;
use tokio::process::{Child, Command};

use crate::{Cluster, User, eventually};

/// The options of a replica.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program.
    pub program: PathBuf,
    /// The replica's identity.
    pub identity: String,
    /// The URL at which the API server reaches the webhook; by default the replica itself.
    pub webhook_url: Option<String>,
    /// The kubeconfig; by default that of Sluice's account.
    pub kubeconfig: Option<PathBuf>,
    /// Extra flags of `sluice serve`.
    pub flags: Vec<String>,
    /// Variables that are added to the replica's environment.
    pub environment: Vec<(String, String)>,
    /// Addresses of the webhook, and of metrics and health; by default on free ports.
    pub addresses: Option<[SocketAddr; 2]>,
    /// Whether the replica outlives this process; [`end_leftovers`] finds it again.
    pub detached: bool,
}

impl Options {
    /// A replica of this program, named `sluice-0`.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            identity: "sluice-0".to_owned(),
            webhook_url: None,
            kubeconfig: None,
            flags: Vec::new(),
            environment: Vec::new(),
            addresses: None,
            detached: false,
        }
    }
}

/// A running replica; dropping it kills it, unless it is detached.
#[derive(Debug)]
pub struct Sluice {
    identity: String,
    child: Child,
    log: PathBuf,
    https: SocketAddr,
    http: SocketAddr,
    /// The kubeconfig of the administrator.
    admin: PathBuf,
}

impl Sluice {
    /// Starts a replica without waiting.
    pub fn spawn(cluster: &Cluster, options: &Options) -> Result<Self> {
        let [https, http] = options.addresses.map_or_else(free_addresses, Ok)?;
        let scratch = cluster.scratch()?;
        let log = scratch.join(format!("{}.log", options.identity));
        let output = File::options().create(true).append(true).open(&log)?;
        let url = options.webhook_url.clone().unwrap_or_else(|| format!("https://{https}"));
        let mut command = Command::new(&options.program);
        command
            .arg("serve")
            .arg("--kubeconfig")
            .arg(options.kubeconfig.clone().unwrap_or_else(|| cluster.kubeconfig(User::Sluice)))
            .args(["--identity", &options.identity, "--webhook-url", &url])
            .args(["--https-address", &https.to_string(), "--http-address", &http.to_string()])
            .args(&options.flags)
            .envs(options.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(!options.detached);
        if options.detached {
            // Ctrl-C in the terminal must reach only the process in the foreground.
            command.process_group(0);
        }
        let child = command.spawn().with_context(|| format!("cannot run {}", options.program.display()))?;
        if let Some(process) = child.id().filter(|_| options.detached) {
            std::fs::write(scratch.join(format!("{}.{PID}", options.identity)), process.to_string())?;
        }
        let admin = cluster.kubeconfig(User::Admin);
        Ok(Self { identity: options.identity.clone(), child, log, https, http, admin })
    }

    /// Starts a replica and waits until it is ready.
    pub async fn start(cluster: &Cluster, options: &Options) -> Result<Self> {
        let mut replica = Self::spawn(cluster, options)?;
        replica.ready().await?;
        Ok(replica)
    }

    /// Waits until the replica reports ready.
    pub async fn ready(&mut self) -> Result<()> {
        let what = format!("{} is ready", self.identity);
        let ready = eventually(&what, Duration::from_secs(30), async || {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Ok(Err(status));
            }
            match self.get("/readyz").await {
                Ok(_) => Ok(Ok(())),
                Err(error) => Err(format!("{error:#}")),
            }
        })
        .await
        .with_context(|| self.log_tail())?;
        if let Err(status) = ready {
            bail!("{} ended while it was starting ({status}). {}", self.identity, self.log_tail());
        }
        Ok(())
    }

    /// Body of a GET on the port of metrics and health; an answer other than 2xx is an error.
    pub async fn get(&self, path: &str) -> Result<String> {
        let address = self.http;
        let base: http::Uri = format!("http://{address}").parse()?;
        let mut config = kube::Config::new(base);
        config.connect_timeout = Some(Duration::from_secs(2));
        config.read_timeout = Some(Duration::from_secs(5));
        let client = Client::try_from(config)?;
        // A busy or starting server is retried by the caller, which knows the timeout.
        let request = http::Request::get(path).body(Vec::new())?;
        tokio::time::timeout(Duration::from_secs(5), client.request_text(request))
            .await
            .context("no answer within 5 s")?
            .with_context(|| format!("GET http://{address}{path}"))
    }

    /// The replica's identity.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Address of the webhook.
    #[must_use]
    pub fn https(&self) -> SocketAddr {
        self.https
    }

    /// The kubeconfig of the administrator.
    pub(crate) fn admin(&self) -> &Path {
        &self.admin
    }

    /// Address of metrics and health.
    #[must_use]
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// Process id.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.child.id()
    }

    /// Kills the process without a chance to clean up.
    pub async fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Stops the process for a while without its knowledge (`STOP`), or lets it go on (`CONT`).
    pub async fn signal(&self, signal: &str) -> Result<()> {
        let Some(process) = self.child.id() else { return Ok(()) };
        Command::new("kill").arg(format!("-{signal}")).arg(process.to_string()).status().await?;
        Ok(())
    }

    /// Whether the process still runs.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends SIGTERM, waits for the end, and expects exit code 0.
    pub async fn stop(&mut self) -> Result<()> {
        let Some(process) = self.child.id() else { return Ok(()) };
        let asked = Command::new("kill").args(["-TERM", &process.to_string()]).status().await?;
        if !asked.success() {
            bail!("cannot signal process {process}");
        }
        let status = tokio::time::timeout(Duration::from_secs(30), self.child.wait())
            .await
            .with_context(|| format!("{} does not end within 30 s of SIGTERM", self.identity))??;
        if !status.success() {
            bail!("{} ended with {status} after SIGTERM. {}", self.identity, self.log_tail());
        }
        Ok(())
    }

    /// Path of the log.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Path of the log, and its last lines.
    #[must_use]
    pub fn log_tail(&self) -> String {
        const LINES: usize = 40;
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LINES)..];
        format!("The end of {}:\n{}", self.log.display(), tail.join("\n"))
    }
}

/// File name extension of the ids of detached processes.
const PID: &str = "pid";

/// Ends the detached replicas that an earlier process has left in this directory.
pub async fn end_leftovers(scratch: &Path) -> Result<()> {
    let Ok(files) = std::fs::read_dir(scratch) else { return Ok(()) };
    for file in files {
        let file = file?.path();
        if file.extension().is_none_or(|ending| ending != PID) {
            continue;
        }
        let process = std::fs::read_to_string(&file)?;
        if is_sluice(&process) {
            Command::new("kill").args(["-TERM", &process]).status().await?;
            let ended = eventually("the process ends after SIGTERM", Duration::from_secs(15), async || {
                if is_sluice(&process) { Err(format!("process {process} runs")) } else { Ok(()) }
            });
            if ended.await.is_err() {
                Command::new("kill").args(["-KILL", &process]).status().await?;
            }
        }
        std::fs::remove_file(&file)?;
    }
    Ok(())
}

/// Whether this process is a replica of Sluice: its id may have been reused.
fn is_sluice(process: &str) -> bool {
    let command = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let mut arguments = command.split(|byte| *byte == 0);
    arguments.next().is_some_and(|program| program.ends_with(b"/sluice"))
        && arguments.next() == Some(b"serve")
}

/// Two free addresses.
fn free_addresses() -> Result<[SocketAddr; 2]> {
    // Both are bound before any is released, so that they differ.
    let bind = || TcpListener::bind("127.0.0.1:0");
    let (first, second) = (bind()?, bind()?);
    Ok([first.local_addr()?, second.local_addr()?])
}
