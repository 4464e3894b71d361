//! Verdicts on new objects and changed Jobs that are sent with dry-run, as warnings to their user.
//!
//! Such a review is always allowed: what it misses is a verdict. The path of the review proves that it came through the
//! API server; without that there is none, because a verdict tells what its team and the nodes have left.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::routing::post;
use axum::{Json, Router};
use jiff::Timestamp;
use json_patch::Patch;
use prometheus::{HistogramOpts, HistogramVec, Registry};
use serde_json::Value;
use tokio::time::Instant;

use super::redact::Sight;
use crate::certs::proof::Proof;
use crate::controller::Readiness;
use crate::directory::{Directory, SharedDirectory};
use crate::forecast::{Foreseen, Said, Verdicts};
use crate::view::warning;
use crate::webhook::body::{self, Budget, Unread};
use crate::webhook::review::{Request, ReviewResponse, Verdict};

/// The longest time for a verdict; below `timeoutSeconds` of the webhook configuration.
const TIMEOUT: Duration = Duration::from_millis(700);
/// The most warnings of a verdict.
const MOST: usize = 4;

/// Durations of verdicts.
#[derive(Clone, Debug)]
pub struct VerdictMetrics {
    duration: HistogramVec,
}

impl VerdictMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If the registry already has a metric of that name.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let options = HistogramOpts::new(
            "sluice_verdict_duration_seconds",
            "Time from the arrival of a request with dry-run to the verdict on its object.",
        )
        .buckets(vec![1e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 0.75, 1.0]);
        let duration = HistogramVec::new(options, &["outcome"])?;
        for outcome in ["answered", "busy", "late", "none"] {
            // A labelled series exists only after its first use.
            let _ = duration.with_label_values(&[outcome]);
        }
        registry.register(Box::new(duration.clone()))?;
        Ok(Self { duration })
    }
}

/// The state of the handler.
#[derive(Clone, Debug)]
pub struct VerdictState {
    /// Makes the verdicts.
    pub verdicts: Verdicts,
    /// Namespaces, teams and kinds.
    pub directory: SharedDirectory,
    /// What the path must end with.
    pub proof: Proof,
    /// Whether the first lists are complete.
    pub ready: Arc<Readiness>,
    /// Durations of the verdicts.
    pub metrics: VerdictMetrics,
    /// The memory of all bodies at once.
    pub budget: Budget,
}

/// The HTTPS route `/verdict`, which needs its proof to say anything.
pub fn router(state: VerdictState) -> Router {
    Router::new()
        .route("/verdict", post(without_proof))
        .route("/verdict/{proof}", post(with_path))
        .with_state(state)
}

type HttpRequest = axum::http::Request<Body>;

async fn without_proof(State(state): State<VerdictState>, request: HttpRequest) -> Json<ReviewResponse> {
    reviewed(&state, "", request).await
}

async fn with_path(
    State(state): State<VerdictState>,
    Path(path): Path<String>,
    request: HttpRequest,
) -> Json<ReviewResponse> {
    reviewed(&state, &path, request).await
}

async fn reviewed(state: &VerdictState, path: &str, request: HttpRequest) -> Json<ReviewResponse> {
    let began = Instant::now();
    let (request, _read) = match body::review(request, &state.budget).await {
        Ok(review) => review,
        Err(unread) => return Json(undecoded(unread)),
    };
    let uid = request.uid.clone();
    let (outcome, warnings) = if state.proof.accepts_path(path) {
        verdict(state, request, began + TIMEOUT).await
    } else {
        tracing::info!(user = request.user_info.username, "no verdict: the review carries no proof");
        ("none", Vec::new())
    };
    state.metrics.duration.with_label_values(&[outcome]).observe(began.elapsed().as_secs_f64());
    Json(allowed(uid, warnings))
}

fn allowed(uid: String, warnings: Vec<String>) -> ReviewResponse {
    ReviewResponse::new(uid, Verdict::Allow { patch: Patch(Vec::new()), warnings })
}

/// The answer to a body that is not decoded. The other webhooks judge the same object.
fn undecoded(unread: Unread) -> ReviewResponse {
    match unread {
        Unread::Broken(uid, problem) => ReviewResponse::malformed(uid, problem),
        Unread::Busy(uid)
        | Unread::Undecoded(uid, _)
        | Unread::TooLarge(uid)
        | Unread::TooComplex(uid)
        | Unread::Unjudged(uid) => allowed(uid, Vec::new()),
    }
}

