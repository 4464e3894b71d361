//! From the cluster's objects to the answers.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::*;
use crate::api::names;
use crate::api::record::{time, timestamp};
use crate::cluster::dra;
use crate::cluster::mirror::{Change, Mirror};
use crate::cluster::reduce;
use crate::cluster::reduce::team::NamespaceSeen;
use crate::cluster::table::Seen;
use crate::cluster::target;
use crate::controller::{Choice, answer};
use crate::directory::{Membership, SharedDirectory};
use crate::engine::replay::forecast::Eta;
use crate::engine::types::WorkloadId;
use crate::kinds::Kinds;
use crate::view::Accelerators;

/// A cluster of one GPU and team `a`, with its control loop.
struct Cluster {
    asker: Asker,
    forecaster: Forecaster,
    /// Its namespaces and teams.
    directory: SharedDirectory,
    /// Number of engine copies handed out.
    copies: Arc<AtomicUsize>,
}

fn read<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object")
}

fn template() -> Value {
    json!({"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "1"}}}]}})
}

/// A queued Job, or one that has been running for this long with this time limit.
fn job(name: &str, runs: Option<(Duration, &str)>) -> Change {
    job_with(name, runs, 1)
}

/// The same with pods of this many GPUs.
fn job_with(name: &str, runs: Option<(Duration, &str)>, gpus: u32) -> Change {
    let mut template = template();
    template["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = gpus.to_string().into();
    let mut object = json!({
        "metadata": {"name": name, "namespace": "a", "uid": name, "creationTimestamp": timestamp(Time(now().0 - 1_000)).to_string(),
            "annotations": {names::HELD: "true"}},
        "spec": {"suspend": runs.is_none(), "template": template},
    });
    if let Some((ago, limit)) = runs {
        let since = timestamp(Time(now().0 - i64::try_from(ago.as_millis()).expect("not long ago")));
        let record = json!({"pool": "default", "nodes": {"n": 1}, "pods": 1, "borrowed": false, "at": since});
        object["metadata"]["annotations"][names::ADMISSION] = record.to_string().into();
        if !limit.is_empty() {
            object["metadata"]["annotations"][names::TIME_LIMIT] = limit.into();
        }
    }
    let seen = target::job::job(&read(object), now());
    Change::Job(Seen::Object(seen.uid.clone(), seen))
}

/// The pod of the running Job.
fn pod() -> Change {
    let owner =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "runs", "uid": "runs", "controller": true}]);
    let mut spec = template()["spec"].clone();
    spec["nodeName"] = "n".into();
    let object = json!({
        "metadata": {"name": "runs-0", "namespace": "a", "uid": "runs-0", "ownerReferences": owner},
        "spec": spec, "status": {"phase": "Running"},
    });
    let seen = target::pod::pod(&read(object));
    Change::Pod(Seen::Object(seen.uid.clone(), seen))
}

