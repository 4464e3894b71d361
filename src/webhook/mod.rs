//! The admission webhook: holds Jobs and custom kinds, gates Pods, and protects Sluice's annotations.
//!
//! Answers come from [`SharedDirectory`] alone, without a lock or a call. They contain no scheduling decision, so
//! every replica can answer. The directory lags behind the API server by moments. Before the webhook refuses a
//! workload because a team, queue or pool is missing, it waits a moment for the directory to change.

mod assignment;
pub mod body;
mod caps;
mod constraints;
mod context;
mod custom;
mod gang;
mod gpu_fraction;
#[cfg(test)]
mod hold_tests;
mod job;
mod mutate;
mod namespace;
mod never;
mod object;
pub mod offline;
mod pod;
mod pod_placement;
mod priority;
mod requests;
pub mod review;
mod rules;
mod team;
mod template;
#[cfg(test)]
mod test_client;
#[cfg(test)]
mod tests;
mod validate;
mod view;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tower_http::timeout::TimeoutLayer;

use crate::directory::SharedDirectory;
use crate::listener::{self, Limits};
use body::{Budget, Unread};
use review::{Request, ReviewRequest, ReviewResponse, Verdict};
use view::{Missed, View};

/// The longest time for an answer; below `timeoutSeconds` of the webhook configurations.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The bounds of the port. The API server keeps idle connections for 90 s; it must be the side that closes them, since a
/// request that crosses a close would fail.
const LIMITS: Limits = Limits {
    connections: 4096,
    first: Duration::from_secs(10),
    idle: Duration::from_secs(120),
    drain: Duration::from_secs(10),
};
/// The longest wait for a namespace, team, queue or pool that is missing: above the usual lag of a watch, which is a few
/// milliseconds. Mostly the name is misspelt, and its user waits for the answer.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(250);
/// The longest wait for the nodes of an admitted Job's pod: the Job controller made it because it has seen the admission,
/// so this replica will see it too.
const PLACES_TIMEOUT: Duration = Duration::from_secs(1);
/// The reviews that may wait for a missing object at once; further ones are answered without a wait.
const MOST_WAITING: usize = 32;

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
        for kind in ["Job", "Namespace", "Pod", "Team"] {
            let _ = unseen.with_label_values(&[kind]);
        }
        registry.register(Box::new(unseen.clone()))?;
        Ok(Self { duration, unseen })
    }
}

/// The state of the request handlers.
#[derive(Clone, Debug)]
pub struct WebhookState {
    directory: SharedDirectory,
    metrics: WebhookMetrics,
    budget: Budget,
    waiting: Arc<Semaphore>,
}

impl WebhookState {
    /// The state with this directory of namespaces, teams, queues and pools.
    #[must_use]
    pub fn new(directory: SharedDirectory, metrics: WebhookMetrics) -> Self {
        let waiting = Arc::new(Semaphore::new(MOST_WAITING));
        Self { directory, metrics, budget: Budget::default(), waiting }
    }

    /// The state with this many reviews that may wait for a missing object at once.
    #[must_use]
    pub fn waiting_for_names(self, most: usize) -> Self {
        Self { waiting: Arc::new(Semaphore::new(most)), ..self }
    }
}

/// The HTTPS routes `/mutate` and `/validate`.
pub fn router(state: WebhookState) -> Router {
    Router::new()
        .route("/mutate", post(mutate))
        .route("/validate", post(validate))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, TIMEOUT))
        .with_state(state)
}

/// Serves the webhook until the token is cancelled, then lets open requests finish.
///
/// # Errors
/// If the address cannot be bound.
pub async fn serve(
    address: SocketAddr,
    tls: RustlsConfig,
    router: Router,
    token: CancellationToken,
) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    listener::serve(listener, RustlsAcceptor::new(tls), router, LIMITS, token).await;
    Ok(())
}

type Answer = Json<ReviewResponse>;
type HttpRequest = axum::http::Request<Body>;

