//! `sluice serve`: webhook, controller and HTTP server in one process, from start to graceful shutdown.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use kube::{Client, Config};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::api::caps::Caps;
use crate::api::names;
use crate::ask::{self, AskMetrics, AskState, VerdictMetrics, VerdictState};
use crate::certs::proof::{self, Proof};
use crate::certs::{self, Certificates};
use crate::cluster::events::{self, Notices};
use crate::cluster::heartbeat::Heartbeat;
use crate::cluster::leader::{Candidate, Leadership, campaign};
use crate::cluster::status::{Report, Statuses};
use crate::controller::{self, Asker, Context as ControllerContext, Question, Readiness, Recorder};
use crate::directory::{Directory, SharedDirectory};
use crate::faults;
use crate::forecast::Forecaster;
use crate::history;
use crate::history::query::Reader;
use crate::history::store::Location;
use crate::http::{self, HttpState};
use crate::kinds::Kinds;
use crate::metrics::Metrics;
use crate::notify;
use crate::options::{AcceleratorOptions, CapOptions, SchedulingOptions};
use crate::version::{COMMIT, VERSION};
use crate::webhook::body::Budget;
use crate::webhook::{self, WebhookMetrics, WebhookState};

/// The interval between status writes.
const STATUS_PERIOD: Duration = Duration::from_secs(5);
/// The time limit of the last status writes on shutdown.
const HAND_OVER: Duration = Duration::from_secs(3);
/// The longest time until a Service stops sending requests to a Pod that is not ready.
const ENDPOINTS: Duration = Duration::from_secs(5);

/// Options of `sluice serve`.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Kubeconfig file; by default $KUBECONFIG, else the Pod's service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Namespace of Sluice and its Lease.
    #[arg(long, env = "POD_NAMESPACE", default_value = names::NAMESPACE, value_name = "NAME")]
    pub namespace: String,
    /// Holder identity in the Lease; by default host name and process ID.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,
    /// Listen address of the admission webhook (TLS).
    #[arg(long, default_value = "0.0.0.0:9443", value_name = "ADDRESS")]
    pub https_address: SocketAddr,
    /// Listen address of metrics and health.
    #[arg(long, default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub http_address: SocketAddr,
    /// Options of the webhook's certificate and address.
    #[command(flatten)]
    pub certificates: certs::Options,
    /// Lease duration: another replica takes over when the leader does not renew for this long.
    #[arg(long, default_value = "5s", value_parser = lease_duration, value_name = "DURATION")]
    pub lease_duration: Duration,
    /// File with the custom kinds to manage besides Job and Pod; replaces the built-in table.
    #[arg(long, value_name = "FILE")]
    pub kinds: Option<PathBuf>,
    /// Scheduling options.
    #[command(flatten)]
    pub scheduling: SchedulingOptions,
    /// Caps on workloads.
    #[command(flatten)]
    pub caps: CapOptions,
    /// Accept GPU fractions in pools without `shares` too. Sluice alone counts them: the pods request nothing, so their
    /// nodes must share GPUs among such pods by themselves.
    #[arg(long)]
    pub assume_gpu_fractions: bool,
    /// Resources that count as GPUs.
    #[command(flatten)]
    pub accelerators: AcceleratorOptions,
    /// Options of notifications.
    #[command(flatten)]
    pub notify: notify::Options,
    /// Options of the history.
    #[command(flatten)]
    pub history: history::Options,
}

