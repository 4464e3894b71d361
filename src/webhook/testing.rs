//! Asks the router as the API server does, and applies what it answers.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{WebhookMetrics, WebhookState, router};
use crate::api::names;
use crate::directory::{Directory, Membership, SharedDirectory};
use crate::engine::types::{Queue, Team};

/// A user without any special rights.
pub(crate) const ALICE: &str = "alice";

/// Team `vision` with queues `training` and `serving` owns namespace `ns`; `orphan` has a team that
/// does not exist, `low` defaults to `serving`.
pub(crate) fn directory() -> Directory {
    let queue = |name: &str| Queue { name: name.into(), ..Queue::fallback() };
    let member =
        |team: &str, queue: Option<&str>| Membership { team: team.into(), queue: queue.map(Into::into) };
    Directory {
        complete: true,
        namespaces: [
            ("ns".into(), member("vision", None)),
            ("low".into(), member("vision", Some("serving"))),
            ("orphan".into(), member("ghost", None)),
        ]
        .into(),
        teams: [(
            "vision".into(),
            Team {
                name: "vision".into(),
                parent: None,
                quotas: [].into(),
                weight: 1,
                queues: vec![queue("training"), queue("serving")],
                fair_users: false,
            },
        )]
        .into(),
        queue_priority_classes: [(("vision".into(), "serving".into()), "urgent".into())].into(),
        pools: ["a100".into()].into(),
        ..Directory::default()
    }
}

/// One request, with what a test varies.
pub(crate) struct Ask {
    pub(crate) path: &'static str,
    pub(crate) group: &'static str,
    pub(crate) operation: &'static str,
    pub(crate) user: &'static str,
    pub(crate) groups: Vec<&'static str>,
    pub(crate) object: Value,
    pub(crate) old: Value,
    pub(crate) manager: &'static str,
    pub(crate) directory: Directory,
}

impl Ask {
    pub(crate) fn create(object: Value) -> Self {
        Self {
            path: "/mutate",
            group: "batch",
            operation: "CREATE",
            user: ALICE,
            groups: vec!["system:authenticated"],
            object,
            old: Value::Null,
            manager: "kubectl-create",
            directory: directory(),
        }
    }

    pub(crate) fn update(old: Value, object: Value) -> Self {
        Self { operation: "UPDATE", old, ..Self::create(object) }
    }
}

/// What the API server would go on with.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    pub(crate) message: String,
    pub(crate) warnings: usize,
    pub(crate) patched: bool,
    pub(crate) object: Value,
}

pub(crate) fn app(directory: Directory) -> axum::Router {
    let shared = SharedDirectory::default();
    shared.store(directory);
    app_on(shared)
}

fn app_on(directory: SharedDirectory) -> axum::Router {
    let metrics = WebhookMetrics::new(&prometheus::Registry::new()).expect("a new registry is empty");
    router(WebhookState { directory, metrics })
}

pub(crate) async fn post(app: axum::Router, path: &str, body: Vec<u8>) -> (StatusCode, Value) {
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))
        .expect("the request is well-formed");
    let response = app.oneshot(request).await.expect("the router answers");
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.expect("the body is complete");
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

