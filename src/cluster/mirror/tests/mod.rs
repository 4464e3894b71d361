//! Engine events of single changes.

mod gangs;
mod stops;

use serde_json::{Value, json};

use super::*;
use crate::cluster::reduce::node::node;
use crate::cluster::reduce::team::team;
use crate::cluster::target::job::job;
use crate::cluster::target::pod::{PodSeen, pod};
use crate::directory::Membership;
use crate::engine::types::{PodId, Replacement, SETTLE, Time, Unready, Workload};

const RECORD: &str = r#"{"pool":"p","nodes":{"n1":1},"pods":1,"borrowed":false,"at":"2026-11-21T08:00:00Z"}"#;
const EVICTED: &str = r#"{"at":"2026-11-21T09:00:00Z","for":"b/y","reason":"Reclaimed"}"#;

fn job_seen(version: u32, patch: Value) -> JobSeen {
    let mut object = json!({
        "metadata": {"name": "j", "namespace": "ns", "uid": "job", "resourceVersion": version.to_string(),
            "annotations": {"sluice.dev/held": "true"}},
        "spec": {"suspend": true, "template": {"spec": {"containers": []}}},
    });
    json_patch::merge(&mut object, &patch);
    job(&serde_json::from_value(object).expect("a Job"), Time(0))
}

fn saw_job(version: u32, patch: Value) -> Change {
    let seen = job_seen(version, patch);
    Change::Job(Seen::Object(seen.uid.clone(), seen))
}

fn saw_pod(version: u32, phase: &str) -> Change {
    Change::Pod(Seen::Object("pod".into(), pod_seen(version, phase)))
}

/// A pod of the Job.
fn pod_seen(version: u32, phase: &str) -> PodSeen {
    let owner =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": true}]);
    let object = json!({
        "metadata": {"name": "j-0", "namespace": "ns", "uid": "pod", "resourceVersion": version.to_string(),
            "ownerReferences": owner},
        "spec": {"nodeName": "n1", "containers": []},
        "status": {"phase": phase},
    });
    pod(&serde_json::from_value(object).expect("a pod"))
}

fn saw_namespace(team: Option<&str>) -> Change {
    let membership = team.map(|team| Membership { team: team.into(), queue: Some("night".into()) });
    Change::Namespace(Seen::Object("ns".into(), NamespaceSeen { name: "ns".into(), membership, since: None }))
}

/// The workload of the only event.
fn applied(events: &[Event]) -> &Workload {
    match events {
        [Event::WorkloadApplied(workload)] => workload,
        other => panic!("not one workload: {other:?}"),
    }
}

fn labelled() -> Mirror {
    let mut mirror = Mirror::default();
    assert!(mirror.take(saw_namespace(Some("vision"))).is_empty());
    mirror
}

#[test]
fn a_job_belongs_to_the_team_of_its_namespace() {
    let mut mirror = labelled();
    let events = mirror.take(saw_job(1, json!({})));
    let workload = applied(&events);
    assert_eq!((&*workload.team, workload.queue.as_deref()), ("vision", Some("night")));
    let events = mirror.take(saw_namespace(Some("speech")));
    assert_eq!(&*applied(&events).team, "speech");
    assert!(matches!(mirror.take(saw_namespace(None))[..], [Event::WorkloadRemoved(_)]));
    let events = mirror.take(saw_namespace(Some("vision")));
    assert_eq!(&*applied(&events).team, "vision");
}

#[test]
fn a_namespace_without_a_team_is_left_alone() {
    let mut mirror = Mirror::default();
    assert!(mirror.take(saw_job(1, json!({}))).is_empty());
    assert!(mirror.take(Change::Job(Seen::Deleted("job".into()))).is_empty());
}

#[test]
fn priority_follows_the_classes() {
    let mut mirror = labelled();
    mirror.take(saw_job(1, json!({})));
    let class = |name: &str, value, global_default| {
        let stands_for = None;
        let seen = Class { uid: name.into(), value, global_default, preempts: true, stands_for };
        Change::Class(Seen::Object(name.into(), seen))
    };
    let events = mirror.take(class("usual", 50, true));
    assert_eq!(applied(&events).priority, 50);
    let spec = json!({"spec": {"template": {"spec": {"priorityClassName": "high"}}}});
    let events = mirror.take(saw_job(2, spec));
    assert_eq!(applied(&events).priority, 0, "a class that does not exist yet");
    let events = mirror.take(class("high", 900, false));
    assert_eq!(applied(&events).priority, 900);

    assert!(mirror.take_changed_classes() && !mirror.take_changed_classes());
    let spec = json!({"spec": {"template": {"spec": {"priorityClassName": "sluice-high"}}}});
    mirror.take(saw_job(3, spec));
    let id = WorkloadId("job".into());
    let priority = |mirror: &Mirror| mirror.workload(&id).map(|(managed, _)| managed.workload.priority);
    assert_eq!(priority(&mirror), Some(900), "the twin is not made yet");
    assert!(mirror.names_class("sluice-high") && !mirror.names_class("high"));
}

