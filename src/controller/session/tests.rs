//! What a session does when leadership comes and goes.

use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use kube::Client;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::{follow_leadership, queries::Question};
use super::*;
use crate::cluster::events;
use crate::cluster::leader::Leadership;

/// A context of a leader, with an API server that never answers.
fn context() -> Context {
    let silent = || async { std::future::pending::<StatusCode>().await };
    let client = Client::new(Router::new().fallback(silent), "default");
    let leadership = Leadership::until(Instant::now() + Duration::from_secs(60));
    let metrics = Arc::new(Metrics::new().expect("distinct names"));
    let busy = Arc::default();
    let (notices, _) = events::publisher(
        client.clone(),
        leadership.clone(),
        "me".into(),
        Arc::clone(&metrics),
        Arc::clone(&busy),
    );
    Context {
        client,
        leadership,
        heart: Default::default(),
        directory: Default::default(),
        metrics,
        notices,
        busy,
        settings: Default::default(),
        caps: Default::default(),
        kinds: Default::default(),
        ready: Arc::default(),
    }
}

#[tokio::test]
async fn questions_that_wait_for_a_plan_are_answered_when_the_replica_becomes_leader() {
    let context = context();
    let mut session = Session::begin(&context, None);
    let (to, mut answer) = oneshot::channel();
    let copy = || Some(Box::new(Engine::new()));
    assert!(session.preview.hold(Question::Workloads(None, to), copy).is_none(), "it waits for a plan");
    follow_leadership(&context, &mut session);
    assert!(session.term().is_some());
    assert!(answer.try_recv().is_ok(), "it is answered by what is known");
}
