//! `sluice serve`: webhook, controller and HTTP in one process, from start to a clean end.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::names;
use crate::certs::{self, Certificates};
use crate::cluster::events;
use crate::cluster::leader::{Candidate, Claim, campaign};
use crate::cluster::status::Statuses;
use crate::controller::{Asker, Controller, Question, Readiness};
use crate::directory::SharedDirectory;
use crate::forecast::Forecaster;
use crate::http::{self, HttpState};
use crate::kinds::Kinds;
use crate::metrics::Metrics;
use crate::options::{AcceleratorOptions, SchedulingOptions};
use crate::webhook::{self, WebhookMetrics, WebhookState};

/// How far apart two writes of the same status are at least.
const STATUS_PERIOD: Duration = Duration::from_secs(5);
/// How long a Service may take to send no more requests to a Pod that is not ready.
const ENDPOINTS: Duration = Duration::from_secs(5);

/// Options of `sluice serve`.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// File with the cluster's address and credentials; else $KUBECONFIG, else the Pod's own account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace that Sluice runs in; its Lease is there.
    #[arg(long, env = "POD_NAMESPACE", default_value = names::NAMESPACE, value_name = "NAME")]
    pub namespace: String,
    /// What this replica is called in the Lease; by default the host's name and the process's number.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,
    /// Where the admission webhook listens (TLS).
    #[arg(long, default_value = "0.0.0.0:9443", value_name = "ADDRESS")]
    pub https_address: SocketAddr,
    /// Where metrics, health and the JSON API listen.
    #[arg(long, default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub http_address: SocketAddr,
    /// The webhook's certificate and address.
    #[command(flatten)]
    pub certificates: certs::Options,
    /// How long a silent leader leads before another replica takes over.
    #[arg(long, default_value = "5s", value_parser = lease_duration, value_name = "DURATION")]
    pub lease_duration: Duration,
    /// File with the kinds besides Job and Pod whose objects are workloads, in place of the table built in.
    #[arg(long, value_name = "FILE")]
    pub kinds: Option<PathBuf>,
    /// Scheduling options.
    #[command(flatten)]
    pub scheduling: SchedulingOptions,
    /// Resources that count as GPUs.
    #[command(flatten)]
    pub accelerators: AcceleratorOptions,
}

/// Serves until SIGTERM or SIGINT, with objects of these kinds as workloads besides Jobs and Pods.
///
/// # Errors
/// When the cluster's address is not to be had, a listener fails, or a part ends before its time.
pub async fn run(options: Options, kinds: Kinds) -> anyhow::Result<()> {
    let client = client(&options).await?;
    let accelerators = options.accelerators.accelerators();
    let metrics = Metrics::new().context("cannot set up metrics")?.counting(accelerators.clone());
    let metrics = Arc::new(metrics);
    let ready = Arc::new(Readiness::default());
    let directory = SharedDirectory::default();
    let [decisions, lease, listeners] = [(); 3].map(|()| CancellationToken::new());

    let candidate = Candidate {
        identity: identity(&options),
        namespace: options.namespace.clone(),
        duration: options.lease_duration,
    };
    let identity = candidate.identity.clone();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), identity, "starting");
    let (claim, election) = campaign(client.clone(), candidate, lease.clone());
    let election = tokio::spawn(election);

    let busy = Arc::new(AtomicUsize::new(0));
    let (notices, publisher) =
        events::publisher(client.clone(), claim.clone(), identity, Arc::clone(&metrics), Arc::clone(&busy));
    let (asker, questions) = Asker::new();
    let controller = Controller {
        client: client.clone(),
        claim: claim.clone(),
        directory: directory.clone(),
        metrics: Arc::clone(&metrics),
        notices,
        busy,
        settings: options.scheduling.settings(),
        kinds,
        ready: Arc::clone(&ready),
    };

    // Decisions are work for the processor: on a thread of their own they delay no admission review.
    let mut deciding = JoinSet::new();
    let stop = decisions.clone();
    let settled = Arc::new(AtomicBool::new(true));
    let all_settled = Arc::clone(&settled);
    deciding.spawn_blocking(move || {
        let known = tokio::runtime::Handle::current().block_on(controller.run(questions, stop));
        all_settled.store(known, Ordering::Relaxed);
        Ok(())
    });
    let reporter = report(client.clone(), claim.clone(), asker.clone(), Arc::clone(&metrics));
    deciding.spawn(until(decisions.clone(), reporter));
    deciding.spawn(until(decisions.clone(), publisher));

    let mut listening = JoinSet::new();
    let state = HttpState {
        forecaster: Forecaster::new(asker.clone(), decisions.clone()),
        asker,
        accelerators,
        directory: directory.clone(),
        metrics: Arc::clone(&metrics),
        ready: Arc::clone(&ready),
    };
    let (address, stop) = (options.http_address, listeners.clone());
    listening.spawn(async move {
        let served = http::serve(address, http::router(state), stop).await;
        served.with_context(|| format!("cannot serve HTTP on {address}"))
    });
    let webhook_metrics = WebhookMetrics::new(&metrics.registry).context("cannot set up metrics")?;
    let state = WebhookState { directory, metrics: webhook_metrics };
    let ready_webhook = Arc::clone(&ready);
    let behind_service = options.certificates.webhook_url.is_none();
    listening.spawn(serve_webhook(client, options, claim, state, ready_webhook, listeners.clone()));

    let ended = tokio::select! {
        () = asked_to_stop() => Ok(()),
        early = deciding.join_next() => ended_early(early),
        early = listening.join_next() => ended_early(early),
    };
    tracing::info!("ending");
    ready.end();
    decisions.cancel();
    while deciding.join_next().await.is_some() {}
    // Only now, so that no other replica starts while a write of this one is under way. Where the last
    // writes got no answer, the lease is not given back but left to run out.
    if settled.load(Ordering::Relaxed) {
        lease.cancel();
        election.await.context("the election ended in a panic")?;
    } else {
        tracing::warn!("the last writes got no answer; the lease runs out by itself");
        election.abort();
    }
    if behind_service && ended.is_ok() {
        tokio::time::sleep(ENDPOINTS).await;
    }
    listeners.cancel();
    while listening.join_next().await.is_some() {}
    ended
}

