//! A pod as the engine sees it: what it holds, and whether it is a workload of its own.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;

use super::super::wire;
use super::claims::{Claims, claims};
use super::replica::replica;
use super::shape::{requests, shape};
use super::{
    Facts, Managed, annotation, controller, created, eviction, gates, label, name, owning_job, record,
    share_device, uid, version, wishes,
};
use crate::api::affinity::aim;
use crate::api::names;
use crate::api::record::{Group, time};
use crate::engine::types::amount::ResourceList;
use crate::engine::types::{
    Admission, Name, Observed, Pod, PodId, PodShape, Time, Workload, WorkloadId, WorkloadKind,
};

/// What one look at a pod gives.
#[derive(Clone, Debug)]
pub struct PodSeen {
    /// Its UID.
    pub uid: Name,
    /// Its version.
    pub version: u64,
    /// Its name.
    pub name: Name,
    /// Who made it.
    pub controller: Option<Box<OwnerReference>>,
    /// The workload it belongs to while it has not ended.
    pub belongs: Option<WorkloadId>,
    /// What it holds; `None` once it has ended, or while nothing counts on it.
    pub holds: Option<Pod>,
    /// Whether it is ready, and not about to end.
    pub ready: bool,
    /// Whether it has come to its end with success.
    pub succeeded: bool,
    /// The workload it is by itself, if Sluice's gate is or was on it.
    pub managed: Option<Box<Managed>>,
    /// The group it says it belongs to, if it is managed.
    pub group: Option<Box<Membership>>,
    /// What it holds by claims; the mirror counts it.
    pub claims: Option<Box<Claims>>,
    /// How it comes to its place, if a Job has made it and it has not ended.
    pub way: Option<Box<Way>>,
}

/// How a pod of a Job comes to its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Its namespace.
    pub namespace: Name,
    /// Its number, where its Job gives any.
    pub index: Option<u32>,
    /// The gates that hold it.
    pub gates: Vec<Name>,
    /// Its affinity, while Sluice's gate waits for a place to be written there.
    pub affinity: Option<Box<str>>,
    /// The one node it may go to, if it has none yet.
    pub aim: Option<Name>,
    /// What kube-scheduler says while it finds that it cannot go there.
    pub refused: Option<Box<str>>,
    /// Whether it is about to end.
    pub ending: bool,
}

impl Way {
    /// Whether it waits for a place to be written in.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.gates.iter().any(|gate| &**gate == names::GATE_PLACEMENT)
    }
}

/// A pod's place in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The group's name.
    pub name: Name,
    /// How many pods the group has at least before any of it starts.
    pub size: u32,
    /// Those with whom it was admitted, once it was.
    pub admitted: Option<Group>,
}

/// Reduces a pod.
#[must_use]
pub fn pod(pod: &wire::Pod) -> PodSeen {
    let mut managed = managed(pod);
    let waits = managed.as_ref().is_some_and(|managed| managed.workload.state == Observed::Queued);
    let group = managed.as_ref().and_then(|_| membership(&pod.metadata));
    if let Some(claims) = managed.as_mut().and_then(|managed| managed.claims.as_deref_mut()) {
        claims.grouped = group.is_some();
    }
    let together = group.as_ref().and_then(|group| group.admitted.as_ref());
    let workload = match &managed {
        Some(managed) => Some(match together {
            Some(group) => WorkloadId(group.id.as_str().into()),
            None => managed.workload.id.clone(),
        }),
        None => owning_job(&pod.metadata).map(WorkloadId),
    };
    let counts = !ended(pod) && !waits && (pod.spec.node_name.is_some() || workload.is_some());
    let requests = if counts { requests(&pod.spec) } else { ResourceList::new() };
    PodSeen {
        claims: counts.then(|| claimed(pod, &requests)).flatten(),
        uid: uid(&pod.metadata),
        version: version(&pod.metadata),
        name: name(pod.metadata.name.as_ref()),
        controller: controller(&pod.metadata).cloned().map(Box::new),
        belongs: workload.clone().filter(|_| counts),
        holds: counts.then(|| Pod {
            id: PodId(uid(&pod.metadata)),
            workload,
            node: pod.spec.node_name.as_deref().map(Name::from),
            requests,
        }),
        ready: counts && pod.metadata.deletion_timestamp.is_none() && is_ready(pod),
        succeeded: pod.status.phase.as_deref() == Some("Succeeded"),
        way: (counts && managed.is_none()).then(|| way(pod)).flatten(),
        managed,
        group,
    }
}

/// What a pod claims, beside what it requests.
fn claimed(pod: &wire::Pod, requests: &ResourceList) -> Option<Box<Claims>> {
    let namespace = name(pod.metadata.namespace.as_ref());
    let roles = vec![claims(&pod.spec, Some(&pod.status))];
    Claims::of_template(&namespace, roles, requests, &[])
}

