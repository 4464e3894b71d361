//! Objects of custom kinds as the API server would store them.

use serde_json::{Value, json};

use crate::api::names;
use crate::webhook::test_client::{ALICE, Ask, ask};

fn set(patch: Value) -> Value {
    let mut object = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "s", "namespace": "ns"},
        "spec": {"replicatedJobs": [{
            "name": "w", "replicas": 2,
            "template": {"spec": {"parallelism": 2, "template": {"spec": {
                "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}],
            }}}},
        }]},
    });
    json_patch::merge(&mut object, &patch);
    object
}

fn marked(mut object: Value, notes: Value) -> Value {
    json_patch::merge(
        &mut object,
        &json!({"metadata": {
            "labels": {"sluice.dev/team": "vision", "sluice.dev/queue": "training"}, "annotations": notes,
        }}),
    );
    object
}

fn queued() -> Value {
    marked(set(json!({"spec": {"suspend": true}})), json!({names::HELD: "true", names::USER: ALICE}))
}

/// A JobSet that runs on a node.
fn running() -> Value {
    let record =
        r#"{"pool":"default","nodes":{"n1":4},"pods":4,"borrowed":false,"at":"2026-01-31T12:00:00Z"}"#;
    let notes = json!({names::HELD: "true", names::USER: ALICE, names::ADMISSION: record});
    let mut object = marked(set(json!({"spec": {"suspend": false}})), notes);
    object["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] =
        json!({"labels": {names::PLACED: "true"}, "annotations": {names::NODES: "n1"}});
    object
}

fn of(ask: Ask) -> Ask {
    Ask { group: "jobset.x-k8s.io", ..ask }
}

#[tokio::test]
async fn a_new_job_set_is_held_and_labelled_once() {
    let first = ask(of(Ask::create(set(json!({}))))).await;
    assert_eq!(first.object, queued());
    for path in ["/mutate", "/validate"] {
        let again = ask(of(Ask { path, ..Ask::create(first.object.clone()) })).await;
        assert!(again.allowed && !again.patched, "{path}: {again:?}");
    }
}

#[tokio::test]
async fn a_child_that_an_operator_makes_is_not_held() {
    let owner = |kind: &str, version: &str| {
        json!({"metadata": {"ownerReferences": [
            {"apiVersion": version, "kind": kind, "name": "x", "uid": "1", "controller": true},
        ]}})
    };
    let by = |account: &'static str, object: Value| Ask { user: account, ..Ask::create(object) };
    const TRAINER: &str = "system:serviceaccount:kubeflow-system:kubeflow-trainer-controller-manager";
    const SETS: &str = "system:serviceaccount:jobset-system:jobset-controller-manager";
    const RAY: &str = "system:serviceaccount:kuberay-system:kuberay-operator";
    let train = owner("TrainJob", "trainer.kubeflow.org/v1alpha1");
    assert!(!ask(of(by(TRAINER, set(train.clone())))).await.patched, "a set of a TrainJob");
    assert!(ask(of(by(RAY, set(train.clone())))).await.patched, "a set that another operator makes");
    assert!(ask(of(Ask::create(set(train)))).await.patched, "a set that a user makes");
    let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "ns"}, "spec": {"template": {}}});
    json_patch::merge(&mut job, &owner("JobSet", "jobset.x-k8s.io/v1alpha2"));
    assert!(!ask(by(SETS, job.clone())).await.patched, "a Job of a set");
    assert!(ask(Ask::create(job.clone())).await.patched, "a Job that a user makes");
    let mut changed = job.clone();
    changed["spec"]["suspend"] = true.into();
    assert!(!ask(Ask::update(job.clone(), changed)).await.patched, "a change of a Job of a set");
    json_patch::merge(&mut job, &owner("JobSet", "example.com/v1"));
    assert!(ask(by(SETS, job)).await.patched, "a Job of a kind with the same name in another group");
}

#[tokio::test]
async fn a_pod_gets_the_nodes_of_its_template_once() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "annotations": {names::NODES: "n1,n2"}, "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "1", "controller": true},
        ]},
        "spec": {"containers": []},
    });
    let user = "system:serviceaccount:kube-system:job-controller";
    let placed = ask(Ask { user, ..Ask::create(pod) }).await;
    let terms = placed.object.pointer(
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
    );
    assert_eq!(terms.and_then(Value::as_array).map(Vec::len), Some(2), "{}", placed.object);
    assert!(placed.object["spec"]["schedulingGates"].is_null());
    assert!(!ask(Ask { user, ..Ask::create(placed.object) }).await.patched);
}

