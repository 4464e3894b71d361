//! The admission of Jobs: at their create, at updates, with PodGroups, and with a larger parallelism while they run.

use serde_json::{Value, json};

use crate::webhook::test_client::{ALICE, with};

mod creates;
mod groups;
mod updates;
mod wanted;

fn job(change: Value) -> Value {
    let plain = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "ns"},
        "spec": {"parallelism": 4, "suspend": false, "template": {"spec": {"containers": [{"name": "main"}]}}},
    });
    with(plain, change)
}

fn labelled(change: Value) -> Value {
    let labels = json!({"labels": {"sluice.dev/team": "vision", "sluice.dev/queue": "training"}});
    with(job(json!({"metadata": labels, "spec": {"template": {"metadata": labels}}})), change)
}

fn queued(change: Value) -> Value {
    let marks = json!({"sluice.dev/held": "true", "sluice.dev/user": ALICE});
    with(labelled(json!({"metadata": {"annotations": marks}, "spec": {"suspend": true}})), change)
}

fn own_hold(change: Value) -> Value {
    let marks = json!({"sluice.dev/user": ALICE});
    with(labelled(json!({"metadata": {"annotations": marks}, "spec": {"suspend": true}})), change)
}

/// A record as Sluice writes it, for `pods` pods.
fn record(pods: u32) -> String {
    json!({"pool": "default", "nodes": {"n0": pods}, "pods": pods, "borrowed": false, "at": "2026-01-31T12:00:00Z"})
        .to_string()
}

fn running(change: Value) -> Value {
    let marks =
        json!({"sluice.dev/held": "true", "sluice.dev/user": ALICE, "sluice.dev/admission": record(4)});
    with(labelled(json!({"metadata": {"annotations": marks}})), change)
}