impl Cluster {
    /// A cluster in which `runs` runs and the others wait.
    fn new(runs: Change, waiting: Vec<Change>) -> Self {
        let team = read(json!({
            "apiVersion": "sluice.dev/v1alpha1", "kind": "Team", "metadata": {"name": "a"},
            "spec": {
                "quotas": [{"guaranteed": {"nvidia.com/gpu": 1}}],
                "queues": [{"name": "default"}, {"name": "small", "limit": {"nvidia.com/gpu": 0}},
                    {"name": "closed", "paused": "Hold"}],
            },
        }));
        let amounts = json!({"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "1"});
        let node = json!({"metadata": {"name": "n"}, "status": {"capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}]}});
        let membership = Some(Membership { team: "a".into(), queue: None });
        let mut changes = vec![
            Change::Team(Seen::Object("a".into(), reduce::team::team(&team).expect("a team"))),
            Change::Namespace(Seen::Object(
                "a".into(),
                NamespaceSeen { name: "a".into(), membership, since: None },
            )),
            Change::Node(Seen::Object("n".into(), reduce::node::node(&read(node)))),
        ];
        changes.extend([runs, pod()]);
        changes.extend(waiting);
        changes.extend([
            Change::Namespace(Seen::ListEnds),
            Change::Team(Seen::ListEnds),
            Change::Pool(Seen::ListEnds),
            Change::Node(Seen::ListEnds),
            Change::Class(Seen::ListEnds),
            Change::Job(Seen::ListEnds),
            Change::Pod(Seen::ListEnds),
        ]);
        changes.push(Change::PodGroups(false));
        changes.extend(dra::News::nothing().map(Change::Devices));
        let (mut mirror, mut engine) = (Mirror::default(), Engine::new());
        for event in changes.into_iter().flat_map(|change| mirror.take(change)) {
            engine.apply(event, now());
        }
        assert_eq!(engine.plan(now()).actions, [], "no workload can start");
        let directory = SharedDirectory::default();
        directory.store(mirror.directory().expect("a directory"));
        let (asker, mut questions) = Asker::new();
        let copies = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&copies);
        tokio::spawn(async move {
            while let Some(question) = questions.recv().await {
                if matches!(question, Question::Engine(_) | Question::Candidate(_, None, _)) {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                answer(question, &engine, &mirror, None);
            }
        });
        let forecaster = Forecaster::new(asker.clone(), CancellationToken::new());
        Self { asker, forecaster, directory, copies }
    }

    /// The rows as JSON, with their expected starts.
    async fn filled(&self, rows: Option<Vec<WorkloadRow>>) -> Value {
        let mut rows = rows.expect("the control loop runs");
        self.forecaster.fill_in(&mut rows).await;
        serde_json::to_value(rows).expect("JSON")
    }

    async fn workloads(&self) -> Value {
        let question = |to| Question::Workloads(Choice::default(), None, Accelerators::default(), to);
        let part = self.asker.ask(question).await;
        self.filled(part.map(|part| part.rows)).await
    }

    async fn workload(&self, namespace: &str, name: &str) -> Value {
        let question =
            |to| Question::Workload((namespace.to_owned(), name.to_owned()), Accelerators::default(), to);
        self.filled(self.asker.ask(question).await).await
    }

    async fn what_ifs(&self, objects: Vec<Value>) -> Result<Vec<WhatIfRow>, Unanswered> {
        self.forecaster.what_if(&self.directory.load(), "alice", objects).await
    }

    async fn what_if(&self, object: &Value) -> Result<Value, Unanswered> {
        let row = self.what_ifs(vec![object.clone()]).await?.remove(0);
        Ok(serde_json::to_value(row).expect("JSON"))
    }
}

/// Seconds from now to a time in an answer.
fn ahead(text: &Value) -> i64 {
    let at: jiff::Timestamp = text.as_str().and_then(|text| text.parse().ok()).expect("a time");
    (time(at).0 - now().0) / 1_000
}

#[tokio::test]
async fn a_workload_behind_a_time_limit_has_an_expected_start() {
    let running = job("runs", Some((Duration::from_secs(600), "1h")));
    let cluster = Cluster::new(running, vec![job("waits", None)]);
    let rows = cluster.workloads().await;
    assert!(rows[0]["eta"].is_null(), "{rows}");
    let eta = &rows[1]["eta"];
    for bound in ["likely", "late"] {
        assert!((2_990..=3_000).contains(&ahead(&eta[bound])), "{bound}: {eta}");
    }
    assert!((0..=3_000).contains(&ahead(&eta["early"])), "{eta}");
    assert_eq!(eta["basis"], "TimeLimits");
    let place = json!({"pool": "default", "position": 1, "waiting": 1, "inFront": [], "teamsInFront": 0});
    assert_eq!(eta["place"], place);
    // A second request at once gets the same forecast.
    let again = cluster.workload("a", "waits").await;
    assert_eq!(again[0]["eta"], *eta);
    assert_eq!(cluster.copies.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn without_a_time_limit_there_is_no_estimate() {
    let running = job("runs", Some((Duration::ZERO, "")));
    let cluster = Cluster::new(running, vec![job("waits", None)]);
    let rows = cluster.workloads().await;
    let eta = &rows[1]["eta"];
    assert!(eta["foretold"].is_string() && eta["likely"].is_null() && eta["late"].is_null(), "{rows}");
    assert_eq!(eta["basis"], "UnknownEnd");
    assert!(eta["message"].as_str().is_some_and(|message| message.contains("the run of a/runs")), "{eta}");
}

/// A queued Job of this queue.
fn of_queue(name: &str, queue: &str) -> Change {
    let mut object = held(name);
    object["metadata"]["labels"] = json!({names::QUEUE: queue});
    object["metadata"]["uid"] = name.into();
    let seen = target::job::job(&read(object), now());
    Change::Job(Seen::Object(seen.uid.clone(), seen))
}

#[tokio::test]
async fn what_is_in_a_paused_queue_has_no_expected_start_until_it_is_open() {
    let running = job("runs", Some((Duration::ZERO, "1h")));
    let cluster = Cluster::new(running, vec![of_queue("paused", "closed"), job("waits", None)]);
    let mut rows = cluster.workloads().await;
    let row = rows.as_array_mut().and_then(|rows| rows.iter_mut().find(|row| row["name"] == "paused"));
    let mut row: WorkloadRow = read(row.expect("a row").take());
    let times = |row: &WorkloadRow| row.eta.as_ref().map(|eta| (eta.likely.is_some(), eta.basis.clone()));
    assert_eq!(row.head.reason, "QueuePaused");
    assert_eq!(times(&row), Some((false, "QueuePaused".to_owned())));
    let object = |queue: &str| {
        let mut object = held("new");
        object["metadata"]["labels"] = json!({names::QUEUE: queue});
        object
    };
    let answer = cluster.what_if(&object("closed")).await.expect("an answer");
    assert_eq!((&answer["reason"], &answer["eta"]["basis"]), (&json!("QueuePaused"), &json!("QueuePaused")));
    // A forecast from before the pause had an expected start for it.
    row.head.name = "waits".to_owned();
    let mut rows = [row];
    cluster.forecaster.starts(false).await.fill_in(&mut rows);
    assert_eq!(times(&rows[0]), Some((false, "QueuePaused".to_owned())));
    rows[0].head.reason = "NoRoom".to_owned();
    cluster.forecaster.starts(false).await.fill_in(&mut rows);
    assert_eq!(times(&rows[0]), Some((true, "TimeLimits".to_owned())));
}

#[tokio::test]
async fn what_can_never_start_has_no_expected_start() {
    let running = job("runs", Some((Duration::ZERO, "1h")));
    let limited = of_queue("limited", "small");
    let cluster = Cluster::new(running, vec![job("waits", None), job_with("never", None, 50), limited]);
    let rows = cluster.workloads().await;
    let eta_of = |name: &str| {
        let mut rows = rows.as_array().into_iter().flatten();
        rows.find(|row| row["name"] == name).map(|row| row["eta"].clone()).expect("a row")
    };
    assert!(eta_of("waits").is_object(), "{rows}");
    assert!(eta_of("never").is_null(), "{rows}");
    assert!(eta_of("limited").is_null(), "no wait brings it below the limit of its queue: {rows}");
}

#[tokio::test]
async fn no_forecast_is_made_when_no_workload_waits() {
    let cluster = Cluster::new(job("runs", Some((Duration::ZERO, "1h"))), Vec::new());
    cluster.workloads().await;
    assert_eq!(cluster.copies.load(Ordering::Relaxed), 0);
}

/// A Job of team `a` that is not submitted.
fn candidate() -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "new", "namespace": "a"},
        "spec": {"template": template()},
    })
}

#[tokio::test]
async fn one_what_if_runs_one_waits_and_a_third_is_refused() {
    let directory = Cluster::new(job("runs", Some((Duration::ZERO, "1h"))), Vec::new()).directory;
    // A control loop that does not answer.
    let (asker, questions) = Asker::new();
    let forecaster = Forecaster::new(asker, CancellationToken::new());
    let ask = || {
        let (forecaster, directory) = (forecaster.clone(), directory.clone());
        tokio::spawn(async move { forecaster.what_if(&directory.load(), "alice", vec![candidate()]).await })
    };
    let open = [ask(), ask()];
    while forecaster.asked.available_permits() > 0 {
        tokio::task::yield_now().await;
    }
    let third = ask().await.expect("no panic");
    assert!(matches!(third, Err(Unanswered::Busy)), "{third:?}");
    drop(questions);
    for asked in open {
        assert!(matches!(asked.await.expect("no panic"), Err(Unanswered::Unknown)));
    }
    assert!(matches!(ask().await.expect("no panic"), Err(Unanswered::Unknown)), "there is room again");
}

#[tokio::test]
async fn what_if_answers_for_a_job_that_does_not_exist() {
    let running = job("runs", Some((Duration::from_secs(600), "1h")));
    let cluster = Cluster::new(running, Vec::new());
    let candidate = candidate();
    let result = cluster.what_if(&candidate).await.expect("a result");
    assert_eq!(result["state"], "Pending");
    assert_eq!(result["reason"], "NoRoom", "{result}");
    assert_eq!(result["nodes"], json!({"n": 1}));
    assert!((2_990..=3_000).contains(&ahead(&result["eta"]["likely"])), "{result}");
    // Nothing was submitted.
    assert_eq!(cluster.workloads().await.as_array().map(Vec::len), Some(1));
    for (path, value, problem) in [
        ("/kind", json!("Deployment"), "expected a Job"),
        ("/metadata/namespace", json!("unlabelled"), "belongs to no team"),
        ("/spec/template/spec/containers", json!("none"), "spec.template.spec.containers"),
        (
            "/spec/template/spec/containers/0/resources",
            json!({"limits": {"nvidia.com/gpu": "500m"}}),
            "spec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: 500m is not a whole number",
        ),
    ] {
        let mut wrong = candidate.clone();
        *wrong.pointer_mut(path).expect("it is there") = value;
        let error = cluster.what_if(&wrong).await.expect_err("it is wrong");
        assert!(matches!(error, Unanswered::Refused(_)) && error.to_string().contains(problem), "{error}");
    }
}

#[tokio::test]
async fn what_starts_later_outside_all_quotas_says_so() {
    let cluster = Cluster::new(job("runs", Some((Duration::from_secs(600), "1h"))), Vec::new());
    let mut candidate = candidate();
    candidate["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "8"}});
    let result = cluster.what_if(&candidate).await.expect("a result");
    assert_eq!((&result["state"], &result["pool"]), (&json!("Pending"), &json!("default")), "{result}");
    assert_eq!(result["outsideQuotas"], true, "{result}");
    candidate["spec"]["template"] = template();
    let result = cluster.what_if(&candidate).await.expect("a result");
    assert_eq!((&result["state"], &result["pool"]), (&json!("Pending"), &json!("default")), "{result}");
    assert_eq!(result.get("outsideQuotas"), None, "{result}");
}

#[tokio::test]
async fn several_workloads_are_judged_as_if_submitted_one_after_the_other() {
    let running = job("runs", Some((Duration::from_secs(600), "1h")));
    let cluster = Cluster::new(running, Vec::new());
    let [mut first, mut second] = [candidate(), candidate()];
    first["metadata"]["annotations"] = json!({"sluice.dev/time-limit": "1h"});
    second["metadata"]["name"] = "later".into();
    let rows = cluster.what_ifs(vec![first, second.clone()]).await.expect("a result");
    let rows = serde_json::to_value(rows).expect("JSON");
    assert!((2_990..=3_000).contains(&ahead(&rows[0]["eta"]["likely"])), "{rows}");
    assert!((6_590..=6_600).contains(&ahead(&rows[1]["eta"]["likely"])), "{rows}");
    assert_eq!(rows[1]["eta"]["place"]["inFront"], json!(["a/new"]), "{rows}");
    let alone = cluster.what_if(&second).await.expect("a result");
    assert!((2_990..=3_000).contains(&ahead(&alone["eta"]["likely"])), "{alone}");
    second["kind"] = "Deployment".into();
    let wrong = cluster.what_ifs(vec![candidate(), second]).await.expect_err("it is wrong");
    assert!(wrong.to_string().starts_with("workload 2 of 2: expected a Job"), "{wrong}");
}

#[tokio::test]
async fn a_change_of_waiting_work_has_a_verdict_if_it_asks_for_something_else() {
    let running = job("runs", Some((Duration::from_secs(600), "1h")));
    let cluster = Cluster::new(running, Vec::new());
    let (verdicts, kinds) = (cluster.forecaster.verdicts(), Kinds::default());
    let on = async |old: &Value, new: &Value| {
        verdicts.on(&kinds, "a", (Some(old.clone()), new.clone()), later()).await
    };
    let old = held("waits");
    assert!(matches!(on(&old, &old).await, Said::Nothing), "nothing is changed");
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"app": "x"});
    assert!(matches!(on(&old, &new).await, Said::Nothing), "it asks for the same");
    new["metadata"]["annotations"]["sluice.dev/time-limit"] = "1h".into();
    assert_eq!(row(on(&old, &new).await).head.reason, "NoRoom");
    let mut runs = old.clone();
    runs["spec"]["suspend"] = false.into();
    assert!(matches!(on(&runs, &new).await, Said::Nothing), "it does not wait");
}

/// A Job of team `a` as it would be stored.
fn held(name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": "a", "uid": "made-up", "annotations": {names::HELD: "true"}},
        "spec": {"suspend": true, "template": template()},
    })
}

