//! Answers Questions: an AdmissionReview comes in, and the object goes back with its answer.
//!
//! The API server authenticates the caller and checks its right to create the Question; the proof in the Question shows
//! that it has. Every replica answers from what its own control loop knows. Nothing is stored, no call is made, and no
//! decision waits for an answer: questions, their waits and their sizes are bounded.

mod history;
mod metrics;
mod page;
mod redact;
mod shared;
#[cfg(test)]
mod tests;
mod verdict;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use jiff::Timestamp;
use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tower_http::timeout::TimeoutLayer;

pub use self::metrics::AskMetrics;
use self::page::{Keyed, Listing};
use self::redact::Sight;
use self::shared::{Made, Shared};
pub use self::verdict::router as verdict_router;
pub use self::verdict::{VerdictMetrics, VerdictState};
use crate::api::question::{
    CLUSTER_KIND, ExplainFilter, KIND, MOST_TOGETHER, NodesFilter, Phase, QuestionSpec, QueueFilter,
    TeamsFilter, WhatIfFilter,
};
use crate::certs::proof::{self, Proof};
use crate::controller::{Asker, Choice, Question, Readiness};
use crate::directory::{Directory, SharedDirectory};
use crate::forecast::{Forecaster, Unanswered};
use crate::history::query::Reader;
use crate::view::{Accelerators, TeamsRow, WorkloadRow};
use crate::webhook::body::{self, Budget, Unread};
use crate::webhook::review::{Request, ReviewResponse, Verdict};

/// The longest time for an answer; below `timeoutSeconds` of the webhook configuration. A what-if result takes seconds.
const TIMEOUT: Duration = Duration::from_secs(13);
/// The answers in work at once; each may hold a row of every workload. Further questions wait for their turn.
const AT_ONCE: usize = 4;
/// The questions that may wait for their turn.
const MOST_WAITING: usize = 60;

/// The state of the handler.
#[derive(Clone)]
pub struct AskState {
    /// Questions to the control loop.
    pub asker: Asker,
    /// Expected starts and what-if results.
    pub forecaster: Forecaster,
    /// Resources that count as GPUs, besides those in quotas.
    pub accelerators: Accelerators,
    /// Namespaces and teams.
    pub directory: SharedDirectory,
    /// What a Question must carry.
    pub proof: Proof,
    /// Whether the first lists are complete.
    pub ready: Arc<Readiness>,
    /// The past.
    pub history: Reader,
    /// Durations of the answers.
    pub metrics: AskMetrics,
    turns: Turns,
    shared: Shared,
}

/// The bounds of what is in work at once.
#[derive(Clone, Debug)]
struct Turns {
    budget: Budget,
    /// The answers that are being made.
    open: Arc<Semaphore>,
    /// These and the questions that wait.
    all: Arc<Semaphore>,
}

impl AskState {
    /// The state of a replica.
    #[must_use]
    pub fn new(
        (asker, forecaster, history): (Asker, Forecaster, Reader),
        accelerators: Accelerators,
        directory: SharedDirectory,
        proof: Proof,
        ready: Arc<Readiness>,
        metrics: AskMetrics,
    ) -> Self {
        let permits = |count| Arc::new(Semaphore::new(count));
        let turns =
            Turns { budget: Budget::default(), open: permits(AT_ONCE), all: permits(AT_ONCE + MOST_WAITING) };
        Self {
            asker,
            forecaster,
            accelerators,
            directory,
            proof,
            ready,
            history,
            metrics,
            turns,
            shared: Shared::default(),
        }
    }
}

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

/// Why a Question is not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refusal {
    code: u16,
    reason: &'static str,
    message: String,
}

impl Refusal {
    fn forbidden(message: impl Into<String>) -> Self {
        Self { code: 403, reason: "Forbidden", message: message.into() }
    }

    fn invalid(message: impl Into<String>) -> Self {
        Self { code: 422, reason: "Invalid", message: message.into() }
    }

    fn busy(message: impl Into<String>) -> Self {
        Self { code: 429, reason: "TooManyRequests", message: message.into() }
    }

    fn unavailable(message: impl Into<String>) -> Self {
        Self { code: 503, reason: "ServiceUnavailable", message: message.into() }
    }
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

/// What a caller may see.
#[derive(Clone, Debug)]
enum Scope {
    /// The work of this namespace by name, the rest as numbers.
    Namespace(String),
    /// All work by name.
    Cluster,
}

impl Scope {
    fn of(request: &Request) -> Result<Self, Refusal> {
        match (request.kind.group.as_str(), request.kind.kind.as_str()) {
            ("sluice.dev", KIND) if !request.namespace.is_empty() => {
                Ok(Self::Namespace(request.namespace.clone()))
            }
            ("sluice.dev", CLUSTER_KIND) => Ok(Self::Cluster),
            (_, kind) => Err(Refusal::invalid(format!("{kind:?} is no kind of question"))),
        }
    }

