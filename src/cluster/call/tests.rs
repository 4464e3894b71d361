//! Calls to an API server that does not always answer.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::Request as Incoming;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::*;

/// The server's reaction to one call.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Makes the change and confirms it; answers that it does not apply if it is made already.
    Answer,
    /// Makes the change without an answer.
    Swallow,
    /// Does nothing, without an answer.
    Ignore,
    /// Answers with this code and message.
    Say(u16, &'static str),
    /// Answers that a disruption budget forbids it.
    Forbid,
}

/// A server that follows the script, and at its end repeats the last line.
struct Server {
    script: Vec<Act>,
    calls: AtomicUsize,
    made: AtomicUsize,
    deadlines: Mutex<Vec<String>>,
}

impl Server {
    fn new(script: &[Act]) -> Arc<Self> {
        let (calls, made) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { script: script.to_vec(), calls, made, deadlines: Mutex::default() })
    }

    async fn act(&self, request: Incoming) -> Response {
        self.deadlines.lock().expect("no panic").push(request.uri().query().unwrap_or_default().to_owned());
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        match self.script[call.min(self.script.len() - 1)] {
            Act::Answer if self.made.fetch_add(1, Ordering::SeqCst) == 0 => {
                axum::Json(json!({"made": true})).into_response()
            }
            Act::Answer => status(422, "the server rejected our request due to an error in our request"),
            Act::Swallow => {
                self.made.fetch_add(1, Ordering::SeqCst);
                std::future::pending().await
            }
            Act::Ignore => std::future::pending().await,
            Act::Say(code, message) => status(code, message),
            Act::Forbid => forbidden(),
        }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

fn status(code: u16, message: &str) -> Response {
    let code = StatusCode::from_u16(code).expect("a code");
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code.as_u16(),
        "message": message, "reason": "X"});
    (code, axum::Json(status)).into_response()
}

fn forbidden() -> Response {
    let cause = json!({"reason": "DisruptionBudget", "message": "It needs 2 pods and has 2."});
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429,
        "reason": "TooManyRequests", "message": "Not now.", "details": {"causes": [cause]}});
    (StatusCode::TOO_MANY_REQUESTS, axum::Json(status)).into_response()
}

const PACE: Pace = Pace {
    at_once: 2,
    deadline: Duration::from_millis(100),
    first_pause: Duration::from_millis(5),
    longest_pause: Duration::from_millis(20),
    linger: Duration::from_millis(150),
};

/// Makes one call by a process that leads for as long as `claim`.
async fn call(server: &Arc<Server>, claim: Duration, versioned: bool) -> Result<Value, Failure> {
    let server = Arc::clone(server);
    let router = Router::new().fallback(move |request: Incoming| {
        let server = Arc::clone(&server);
        async move { server.act(request).await }
    });
    let metrics = Arc::new(Metrics::new().expect("distinct names"));
    let claim = Leadership::until(Instant::now() + claim);
    let caller = Caller::new(Client::new(router, "default"), claim, metrics, PACE);
    let request = Request::patch("/apis/batch/v1/namespaces/ns/jobs/j?fieldManager=sluice");
    caller.until_known(Some("admit"), versioned, request.body(b"[]".to_vec()).expect("a request")).await
}

const TOO_LARGE_TO_SEND: &str =
    "rpc error: code = ResourceExhausted desc = trying to send message larger than max (2097210 vs. 2097152)";

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_change_with_a_lost_answer_is_made_once() {
    let server = Server::new(&[Act::Swallow, Act::Answer]);
    assert_eq!(call(&server, LONG, false).await, Err(Failure::Moved));
    assert_eq!(server.calls(), 2);
}

#[tokio::test]
async fn a_change_that_fails_at_first_is_repeated() {
    for first in [
        Act::Ignore,
        Act::Say(500, "etcdserver: request timed out"),
        Act::Say(504, "context deadline exceeded"),
        Act::Say(429, "too many requests"),
        Act::Say(409, "the object has been modified"),
    ] {
        let server = Server::new(&[first, first, Act::Answer]);
        assert_eq!(call(&server, LONG, false).await, Ok(json!({"made": true})), "{first:?}");
        assert_eq!(server.calls(), 3, "{first:?}");
    }
}

#[tokio::test]
async fn a_certain_answer_is_taken_at_once() {
    for (act, versioned, failure) in [
        (Act::Say(404, "not found"), false, Failure::Gone),
        (Act::Say(409, "the object has been modified"), true, Failure::Moved),
        (Act::Say(403, "forbidden"), false, Failure::Refused("forbidden".into())),
        (
            Act::Say(500, "failed calling webhook \"x\": timeout"),
            false,
            Failure::NotNow("failed calling webhook \"x\": timeout".into()),
        ),
        (
            Act::Say(413, "Request entity too large"),
            false,
            Failure::Refused("Request entity too large".into()),
        ),
        (
            Act::Say(500, "etcdserver: request is too large"),
            false,
            Failure::Refused("etcdserver: request is too large".into()),
        ),
        (Act::Say(500, TOO_LARGE_TO_SEND), false, Failure::Refused(TOO_LARGE_TO_SEND.into())),
    ] {
        let server = Server::new(&[act]);
        assert_eq!(call(&server, LONG, versioned).await, Err(failure), "{act:?}");
        assert_eq!(server.calls(), 1, "{act:?}");
    }
}

#[tokio::test]
async fn a_refusal_counts_only_when_no_earlier_copy_can_pass_any_more() {
    let server = Server::new(&[Act::Ignore, Act::Say(403, "forbidden")]);
    let began = Instant::now();
    assert_eq!(call(&server, LONG, false).await, Err(Failure::Refused("forbidden".into())));
    assert!(began.elapsed() >= PACE.deadline + PACE.linger);
    assert!(server.calls() > 2);
}

#[tokio::test]
async fn no_call_outlives_the_leadership_here_or_in_the_api_server() {
    let server = Server::new(&[Act::Ignore]);
    let (began, claim) = (Instant::now(), Duration::from_millis(250));
    assert_eq!(call(&server, claim, false).await, Err(Failure::NotLeading));
    assert!(began.elapsed() < claim + Duration::from_millis(100));
    let deadlines = server.deadlines.lock().expect("no panic").clone();
    assert!(deadlines.len() > 1);
    for deadline in deadlines {
        let given =
            deadline.strip_prefix("fieldManager=sluice&timeout=").and_then(|ms| ms.strip_suffix("ms"));
        let given: u64 = given.and_then(|ms| ms.parse().ok()).expect(&deadline);
        assert!((1..=100).contains(&given), "{deadline}");
    }

    let server = Server::new(&[Act::Answer]);
    assert_eq!(call(&server, Duration::ZERO, false).await, Err(Failure::NotLeading));
    assert_eq!(server.calls(), 0, "a process that does not lead makes no call");
}

#[tokio::test]
async fn an_eviction_that_a_budget_forbids_is_not_repeated() {
    let server = Server::new(&[Act::Say(429, "busy"), Act::Forbid, Act::Answer]);
    let outcome = call(&server, LONG, true).await;
    assert_eq!(outcome, Err(Failure::Refused("Not now. It needs 2 pods and has 2.".into())));
    assert_eq!(server.calls(), 2, "an overloaded server is asked again");
}