/// A time that is not reached while a test runs.
fn later() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

fn row(said: Said) -> WhatIfRow {
    match said {
        Said::Row(foreseen) => foreseen.row.clone(),
        other => panic!("no verdict: {other:?}"),
    }
}

#[tokio::test]
async fn a_verdict_is_the_what_if_result_and_is_kept_while_nothing_changes() {
    let running = job("runs", Some((Duration::from_secs(600), "1h")));
    let cluster = Cluster::new(running, vec![job("waits", None)]);
    let (verdicts, kinds) = (cluster.forecaster.verdicts(), Kinds::default());
    let first = row(verdicts.on(&kinds, "a", (None, held("new")), later()).await);
    let what_if = cluster.what_if(&candidate()).await.expect("a result");
    let text = |row: &WhatIfRow| row.sentences(row.eta.foretold, &crate::view::utc);
    let what_if: WhatIfRow = serde_json::from_value(what_if).expect("a row");
    assert_eq!(text(&first)[0], text(&what_if)[0]);
    assert_eq!((&first.eta.basis, &first.eta.place), (&what_if.eta.basis, &what_if.eta.place));
    assert!(text(&first)[2].contains("Position 2 of 2"), "{first:?}");
    // The API server gives each dry-run another UID and time.
    let mut again = held("new");
    again["metadata"]["uid"] = "another".into();
    assert_eq!(row(verdicts.on(&kinds, "a", (None, again), later()).await), first);
    let other = row(verdicts.on(&kinds, "a", (None, held("other")), later()).await);
    assert_eq!(other.head.name, "other");
    assert_eq!(cluster.copies.load(Ordering::Relaxed), 2, "one for both verdicts, and one for what-if");
    let unheld = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template()}});
    assert!(matches!(verdicts.on(&kinds, "a", (None, unheld), later()).await, Said::Nothing));
}