    /// The namespace to ask about, where the question names `asked`.
    fn namespace(&self, asked: Option<&str>) -> Result<Option<String>, Refusal> {
        match (self, asked) {
            (Self::Namespace(own), Some(asked)) if own != asked => Err(Refusal::invalid(format!(
                "a Question in namespace {own} cannot ask about namespace {asked}; create it there, or a \
                 ClusterQuestion"
            ))),
            (Self::Namespace(own), _) => Ok(Some(own.clone())),
            (Self::Cluster, asked) => Ok(asked.map(ToOwned::to_owned)),
        }
    }

    fn sight<'a>(&'a self, directory: &'a Directory) -> Option<Sight<'a>> {
        match self {
            Self::Namespace(own) => Some(Sight { own, directory }),
            Self::Cluster => None,
        }
    }
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

async fn answer(state: &AskState, request: &Request, spec: Value) -> Result<Value, Refusal> {
    if let Some(lack) = state.ready.lacks() {
        return Err(Refusal::unavailable(format!("Sluice is not ready: {lack}")));
    }
    let scope = Scope::of(request)?;
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

async fn in_turn<T>(
    state: &AskState,
    answer: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let _turn = state.turns.open.acquire().await.map_err(|_| stopping())?;
    answer.await
}

/// An answer from the rows that `make` makes, or has made a moment ago for the same question of `viewer`.
async fn shared(
    state: &AskState,
    (scope, viewer): (&Scope, &str),
    spec: &QuestionSpec,
    make: impl Future<Output = Result<Made, Refusal>>,
) -> Result<Value, Refusal> {
    let spec = spec.clone();
    let asked = QuestionSpec { cursor: None, limit: None, since: None, ..spec.clone() };
    let asked = serde_json::to_string(&asked).map_err(|error| Refusal::unavailable(error.to_string()))?;
    let key = format!("{scope:?} {viewer:?} {asked}");
    let listing = state.shared.get(key, in_turn(state, make)).await?;
    away(move || listing.page(&spec)).await
}

fn stopping() -> Refusal {
    Refusal::unavailable("Sluice is shutting down; ask again")
}

async fn workloads(
    state: &AskState,
    scope: &Scope,
    spec: &QuestionSpec,
    filter: QueueFilter,
    caller: &str,
) -> Result<Value, Refusal> {
    let QueueFilter { namespace, team, queue, user, me, states } = filter;
    let choice = Choice {
        namespace: scope.namespace(namespace.as_deref())?,
        team,
        queue,
        user: if me { Some(caller.to_owned()) } else { user },
    };
    let accelerators = state.accelerators.clone();
    let states: Vec<&str> = states.into_iter().map(Phase::code).collect();
    let wanted = move |row: &WorkloadRow| match &states[..] {
        [] => row.head.state != Phase::Finished.code(),
        states => states.contains(&&*row.head.state),
    };
    let viewer = if me { caller } else { "" };
    shared(state, (scope, viewer), spec, async {
        let began = Instant::now();
        let rows = state.asker.ask(|to| Question::Workloads(choice, accelerators, to)).await;
        let rows = rows.ok_or_else(stopping)?.into_iter().filter(wanted).collect();
        let asked = began.elapsed();
        let made = listing(state, scope, rows).await?;
        Ok(Made { cost: made.cost + asked, ..made })
    })
    .await
}

async fn explained(
    state: &AskState,
    scope: &Scope,
    spec: &QuestionSpec,
    filter: ExplainFilter,
) -> Result<Value, Refusal> {
    let ExplainFilter { name, namespace } = filter;
    let namespace = scope.namespace(namespace.as_deref())?;
    let namespace = namespace
        .ok_or_else(|| Refusal::invalid("spec.explain.namespace: a ClusterQuestion must name it"))?;
    let accelerators = state.accelerators.clone();
    let rows = state
        .asker
        .ask(|to| Question::Workload((namespace, name), accelerators, to))
        .await
        .ok_or_else(stopping)?;
    let Made { listing, .. } = listing(state, scope, rows).await?;
    let spec = spec.clone();
    away(move || listing.page(&spec)).await
}

/// Workloads with their expected starts.
async fn listing(state: &AskState, scope: &Scope, mut rows: Vec<WorkloadRow>) -> Result<Made, Refusal> {
    state.forecaster.fill_in(&mut rows).await;
    let (directory, scope) = (state.directory.load(), scope.clone());
    made(move || {
        if let Some(sight) = scope.sight(&directory) {
            rows.iter_mut().for_each(|row| sight.workload(row));
        }
        let keyed = |row: WorkloadRow| {
            let submitted = row.submitted.as_millisecond().max(0);
            let key = format!("{submitted:020}/{}/{}/{}", row.head.namespace, row.head.name, row.kind);
            Keyed { key, row }
        };
        Listing::new(rows.into_iter().map(keyed).collect(), |row| {
            row.eta.as_ref()?;
            let mut row = row.clone();
            // A forecast is made again and again.
            row.eta.as_mut()?.foretold = Timestamp::UNIX_EPOCH;
            Some(row)
        })
    })
    .await
}

async fn team_rows(
    state: &AskState,
    scope: &Scope,
    spec: &QuestionSpec,
    filter: TeamsFilter,
) -> Result<Value, Refusal> {
    shared(state, (scope, ""), spec, async {
        let teams = state.asker.ask(Question::Teams).await.ok_or_else(stopping)?;
        let (directory, scope) = (state.directory.load(), scope.clone());
        made(move || {
            let mut rows = teams.into_rows();
            if let Some(team) = filter.team {
                rows.retain(|row| match row {
                    TeamsRow::Team(row) => row.team == team,
                    TeamsRow::Queue(row) => row.team == team,
                    TeamsRow::Unadmitted(row) => row.team == team,
                    TeamsRow::Budget(row) => row.team == team,
                    TeamsRow::Overcommitment { .. } => false,
                });
            }
            if let Some(sight) = scope.sight(&directory) {
                for row in &mut rows {
                    if let TeamsRow::Unadmitted(row) = row {
                        sight.unadmitted(row);
                    }
                }
            }
            // Built of what is shown: a cursor must not name what the rows do not.
            let keyed = rows.into_iter().enumerate().map(|(at, row)| Keyed {
                key: match &row {
                    TeamsRow::Team(row) => format!("1/{}/{}", row.team, row.pool),
                    TeamsRow::Queue(row) => format!("2/{}/{}", row.team, row.queue),
                    TeamsRow::Overcommitment { .. } => format!("3/{at:08}"),
                    TeamsRow::Unadmitted(_) => format!("4/{at:08}"),
                    TeamsRow::Budget(row) => format!("5/{}", row.team),
                },
                row,
            });
            Listing::new(keyed.collect(), |_| None)
        })
        .await
    })
    .await
}

async fn node_rows(
    state: &AskState,
    scope: &Scope,
    spec: &QuestionSpec,
    filter: NodesFilter,
) -> Result<Value, Refusal> {
    let accelerators = state.accelerators.clone();
    shared(state, (scope, ""), spec, async {
        let rows = state.asker.ask(|to| Question::Nodes(accelerators, to)).await.ok_or_else(stopping)?;
        let (directory, scope) = (state.directory.load(), scope.clone());
        made(move || {
            let mut rows = rows;
            rows.retain(|row| filter.pool.as_ref().is_none_or(|pool| *pool == row.pool));
            if let Some(sight) = scope.sight(&directory) {
                rows.iter_mut().for_each(|row| sight.node(row));
            }
            let keyed = rows.into_iter().map(|row| Keyed { key: row.name.clone(), row });
            Listing::new(keyed.collect(), |_| None)
        })
        .await
    })
    .await
}

async fn what_if(
    state: &AskState,
    scope: &Scope,
    spec: &QuestionSpec,
    (filter, user): (WhatIfFilter, &str),
) -> Result<Value, Refusal> {
    let WhatIfFilter { job, then } = filter;
    let mut workloads = vec![job];
    workloads.extend(then);
    if workloads.len() > MOST_TOGETHER {
        return Err(Refusal::invalid(format!(
            "spec.whatIf: at most {MOST_TOGETHER} workloads are judged together"
        )));
    }
    for workload in &mut workloads {
        let named = workload.pointer("/metadata/namespace").and_then(Value::as_str);
        if let Some(namespace) = scope.namespace(named.filter(|name| !name.is_empty()))? {
            json_patch::merge(workload, &json!({"metadata": {"namespace": namespace}}));
        }
    }
    let directory = state.directory.load();
    let mut rows = state.forecaster.what_if(&directory, user, workloads).await.map_err(|error| {
        let message = error.to_string();
        match error {
            Unanswered::Refused(_) => Refusal::invalid(message),
            Unanswered::Busy => Refusal::busy(message),
            Unanswered::Unknown => Refusal::unavailable(message),
        }
    })?;
    if let Some(sight) = scope.sight(&directory) {
        rows.iter_mut().for_each(|row| sight.what_if(row));
    }
    let keyed = rows.into_iter().enumerate().map(|(at, row)| Keyed { key: format!("{at:02}"), row });
    // They are few, so no cursor leaves one out.
    let spec = QuestionSpec { cursor: None, since: None, limit: None, ..spec.clone() };
    let answer = Listing::new(keyed.collect(), |_| None).and_then(|listing| listing.page(&spec));
    answer.map_err(|error| Refusal::unavailable(error.to_string()))
}

/// Makes an answer on a thread of its own, so that no review waits for it.
async fn away<T: Send + 'static>(
    make: impl FnOnce() -> serde_json::Result<T> + Send + 'static,
) -> Result<T, Refusal> {
    let made = tokio::task::spawn_blocking(make).await.map_err(|_| stopping())?;
    made.map_err(|error| Refusal::unavailable(error.to_string()))
}

/// Makes the rows of an answer on a thread of its own, and says what they cost.
async fn made(make: impl FnOnce() -> serde_json::Result<Listing> + Send + 'static) -> Result<Made, Refusal> {
    let began = Instant::now();
    let listing = Arc::new(away(make).await?);
    Ok(Made { listing, cost: began.elapsed() })
}
