use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::Request as HttpRequest;
use k8s_openapi::ByteString;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::state::{AT_ONCE, MOST_WAITING};
use super::*;
use crate::certs::proof::Proof;
use crate::controller::{Asker, Question, Readiness, WorkloadsPart};
use crate::directory::{Directory, Membership, SharedDirectory};
use crate::engine::types::{Queue, Team};
use crate::forecast::Forecaster;
use crate::history::query::Reader;
use crate::view::Accelerators;

/// The token of the tests, as long as a real one.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn state(asker: Asker) -> AskState {
    let ready = Arc::new(Readiness::default());
    ready.lists_complete();
    ready.webhook_serves();
    AskState::new(
        (asker.clone(), Forecaster::new(asker, CancellationToken::new()), Reader::new(None)),
        Accelerators::default(),
        SharedDirectory::default(),
        Proof::of(TOKEN),
        ready,
        AskMetrics::new(&prometheus::Registry::new()).expect("a new registry is empty"),
    )
}

/// A replica that knows no workload.
fn replica() -> AskState {
    let (asker, mut questions) = Asker::new();
    tokio::spawn(async move {
        let (engine, mirror) = (crate::engine::Engine::new(), crate::cluster::mirror::Mirror::default());
        while let Some(question) = questions.recv().await {
            crate::controller::answer(question, &engine, &mirror, None);
        }
    });
    state(asker)
}

fn review(spec: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "42", "kind": {"group": "sluice.dev", "kind": "Question"}, "namespace": "a",
            "operation": "CREATE", "dryRun": true, "userInfo": {"username": "alice"},
            "object": {"apiVersion": "sluice.dev/v1alpha1", "kind": "Question", "metadata": {"namespace": "a"},
                "spec": spec, "answer": {"rows": ["forged"]}},
        },
    })
}

/// The response and the object with the patch applied.
async fn post(state: &AskState, path: &str, review: &Value) -> (Value, Value) {
    let request = HttpRequest::post(path).body(Body::from(review.to_string())).expect("a request");
    let answer = router(state.clone()).oneshot(request).await.expect("infallible");
    assert_eq!(answer.status(), StatusCode::OK);
    let body = axum::body::to_bytes(answer.into_body(), usize::MAX).await.expect("a body");
    let answer: Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!(answer["response"]["uid"], "42");
    let mut object = review["request"]["object"].clone();
    if answer["response"]["patch"].is_string() {
        let ByteString(patch) =
            serde_json::from_value(answer["response"]["patch"].clone()).expect("the patch is base64");
        let patch: Patch = serde_json::from_slice(&patch).expect("a patch");
        json_patch::patch(&mut object, &patch).expect("it applies");
    }
    (answer["response"].clone(), object)
}

fn with_proof(mut spec: Value) -> Value {
    spec["proof"] = proof::base64(TOKEN).into();
    spec
}

#[tokio::test]
async fn each_question_is_answered_into_its_object_without_the_proof() {
    let state = replica();
    for (spec, caller) in [
        (json!({"queue": {}}), json!("alice")),
        (json!({"explain": {"name": "x"}}), Value::Null),
        (json!({"teams": {}}), Value::Null),
        (json!({"nodes": {}}), Value::Null),
    ] {
        let (response, object) = post(&state, "/ask", &review(&with_proof(spec.clone()))).await;
        assert_eq!(response["allowed"], true, "{response}");
        assert_eq!(object["spec"], spec, "the proof is gone");
        assert!(object["answer"]["rows"].is_array(), "{object}");
        assert_eq!(object["answer"]["caller"], caller, "{object}");
        assert!(!object["answer"].to_string().contains("forged"));
        assert!(object["answer"]["at"].is_string() && object["answer"]["version"].is_string());
        let mut again = spec;
        again["since"] = object["answer"]["version"].clone();
        let (_, object) = post(&state, "/ask", &review(&with_proof(again))).await;
        assert_eq!(object["answer"]["unchanged"], true, "{object}");
        assert_eq!(object["answer"]["caller"], Value::Null, "{object}");
    }
}

