//! The control plane, Sluice on it, and what is seen of them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use sluice_harness::{Cluster, Options, Sluice, User, install, webhook_answers};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::load;
use crate::processors::Processors;

/// Longest time of most steps.
const PATIENCE: Duration = Duration::from_secs(900);
/// Time between two lines of progress.
const REPORT_EVERY: Duration = Duration::from_secs(5);
/// The label of a Job and its pods that names their step.
pub const STEP: &str = "bench";
/// The namespaces without a team.
pub const RAW: [&str; 2] = ["raw-0", "raw-1"];

/// Whether a load runs without Sluice or with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Side {
    /// Without it.
    Raw,
    /// With it.
    Sluice,
}

/// Failed creates in namespaces without a team, and in all others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Failed {
    /// Without a team.
    pub raw: usize,
    /// The others.
    pub sluice: usize,
}

/// A control plane with nodes, and Sluice while it runs.
pub struct Stage {
    sluice: Option<Sluice>,
    only: Option<Side>,
    /// The generator's client.
    pub client: Client,
    /// The program that is measured.
    pub program: String,
    /// The control plane. The last field, so that it goes down after Sluice.
    pub cluster: Cluster,
}

impl Stage {
    /// Starts the control plane with nodes of eight GPUs, without Sluice.
    pub async fn up(program: &str, nodes: usize, only: Option<Side>) -> Result<Self> {
        let cluster = Cluster::up("bench-scale").await?;
        let client = cluster.client(User::Raw).await?;
        say(&format!("{nodes} nodes with 8 GPUs each"));
        load::nodes(&client, nodes).await?;
        install(&cluster).await?;
        for namespace in RAW {
            load::namespace(&client, namespace, None).await?;
        }
        Ok(Self { sluice: None, only, client, program: program.to_owned(), cluster })
    }

    /// Whether loads of this side run.
    pub fn runs(&self, side: Side) -> bool {
        self.only.is_none_or(|only| only == side)
    }

    /// Deletes the Jobs of all parts so far.
    pub async fn clear_all(&self) -> Result<()> {
        let namespaces =
            Api::<Namespace>::all(self.client.clone()).list_metadata(&ListParams::default()).await?;
        let names: Vec<String> = namespaces.items.iter().map(|namespace| namespace.name_any()).collect();
        let of_parts =
            |name: &&str| !name.starts_with("kube-") && !["default", "sluice-system"].contains(name);
        let names: Vec<&str> = names.iter().map(String::as_str).filter(of_parts).collect();
        load::clear(&self.client, &names).await
    }

    /// Starts Sluice, if it does not run, and applies these objects.
    pub async fn with_sluice(&mut self, objects: &str) -> Result<()> {
        if self.sluice.is_none() {
            self.sluice = Some(Sluice::start(&self.cluster, &Options::new(&self.program)).await?);
            webhook_answers(&self.cluster).await?;
        }
        self.cluster.kubectl(User::Admin).apply(objects).await?;
        Ok(())
    }

    /// Stops Sluice, so that it costs what comes next nothing.
    pub async fn without_sluice(&mut self) -> Result<()> {
        match self.sluice.take() {
            Some(mut sluice) => sluice.stop().await,
            None => Ok(()),
        }
    }

    /// The process of Sluice.
    pub fn process(&self) -> Result<u32> {
        self.sluice.as_ref().and_then(Sluice::process).context("Sluice does not run")
    }

    /// Processor time of each part of the control plane and of Sluice so far.
    pub fn processors(&self) -> Result<Processors> {
        Processors::now(self.cluster.directory(), self.process().ok())
    }

    /// Says what each process has used since then.
    pub fn say_processors(&self, since: &Processors) -> Result<()> {
        let used = self.processors()?.since(since);
        let used: Vec<String> =
            used.iter().map(|(name, time)| format!("{name} {:.1} s", time.as_secs_f64())).collect();
        say(&format!("  processor time: {}", used.join(", ")));
        Ok(())
    }

