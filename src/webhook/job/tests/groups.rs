//! PodGroups.

use serde_json::{Value, json};

use crate::directory::Directory;
use crate::webhook::job::tests::{job, queued};
use crate::webhook::test_client::{Ask, ask, directory, with};

/// The PodGroup of a new Job on an API server with PodGroups.
async fn group_of(change: Value) -> Option<String> {
    let there = Directory { pod_groups: true, ..directory() };
    let answer = ask(Ask { directory: there, ..Ask::create(job(change)) }).await;
    assert!(answer.allowed, "{}", answer.message);
    Some(answer.object["spec"]["template"]["spec"]["schedulingGroup"]["podGroupName"].as_str()?.to_owned())
}

#[tokio::test]
async fn a_gang_names_a_pod_group_if_the_api_server_has_them() {
    assert_eq!(
        ask(Ask::create(job(json!({})))).await.object,
        queued(json!({})),
        "an API server without PodGroups"
    );
    for (what, change, expected) in [
        ("a gang", json!({}), Some("sluice-train-0815")),
        ("a gang with as many completions", json!({"spec": {"completions": 4}}), Some("sluice-train-0815")),
        (
            "a gang with a generated name",
            json!({"metadata": {"name": null, "generateName": "night-"}}),
            Some("sluice-night-0815"),
        ),
        ("a gang on hold by its user", json!({"spec": {"suspend": true}}), Some("sluice-train-0815")),
        ("a single pod", json!({"spec": {"parallelism": 1}}), None),
        ("a single completion", json!({"spec": {"completions": 1}}), None),
        ("more completions than parallelism", json!({"spec": {"completions": 5}}), None),
        ("a backoff limit per index", json!({"spec": {"backoffLimitPerIndex": 1}}), None),
        ("an elastic Job", json!({"metadata": {"annotations": {"sluice.dev/min-parallelism": "2"}}}), None),
        (
            "a PodGroup of the user",
            json!({"spec": {"template": {"spec": {"schedulingGroup": {"podGroupName": "mine"}}}}}),
            Some("mine"),
        ),
    ] {
        assert_eq!(group_of(change).await.as_deref(), expected, "{what}");
    }
}

#[tokio::test]
async fn a_job_keeps_its_pod_group_and_its_parallelism_with_it() {
    let group =
        json!({"spec": {"template": {"spec": {"schedulingGroup": {"podGroupName": "sluice-train-1"}}}}});
    let grouped = || with(queued(json!({})), group.clone());
    let replaced = ask(Ask::update(grouped(), queued(json!({})))).await;
    assert!(replaced.allowed, "{}", replaced.message);
    assert_eq!(replaced.object, grouped(), "a manifest without the PodGroup");
    let elastic = with(grouped(), json!({"metadata": {"annotations": {"sluice.dev/min-parallelism": "2"}}}));
    assert_eq!(
        ask(Ask::update(grouped(), elastic)).await.message,
        "Job ns/train: annotation sluice.dev/min-parallelism: the Job names a PodGroup, so its parallelism cannot be \
         changed"
    );
}
