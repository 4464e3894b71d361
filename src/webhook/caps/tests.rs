//! Each cap at its limit and above, for Jobs, pods and custom kinds.

use std::time::Duration;

use serde_json::{Value, json};

use crate::directory::Directory;
use crate::webhook::test_client::{Ask, ask, directory};

fn terms(many: usize) -> Value {
    let term =
        |index: usize| json!({"matchExpressions": [{"key": format!("k{index}"), "operator": "Exists"}]});
    let terms: Vec<Value> = (0..many).map(term).collect();
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

fn spec(change: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]});
    json_patch::merge(&mut spec, &change);
    spec
}

fn job(change: Value) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x", "namespace": "ns"},
        "spec": {"template": {"spec": spec(change)}},
    })
}

fn pod(change: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "ns"}, "spec": spec(change)})
}

fn gates(many: usize) -> Value {
    json!({"schedulingGates": (0..many).map(|index| json!({"name": format!("g{index}")})).collect::<Vec<_>>()})
}

fn spreads(many: usize) -> Value {
    let spread =
        |index: usize| json!({"topologyKey": format!("k{index}"), "whenUnsatisfiable": "DoNotSchedule"});
    json!({"topologySpreadConstraints": (0..many).map(spread).collect::<Vec<_>>()})
}

fn resources(many: usize) -> Value {
    let limits: serde_json::Map<String, Value> =
        (0..many).map(|index| (format!("x.y/r{index}"), "1".into())).collect();
    json!({"containers": [{"name": "m", "resources": {"limits": limits}}]})
}

#[tokio::test]
async fn a_new_job_or_pod_is_refused_above_each_cap() {
    for (at, over, flag) in [
        (
            json!({"affinity": terms(64)}),
            json!({"affinity": terms(65)}),
            "65 required node affinity terms, more than the 64 of --max-affinity-terms",
        ),
        (
            resources(32),
            resources(33),
            "33 different resources and claims, more than the 32 of --max-resource-names",
        ),
        (
            spreads(32),
            spreads(33),
            "33 required affinity and spread terms between pods, more than the 32 of a pod template",
        ),
        (gates(16), gates(17), "17 scheduling gates, more than the 16 of --max-scheduling-gates"),
        (
            json!({"terminationGracePeriodSeconds": 600}),
            json!({"terminationGracePeriodSeconds": 601}),
            "601 seconds of terminationGracePeriodSeconds, more than the 600 of --max-grace",
        ),
    ] {
        for (make, group) in [(job as fn(Value) -> Value, "batch"), (pod, "")] {
            let answer = ask(Ask { group, ..Ask::create(make(at.clone())) }).await;
            assert!(answer.allowed, "{}", answer.message);
            let answer = ask(Ask { group, ..Ask::create(make(over.clone())) }).await;
            assert!(!answer.allowed && answer.message.ends_with(flag), "{}", answer.message);
        }
    }
}

#[tokio::test]
async fn the_pods_of_a_job_are_capped() {
    for (parallelism, completions, allowed) in [
        (10_000, Value::Null, true),
        (10_001, Value::Null, false),
        (20_000, json!(5), true),
        (20_000, json!(20_000), false),
    ] {
        let mut job = job(json!({}));
        job["spec"]["parallelism"] = parallelism.into();
        job["spec"]["completions"] = completions;
        let answer = ask(Ask::create(job)).await;
        assert_eq!(answer.allowed, allowed, "{}", answer.message);
        assert!(
            allowed || answer.message.ends_with("pods, more than the 10000 of --max-pods"),
            "{}",
            answer.message
        );
    }
}

#[tokio::test]
async fn a_queue_may_have_its_own_grace_period() {
    let with = |grace: u64, cap: u64| {
        let graces = [(("vision".into(), "training".into()), Duration::from_secs(cap))].into();
        let object = job(json!({"terminationGracePeriodSeconds": grace}));
        Ask { directory: Directory { graces, ..directory() }, ..Ask::create(object) }
    };
    assert!(ask(with(3600, 3600)).await.allowed);
    let answer = ask(with(61, 60)).await;
    assert!(answer.message.ends_with("more than the 60 of maxGrace of its queue"), "{}", answer.message);
}

#[tokio::test]
async fn a_stored_object_above_a_cap_stays_editable_in_everything_else() {
    let held = |affinity: usize, note: &str| {
        let mut job = job(json!({"affinity": terms(affinity)}));
        job["spec"]["suspend"] = true.into();
        job["metadata"]["annotations"] = json!({"sluice.dev/held": "true", "note": note});
        job["metadata"]["labels"] = json!({"sluice.dev/team": "vision", "sluice.dev/queue": "training"});
        job
    };
    for (before, now, allowed) in
        [(90, 90, true), (90, 80, true), (90, 91, false), (10, 64, true), (10, 65, false)]
    {
        let answer = ask(Ask::update(held(before, "a"), held(now, "b"))).await;
        assert_eq!(answer.allowed, allowed, "{before} to {now}: {}", answer.message);
    }
}

