//! Plain HTTP: metrics and health, and nothing else. What people and programs read goes through [`crate::ask`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum_server::accept::DefaultAcceptor;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::timeout::TimeoutLayer;

use crate::cluster::clock::now;
use crate::cluster::heartbeat::Heartbeat;
use crate::controller::{Asker, Question, Readiness};
use crate::listener::{self, Limits};
use crate::metrics::Metrics;

/// Time limit of an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The bounds of the port.
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
    /// Every metric.
    pub metrics: Arc<Metrics>,
    /// Whether this replica takes requests.
    pub ready: Arc<Readiness>,
    /// Whether the decision loop runs.
    pub heart: Heartbeat,
}

/// The routes: metrics and health.
pub fn router(state: HttpState) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/readyz", get(readyz))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, TIMEOUT))
        .route("/healthz", get(healthz))
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
            asker,
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
        let router = router(state(asker, &ready));
        for path in ["/healthz", "/metrics"] {
            assert_eq!(status(&router, path).await, StatusCode::OK, "{path}");
        }
        for path in ["/api/v1/teams", "/api/v1/workloads", "/ask"] {
            assert_eq!(
                status(&router, path).await,
                StatusCode::NOT_FOUND,
                "the network does not read {path}"
            );
        }
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
}
