//! Workloads of each kind: read from their objects, patched and restored.
//!
//! All about one kind is in one place. [`job`], [`pod`], [`pod_group`] and [`custom`] turn an object into a
//! [`Managed`] workload, and a decision into a patch on that object. Facts that every kind has are in [`Facts`],
//! facts of one kind in its variant of [`Target`].
//!
//! Each patch is a JSON Patch that begins with the state it was decided on: the UID, because another object may
//! have the same name by now, and the generation of the spec. Admission, eviction and restoring change the
//! generation, so no patch applies twice. The status is not part of it: the Job controller writes that at any
//! time, for instance right after the Job is created. A patch on a pod names the version of the whole object
//! instead. An affinity is replaced as a whole, so that the user's own comes back exactly as it was written.

mod capped;
pub mod custom;
mod gates;
mod gpu_fraction;
pub mod job;
mod marks;
pub mod pod;
pub mod pod_group;
pub mod unsubmitted;

use std::sync::Arc;

use jiff::Timestamp;
use json_patch::{Patch, PatchOperation};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::json;

use self::custom::CustomFacts;
use self::job::{Gang, JobFacts};
use self::pod::PodFacts;
use self::pod::replica::Replica;
use super::patch::{annotate, at_version, json, test, unannotate};
use super::reduce::claims::Claims;
use crate::api::caps::Counts;
use crate::api::names;
use crate::api::record::{Eviction, Record};
use crate::api::seats::Seats;
use crate::engine::types::amount::Amount;
use crate::engine::types::{Name, Time, Workload};
use crate::kinds::Kind;

/// A workload that Sluice manages, with the facts that its patches need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    /// The workload; the cache fills in the team, the default queue and the priority of the class.
    pub workload: Arc<Workload>,
    /// The queue in its own label.
    pub own_queue: Option<Name>,
    /// The PriorityClass it names, while its priority is not resolved.
    pub class: Option<Name>,
    /// Facts of every kind.
    pub facts: Facts,
    /// Facts of its kind.
    pub target: Target,
    /// The devices that its pods claim; the cache counts them.
    pub claims: Option<Box<Claims>>,
    /// What it has of everything that is capped.
    pub counts: Counts,
}

/// Facts about an object that every kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The UID.
    pub uid: Name,
    /// The generation of the spec; without one, patches name the version of the whole object.
    pub generation: Option<i64>,
    /// The record of its admission as it is written.
    pub record: Option<Box<str>>,
    /// Whether it carries the mark that Sluice holds it. A suspended object without the mark is held by its user. The
    /// mark goes with the admission, so on an object that stops it says whether that is queued again afterwards.
    pub held: bool,
    /// The note of its last eviction.
    pub eviction: Option<Eviction>,
    /// Whether it carries such a note, readable or not: it has run before or is being stopped.
    pub has_eviction: bool,
    /// What its controller says of its suspension.
    pub suspension: Suspension,
    /// The most of its pods that were cached at any of its versions since its admission.
    pub most_cached: u32,
    /// The reason in its status for which it failed.
    pub failure: Option<Name>,
    /// Whether it is deleted and remains until it has ended.
    pub deleting: bool,
    /// The device and amount that a GPU fraction stands for: kube-scheduler counts these.
    pub whole_device: Option<(Name, Amount)>,
    /// What it leaves once it has ended, for the history.
    pub past: Option<Box<Past>>,
}

/// What the controller of an object says of its suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspension {
    /// Nothing, or that it is not suspended.
    None,
    /// That it is suspended, and perhaps has said so since before the present admission.
    Old,
    /// That it is suspended, after it had said otherwise during the present admission.
    New,
}

impl Suspension {
    /// Reads it from an object alone, which does not tell an old one from a new one.
    fn read(said: bool) -> Self {
        if said { Self::Old } else { Self::None }
    }
}

/// What the object of a workload that has ended says of its last run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// The requests of each pod.
    pub requests: Box<[(Name, Amount)]>,
    /// When it ended, if the object says so.
    pub ended: Option<Time>,
    /// Whether it succeeded; `None` if it was deleted before it ended.
    pub succeeded: Option<bool>,
}

/// A workload by its kind, with the facts that only this kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A `batch/v1` Job.
    Job(Box<JobFacts>),
    /// A pod that is a workload by itself.
    Pod(PodFacts),
    /// Pods that start all or none. The group has no object of its own: its pods are patched.
    PodGroup,
    /// An object of a custom kind.
    Custom(Box<CustomFacts>),
    /// A pod that belongs to no workload and was never admitted.
    Unadmitted,
}

