//! Answers Questions: an AdmissionReview comes in, and the object goes back with its answer.
//!
//! The API server authenticates the caller and checks its right to create the Question; the proof in the Question shows
//! that it has. Every replica answers from what its own control loop knows. Nothing is stored, no call is made, and no
//! decision waits for an answer: questions, their waits and their sizes are bounded.

mod history;
mod metrics;
mod page;
mod redact;
mod rows;
mod scope;
mod shared;
mod state;
#[cfg(test)]
mod tests;
mod times;
mod verdict;

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use serde_json::Value;
use tokio::time::Instant;
use tower_http::timeout::TimeoutLayer;

pub use self::metrics::AskMetrics;
use self::rows::{explained, node_rows, team_rows, what_if, workloads};
use self::scope::{Refusal, Scope};
pub use self::state::AskState;
use self::state::in_turn;
pub use self::verdict::router as verdict_router;
pub use self::verdict::{VerdictMetrics, VerdictState};
use crate::api::question::QuestionSpec;
use crate::certs::proof;
use crate::webhook::body::{self, Unread};
use crate::webhook::review::{Request, ReviewResponse, Verdict};

/// The longest time for an answer; below `timeoutSeconds` of the webhook configuration. A what-if result takes seconds.
const TIMEOUT: Duration = Duration::from_secs(13);

/// The HTTPS route `/ask`.
pub fn router(state: AskState) -> Router {
    Router::new()
        .route("/ask", post(with_policy))
        .route("/ask/{proof}", post(with_path))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, TIMEOUT))
        .with_state(state)
}

type HttpRequest = axum::http::Request<Body>;

/// A review with its proof in the object, where a policy in the API server has written it.
async fn with_policy(State(state): State<AskState>, request: HttpRequest) -> Json<ReviewResponse> {
    reviewed(&state, None, request).await
}

/// A review with its proof in the path, which only the webhook configuration has.
async fn with_path(
    State(state): State<AskState>,
    Path(path): Path<String>,
    request: HttpRequest,
) -> Json<ReviewResponse> {
    reviewed(&state, Some(proof::base64(&path)), request).await
}

async fn reviewed(state: &AskState, path: Option<String>, request: HttpRequest) -> Json<ReviewResponse> {
    let began = Instant::now();
    let (request, _read) = match body::review(request, &state.turns.budget).await {
        Ok(review) => review,
        Err(unread) => return Json(undecoded(unread)),
    };
    let uid = request.uid.clone();
    let user = request.user_info.username.clone();
    let (asked, outcome) = answered(state, path.as_deref(), request).await;
    let label = if outcome.is_ok() { "answered" } else { "refused" };
    state.metrics.observe(asked, label, began.elapsed());
    Json(match outcome {
        Ok(patch) => ReviewResponse::new(uid, Verdict::Allow { patch, warnings: Vec::new() }),
        Err(Refusal { code, reason, message }) => {
            tracing::info!(asked, user, message, "question refused");
            ReviewResponse::refuse(uid, code, reason, message)
        }
    })
}

/// The answer to a body that is not decoded.
fn undecoded(unread: Unread) -> ReviewResponse {
    let (uid, refusal) = match unread {
        Unread::Busy(uid) => (uid, Refusal::busy("too many large questions at once; try again in a moment")),
        Unread::Broken(uid, problem) => return ReviewResponse::malformed(uid, problem),
        Unread::Undecoded(uid, problem) => (uid, Refusal::invalid(problem)),
        Unread::TooLarge(uid) | Unread::TooComplex(uid) | Unread::Unjudged(uid) => {
            (uid, Refusal::invalid("the Question is too large"))
        }
    };
    ReviewResponse::refuse(uid, refusal.code, refusal.reason, refusal.message)
}

/// What is asked, with the name under which it is counted.
fn asked_for(spec: &Value) -> &'static str {
    let asked = |(field, name): (&str, &'static str)| spec.get(field).is_some().then_some(name);
    let fields = [
        ("queue", "queue"),
        ("explain", "explain"),
        ("teams", "teams"),
        ("nodes", "nodes"),
        ("history", "history"),
        ("report", "report"),
        ("whatIf", "whatIf"),
    ];
    fields.into_iter().find_map(asked).unwrap_or("none")
}