/// Serves until SIGTERM or SIGINT. `config` is the connection to the API server, and `kinds` are the custom kinds to manage besides Jobs
/// and Pods.
///
/// # Errors
/// If the connection cannot be set up, a listener fails, or a component stops unexpectedly.
pub async fn run(options: Options, mut config: Config, kinds: Kinds) -> anyhow::Result<()> {
    // Each caller handles refusals itself; retries in the client would hide them.
    config.default_retry = false;
    let client = Client::try_from(config).context("cannot set up the connection to the cluster")?;
    let accelerators = options.accelerators.accelerators();
    let metrics = Metrics::new().context("cannot set up metrics")?.counting(accelerators.clone());
    let metrics = Arc::new(metrics);
    let ready = Arc::new(Readiness::default());
    let directory = SharedDirectory::default();
    // The caps hold from the first review on, also while everything else is still being listed.
    let caps = Caps { assumed_fractions: options.assume_gpu_fractions, ..options.caps.caps() };
    directory.store(Directory { caps, ..Directory::default() });
    let [decisions, lease, listeners] = [(); 3].map(|()| CancellationToken::new());

    let heart = Heartbeat::default();
    let candidate = Candidate {
        identity: identity(&options),
        namespace: options.namespace.clone(),
        duration: options.lease_duration,
    };
    let identity = candidate.identity.clone();
    tracing::info!(version = VERSION, commit = COMMIT, identity, "starting");
    let (leadership, election) = campaign(client.clone(), candidate, heart.clone(), lease.clone());
    let election = tokio::spawn(election);

    let busy = Arc::new(AtomicUsize::new(0));
    let (notices, publisher) = events::publisher(
        client.clone(),
        leadership.clone(),
        identity.clone(),
        Arc::clone(&metrics),
        Arc::clone(&busy),
    );
    let (notifier, deliveries) = notify::start(&options.notify, &metrics.registry, decisions.clone())
        .context("cannot set up notifications")?;
    let location = options.history.location().map_err(anyhow::Error::msg)?;
    let reader = Reader::new(location.clone());
    let (historian, recording) = record(location, &options, &metrics)?;
    let session = history::session(&identity, jiff::Timestamp::now().as_millisecond());
    let recorder = Recorder::new(session, historian, accelerators.clone());
    let (asker, questions) = Asker::new();
    let events_of_teams = notices.clone();
    let context = ControllerContext {
        client: client.clone(),
        leadership: leadership.clone(),
        heart: heart.clone(),
        directory: directory.clone(),
        metrics: Arc::clone(&metrics),
        notices,
        notifier,
        recorder: Arc::new(Mutex::new(recorder)),
        busy,
        settings: options.scheduling.settings(),
        caps,
        kinds,
        ready: Arc::clone(&ready),
    };

    // Decisions are CPU-bound: on their own thread they do not delay admission reviews.
    let mut deciding = JoinSet::new();
    let stop = decisions.clone();
    let settled = Arc::new(AtomicBool::new(true));
    let all_settled = Arc::clone(&settled);
    deciding.spawn_blocking(move || {
        let known = tokio::runtime::Handle::current().block_on(controller::run(context, questions, stop));
        all_settled.store(known, Ordering::Relaxed);
        Ok(())
    });
    let asks = (asker.clone(), directory.clone(), events_of_teams);
    let stop = decisions.clone();
    deciding.spawn(report(client.clone(), leadership.clone(), asks, Arc::clone(&metrics), stop));
    deciding.spawn(until(decisions.clone(), publisher));

    // Not among what the lease waits for: a slow endpoint delays no other replica.
    let deliveries = tokio::spawn(deliveries);
    let mut listening = JoinSet::new();
    let forecaster = Forecaster::new(asker.clone(), decisions.clone()).counting(accelerators.clone());
    let verdicts = forecaster.verdicts();
    let askers = (asker.clone(), forecaster, reader);
    let state = HttpState { asker, metrics: Arc::clone(&metrics), ready: Arc::clone(&ready), heart };
    let (address, stop) = (options.http_address, listeners.clone());
    listening.spawn(async move {
        let served = http::serve(address, http::router(state), stop).await;
        served.with_context(|| format!("cannot serve HTTP on {address}"))
    });
    let proof = Proof::default();
    let ask_metrics = AskMetrics::new(&metrics.registry).context("cannot set up metrics")?;
    let asks = AskState::new(
        askers,
        accelerators,
        directory.clone(),
        proof.clone(),
        Arc::clone(&ready),
        ask_metrics,
    );
    let (stop, of, namespace) = (listeners.clone(), client.clone(), options.namespace.clone());
    let kept = proof.clone();
    listening.spawn(async move {
        proof::keep(of, &namespace, kept, stop).await;
        Ok(())
    });
    let verdicts = VerdictState {
        verdicts,
        directory: directory.clone(),
        proof: proof.clone(),
        ready: Arc::clone(&ready),
        metrics: VerdictMetrics::new(&metrics.registry).context("cannot set up metrics")?,
        budget: Budget::default(),
    };
    let webhook_metrics = WebhookMetrics::new(&metrics.registry).context("cannot set up metrics")?;
    let routes = webhook::router(WebhookState::new(directory, webhook_metrics))
        .merge(ask::router(asks))
        .merge(ask::verdict_router(verdicts));
    let ready_webhook = Arc::clone(&ready);
    let behind_service = options.certificates.webhook_url.is_none();
    listening.spawn(serve_webhook(
        client,
        options,
        (leadership, proof),
        routes,
        ready_webhook,
        listeners.clone(),
    ));

    let ended = tokio::select! {
        () = stop_signal() => Ok(()),
        early = deciding.join_next() => ended_early(early),
        early = listening.join_next() => ended_early(early),
    };
    tracing::info!("shutting down");
    ready.end();
    decisions.cancel();
    while deciding.join_next().await.is_some() {}
    // The lease is released last, so no other replica starts while a write is in flight. If the last writes got no
    // answer, the lease is left to expire.
    if settled.load(Ordering::Relaxed) {
        lease.cancel();
        election.await.context("the election ended in a panic")?;
    } else {
        tracing::warn!("the last writes got no answer; the lease expires by itself");
        election.abort();
    }
    deliveries.await.context("the delivery of notifications ended in a panic")?;
    tokio::task::spawn_blocking(|| recording.finish()).await.context("the history ended in a panic")?;
    if behind_service && ended.is_ok() {
        tokio::time::sleep(ENDPOINTS).await;
    }
    listeners.cancel();
    while listening.join_next().await.is_some() {}
    ended
}