#[tokio::test]
async fn roles_are_counted_together() {
    let role = |name: &str, many: usize| {
        let mut affinity = terms(many);
        let at = crate::api::affinity::REQUIRED_TERMS;
        for term in affinity.pointer_mut(at).and_then(Value::as_array_mut).expect("terms") {
            term["matchExpressions"][0]["key"] =
                format!("{name}{}", term["matchExpressions"][0]["key"]).into();
        }
        json!({"name": name, "template": {"spec": {"template": {"spec": spec(json!({"affinity": affinity}))}}}})
    };
    let set = |many: usize| {
        json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "x", "namespace": "ns"},
            "spec": {"replicatedJobs": [role("a", many), role("b", many)]},
        })
    };
    let asked = |many| Ask { group: "jobset.x-k8s.io", ..Ask::create(set(many)) };
    let answer = ask(asked(8)).await;
    assert!(answer.allowed, "{}", answer.message);
    let answer = ask(asked(9)).await;
    assert!(answer.message.contains("it has 81 required node affinity terms"), "{}", answer.message);
    let answer = ask(asked(3000)).await;
    assert!(answer.message.contains("it has 9000000 required node affinity terms"), "{}", answer.message);
}

/// Changes to the metadata of an object.
fn marked(mut object: Value, metadata: Value) -> Value {
    json_patch::merge(&mut object["metadata"], &metadata);
    object
}

fn labels(many: usize) -> Value {
    json!({"labels": (0..many).map(|index| (format!("l{index}"), "".into())).collect::<serde_json::Map<_, _>>()})
}

fn note(bytes: usize) -> Value {
    json!({"annotations": {"n": "x".repeat(bytes)}})
}

#[tokio::test]
async fn metadata_leaves_room_for_what_sluice_adds() {
    let affinity = 60 << 10;
    let large = json!({"containers": [{"name": "m", "args": ["x".repeat(1 << 20)]}]});
    let preferred = json!({"affinity": {"nodeAffinity": {"x": "x".repeat(affinity)}}});
    for (make, group) in [(job as fn(Value) -> Value, "batch"), (pod, "")] {
        for (object, cap) in [
            (marked(make(json!({})), note(196_000)), None),
            (marked(make(json!({})), labels(200)), None),
            (marked(make(json!({})), note(196_609)), Some("196608 of one object")),
            (marked(make(json!({})), labels(257)), Some("labels, more than the 256 of one object")),
            (make(large.clone()), Some("bytes of spec and metadata, more than the 1048576 of one object")),
        ] {
            let answer = ask(Ask { group, ..Ask::create(object) }).await;
            assert_eq!(answer.allowed, cap.is_none(), "{}", answer.message);
            assert!(answer.message.ends_with(cap.unwrap_or_default()), "{}", answer.message);
        }
    }
    // The admission of a Job keeps its affinity in an annotation.
    for (bytes, allowed) in [(130_000, true), (140_000, false)] {
        let answer = ask(Ask::create(marked(job(preferred.clone()), note(bytes)))).await;
        assert_eq!(answer.allowed, allowed, "{}", answer.message);
    }
}

#[tokio::test]
async fn metadata_above_a_cap_may_become_less() {
    let running = |metadata: Value| {
        let mut job = marked(job(json!({})), json!({"labels": {"sluice.dev/team": "vision"}}));
        job["spec"]["suspend"] = false.into();
        let record = json!({"annotations": {"sluice.dev/admission": "x".repeat(100_000)}});
        marked(marked(job, record), metadata)
    };
    let mut many = labels(300);
    many["annotations"] = json!({"a": "b"});
    for (before, now, allowed) in [
        // The record is no part of it.
        (note(10), note(190_000), true),
        (note(10), note(197_000), false),
        (note(200_000), note(199_000), true),
        (note(200_000), note(201_000), false),
        (note(200_000), marked(json!({"metadata": note(200_000)}), labels(5))["metadata"].clone(), true),
        (labels(10), labels(300), false),
        (labels(300), many, true),
    ] {
        let answer = ask(Ask { path: "/validate", ..Ask::update(running(before), running(now)) }).await;
        assert_eq!(answer.allowed, allowed, "{}", answer.message);
    }
}
