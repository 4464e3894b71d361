//! Hostile AdmissionReviews, as bytes through the router of the webhook.

use std::cell::OnceCell;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use k8s_openapi::ByteString;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use serde_json::{Value, json};
use sluice::api::priority::Class;
use sluice::directory::{Directory, Membership, SharedDirectory};
use sluice::engine::types::amount::Amount;
use sluice::engine::types::{Queue, Team};
use sluice::webhook::{WebhookMetrics, WebhookState, router};
use tokio::runtime::Runtime;
use tower::ServiceExt;

use super::mangle::{Change, changes, mangle, text};
use super::objects::{self, REVIEWED, Sample};

/// Users, each with a group.
const USERS: [(&str, &str); 8] = [
    ("alice", "system:authenticated"),
    ("system:serviceaccount:kube-system:job-controller", "system:serviceaccounts"),
    ("system:kube-controller-manager", "system:authenticated"),
    ("system:serviceaccount:kube-system:daemon-set-controller", "system:serviceaccounts"),
    ("system:serviceaccount:kuberay-system:kuberay-operator", "system:serviceaccounts"),
    ("system:node:n0", "system:nodes"),
    ("system:serviceaccount:sluice-system:sluice", "system:serviceaccounts"),
    ("", ""),
];
const OPERATIONS: [&str; 5] = ["CREATE", "UPDATE", "CREATE", "UPDATE", "DELETE"];

/// One review.
#[derive(Clone, Debug)]
pub struct Case {
    sample: usize,
    object: Vec<Change>,
    old: Vec<Change>,
    /// Changes of the review around the objects; mostly none.
    envelope: Vec<Change>,
    operation: usize,
    user: usize,
    directory: usize,
    sub_resource: bool,
}

/// Any review.
pub fn cases() -> impl Strategy<Value = Case> {
    let envelope = prop_oneof![15 => Just(Vec::new()), 1 => changes(2)];
    let numbers = (
        REVIEWED,
        0..OPERATIONS.len(),
        prop_oneof![3 => Just(0), 2 => 0..USERS.len()],
        0..Webhook::DIRECTORIES,
    );
    (numbers, changes(6), changes(2), envelope, prop::bool::weighted(0.02)).prop_map(
        |((sample, operation, user, directory), object, old, envelope, sub_resource)| Case {
            sample,
            object,
            old,
            envelope,
            operation,
            user,
            directory,
            sub_resource,
        },
    )
}

/// The answer to a review.
struct Answer {
    uid: Value,
    allowed: bool,
    patch: Option<json_patch::Patch>,
    message: Value,
}

/// Webhooks with different knowledge of the cluster.
pub struct Webhook {
    samples: Vec<Sample>,
    routers: Vec<Router>,
    runtime: Runtime,
}

impl Webhook {
    const DIRECTORIES: usize = 4;

