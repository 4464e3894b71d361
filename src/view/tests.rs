use serde_json::json;

use super::*;
use crate::engine::types::amount::{Amount, ResourceList};

fn node_view(resource: &str, all: i64, free: i64) -> NodeView {
    let list = |count| ResourceList::from([(resource.into(), Amount::units(count))]);
    NodeView {
        name: "n1".into(),
        pool: "default".into(),
        schedulable: true,
        not_ready: false,
        allocatable: list(all),
        free: list(free),
        workloads: Vec::new(),
        shared: Vec::new(),
    }
}

#[test]
fn a_node_counts_the_accelerators_of_any_vendor() {
    let engine = Engine::new();
    let row = |accelerators| {
        let context = NodeContext::new(&engine, PoolAccelerators::new(accelerators, []), Time(0));
        NodeRow::new(&node_view("google.com/tpu", 8, 3), &context)
    };
    let counted = row(Accelerators::default().with_quotas(["google.com/tpu"]));
    assert_eq!((counted.gpus, counted.gpus_free), (8, 3));
    let unknown = row(Accelerators::default());
    assert_eq!((unknown.gpus, unknown.gpus_free), (0, 0), "in no quota and not configured");
}

#[test]
fn a_node_with_parts_of_gpus_says_how_much_of_them_is_free() {
    let engine = Engine::new();
    let (pool, slice) = ("default".into(), "nvidia.com/mig-1g.10gb");
    let shares = ResourceList::from([(slice.into(), Amount::milli(140))]);
    let pools = PoolAccelerators::new(Accelerators::default(), [(&pool, &shares)]);
    let context = NodeContext::new(&engine, pools, Time(0));
    let seen = |view: &NodeView| {
        let row = NodeRow::new(view, &context);
        let parts = row.gpu_parts.map(|parts| (parts.all.to_string(), parts.free.to_string()));
        (row.gpus, row.gpus_free, parts)
    };
    let parts = |all: &str, free: &str| Some((all.to_owned(), free.to_owned()));
    assert_eq!(seen(&node_view(slice, 7, 7)), (1, 1, parts("0.98", "0.98")));
    assert_eq!(seen(&node_view(slice, 14, 13)), (2, 1, parts("1.96", "1.82")));
    assert_eq!(seen(&node_view("nvidia.com/gpu", 4, 3)), (4, 3, None), "whole GPUs");
    let mut half = node_view("nvidia.com/gpu", 4, 4);
    half.free = ResourceList::from([("nvidia.com/gpu".into(), Amount::milli(3_500))]);
    assert_eq!(seen(&half), (4, 3, parts("4", "3.5")));
}

#[test]
fn amounts_of_devices_are_plain_numbers() {
    let list: ResourceList = [
        ("nvidia.com/gpu", "99999999999999"),
        ("google.com/tpu", "1048576"),
        ("memory", "64Gi"),
        ("cpu", "1048576"),
    ]
    .map(|(resource, amount)| (resource.into(), Amount::parse(amount).expect("an amount")))
    .into();
    let written: Vec<(String, String)> = amounts(&list).into_iter().collect();
    let expected = [
        ("cpu", "1048576"),
        ("google.com/tpu", "1048576"),
        ("memory", "64Gi"),
        ("nvidia.com/gpu", "99999999999999"),
    ];
    assert_eq!(written, expected.map(|(resource, amount)| (resource.to_owned(), amount.to_owned())));
}

#[test]
fn rows_of_workloads_are_flat_json() {
    let head = json!({
        "namespace": "a", "name": "x", "team": "a", "queue": "default", "state": "Pending",
        "reason": "NoRoom", "message": "needs 2 GPUs",
    });
    let mut row = json!({
        "kind": "Job", "priority": 0, "queuePriority": 0, "preemptible": true, "gpus": 2, "pods": 1, "requests": {}, "nodes": {}, "borrowed": false,
        "submitted": "2026-11-21T10:00:00Z",
    });
    json_patch::merge(&mut row, &head);
    let read: WorkloadRow = serde_json::from_value(row.clone()).expect("a row");
    assert_eq!(serde_json::to_value(&read).expect("JSON"), row);
    let mut row = json!({
        "eta": {"foretold": "2026-11-21T10:00:00Z", "basis": "NothingEnds", "message": "No estimate."},
        "nodes": {}, "borrowed": false, "displaced": [], "victims": [],
    });
    json_patch::merge(&mut row, &head);
    let read: WhatIfRow = serde_json::from_value(row.clone()).expect("a row");
    assert_eq!(serde_json::to_value(&read).expect("JSON"), row);
}