/// Its group as its label, its annotation and the record say; without a size it is a pod like any other.
fn membership(metadata: &ObjectMeta) -> Option<Box<Membership>> {
    let name = label(metadata, names::GROUP)?;
    let size = annotation(metadata, names::GROUP_SIZE)?.trim().parse().ok().filter(|size| *size > 0)?;
    let admitted = record(metadata).and_then(|record| record.group);
    Some(Box::new(Membership { name, size, admitted }))
}

/// The annotation in which the Job controller writes a pod's number.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// How kube-scheduler begins what it says of a pod that could start, but for another of its PodGroup that cannot.
const FOR_ANOTHER: &str = "pod group is unschedulable";

fn way(pod: &wire::Pod) -> Option<Box<Way>> {
    owning_job(&pod.metadata)?;
    let gates = gates(&pod.spec);
    let affinity = pod.spec.affinity.as_ref();
    let waits = gates.iter().any(|gate| &**gate == names::GATE_PLACEMENT);
    let open = pod.spec.node_name.is_none();
    let mut conditions = pod.status.conditions.iter().flatten();
    let refused = conditions.find(|condition| {
        (&*condition.type_, &*condition.status, &*condition.reason)
            == ("PodScheduled", "False", "Unschedulable")
            && !condition.message.starts_with(FOR_ANOTHER)
    });
    Some(Box::new(Way {
        namespace: name(pod.metadata.namespace.as_ref()),
        index: annotation(&pod.metadata, INDEX).and_then(|index| index.parse().ok()),
        affinity: affinity.filter(|_| waits).map(|written| written.to_string().into()),
        aim: affinity.filter(|_| open && !waits).and_then(aim).map(Name::from),
        refused: refused.filter(|_| open).map(|condition| condition.message.as_str().into()),
        ending: pod.metadata.deletion_timestamp.is_some(),
        gates,
    }))
}

