//! Kubernetes object in, engine value out: pure functions, one file a kind.

pub mod claims;
pub mod group;
pub mod job;
pub mod node;
pub mod other;
pub mod pod;
pub mod replica;
pub mod roles;
pub mod shape;
pub mod team;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time as MetaTime};
use kube::core::ObjectMeta;

use super::wire::{PodSpec, Quantities};
use crate::api::names;
use crate::api::record::{Eviction, Record};
use crate::api::seats::Seats;
use crate::api::sizes::{Choice, are_at, limits_at, speaks_of};
use crate::engine::types::amount::{Amount, ResourceList};
use crate::engine::types::{Name, Size, Time, Topology, Workload};
use crate::view::is_gpu;
use claims::Claims;

/// A Job or a bare pod that Sluice manages, with what its patches will need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    /// The workload; the mirror fills in the team, the default queue and the class's priority.
    pub workload: Workload,
    /// The queue its own label names.
    pub own_queue: Option<Name>,
    /// The PriorityClass it names, where its priority is not resolved yet.
    pub class: Option<Name>,
    /// What patches need.
    pub facts: Facts,
    /// What its pods ask for by claims; the mirror counts it.
    pub claims: Option<Box<Claims>>,
}

/// What the patches on a workload depend on, beyond what the engine knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Its UID: its name may come back with another object behind it.
    pub uid: Name,
    /// Its user's affinity as JSON.
    pub user_affinity: Option<Box<str>>,
    /// Whether the user's affinity is kept in an annotation.
    pub keeps_affinity: bool,
    /// The record of its admission as it was written.
    pub record: Option<Box<str>>,
    /// Whether it carries a note of an eviction: it has run before or is being stopped.
    pub has_eviction: bool,
    /// Whether Sluice's hold is on it; without it, a suspended Job is held by its user.
    pub held: bool,
    /// Whether rules say which pod failures count.
    pub has_failure_policy: bool,
    /// Pods that its controller still counts as running or waiting.
    pub active: u32,
    /// Pods that its controller still counts as ending.
    pub terminating: u32,
    /// The scheduling gates of a bare pod, or of the pods that a Job makes.
    pub gates: Vec<Name>,
    /// Which indexes have ended for good, where a Job gives its pods numbers.
    pub done: Option<Box<str>>,
    /// The places of its pods, where each gets its own: which pod has which, as far as its number tells.
    pub seats: Option<Arc<Seats>>,
    /// Why it was last evicted.
    pub eviction: Option<Eviction>,
    /// The generation of a Job's spec, where the API server counts it.
    pub generation: Option<i64>,
    /// How many pods a Job's spec lets run at once.
    pub parallelism: u32,
    /// How many its user wrote there.
    pub wanted: u32,
    /// Whether its status says since when it runs.
    pub started: bool,
    /// Whether its status has any condition.
    pub conditioned: bool,
    /// Why it fails, a word, where its controller does not complete it.
    pub failure: Option<Name>,
    /// Whether it has been deleted, by whomever, and is there until it has ended.
    pub deleting: bool,
    /// Whose pod it is, if a Deployment's.
    pub replica: Option<Box<replica::Replica>>,
    /// Whether it has any annotation.
    pub annotated: bool,
    /// What a pod that needs only a share of a device asks for all the same: kube-scheduler counts that.
    pub whole_device: Option<(Name, Amount)>,
    /// With which sizes of its pods a Job would make do, and what they ask for now.
    pub sizes: Option<Arc<Sizes>>,
    /// Of an object of another kind, what its table says and its patches need.
    pub other: Option<Arc<other::Other>>,
    /// The PodGroup that Sluice has named for the pods of a Job.
    pub gang: Option<Box<Gang>>,
}

/// The PodGroup of a Job's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gang {
    /// Its name.
    pub group: Name,
    /// Whether all pods run at the same time, so that none is ever to start by itself.
    pub together: bool,
}

/// The sizes of a Job's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The limits of their first container as the template says now.
    pub limits: Quantities,
    /// What of them depends on the size, the most wanted first.
    pub choices: Vec<Choice>,
}

impl Sizes {
    /// The sizes that its mark tells of, if the template asks for one of them: that of the admission, or else
    /// the most wanted. What somebody has changed since is counted as it is written.
    fn of(metadata: &ObjectMeta, spec: &PodSpec, share: Option<&str>) -> Option<Self> {
        let choices: Vec<Choice> = serde_json::from_str(annotation(metadata, names::GPU_SIZES)?).ok()?;
        let resources = &spec.containers.first()?.resources;
        let limits = resources.limits.clone().unwrap_or_default();
        let granted = share.and_then(|share| choices.iter().find(|choice| choice.share == share));
        let asked = resources.requests.iter().flatten().any(|(resource, _)| speaks_of(&choices, resource));
        let now = granted.or(choices.first()).filter(|now| !asked && are_at(&limits, &choices, now));
        now.is_some().then_some(Self { limits, choices })
    }

    /// What a pod of the template requests at each of them, beside what does not depend on the size.
    fn requests(&self, spec: &PodSpec) -> Vec<Size> {
        let at = |choice: &Choice| {
            let share = choice.amount()?;
            let mut spec = spec.clone();
            let first = spec.containers.first_mut()?;
            first.resources.limits = Some(limits_at(&self.limits, &self.choices, choice));
            let mut requests = shape::requests(&spec);
            if choice.limits.is_empty() {
                requests.entry(USUAL_DEVICE.into()).or_insert(share);
            }
            Some(Size { share, requests })
        };
        self.choices.iter().filter_map(at).collect()
    }
}

