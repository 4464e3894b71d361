//! A pod: the resources it holds, the workload it is by itself, and the patches on it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;

use self::replica::{Replica, replica};
use super::super::reduce;
use super::super::reduce::claims::{Claims, claims};
use super::super::reduce::counts::{counts, with_metadata};
use super::super::reduce::shape::{grace, requests, shape};
use super::super::reduce::{annotation, controller, created, label, name, uid, version};
use super::super::wire;
use super::gpu_fraction::{request_gpu, take_fraction};
use super::marks::{Marks, Requests, record};
use super::{Facts, Managed, Past, Suspension, Target, gates};
use crate::api::affinity::aim;
use crate::api::caps::Counts;
use crate::api::names;
use crate::api::record::{Group, time};
use crate::engine::types::amount::ResourceList;
use crate::engine::types::{
    Admission, Name, Observed, Pod, PodId, PodShape, Profile, Time, Unadmitted, Workload, WorkloadId,
    WorkloadKind,
};

mod patch;
pub mod replica;

pub(super) use patch::fail;
pub use patch::{delete_first, disown, disruption, eviction};

/// Facts that only a pod has that is a workload by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// The user's affinity as JSON.
    pub user_affinity: Option<Box<str>>,
    /// The scheduling gates.
    pub gates: Vec<Name>,
    /// Whether it has any annotation.
    pub annotated: bool,
    /// The Deployment it belongs to.
    pub replica: Option<Box<Replica>>,
}

/// A pod as last seen.
#[derive(Clone, Debug)]
pub struct PodSeen {
    /// The UID.
    pub uid: Name,
    /// The version.
    pub version: u64,
    /// The name.
    pub name: Name,
    /// The namespace.
    pub namespace: Name,
    /// When it was created.
    pub created: Time,
    /// Whether it mirrors a static pod, which its kubelet runs whatever the API server says.
    pub mirrors: bool,
    /// Whether it is about to end.
    pub ending: bool,
    /// Whether it needs no device in a workload that does: the requests of such pods are part of the others'.
    pub rides_along: bool,
    /// Whether its workload is deleted while nothing ends the pod: a finalizer keeps the object of the workload.
    pub left: bool,
    /// The grace period it was deleted with and its own, where the first is longer.
    pub stretched: Option<Stretched>,
    /// The owner that controls it.
    pub controller: Option<Box<OwnerReference>>,
    /// The workload it belongs to while it has not ended.
    pub belongs: Option<WorkloadId>,
    /// The resources it holds; `None` once it has ended, or while it waits for admission.
    pub holds: Option<Pod>,
    /// Whether it is ready and not about to end.
    pub ready: bool,
    /// Whether it has ended with success.
    pub succeeded: bool,
    /// The workload it is by itself: without a Job, it has or had a gate of Sluice.
    pub managed: Option<Box<Managed>>,
    /// Its group, if it is managed.
    pub group: Option<Box<Membership>>,
    /// The devices it holds by claims; the cache counts them.
    pub claims: Option<Box<Claims>>,
    /// How it reaches its node, if it is a Job's and has not ended.
    pub way: Option<Box<Way>>,
}

/// The grace period of a pod that was deleted with a longer one than its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretched {
    /// The one it was deleted with.
    pub given: Duration,
    /// Its own.
    pub own: Duration,
}

/// How a pod of a Job reaches its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The namespace.
    pub namespace: Name,
    /// The index, where the Job gives its pods indexes.
    pub index: Option<u32>,
    /// The gates that hold it.
    pub gates: Vec<Name>,
    /// Its affinity, while Sluice's gate waits for a node to be written there.
    pub affinity: Option<Box<str>>,
    /// The one node its affinity names, while it is not bound.
    pub aim: Option<Name>,
    /// The message of kube-scheduler while it finds no way to bind it.
    pub refused: Option<Box<str>>,
    /// Whether it is about to end.
    pub ending: bool,
}

