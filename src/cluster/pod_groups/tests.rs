//! PodGroups on an API server that stores one of them.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request as Incoming;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::*;
use crate::cluster::call::Pace;
use crate::cluster::leader::Leadership;
use crate::metrics::Metrics;

/// An API server, and the requests it got.
#[derive(Default)]
struct Server {
    /// The stored PodGroup.
    there: Option<Value>,
    /// How often a deleted PodGroup is still read before it is gone.
    lingers: u32,
    /// The code with which it refuses to create one.
    refuses: Option<u16>,
    /// The code with which it refuses to list the versions.
    hides: Option<u16>,
    /// The versions of the group, with one kind each.
    versions: Vec<(&'static str, &'static str)>,
    /// Whether Sluice may read PodGroups.
    forbids: bool,
    asked: Vec<String>,
}

impl Server {
    fn act(&mut self, method: &str, path: &str, body: &[u8]) -> Response {
        self.asked.push(format!("{method} {}", path.rsplit('/').next().unwrap_or_default()));
        match (method, path.strip_prefix("/apis/scheduling.k8s.io").unwrap_or_default()) {
            ("GET", "") if self.hides.is_some() => status(self.hides.unwrap_or_default()),
            ("GET", "") => {
                let version = |(version, _): &(&str, &str)| json!({"version": version, "groupVersion": format!("{GROUP}/{version}")});
                let versions: Vec<Value> = self.versions.iter().map(version).collect();
                axum::Json(json!({"name": GROUP, "versions": versions})).into_response()
            }
            ("GET", "/v1alpha2/podgroups") if self.forbids => status(403),
            ("GET", "/v1alpha2/podgroups") => {
                axum::Json(json!({"metadata": {}, "items": []})).into_response()
            }
            ("GET", at) if at.matches('/').count() == 1 => {
                let kinds = self.versions.iter().filter(|(version, _)| at[1..] == **version);
                let kind = |(_, kind): &(&str, &str)| json!({"name": kind, "singularName": "", "namespaced": true, "kind": "K", "verbs": []});
                let kinds: Vec<Value> = kinds.map(kind).collect();
                axum::Json(json!({"groupVersion": GROUP, "resources": kinds})).into_response()
            }
            ("GET", _) => {
                let going = self
                    .there
                    .as_ref()
                    .is_some_and(|there| !there["metadata"]["deletionTimestamp"].is_null());
                if going && self.lingers == 0 {
                    self.there = None;
                }
                self.lingers = self.lingers.saturating_sub(u32::from(going));
                self.there.clone().map_or_else(|| status(404), |there| axum::Json(there).into_response())
            }
            ("POST", _) => match (self.refuses, &self.there) {
                (Some(code), _) => status(code),
                (None, Some(_)) => status(409),
                (None, None) => {
                    let mut made: Value = serde_json::from_slice(body).expect("an object");
                    made["metadata"]["uid"] = "new".into();
                    axum::Json(self.there.insert(made).clone()).into_response()
                }
            },
            _ => status(405),
        }
    }
}

fn status(code: u16) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "message": "no", "reason": "X"});
    (StatusCode::from_u16(code).expect("a code"), axum::Json(status)).into_response()
}

fn client(server: &Arc<Mutex<Server>>) -> Client {
    let server = Arc::clone(server);
    let router = Router::new().fallback(move |request: Incoming| {
        let server = Arc::clone(&server);
        async move {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
            server.lock().expect("no panic").act(parts.method.as_str(), parts.uri.path(), &body)
        }
    });
    Client::new(router, "default")
}

/// Ensures the PodGroup `g` of three pods of Job `j`; gives the outcome and the server afterwards.
async fn ensured(server: Server, may_be_there: bool) -> (Result<(), Failure>, Server) {
    let server = Arc::new(Mutex::new(server));
    let metrics = Arc::new(Metrics::new().expect("distinct names"));
    let claim = Leadership::until(Instant::now() + Duration::from_secs(60));
    let caller = Caller::new(client(&server), claim, metrics, Pace::default());
    let job = Owner { namespace: "ns", name: "j", uid: "job" };
    let outcome = ensure(&caller, job, &PodGroup { name: "g".into(), together: Some(3), may_be_there }).await;
    let after = std::mem::take(&mut *server.lock().expect("no panic"));
    (outcome, after)
}

