//! The admission webhook: holds Jobs, gates Pods, and keeps people's hands off Sluice's marks.
//!
//! It answers from [`SharedDirectory`] alone, without a lock or a call: it decides nothing that a
//! second replica could contradict. What it knows lags behind the API server by moments, so before it
//! refuses a Job for a team, queue or pool that is not there, it waits a little for news of it.

mod gang;
mod job;
mod membership;
mod object;
pub mod offline;
mod other;
mod patch;
mod pod;
mod review;
mod shares;
mod view;
mod wishes;

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

/// An object of at most 3 MiB and its predecessor, with room for the envelope.
const BODY_LIMIT: usize = 7 << 20;
/// Below `timeoutSeconds` of the webhook configurations.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long an answer waits for news of what it misses: many times what a watch lags behind, and
/// well below [`TIMEOUT`].
const PATIENCE: Duration = Duration::from_secs(1);
/// How long open connections may finish their requests at the end.
const DRAIN: Duration = Duration::from_secs(10);

/// How long admission answers take, and what they had to do without.
#[derive(Clone, Debug)]
pub struct WebhookMetrics {
    duration: HistogramVec,
    unseen: IntCounterVec,
}

impl WebhookMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// When the registry has one of that name already.
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
                // A labelled series shows up only once it has been touched.
                let _ = duration.with_label_values(&[review, verdict]);
            }
        }
        registry.register(Box::new(duration.clone()))?;
        let options = Opts::new(
            "sluice_webhook_unseen_total",
            "Answers about objects of a kind without something that was waited for in vain, as where a pod goes.",
        );
        let unseen = IntCounterVec::new(options, &["kind"])?;
        for kind in ["Job", "Pod"] {
            let _ = unseen.with_label_values(&[kind]);
        }
        registry.register(Box::new(unseen.clone()))?;
        Ok(Self { duration, unseen })
    }
}

/// What the handlers need.
#[derive(Clone, Debug)]
pub struct WebhookState {
    /// Namespaces, teams and queues.
    pub directory: SharedDirectory,
    /// Where the answers' durations go.
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
/// When the address cannot be bound or the listener fails.
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
    answer(&state, "mutate", &body, |view, request| match request.kind.kind.as_str() {
        "Job" => job::mutate(view, request),
        "Pod" => pod::mutate(view, request),
        kind => match view.kinds().find(&request.kind.group, kind) {
            Some(entry) => other::mutate(view, request, entry),
            None => Verdict::pass(),
        },
    })
    .await
}

async fn validate(State(state): State<WebhookState>, body: Bytes) -> Json<ReviewResponse> {
    answer(&state, "validate", &body, |view, request| match request.kind.kind.as_str() {
        "Job" => job::validate(view, request),
        kind => match view.kinds().find(&request.kind.group, kind) {
            Some(entry) => other::validate(view, request, entry),
            None => Verdict::pass(),
        },
    })
    .await
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
            let (verdict, missed) = settled(&state.directory, &request, decide).await;
            if missed {
                state.metrics.unseen.with_label_values(&[&request.kind.kind]).inc();
            }
            if let Verdict::Deny(message) = &verdict {
                tracing::info!(review, user = %request.user_info.username, message, "refused");
            }
            (verdict.label(), ReviewResponse::new(request.uid, verdict))
        }
        // A deletion, or a subresource: nothing for us to say.
        Ok(ReviewRequest { request }) => ("allowed", ReviewResponse::new(request.uid, Verdict::pass())),
        Err(error) => ("malformed", ReviewResponse::malformed(format!("not an admission review: {error}"))),
    };
    state.metrics.duration.with_label_values(&[review, verdict]).observe(began.elapsed().as_secs_f64());
    Json(response)
}

/// Decides, and decides again on every newer directory for as long as something was looked for in vain;
/// whether it was to the end.
async fn settled(
    directory: &SharedDirectory,
    request: &Request,
    decide: fn(&View<'_>, &Request) -> Verdict,
) -> (Verdict, bool) {
    let until = Instant::now() + PATIENCE;
    loop {
        // Asked for before the look, so that what comes after the look is not slept through.
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

#[cfg(test)]
pub(crate) mod testing;
