//! A larger parallelism of a Job that runs.

use serde_json::{Value, json};

use crate::webhook::job::tests::{record, running};
use crate::webhook::test_client::{ALICE, Answer, Ask, ask, with};

/// An elastic Job that runs four pods, with this change.
fn elastic(change: Value) -> Value {
    let labels = json!({"sluice.dev/team": "vision", "sluice.dev/queue": "training"});
    let record = json!({"pool": "default", "nodes": {"n0": 4}, "pods": 4, "borrowed": false, "at": "2026-01-31T12:00:00Z"});
    let marks = json!({
        "sluice.dev/user": ALICE, "sluice.dev/admission": record.to_string(), "sluice.dev/min-parallelism": "2",
    });
    let running = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "train", "namespace": "ns", "labels": labels, "annotations": marks},
        "spec": {"parallelism": 4, "suspend": false, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "main"}]},
        }},
    });
    with(running, change)
}

fn wants(pods: &str) -> Value {
    json!({"metadata": {"annotations": {"sluice.dev/wanted-parallelism": pods}}})
}

async fn edited(before: &Value, change: Value) -> Answer {
    let answer = ask(Ask::update(before.clone(), with(before.clone(), change))).await;
    assert!(answer.allowed, "{}", answer.message);
    let judged = ask(Ask { path: "/validate", ..Ask::update(before.clone(), answer.object.clone()) }).await;
    assert!(judged.allowed, "{}", judged.message);
    answer
}

#[tokio::test]
async fn a_larger_parallelism_of_an_elastic_job_is_kept_as_what_its_user_wants() {
    let answer = edited(&elastic(json!({})), json!({"spec": {"parallelism": 8}})).await;
    assert_eq!((&answer.object, answer.warnings), (&elastic(wants("8")), 1));
    let answer = edited(&elastic(wants("8")), json!({"spec": {"parallelism": 6}})).await;
    assert_eq!((&answer.object, answer.warnings), (&elastic(wants("6")), 1), "the last word counts");
}

#[tokio::test]
async fn a_smaller_parallelism_takes_that_back() {
    let fewer = json!({"spec": {"parallelism": 3}});
    let answer = edited(&elastic(wants("8")), fewer.clone()).await;
    assert_eq!(answer.object, elastic(fewer));
    let later = json!({"spec": {"parallelism": 6, "suspend": true}});
    let answer = edited(&elastic(wants("8")), later.clone()).await;
    assert_eq!(answer.object, elastic(later), "it queues for what its spec says");
}

#[tokio::test]
async fn a_larger_parallelism_after_a_smaller_one_brings_the_granted_pods_back() {
    let fewer = elastic(json!({"spec": {"parallelism": 3}}));
    let answer = edited(&fewer, json!({"spec": {"parallelism": 6}})).await;
    assert_eq!((&answer.object, answer.warnings), (&elastic(wants("6")), 1));
    let answer = edited(&fewer, json!({"spec": {"parallelism": 4}})).await;
    assert_eq!((&answer.object, answer.warnings), (&elastic(json!({})), 0), "as many as granted");
}

#[tokio::test]
async fn a_manifest_that_is_applied_again_changes_nothing() {
    let manifest = json!({"spec": {"parallelism": 8}}).to_string();
    let applied =
        json!({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": manifest}}});
    let before = elastic(with(applied, wants("8")));
    let answer = edited(&before, json!({"spec": {"parallelism": 8}})).await;
    assert_eq!((&answer.object, answer.warnings), (&before, 1));
}

#[tokio::test]
async fn no_larger_parallelism_is_kept_for_a_job_that_cannot_grow() {
    let fixed = json!({"metadata": {"annotations": {"sluice.dev/min-parallelism": null}}});
    let larger = json!({"spec": {"parallelism": 8}});
    let grouped = json!({"spec": {"template": {"spec": {"schedulingGroup": {"podGroupName": "g"}}}}});
    let with_completions = json!({"spec": {"parallelism": 8, "completions": 8}});
    for (before, change) in [
        (elastic(fixed), larger.clone()),
        (elastic(grouped), larger),
        (elastic(json!({"spec": {"completions": 4}})), with_completions),
    ] {
        let answer = ask(Ask::update(before.clone(), with(before.clone(), change))).await;
        assert!(!answer.allowed, "{before}");
    }
}

#[tokio::test]
async fn what_is_wanted_is_a_number_and_within_the_cap() {
    let before = elastic(json!({}));
    for (change, message) in [
        (json!({"spec": {"parallelism": 10_001}}), "10001"),
        (wants("many"), "\"many\" is not a whole number above 0"),
        (wants("10001"), "10001"),
    ] {
        let answer = ask(Ask::update(before.clone(), with(before.clone(), change))).await;
        assert!(!answer.allowed && answer.message.contains(message), "{answer:?}");
    }
    let answer = ask(Ask::update(elastic(wants("8000")), elastic(wants("9999999")))).await;
    assert!(!answer.allowed, "{answer:?}");
}

#[tokio::test]
async fn one_granted_pod_is_one_pod() {
    let marks = json!({"sluice.dev/admission": record(1)});
    let small = running(json!({"metadata": {"annotations": marks}, "spec": {"parallelism": 1}}));
    let larger = with(small.clone(), json!({"spec": {"parallelism": 3}}));
    let message = ask(Ask::update(small, larger)).await.message;
    assert!(message.contains("is more than the 1 pod it was granted"), "{message}");
}