#[tokio::test]
async fn a_verdict_is_corrected_by_how_forecasts_came_true_as_a_what_if_result_is() {
    let running = job("runs", Some((Duration::from_secs(600), "1h")));
    let cluster = Cluster::new(running, Vec::new());
    let verdicts = cluster.forecaster.verdicts();
    let plain = row(verdicts.on(&Kinds::default(), "a", (None, held("new")), later()).await);
    // Workloads that were to wait for a minute, and wait since an hour.
    let mut known = Calibration::default();
    let asked = Time(now().0 - 3_600_000);
    let start = Some(Time(asked.0 + 60_000));
    for number in 0..32 {
        let id = WorkloadId(format!("late-{number}").into());
        known.remember(&id, Eta { early: start, likely: start, late: start }, asked);
    }
    cluster.forecaster.calibration.store(Arc::new(known));
    let corrected = row(verdicts.on(&Kinds::default(), "a", (None, held("other")), later()).await);
    let mut other = candidate();
    other["metadata"]["name"] = "other".into();
    let what_if = cluster.what_if(&other).await.expect("a result");
    let what_if: WhatIfRow = serde_json::from_value(what_if).expect("a row");
    let far = |of: &WhatIfRow| of.eta.likely.expect("an expected start").as_second();
    assert!(far(&corrected) > far(&plain) + 3_600, "{plain:?} {corrected:?}");
    let off = far(&corrected).abs_diff(far(&what_if));
    assert!(off < 600, "{corrected:?} {what_if:?}");
}

