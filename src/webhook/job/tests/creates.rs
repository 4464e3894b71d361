//! Creates.

use serde_json::{Value, json};

use crate::api::caps::Caps;
use crate::directory::Directory;
use crate::webhook::job::tests::{job, own_hold, queued, record, running};
use crate::webhook::test_client::{ALICE, Ask, ask, directory, with};

#[tokio::test]
async fn a_new_job_is_held_and_labelled_once() {
    let first = ask(Ask::create(job(json!({})))).await;
    assert_eq!(first.object, queued(json!({})));
    for path in ["/mutate", "/validate"] {
        let again = ask(Ask { path, ..Ask::create(first.object.clone()) }).await;
        assert!(again.allowed && !again.patched, "{path}: {again:?}");
    }
}

#[tokio::test]
async fn the_submitter_is_the_user_of_the_request() {
    let claim = json!({"metadata": {"annotations": {"sluice.dev/user": "bob"}}});
    let answer = ask(Ask::create(job(claim))).await;
    assert!(answer.allowed, "{}", answer.message);
    assert_eq!(answer.object["metadata"]["annotations"]["sluice.dev/user"], ALICE);
    let claim = with(running(json!({})), json!({"metadata": {"annotations": {"sluice.dev/user": "bob"}}}));
    let answer = ask(Ask::update(running(json!({})), claim)).await;
    assert_eq!(
        answer.message,
        "Job ns/train: annotation sluice.dev/user is written by Sluice alone; leave it as it is"
    );
}