/// The API resource of an object to be written.
#[derive(Clone, Debug)]
pub enum Resource {
    /// `batch/v1` Jobs.
    Job,
    /// Pods.
    Pod,
    /// A custom kind.
    Custom(Arc<Kind>),
}

/// A write on one object.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A patch on the object.
    Patch(Patch),
    /// A patch on its status.
    PatchStatus(Patch),
    /// A request to the Eviction API, which a disruption budget may refuse.
    Evict,
    /// The deletion of a pod; no budget of its user keeps it.
    Delete,
}

/// How many of its pods a Job may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// All; the parallelism is the user's.
    All,
    /// At most the pods of the record, which also keeps the user's parallelism.
    Part,
}

/// How the pods of a Job reach the nodes of its admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// By the affinity of the template: each pod may go to any of the nodes, or they fit in one way only.
    Template,
    /// One by one: each pod is made with a gate, which is removed when its node is written.
    OneByOne,
}

/// Why a workload ends as failed.
#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    /// The rule, a word.
    pub reason: &'a str,
    /// One sentence with the numbers.
    pub message: &'a str,
    /// The time of the decision.
    pub at: Timestamp,
}

impl Failure<'_> {
    /// The reason as a note on the object.
    fn note(&self) -> Eviction {
        Eviction::new(self.at, self.reason)
    }
}

/// An object that makes pods, a Job or one of a custom kind, as last seen.
#[derive(Clone, Debug)]
pub struct JobSeen {
    /// The UID.
    pub uid: Name,
    /// The version.
    pub version: u64,
    /// The owner that controls it.
    pub controller: Option<Box<OwnerReference>>,
    /// The workload it is; `None` if it runs without an admission.
    pub managed: Option<Box<Managed>>,
}

impl Facts {
    /// The operations that make a patch fail on any other state of the object than the one it was decided on;
    /// [`super::patch::does_not_apply`] recognises that answer.
    fn expect(&self, version: u64) -> Vec<PatchOperation> {
        let unchanged = match self.generation {
            Some(generation) => test(&["metadata", "generation"], json!(generation)),
            None => at_version(version),
        };
        vec![unchanged, test(&["metadata", "uid"], json!(&*self.uid))]
    }

    /// Takes the room for the marks of an eviction out of the record.
    fn take_room(&self) -> Option<PatchOperation> {
        let record: Record = serde_json::from_str(self.record.as_deref()?).ok()?;
        let roomy = !record.room.is_empty();
        roomy.then(|| annotate(names::ADMISSION, json(&record.without_room())))
    }

    /// Takes the mark of the hold off, if it is there. Its user may take it off too, which changes no spec: then the
    /// patch does not apply.
    fn release(&self) -> Option<PatchOperation> {
        self.held.then(|| unannotate(names::HELD))
    }
}

impl Managed {
    /// Lets the workload run as the record says.
    #[must_use]
    pub fn admit(&self, version: u64, record: &Record, grant: Grant, pin: Pin) -> Patch {
        match &self.target {
            Target::Job(job) => job.admit(&self.facts, version, record, grant, pin),
            Target::Pod(pod) => pod.admit(&self.facts, version, record),
            Target::Custom(custom) => custom.admit(&self.facts, version, record),
            Target::PodGroup | Target::Unadmitted => Patch::default(),
        }
    }

    /// Lets a running Job continue with the pods of the record; empty for other kinds, which keep their size.
    #[must_use]
    pub fn resize(&self, version: u64, record: &Record, grant: Grant) -> Patch {
        match &self.target {
            Target::Job(job) => job.resize(&self.facts, version, record, grant),
            Target::Pod(_) | Target::PodGroup | Target::Custom(_) | Target::Unadmitted => Patch::default(),
        }
    }

    /// Stops the workload. Its record remains until all of its pods are gone.
    #[must_use]
    pub fn evict(&self, version: u64, note: &Eviction) -> Operation {
        match &self.target {
            Target::Job(_) => Operation::Patch(job::evict(&self.facts, version, note)),
            Target::Custom(custom) => Operation::Patch(custom.evict(&self.facts, version, note)),
            Target::Pod(_) | Target::PodGroup => Operation::Evict,
            Target::Unadmitted => Operation::Delete,
        }
    }

    /// Smaller patches that stop the workload, the first with a shorter note and the last with none: then it is on hold,
    /// as if its user had suspended it.
    #[must_use]
    pub fn smaller_evictions(&self, version: u64, note: &Eviction) -> Vec<Patch> {
        match &self.target {
            Target::Job(_) => {
                vec![job::evict(&self.facts, version, &note.short()), job::suspend_only(&self.facts, version)]
            }
            Target::Custom(custom) => vec![
                custom.evict(&self.facts, version, &note.short()),
                custom.suspend_only(&self.facts, version),
            ],
            Target::Pod(_) | Target::PodGroup | Target::Unadmitted => Vec::new(),
        }
    }