/// A pod of a group of four.
fn member(name: &str) -> Value {
    let mut spec = template()["spec"].clone();
    json_patch::merge(&mut spec, &json!({"priorityClassName": "calm", "preemptionPolicy": "Never"}));
    json!({
        "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {"name": name, "namespace": "a", "labels": {names::GROUP: "ring"},
            "annotations": {names::GROUP_SIZE: "4"}},
    })
}

#[tokio::test]
async fn the_pods_of_a_group_have_one_what_if_result() {
    let cluster = Cluster::new(job("runs", Some((Duration::from_secs(600), "1h"))), Vec::new());
    let mut pods = ["ring-0", "ring-1", "ring-2", "ring-3"].map(member).to_vec();
    let whole = "at most 1 of its 4 pods";
    for of in [&pods[..], &pods[..1]] {
        let rows = cluster.what_ifs(of.to_vec()).await.expect("a result");
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert!(rows[0].head.name == "ring" && rows[0].head.message.contains(whole), "{rows:?}");
    }
    let mixed = [candidate(), pods[0].clone(), held("other"), pods[1].clone()].to_vec();
    let rows = cluster.what_ifs(mixed).await.expect("a result");
    let named: Vec<&str> = rows.iter().map(|row| &*row.head.name).collect();
    assert_eq!(named, ["new", "ring", "other"], "the group comes at the place of its first pod");
    pods.push(member("ring-4"));
    let rows = cluster.what_ifs(pods.clone()).await.expect("a result");
    assert!(rows[0].head.message.contains("of its 5 pods"), "{rows:?}");
    pods[3]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "2".into();
    let rows = cluster.what_ifs(pods).await.expect("a result");
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0].head.reason, "UnlikePods", "{rows:?}");
}

