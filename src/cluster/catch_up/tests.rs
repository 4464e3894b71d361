//! When a cache is as new as the lists of a new term.

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use super::*;
use crate::cluster::reduce::team::team;
use crate::cluster::target::job::job;
use crate::engine::types::Time;

/// The version of every list.
const LIST: u64 = 100;

/// Names, which are UIDs too, with versions.
type Objects = &'static [(&'static str, &'static str)];

/// An API server with these Jobs, in pages of one, and Teams; it serves no custom kind.
fn server(jobs: Objects, teams: Objects) -> Client {
    let list = async |State(objects): State<Objects>, RawQuery(query): RawQuery| -> Response {
        let query = query.unwrap_or_default();
        let asked = |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key));
        let start: usize = asked("continue=").and_then(|token| token.parse().ok()).unwrap_or(0);
        // A version in the request would allow an older answer.
        if asked("resourceVersion=").is_some() {
            return StatusCode::BAD_REQUEST.into_response();
        }
        let item = |(name, version): &(&str, &str)| json!({"metadata": {"name": name, "uid": name, "resourceVersion": version}});
        let items: Vec<Value> = objects.iter().skip(start).take(1).map(item).collect();
        let mut metadata = json!({"resourceVersion": LIST.to_string()});
        if start + 1 < objects.len() {
            metadata["continue"] = json!((start + 1).to_string());
        }
        Json(json!({"metadata": metadata, "items": items})).into_response()
    };
    let of = |objects: Objects| get(list).with_state(objects);
    let router = Router::new()
        .route("/apis/batch/v1/jobs", of(jobs))
        .route("/api/v1/pods", of(&[]))
        .route("/apis/sluice.dev/v1alpha1/teams", of(teams));
    Client::new(router, "default")
}

/// A Job in a version; one that is not held is not cached.
fn saw(name: &str, version: u64, held: bool) -> Change {
    let object = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": version.to_string(),
            "annotations": {"sluice.dev/held": held.to_string()}},
        "spec": {"suspend": held, "template": {"spec": {"containers": []}}},
    });
    let seen = job(&serde_json::from_value(object).expect("a Job"), Time(0));
    Change::Job(Seen::Object(seen.uid.clone(), seen))
}

fn saw_team(name: &str, version: u64) -> Change {
    let object = json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Team",
        "metadata": {"name": name, "resourceVersion": version.to_string()}, "spec": {}});
    let seen = team(&serde_json::from_value(object).expect("a Team")).expect("readable");
    Change::Team(Seen::Object(name.into(), seen))
}

fn ended(name: &str) -> Change {
    Change::Job(Seen::Deleted(name.into()))
}

/// A cache that catches up with a server.
struct Course {
    mirror: Mirror,
    catch_up: CatchUp,
}

impl Course {
    /// The state after every answer; `before` was delivered before.
    async fn of(server: Client, before: &[Change]) -> Self {
        let mut mirror = Mirror::default();
        for change in before {
            mirror.take(change.clone());
        }
        let mut catch_up = CatchUp::begin(&server, &Kinds::default());
        assert_eq!(catch_up.progress(&mirror), Progress::Behind, "nothing is listed yet");
        while let Some(answer) = catch_up.answer().await {
            catch_up.take(answer, &mirror);
        }
        Self { mirror, catch_up }
    }

    fn after(&mut self, change: Change) -> Progress {
        self.catch_up.note(&change);
        self.mirror.take(change);
        self.progress()
    }

    fn progress(&mut self) -> Progress {
        self.catch_up.progress(&self.mirror)
    }
}

#[tokio::test]
async fn a_cache_is_level_when_it_shows_every_listed_object_in_its_version_or_a_later_one() {
    let server = || server(&[("a", "5"), ("b", "7"), ("plain", "9")], &[("t", "8")]);
    let new = [saw("a", 5, true), saw("b", 70, true), saw("plain", 9, false), saw_team("t", 8)];
    assert_eq!(Course::of(server(), &new).await.progress(), Progress::Level);
    let old = [saw("a", 4, true), saw("plain", 8, false), saw_team("t", 7)];
    let mut course = Course::of(server(), &old).await;
    for change in [saw("a", 5, true), saw("b", 7, true), saw("plain", 9, false)] {
        assert_eq!(course.progress(), Progress::Behind);
        assert_eq!(course.after(change), Progress::Behind);
    }
    assert_eq!(course.after(saw_team("t", 8)), Progress::Level);
}

#[tokio::test]
async fn a_cache_is_level_only_without_the_objects_that_ended_before_the_list() {
    let before = [saw("gone", 5, true), saw("later", LIST + 1, true)];
    let mut course = Course::of(server(&[], &[]), &before).await;
    assert_eq!(course.progress(), Progress::Behind);
    assert_eq!(course.after(ended("gone")), Progress::Level, "the other one was made after the list");
}

#[tokio::test]
async fn an_object_that_ends_after_it_was_listed_is_not_waited_for() {
    let mut course = Course::of(server(&[("a", "5"), ("b", "6")], &[]), &[saw("a", 4, true)]).await;
    assert_eq!(course.after(ended("a")), Progress::Behind);
    assert_eq!(course.after(ended("b")), Progress::Level);
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_cannot_be_compared_is_no_base_for_decisions() {
    let unknown = |progress: Progress| match progress {
        Progress::Unknown(problem) => problem,
        other => panic!("{other:?}"),
    };
    let mut course = Course::of(server(&[("a", "5")], &[]), &[saw("a", 4, true)]).await;
    assert_eq!(course.progress(), Progress::Behind);
    tokio::time::advance(PATIENCE).await;
    assert!(unknown(course.progress()).contains("not delivered 1 objects"));
    let mut course = Course::of(server(&[("a", "five")], &[]), &[saw("a", 4, true)]).await;
    assert!(unknown(course.progress()).contains("\"five\" is not a number"));
    let refuses = Router::new().fallback(async || StatusCode::INTERNAL_SERVER_ERROR);
    let mut course = Course::of(Client::new(refuses, "default"), &[]).await;
    unknown(course.progress());
    let silent = Router::new().fallback(async || std::future::pending::<StatusCode>().await);
    let mut course = Course::of(Client::new(silent, "default"), &[]).await;
    assert!(unknown(course.progress()).contains("did not answer"));
}