/// Asks, and checks that answer and question belong together.
pub(crate) async fn ask(ask: Ask) -> Answer {
    let metadata = &ask.object["metadata"];
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "0815",
            "kind": {"group": ask.group, "version": "v1", "kind": ask.object["kind"]},
            "name": metadata["name"].as_str().unwrap_or_default(),
            "namespace": metadata["namespace"],
            "operation": ask.operation,
            "userInfo": {"username": ask.user, "groups": ask.groups},
            "object": ask.object,
            "oldObject": ask.old,
            "options": {"fieldManager": ask.manager},
            "dryRun": false,
        },
    });
    let (status, answer) = post(app(ask.directory), ask.path, review.to_string().into_bytes()).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(answer["kind"], "AdmissionReview");
    let response = &answer["response"];
    assert_eq!(response["uid"], "0815");
    let allowed = response["allowed"] == true;
    assert_eq!(response["status"]["code"].as_u64(), (!allowed).then_some(403));
    let mut object = ask.object;
    let patched = !response["patch"].is_null();
    if patched {
        assert_eq!(response["patchType"], "JSONPatch");
        let ByteString(bytes) =
            serde_json::from_value(response["patch"].clone()).expect("the patch is base64");
        let patch: json_patch::Patch = serde_json::from_slice(&bytes).expect("the patch is a JSON patch");
        json_patch::patch(&mut object, &patch).expect("the patch applies");
    }
    Answer {
        allowed,
        message: response["status"]["message"].as_str().unwrap_or_default().to_owned(),
        warnings: response["warnings"].as_array().map_or(0, Vec::len),
        patched,
        object,
    }
}

/// `base` with `change` merged in.
pub(crate) fn with(mut base: Value, change: Value) -> Value {
    json_patch::merge(&mut base, &change);
    base
}

#[tokio::test]
async fn what_is_no_review_is_answered_not_thrown() {
    for body in ["", "{", "[]", "{\"request\": 1}", "null"] {
        let (status, answer) = post(app(directory()), "/mutate", body.as_bytes().to_vec()).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        assert_eq!(answer["response"]["allowed"], false, "{body}");
        assert_eq!(answer["response"]["status"]["code"], 400, "{body}");
    }
}

#[tokio::test]
async fn odd_objects_are_survived() {
    for object in [json!(null), json!([]), json!("text"), json!({"kind": "Job", "metadata": 3, "spec": []})] {
        let review = json!({"request": {"uid": "1", "operation": "CREATE", "kind": {"kind": "Job"}, "object": object}});
        let (status, answer) = post(app(directory()), "/mutate", review.to_string().into_bytes()).await;
        assert_eq!(status, StatusCode::OK, "{object}");
        assert_eq!(answer["response"]["uid"], "1", "{object}");
    }
}

#[tokio::test]
async fn large_objects_are_read_and_huge_ones_refused() {
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
async fn sluice_itself_is_never_changed() {
    let object =
        json!({"kind": "Job", "metadata": {"name": "x", "namespace": "ns"}, "spec": {"suspend": false}});
    for path in ["/mutate", "/validate"] {
        let old = with(object.clone(), json!({"spec": {"suspend": true}}));
        let answer = ask(Ask { path, user: names::ACCOUNT, ..Ask::update(old, object.clone()) }).await;
        assert!(answer.allowed && !answer.patched, "{path}");
    }
}

/// A Job that asks for everything the directory can lack.
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
async fn what_arrives_in_the_directory_a_moment_later_was_there() {
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
            // News of something else does not end the wait.
            shared.store(late);
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            shared.store(directory());
        };
        let ((status, answer), ()) = tokio::join!(post(app_on(shared.clone()), "/mutate", demanding()), swap);
        assert_eq!(status, StatusCode::OK, "{what}");
        assert_eq!(answer["response"]["allowed"], true, "{what}: {answer}");
        let ByteString(patch) =
            serde_json::from_value(answer["response"]["patch"].clone()).expect("the patch is base64");
        assert!(String::from_utf8_lossy(&patch).contains("vision"), "{what}: the team is stamped");
        assert!(began.elapsed() < super::PATIENCE, "{what}: answered with the news, not by the clock");
    }
}

#[tokio::test]
async fn what_does_not_exist_is_refused_in_time() {
    let lacking = Directory { teams: [].into(), ..directory() };
    let began = std::time::Instant::now();
    let (status, answer) = post(app(lacking), "/mutate", demanding()).await;
    assert_eq!((status, &answer["response"]["allowed"]), (StatusCode::OK, &json!(false)));
    assert!(began.elapsed() >= super::PATIENCE && began.elapsed() < super::TIMEOUT);
}