#[tokio::test]
async fn only_so_many_workloads_are_judged_together_however_many_pods_they_have() {
    let cluster = Cluster::new(job("runs", Some((Duration::from_secs(600), "1h"))), Vec::new());
    let pods: Vec<Value> = (0..40).map(|number| member(&format!("ring-{number}"))).collect();
    assert_eq!(cluster.what_ifs(pods).await.expect("a result").len(), 1);
    let jobs: Vec<Value> = (0..=MOST_TOGETHER).map(|number| held(&format!("job-{number}"))).collect();
    let error = cluster.what_ifs(jobs).await.expect_err("too many");
    assert!(error.to_string().contains("at most 20 workloads"), "{error}");
}

#[tokio::test]
async fn a_pod_of_a_group_has_the_verdict_of_the_group() {
    let cluster = Cluster::new(job("runs", Some((Duration::from_secs(600), "1h"))), Vec::new());
    let verdicts = cluster.forecaster.verdicts();
    let mut pod = member("ring-0");
    pod["spec"]["schedulingGates"] = json!([{"name": names::GATE_ADMISSION}]);
    let said = verdicts.on(&Kinds::default(), "a", (None, pod), later()).await;
    let Said::Row(foreseen) = said else { panic!("no verdict: {said:?}") };
    assert_eq!(foreseen.group, Some(("ring".into(), 4)));
    assert_eq!(foreseen.row.head.name, "ring");
    assert!(foreseen.row.head.message.contains("at most 1 of its 4 pods"), "{foreseen:?}");
}