#[tokio::test]
async fn a_fraction_is_of_one_gpu_and_stays_while_the_job_runs() {
    let asks = |gpus: u32, fraction: &str| {
        job(json!({
            "metadata": {"annotations": {"sluice.dev/gpu-fraction": fraction}},
            "spec": {"template": {"spec": {"containers": [
                {"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus}}},
            ]}}},
        }))
    };
    assert_eq!(
        ask(Ask::create(asks(2, "0.5"))).await.message,
        "Job ns/train: annotation sluice.dev/gpu-fraction: a pod that requests nvidia.com/gpu 2 cannot have a fraction of one"
    );
    let whole = ask(Ask::create(asks(1, "0.5"))).await;
    assert_eq!((whole.allowed, whole.warnings), (true, 1), "{}", whole.message);
    let fraction =
        |fraction: &str| json!({"metadata": {"annotations": {"sluice.dev/gpu-fraction": fraction}}});
    for (before, message) in [
        (queued(json!({})), ""),
        (
            running(json!({})),
            "Job ns/train: annotation sluice.dev/gpu-fraction can be changed only while the Job waits",
        ),
    ] {
        let before = with(before, fraction("0.5"));
        assert_eq!(ask(Ask::update(before.clone(), with(before, fraction("0.1")))).await.message, message);
    }
}

#[tokio::test]
async fn a_job_with_an_own_affinity_or_elastic_parallelism_is_labelled() {
    let own = json!({"spec": {"template": {"spec": {"affinity": {"nodeAffinity": {}}}}}});
    let elastic = json!({"metadata": {"annotations": {"sluice.dev/min-parallelism": "2"}}});
    for (change, label) in [(own, json!("true")), (elastic, json!("true")), (json!({}), Value::Null)] {
        let answer = ask(Ask::create(job(change))).await;
        assert_eq!(answer.object["metadata"]["labels"]["sluice.dev/own-affinity"], label);
    }
}

#[tokio::test]
async fn a_job_held_by_the_policy_is_only_labelled() {
    let held = json!({"metadata": {"annotations": {"sluice.dev/held": "true"}}, "spec": {"suspend": true}});
    assert_eq!(ask(Ask::create(job(held))).await.object, queued(json!({})));
}

#[tokio::test]
async fn a_job_its_user_suspends_is_not_queued() {
    let answer = ask(Ask::create(job(json!({"spec": {"suspend": true}})))).await;
    assert_eq!(answer.object, own_hold(json!({})));
}

#[tokio::test]
async fn the_queue_is_the_jobs_own_else_the_namespaces_else_the_first() {
    for (change, queue, class) in [
        (json!({}), "training", Value::Null),
        (json!({"metadata": {"namespace": "low"}}), "serving", json!("urgent")),
        (json!({"metadata": {"labels": {"sluice.dev/queue": "serving"}}}), "serving", json!("urgent")),
        (
            json!({"metadata": {"namespace": "low"}, "spec": {"template": {"spec": {"priorityClassName": "mine"}}}}),
            "serving",
            json!("mine"),
        ),
        (
            json!({"metadata": {"namespace": "low", "labels": {"sluice.dev/queue": "training"}}}),
            "training",
            Value::Null,
        ),
    ] {
        let object = ask(Ask::create(job(change.clone()))).await.object;
        assert_eq!(object["metadata"]["labels"]["sluice.dev/queue"], queue, "{change}");
        assert_eq!(object["spec"]["template"]["metadata"]["labels"]["sluice.dev/queue"], queue, "{change}");
        assert_eq!(object["spec"]["template"]["spec"]["priorityClassName"], class, "{change}");
    }
}

#[tokio::test]
async fn a_wrong_job_is_refused_with_one_sentence() {
    let note = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    let label = |key: &str, value: &str| json!({"metadata": {"labels": {key: value}}});
    for (change, message) in [
        (
            json!({"metadata": {"namespace": "orphan"}}),
            "Job orphan/train: team \"ghost\" (label sluice.dev/team of namespace \"orphan\") does not exist",
        ),
        (
            json!({"metadata": {"name": null, "generateName": "train-", "namespace": "orphan"}}),
            "Job orphan/train-*: team \"ghost\" (label sluice.dev/team of namespace \"orphan\") does not exist",
        ),
        (
            label("sluice.dev/queue", "nope"),
            "Job ns/train: team \"vision\" has no queue \"nope\" (label sluice.dev/queue); it has training, serving",
        ),
        (
            label("sluice.dev/team", "other"),
            "Job ns/train: label sluice.dev/team says \"other\", but namespace \"ns\" belongs to team \"vision\"",
        ),
        (
            note("sluice.dev/admission", &record(4)),
            "Job ns/train: annotation sluice.dev/admission is written by Sluice alone; leave it out",
        ),
        (
            with(note("sluice.dev/held", "false"), json!({"spec": {"suspend": true}})),
            "Job ns/train: annotation sluice.dev/held is written by Sluice alone; leave it out",
        ),
        (
            note("sluice.dev/time-limit", "soon"),
            "Job ns/train: annotation sluice.dev/time-limit: \"soon\" is not a duration such as 90s, 10m or 24h",
        ),
        (
            note("sluice.dev/time-limit", "0s"),
            "Job ns/train: annotation sluice.dev/time-limit: \"0s\" must be more than 0s",
        ),
        (
            note("sluice.dev/last-checkpoint", "yesterday"),
            "Job ns/train: annotation sluice.dev/last-checkpoint: \"yesterday\" is not an RFC 3339 time such as 2026-01-31T12:00:00Z",
        ),
        (
            note("sluice.dev/min-parallelism", "5"),
            "Job ns/train: annotation sluice.dev/min-parallelism: 5 is more than spec.parallelism 4",
        ),
        (
            note("sluice.dev/min-parallelism", "0"),
            "Job ns/train: annotation sluice.dev/min-parallelism: \"0\" is not a whole number above 0",
        ),
        (
            note("sluice.dev/pool", "a100,b200"),
            "Job ns/train: annotation sluice.dev/pool: NodePool \"b200\" does not exist",
        ),
        (
            note("sluice.dev/gpu-fraction", "1"),
            "Job ns/train: annotation sluice.dev/gpu-fraction: \"1\" is not a number above 0 and below 1",
        ),
        (
            note("sluice.dev/topology-required", "not a key"),
            "Job ns/train: annotation sluice.dev/topology-required: \"not a key\" is not the key of a node label",
        ),
    ] {
        let answer = ask(Ask::create(job(change))).await;
        assert!(!answer.allowed, "{message}");
        assert_eq!(answer.message, message);
    }
}

#[tokio::test]
async fn well_formed_requests_pass() {
    let requests = json!({
        "sluice.dev/pool": "a100, default",
        "sluice.dev/time-limit": "1h30m",
        "sluice.dev/min-parallelism": "2",
        "sluice.dev/topology-required": "topology.kubernetes.io/zone",
        "sluice.dev/topology-preferred": "rack",
        "sluice.dev/checkpoint-interval": "10m",
        "sluice.dev/last-checkpoint": "2026-01-31T12:00:00Z",
        "sluice.dev/gpu-fraction": "0.25,0.5",
    });
    let caps = Caps { assumed_fractions: true, ..Caps::default() };
    let directory = Directory { caps, ..directory() };
    let answer =
        ask(Ask { directory, ..Ask::create(job(json!({"metadata": {"annotations": requests}}))) }).await;
    assert!(answer.allowed, "{}", answer.message);
}

#[tokio::test]
async fn before_the_lists_are_complete_every_job_is_held_and_none_refused() {
    let namespaces = directory().namespaces;
    for directory in [Directory::default(), Directory { namespaces, ..Directory::default() }] {
        let change = json!({"metadata": {"labels": {"sluice.dev/queue": "new"}, "annotations": {"sluice.dev/pool": "new"}}});
        let answer = ask(Ask { directory, ..Ask::create(job(change)) }).await;
        assert!(answer.allowed, "{}", answer.message);
        assert_eq!(answer.object["spec"]["suspend"], true);
        assert_eq!(answer.object["metadata"]["annotations"]["sluice.dev/held"], "true");
    }
}