#[test]
fn an_irrelevant_change_causes_no_event() {
    let mut mirror = labelled();
    mirror.take(saw_job(1, json!({})));
    assert!(mirror.take(saw_job(2, json!({"status": {"ready": 1}}))).is_empty());
    let seen = mirror.workload(&WorkloadId("job".into())).map(|(_, version)| version);
    assert_eq!(seen, Some(2), "but the next patch requires the new version");
}

#[test]
fn what_jobs_have_alike_is_stored_once() {
    let mut mirror = labelled();
    let labels = |uid: &str| json!({"app": "train", "batch.kubernetes.io/controller-uid": uid});
    let saw = |uid: &str, version: u32, status: Value| {
        let seen = job_seen(
            version,
            json!({
                "metadata": {"uid": uid, "annotations": {"sluice.dev/user": "alice"}},
                "spec": {"template": {
                    "metadata": {"labels": labels(uid)},
                    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
                }},
                "status": status,
            }),
        );
        Change::Job(Seen::Object(seen.uid.clone(), seen))
    };
    let applied = |events: Vec<Event>| match &events[..] {
        [Event::WorkloadApplied(workload)] => Arc::clone(workload),
        other => panic!("not one workload: {other:?}"),
    };
    let one = applied(mirror.take(saw("one", 1, json!({}))));
    let two = applied(mirror.take(saw("two", 2, json!({}))));
    assert!(Arc::ptr_eq(&one.shape, &two.shape));
    let (Some(first), Some(second)) = (&one.user, &two.user) else { panic!("no users") };
    assert!(Arc::ptr_eq(first, second) && Arc::ptr_eq(&one.namespace, &two.namespace));
    for ((key, value), (other_key, other)) in one.profile.labels.iter().zip(two.profile.labels.iter()) {
        assert!(Arc::ptr_eq(key, other_key));
        assert_eq!(Arc::ptr_eq(value, other), **key == *"app", "{key} is {value} and {other}");
    }
    let uid = one.profile.labels.get(&"batch.kubernetes.io/controller-uid".into()).expect("the label");
    assert!(Arc::ptr_eq(uid, &one.id.0));

    assert!(mirror.take(saw("one", 3, json!({"ready": 1}))).is_empty());
    let kept = mirror.workload(&one.id).map(|(managed, _)| Arc::ptr_eq(&managed.workload, &one));
    assert_eq!(kept, Some(true), "the engine has this copy");
}

#[test]
fn a_late_watch_event_does_not_revert_an_own_write() {
    let mut mirror = labelled();
    mirror.take(saw_job(1, json!({})));
    let admitted =
        json!({"metadata": {"annotations": {"sluice.dev/admission": RECORD}}, "spec": {"suspend": false}});
    let events = mirror.take_own_job(job_seen(7, admitted.clone()));
    assert!(matches!(applied(&events).state, Observed::Admitted(_)));
    assert!(mirror.take(saw_job(3, json!({"status": {"ready": 1}}))).is_empty(), "from before the write");
    assert!(mirror.take(saw_job(7, admitted)).is_empty(), "the write itself");
    assert!(matches!(mirror.take(Change::Job(Seen::Deleted("job".into())))[..], [Event::WorkloadRemoved(_)]));
}

#[test]
fn pods_missing_from_a_new_list_are_removed() {
    let mut mirror = labelled();
    mirror.take(saw_pod(1, "Running"));
    mirror.take(Change::Pod(Seen::ListBegins));
    assert!(matches!(mirror.take(Change::Pod(Seen::ListEnds))[..], [Event::PodRemoved(_)]));
    assert!(mirror.pods_of(&WorkloadId("job".into())).is_empty());
}

#[test]
fn the_directory_is_complete_once_all_its_lists_are() {
    let mut mirror = labelled();
    assert!(mirror.directory().is_some_and(|directory| !directory.complete));
    assert!(mirror.directory().is_none(), "nothing changed");
    for seen in [
        Change::Team(Seen::ListEnds),
        Change::Pool(Seen::ListEnds),
        Change::Namespace(Seen::ListEnds),
        Change::Class(Seen::ListEnds),
    ] {
        mirror.take(seen);
    }
    assert!(
        mirror.directory().is_some_and(|directory| !directory.complete),
        "whether PodGroups are served is unknown"
    );
    mirror.take(Change::PodGroups(true));
    let directory = mirror.directory().expect("changed");
    assert!(directory.complete && directory.pod_groups);
    assert_eq!(directory.namespaces.len(), 1);
}