#[tokio::test]
async fn only_sluice_starts_a_job_set_and_its_user_may_suspend_it() {
    let mut started = queued();
    started["spec"]["suspend"] = false.into();
    for path in ["/mutate", "/validate"] {
        let answer = ask(of(Ask { path, ..Ask::update(queued(), started.clone()) })).await;
        assert!(!answer.allowed && answer.message.contains("only Sluice starts it"), "{path}: {answer:?}");
    }
    let mut stopped = running();
    stopped["spec"]["suspend"] = true.into();
    let answer = ask(of(Ask::update(running(), stopped))).await;
    assert!(answer.allowed, "{}", answer.message);
    assert!(answer.object["metadata"]["annotations"][names::HELD].is_null(), "the hold is the user's");

    // Resumed while it stops it is queued afterwards, and suspended once more it is on hold again.
    let stops = answer.object;
    let mut resumed = stops.clone();
    resumed["spec"]["suspend"] = false.into();
    let resumed = ask(of(Ask::update(stops.clone(), resumed))).await.object;
    assert_eq!(
        (resumed["spec"]["suspend"] == true, &resumed["metadata"]["annotations"][names::HELD]),
        (true, &json!("true"))
    );
    for path in ["/mutate", "/validate"] {
        let again = ask(of(Ask { path, ..Ask::update(resumed.clone(), stops.clone()) })).await;
        assert!(again.allowed, "{path}: {}", again.message);
    }
    assert_eq!(ask(of(Ask::update(resumed.clone(), resumed))).await.object, stops);

    let own = marked(set(json!({"spec": {"suspend": true}})), json!({names::USER: ALICE}));
    let mut released = own.clone();
    released["spec"]["suspend"] = false.into();
    assert_eq!(ask(of(Ask::update(own, released))).await.object, queued(), "a released JobSet is queued");
}

#[tokio::test]
async fn an_unchanged_manifest_keeps_the_placement() {
    let mut again = running();
    again["spec"]["replicatedJobs"] = set(json!({}))["spec"]["replicatedJobs"].clone();
    let answer = ask(of(Ask::update(running(), again.clone()))).await;
    assert!(answer.allowed, "{}", answer.message);
    assert_eq!(answer.object, running());
    again["spec"]["replicatedJobs"][0]["replicas"] = 3.into();
    let answer = ask(of(Ask::update(running(), again.clone()))).await;
    assert_eq!(answer.object, again, "the policy refuses another manifest");
}

#[tokio::test]
async fn annotations_and_requests_are_judged() {
    for (what, notes, expected) in [
        ("a record", json!({names::ADMISSION: "{}"}), "written by Sluice alone"),
        (
            "a request for Jobs only",
            json!({names::MIN_PARALLELISM: "1"}),
            "is only for Jobs and Pods; leave it out of this JobSet",
        ),
        ("a malformed request", json!({names::TIME_LIMIT: "soon"}), names::TIME_LIMIT),
    ] {
        let answer = ask(of(Ask::create(set(json!({"metadata": {"annotations": notes}}))))).await;
        assert!(!answer.allowed && answer.message.contains(expected), "{what}: {answer:?}");
    }
    let mut forged = running();
    forged["metadata"]["annotations"][names::ADMISSION] = "{}".into();
    let answer = ask(of(Ask::update(running(), forged))).await;
    assert!(!answer.allowed && answer.message.contains("leave it as it is"), "{answer:?}");
    for (trainer, missing) in [(json!({}), "numNodes"), (json!({"numNodes": 2}), "resourcesPerNode")] {
        let bare = json!({
            "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
            "metadata": {"name": "t", "namespace": "ns"},
            "spec": {"runtimeRef": {"name": "torch"}, "trainer": trainer},
        });
        let answer = ask(Ask { group: "trainer.kubeflow.org", ..Ask::create(bare) }).await;
        let expected = format!("/spec/trainer/{missing} is needed");
        assert!(!answer.allowed && answer.message.contains(&expected), "{answer:?}");
    }
}

#[tokio::test]
async fn templates_and_growth_are_judged() {
    let job = |spec: Value| {
        json!({
            "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "r", "namespace": "ns"},
            "spec": {"rayClusterSpec": spec},
        })
    };
    let pinned = json!({"template": {"spec": {"nodeName": "n4", "containers": []}}});
    for (spec, expected) in [
        (
            json!({"enableInTreeAutoscaling": true}),
            "spec.rayClusterSpec.enableInTreeAutoscaling lets the pods",
        ),
        (
            json!({"headGroupSpec": pinned}),
            "spec.rayClusterSpec.headGroupSpec.template.spec.nodeName \"n4\" must not be set",
        ),
        (
            json!({"workerGroupSpecs": [pinned]}),
            "spec.rayClusterSpec.workerGroupSpecs.0.template.spec.nodeName \"n4\" must not be set",
        ),
    ] {
        let answer = ask(Ask { group: "ray.io", ..Ask::create(job(spec)) }).await;
        assert!(!answer.allowed && answer.message.contains(expected), "{answer:?}");
    }
    let fixed = job(json!({"enableInTreeAutoscaling": false}));
    assert!(ask(Ask { group: "ray.io", ..Ask::create(fixed) }).await.allowed);
}