fn ended(pod: &wire::Pod) -> bool {
    matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

fn is_ready(pod: &wire::Pod) -> bool {
    let mut conditions = pod.status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn managed(pod: &wire::Pod) -> Option<Box<Managed>> {
    let metadata = &pod.metadata;
    let gates = gates(&pod.spec);
    let gated = gates.iter().any(|gate| &**gate == names::GATE_ADMISSION);
    let record = record(metadata);
    let eviction = eviction(metadata);
    let state = match &record {
        _ if ended(pod) || metadata.deletion_timestamp.is_some() => Observed::Finished,
        _ if gated => Observed::Queued,
        // Its kubelet has been told to end it; a pod of its own makes no others.
        Some(record) if eviction.is_some() => {
            let since = eviction.as_ref().map_or(Time(0), |eviction| time(eviction.at));
            Observed::Leaving { admission: Admission::from(record), since, stopped: true }
        }
        Some(record) => Observed::Admitted(Admission::from(record)),
        None => return None,
    };
    if !gated && record.is_none() {
        return None;
    }
    let over = state == Observed::Finished;
    let wishes = wishes(metadata, pod.spec.active_deadline_seconds);
    // Before admission the affinity is the user's; afterwards nothing asks for it again.
    let affinity = pod.spec.affinity.as_ref().filter(|_| gated);
    let mut shape = if over { PodShape::default() } else { shape(&pod.spec, affinity) };
    let share = wishes.share.filter(|_| !over);
    let whole_device = share.and_then(|share| share_device(&mut shape.requests, share));
    Some(Box::new(Managed {
        claims: claimed(pod, &shape.requests).filter(|_| !over),
        own_queue: label(metadata, names::QUEUE),
        class: pod
            .spec
            .priority_class_name
            .as_deref()
            .filter(|_| pod.spec.priority.is_none())
            .map(Name::from),
        facts: Facts {
            uid: uid(metadata),
            user_affinity: affinity.map(|written| written.to_string().into()),
            keeps_affinity: false,
            record: annotation(metadata, names::ADMISSION).map(Into::into),
            has_eviction: eviction.is_some(),
            held: gated,
            has_failure_policy: false,
            active: 0,
            terminating: 0,
            gates,
            done: None,
            seats: None,
            eviction,
            generation: None,
            parallelism: 1,
            wanted: 1,
            started: false,
            conditioned: false,
            failure: pod.status.reason.as_deref().filter(|_| over).map(Name::from),
            deleting: metadata.deletion_timestamp.is_some(),
            replica: replica(metadata),
            annotated: metadata.annotations.is_some(),
            whole_device,
            sizes: None,
            other: None,
            gang: None,
        },
        workload: Workload {
            id: WorkloadId(uid(metadata)),
            kind: WorkloadKind::Pod,
            namespace: name(metadata.namespace.as_ref()),
            name: name(metadata.name.as_ref()),
            team: "".into(),
            queue: None,
            priority: pod.spec.priority.unwrap_or(0),
            submitted: created(metadata),
            pods: 1,
            shape,
            sizes: Vec::new(),
            pools: wishes.pools,
            resumable: false,
            expendable: wishes.expendable,
            time_limit: wishes.time_limit,
            last_checkpoint: wishes.last_checkpoint,
            checkpoint_interval: wishes.checkpoint_interval,
            min_pods: None,
            topology: wishes.topology,
            user: wishes.user,
            resizable: false,
            ran: None,
            state,
        },
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn seen(patch: Value) -> PodSeen {
        let mut object = json!({
            "metadata": {"name": "p", "namespace": "vision", "uid": "u1", "resourceVersion": "3"},
            "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Pending"},
        });
        json_patch::merge(&mut object, &patch);
        pod(&serde_json::from_value(object).expect("a pod"))
    }

    fn owned() -> Value {
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job", "controller": true}])
    }

    #[test]
    fn a_foreign_pod_counts_once_it_is_bound() {
        assert!(seen(json!({})).holds.is_none());
        let bound = seen(json!({"spec": {"nodeName": "n1"}})).holds.expect("holds");
        assert_eq!((bound.workload, bound.node.as_deref()), (None, Some("n1")));
    }

    #[test]
    fn a_pod_of_a_job_counts_from_the_start_to_the_end() {
        let owner = json!({"metadata": {"ownerReferences": owned()}});
        let waiting = seen(owner.clone()).holds.expect("holds");
        assert_eq!(waiting.workload, Some(WorkloadId("job".into())));
        for phase in ["Succeeded", "Failed"] {
            let mut ended = owner.clone();
            ended["status"] = json!({"phase": phase});
            assert!(seen(ended).holds.is_none(), "{phase}");
        }
        let mut ending = owner;
        ending["metadata"]["deletionTimestamp"] = "2026-11-21T09:00:00Z".into();
        assert!(seen(ending).holds.is_some(), "a terminating pod still holds its devices");
    }

    #[test]
    fn no_node_is_blamed_for_a_pod_that_waits_for_another_of_its_gang() {
        for (message, refused) in [
            ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", true),
            ("pod group is unschedulable, waiting for minCount pods from a gang to be scheduled", false),
        ] {
            let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": message});
            let waits =
                json!({"metadata": {"ownerReferences": owned()}, "status": {"conditions": [condition]}});
            let way = seen(waits).way.expect("it has no node yet");
            assert_eq!(way.refused.is_some(), refused, "{message}");
        }
    }

    #[test]
    fn a_gated_pod_is_a_workload_that_waits() {
        let gates = json!([{"name": names::GATE_ADMISSION}, {"name": "example.com/other"}]);
        let gated =
            seen(json!({"spec": {"schedulingGates": gates, "priority": 7, "priorityClassName": "x"}}));
        assert!(gated.holds.is_none());
        let managed = gated.managed.expect("managed");
        assert_eq!(managed.workload.state, Observed::Queued);
        assert_eq!((managed.workload.priority, managed.class), (7, None));
        assert!(!managed.workload.resumable);
        assert_eq!(managed.facts.gates.len(), 2);
    }

    #[test]
    fn only_a_user_makes_a_pod_expendable() {
        let gates = json!([{"name": names::GATE_ADMISSION}]);
        for (text, expected) in [("true", true), ("false", false), ("yes", false)] {
            let notes = json!({names::PREEMPTIBLE: text});
            let seen = seen(json!({"metadata": {"annotations": notes}, "spec": {"schedulingGates": gates}}));
            assert_eq!(seen.managed.expect("managed").workload.expendable, expected, "{text}");
        }
    }

    #[test]
    fn an_admitted_pod_holds_its_room_until_it_ends() {
        let record = r#"{"pool":"p","nodes":{"n1":1},"pods":1,"borrowed":false,"at":"2026-11-21T08:00:00Z"}"#;
        let marks = json!({"metadata": {"annotations": {names::ADMISSION: record}}});
        let running = seen(marks.clone());
        assert!(running.holds.is_some());
        let state = running.managed.expect("managed").workload.state;
        assert!(matches!(state, Observed::Admitted(_)));
        let mut ended = marks;
        ended["status"] = json!({"phase": "Failed"});
        let ended = seen(ended);
        assert!(ended.holds.is_none());
        assert_eq!(ended.managed.expect("managed").workload.state, Observed::Finished);
    }
}