/// An object's version as a number that grows with each change; 0 when there is none.
#[must_use]
pub fn version(metadata: &ObjectMeta) -> u64 {
    metadata.resource_version.as_deref().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// An object's UID; empty only on an object that no API server has seen.
#[must_use]
pub fn uid(metadata: &ObjectMeta) -> Name {
    metadata.uid.as_deref().unwrap_or_default().into()
}

/// Who made the object, if something did that goes on controlling it.
fn controller(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata
        .owner_references
        .as_deref()
        .unwrap_or_default()
        .iter()
        .find(|owner| owner.controller == Some(true))
}

/// The UID of the Job that made the object, if one did.
fn owning_job(metadata: &ObjectMeta) -> Option<Name> {
    controller(metadata).filter(|owner| owner.kind == "Job").map(|owner| owner.uid.as_str().into())
}

fn name(text: Option<&String>) -> Name {
    text.map(String::as_str).unwrap_or_default().into()
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn label(metadata: &ObjectMeta, key: &str) -> Option<Name> {
    metadata.labels.as_ref()?.get(key).filter(|value| !value.is_empty()).map(|value| value.as_str().into())
}

/// A time of the API as the engine's.
#[must_use]
pub fn instant(time: &MetaTime) -> Time {
    Time(time.0.as_millisecond())
}

fn created(metadata: &ObjectMeta) -> Time {
    metadata.creation_timestamp.as_ref().map_or(Time(0), instant)
}

/// A duration as people write it in annotations (`90m`, `1h30m`); `None` when it is not one.
fn duration(text: &str) -> Option<Duration> {
    crate::api::values::duration(text.trim()).ok()
}

/// The scheduling gates of a pod, by name.
fn gates(spec: &PodSpec) -> Vec<Name> {
    spec.scheduling_gates.iter().flatten().map(|gate| gate.name.as_str().into()).collect()
}

/// The record of the admission; an unreadable one counts as none, since nothing could act on it.
fn record(metadata: &ObjectMeta) -> Option<Record> {
    let text = annotation(metadata, names::ADMISSION)?;
    serde_json::from_str(text)
        .inspect_err(|error| {
            let object = metadata.name.as_deref().unwrap_or_default();
            tracing::warn!(object, %error, "unreadable admission record");
        })
        .ok()
}

fn eviction(metadata: &ObjectMeta) -> Option<Eviction> {
    serde_json::from_str(annotation(metadata, names::EVICTION)?).ok()
}

/// What the annotations of a Job or Pod tell the engine.
struct Wishes {
    pools: Vec<Name>,
    time_limit: Option<Duration>,
    last_checkpoint: Option<Time>,
    checkpoint_interval: Option<Duration>,
    min_pods: Option<u32>,
    topology: Topology,
    share: Option<Amount>,
    user: Option<Name>,
    expendable: bool,
}

/// Reads them; what is malformed counts as not given (the webhook refuses it when it is written).
fn wishes(metadata: &ObjectMeta, active_deadline_seconds: Option<i64>) -> Wishes {
    let pools = annotation(metadata, names::POOL).unwrap_or_default();
    let deadline = active_deadline_seconds.and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs);
    Wishes {
        pools: pools.split(',').map(str::trim).filter(|pool| !pool.is_empty()).map(Name::from).collect(),
        time_limit: annotation(metadata, names::TIME_LIMIT).and_then(duration).or(deadline),
        last_checkpoint: annotation(metadata, names::LAST_CHECKPOINT)
            .and_then(|text| text.parse::<Timestamp>().ok())
            .map(|timestamp| Time(timestamp.as_millisecond())),
        checkpoint_interval: annotation(metadata, names::CHECKPOINT_INTERVAL).and_then(duration),
        min_pods: annotation(metadata, names::MIN_PARALLELISM)
            .and_then(|text| text.trim().parse().ok())
            .filter(|fewest| *fewest > 0),
        topology: Topology {
            required: annotation(metadata, names::TOPOLOGY_REQUIRED).and_then(stated),
            preferred: annotation(metadata, names::TOPOLOGY_PREFERRED).and_then(stated),
        },
        share: annotation(metadata, names::GPU_FRACTION)
            // What the pods ask for by themselves instead is counted like any request.
            .filter(|_| annotation(metadata, names::GPU_OFFER).is_none())
            .and_then(|text| crate::api::values::fractions(text).ok()?.first().copied()),
        user: annotation(metadata, names::USER).and_then(stated),
        expendable: annotation(metadata, names::PREEMPTIBLE) == Some("true"),
    }
}

fn stated(text: &str) -> Option<Name> {
    Some(text.trim()).filter(|text| !text.is_empty()).map(Name::from)
}

/// The device of which a pod without any request for one needs a share.
const USUAL_DEVICE: &str = "nvidia.com/gpu";

/// Makes what a pod asks for of a device a share of one; gives what it asked for, if it did. A pod that
/// asks for several devices needs them whole.
fn share_device(requests: &mut ResourceList, share: Amount) -> Option<(Name, Amount)> {
    let asked =
        requests.get_key_value(USUAL_DEVICE).or_else(|| requests.iter().find(|(name, _)| is_gpu(name)));
    let asked = asked.map(|(name, amount)| (name.clone(), *amount));
    match &asked {
        Some((_, amount)) if *amount > Amount::units(1) => return None,
        Some((name, _)) => requests.insert(name.clone(), share),
        None => requests.insert(USUAL_DEVICE.into(), share),
    };
    asked
}
