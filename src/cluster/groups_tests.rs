//! Pods of a group that come, start and go, seen through the mirror.

use serde_json::{Value, json};

use crate::api::names;
use crate::cluster::mirror::{Change, Mirror};
use crate::cluster::reduce::team::NamespaceSeen;
use crate::cluster::table::Seen;
use crate::cluster::target::pod::pod;
use crate::directory::Membership;
use crate::engine::types::{Event, Observed, Unready, Workload, WorkloadId, WorkloadKind};

/// A namespace of a team, and the last version that any pod in it had.
struct Stage {
    mirror: Mirror,
    version: u32,
}

impl Stage {
    fn new() -> Self {
        let mut mirror = Mirror::default();
        let membership = Some(Membership { team: "vision".into(), queue: None });
        let seen = NamespaceSeen { name: "ns".into(), membership };
        mirror.take(Change::Namespace(Seen::Object("ns".into(), seen)));
        Self { mirror, version: 0 }
    }

    /// A pod of the group of three, made in that second, is seen.
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
        told(&self.mirror.take(Change::Pod(Seen::Object(seen.uid.clone(), seen))))
    }

    fn gone(&mut self, uid: &str) -> Vec<String> {
        told(&self.mirror.take(Change::Pod(Seen::Deleted(uid.into()))))
    }
}

/// A pod that was admitted with the others of its group.
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

/// What the engine is told, in short words, but for how many pods are up.
fn told(events: &[Event]) -> Vec<String> {
    let word = |event: &Event| match event {
        Event::WorkloadApplied(workload) => {
            let Workload { id, kind, pods, state, .. } = workload;
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
fn a_group_is_queued_when_all_of_its_pods_are_there() {
    let mut stage = Stage::new();
    assert_eq!(stage.see("a", 1, json!({})), ["PodGroup group/a: 1 pods, 1/3"]);
    assert_eq!(stage.see("b", 2, json!({})), ["PodGroup group/a: 2 pods, 2/3"]);
    assert_eq!(stage.see("c", 3, json!({})), ["PodGroup group/a: 3 pods, queued"]);
    let id = WorkloadId("group/a".into());
    let (managed, _) = stage.mirror.workload(&id).expect("it is a workload");
    let Workload { kind, name, team, submitted, .. } = &managed.workload;
    assert_eq!((kind, &**name, &**team), (&WorkloadKind::PodGroup, "g", "vision"));
    assert_eq!(submitted.0 % 60_000, 3_000, "it is submitted when it is complete");
    // One more than needed starts with the others and costs them no place; one that differs holds all.
    assert_eq!(stage.see("d", 9, json!({})), ["PodGroup group/a: 4 pods, queued"]);
    assert_eq!(stage.mirror.workload(&id).expect("it is").0.workload.submitted.0 % 60_000, 3_000);
    let larger = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}});
    assert_eq!(stage.see("d", 9, larger), ["PodGroup group/a: 4 pods, unlike"]);
    assert_eq!(stage.gone("d"), ["PodGroup group/a: 3 pods, queued"]);
    // Who the workload is stays, whoever goes: it may be being admitted.
    assert_eq!(stage.gone("a"), ["PodGroup group/a: 2 pods, 2/3"]);
    stage.gone("b");
    assert_eq!(stage.gone("c"), ["group/a removed"]);
}

#[test]
fn half_an_admission_is_known_for_what_it_is() {
    // A replica that has just begun sees one pod that runs, and two that are still gated.
    let mut stage = Stage::new();
    let id = WorkloadId("group/a".into());
    assert_eq!(
        stage.see("a", 1, released(all())),
        ["PodGroup group/a: 1 pods, admitted with 3", "pod a of group/a"]
    );
    assert_eq!(stage.see("b", 2, json!({})), ["PodGroup group/a: 2 pods, admitted with 3"]);
    stage.see("c", 3, json!({}));
    assert_eq!(stage.mirror.half_released().collect::<Vec<_>>(), [&id]);
    let left: Vec<&str> = stage.mirror.unreached(&id).map(|(managed, _)| &*managed.workload.name).collect();
    assert_eq!(left, ["b", "c"]);
    stage.see("b", 2, released(all()));
    stage.see("c", 3, released(all()));
    assert_eq!(stage.mirror.half_released().count(), 0);
}

