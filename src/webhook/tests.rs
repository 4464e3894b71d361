//! The router as a whole: malformed reviews, limits and waiting for the directory.

use axum::http::StatusCode;
use k8s_openapi::ByteString;
use serde_json::json;

use super::test_client::{Ask, app, app_on, ask, directory, post, with};
use crate::api::names;
use crate::directory::{Directory, SharedDirectory};

#[tokio::test]
async fn a_malformed_review_gets_an_answer() {
    for body in ["", "{", "[]", "{\"request\": 1}", "null"] {
        let (status, answer) = post(app(directory()), "/mutate", body.as_bytes().to_vec()).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert_eq!(answer["response"]["allowed"], false, "{body}");
        assert_eq!(answer["response"]["status"]["code"], 400, "{body}");
    }
}

#[tokio::test]
async fn malformed_objects_get_an_answer() {
    for object in [json!(null), json!([]), json!("text"), json!({"kind": "Job", "metadata": 3, "spec": []})] {
        let review = json!({"request": {"uid": "1", "operation": "CREATE", "kind": {"kind": "Job"}, "object": object}});
        let (status, answer) = post(app(directory()), "/mutate", review.to_string().into_bytes()).await;
        assert_eq!(status, StatusCode::OK, "{object}");
        assert_eq!(answer["response"]["uid"], "1", "{object}");
    }
}

#[tokio::test]
async fn large_objects_are_read_and_larger_ones_refused() {
    let job = |size: usize| {
        let object = json!({"kind": "Job", "metadata": {"name": "x", "namespace": "ns", "annotations": {"big": "x".repeat(size)}}, "spec": {"template": {}}});
        json!({"request": {"uid": "1", "operation": "CREATE", "namespace": "ns", "kind": {"kind": "Job"}, "object": object}})
            .to_string()
            .into_bytes()
    };
    let (status, answer) = post(app(directory()), "/mutate", job(5 << 20)).await;
    assert_eq!(status, StatusCode::OK);
    let message = answer["response"]["status"]["message"].as_str().expect("a message");
    assert!(message.ends_with("more than the 196608 of one object"), "it is read: {message}");
    let (status, answer) = post(app(directory()), "/mutate", job(8 << 20)).await;
    assert_eq!(status, StatusCode::OK, "every body gets an answer");
    assert_eq!(answer["response"]["allowed"], false);
    let message = answer["response"]["status"]["message"].as_str().expect("a message");
    assert_eq!(message, "the review is larger than the 7 MiB that Sluice reads");
}

#[tokio::test]
async fn requests_by_sluice_are_never_changed() {
    let object =
        json!({"kind": "Job", "metadata": {"name": "x", "namespace": "ns"}, "spec": {"suspend": false}});
    for path in ["/mutate", "/validate"] {
        let old = with(object.clone(), json!({"spec": {"suspend": true}}));
        let answer = ask(Ask { path, user: names::ACCOUNT, ..Ask::update(old, object.clone()) }).await;
        assert!(answer.allowed && !answer.patched, "{path}");
    }
}

/// A Job that needs every part of the directory.
fn demanding() -> Vec<u8> {
    let object = json!({
        "kind": "Job",
        "metadata": {"name": "x", "namespace": "ns", "labels": {"sluice.dev/queue": "serving"}, "annotations": {"sluice.dev/pool": "a100"}},
        "spec": {"template": {}},
    });
    json!({"request": {"uid": "1", "operation": "CREATE", "namespace": "ns", "kind": {"kind": "Job"}, "object": object}})
        .to_string()
        .into_bytes()
}

