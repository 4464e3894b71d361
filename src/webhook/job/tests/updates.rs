//! Updates.

use serde_json::{Value, json};

use crate::webhook::job::tests::{job, labelled, own_hold, queued, record, running};
use crate::webhook::test_client::{Ask, ask, with};

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

#[tokio::test]
async fn a_key_without_effect_in_the_template_is_warned_of() {
    let metadata =
        json!({"labels": {"sluice.dev/queue": "serving"}, "annotations": {"sluice.dev/time-limit": "1h"}});
    let misplaced = json!({"spec": {"template": {"metadata": metadata}}});
    let created = ask(Ask::create(job(misplaced.clone()))).await;
    assert_eq!((created.allowed, created.warnings), (true, 2));
    let both = with(misplaced, json!({"metadata": metadata}));
    let created = ask(Ask::create(job(both))).await;
    assert_eq!((created.allowed, created.warnings), (true, 1), "the queue of the Job is copied there");
    let again = with(created.object.clone(), json!({"metadata": {"labels": {"x": "y"}}}));
    assert_eq!(ask(Ask::update(created.object, again)).await.warnings, 0, "it was there before");
    let queued_later =
        with(queued(json!({})), json!({"metadata": {"labels": {"sluice.dev/queue": "serving"}}}));
    assert_eq!(ask(Ask::update(queued(json!({})), queued_later)).await.warnings, 0);
}