#[test]
fn who_comes_later_is_by_itself_and_the_rest_goes_on_without_those_who_end() {
    let mut stage = Stage::new();
    for (uid, second) in [("a", 1), ("b", 2), ("c", 3)] {
        stage.see(uid, second, released(all()));
    }
    assert_eq!(stage.see("late", 9, json!({})), ["Pod late: 1 pods, queued"]);
    let over = ended(released(all()), "Failed");
    assert_eq!(stage.see("a", 1, over), ["PodGroup group/a: 2 pods, admitted with 3", "pod a gone"]);
    assert_eq!(stage.gone("b"), ["PodGroup group/a: 1 pods, admitted with 3", "pod b gone"]);
    let over = ended(released(all()), "Succeeded");
    assert_eq!(stage.see("c", 3, over), ["PodGroup group/a: 0 pods, finished", "pod c gone"]);
    // It was queued by itself, and stays so; those who come now are a group again, which counts it once
    // it runs.
    assert_eq!(stage.see("x", 20, json!({})), ["PodGroup group/x: 1 pods, 1/3"]);
    assert_eq!(stage.see("y", 21, json!({})), ["PodGroup group/x: 2 pods, 2/3"]);
    let own = r#"{"pool":"p","nodes":{"n1":1},"pods":1,"borrowed":false,"at":"2026-11-21T09:00:00Z"}"#;
    let own =
        json!({"metadata": {"annotations": {names::ADMISSION: own}}, "spec": {"schedulingGates": null}});
    let told = stage.see("late", 9, own);
    assert!(told.contains(&"PodGroup group/x: 2 pods, queued".to_owned()), "{told:?}");
    assert!(told.contains(&"Pod late: 1 pods, admitted with 1".to_owned()), "{told:?}");
}

#[test]
fn a_group_made_anew_while_the_old_one_ends_is_another() {
    let mut stage = Stage::new();
    for (uid, second) in [("a", 1), ("b", 2), ("c", 3)] {
        stage.see(uid, second, released(all()));
    }
    for (uid, second) in [("a", 1), ("b", 2), ("c", 3)] {
        let mut ending = released(all());
        ending["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z".into();
        stage.see(uid, second, ending);
    }
    assert_eq!(stage.see("x", 30, json!({})), ["PodGroup group/x: 1 pods, 1/3"]);
    stage.gone("a");
    stage.gone("b");
    assert_eq!(stage.gone("c"), ["group/a removed", "pod c gone"]);
    assert_eq!(stage.see("y", 30, json!({})), ["PodGroup group/x: 2 pods, 2/3"]);
}

#[test]
fn a_pod_may_join_a_group_while_it_waits() {
    let mut stage = Stage::new();
    let alone = json!({"metadata": {"labels": {names::GROUP: null}}});
    assert_eq!(stage.see("a", 1, alone.clone()), ["Pod a: 1 pods, queued"]);
    assert_eq!(stage.see("a", 1, json!({})), ["a removed", "PodGroup group/a: 1 pods, 1/3"]);
    let told = stage.see("a", 1, alone);
    assert!(told.contains(&"group/a removed".to_owned()), "{told:?}");
    assert!(told.contains(&"Pod a: 1 pods, queued".to_owned()), "{told:?}");
}

#[test]
fn a_group_follows_the_team_of_its_namespace() {
    let mut stage = Stage::new();
    stage.see("a", 1, json!({}));
    let none = NamespaceSeen { name: "ns".into(), membership: None };
    let events = stage.mirror.take(Change::Namespace(Seen::Object("ns".into(), none)));
    assert_eq!(told(&events), ["group/a removed"]);
}