    /// A smaller patch that shrinks a running Job: its user's parallelism is not kept.
    #[must_use]
    pub fn smaller_resize(&self, version: u64, record: &Record) -> Option<Patch> {
        self.job().map(|job| job.shrink_only(&self.facts, version, record))
    }

    /// Ends the workload as failed.
    #[must_use]
    pub fn fail(&self, version: u64, why: &Failure<'_>) -> Operation {
        match &self.target {
            Target::Job(job) => Operation::PatchStatus(job.fail(&self.facts, version, why)),
            Target::Pod(_) => pod::fail(&self.facts, version, why),
            Target::Custom(custom) => Operation::Patch(custom.fail(&self.facts, version, why)),
            Target::PodGroup | Target::Unadmitted => Operation::Patch(Patch::default()),
        }
    }

    /// Whether its controller cannot end it, see [`Managed::add_start_time`].
    #[must_use]
    pub fn cannot_end(&self) -> bool {
        matches!(&self.target, Target::Job(job) if job.missing_start.is_some())
    }

    /// Writes the start time without which the controller of a stopped Job cannot end it; empty where none is missing.
    #[must_use]
    pub fn add_start_time(&self, version: u64) -> Patch {
        let patch = match &self.target {
            Target::Job(job) => job.add_start_time(&self.facts, version),
            _ => None,
        };
        patch.unwrap_or_default()
    }

    /// Gives a stopped object its user's template back and ends the admission; empty for pods, which do not come
    /// back. The mark of the hold stays as it is: an evicted object has it, one that its user suspended has not, and
    /// gets it when its user resumes it. So a resume is never undone, whichever of the two is written first.
    #[must_use]
    pub fn restore(&self, version: u64) -> Patch {
        match &self.target {
            Target::Job(job) => job.restore(&self.facts, version),
            Target::Custom(custom) => custom.restore(&self.facts, version),
            Target::Pod(_) | Target::PodGroup | Target::Unadmitted => Patch::default(),
        }
    }

    /// The API resource of its object; of a group, that of its pods.
    #[must_use]
    pub fn resource(&self) -> Resource {
        match &self.target {
            Target::Job(_) => Resource::Job,
            Target::Pod(_) | Target::PodGroup | Target::Unadmitted => Resource::Pod,
            Target::Custom(custom) => Resource::Custom(Arc::clone(&custom.kind)),
        }
    }

    /// Whether rules of its user say which pod failures count; disrupted pods are marked for them.
    #[must_use]
    pub fn has_failure_policy(&self) -> bool {
        match &self.target {
            Target::Job(job) => job.has_failure_policy,
            Target::Custom(custom) => custom.has_failure_policy,
            Target::Pod(_) | Target::PodGroup | Target::Unadmitted => false,
        }
    }

    /// Whether its controller still counts pods as running, waiting or terminating.
    #[must_use]
    pub fn counts_pods(&self) -> bool {
        self.job().is_some_and(|job| job.active > 0 || job.terminating > 0)
    }

    /// The facts of a Job.
    #[must_use]
    pub fn job(&self) -> Option<&JobFacts> {
        match &self.target {
            Target::Job(job) => Some(job),
            Target::Pod(_) | Target::PodGroup | Target::Custom(_) | Target::Unadmitted => None,
        }
    }

    /// The nodes of a Job's pods, where each pod has its own.
    #[must_use]
    pub fn seats(&self) -> Option<&Arc<Seats>> {
        self.job()?.seats.as_ref()
    }

    /// The nodes of a Job's pods by their indexes, once it is admitted by this record.
    #[must_use]
    pub fn seats_by(&self, record: Record, pin: Pin) -> Option<Seats> {
        let record = self.job()?.with_done(record, pin);
        record.done.is_some().then(|| Seats::of(&record))
    }

    /// The PodGroup that Sluice has named for the pods of a Job.
    #[must_use]
    pub fn gang(&self) -> Option<&Gang> {
        self.job()?.gang.as_ref()
    }

    /// The Deployment of a pod.
    #[must_use]
    pub fn replica(&self) -> Option<&Replica> {
        match &self.target {
            Target::Pod(pod) => pod.replica.as_deref(),
            Target::Job(_) | Target::PodGroup | Target::Custom(_) | Target::Unadmitted => None,
        }
    }
}

#[cfg(test)]
mod tests;