#[tokio::test(start_paused = true)]
async fn an_answer_waits_for_the_directory_to_change() {
    type Lack = (&'static str, fn(&mut Directory));
    let lacks: [Lack; 4] = [
        ("namespace", |directory| directory.namespaces.clear()),
        ("team", |directory| directory.teams.clear()),
        ("queue", |directory| directory.teams.values_mut().for_each(|team| team.queues.truncate(1))),
        ("pool", |directory| directory.pools.clear()),
    ];
    for (what, lack) in lacks {
        let (shared, mut late) = (SharedDirectory::default(), directory());
        lack(&mut late);
        shared.store(late.clone());
        let began = tokio::time::Instant::now();
        let swap = async {
            tokio::time::sleep(std::time::Duration::from_millis(40)).await;
            // An unrelated change does not end the wait.
            shared.store(late);
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            shared.store(directory());
        };
        let ((status, answer), ()) = tokio::join!(post(app_on(shared.clone()), "/mutate", demanding()), swap);
        assert_eq!(status, StatusCode::OK, "{what}");
        assert_eq!(answer["response"]["allowed"], true, "{what}: {answer}");
        let ByteString(patch) =
            serde_json::from_value(answer["response"]["patch"].clone()).expect("the patch is base64");
        assert!(String::from_utf8_lossy(&patch).contains("vision"), "{what}: the team label is set");
        assert!(
            began.elapsed() < super::LOOKUP_TIMEOUT,
            "{what}: answered on the change, not at the timeout"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_team_is_refused_before_the_timeout() {
    let lacking = Directory { teams: [].into(), ..directory() };
    let began = tokio::time::Instant::now();
    let (status, answer) = post(app(lacking), "/mutate", demanding()).await;
    assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(false)));
    assert!(began.elapsed() >= super::LOOKUP_TIMEOUT && began.elapsed() < super::TIMEOUT);
}

/// A review as the API server writes it, with the identifier first.
fn review(operation: &str, object: &str, old: &str) -> Vec<u8> {
    format!(
        r#"{{"kind":"AdmissionReview","request":{{"uid":"42","kind":{{"group":"batch","kind":"Job"}},"namespace":"ns","operation":"{operation}","object":{object},"oldObject":{old}}}}}"#
    )
    .into_bytes()
}

#[tokio::test]
async fn an_object_that_would_take_too_much_memory_is_not_decoded() {
    let with = |gates: usize| {
        let gates: Vec<String> = (0..gates).map(|gate| format!(r#"{{"name":"g{gate}"}}"#)).collect();
        format!(
            r#"{{"kind":"Job","metadata":{{"name":"x","namespace":"ns"}},"spec":{{"template":{{"spec":{{"schedulingGates":[{}]}}}}}}}}"#,
            gates.join(",")
        )
    };
    let many = with(80_000);
    for (operation, object, old, allowed) in [
        ("CREATE", &many, "null", false),
        ("UPDATE", &many, "{}", false),
        ("UPDATE", &many, many.as_str(), true),
    ] {
        let (status, answer) = post(app(directory()), "/mutate", review(operation, object, old)).await;
        assert_eq!((status, &answer["response"]["uid"]), (StatusCode::OK, &json!("42")), "{operation}");
        assert_eq!(answer["response"]["allowed"], allowed, "{operation}: {answer}");
        assert!(answer["response"]["patch"].is_null());
    }
    let (_, answer) = post(app(directory()), "/mutate", review("CREATE", &with(17), "null")).await;
    let message = answer["response"]["status"]["message"].as_str().expect("a message");
    assert!(
        message.ends_with("17 scheduling gates, more than the 16 of --max-scheduling-gates"),
        "{message}"
    );
}

#[tokio::test]
async fn an_object_that_is_nested_too_deeply_is_refused_by_name_of_its_request() {
    let with = |depth: usize| {
        let deep = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"kind":"Job","metadata":{{"name":"x","namespace":"ns"}},"spec":{{"x":{deep}}}}}"#)
    };
    let (plain, deep) = (with(9), with(20_000));
    for (operation, object, old, allowed) in [
        ("CREATE", &deep, "null", false),
        ("UPDATE", &deep, plain.as_str(), false),
        // What is stored must stay editable: its finalizers are removed by an update.
        ("UPDATE", &deep, deep.as_str(), true),
        ("UPDATE", &plain, deep.as_str(), true),
    ] {
        for path in ["/mutate", "/validate"] {
            let (status, answer) = post(app(directory()), path, review(operation, object, old)).await;
            assert_eq!((status, &answer["response"]["uid"]), (StatusCode::OK, &json!("42")), "{operation}");
            assert_eq!(answer["response"]["allowed"], allowed, "{operation} {path}: {answer}");
            assert!(answer["response"]["patch"].is_null());
        }
    }
}

#[tokio::test]
async fn many_large_bodies_at_once_are_all_answered() {
    let object = format!(r#"{{"kind":"Job","x":"{}"}}"#, "[],".repeat(1 << 20));
    let lists = format!(r#"{{"kind":"Job","x":[{}[]]}}"#, "[],".repeat(900_000));
    let app = app(directory());
    let bodies = (0..32).map(|index| if index % 2 == 0 { &object } else { &lists });
    let posts = bodies.map(|object| post(app.clone(), "/mutate", review("CREATE", object, "null")));
    for (status, answer) in futures::future::join_all(posts).await {
        assert_eq!((status, &answer["response"]["uid"]), (StatusCode::OK, &json!("42")), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_review_beyond_those_that_may_wait_is_answered_at_once() {
    let shared = SharedDirectory::default();
    shared.store(Directory { teams: [].into(), ..directory() });
    let metrics = super::WebhookMetrics::new(&prometheus::Registry::new()).expect("a new registry is empty");
    let state = super::WebhookState::new(shared, metrics);
    for (others, waits) in [(super::MOST_WAITING - 1, true), (super::MOST_WAITING, false)] {
        let others = u32::try_from(others).expect("a few");
        let _others = state.waiting.try_acquire_many(others).expect("none waits");
        let began = tokio::time::Instant::now();
        let (_, answer) = post(super::router(state.clone()), "/mutate", demanding()).await;
        assert_eq!(answer["response"]["allowed"], false);
        assert_eq!(began.elapsed() >= super::LOOKUP_TIMEOUT, waits, "{others} others wait");
    }
}