fn there(owner: &str) -> Option<Value> {
    Some(json!({
        "metadata": {"name": "g", "uid": "old", "ownerReferences":
            [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": owner}]},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    }))
}

#[tokio::test]
async fn a_pod_group_is_created_once_and_owned_by_its_job() {
    let (outcome, after) = ensured(Server::default(), false).await;
    assert_eq!(outcome, Ok(()));
    assert_eq!(after.asked, ["POST podgroups"], "one call, where it cannot exist");
    let made = after.there.clone().expect("it is there");
    assert_eq!(made["spec"], json!({"schedulingPolicy": {"gang": {"minCount": 3}}}));
    let owner = &made["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"], &owner["uid"]), (&json!("Job"), &json!("j"), &json!("job")));

    let (outcome, again) = ensured(Server { there: after.there, ..Server::default() }, true).await;
    assert_eq!((outcome, again.asked), (Ok(()), vec!["GET g".to_owned()]));
}

#[test]
fn pods_that_may_start_alone_have_a_pod_group_without_a_count() {
    let alone = PodGroup { name: "g".into(), together: None, may_be_there: false };
    let made = alone.object(Owner { namespace: "ns", name: "j", uid: "job" });
    assert_eq!(made["spec"], json!({"schedulingPolicy": {"basic": {}}}));
}

#[tokio::test]
async fn a_pod_group_whose_creation_got_no_answer_is_found() {
    let (outcome, after) = ensured(Server { there: there("job"), ..Server::default() }, false).await;
    assert_eq!((outcome, after.asked), (Ok(()), vec!["POST podgroups".to_owned(), "GET g".to_owned()]));
}

#[tokio::test]
async fn a_deleted_pod_group_is_created_again_when_it_is_gone() {
    let (outcome, after) = ensured(Server::default(), true).await;
    assert_eq!((outcome, after.asked), (Ok(()), vec!["GET g".to_owned(), "POST podgroups".to_owned()]));

    let mut going = there("job");
    going.as_mut().expect("it is there")["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z".into();
    let server = Server { there: going, lingers: 2, ..Server::default() };
    let (outcome, after) = ensured(server, true).await;
    assert_eq!(outcome, Ok(()));
    assert_eq!(after.there.expect("it is there")["metadata"]["uid"], "new");
}

#[tokio::test]
async fn an_admission_without_its_pod_group_is_refused() {
    let refused = |text: &str| Err(Failure::Refused(text.to_owned()));
    let (outcome, _) = ensured(Server { refuses: Some(403), ..Server::default() }, false).await;
    assert_eq!(outcome, refused("PodGroup g cannot be created: no"));
    let (outcome, after) = ensured(Server { there: there("another"), ..Server::default() }, false).await;
    assert_eq!(outcome, refused("PodGroup g belongs to another object"));
    assert_eq!(after.there, there("another"), "the PodGroup of another Job is not changed");
    let (outcome, _) = ensured(Server { refuses: Some(404), ..Server::default() }, false).await;
    assert_eq!(outcome, Ok(()), "without the kind, kube-scheduler ignores the name");
}

#[tokio::test]
async fn only_the_supported_version_is_used() {
    let priorities = ("v1", "priorityclasses");
    let newer = ("v1beta1", "podgroups");
    for (versions, forbids, expected, calls) in [
        (vec![priorities], false, Served::No, 1),
        (vec![priorities, ("v1alpha2", "workloads")], false, Served::No, 2),
        (vec![priorities, newer], false, Served::Otherwise(vec!["v1beta1".to_owned()]), 2),
        (vec![priorities, newer, ("v1alpha2", "podgroups")], false, Served::Yes, 4),
        (vec![priorities, ("v1alpha2", "podgroups")], true, Served::Forbidden("no".to_owned()), 3),
    ] {
        let server =
            Arc::new(Mutex::new(Server { versions: versions.clone(), forbids, ..Server::default() }));
        assert_eq!(look(&client(&server)).await.expect("an answer"), expected, "{versions:?}");
        assert_eq!(server.lock().expect("no panic").asked.len(), calls, "{versions:?}");
    }
    for (code, expected) in
        [(404, Some(Served::No)), (403, Some(Served::Forbidden("no".to_owned()))), (503, None)]
    {
        let server = Arc::new(Mutex::new(Server { hides: Some(code), ..Server::default() }));
        assert_eq!(look(&client(&server)).await.ok(), expected, "{code}");
    }
}