/// Starts to write the history.
fn record(
    location: Option<Location>,
    options: &Options,
    metrics: &Metrics,
) -> anyhow::Result<(history::Historian, history::Recording)> {
    match &location {
        Some(location) => tracing::info!(store = %location, "keeping a history"),
        None => tracing::info!("keeping no history; see --history"),
    }
    let counts = history::counts(&metrics.registry).context("cannot set up metrics")?;
    history::start(location, options.history.history_keep, counts).context("cannot start the history")
}

/// Serves admission reviews and Questions once there is a certificate.
async fn serve_webhook(
    client: Client,
    options: Options,
    (leadership, proof): (Leadership, Proof),
    routes: Router,
    ready: Arc<Readiness>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let Options { namespace, certificates, https_address, .. } = options;
    let leads = move || leadership.holds();
    let start = Certificates::start(client, &namespace, certificates, (leads, proof), stop.clone());
    let Some(certificates) = stop.run_until_cancelled(start).await else { return Ok(()) };
    let certificates = certificates.context("the webhook has no certificate")?;
    ready.webhook_serves();
    let served = webhook::serve(https_address, certificates.tls, routes, stop).await;
    served.with_context(|| format!("cannot serve the webhook on {https_address}"))?;
    certificates.task.await.context("the renewal of certificates ended in a panic")
}

async fn until(stop: CancellationToken, part: impl Future<Output = ()>) -> anyhow::Result<()> {
    match stop.run_until_cancelled(part).await {
        None => Ok(()),
        Some(()) if stop.is_cancelled() => Ok(()),
        Some(()) => anyhow::bail!("a component stopped unexpectedly"),
    }
}

fn ended_early(early: Option<Result<anyhow::Result<()>, tokio::task::JoinError>>) -> anyhow::Result<()> {
    match early {
        Some(Ok(Err(error))) => Err(error),
        Some(Err(panic)) => Err(panic).context("a component of Sluice panicked"),
        Some(Ok(Ok(()))) | None => anyhow::bail!("a component of Sluice stopped unexpectedly"),
    }
}

fn identity(options: &Options) -> String {
    options.identity.clone().unwrap_or_else(|| {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = if host.trim().is_empty() { "sluice" } else { host.trim() };
        format!("{host}-{}", std::process::id())
    })
}

/// Writes the statuses while this process leads, and when it stops leading by itself what the next leader goes on from.
async fn report(
    client: Client,
    leadership: Leadership,
    (asker, directory, notices): (Asker, SharedDirectory, Notices),
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut statuses = Statuses::telling(notices.clone());
    let mut last: Option<Report> = None;
    let mut period = tokio::time::interval(STATUS_PERIOD);
    period.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let rounds = async {
        loop {
            period.tick().await;
            if !leadership.holds() {
                // Another leader may write statuses in the meantime.
                (statuses, last) = (Statuses::telling(notices.clone()), None);
                continue;
            }
            if let Some(Some(mut report)) = asker.ask(Question::Report).await {
                let known = directory.load();
                for (name, (_, fault)) in &mut report.teams {
                    *fault = fault.take().or_else(|| faults::fault(name, &known));
                }
                last = Some(report.clone());
                statuses.write(&client, &metrics, &report).await;
            }
        }
    };
    stop.run_until_cancelled(rounds).await;
    if let Some(report) = last.filter(|_| leadership.holds()) {
        // Those that do not get their turn are read as they were written last.
        let _ = timeout(HAND_OVER, statuses.hand_over(&client, &metrics, &report)).await;
    }
    Ok(())
}

async fn stop_signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let terminate = async {
        match signal(SignalKind::terminate()) {
            Ok(mut signals) => drop(signals.recv().await),
            Err(error) => {
                tracing::warn!(%error, "cannot listen for SIGTERM");
                std::future::pending::<()>().await;
            }
        }
    };
    tokio::select! {
        () = terminate => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// Parses `--lease-duration`.
///
/// # Errors
/// The message for the user.
fn lease_duration(text: &str) -> Result<Duration, String> {
    let duration = crate::api::values::duration(text)?;
    if duration < Duration::from_secs(2) {
        return Err("must be at least 2s: a shorter lease is lost on short delays".to_owned());
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lasts_at_least_two_seconds() {
        assert_eq!(lease_duration("5s"), Ok(Duration::from_secs(5)));
        assert!(lease_duration("1s").is_err());
        assert!(lease_duration("soon").is_err());
    }
}
