//! The class of pods, and of templates, as the API server would store them.

use serde_json::{Value, json};

use crate::api::priority::{Class, twin};
use crate::directory::Directory;
use crate::webhook::test_client::{ALICE, Ask, ask, directory, with};

const JOBS: &str = "system:serviceaccount:kube-system:job-controller";

fn class(value: i32, preempts: bool) -> Class {
    Class { uid: "1".into(), value, global_default: false, preempts, stands_for: None }
}

/// Classes `urgent` (of the queue of namespace `low`), `high` and `calm`, and the twins that Sluice has made.
fn classes() -> Directory {
    let twins = [("sluice", "", 0), ("sluice-high", "high", 900), ("sluice-urgent", "urgent", 700)];
    let twins = twins.map(|(name, source, value)| (name.into(), Class::of(&twin(name, source, value))));
    let own = [
        ("high".into(), class(900, true)),
        ("urgent".into(), class(700, true)),
        ("calm".into(), class(500, false)),
        ("new".into(), class(5, true)),
        ("system-node-critical".into(), class(2_000_001_000, true)),
    ];
    Directory { classes: Some(twins.into_iter().chain(own).collect()), ..directory() }
}

/// The same, with `calm` or `high` as the default of the cluster.
fn with_default(name: &str) -> Directory {
    let mut directory = classes();
    for (of, class) in directory.classes.iter_mut().flatten() {
        class.global_default = **of == *name;
    }
    directory
}

fn job(class: Option<&str>) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": "ns"},
        "spec": {"template": {"spec": {"containers": [{"name": "main"}], "priorityClassName": class}}},
    })
}

fn class_of(job: &Value) -> &Value {
    &job["spec"]["template"]["spec"]["priorityClassName"]
}

/// A pod as the Priority plugin of the API server leaves it.
fn pod(class: Option<&str>, value: i32, policy: &str, change: Value) -> Value {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "shell", "namespace": "ns"},
        "spec": {"containers": [{"name": "main"}], "priority": value, "preemptionPolicy": policy},
    });
    let named = class.map_or(json!({}), |class| json!({"spec": {"priorityClassName": class}}));
    with(with(pod, named), change)
}

#[tokio::test]
async fn templates_of_jobs_get_a_class_that_does_not_preempt() {
    for (directory, namespace, named, stored) in [
        (classes(), "ns", Some("high"), json!("sluice-high")),
        (classes(), "ns", Some("calm"), json!("calm")),
        (classes(), "ns", Some("sluice-high"), json!("sluice-high")),
        (classes(), "ns", Some("new"), json!("sluice-new")),
        (classes(), "ns", Some("unknown"), json!("unknown")),
        (classes(), "ns", None, json!("sluice")),
        (classes(), "low", None, json!("sluice-urgent")),
        (classes(), "low", Some("calm"), json!("calm")),
        (with_default("calm"), "ns", None, Value::Null),
        (with_default("high"), "ns", None, json!("sluice-high")),
        (directory(), "ns", Some("high"), json!("high")),
        (directory(), "ns", None, Value::Null),
    ] {
        let submitted = with(job(named), json!({"metadata": {"namespace": namespace}}));
        let answer = ask(Ask { directory: directory.clone(), ..Ask::create(submitted) }).await;
        assert_eq!(class_of(&answer.object), &stored, "{namespace} {named:?}: {}", answer.message);
        let again = ask(Ask { directory, ..Ask::create(answer.object) }).await;
        assert!(again.allowed && !again.patched, "{namespace} {named:?}: not twice");
    }
}

#[tokio::test]
async fn a_class_that_does_not_exist_is_warned_of() {
    for (directory, named, warnings) in [
        (classes(), Some("unknown"), 1),
        (classes(), Some("high"), 0),
        (classes(), Some("new"), 0),
        (classes(), Some("sluice-new"), 0),
        (classes(), None, 0),
        (directory(), Some("unknown"), 0),
    ] {
        let answer = ask(Ask { directory, ..Ask::create(job(named)) }).await;
        assert_eq!((answer.allowed, answer.warnings), (true, warnings), "{named:?}: {}", answer.message);
    }
}