/// Serves admission reviews as soon as there is a certificate.
async fn serve_webhook(
    client: Client,
    options: Options,
    claim: Claim,
    state: WebhookState,
    ready: Arc<Readiness>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let Options { namespace, certificates, https_address, .. } = options;
    let leads = move || claim.holds();
    let start = Certificates::start(client, &namespace, certificates, leads, stop.clone());
    let Some(certificates) = stop.run_until_cancelled(start).await else { return Ok(()) };
    let certificates = certificates.context("the webhook has no certificate")?;
    ready.webhook_serves();
    let served = webhook::serve(https_address, certificates.tls, webhook::router(state), stop).await;
    served.with_context(|| format!("cannot serve the webhook on {https_address}"))?;
    certificates.task.await.context("the certificates were kept fresh until a panic")
}

async fn until(stop: CancellationToken, part: impl Future<Output = ()>) -> anyhow::Result<()> {
    match stop.run_until_cancelled(part).await {
        None => Ok(()),
        Some(()) if stop.is_cancelled() => Ok(()),
        Some(()) => anyhow::bail!("a part that runs for ever has ended"),
    }
}

fn ended_early(early: Option<Result<anyhow::Result<()>, tokio::task::JoinError>>) -> anyhow::Result<()> {
    match early {
        Some(Ok(Err(error))) => Err(error),
        Some(Err(panic)) => Err(panic).context("a part of Sluice has failed"),
        Some(Ok(Ok(()))) | None => anyhow::bail!("a part of Sluice ended before its time"),
    }
}

async fn client(options: &Options) -> anyhow::Result<Client> {
    let mut config = match &options.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| path.display().to_string())?;
            let read = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await;
            read.with_context(|| path.display().to_string())?
        }
        None => Config::infer().await.context("no kubeconfig, and not in a cluster")?,
    };
    // Whoever makes a call knows what a refusal means to it; a client that asks again by itself would only
    // keep it from being heard.
    config.default_retry = false;
    Client::try_from(config).context("cannot set up the connection to the cluster")
}

fn identity(options: &Options) -> String {
    options.identity.clone().unwrap_or_else(|| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = if host.trim().is_empty() { "sluice" } else { host.trim() };
        format!("{host}-{}", std::process::id())
    })
}

/// Writes statuses while leading.
async fn report(client: Client, claim: Claim, asker: Asker, metrics: Arc<Metrics>) {
    let mut statuses = Statuses::default();
    let mut period = tokio::time::interval(STATUS_PERIOD);
    period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        period.tick().await;
        if !claim.holds() {
            // What another leader writes meanwhile is not known here.
            statuses = Statuses::default();
            continue;
        }
        if let Some(Some(report)) = asker.ask(Question::Report).await {
            statuses.write(&client, &metrics, &report).await;
        }
    }
}

async fn asked_to_stop() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => drop(signals.recv().await),
            Err(error) => {
                tracing::warn!(%error, "SIGTERM is not heeded");
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = terminate => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// Reads `--lease-duration`.
///
/// # Errors
/// A sentence for the user.
fn lease_duration(text: &str) -> Result<Duration, String> {
    let duration = crate::api::values::duration(text)?;
    if duration < Duration::from_secs(2) {
        return Err("a lease shorter than 2s would be lost by any hiccup".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_has_a_sensible_length() {
        assert_eq!(lease_duration("5s"), Ok(Duration::from_secs(5)));
        assert!(lease_duration("1s").is_err());
        assert!(lease_duration("soon").is_err());
    }
}
