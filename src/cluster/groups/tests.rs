//! Pods of a group that are created, admitted and deleted, seen through the cache.

use serde_json::{Value, json};

use crate::api::names;
use crate::cluster::mirror::{Change, Mirror};
use crate::cluster::reduce::team::NamespaceSeen;
use crate::cluster::table::Seen;
use crate::cluster::target::pod::pod;
use crate::directory::Membership;
use crate::engine::types::{Event, Observed, Unready, Workload, WorkloadId, WorkloadKind};

/// A namespace of a team, and the last resource version of any pod in it.
struct Namespace {
    mirror: Mirror,
    version: u32,
}

impl Namespace {
    fn new() -> Self {
        let mut mirror = Mirror::default();
        let membership = Some(Membership { team: "vision".into(), queue: None });
        let seen = NamespaceSeen { name: "ns".into(), membership, since: None };
        mirror.take(Change::Namespace(Seen::Object("ns".into(), seen)));
        Self { mirror, version: 0 }
    }

    /// Shows the cache a pod of the group of three, created in the given second.
    fn see(&mut self, uid: &str, second: u32, change: Value) -> Vec<String> {
        self.version += 1;
        let mut object = json!({
            "metadata": {"name": uid, "namespace": "ns", "uid": uid, "resourceVersion": self.version.to_string(),
                "labels": {names::GROUP: "g"}, "annotations": {names::GROUP_SIZE: "3"},
                "creationTimestamp": format!("2026-11-21T08:00:{second:02}Z")},
            "spec": {"containers": [], "schedulingGates": [{"name": names::GATE_ADMISSION}]},
        });
        json_patch::merge(&mut object, &change);
        let seen = pod(&serde_json::from_value(object).expect("a pod"));
        reported(&self.mirror.take(Change::Pod(Seen::Object(seen.uid.clone(), seen))))
    }

    fn gone(&mut self, uid: &str) -> Vec<String> {
        reported(&self.mirror.take(Change::Pod(Seen::Deleted(uid.into()))))
    }
}

/// The change of an admitted, ungated pod; `members` are the nodes of the pods of its group.
fn released(members: Value) -> Value {
    let record = json!({"pool": "p", "nodes": {"n1": 2, "n2": 1}, "pods": 3, "borrowed": false,
        "at": "2026-11-21T09:00:00Z", "group": {"id": "group/a", "members": members}});
    json!({"metadata": {"annotations": {names::ADMISSION: record.to_string()}},
        "spec": {"schedulingGates": null}})
}

fn all() -> Value {
    json!({"a": "n1", "b": "n1", "c": "n2"})
}

fn ended(mut change: Value, phase: &str) -> Value {
    change["status"] = json!({"phase": phase});
    change
}

/// The events for the engine in short form, without the numbers of ready pods.
fn reported(events: &[Event]) -> Vec<String> {
    let word = |event: &Event| match event {
        Event::WorkloadApplied(workload) => {
            let Workload { id, kind, pods, state, .. } = &**workload;
            let state = match state {
                Observed::Unready(Unready::Missing { there, of }) => format!("{there}/{of}"),
                Observed::Unready(Unready::Unlike) => "unlike".to_owned(),
                Observed::Queued => "queued".to_owned(),
                Observed::Admitted(admission) => format!("admitted with {}", admission.pods),
                Observed::Finished => "finished".to_owned(),
                other => format!("{other:?}"),
            };
            format!("{kind} {id}: {pods} pods, {state}")
        }
        Event::WorkloadRemoved(id) => format!("{id} removed"),
        Event::PodApplied(pod) => {
            let owner = pod.workload.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("pod {} of {owner}", pod.id.0)
        }
        Event::PodRemoved(id) => format!("pod {} gone", id.0),
        other => format!("{other:?}"),
    };
    let of_pods_up = |event: &&Event| matches!(event, Event::PodsReady(_));
    events.iter().filter(|event| !of_pods_up(event)).map(word).collect()
}

#[test]
fn a_group_is_queued_when_all_of_its_pods_exist() {
    let mut namespace = Namespace::new();
    assert_eq!(namespace.see("a", 1, json!({})), ["PodGroup group/a: 1 pods, 1/3"]);
    assert_eq!(namespace.see("b", 2, json!({})), ["PodGroup group/a: 2 pods, 2/3"]);
    assert_eq!(namespace.see("c", 3, json!({})), ["PodGroup group/a: 3 pods, queued"]);
    let id = WorkloadId("group/a".into());
    let (managed, _) = namespace.mirror.workload(&id).expect("it is a workload");
    let Workload { kind, name, team, submitted, .. } = &*managed.workload;
    assert_eq!((kind, &**name, &**team), (&WorkloadKind::PodGroup, "g", "vision"));
    assert_eq!(submitted.0 % 60_000, 3_000, "a group is submitted when its last pod is created");
    // An extra pod starts with the group and keeps their queue position; a pod that differs blocks all.
    assert_eq!(namespace.see("d", 9, json!({})), ["PodGroup group/a: 4 pods, queued"]);
    assert_eq!(namespace.mirror.workload(&id).expect("it is").0.workload.submitted.0 % 60_000, 3_000);
    let larger = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}});
    assert_eq!(namespace.see("d", 9, larger), ["PodGroup group/a: 4 pods, unlike"]);
    assert_eq!(namespace.gone("d"), ["PodGroup group/a: 3 pods, queued"]);
    // The workload's ID stays when a pod is deleted: its admission may be in flight.
    assert_eq!(namespace.gone("a"), ["PodGroup group/a: 2 pods, 2/3"]);
    namespace.gone("b");
    assert_eq!(namespace.gone("c"), ["group/a removed"]);
}