#[tokio::test]
async fn a_template_keeps_its_class_when_the_manifest_is_applied_again() {
    let stored = ask(Ask { directory: classes(), ..Ask::create(job(Some("high"))) }).await.object;
    for (submitted, kept) in
        [(json!("high"), "sluice-high"), (Value::Null, "sluice-high"), (json!("calm"), "calm")]
    {
        let mut applied = stored.clone();
        applied["spec"]["template"]["spec"]["priorityClassName"] = submitted.clone();
        let answer = ask(Ask { directory: classes(), ..Ask::update(stored.clone(), applied) }).await;
        assert!(answer.allowed, "{}", answer.message);
        assert_eq!(class_of(&answer.object), kept, "{submitted}");
    }
    // A Job from before Sluice replaced classes.
    let old = ask(Ask::create(job(Some("high")))).await.object;
    let answer = ask(Ask { directory: classes(), ..Ask::update(old.clone(), old) }).await;
    assert!(answer.allowed && !answer.patched);
}

#[tokio::test]
async fn new_pods_get_a_class_that_does_not_preempt_once() {
    let of_job = json!({"metadata": {"ownerReferences": [{"kind": "Job", "name": "x", "uid": "1", "controller": true}]}});
    let preempts = "PreemptLowerPriority";
    for (user, submitted, stored, value) in [
        (ALICE, pod(Some("high"), 900, preempts, json!({})), "sluice-high", 900),
        (ALICE, pod(None, 0, preempts, json!({})), "sluice", 0),
        (ALICE, pod(None, 0, preempts, json!({"metadata": {"namespace": "low"}})), "sluice-urgent", 700),
        (
            ALICE,
            pod(Some("sluice"), 0, "Never", json!({"metadata": {"namespace": "low"}})),
            "sluice-urgent",
            700,
        ),
        (ALICE, pod(Some("sluice"), 0, "Never", json!({})), "sluice", 0),
        (ALICE, pod(Some("calm"), 500, "Never", json!({})), "calm", 500),
        (JOBS, pod(Some("high"), 900, preempts, of_job.clone()), "sluice-high", 900),
        (JOBS, pod(None, 0, preempts, of_job.clone()), "sluice", 0),
        (JOBS, pod(Some("sluice-high"), 900, "Never", of_job), "sluice-high", 900),
    ] {
        let create = |object| Ask { user, directory: classes(), ..Ask::create(object) };
        let answer = ask(create(submitted.clone())).await;
        assert!(answer.allowed, "{}", answer.message);
        let spec = &answer.object["spec"];
        assert_eq!(spec["priorityClassName"], stored, "{submitted}");
        let replaced = submitted["spec"]["priorityClassName"] != stored;
        assert_eq!(
            spec.get("priority").is_none() && spec.get("preemptionPolicy").is_none(),
            replaced,
            "{submitted}"
        );
        // The API server fills both in for the new class, and asks again.
        let filled = with(answer.object, json!({"spec": {"priority": value, "preemptionPolicy": "Never"}}));
        let again = ask(create(filled)).await;
        assert!(again.allowed && !again.patched, "{submitted}");
    }
}

#[tokio::test]
async fn a_pod_with_a_node_keeps_its_class() {
    let bound = pod(Some("high"), 900, "PreemptLowerPriority", json!({"spec": {"nodeName": "n0"}}));
    let answer = ask(Ask { directory: classes(), ..Ask::create(bound) }).await;
    assert!(answer.allowed && !answer.patched);
}