async fn mutate(State(state): State<WebhookState>, request: HttpRequest) -> Answer {
    answer(&state, "mutate", request, mutate::mutate).await
}

async fn validate(State(state): State<WebhookState>, request: HttpRequest) -> Answer {
    answer(&state, "validate", request, validate::validate).await
}

async fn answer(
    state: &WebhookState,
    review: &str,
    request: HttpRequest,
    decide: fn(&View<'_>, &Request) -> Verdict,
) -> Answer {
    let read = body::of(request, &state.budget).await;
    let began = Instant::now();
    let (verdict, response) = match &read {
        Ok(read) => judged(state, review, &read.bytes, decide).await,
        Err(unread) => unjudged(review, unread),
    };
    state.metrics.duration.with_label_values(&[review, verdict]).observe(began.elapsed().as_secs_f64());
    Json(response)
}

/// The answer to a body that is decoded.
async fn judged(
    state: &WebhookState,
    review: &str,
    bytes: &[u8],
    decide: fn(&View<'_>, &Request) -> Verdict,
) -> (&'static str, ReviewResponse) {
    match serde_json::from_slice::<ReviewRequest>(bytes) {
        Ok(ReviewRequest { request }) if request.object.is_object() && request.sub_resource.is_empty() => {
            let (verdict, missed) = decide_settled(state, &request, decide).await;
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
        Err(error) => unjudged(review, &body::undecoded(bytes, &error)),
    }
}

/// The answer to a body that is not decoded.
fn unjudged(review: &str, unread: &Unread) -> (&'static str, ReviewResponse) {
    tracing::info!(review, ?unread, "not decoded");
    let (uid, verdict) = match unread {
        Unread::TooLarge(uid) => (
            uid,
            Verdict::Deny(format!(
                "the review is larger than the {} MiB that Sluice reads",
                body::BODY_LIMIT >> 20
            )),
        ),
        Unread::TooComplex(uid) => (
            uid,
            Verdict::Deny(
                "the object has too many fields and list entries: Sluice reads some 20,000".to_owned(),
            ),
        ),
        Unread::Busy(uid) => (
            uid,
            Verdict::Deny(
                "too many large objects are being written at once; try again in a moment".to_owned(),
            ),
        ),
        Unread::Unjudged(uid) => {
            let warning =
                "sluice: the stored object has too many fields, or is nested too deeply, to be judged";
            (uid, Verdict::Allow { patch: json_patch::Patch(Vec::new()), warnings: vec![warning.to_owned()] })
        }
        Unread::Undecoded(uid, problem) => {
            (uid, Verdict::Deny(format!("the object cannot be read: {problem}")))
        }
        Unread::Broken(uid, problem) => {
            return ("malformed", ReviewResponse::malformed(uid.clone(), problem.clone()));
        }
    };
    (verdict.label(), ReviewResponse::new(uid.clone(), verdict))
}

/// Decides, and repeats the decision with each newer directory while a lookup fails and time is left.
///
/// The second value says whether a lookup failed to the end.
async fn decide_settled(
    state: &WebhookState,
    request: &Request,
    decide: fn(&View<'_>, &Request) -> Verdict,
) -> (Verdict, bool) {
    let began = Instant::now();
    let mut waits = None;
    loop {
        // Subscribed before the lookup, so that a later change is not missed.
        let replaced = state.directory.replaced();
        let (verdict, missed) = {
            let directory = state.directory.load();
            let view = View::new(&directory);
            (decide(&view, request), view.missed())
        };
        let Some(missed) = missed else { return (verdict, false) };
        waits = waits.or_else(|| state.waiting.try_acquire().ok());
        let patience = match missed {
            Missed::Name => LOOKUP_TIMEOUT,
            Missed::Places => PLACES_TIMEOUT,
        };
        if waits.is_none() || timeout_at(began + patience, replaced).await.is_err() {
            return (verdict, true);
        }
    }
}