impl Way {
    /// Whether its gate waits for a node.
    #[must_use]
    pub fn waits(&self) -> bool {
        gates::has(&self.gates, names::GATE_PLACEMENT)
    }
}

/// The membership of a pod in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The name of the group.
    pub name: Name,
    /// The fewest pods with which the group starts.
    pub size: u32,
    /// The pods it was admitted with, once it was.
    pub admitted: Option<Group>,
}

/// Reads a pod.
#[must_use]
pub fn pod(pod: &wire::Pod) -> PodSeen {
    let mut managed = managed(pod);
    let waits = managed.as_ref().is_some_and(|managed| managed.workload.state == Observed::Queued);
    let group = managed.as_ref().and_then(|_| membership(&pod.metadata));
    if let Some(claims) = managed.as_mut().and_then(|managed| managed.claims.as_deref_mut()) {
        claims.grouped = group.is_some();
    }
    let workload = owner(pod, managed.as_deref(), group.as_deref());
    let counts = !ended(pod) && !waits && (pod.spec.node_name.is_some() || workload.is_some());
    let requests = if counts { requests(&pod.spec) } else { ResourceList::new() };
    PodSeen {
        claims: counts.then(|| claimed(pod, &requests)).flatten(),
        uid: uid(&pod.metadata),
        version: version(&pod.metadata),
        name: name(pod.metadata.name.as_ref()),
        namespace: name(pod.metadata.namespace.as_ref()),
        created: created(&pod.metadata),
        mirrors: annotation(&pod.metadata, MIRROR).is_some(),
        ending: pod.metadata.deletion_timestamp.is_some(),
        rides_along: false,
        left: false,
        stretched: stretched(pod),
        controller: controller(&pod.metadata).cloned().map(Box::new),
        belongs: workload.clone().filter(|_| counts),
        holds: counts.then(|| Pod {
            id: PodId(uid(&pod.metadata)),
            workload,
            node: pod.spec.node_name.as_deref().map(Name::from),
            requests,
            profile: Some(profile(pod)),
            // The cache knows the team of the namespace.
            unadmitted: None,
        }),
        ready: counts && pod.metadata.deletion_timestamp.is_none() && is_ready(pod),
        succeeded: pod.status.phase.as_deref() == Some("Succeeded"),
        way: (counts && managed.is_none()).then(|| way(pod)).flatten(),
        managed,
        group,
    }
}

fn profile(pod: &wire::Pod) -> Arc<Profile> {
    let (metadata, spec) = (&pod.metadata, &pod.spec);
    reduce::profile::profile(
        metadata.namespace.as_ref(),
        metadata.labels.as_ref(),
        spec,
        spec.affinity.as_ref(),
    )
}

/// The workload of a pod: the group it was admitted with, itself, or the Job that made it.
fn owner(pod: &wire::Pod, managed: Option<&Managed>, group: Option<&Membership>) -> Option<WorkloadId> {
    let Some(managed) = managed else { return owning_job(&pod.metadata).map(WorkloadId) };
    let together = group.and_then(|group| group.admitted.as_ref());
    Some(together.map_or_else(|| managed.workload.id.clone(), |group| WorkloadId(group.id.as_str().into())))
}

/// The UID of the Job that made the object.
fn owning_job(metadata: &ObjectMeta) -> Option<Name> {
    controller(metadata).filter(|owner| owner.kind == "Job").map(|owner| owner.uid.as_str().into())
}

/// The devices that a pod claims beside its requests.
fn claimed(pod: &wire::Pod, requests: &ResourceList) -> Option<Box<Claims>> {
    let namespace = name(pod.metadata.namespace.as_ref());
    let roles = vec![claims(&pod.spec, Some(&pod.status))];
    Claims::of_template(&namespace, roles, requests, &[])
}

