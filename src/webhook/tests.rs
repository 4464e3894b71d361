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
    assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(true)));
    let (status, _) = post(app(directory()), "/mutate", job(8 << 20)).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
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

#[tokio::test]
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
        let began = std::time::Instant::now();
        let swap = async {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            // An unrelated change does not end the wait.
            shared.store(late);
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
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

#[tokio::test]
async fn a_missing_team_is_refused_before_the_timeout() {
    let lacking = Directory { teams: [].into(), ..directory() };
    let began = std::time::Instant::now();
    let (status, answer) = post(app(lacking), "/mutate", demanding()).await;
    assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(false)));
    assert!(began.elapsed() >= super::LOOKUP_TIMEOUT && began.elapsed() < super::TIMEOUT);
}