#[test]
fn the_gated_pods_of_a_half_written_admission_are_found() {
    // A new replica lists one running pod and two gated pods.
    let mut namespace = Namespace::new();
    let id = WorkloadId("group/a".into());
    assert_eq!(
        namespace.see("a", 1, released(all())),
        ["PodGroup group/a: 1 pods, admitted with 3", "pod a of group/a"]
    );
    assert_eq!(namespace.see("b", 2, json!({})), ["PodGroup group/a: 2 pods, admitted with 3"]);
    namespace.see("c", 3, json!({}));
    assert_eq!(namespace.mirror.partly_admitted().collect::<Vec<_>>(), [&id]);
    let left: Vec<&str> =
        namespace.mirror.still_gated(&id).map(|(managed, _)| &*managed.workload.name).collect();
    assert_eq!(left, ["b", "c"]);
    namespace.see("b", 2, released(all()));
    namespace.see("c", 3, released(all()));
    assert_eq!(namespace.mirror.partly_admitted().count(), 0);
}

#[test]
fn a_late_pod_is_its_own_workload_and_a_group_outlives_pods_that_end() {
    let mut namespace = Namespace::new();
    for (uid, second) in [("a", 1), ("b", 2), ("c", 3)] {
        namespace.see(uid, second, released(all()));
    }
    assert_eq!(namespace.see("late", 9, json!({})), ["Pod late: 1 pods, queued"]);
    let over = ended(released(all()), "Failed");
    assert_eq!(namespace.see("a", 1, over), ["PodGroup group/a: 2 pods, admitted with 3", "pod a gone"]);
    assert_eq!(namespace.gone("b"), ["PodGroup group/a: 1 pods, admitted with 3", "pod b gone"]);
    let over = ended(released(all()), "Succeeded");
    assert_eq!(namespace.see("c", 3, over), ["PodGroup group/a: 0 pods, finished", "pod c gone"]);
    // The late pod stays its own workload. New pods form a group again; the late pod counts once it runs.
    assert_eq!(namespace.see("x", 20, json!({})), ["PodGroup group/x: 1 pods, 1/3"]);
    assert_eq!(namespace.see("y", 21, json!({})), ["PodGroup group/x: 2 pods, 2/3"]);
    let own = r#"{"pool":"p","nodes":{"n1":1},"pods":1,"borrowed":false,"at":"2026-11-21T09:00:00Z"}"#;
    let own =
        json!({"metadata": {"annotations": {names::ADMISSION: own}}, "spec": {"schedulingGates": null}});
    let reported = namespace.see("late", 9, own);
    assert!(reported.contains(&"PodGroup group/x: 2 pods, queued".to_owned()), "{reported:?}");
    assert!(reported.contains(&"Pod late: 1 pods, admitted with 1".to_owned()), "{reported:?}");
}

#[test]
fn a_group_created_again_while_the_old_one_ends_is_a_new_workload() {
    let mut namespace = Namespace::new();
    for (uid, second) in [("a", 1), ("b", 2), ("c", 3)] {
        namespace.see(uid, second, released(all()));
    }
    for (uid, second) in [("a", 1), ("b", 2), ("c", 3)] {
        let mut ending = released(all());
        ending["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z".into();
        namespace.see(uid, second, ending);
    }
    assert_eq!(namespace.see("x", 30, json!({})), ["PodGroup group/x: 1 pods, 1/3"]);
    namespace.gone("a");
    namespace.gone("b");
    assert_eq!(namespace.gone("c"), ["group/a removed", "pod c gone"]);
    assert_eq!(namespace.see("y", 30, json!({})), ["PodGroup group/x: 2 pods, 2/3"]);
}

#[test]
fn a_pod_may_join_a_group_while_it_waits() {
    let mut namespace = Namespace::new();
    let alone = json!({"metadata": {"labels": {names::GROUP: null}}});
    assert_eq!(namespace.see("a", 1, alone.clone()), ["Pod a: 1 pods, queued"]);
    assert_eq!(namespace.see("a", 1, json!({})), ["a removed", "PodGroup group/a: 1 pods, 1/3"]);
    let reported = namespace.see("a", 1, alone);
    assert!(reported.contains(&"group/a removed".to_owned()), "{reported:?}");
    assert!(reported.contains(&"Pod a: 1 pods, queued".to_owned()), "{reported:?}");
}

#[test]
fn a_group_follows_the_team_of_its_namespace() {
    let mut namespace = Namespace::new();
    namespace.see("a", 1, json!({}));
    let none = NamespaceSeen { name: "ns".into(), membership: None, since: None };
    let events = namespace.mirror.take(Change::Namespace(Seen::Object("ns".into(), none)));
    assert_eq!(reported(&events), ["group/a removed"]);
}
