//! A client that sends reviews to the router as the API server does, and applies the patches. For tests.

use axum::body::Body;
use axum::http::{Method, Request, StatusCode, header};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{WebhookMetrics, WebhookState, router};
use crate::directory::{Directory, Membership, SharedDirectory};
use crate::engine::types::{Queue, Team};

/// A user without any special rights.
pub(crate) const ALICE: &str = "alice";

/// Namespaces `ns` and `low` belong to team `vision` with queues `training` and `serving`; the default queue of `low` is
/// `serving`. The team of `orphan` does not exist.
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
                budget: None,
            },
        )]
        .into(),
        queue_priority_classes: [(("vision".into(), "serving".into()), "urgent".into())].into(),
        pools: ["a100".into()].into(),
        ..Directory::default()
    }
}

/// One request, with the parts that tests vary.
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

/// The answer, and the object with the patch applied.
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

pub(crate) fn app_on(directory: SharedDirectory) -> axum::Router {
    let metrics = WebhookMetrics::new(&prometheus::Registry::new()).expect("a new registry is empty");
    router(WebhookState::new(directory, metrics))
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

/// Sends a request and checks that the answer belongs to it.
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