    /// The webhooks of this thread.
    pub fn with<T>(run: impl FnOnce(&Self) -> T) -> T {
        thread_local!(static WEBHOOK: OnceCell<Webhook> = const { OnceCell::new() });
        WEBHOOK.with(|webhook| run(webhook.get_or_init(Self::new)))
    }

    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let routers = (0..Self::DIRECTORIES).map(|index| {
            let shared = SharedDirectory::default();
            shared.store(directory(index));
            let metrics = WebhookMetrics::new(&prometheus::Registry::new()).expect("a new registry is empty");
            // No review waits for a name that never comes.
            router(WebhookState::new(shared, metrics).waiting_for_names(0))
        });
        Self { samples: objects::all(), routers: routers.collect(), runtime }
    }

    /// Asks, and checks the answer and what follows from it.
    pub fn check(&self, case: &Case) -> TestCaseResult {
        let Sample { group, kind, object } = &self.samples[case.sample];
        let (mut new, mut old) = (object.clone(), object.clone());
        mangle(&mut old, &case.old);
        if OPERATIONS[case.operation] == "UPDATE" {
            // Most updates change little of what is stored.
            new.clone_from(&old);
        }
        mangle(&mut new, &case.object);
        let (old, new) = (text(&old), text(&new));
        let stored = if OPERATIONS[case.operation] == "CREATE" { "null" } else { &old };
        let sent = if OPERATIONS[case.operation] == "DELETE" { "null" } else { &new };
        let review = |object: &str| {
            let (user, group_of_user) = USERS[case.user];
            let metadata = &self.samples[case.sample].object["metadata"];
            let mut review = json!({
                "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "request": {
                    "uid": "0815", "kind": {"group": group, "version": "v1", "kind": kind},
                    "name": if case.operation == 0 { Value::Null } else { metadata["name"].clone() }.as_str().unwrap_or_default(),
                    "namespace": "ns", "operation": OPERATIONS[case.operation],
                    "subResource": if case.sub_resource { "status" } else { "" },
                    "userInfo": {"username": user, "groups": [group_of_user], "extra": {"x": ["y"]}},
                    "options": {"fieldManager": "kubectl"}, "dryRun": false,
                },
            });
            mangle(&mut review, &case.envelope);
            let review = text(&review);
            // A review that is no map any more has no place for objects.
            match review.rsplit_once("}}") {
                Some((begin, end)) if case.envelope.is_empty() => {
                    format!(r#"{begin},"object":{object},"oldObject":{stored}}}}}{end}"#)
                }
                _ => review,
            }
        };
        let body = review(sent);
        let answer = self.ask(case, "/mutate", body)?;
        if !case.envelope.is_empty() {
            let _ = self.ask(case, "/validate", review(sent))?;
            return Ok(());
        }
        prop_assert_eq!(&answer.uid, "0815", "the answer belongs to the request");
        let validated = self.ask(case, "/validate", review(sent))?;
        prop_assert_eq!(&validated.uid, "0815");
        prop_assert!(validated.patch.is_none(), "only /mutate edits");
        if !answer.allowed {
            return Ok(());
        }
        let Ok(mut edited) = serde_json::from_str::<Value>(sent) else {
            prop_assert!(answer.patch.is_none(), "an object that cannot be read is not edited");
            return Ok(());
        };
        if let Some(patch) = &answer.patch {
            prop_assert!(sent != "null", "there is an object to edit");
            let applied = json_patch::patch(&mut edited, patch);
            prop_assert!(applied.is_ok(), "the patch applies: {:?}\n{:?}", applied, patch);
        }
        // The API server asks again when another webhook has edited the object.
        let again = self.ask(case, "/mutate", review(&edited.to_string()))?;
        prop_assert!(again.allowed, "its own edits are refused: {}", again.message);
        prop_assert!(
            again.patch.is_none(),
            "it edits its own edits: {:?}\nafter {:?}",
            again.patch,
            answer.patch
        );
        let validated = self.ask(case, "/validate", review(&edited.to_string()))?;
        prop_assert!(validated.allowed, "what /mutate accepts is refused: {}", validated.message);
        Ok(())
    }

    fn ask(&self, case: &Case, path: &str, body: String) -> Result<Answer, TestCaseError> {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONTENT_LENGTH, body.len())
            .body(Body::from(body))
            .map_err(|error| TestCaseError::fail(error.to_string()))?;
        let router = self.routers[case.directory].clone();
        let (status, body) = self.runtime.block_on(async {
            let response = router.oneshot(request).await.expect("the router answers");
            let status = response.status();
            (status, axum::body::to_bytes(response.into_body(), 64 << 20).await.expect("a bounded body"))
        });
        prop_assert_eq!(status, StatusCode::OK);
        let mut review: Value =
            serde_json::from_slice(&body).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&review["kind"], "AdmissionReview");
        prop_assert_eq!(&review["apiVersion"], "admission.k8s.io/v1");
        let mut response = review["response"].take();
        let allowed = response["allowed"].as_bool().ok_or_else(|| TestCaseError::fail("no verdict"))?;
        prop_assert_eq!(response["status"].is_object(), !allowed, "a refusal says why");
        let message = response["status"]["message"].take();
        prop_assert!(allowed || message.as_str().is_some_and(|text| !text.is_empty()));
        let patch = match response["patch"].take() {
            Value::Null => None,
            patch => {
                prop_assert!(allowed);
                prop_assert_eq!(&response["patchType"], "JSONPatch");
                let bytes: Result<ByteString, _> = serde_json::from_value(patch);
                let patch = bytes.and_then(|ByteString(bytes)| serde_json::from_slice(&bytes));
                Some(patch.map_err(|error| TestCaseError::fail(error.to_string()))?)
            }
        };
        Ok(Answer { uid: response["uid"].take(), allowed, patch, message })
    }
}

/// One of the directories: with PriorityClasses and PodGroups or without, complete or not.
fn directory(index: usize) -> Directory {
    let queue = |name: &str| Queue { name: name.into(), ..Queue::fallback() };
    let member =
        |team: &str, queue: Option<&str>| Membership { team: team.into(), queue: queue.map(Into::into) };
    let team = Team {
        name: "vision".into(),
        parent: None,
        quotas: [].into(),
        weight: 1,
        queues: vec![queue("training"), queue("serving")],
        fair_users: false,
        budget: None,
    };
    let class = |value, preempts, stands_for: Option<&str>| Class {
        uid: "c".into(),
        value,
        global_default: false,
        preempts,
        stands_for: stands_for.map(Into::into),
    };
    let classes = [
        ("high".into(), class(1000, true, None)),
        ("sluice-high".into(), class(1000, false, Some("high"))),
        ("urgent".into(), class(7, false, None)),
        ("system-node-critical".into(), class(2_000_001_000, true, None)),
        ("sluice".into(), class(0, false, Some(""))),
    ];
    let directory = Directory {
        complete: index != 3,
        namespaces: [("ns".into(), member("vision", (index == 2).then_some("serving")))].into(),
        teams: [("vision".into(), team)].into(),
        queue_priority_classes: [(("vision".into(), "serving".into()), "urgent".into())].into(),
        pools: ["a100".into()].into(),
        shares: [
            ("a100".into(), [("nvidia.com/gpu.shared".into(), Amount::milli(250))].into_iter().collect()),
            (
                "default".into(),
                [
                    ("nvidia.com/mig-1g.5gb".into(), Amount::milli(143)),
                    ("example.com/gpu-cores".into(), Amount::milli(10)),
                ]
                .into_iter()
                .collect(),
            ),
        ]
        .into(),
        classes: (index != 0).then(|| classes.into()),
        pod_groups: index % 2 == 1,
        ..Directory::default()
    };
    if index == 1 {
        let record =
            serde_json::from_str(&objects::RECORD.replacen('{', r#"{"done":"","#, 1)).expect("a record");
        directory.places.put(&"j".into(), Some(&Arc::new(sluice::api::seats::Seats::of(&record))));
        directory.places.thin(&"j".into(), true);
    }
    directory
}
