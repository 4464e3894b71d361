//! What a session does when leadership comes and goes.

use std::time::Duration;

use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::get;
use axum::{Json, Router};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::context::Context;
use super::super::follow_leadership;
use super::super::queries::{Choice, Question};
use super::super::recorder::Recorder;
use super::*;
use crate::cluster::dra::News;
use crate::cluster::events;
use crate::cluster::leader::Leadership;
use crate::cluster::reduce::node::node;
use crate::cluster::reduce::team::{namespace, team};
use crate::cluster::table::Seen;
use crate::cluster::target::job::job;
use crate::engine::types::State;
use crate::history;
use crate::notify;
use crate::view::Accelerators;

/// A leader's context, with an API server that answers these paths, and nothing else ever.
fn context(answers: Router) -> Context {
    let silent = || async { std::future::pending::<StatusCode>().await };
    let client = Client::new(answers.fallback(silent), "default");
    let leadership = Leadership::until(Instant::now() + Duration::from_secs(600));
    let metrics = Arc::new(Metrics::new().expect("distinct names"));
    let busy = Arc::default();
    let (notices, _) = events::publisher(
        client.clone(),
        leadership.clone(),
        "me".into(),
        Arc::clone(&metrics),
        Arc::clone(&busy),
    );
    let options = notify::Options { notify_secrets: "/nowhere".into(), notify_ca: None };
    let (notifier, _) =
        notify::start(&options, &metrics.registry, CancellationToken::new()).expect("it starts");
    let historian = history::Historian::off(history::counts(&metrics.registry).expect("distinct names"));
    let recorder = Recorder::new(1, historian, Accelerators::default());
    Context {
        recorder: Arc::new(Mutex::new(recorder)),
        client,
        leadership,
        heart: Default::default(),
        directory: Default::default(),
        metrics,
        notices,
        notifier,
        busy,
        settings: Default::default(),
        caps: Default::default(),
        kinds: crate::kinds::Kinds::parse("kinds: []", "none").expect("an empty table"),
        ready: Arc::default(),
    }
}

/// Everything of a cluster with one free GPU and a Job that asks for it, as the watches send it.
fn cluster() -> Vec<Change> {
    fn listed<T>(wrap: fn(Seen<T>) -> Change, objects: Vec<(Name, T)>) -> Vec<Change> {
        let objects = objects.into_iter().map(|(key, object)| Seen::Object(key, object));
        [Seen::ListBegins].into_iter().chain(objects).chain([Seen::ListEnds]).map(wrap).collect()
    }
    fn read<K: serde::de::DeserializeOwned>(object: Value) -> K {
        serde_json::from_value(object).expect("an object")
    }
    let gpus = json!({"nvidia.com/gpu": "1", "pods": "10", "cpu": "8"});
    let free = node(&read(
        json!({"metadata": {"name": "n"}, "status": {"allocatable": gpus, "conditions": [{"type": "Ready", "status": "True"}]}}),
    ));
    let vision = read(json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Team",
        "metadata": {"name": "a", "resourceVersion": "3"},
        "spec": {"quotas": [{"guaranteed": {"nvidia.com/gpu": 1}}]}}));
    let home = namespace(&read(json!({"metadata": {"name": "a", "labels": {"sluice.dev/team": "a"}}})));
    let container = json!({"name": "m", "resources": {"limits": {"nvidia.com/gpu": "1"}}});
    let held = read(json!({
        "metadata": {"name": "j", "namespace": "a", "uid": "j", "resourceVersion": "5", "generation": 1,
            "annotations": {"sluice.dev/held": "true"}},
        "spec": {"suspend": true, "template": {"spec": {"containers": [container]}}},
    }));
    let lists = [
        listed(Change::Namespace, vec![("a".into(), home)]),
        listed(Change::Team, vec![("a".into(), team(&vision).expect("readable"))]),
        listed(Change::Pool, vec![]),
        listed(Change::Node, vec![("n".into(), free)]),
        listed(Change::Class, vec![]),
        listed(Change::Job, vec![("j".into(), job(&held, Time(0)))]),
        listed(Change::Pod, vec![]),
        vec![Change::PodGroups(false)],
    ];
    lists.into_iter().flatten().chain(News::nothing().map(Change::Devices)).collect()
}