#[test]
fn a_gpu_fraction_of_a_pod_that_requests_a_whole_device_counts_as_one() {
    let caps = Caps { assumed_fractions: true, ..Caps::default() };
    let mut mirror = labelled().capped(caps);
    let containers = json!([{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]);
    let asks = |version, containers: Value| {
        saw_job(
            version,
            json!({
                "metadata": {"annotations": {"sluice.dev/gpu-fraction": "0.5"}},
                "spec": {"template": {"spec": {"containers": containers}}},
            }),
        )
    };
    let gpus = |events: Vec<Event>| applied(&events).shape.requests["nvidia.com/gpu"].to_string();
    assert_eq!(gpus(mirror.take(asks(1, containers))), "1");
    assert_eq!(gpus(mirror.take(asks(2, json!([])))), "500m");

    let mut strict = labelled();
    let whole = json!([{"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}]);
    assert_eq!(gpus(strict.take(asks(1, whole))), "1");
    let waits = applied(&strict.take(asks(2, json!([])))).state.clone();
    assert!(
        matches!(&waits, Observed::Unready(Unready::Uncounted(why)) if why.contains("would get no GPU")),
        "{waits:?}"
    );
}

#[test]
fn the_places_of_pods_outlive_the_cache_as_long_as_their_jobs_exist() {
    let record = RECORD.replacen('{', r#"{"done":"","#, 1);
    let admitted = json!({
        "metadata": {"annotations": {"sluice.dev/admission": record}},
        "spec": {"suspend": false, "completionMode": "Indexed", "template": {"spec": {
            "schedulingGates": [{"name": "sluice.dev/placement"}]}}},
    });
    let mut first = labelled();
    let places = first.places().clone();
    first.take(saw_job(1, admitted.clone()));
    let known = || places.of("job").is_some_and(|seats| seats.node_of(0).is_some());
    assert!(known());
    let list = |listed: Option<Value>| {
        let mut next = Mirror::new(Kinds::default(), places.clone());
        next.take(Change::Job(Seen::ListBegins));
        assert!(known(), "the list may have it");
        listed.map(|change| next.take(saw_job(2, change)));
        next.take(Change::Job(Seen::ListEnds));
    };
    list(Some(admitted));
    assert!(known());
    list(None);
    assert!(!known(), "it is deleted");
    first.take(saw_job(3, json!({})));
    assert!(!known(), "it waits again");
}

#[test]
fn a_replay_has_the_last_event_of_everything_in_a_team() {
    let status = json!({"decayedAt": "2026-11-21T08:00:00Z", "runLengthsAt": "2026-11-21T08:00:00Z",
        "runLengths": [{"queue": "train", "milliDevices": 8000, "runs": 2, "seconds": [60, 90]}],
        "pools": [{"pool": "p", "decayedUsage": {"nvidia.com/gpu": "3"}}]});
    let vision = json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Team",
        "metadata": {"name": "vision"}, "spec": {}, "status": status});
    let vision = team(&serde_json::from_value(vision).expect("a Team")).expect("readable");
    let n1 = node(&serde_json::from_value(json!({"metadata": {"name": "n1"}})).expect("a node"));
    let two = RECORD.replace(":1", ":2");
    let admitted = json!({"metadata": {"annotations": {"sluice.dev/admission": two}},
        "spec": {"suspend": false, "parallelism": 2}});
    let elsewhere = json!({"metadata": {"uid": "elsewhere", "namespace": "elsewhere"}});
    let mut mirror = Mirror::default();
    let mut last: BTreeMap<String, Event> = BTreeMap::new();
    for change in [
        saw_namespace(Some("vision")),
        Change::Team(Seen::Object("vision".into(), vision)),
        Change::Node(Seen::Object("n1".into(), n1)),
        saw_job(1, json!({})),
        saw_job(2, elsewhere),
        saw_job(3, admitted),
        saw_pod(4, "Pending"),
        saw_pod(5, "Running"),
    ] {
        for event in mirror.take(change) {
            last.insert(format!("{:?}", std::mem::discriminant(&event)), event);
        }
    }
    assert_eq!(last.len(), 7, "team, past usage, run lengths, node, Job, pod and ready pods: {last:?}");
    let replayed = mirror.replay();
    assert_eq!(replayed.len(), last.len(), "{replayed:?}");
    let text = |event: &Event| format!("{event:?}");
    let replayed: BTreeSet<String> = replayed.iter().map(text).collect();
    assert_eq!(replayed, last.values().map(text).collect());
}