#[tokio::test]
async fn an_answer_without_rows_says_where_sluice_does_not_manage_the_namespace() {
    let state = replica();
    let note = async |spec: Value| {
        let (_, object) = post(&state, "/ask", &review(&with_proof(spec))).await;
        object["answer"]["note"].as_str().map(ToOwned::to_owned)
    };
    for spec in [json!({"queue": {}}), json!({"queue": {"team": "x"}}), json!({"explain": {"name": "x"}})] {
        let said = note(spec.clone()).await.unwrap_or_default();
        assert!(said.starts_with("namespace \"a\" belongs to no team"), "{spec}: {said}");
    }
    assert_eq!(note(json!({"teams": {}})).await, None, "these are not of the namespace");
    let membership = Membership { team: "x".into(), queue: None };
    let namespaces = [("a".into(), membership)].into();
    state.directory.store(Directory { namespaces, ..Directory::default() });
    assert_eq!(note(json!({"queue": {}})).await, None);
    assert_eq!(note(json!({"explain": {"name": "x"}})).await, None);
}

#[tokio::test(start_paused = true)]
async fn questions_about_states_share_the_rows_of_all_states() {
    let (asker, mut questions) = Asker::new();
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    tokio::spawn(async move {
        while let Some(Question::Workloads(choice, _, _, to)) = questions.recv().await {
            assert_eq!(choice.namespace.as_deref(), Some("a"), "of no other namespace");
            counted.fetch_add(1, Ordering::Relaxed);
            // Rows that cost something may be used again.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let _ = to.send(WorkloadsPart::default());
        }
    });
    let state = state(asker);
    let ask = async |filter: Value| {
        let (response, _) = post(&state, "/ask", &review(&with_proof(json!({"queue": filter})))).await;
        assert_eq!(response["allowed"], true, "{response}");
        looks.load(Ordering::Relaxed)
    };
    assert_eq!(ask(json!({"states": ["Pending"]})).await, 1);
    assert_eq!(ask(json!({"states": ["Running", "Held"]})).await, 1);
    assert_eq!(ask(json!({})).await, 1);
    assert_eq!(ask(json!({"team": "x"})).await, 1, "it takes what is there");
    assert_eq!(ask(json!({"states": ["Finished"]})).await, 2, "these are not among them");
}

#[tokio::test]
async fn without_the_proof_there_is_no_answer() {
    let state = replica();
    let forged = json!({"queue": {}, "proof": proof::base64("another token of the same length")});
    for spec in [
        json!({"queue": {}}),
        forged,
        json!({"queue": {}, "proof": TOKEN}),
        json!({"queue": {}, "proof": ""}),
    ] {
        for path in ["/ask", "/ask/guess"] {
            let (response, _) = post(&state, path, &review(&spec)).await;
            assert_eq!(
                (&response["allowed"], &response["status"]["code"]),
                (&json!(false), &json!(403)),
                "{spec}"
            );
            assert!(response["patch"].is_null(), "{response}");
        }
    }
    let (response, _) = post(&state, &format!("/ask/{TOKEN}"), &review(&json!({"queue": {}}))).await;
    assert_eq!(response["allowed"], true, "the path is the other proof: {response}");
    let unknown = AskState { proof: Proof::default(), ..replica() };
    let (response, _) = post(&unknown, "/ask", &review(&with_proof(json!({"queue": {}})))).await;
    assert_eq!(response["status"]["code"], 403, "a replica that has not read its Secret");
}

#[tokio::test]
async fn a_question_that_would_be_stored_is_refused() {
    for (field, value) in [("dryRun", json!(false)), ("operation", json!("UPDATE"))] {
        let mut review = review(&with_proof(json!({"queue": {}})));
        review["request"][field] = value;
        let (response, _) = post(&replica(), "/ask", &review).await;
        assert_eq!(response["status"]["code"], 403, "{response}");
        assert!(response["status"]["message"].as_str().is_some_and(|text| text.contains("dryRun=All")));
    }
}