/// The group of a pod by its label, annotation and record; a pod without a group size is a workload by itself.
fn membership(metadata: &ObjectMeta) -> Option<Box<Membership>> {
    let name = label(metadata, names::GROUP)?;
    let size = annotation(metadata, names::GROUP_SIZE)?.trim().parse().ok().filter(|size| *size > 0)?;
    // The identity of a group is derived from its own pods; any other would name a foreign workload.
    let own = |group: &Group| group.id.starts_with(OWN_GROUP);
    let admitted = record(metadata).and_then(|record| record.group).filter(own);
    Some(Box::new(Membership { name, size, admitted }))
}

/// What the identity of a group of pods begins with; the UID of one of its pods follows.
pub const OWN_GROUP: &str = "group/";

/// The annotation on the image of a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The annotation in which the Job controller writes a pod's index.
const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The start of kube-scheduler's message about a pod that could be bound, but for another pod of its PodGroup.
const FOR_ANOTHER: &str = "pod group is unschedulable";

fn way(pod: &wire::Pod) -> Option<Box<Way>> {
    owning_job(&pod.metadata)?;
    let gates = gates::of(&pod.spec);
    let affinity = pod.spec.affinity.as_ref();
    let waits = gates::has(&gates, names::GATE_PLACEMENT);
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

fn stretched(pod: &wire::Pod) -> Option<Stretched> {
    let given = pod.metadata.deletion_grace_period_seconds?;
    let given = Duration::from_secs(u64::try_from(given).ok()?);
    let own = grace(&pod.spec);
    (given > own && !ended(pod)).then_some(Stretched { given, own })
}

fn ended(pod: &wire::Pod) -> bool {
    matches!(pod.status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

fn is_ready(pod: &wire::Pod) -> bool {
    let mut conditions = pod.status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The state of a pod that has a gate of Sluice or was admitted.
fn state(pod: &wire::Pod, marks: &Marks, gated: bool) -> Option<Observed> {
    let record = marks.record.as_ref();
    if !gated && record.is_none() {
        return None;
    }
    if ended(pod) || pod.metadata.deletion_timestamp.is_some() {
        return Some(Observed::Finished);
    }
    if gated {
        return Some(Observed::Queued);
    }
    let admission = record.map(Admission::from)?;
    Some(match &marks.eviction {
        // Its kubelet ends it by its deadline; no controller makes further pods of it.
        Some(note) => Observed::Leaving { admission, since: time(note.at), stopped: true },
        None => Observed::Admitted(admission),
    })
}

/// A pod that belongs to no workload, as the object of its eviction.
#[must_use]
pub fn unadmitted(seen: &PodSeen, facts: &Unadmitted) -> Managed {
    let id = PodId(seen.uid.clone());
    let admission = Admission {
        pool: "".into(),
        nodes: [].into(),
        pods: 1,
        borrowed: false,
        share: None,
        spared: false,
        unfunded: false,
        at: facts.created,
    };
    let state = if seen.ending { Observed::Finished } else { Observed::Admitted(admission) };
    let plain = Workload::job(&facts.team, &facts.name, 1, PodShape::default(), facts.created);
    Managed {
        workload: Workload {
            id: WorkloadId::of_unadmitted(&id),
            kind: WorkloadKind::Pod,
            namespace: facts.namespace.clone(),
            resumable: false,
            state,
            ..plain
        }
        .into(),
        own_queue: None,
        class: None,
        facts: Facts {
            uid: seen.uid.clone(),
            generation: None,
            record: None,
            held: false,
            eviction: None,
            has_eviction: false,
            suspension: Suspension::None,
            most_cached: 0,
            failure: None,
            deleting: seen.ending,
            whole_device: None,
            past: None,
        },
        target: Target::Unadmitted,
        claims: None,
        counts: Counts::default(),
    }
}

/// Whether marks on a pod of this owner count. A pod of a Job or DaemonSet has them from the template, which any user may
/// write.
fn may_have_marks(metadata: &ObjectMeta) -> bool {
    controller(metadata).is_none_or(|owner| !matches!(owner.kind.as_str(), "Job" | "DaemonSet"))
}

fn managed(pod: &wire::Pod) -> Option<Box<Managed>> {
    let (metadata, spec) = (&pod.metadata, &pod.spec);
    if !may_have_marks(metadata) {
        return None;
    }
    let gates = gates::of(spec);
    let gated = gates::hold(&gates);
    let marks = Marks::read(metadata);
    let state = state(pod, &marks, gated)?;
    let (over, gone) = (state == Observed::Finished, ended(pod));
    let wanted = Requests::read(metadata, spec.active_deadline_seconds);
    // Before admission the affinity is the user's; afterwards it is not read again.
    let affinity = spec.affinity.as_ref().filter(|_| gated);
    // A pod that is about to end holds its requests until it has.
    let mut shape = if gone { PodShape::default() } else { shape(spec, affinity) };
    let fraction = wanted.fraction.filter(|_| !gone);
    let plain_fraction = fraction.is_some() && !request_gpu(spec, &shape.requests);
    let whole_device = fraction.and_then(|fraction| take_fraction(&mut shape.requests, fraction));
    let expendable = wanted.preemptible;
    let common = wanted.workload(WorkloadKind::Pod, metadata, state);
    Some(Box::new(Managed {
        claims: claimed(pod, &shape.requests).filter(|_| !gone),
        counts: with_metadata(
            Counts { pods: 1, pools: common.pools.len() as u64, plain_fraction, ..counts(spec, affinity) },
            metadata,
            0,
        ),
        own_queue: label(metadata, names::QUEUE),
        class: spec.priority_class_name.as_deref().filter(|_| spec.priority.is_none()).map(Name::from),
        facts: Facts {
            generation: None,
            held: gated,
            has_eviction: marks.eviction.is_some(),
            failure: pod.status.reason.as_deref().filter(|_| over).map(Name::from),
            whole_device,
            past: over.then(|| Box::new(past(pod))),
            ..marks.facts(metadata)
        },
        target: Target::Pod(PodFacts {
            user_affinity: affinity.map(|written| written.to_string().into()),
            gates,
            annotated: metadata.annotations.is_some(),
            replica: replica(metadata),
        }),
        workload: Workload {
            priority: spec.priority.unwrap_or(0),
            profile: if gone { Arc::default() } else { profile(pod) },
            shape: shape.into(),
            resumable: false,
            expendable,
            grace: grace(spec),
            ..common
        }
        .into(),
    }))
}

/// What a pod that has ended says of its run. It stopped being ready with its end.
fn past(pod: &wire::Pod) -> Past {
    let conditions = pod.status.conditions.iter().flatten();
    let times = conditions.filter_map(|condition| condition.last_transition_time.as_ref());
    let ended = times.max().filter(|_| ended(pod)).map(reduce::instant);
    let succeeded = pod.status.phase.as_deref().filter(|_| ended.is_some()).map(|phase| phase == "Succeeded");
    // A pod that is deleted while it runs fails by that. Times have whole seconds: in the same one success was first.
    let by_deletion = |succeeded: &bool| {
        let (Some(ended), Some(deleted)) = (ended, deleted(&pod.metadata)) else { return false };
        if *succeeded { deleted < ended } else { deleted <= ended }
    };
    let succeeded = succeeded.filter(|succeeded| !by_deletion(succeeded));
    Past { requests: requests(&pod.spec).into_iter().collect(), ended, succeeded }
}

/// When a pod was deleted: the API server writes down when its grace period is over.
fn deleted(metadata: &ObjectMeta) -> Option<Time> {
    let over = reduce::instant(metadata.deletion_timestamp.as_ref()?);
    let grace = metadata.deletion_grace_period_seconds.unwrap_or_default();
    Some(Time(over.0.saturating_sub(grace.saturating_mul(1_000))))
}

#[cfg(test)]
mod tests;