/// A session that has watched that cluster and does not lead.
fn standby(context: &Context) -> Session {
    let mut session = Session::begin(context, None);
    for change in cluster() {
        let events = session.mirror.take(change);
        session.apply(events);
    }
    assert!(session.complete());
    session
}

/// An API server with that cluster's Team, and its Job in this version.
fn lists(job: &'static str) -> Router {
    let list = |items: Value| {
        let page = json!({"metadata": {"resourceVersion": "9"}, "items": items});
        // The lists of the watches get no answer.
        get(move |headers: HeaderMap| async move {
            let accepts = headers.get(header::ACCEPT).and_then(|accepts| accepts.to_str().ok());
            if !accepts.is_some_and(|accepts| accepts.contains("PartialObjectMetadataList")) {
                std::future::pending::<()>().await;
            }
            Json(page)
        })
    };
    let item = |name: &str, version: &str| json!([{"metadata": {"name": name, "uid": name, "resourceVersion": version}}]);
    Router::new()
        .route("/apis/sluice.dev/v1alpha1/teams", list(item("a", "3")))
        .route("/apis/batch/v1/jobs", list(item("j", job)))
        .route("/api/v1/pods", list(json!([])))
}

/// Handles arrivals until the session decides.
async fn until_it_decides(context: &Context, mut session: Session) -> Session {
    while !session.decides() {
        let arrived = tokio::time::timeout(Duration::from_secs(1), session.arrived()).await;
        assert_ne!(arrived, Ok(false));
        session.take_waiting();
        session = follow_leadership(context, session);
    }
    session
}

fn takeovers(context: &Context) -> [u64; 2] {
    ["warm", "cold"].map(|kind| context.metrics.takeovers.with_label_values(&[kind]).get())
}

fn state(session: &Session) -> State {
    let verdict = session.engine.verdict(&WorkloadId("j".into())).expect("it is known");
    println!("{}", verdict.message);
    verdict.state
}

#[tokio::test]
async fn questions_that_wait_for_a_plan_are_answered_when_the_replica_becomes_leader() {
    let context = context(Router::new());
    let mut session = Session::begin(&context, None);
    let (to, mut answer) = oneshot::channel();
    let copy = || Some(Box::new(Engine::new()));
    assert!(
        session
            .preview
            .hold(
                Question::Workloads(Choice::default(), None, crate::view::Accelerators::default(), to),
                copy
            )
            .is_none(),
        "it waits for a plan"
    );
    let session = follow_leadership(&context, session);
    assert!(session.decides());
    assert!(answer.try_recv().is_ok(), "it is answered by what is known");
}

#[tokio::test]
async fn a_new_leader_goes_on_with_a_cache_that_shows_every_write_before() {
    let context = context(lists("5"));
    let session = follow_leadership(&context, standby(&context));
    assert!(session.term().is_some() && !session.decides(), "the versions are not known yet");
    let mut session = until_it_decides(&context, session).await;
    assert_eq!(takeovers(&context), [1, 0]);
    session.decide(now());
    assert_eq!(state(&session), State::Running);
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_lists_the_cluster_again_if_its_watches_do_not_deliver() {
    let context = context(lists("6"));
    let mut session = follow_leadership(&context, standby(&context));
    session.decide(now());
    assert_eq!(state(&session), State::Pending, "the Job may have been admitted meanwhile");
    let session = until_it_decides(&context, session).await;
    assert_eq!(takeovers(&context), [0, 1]);
    assert!(!session.complete(), "it begins again");
}

#[tokio::test]
async fn a_leader_that_loses_the_lease_forgets_what_it_decided_and_never_wrote() {
    let context = context(Router::new());
    let mut session = standby(&context);
    session.term = Some(1);
    session.decide(now());
    assert_eq!(state(&session), State::Running);
    assert_eq!(session.decisions.len(), 1);
    let session = session.stand_down(&context);
    assert_eq!(state(&session), State::Pending);
    assert!(session.decisions.is_empty() && !session.decides() && session.complete());
    let [nodes, teams] = [session.engine.nodes().len(), session.engine.teams().len()];
    assert_eq!([nodes, teams], [1, 1], "all else is known as before");
}
