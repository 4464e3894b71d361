//! The admission webhook: holds Jobs and custom kinds, gates Pods, and protects Sluice's annotations.
//!
//! Answers come from [`SharedDirectory`] alone, without a lock or a call. They contain no scheduling decision, so
//! every replica can answer. The directory lags behind the API server by moments. Before the webhook refuses a
//! workload because a team, queue or pool is missing, it waits up to a second for the directory to change.

mod assignment;
mod caps;
mod context;
mod custom;
mod gang;
mod gpu_fraction;
mod job;
mod mutate;
mod object;
pub mod offline;
mod pod;
mod pod_placement;
mod requests;
mod review;
mod rules;
#[cfg(test)]
mod test_client;
#[cfg(test)]
mod tests;
mod validate;
mod view;

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use axum_server::tls_rustls::RustlsConfig;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::TimeoutLayer;

use crate::directory::SharedDirectory;
use review::{Request, ReviewRequest, ReviewResponse, Verdict};
use view::View;

/// The largest body in bytes: two objects of at most 3 MiB each, and the envelope.
const BODY_LIMIT: usize = 7 << 20;
/// The longest time for an answer; below `timeoutSeconds` of the webhook configurations.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The longest wait for a missing object: far above the lag of a watch, well below [`TIMEOUT`].
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);
/// The time for open requests to finish at shutdown.
const DRAIN: Duration = Duration::from_secs(10);

/// Durations of the answers, and answers given without an object that was waited for.
#[derive(Clone, Debug)]
pub struct WebhookMetrics {
    duration: HistogramVec,
    unseen: IntCounterVec,
}

impl WebhookMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If the registry already has a metric of that name.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let options = HistogramOpts::new(
            "sluice_webhook_duration_seconds",
            "Time from a complete admission request to its answer.",
        )
        .buckets(vec![
            1e-4, 2e-4, 3e-4, 5e-4, 7.5e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3, 1e-2, 2.5e-2, 0.1, 0.5, 1.0,
        ]);
        let duration = HistogramVec::new(options, &["review", "verdict"])?;
        for review in ["mutate", "validate"] {
            for verdict in ["allowed", "patched", "denied", "malformed"] {
                // A labelled series exists only after its first use.
                let _ = duration.with_label_values(&[review, verdict]);
            }
        }
        registry.register(Box::new(duration.clone()))?;
        let options = Opts::new(
            "sluice_webhook_unseen_total",
            "Answers by kind of object that were given after waiting in vain for a missing object, such as a team or an admission.",
        );
        let unseen = IntCounterVec::new(options, &["kind"])?;
        for kind in ["Job", "Pod"] {
            let _ = unseen.with_label_values(&[kind]);
        }
        registry.register(Box::new(unseen.clone()))?;
        Ok(Self { duration, unseen })
    }
}

/// The state of the request handlers.
#[derive(Clone, Debug)]
pub struct WebhookState {
    /// The directory of namespaces, teams, queues and pools.
    pub directory: SharedDirectory,
    /// The metrics.
    pub metrics: WebhookMetrics,
}

/// The HTTPS routes `/mutate` and `/validate`.
pub fn router(state: WebhookState) -> Router {
    Router::new()
        .route("/mutate", post(mutate))
        .route("/validate", post(validate))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, TIMEOUT))
        .layer(DefaultBodyLimit::disable())
        .layer(RequestBodyLimitLayer::new(BODY_LIMIT))
        .with_state(state)
}

/// Serves the webhook until the token is cancelled, then lets open requests finish.
///
/// # Errors
/// If the address cannot be bound or the listener fails.
pub async fn serve(
    address: SocketAddr,
    tls: RustlsConfig,
    router: Router,
    token: CancellationToken,
) -> std::io::Result<()> {
    let handle = axum_server::Handle::new();
    let server =
        axum_server::bind_rustls(address, tls).handle(handle.clone()).serve(router.into_make_service());
    tokio::pin!(server);
    tokio::select! {
        ended = &mut server => return ended,
        () = token.cancelled() => handle.graceful_shutdown(Some(DRAIN)),
    }
    server.await
}

async fn mutate(State(state): State<WebhookState>, body: Bytes) -> Json<ReviewResponse> {
    answer(&state, "mutate", &body, mutate::mutate).await
}

async fn validate(State(state): State<WebhookState>, body: Bytes) -> Json<ReviewResponse> {
    answer(&state, "validate", &body, validate::validate).await
}

async fn answer(
    state: &WebhookState,
    review: &str,
    body: &Bytes,
    decide: fn(&View<'_>, &Request) -> Verdict,
) -> Json<ReviewResponse> {
    let began = Instant::now();
    let (verdict, response) = match serde_json::from_slice::<ReviewRequest>(body) {
        Ok(ReviewRequest { request }) if request.object.is_object() && request.sub_resource.is_empty() => {
            let (verdict, missed) = decide_settled(&state.directory, &request, decide).await;
            if missed {
                state.metrics.unseen.with_label_values(&[&request.kind.kind]).inc();
            }
            if let Verdict::Deny(message) = &verdict {
                tracing::info!(review, user = %request.user_info.username, message, "refused");
            }
            (verdict.label(), ReviewResponse::new(request.uid, verdict))
        }
        // No rule covers deletions and subresources.
        Ok(ReviewRequest { request }) => ("allowed", ReviewResponse::new(request.uid, Verdict::pass())),
        Err(error) => ("malformed", ReviewResponse::malformed(format!("not an admission review: {error}"))),
    };
    state.metrics.duration.with_label_values(&[review, verdict]).observe(began.elapsed().as_secs_f64());
    Json(response)
}

/// Decides, and repeats the decision with each newer directory while a lookup fails and time is left.
///
/// The second value says whether a lookup failed to the end.
async fn decide_settled(
    directory: &SharedDirectory,
    request: &Request,
    decide: fn(&View<'_>, &Request) -> Verdict,
) -> (Verdict, bool) {
    let until = Instant::now() + LOOKUP_TIMEOUT;
    loop {
        // Subscribed before the lookup, so that a later change is not missed.
        let replaced = directory.replaced();
        let (verdict, missed) = {
            let directory = directory.load();
            let view = View::new(&directory);
            (decide(&view, request), view.missed())
        };
        if !missed || timeout_at(until, replaced).await.is_err() {
            return (verdict, missed);
        }
    }
}