#[tokio::test]
async fn mistakes_are_named() {
    let state = replica();
    for (spec, problem) in [
        (json!({}), "exactly one"),
        (json!({"queue": {}, "teams": {}}), "exactly one"),
        (json!({"queue": {"states": ["Sleeping"]}}), "spec.queue.states"),
        (json!({"queue": {"namespace": "b"}}), "cannot ask about namespace b"),
        (json!({"explain": {"name": "x", "namespace": "b"}}), "cannot ask about namespace b"),
        (json!({"whatIf": {"job": {"metadata": {"namespace": "b"}}}}), "cannot ask about namespace b"),
        (json!({"whatIf": {"job": {"kind": "Pod"}}}), "expected a Job"),
        (json!({"history": {"namespace": "b"}}), "cannot ask about namespace b"),
        (json!({"history": {}, "cursor": "x"}), "spec.cursor"),
        (json!({"history": {"states": ["Pending"]}}), "spec.history.states"),
        (
            json!({"report": {"kind": "Teams", "from": "2026-11-02T00:00:00Z", "to": "2026-11-01T00:00:00Z"}}),
            "spec.report.from",
        ),
        (
            json!({"report": {"kind": "Teams", "from": "2026-13"}}),
            "spec.report.from: \"2026-13\": expected a day (2026-11-01), a month (2026-11)",
        ),
        (
            json!({"report": {"kind": "Teams", "from": "2025-10", "to": "2025-09"}}),
            "is not before 2025-10-01T00:00:00Z",
        ),
    ] {
        let (response, _) = post(&state, "/ask", &review(&with_proof(spec.clone()))).await;
        assert_eq!(response["status"]["code"], 422, "{spec}: {response}");
        let message = response["status"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(problem), "{message}");
    }
}

#[tokio::test]
async fn an_answer_without_rows_says_which_name_is_none() {
    let state = replica();
    let team = |name: &str, queues: &[&str]| Team {
        name: name.into(),
        parent: None,
        quotas: [].into(),
        weight: 1,
        queues: queues.iter().map(|queue| Queue { name: (*queue).into(), ..Queue::fallback() }).collect(),
        fair_users: false,
        budget: None,
    };
    let membership = Membership { team: "red".into(), queue: None };
    state.directory.store(Directory {
        namespaces: [("a".into(), membership)].into(),
        teams: [("blue".into(), team("blue", &["day"])), ("red".into(), team("red", &["day", "night"]))]
            .into(),
        pools: ["a100".into()].into(),
        ..Directory::default()
    });
    for (spec, note) in [
        (json!({"queue": {}}), None),
        (json!({"queue": {"team": "red", "queue": "night"}}), None),
        (json!({"queue": {"team": "zz"}}), Some("there is no team zz; there are blue, red")),
        (
            json!({"queue": {"team": "blue", "queue": "night"}}),
            Some("there is no queue night in team blue; there is day"),
        ),
        (json!({"queue": {"queue": "zz"}}), Some("there is no queue zz; there are day, night")),
        (json!({"teams": {"team": "zz"}}), Some("there is no team zz; there are blue, red")),
        (json!({"nodes": {"pool": "zz"}}), Some("there is no pool zz; there are a100, default")),
        (json!({"nodes": {"pool": "default"}}), None),
    ] {
        let (_, object) = post(&state, "/ask", &review(&with_proof(spec.clone()))).await;
        assert_eq!(object["answer"]["total"], 0, "{spec}: {object}");
        assert_eq!(object["answer"]["note"].as_str(), note, "{spec}");
    }
}

#[tokio::test]
async fn without_a_history_the_answer_says_so() {
    let state = replica();
    for spec in [json!({"history": {}}), json!({"report": {"kind": "Teams", "from": "2026-11-01T00:00:00Z"}})]
    {
        let (response, _) = post(&state, "/ask", &review(&with_proof(spec.clone()))).await;
        assert_eq!(response["status"]["code"], 501, "{spec}: {response}");
        assert!(response["status"]["message"].as_str().is_some_and(|text| text.contains("--history")));
        let (response, _) = post(&state, "/ask", &review(&spec)).await;
        let message = response["status"]["message"].as_str().unwrap_or_default();
        assert!(response["status"]["code"] == 403 && message.contains("questions/history"), "{response}");
    }
}

#[tokio::test]
async fn too_many_questions_at_once_are_refused() {
    // A control loop that does not answer.
    let (asker, _questions) = Asker::new();
    let state = state(asker);
    let all = Arc::clone(&state.turns.all);
    let ask = || {
        let state = state.clone();
        tokio::spawn(async move { post(&state, "/ask", &review(&with_proof(json!({"teams": {}})))).await })
    };
    let open: Vec<_> = (0..AT_ONCE + MOST_WAITING).map(|_| ask()).collect();
    while all.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    let (response, _) = ask().await.expect("no panic");
    assert_eq!(response["status"]["code"], 429, "{response}");
    open.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn a_replica_that_does_not_know_the_cluster_yet_does_not_answer() {
    let state = AskState { ready: Arc::default(), ..replica() };
    let (response, _) = post(&state, "/ask", &review(&with_proof(json!({"teams": {}})))).await;
    assert_eq!(response["status"]["code"], 503, "{response}");
}