#[tokio::test]
async fn a_pod_is_refused_while_its_twin_is_missing_or_of_another_value() {
    let mut stale = classes();
    if let Some(high) = stale.classes.as_mut().and_then(|all| all.get_mut("high")) {
        high.value = 901;
    }
    for (class, directory, message) in [
        (
            Some("new"),
            classes(),
            "Pod ns/shell: a pod of PriorityClass \"new\" lets kube-scheduler preempt, and Sluice has not made \
             PriorityClass \"sluice-new\" for it yet; try again in a moment",
        ),
        (
            Some("high"),
            stale,
            "Pod ns/shell: a pod of PriorityClass \"high\" lets kube-scheduler preempt, and Sluice has not made \
             PriorityClass \"sluice-high\" for it yet; try again in a moment",
        ),
        (
            Some("unseen"),
            classes(),
            "Pod ns/shell: PriorityClass \"unseen\" is not known yet; try again in a moment",
        ),
        (
            None,
            Directory { classes: Some([].into()), ..classes() },
            "Pod ns/shell: a pod without a PriorityClass lets kube-scheduler preempt, and Sluice has not made \
             PriorityClass \"sluice\" for it yet; try again in a moment",
        ),
    ] {
        let submitted = pod(class, 5, "PreemptLowerPriority", json!({}));
        let answer = ask(Ask { directory, ..Ask::create(submitted) }).await;
        assert_eq!((answer.allowed, &*answer.message), (false, message));
    }
}

#[tokio::test]
async fn a_users_pod_keeps_the_twin_when_its_manifest_is_applied_again() {
    let submitted = pod(Some("high"), 900, "PreemptLowerPriority", json!({}));
    let stored = ask(Ask { directory: classes(), ..Ask::create(submitted) }).await.object;
    assert_eq!(stored["metadata"]["labels"]["sluice.dev/twin"], "true", "updates of this pod are reviewed");
    let reset = with(stored.clone(), json!({"spec": {"priorityClassName": "high"}}));
    let answer = ask(Ask { directory: classes(), ..Ask::update(stored.clone(), reset) }).await;
    assert_eq!(answer.object, stored);
    let other = with(stored.clone(), json!({"spec": {"priorityClassName": "calm"}}));
    let answer = ask(Ask { directory: classes(), ..Ask::update(stored, other) }).await;
    assert!(answer.allowed && !answer.patched, "the API server refuses it");
}

#[tokio::test]
async fn every_template_of_a_custom_kind_gets_a_class_and_keeps_it() {
    let template = |class: Option<&str>| json!({"spec": {"template": {"spec": {"containers": [], "priorityClassName": class}}}});
    let set = |classes: [Option<&str>; 2]| {
        let roles: Vec<Value> = classes
            .iter()
            .enumerate()
            .map(|(index, class)| json!({"name": index.to_string(), "replicas": index, "template": template(*class)}))
            .collect();
        json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s", "namespace": "ns"},
            "spec": {"replicatedJobs": roles},
        })
    };
    let of = |ask: Ask| Ask { group: "jobset.x-k8s.io", directory: classes(), ..ask };
    let stored = ask(of(Ask::create(set([None, Some("high")])))).await.object;
    let found = |object: &Value| {
        [0, 1].map(|role| {
            let role = &object["spec"]["replicatedJobs"][role];
            role["template"]["spec"]["template"]["spec"]["priorityClassName"].clone()
        })
    };
    assert_eq!(found(&stored), ["sluice", "sluice-high"]);
    let mut applied = stored.clone();
    applied["spec"]["replicatedJobs"] = set([None, Some("high")])["spec"]["replicatedJobs"].clone();
    let again = ask(of(Ask::update(stored.clone(), applied.clone()))).await;
    assert_eq!((again.allowed, found(&again.object)), (true, found(&stored)));
    // While it waits its user may choose another class.
    applied["spec"]["replicatedJobs"][1] = set([None, Some("urgent")])["spec"]["replicatedJobs"][1].clone();
    let changed = ask(of(Ask::update(stored, applied))).await;
    assert_eq!(
        (changed.allowed, found(&changed.object)),
        (true, ["sluice", "sluice-urgent"].map(Value::from))
    );
}