/// The verdict with the name under which it is counted.
async fn verdict(state: &VerdictState, request: Request, until: Instant) -> (&'static str, Vec<String>) {
    let Request { namespace, operation, dry_run, sub_resource, object, old_object, .. } = request;
    let directory = state.directory.load();
    let old = match operation.as_str() {
        "CREATE" => None,
        "UPDATE" => Some(in_namespace(old_object, &namespace)),
        _ => return ("none", Vec::new()),
    };
    let is_asked = sub_resource.is_empty() && dry_run;
    if !is_asked || !directory.namespaces.contains_key(&*namespace) || state.ready.lacks().is_some() {
        return ("none", Vec::new());
    }
    let objects = (old, in_namespace(object, &namespace));
    match state.verdicts.on(&directory.kinds, &namespace, objects, until).await {
        Said::Row(foreseen) => ("answered", warnings(&foreseen, &namespace, &directory)),
        Said::Busy => (
            "busy",
            vec![warning(
                "No verdict: too many requests with dry-run at once. Try again, or ask with `sluice what-if`.",
            )],
        ),
        Said::NotInTime => (
            "late",
            vec![warning(
                "No verdict: it takes longer than a dry-run waits. `sluice what-if` takes the time.",
            )],
        ),
        Said::Nothing => ("none", Vec::new()),
    }
}

/// The object, with the namespace of its request.
fn in_namespace(mut object: Value, namespace: &str) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    object
}

/// A verdict as warnings, which name the workloads of its own namespace only.
fn warnings(foreseen: &Foreseen, namespace: &str, directory: &Directory) -> Vec<String> {
    let Foreseen { row, group } = foreseen;
    let mut row = row.clone();
    Sight { own: namespace, directory }.what_if(&mut row);
    let whole = group.as_ref().map(|(name, size)| {
        warning(&format!("The verdict is on the whole group {name}: its {size} pods start all or none."))
    });
    whole.into_iter().chain(row.warnings(Timestamp::now())).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use serde_json::json;
    use tokio_util::sync::CancellationToken;
    use tower::ServiceExt as _;

    use super::*;
    use crate::controller::Asker;
    use crate::directory::Membership;
    use crate::forecast::Forecaster;

    /// A replica with a control loop that does not answer while the receiver is kept.
    fn state(asker: Asker) -> VerdictState {
        let ready = Arc::new(Readiness::default());
        ready.lists_complete();
        ready.webhook_serves();
        let directory = SharedDirectory::default();
        let membership = Membership { team: "a".into(), queue: None };
        directory.store(Directory { namespaces: [("a".into(), membership)].into(), ..Directory::default() });
        VerdictState {
            verdicts: Forecaster::new(asker, CancellationToken::new()).verdicts(),
            directory,
            proof: Proof::of("0123456789abcdef0123456789abcdef"),
            ready,
            metrics: VerdictMetrics::new(&Registry::new()).expect("a new registry is empty"),
            budget: Budget::default(),
        }
    }

    fn review() -> Value {
        json!({"request": {
            "uid": "42", "kind": {"group": "batch", "kind": "Job"}, "namespace": "a", "operation": "CREATE",
            "dryRun": true,
            "object": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"annotations": {"sluice.dev/held": "true"}},
                "spec": {"suspend": true, "template": {"spec": {"containers": [{"name": "main"}]}}}},
        }})
    }

    async fn post(state: &VerdictState, path: &str, body: String) -> Value {
        let request = axum::http::Request::post(path).body(Body::from(body)).expect("a request");
        let answer = router(state.clone()).oneshot(request).await.expect("infallible");
        assert_eq!(answer.status(), StatusCode::OK);
        let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
        let answer: Value = serde_json::from_slice(&body).expect("JSON");
        answer["response"].clone()
    }

    #[tokio::test(start_paused = true)]
    async fn only_new_objects_with_dry_run_and_proof_have_a_verdict_and_all_are_allowed() {
        let (asker, _questions) = Asker::new();
        let state = state(asker);
        let path = format!("/verdict/{}", state.proof.path().expect("a token"));
        let answer = post(&state, &path, review().to_string()).await;
        assert_eq!(answer["allowed"], true);
        let said = answer["warnings"][0].as_str().unwrap_or_default();
        assert!(said.starts_with("sluice: No verdict: it takes longer than a dry-run waits."), "{answer}");
        let mut unanswered = vec![
            ("/verdict".to_owned(), review()),
            ("/verdict/guess".to_owned(), review()),
            (format!("{path}0"), review()),
        ];
        for (field, value) in [
            ("dryRun", json!(false)),
            ("operation", json!("DELETE")),
            ("namespace", json!("unlabelled")),
            ("subResource", json!("status")),
        ] {
            let mut other = review();
            other["request"][field] = value;
            unanswered.push((path.clone(), other));
        }
        for (path, review) in unanswered {
            let began = Instant::now();
            let answer = post(&state, &path, review.to_string()).await;
            assert_eq!(answer, json!({"uid": "42", "allowed": true}), "{path} {review}");
            assert_eq!(began.elapsed(), Duration::ZERO, "it waits for nothing");
        }
        let unread = post(&state, &path, "{".to_owned()).await;
        assert_eq!(unread["allowed"], false, "what is no review is none");
    }
}
