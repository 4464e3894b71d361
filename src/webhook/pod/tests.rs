use serde_json::{Value, json};

use crate::directory::Directory;
use crate::webhook::test_client::{ALICE, Ask, ask, directory, with};

fn pod(change: Value) -> Value {
    let plain = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "shell", "namespace": "ns"},
        "spec": {"containers": [{"name": "main"}], "priority": 0, "preemptionPolicy": "PreemptLowerPriority"},
    });
    with(plain, change)
}

fn owned_by(kind: &str) -> Value {
    let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    json!({"metadata": {"ownerReferences": [
        {"apiVersion": version, "kind": kind, "name": "x", "uid": "1", "controller": true},
    ]}})
}

#[tokio::test]
async fn a_bare_pod_is_gated_and_labelled_once() {
    let first = ask(Ask::create(pod(json!({})))).await;
    let labels = json!({"sluice.dev/team": "vision", "sluice.dev/queue": "training"});
    let gates = json!([{"name": "sluice.dev/admission"}]);
    let marks = json!({"labels": labels, "annotations": {"sluice.dev/user": ALICE}});
    assert_eq!(first.object, pod(json!({"metadata": marks, "spec": {"schedulingGates": gates}})));
    let again = ask(Ask::create(first.object)).await;
    assert!(again.allowed && !again.patched);
}

#[tokio::test]
async fn other_gates_stay() {
    let gated = pod(json!({"spec": {"schedulingGates": [{"name": "example.com/other"}]}}));
    assert_eq!(
        ask(Ask::create(gated)).await.object["spec"]["schedulingGates"],
        json!([{"name": "example.com/other"}, {"name": "sluice.dev/admission"}])
    );
}

#[tokio::test]
async fn the_queues_priority_class_is_set_once() {
    let first = ask(Ask::create(pod(json!({"metadata": {"namespace": "low"}})))).await.object;
    assert_eq!(first["spec"]["priorityClassName"], "urgent");
    assert!(first["spec"]["priority"].is_null() && first["spec"]["preemptionPolicy"].is_null());
    // The API server fills them in for the new class. The second review must not remove them.
    let computed = with(first, json!({"spec": {"priority": 1000, "preemptionPolicy": "Never"}}));
    let again = ask(Ask::create(computed)).await;
    assert!(again.allowed && !again.patched);

    let own = pod(json!({"metadata": {"namespace": "low"}, "spec": {"priorityClassName": "mine"}}));
    let own = ask(Ask::create(own)).await.object;
    assert_eq!((&own["spec"]["priorityClassName"], &own["spec"]["priority"]), (&json!("mine"), &json!(0)));
}

#[tokio::test]
async fn the_creating_account_decides_whether_a_pod_is_gated() {
    const JOBS: &str = "system:serviceaccount:kube-system:job-controller";
    const DAEMONS: &str = "system:serviceaccount:kube-system:daemon-set-controller";
    const ALL: &str = "system:kube-controller-manager";
    const RAY: &str = "system:serviceaccount:kuberay-system:kuberay-operator";
    let device =
        json!({"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}});
    let claim = json!({"spec": {"resourceClaims": [{"name": "c", "resourceClaimName": "x"}]}});
    let of_operator = |version: &str, kind: &str| {
        let mut owned = owned_by(kind);
        owned["metadata"]["ownerReferences"][0]["apiVersion"] = version.into();
        owned
    };
    let mirror = json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}});
    for (change, user, group, gated) in [
        (owned_by("Job"), JOBS, "", false),
        (owned_by("Job"), ALL, "", false),
        (owned_by("Job"), ALICE, "", true),
        (owned_by("DaemonSet"), DAEMONS, "", false),
        (owned_by("DaemonSet"), ALICE, "", true),
        (with(owned_by("DaemonSet"), device), DAEMONS, "", true),
        (with(owned_by("DaemonSet"), claim), DAEMONS, "", true),
        (of_operator("ray.io/v1", "RayCluster"), RAY, "", false),
        (of_operator("ray.io/v1", "RayService"), RAY, "", true),
        (of_operator("v1", "ConfigMap"), RAY, "", true),
        (of_operator("ray.io/v1", "RayCluster"), ALICE, "", true),
        (owned_by("ReplicaSet"), "system:serviceaccount:kube-system:replicaset-controller", "", true),
        (mirror.clone(), "system:node:n0", "system:nodes", false),
        (mirror, ALICE, "", true),
        (json!({"spec": {"nodeName": "n0"}}), ALICE, "", false),
    ] {
        let answer = ask(Ask { user, groups: vec![group], ..Ask::create(pod(change.clone())) }).await;
        assert!(answer.allowed, "{}", answer.message);
        assert_eq!(answer.object["spec"]["schedulingGates"].is_array(), gated, "{user}: {change}");
        assert!(gated || !answer.patched);
    }
}

#[tokio::test]
async fn a_wrong_pod_is_refused() {
    for (change, message) in [
        (
            json!({"metadata": {"namespace": "orphan"}}),
            "Pod orphan/shell: team \"ghost\" (label sluice.dev/team of namespace \"orphan\") does not exist",
        ),
        (
            json!({"metadata": {"annotations": {"sluice.dev/admission": "{}"}}}),
            "Pod ns/shell: annotation sluice.dev/admission is written by Sluice alone; leave it out",
        ),
        (
            json!({"metadata": {"labels": {"sluice.dev/group": "g"}}}),
            "Pod ns/shell: label sluice.dev/group needs annotation sluice.dev/group-size: the number of pods in the group",
        ),
        (
            json!({"metadata": {"annotations": {"sluice.dev/group-size": "none"}}}),
            "Pod ns/shell: annotation sluice.dev/group-size: \"none\" is not a whole number above 0",
        ),
        (
            json!({"metadata": {"annotations": {"sluice.dev/preemptible": "yes"}}}),
            "Pod ns/shell: annotation sluice.dev/preemptible: \"yes\" is neither \"true\" nor \"false\"",
        ),
    ] {
        assert_eq!(ask(Ask::create(pod(change))).await.message, message);
    }
}

#[tokio::test]
async fn a_pod_of_a_newly_labelled_namespace_is_gated() {
    let answer = ask(Ask { directory: Directory::default(), ..Ask::create(pod(json!({}))) }).await;
    assert_eq!(answer.object["spec"]["schedulingGates"], json!([{"name": "sluice.dev/admission"}]));
}

#[tokio::test]
async fn a_replacement_pod_leaves_its_gang_once_siblings_have_succeeded() {
    const JOBS: &str = "system:serviceaccount:kube-system:job-controller";
    let of_group = |name: &str| {
        let group = json!({"spec": {"schedulingGroup": {"podGroupName": name}}});
        pod(with(owned_by("Job"), group))
    };
    let thinned = directory();
    thinned.places.thin(&"1".into(), true);
    for (what, directory, user, object, stays) in [
        ("no sibling has succeeded", directory(), JOBS, of_group("sluice-x-0815"), true),
        ("siblings have succeeded", thinned.clone(), JOBS, of_group("sluice-x-0815"), false),
        ("a PodGroup of the user", thinned.clone(), JOBS, of_group("mine"), true),
        ("a pod that a user creates", thinned, ALICE, of_group("sluice-x-0815"), true),
    ] {
        let answer = ask(Ask { user, directory, ..Ask::create(object) }).await;
        assert!(answer.allowed, "{}", answer.message);
        assert_eq!(answer.object["spec"]["schedulingGroup"].is_object(), stays, "{what}");
    }
}
