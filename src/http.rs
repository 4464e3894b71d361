//! Plain HTTP, on two ports: metrics and health for the network, and the JSON API that the command line reads.
//!
//! The API shows the workloads of all teams and has no authentication of its own. It therefore listens inside the pod
//! only, where `kubectl port-forward` reaches it: the right to forward a port is the right to ask.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use axum_server::accept::DefaultAcceptor;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::timeout::TimeoutLayer;

use crate::cluster::clock::now;
use crate::cluster::heartbeat::Heartbeat;
use crate::controller::{Asker, Choice, Question, Readiness};
use crate::directory::SharedDirectory;
use crate::forecast::{Forecaster, Unanswered};
use crate::listener::{self, Limits};
use crate::metrics::Metrics;
use crate::view::Accelerators;

/// Time limit of an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The bounds of each of the two ports.
const LIMITS: Limits = Limits {
    connections: 1024,
    first: Duration::from_secs(10),
    idle: Duration::from_secs(60),
    drain: Duration::from_secs(5),
};

/// State shared by the handlers.
#[derive(Clone, Debug)]
pub struct HttpState {
    /// Questions to the control loop.
    pub asker: Asker,
    /// Expected starts and what-if results.
    pub forecaster: Forecaster,
    /// Resources that count as GPUs, besides those in quotas.
    pub accelerators: Accelerators,
    /// Namespaces and teams.
    pub directory: SharedDirectory,
    /// Every metric.
    pub metrics: Arc<Metrics>,
    /// Whether this replica takes requests.
    pub ready: Arc<Readiness>,
    /// Whether the decision loop runs.
    pub heart: Heartbeat,
}

#[derive(Deserialize)]
struct Filter {
    team: Option<String>,
}

/// The routes for the network: metrics and health.
pub fn router(state: HttpState) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/readyz", get(readyz))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, TIMEOUT))
        .route("/healthz", get(healthz))
        .with_state(state)
}

/// The routes of the JSON API.
pub fn api(state: HttpState) -> Router {
    Router::new()
        .route("/api/v1/teams", get(teams))
        .route("/api/v1/nodes", get(nodes))
        .route("/api/v1/workloads", get(workloads))
        .route("/api/v1/workloads/{namespace}/{name}", get(workload))
        .route("/api/v1/what-if", post(what_if))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, TIMEOUT))
        .with_state(state)
}

/// Serves the routes until the token is cancelled.
///
/// # Errors
/// When the address cannot be bound.
pub async fn serve(address: SocketAddr, router: Router, stop: CancellationToken) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    listener::serve(listener, DefaultAcceptor::new(), router, LIMITS, stop).await;
    Ok(())
}

