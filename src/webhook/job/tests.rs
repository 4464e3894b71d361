use serde_json::{Value, json};

use crate::api::caps::Caps;
use crate::directory::Directory;
use crate::webhook::test_client::{ALICE, Ask, ask, directory, with};

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

#[tokio::test]
async fn a_released_job_is_queued() {
    let answer = ask(Ask::update(own_hold(json!({})), labelled(json!({})))).await;
    assert_eq!(answer.object, queued(json!({})));
    let checked = ask(Ask { path: "/validate", ..Ask::update(own_hold(json!({})), answer.object) }).await;
    assert!(checked.allowed, "{}", checked.message);
}

#[tokio::test]
async fn a_queued_job_is_started_by_sluice_alone() {
    for path in ["/mutate", "/validate"] {
        let started = with(queued(json!({})), json!({"spec": {"suspend": false}}));
        let answer = ask(Ask { path, ..Ask::update(queued(json!({})), started) }).await;
        assert_eq!(
            answer.message, "Job ns/train: it waits in the queue of vision, and only Sluice starts it",
            "{path}"
        );
    }
}

#[tokio::test]
async fn an_unchanged_manifest_can_be_applied_again() {
    let manifest = json!({"spec": {"parallelism": 4, "suspend": false}}).to_string();
    let by_client =
        json!({"metadata": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": manifest}}});
    let by_server = json!({"metadata": {"managedFields": [
        {"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {"f:suspend": {}, "f:parallelism": {}}}},
    ]}});
    for (applied, manager) in [(by_client, "kubectl-client-side-apply"), (by_server, "kubectl")] {
        let before = queued(applied.clone());
        let after = with(before.clone(), json!({"spec": {"suspend": false}}));
        let answer = ask(Ask { manager, ..Ask::update(before.clone(), after) }).await;
        assert!(answer.allowed, "{}", answer.message);
        assert_eq!((&answer.object, answer.warnings), (&before, 1));

        let shrunk = json!({
            "metadata": {"annotations": {"sluice.dev/admission": record(2)}},
            "spec": {"parallelism": 2},
        });
        let before = with(running(applied), shrunk);
        let after = with(before.clone(), json!({"spec": {"parallelism": 4}}));
        let answer = ask(Ask { manager, ..Ask::update(before.clone(), after) }).await;
        assert!(answer.allowed, "{}", answer.message);
        assert_eq!((&answer.object, answer.warnings), (&before, 1));
    }
}

#[tokio::test]
async fn the_placement_survives_an_apply_of_the_users_own_affinity() {
    let own = json!({"nodeAffinity": {"required": ["mine"]}});
    let placed = json!({"nodeAffinity": {"required": ["mine and n0"]}});
    let affinity = |affinity: &Value| json!({"spec": {"template": {"spec": {"affinity": affinity}}}});
    let marks = json!({"metadata": {"annotations": {"sluice.dev/user-affinity": own.to_string()}}});
    let before = with(running(marks), affinity(&placed));

    let applied = with(before.clone(), affinity(&own));
    let answer = ask(Ask::update(before.clone(), applied)).await;
    assert!(answer.allowed, "{}", answer.message);
    assert_eq!(answer.object, before);

    // Another affinity is a change, which the API server refuses.
    let other = with(before.clone(), affinity(&json!({"nodeAffinity": {"required": ["other"]}})));
    assert!(!ask(Ask::update(before, other)).await.patched);
}

#[tokio::test]
async fn the_gate_of_the_pods_survives_a_manifest_that_replaces_the_job() {
    let gates = json!([{"name": "example.com/own"}, {"name": "sluice.dev/placement"}]);
    let template = |gates: &Value| json!({"spec": {"template": {"spec": {"schedulingGates": gates}}}});
    let before = with(running(json!({})), template(&gates));
    let replaced = with(before.clone(), template(&json!([{"name": "example.com/own"}])));
    let answer = ask(Ask::update(before.clone(), replaced)).await;
    assert!(answer.allowed, "{}", answer.message);
    assert_eq!(answer.object, before);
}

#[tokio::test]
async fn an_edit_by_the_field_owner_is_no_apply() {
    let owned = json!({"metadata": {"managedFields": [
        {"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:spec": {"f:suspend": {}}}},
    ]}});
    let before = queued(owned);
    let after = with(before.clone(), json!({"spec": {"suspend": false}}));
    assert!(!ask(Ask { manager: "kubectl-edit", ..Ask::update(before, after) }).await.allowed);
}

#[tokio::test]
async fn a_user_may_suspend_a_running_job_and_release_it_again() {
    let stopped = running(json!({"spec": {"suspend": true}}));
    let answer = ask(Ask::update(running(json!({})), stopped)).await;
    assert!(answer.allowed, "{}", answer.message);
    assert!(answer.object["metadata"]["annotations"]["sluice.dev/held"].is_null());
    assert!(answer.object["metadata"]["annotations"]["sluice.dev/admission"].is_string());

    let released = with(answer.object.clone(), json!({"spec": {"suspend": false}}));
    let answer = ask(Ask::update(answer.object, released)).await;
    assert_eq!(answer.object["spec"]["suspend"], true);
    assert_eq!(answer.object["metadata"]["annotations"]["sluice.dev/held"], "true");
}

#[tokio::test]
async fn sluices_annotations_and_labels_cannot_be_changed() {
    let alone = |what: &str| format!("Job ns/train: {what} is written by Sluice alone; leave it as it is");
    for (before, change, message) in [
        (
            queued(json!({})),
            json!({"metadata": {"annotations": {"sluice.dev/held": null}}}),
            alone("annotation sluice.dev/held"),
        ),
        (
            queued(json!({})),
            json!({"metadata": {"annotations": {"sluice.dev/admission": record(1)}}}),
            alone("annotation sluice.dev/admission"),
        ),
        (
            running(json!({})),
            json!({"metadata": {"annotations": {"sluice.dev/admission": record(9)}}}),
            alone("annotation sluice.dev/admission"),
        ),
        (
            running(json!({})),
            json!({"metadata": {"annotations": {"sluice.dev/user-affinity": "{}"}}}),
            alone("annotation sluice.dev/user-affinity"),
        ),
        (
            running(json!({})),
            json!({"metadata": {"labels": {"sluice.dev/team": null}}}),
            alone("label sluice.dev/team"),
        ),
        (
            queued(json!({})),
            json!({"spec": {"suspend": true}, "metadata": {"labels": {"sluice.dev/queue": "nope"}}}),
            "Job ns/train: team \"vision\" has no queue \"nope\" (label sluice.dev/queue); it has training, serving"
                .to_owned(),
        ),
        (
            running(json!({})),
            json!({"metadata": {"labels": {"sluice.dev/queue": "serving"}}}),
            "Job ns/train: label sluice.dev/queue can be changed only while the Job waits".to_owned(),
        ),
        (
            running(json!({})),
            json!({"spec": {"parallelism": 5}}),
            "Job ns/train: spec.parallelism 5 is more than the 4 pods it was granted; suspend it first to queue for more"
                .to_owned(),
        ),
        (
            running(json!({})),
            json!({"metadata": {"annotations": {"sluice.dev/time-limit": "soon"}}}),
            "Job ns/train: annotation sluice.dev/time-limit: \"soon\" is not a duration such as 90s, 10m or 24h"
                .to_owned(),
        ),
    ] {
        let answer = ask(Ask::update(before.clone(), with(before, change))).await;
        assert_eq!(answer.message, message);
    }
}

#[tokio::test]
async fn what_pods_ask_for_stays_until_the_last_one_has_ended() {
    let asks = |of_pod: Value| {
        let container = json!({"name": "main", "resources": {"limits": {"nvidia.com/gpu": 4}}});
        let spec = with(json!({"containers": [container], "initContainers": [{"name": "init"}]}), of_pod);
        json!({"spec": {"template": {"spec": spec}}})
    };
    let smaller = [
        json!({"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}),
        json!({"containers": [{"name": "main"}]}),
        json!({"initContainers": [{"name": "init", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}),
        json!({"resources": {"requests": {"cpu": "1"}}}),
    ];
    let leaves = || json!({"spec": {"suspend": true}});
    let on_hold = json!({"metadata": {"annotations": {"sluice.dev/held": null}}});
    for change in smaller {
        let asked = |job: Value| with(job, asks(json!({})));
        for before in [
            with(running(json!({})), leaves()),
            with(with(running(json!({})), leaves()), on_hold.clone()),
            running(json!({})),
        ] {
            let before = asked(before);
            let answer = ask(Ask::update(before.clone(), with(before, asks(change.clone())))).await;
            assert!(
                answer
                    .message
                    .contains("can be changed only while the Job waits; its pods have not all ended"),
                "{change}: {answer:?}"
            );
        }
        for before in [asked(queued(json!({}))), asked(own_hold(json!({})))] {
            let answer = ask(Ask::update(before.clone(), with(before, asks(change.clone())))).await;
            assert!(answer.allowed, "{change}: {answer:?}");
        }
    }
    // Amounts may be written otherwise, and a limit is a request too.
    let limits = json!({"nvidia.com/gpu": "4000m"});
    let same = json!({"containers": [{"name": "main", "resources": {"limits": limits, "requests": {"nvidia.com/gpu": "4"}}}]});
    let before = with(with(running(json!({})), leaves()), asks(json!({})));
    let answer = ask(Ask::update(before.clone(), with(before, asks(same)))).await;
    assert!(answer.allowed, "{answer:?}");
    // The user may suspend it, and change the rest of a suspended Job's template.
    let before = with(running(json!({})), asks(json!({})));
    let answer = ask(Ask::update(before.clone(), with(before.clone(), leaves()))).await;
    assert!(answer.allowed, "{answer:?}");
    let before = with(before, leaves());
    let elsewhere = json!({"spec": {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}});
    let answer = ask(Ask::update(before.clone(), with(before, elsewhere))).await;
    assert!(answer.allowed, "{answer:?}");
}

#[tokio::test]
async fn ordinary_edits_pass() {
    for (before, change) in [
        (running(json!({})), json!({"spec": {"parallelism": 2}})),
        (running(json!({})), json!({"metadata": {"labels": {"mine": "yes"}, "annotations": {"note": "x"}}})),
        (queued(json!({})), json!({"spec": {"parallelism": 64}})),
        (queued(json!({})), json!({"spec": {"template": {"spec": {"affinity": {"nodeAffinity": {}}}}}})),
        (labelled(json!({})), json!({"metadata": {"finalizers": ["foregroundDeletion"]}})),
        // An unchanged request is not judged again.
        (
            queued(json!({"metadata": {"annotations": {"sluice.dev/time-limit": "soon"}}})),
            json!({"metadata": {"annotations": {"note": "x"}}}),
        ),
    ] {
        let after = with(before.clone(), change.clone());
        let answer = ask(Ask::update(before, after)).await;
        assert!(answer.allowed && !answer.patched, "{change}: {answer:?}");
    }
}

#[tokio::test]
async fn a_job_that_is_being_deleted_is_not_changed() {
    let gone = json!({"metadata": {"deletionTimestamp": "2026-01-31T12:00:00Z", "annotations": null}});
    let answer = ask(Ask::update(running(json!({})), running(gone))).await;
    assert!(answer.allowed && !answer.patched);
}

#[tokio::test]
async fn a_waiting_job_can_change_its_queue() {
    let moved = queued(json!({"metadata": {"labels": {"sluice.dev/queue": "serving"}}}));
    let answer = ask(Ask::update(queued(json!({})), moved)).await;
    assert!(answer.allowed, "{}", answer.message);
    assert_eq!(answer.object["spec"]["template"]["metadata"]["labels"]["sluice.dev/queue"], "serving");

    let cleared = queued(json!({"metadata": {"labels": {"sluice.dev/queue": null}}}));
    let answer = ask(Ask::update(queued(json!({})), cleared)).await;
    assert_eq!(answer.object["metadata"]["labels"]["sluice.dev/queue"], "training");
}

#[tokio::test]
async fn the_template_is_labelled_only_while_it_is_mutable() {
    // Before 1.36 a Job that has run keeps its start time, and its template.
    let suspended = json!([{"type": "Suspended", "status": "True"}]);
    let status = json!({"startTime": "2026-01-31T12:00:00Z", "active": 0, "conditions": suspended});
    let before = own_hold(json!({"status": status}));
    let moved = json!({"metadata": {"labels": {"sluice.dev/queue": "serving"}}});
    let answer = ask(Ask::update(before.clone(), with(before, moved))).await;
    assert!(answer.allowed, "{}", answer.message);
    assert_eq!(answer.object["spec"]["template"]["metadata"]["labels"]["sluice.dev/queue"], "training");
}

#[tokio::test]
async fn an_unlabelled_running_job_does_not_grow() {
    let before = job(json!({}));
    let lowered = ask(Ask::update(before.clone(), job(json!({"spec": {"parallelism": 1}})))).await;
    assert!(lowered.allowed && !lowered.patched);
    assert!(!ask(Ask::update(before, job(json!({"spec": {"parallelism": 5}})))).await.allowed);
}

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

#[tokio::test]
async fn a_template_with_a_node_or_a_record_is_refused_and_an_old_one_stays_editable() {
    let pinned = json!({"spec": {"template": {"spec": {"nodeName": "n4"}}}});
    let answer = ask(Ask::create(job(pinned.clone()))).await;
    let expected = "Job ns/train: spec.template.spec.nodeName \"n4\" must not be set";
    assert!(!answer.allowed && answer.message.starts_with(expected), "{answer:?}");
    let answer = ask(Ask::update(queued(json!({})), queued(pinned.clone()))).await;
    assert!(!answer.allowed && answer.message.starts_with(expected), "{answer:?}");
    let relabelled = with(queued(pinned.clone()), json!({"metadata": {"labels": {"x": "y"}}}));
    assert!(ask(Ask::update(queued(pinned), relabelled)).await.allowed);
}

#[tokio::test]
async fn what_a_user_asks_of_own_work_is_judged_at_create_and_at_update() {
    let marked = |key: &str, value: &str| json!({"metadata": {"annotations": {key: value}}});
    let hold = "annotation sluice.dev/hold: \"yes\" is neither \"true\" nor \"false\"";
    let order = "annotation sluice.dev/order: \"first\" is not a whole number such as 5 or -5; the highest comes first";
    let far = "annotation sluice.dev/order: \"9999999999\" is not between -2147483648 and 2147483647";
    let time = "annotation sluice.dev/requeue: \"now\" is not an RFC 3339 time such as 2026-01-31T12:00:00Z";
    for (key, good, bad, problem) in [
        ("sluice.dev/hold", "true", "yes", hold),
        ("sluice.dev/order", "-5", "first", order),
        ("sluice.dev/order", "5", "9999999999", far),
        ("sluice.dev/requeue", "2026-01-31T12:00:00Z", "now", time),
    ] {
        assert!(ask(Ask::create(job(marked(key, good)))).await.allowed, "{key}");
        assert!(ask(Ask::update(queued(json!({})), queued(marked(key, good)))).await.allowed, "{key}");
        let expected = format!("Job ns/train: {problem}");
        assert_eq!(ask(Ask::create(job(marked(key, bad)))).await.message, expected);
        assert_eq!(ask(Ask::update(queued(json!({})), queued(marked(key, bad)))).await.message, expected);
        let template = json!({"spec": {"template": marked(key, good)}});
        let refused = ask(Ask::create(job(template))).await.message;
        assert!(refused.contains(&format!("annotation {key} in spec.template")), "{refused}");
    }
    let runs = |key: &str, value: &str| Ask::update(running(json!({})), running(marked(key, value)));
    assert!(ask(runs("sluice.dev/hold", "true")).await.allowed);
    assert!(ask(runs("sluice.dev/requeue", "2026-01-31T12:00:00Z")).await.allowed);
    assert_eq!(
        ask(runs("sluice.dev/order", "1")).await.message,
        "Job ns/train: annotation sluice.dev/order can be changed only while the Job waits"
    );
}

#[tokio::test]
async fn a_key_without_effect_is_warned_of_when_an_update_adds_it() {
    let misspelt = || queued(json!({"metadata": {"annotations": {"sluice.dev/timelimit": "1h"}}}));
    let answer = ask(Ask::update(queued(json!({})), misspelt())).await;
    assert_eq!((answer.allowed, answer.warnings), (true, 1));
    let again = with(misspelt(), json!({"metadata": {"labels": {"x": "y"}}}));
    assert_eq!(ask(Ask::update(misspelt(), again)).await.warnings, 0, "it was there before");
}