/// The change to the object of a Question: the proof goes, and the answer comes.
async fn answered(
    state: &AskState,
    path: Option<&str>,
    mut request: Request,
) -> (&'static str, Result<Patch, Refusal>) {
    let mut object = std::mem::take(&mut request.object);
    let asked = asked_for(&object["spec"]);
    let given = object.pointer("/spec/proof").and_then(Value::as_str);
    if !path.or(given).is_some_and(|given| state.proof.accepts(given)) {
        return (asked, Err(Refusal::forbidden(no_proof(asked))));
    }
    if request.operation != "CREATE" || !request.dry_run {
        let message =
            "a Question is never stored; create it with dryRun=All, as kubectl does with --dry-run=server";
        return (asked, Err(Refusal::forbidden(message)));
    }
    let mut operations = Vec::new();
    if let Some(spec) = object["spec"].as_object_mut()
        && spec.remove("proof").is_some()
    {
        let path = PointerBuf::from_tokens(["spec", "proof"]);
        operations.push(PatchOperation::Remove(RemoveOperation { path }));
    }
    let answer = answer(state, &request, object["spec"].take()).await;
    let patch = answer.map(|value| {
        operations
            .push(PatchOperation::Add(AddOperation { path: PointerBuf::from_tokens(["answer"]), value }));
        Patch(operations)
    });
    (asked, patch)
}

fn no_proof(asked: &str) -> String {
    let mut message = "this Question carries no proof that it came through the API server".to_owned();
    message += match asked {
        "whatIf" => {
            "; a what-if question needs the right to create questions/whatif, or clusterquestions/whatif"
        }
        "history" | "report" => {
            "; the history needs the right to create questions/history, or clusterquestions/history"
        }
        _ => "",
    };
    message
}

async fn answer(state: &AskState, request: &Request, mut spec: Value) -> Result<Value, Refusal> {
    if let Some(lack) = state.ready.lacks() {
        return Err(Refusal::unavailable(format!("Sluice is not ready: {lack}")));
    }
    let scope = Scope::of(request)?;
    times::write_out(&mut spec, Timestamp::now())?;
    let spec: QuestionSpec =
        serde_path_to_error::deserialize(spec).map_err(|error| Refusal::invalid(format!("spec.{error}")))?;
    let _all = state.turns.all.try_acquire().map_err(|_| {
        Refusal::busy("too many questions are being answered at once; try again in a few seconds")
    })?;
    let asked = [
        spec.queue.is_some(),
        spec.explain.is_some(),
        spec.teams.is_some(),
        spec.nodes.is_some(),
        spec.history.is_some(),
        spec.report.is_some(),
        spec.what_if.is_some(),
    ];
    let user = request.user_info.username.as_str();
    match spec.clone() {
        _ if asked.into_iter().filter(|asked| *asked).count() != 1 => Err(Refusal::invalid(ONE)),
        QuestionSpec { queue: Some(queue), .. } => workloads(state, &scope, &spec, queue, user).await,
        QuestionSpec { explain: Some(explain), .. } => {
            in_turn(state, explained(state, &scope, &spec, explain)).await
        }
        QuestionSpec { teams: Some(teams), .. } => team_rows(state, &scope, &spec, teams).await,
        QuestionSpec { nodes: Some(nodes), .. } => node_rows(state, &scope, &spec, nodes).await,
        // The readers of the history and the forecaster bound these on their own.
        QuestionSpec { history: Some(filter), .. } => {
            history::runs(state, &scope, &spec, (filter, user)).await
        }
        QuestionSpec { report: Some(filter), .. } => history::report(state, &scope, &spec, filter).await,
        QuestionSpec { what_if: Some(job), .. } => what_if(state, &scope, &spec, (job, user)).await,
        _ => Err(Refusal::invalid(ONE)),
    }
}

/// How many things a Question asks.
const ONE: &str = "spec: ask exactly one of queue, explain, teams, nodes, history, report and whatIf";