    /// Creates of Jobs and pods that the API server has answered with an error since it started.
    pub fn failed_creates(&self) -> Result<Failed> {
        let mut failed = Failed::default();
        for write in self.cluster.audit().writes()? {
            // The probe that the webhook answers is refused.
            let counts = write.verb == "create"
                && matches!(write.resource.as_str(), "jobs" | "pods")
                && !write.succeeded()
                && write.namespace != "probe";
            match RAW.contains(&write.namespace.as_str()) {
                _ if !counts => {}
                true => failed.raw += 1,
                false => failed.sluice += 1,
            }
        }
        Ok(failed)
    }
}

/// The pods of a step in a phase. A watch sees a pod when it comes into the phase and when it leaves it.
pub struct Running {
    seen: watch::Receiver<Seen>,
    step: String,
    patience: Duration,
    task: JoinHandle<()>,
}

#[derive(Clone, Copy)]
struct Seen {
    running: usize,
    at: Instant,
}

impl Running {
    /// Starts to watch the pods that run.
    pub fn watch(client: &Client, step: &str) -> Self {
        Self::in_phase(client, step, "Running", PATIENCE)
    }

    /// Starts to watch the pods that have succeeded, instead of those that run. Those that are deleted afterwards count too:
    /// the control plane deletes the oldest of very many. The last has to succeed within this time.
    pub fn succeeded(client: &Client, step: &str, patience: Duration) -> Self {
        Self::in_phase(client, step, "Succeeded", patience)
    }

    fn in_phase(client: &Client, step: &str, phase: &str, patience: Duration) -> Self {
        let for_good = phase == "Succeeded";
        let (sender, seen) = watch::channel(Seen { running: 0, at: Instant::now() });
        let config = watcher::Config::default()
            .labels(&format!("{STEP}={step}"))
            .fields(&format!("status.phase={phase}"));
        let mut events =
            watcher(Api::<PartialObjectMeta<Pod>>::all(client.clone()), config).default_backoff().boxed();
        let task = tokio::spawn(async move {
            let (mut running, mut listed) = (BTreeSet::new(), BTreeSet::new());
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Apply(pod)) => {
                        running.insert(pod.uid().unwrap_or_default());
                    }
                    Ok(watcher::Event::Delete(_)) if for_good => continue,
                    Ok(watcher::Event::Delete(pod)) => {
                        running.remove(&pod.uid().unwrap_or_default());
                    }
                    Ok(watcher::Event::Init) => listed.clear(),
                    Ok(watcher::Event::InitApply(pod)) => {
                        listed.insert(pod.uid().unwrap_or_default());
                    }
                    Ok(watcher::Event::InitDone) if for_good => running.append(&mut listed),
                    Ok(watcher::Event::InitDone) => running = std::mem::take(&mut listed),
                    Err(_) => continue,
                }
                sender.send_replace(Seen { running: running.len(), at: Instant::now() });
            }
        });
        Self { seen, step: step.to_owned(), patience, task }
    }

    /// Waits until so many run, and returns the time.
    pub async fn reaches(&mut self, count: usize) -> Result<Instant> {
        let began = Instant::now();
        let mut told = began;
        loop {
            let seen = *self.seen.borrow_and_update();
            if seen.running >= count {
                return Ok(seen.at);
            }
            if told.elapsed() > REPORT_EVERY {
                told = Instant::now();
                say(&format!(
                    "  {}: {} of {count} after {:.0} s",
                    self.step,
                    seen.running,
                    began.elapsed().as_secs_f64()
                ));
            }
            if began.elapsed() > self.patience {
                bail!("{}: {} of {count} after {:?}", self.step, seen.running, self.patience);
            }
            let _ = tokio::time::timeout(REPORT_EVERY, self.seen.changed()).await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A line of progress.
pub fn say(what: &str) {
    eprintln!("bench: {what}");
}