#[tokio::test]
async fn two_verdicts_are_made_at_once_and_no_request_waits_for_its_turn() {
    // A control loop that does not answer.
    let (asker, questions) = Asker::new();
    let verdicts = Forecaster::new(asker, CancellationToken::new()).verdicts();
    let ask = |name: &str, until| {
        let (verdicts, object) = (verdicts.clone(), held(name));
        tokio::spawn(async move { verdicts.on(&Kinds::default(), "a", (None, object), until).await })
    };
    let open = [ask("one", later()), ask("two", later())];
    while verdicts.free_turns() > 0 {
        tokio::task::yield_now().await;
    }
    let third = ask("three", later()).await.expect("no panic");
    assert!(matches!(third, Said::Busy), "{third:?}");
    drop(questions);
    for asked in open {
        assert!(matches!(asked.await.expect("no panic"), Said::NotInTime));
    }
}

#[tokio::test(start_paused = true)]
async fn a_verdict_ends_with_its_time_and_all_of_them_have_a_share_of_a_processor() {
    let (asker, _questions) = Asker::new();
    let verdicts = Forecaster::new(asker, CancellationToken::new()).verdicts();
    let on = async |until| verdicts.on(&Kinds::default(), "a", (None, held("new")), until).await;
    let until = Instant::now() + Duration::from_millis(700);
    assert!(matches!(on(until).await, Said::NotInTime));
    assert_eq!(Instant::now(), until);
    verdicts.spend(Duration::from_secs(10));
    assert!(matches!(on(later()).await, Said::Busy), "the time of all verdicts is used up");
    tokio::time::advance(Duration::from_secs(20)).await;
    assert!(matches!(on(later()).await, Said::Busy), "and more than that");
    tokio::time::advance(Duration::from_secs(20)).await;
    assert!(matches!(on(Instant::now()).await, Said::NotInTime), "there is some again");
}

#[tokio::test(start_paused = true)]
async fn the_start_is_left_out_where_little_is_left_of_the_share() {
    let running = job("runs", Some((Duration::from_secs(600), "1h")));
    let cluster = Cluster::new(running, Vec::new());
    let verdicts = cluster.forecaster.verdicts();
    let on = async || row(verdicts.on(&Kinds::default(), "a", (None, held("new")), later()).await);
    verdicts.spend(Duration::from_secs(2) - Duration::from_nanos(1));
    let hurried = on().await;
    assert_eq!(hurried.head.reason, "NoRoom");
    assert_eq!(hurried.eta.likely, None);
    tokio::time::advance(Duration::from_secs(8)).await;
    let whole = on().await;
    assert_eq!(whole.head.reason, "NoRoom");
    assert!(whole.eta.likely.is_some(), "{whole:?}");
}