async fn metrics(State(state): State<HttpState>) -> Response {
    let figures = state.asker.ask(Question::Figures).await.flatten();
    match state.metrics.scrape(figures.as_ref(), now()) {
        Ok(text) => {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// Fails when the decision loop has stopped for so long that only a new process helps. It asks the loop nothing, so that
/// the answer does not wait for it.
async fn healthz(State(state): State<HttpState>) -> Response {
    match state.heart.stopped() {
        None => "ok".into_response(),
        Some(sentence) => (StatusCode::SERVICE_UNAVAILABLE, sentence).into_response(),
    }
}

async fn readyz(State(state): State<HttpState>) -> Response {
    match state.ready.lacks() {
        None => "ok".into_response(),
        Some(lack) => (StatusCode::SERVICE_UNAVAILABLE, lack).into_response(),
    }
}

async fn teams(State(state): State<HttpState>) -> Response {
    answered(state.asker.ask(Question::Teams).await)
}

async fn nodes(State(state): State<HttpState>) -> Response {
    answered(state.asker.ask(|to| Question::Nodes(state.accelerators, to)).await)
}

async fn workloads(State(state): State<HttpState>, Query(filter): Query<Filter>) -> Response {
    let choice = Choice { team: filter.team, ..Choice::default() };
    let mut rows = state.asker.ask(|to| Question::Workloads(choice, to)).await;
    if let Some(rows) = &mut rows {
        state.forecaster.fill_in(rows).await;
    }
    answered(rows)
}

async fn workload(
    State(state): State<HttpState>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    let wanted = format!("{namespace}/{name}");
    match state.asker.ask(|to| Question::Workload(namespace, name, to)).await {
        Some(rows) if rows.is_empty() => {
            let error = format!("Sluice manages no Job or Pod {wanted}");
            (StatusCode::NOT_FOUND, Json(json!({ "error": error }))).into_response()
        }
        mut rows => {
            if let Some(rows) = &mut rows {
                state.forecaster.fill_in(rows).await;
            }
            answered(rows)
        }
    }
}

async fn what_if(State(state): State<HttpState>, Json(object): Json<Value>) -> Response {
    let error = match state.forecaster.what_if(&state.directory.load(), object).await {
        Ok(row) => return Json(row).into_response(),
        Err(error) => error,
    };
    let status = match error {
        Unanswered::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
        Unanswered::Busy => StatusCode::TOO_MANY_REQUESTS,
        Unanswered::Unknown => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(json!({ "error": error.to_string() }))).into_response()
}

fn answered<T: Serialize>(answer: Option<T>) -> Response {
    match answer {
        Some(answer) => Json(answer).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, Json(json!({"error": "Sluice is shutting down"})))
            .into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::http::Request;
    use tower::ServiceExt;

    use super::*;
    use crate::cluster::heartbeat::LIVES;
    use crate::engine::Engine;

    async fn status(router: &Router, path: &str) -> StatusCode {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        router.clone().oneshot(request).await.expect("infallible").status()
    }

    fn state(asker: Asker, ready: &Arc<Readiness>) -> HttpState {
        HttpState {
            forecaster: Forecaster::new(asker.clone(), CancellationToken::new()),
            asker,
            accelerators: Accelerators::default(),
            directory: SharedDirectory::default(),
            metrics: Arc::new(Metrics::new().expect("distinct names")),
            ready: Arc::clone(ready),
            heart: Heartbeat::default(),
        }
    }

    #[tokio::test]
    async fn routes_answer_from_the_control_loop() {
        let (asker, mut questions) = Asker::new();
        tokio::spawn(async move {
            let (engine, mirror) = (Engine::new(), crate::cluster::mirror::Mirror::default());
            while let Some(question) = questions.recv().await {
                crate::controller::answer(question, &engine, &mirror, None);
            }
        });
        let ready = Arc::new(Readiness::default());
        let (router, api) = (router(state(asker.clone(), &ready)), api(state(asker, &ready)));
        for path in ["/healthz", "/metrics"] {
            assert_eq!(status(&router, path).await, StatusCode::OK, "{path}");
            assert_eq!(status(&api, path).await, StatusCode::NOT_FOUND, "{path}");
        }
        for path in ["/api/v1/teams", "/api/v1/nodes", "/api/v1/workloads?team=a"] {
            assert_eq!(status(&api, path).await, StatusCode::OK, "{path}");
            assert_eq!(
                status(&router, path).await,
                StatusCode::NOT_FOUND,
                "the network does not reach {path}"
            );
        }
        assert_eq!(status(&api, "/api/v1/workloads/ns/none").await, StatusCode::NOT_FOUND);
        assert_eq!(status(&router, "/readyz").await, StatusCode::SERVICE_UNAVAILABLE);
        assert!(ready.lists_complete());
        assert_eq!(status(&router, "/readyz").await, StatusCode::SERVICE_UNAVAILABLE);
        ready.webhook_serves();
        assert_eq!(status(&router, "/readyz").await, StatusCode::OK);
        ready.end();
        assert_eq!(status(&router, "/readyz").await, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[tokio::test]
    async fn a_replica_whose_loop_hangs_is_not_healthy() {
        let state = state(Asker::new().0, &Arc::default());
        let (heart, router) = (state.heart.clone(), router(state));
        heart.stopped_since(LIVES / 2);
        assert_eq!(status(&router, "/healthz").await, StatusCode::OK, "it lists a large cluster, say");
        heart.stopped_since(LIVES + Duration::from_secs(1));
        assert_eq!(status(&router, "/healthz").await, StatusCode::SERVICE_UNAVAILABLE);
        heart.beat();
        assert_eq!(status(&router, "/healthz").await, StatusCode::OK);
    }

    #[tokio::test]
    async fn routes_are_unavailable_after_the_control_loop_has_ended() {
        let (asker, questions) = Asker::new();
        drop(questions);
        let api = api(state(asker, &Arc::default()));
        assert_eq!(status(&api, "/api/v1/nodes").await, StatusCode::SERVICE_UNAVAILABLE);
    }
}
