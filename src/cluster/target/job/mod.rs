//! A Job: its state, its facts and its patches.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::super::reduce::claims::{Claims, claims};
use super::super::reduce::counts::{counts, with_metadata};
use super::super::reduce::profile::profile;
use super::super::reduce::shape::{grace, requests, shape};
use super::super::reduce::{annotation, controller, instant, label, uid, version};
use super::super::wire;
use super::gpu_fraction::{Sizes, request_gpu, take_fraction};
use super::marks::{Marks, Requests, Stage};
use super::{JobSeen, Managed, Past, Suspension, Target, gates};
use crate::api::caps::Counts;
use crate::api::names;
use crate::api::pod_group::is_own;
use crate::api::record::{Record, time};
use crate::api::seats::Seats;
use crate::engine::types::amount::Amount;
use crate::engine::types::{Name, Observed, PodShape, Profile, Size, Time, Workload, WorkloadKind};

mod patch;

pub use patch::{Unstart, unstart};
pub(super) use patch::{evict, suspend_only};

/// The labels with the name of the Job that its pods have.
const JOB_NAME_LABELS: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];

/// Facts that only a Job has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFacts {
    /// The user's affinity as JSON.
    pub user_affinity: Option<Box<str>>,
    /// Whether an annotation keeps the user's affinity.
    pub keeps_affinity: bool,
    /// The scheduling gates of its pods.
    pub gates: Vec<Name>,
    /// The indexes that have ended for good, where its pods have indexes.
    pub done: Option<Box<str>>,
    /// The nodes of its pods, where each pod has its own: by index, as far as the record has them.
    pub seats: Option<Arc<Seats>>,
    /// Whether rules say which pod failures count.
    pub has_failure_policy: bool,
    /// Pods that its controller counts as running or waiting.
    pub active: u32,
    /// Pods that its controller counts as terminating.
    pub terminating: u32,
    /// Pods that its controller has counted as failed, in all runs.
    pub failed: u32,
    /// The same at its last admission.
    pub failed_before: u32,
    /// Whether any pod has succeeded, in all runs.
    pub succeeded: bool,
    /// The parallelism in its spec.
    pub parallelism: u32,
    /// The parallelism that its user wrote.
    pub wanted: u32,
    /// The annotation with a larger parallelism than granted that its user has written since, as it is written.
    pub larger: Option<Box<str>>,
    /// Whether its status has a start time.
    pub started: bool,
    /// The time of its start, if its status lacks one and its controller cannot end it for that reason.
    pub missing_start: Option<Time>,
    /// Whether its status has any condition.
    pub conditioned: bool,
    /// The sizes of its pods to choose from.
    pub sizes: Option<Sizes>,
    /// The PodGroup that Sluice has named for its pods.
    pub gang: Option<Gang>,
}

/// The PodGroup of a Job's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gang {
    /// The name of the PodGroup.
    pub group: Name,
    /// Whether all pods run at the same time, so that none ever starts alone.
    pub together: bool,
    /// Whether pods have succeeded. The others are fewer than the PodGroup's `minCount`, and leave it.
    pub thinned: bool,
}

/// Reads a Job seen at `now`.
#[must_use]
pub fn job(job: &wire::Job, now: Time) -> JobSeen {
    JobSeen {
        uid: uid(&job.metadata),
        version: version(&job.metadata),
        controller: controller(&job.metadata).cloned().map(Box::new),
        managed: managed(job, now),
    }
}

fn managed(job: &wire::Job, now: Time) -> Option<Box<Managed>> {
    let marks = Marks::read(&job.metadata);
    let (suspended, finished) = (job.spec.suspend == Some(true), finished(job));
    if !marks.manage(suspended, finished) {
        return None;
    }
    let parallelism = job.spec.parallelism.and_then(|pods| u32::try_from(pods).ok()).unwrap_or(1);
    let wanted = wanted(parallelism, marks.record.as_ref(), larger(job));
    let pods = wanted.min(missing(job));
    // A Job of no pods has nothing to admit.
    let stopped = suspension(job).is_some() && count(job.status.active) == 0;
    let stage = Stage { suspended, stopped, finished, admissible: pods > 0 };
    let state = marks.state(&stage, now);
    let gates = gates::of(&job.spec.template.spec);
    let one_by_one = gates::has(&gates, names::GATE_PLACEMENT);
    Some(Box::new(Reading { job, marks, state, gates, one_by_one, parallelism, wanted, pods }.managed()))
}

/// A Job that is being read.
struct Reading<'a> {
    job: &'a wire::Job,
    marks: Marks,
    state: Observed,
    gates: Vec<Name>,
    /// Whether each pod has its own node, so that the affinity of the template stays the user's.
    one_by_one: bool,
    parallelism: u32,
    wanted: u32,
    pods: u32,
}

/// The pods of a Job as the engine sees them.
struct Pods {
    shape: PodShape,
    /// The requests at each size, and the sizes as they are written.
    sizes: (Vec<Size>, Option<Sizes>),
    whole_device: Option<(Name, Amount)>,
    /// Whether they have a GPU fraction and request nothing for it.
    plain_fraction: bool,
}

impl Reading<'_> {
    fn managed(self) -> Managed {
        let (metadata, spec) = (&self.job.metadata, &self.job.spec.template.spec);
        let (over, gone) = (self.is_over(), self.is_gone());
        let requests = Requests::read(metadata, self.job.spec.active_deadline_seconds);
        // The API server refuses to change the parallelism of a gang that has a PodGroup.
        let may_change = spec.scheduling_group.is_none();
        let min_pods = requests.min_pods.filter(|_| may_change).map(|fewest| fewest.min(self.pods));
        let elastic = min_pods.is_some_and(|fewest| fewest < self.pods);
        let admitted = self.is_admitted();
        let resizable =
            (elastic || admitted && self.one_by_one) && (admitted || self.state == Observed::Queued);
        let user_affinity = self.user_affinity();
        let Pods { shape, sizes: (sizes, written_sizes), whole_device, plain_fraction } =
            self.pods(elastic, user_affinity.as_deref(), requests.fraction);
        let mut facts = self.marks.facts(metadata);
        facts.failure = conditions(self.job)
            .find(|condition| ends(condition) && condition.type_.starts_with("Fail"))
            .map(|condition| condition.reason.as_str().into());
        facts.suspension = Suspension::read(suspension(self.job).is_some());
        facts.whole_device = whole_device;
        let mut common = requests.workload(WorkloadKind::Job, metadata, self.state.clone());
        // Sluice marks what it evicts; without the mark its user has suspended it.
        common.hold |= matches!(self.state, Observed::Leaving { .. }) && !self.marks.held;
        let pools = common.pools.len() as u64;
        let counts = Counts { pools, plain_fraction, ..self.counts(user_affinity.as_deref()) };
        let claims =
            Claims::of_template(&common.namespace, vec![claims(spec, None)], &shape.requests, &sizes);
        let profile = if gone { Arc::default() } else { self.profile(user_affinity.as_deref()) };
        let ran = self.marks.record.as_ref().filter(|_| over).and_then(|_| ran(self.job));
        facts.past = self.marks.record.as_ref().filter(|_| over).map(|record| Box::new(self.past(record)));
        Managed {
            claims: claims.filter(|_| !gone),
            own_queue: label(metadata, names::QUEUE),
            class: spec.priority_class_name.as_deref().map(Name::from),
            facts,
            workload: Workload {
                pods: self.pods,
                min_pods,
                shape: shape.into(),
                profile,
                sizes,
                resizable,
                grace: grace(spec),
                ran,
                failed_pods: self.failed_pods(),
                ..common
            }
            .into(),
            target: Target::Job(Box::new(self.facts(user_affinity, written_sizes))),
            counts,
        }
    }

    fn facts(self, user_affinity: Option<Box<str>>, sizes: Option<Sizes>) -> JobFacts {
        let (job, over, admitted) = (self.job, self.is_over(), self.is_admitted());
        let seats = self.marks.record.as_ref().filter(|_| self.one_by_one && admitted);
        JobFacts {
            user_affinity: user_affinity.filter(|_| !over),
            keeps_affinity: self.kept_affinity().is_some(),
            done: (job.spec.completion_mode.as_deref() == Some("Indexed")).then(|| ended_indexes(job)),
            seats: seats.map(|record| Arc::new(Seats::of(record))),
            has_failure_policy: job.spec.pod_failure_policy.is_some(),
            active: count(job.status.active),
            terminating: count(job.status.terminating),
            failed: count(job.status.failed),
            succeeded: count(job.status.succeeded) > 0,
            failed_before: self.marks.record.as_ref().map_or(0, |record| record.failed),
            parallelism: self.parallelism,
            wanted: self.wanted,
            larger: larger(job).map(Into::into),
            started: job.status.start_time.is_some(),
            missing_start: self.missing_start(),
            conditioned: conditions(job).next().is_some(),
            sizes,
            gang: gang(job, self.parallelism).filter(|_| !over),
            gates: self.gates,
        }
    }

    /// What it says of its last run once it has ended.
    fn past(&self, record: &Record) -> Past {
        let (metadata, spec) = (&self.job.metadata, &self.job.spec.template.spec);
        let share = record.share.as_deref();
        let sizes = Sizes::of(metadata, spec, share).map(|sizes| sizes.requests(spec)).unwrap_or_default();
        let granted = share.and_then(|share| Amount::parse(share).ok());
        let size = sizes.iter().find(|size| Some(size.share) == granted).or(sizes.first());
        let requests = size.map_or_else(
            || {
                let mut requests = requests(spec);
                let fraction = Requests::read(metadata, None).fraction;
                fraction.and_then(|fraction| take_fraction(&mut requests, fraction));
                requests
            },
            |size| size.requests.clone(),
        );
        let end = conditions(self.job).find(|condition| ends(condition));
        let latest = end.and_then(|condition| condition.last_transition_time.as_ref());
        let ended = self.job.status.completion_time.as_ref().or(latest).map(instant);
        let succeeded = end.map(|condition| !condition.type_.starts_with("Fail"));
        Past { requests: requests.into_iter().collect(), ended, succeeded }
    }

    fn is_over(&self) -> bool {
        self.state == Observed::Finished
    }

    /// Whether it is over and its pods have gone, too. Its controller may no longer count the pods of a deleted Job.
    fn is_gone(&self) -> bool {
        let status = &self.job.status;
        let left = count(status.active) > 0 || count(status.terminating) > 0;
        self.is_over() && !left && self.job.metadata.deletion_timestamp.is_none()
    }

    /// The start time that a Job lacks whose controller tries to end it. The API server refuses the end of a Job without a start
    /// time, and the controller writes none while the Job is suspended. It is missing where an eviction right after the start came
    /// before the controller's first write of the status, or where the controller has removed it from a suspended Job (since
    /// Kubernetes 1.36).
    fn missing_start(&self) -> Option<Time> {
        let (job, status) = (self.job, &self.job.status);
        let over = conditions(job).any(is_last);
        let suspended = job.spec.suspend == Some(true) && job.metadata.deletion_timestamp.is_none();
        let ending = conditions(job).find(|condition| ends(condition)).filter(|_| suspended && !over);
        let end = ending.filter(|_| status.start_time.is_none())?.last_transition_time.as_ref()?;
        let started = self.marks.record.as_ref().map(|record| time(record.at));
        Some(started.map_or_else(|| instant(end), |at| at.min(instant(end))))
    }

    fn is_admitted(&self) -> bool {
        matches!(self.state, Observed::Admitted(_))
    }

    fn kept_affinity(&self) -> Option<&str> {
        annotation(&self.job.metadata, names::USER_AFFINITY)
    }

    /// The affinity that its user wrote, as JSON.
    fn user_affinity(&self) -> Option<Box<str>> {
        let written = self.job.spec.template.spec.affinity.as_ref();
        match self.kept_affinity() {
            Some(kept) => Some(kept.into()),
            // The affinity of an admitted template is Sluice's own, unless each pod has its own node.
            None if self.marks.record.is_some() && !self.one_by_one => None,
            None => written.map(|written| written.to_string().into()),
        }
    }

    /// Pods that failed since its admission.
    fn failed_pods(&self) -> u32 {
        let before = self.marks.record.as_ref().filter(|_| self.is_admitted()).map(|record| record.failed);
        before.map_or(0, |before| count(self.job.status.failed).saturating_sub(before))
    }

    /// What it has of everything that is capped.
    fn counts(&self, user_affinity: Option<&str>) -> Counts {
        let affinity: Option<Value> = user_affinity.and_then(|text| serde_json::from_str(text).ok());
        let pods = u64::from(self.pods);
        let counts = counts(&self.job.spec.template.spec, affinity.as_ref());
        with_metadata(Counts { pods, ..counts }, &self.job.metadata, counts.affinity_bytes)
    }

    /// The labels and constraints of its pods. The API server has written the labels of the Job into its template.
    fn profile(&self, user_affinity: Option<&str>) -> Arc<Profile> {
        let (metadata, template) = (&self.job.metadata, &self.job.spec.template);
        let affinity: Option<Value> = user_affinity.and_then(|text| serde_json::from_str(text).ok());
        let mut labels = template.metadata.labels.clone().unwrap_or_default();
        for key in JOB_NAME_LABELS {
            labels.entry(key.to_owned()).or_insert_with(|| metadata.name.clone().unwrap_or_default());
        }
        profile(metadata.namespace.as_ref(), Some(&labels), &template.spec, affinity.as_ref())
    }

    /// The requests of its pods; none once they have gone.
    fn pods(&self, elastic: bool, user_affinity: Option<&str>, fraction: Option<Amount>) -> Pods {
        let spec = &self.job.spec.template.spec;
        if self.is_gone() {
            let shape = PodShape::default();
            return Pods { shape, sizes: (Vec::new(), None), whole_device: None, plain_fraction: false };
        }
        let affinity: Option<Value> = if elastic && self.is_admitted() && !self.one_by_one {
            // The template of a running Job cannot change, so further pods go to the nodes it names.
            spec.affinity.clone()
        } else {
            user_affinity.and_then(|text| serde_json::from_str(text).ok())
        };
        let share = self.marks.record.as_ref().and_then(|record| record.share.as_deref());
        let choice = Sizes::of(&self.job.metadata, spec, share);
        let sizes = choice.as_ref().map(|choice| choice.requests(spec)).unwrap_or_default();
        let mut shape = shape(spec, affinity.as_ref());
        let fraction = fraction.filter(|_| sizes.is_empty());
        let plain_fraction = match &choice {
            Some(choice) => choice.include_nothing(),
            None => fraction.is_some() && !request_gpu(spec, &shape.requests),
        };
        let whole_device = fraction.and_then(|fraction| take_fraction(&mut shape.requests, fraction));
        if let Some(full) = sizes.first() {
            shape.requests.clone_from(&full.requests);
        }
        Pods { shape, sizes: (sizes, choice), whole_device, plain_fraction }
    }
}

/// The annotation with a larger parallelism than granted. A Job that is not elastic does not grow.
fn larger(job: &wire::Job) -> Option<&str> {
    annotation(&job.metadata, names::MIN_PARALLELISM)?;
    annotation(&job.metadata, names::WANTED_PARALLELISM)
}

/// The parallelism that its user wrote. The record keeps it while the spec has the granted one, or an annotation if its user has
/// written another one since; any other value in the spec is the user's and newer.
fn wanted(parallelism: u32, record: Option<&Record>, larger: Option<&str>) -> u32 {
    let Some(record) = record.filter(|record| record.pods == parallelism) else { return parallelism };
    let larger = larger.and_then(|text| text.parse().ok()).map(|larger: u32| larger.max(parallelism));
    larger.or(record.wanted).unwrap_or(parallelism)
}

/// The PodGroup that Sluice has named for its pods.
fn gang(job: &wire::Job, parallelism: u32) -> Option<Gang> {
    let group = job.spec.template.spec.scheduling_group.as_ref()?.pod_group_name.as_deref()?;
    let together = job.spec.completions.is_none_or(|all| all <= i64::from(parallelism));
    let status = &job.status;
    let counted = status.succeeded.is_some_and(|pods| pods > 0);
    let thinned = counted || !status.uncounted_terminated_pods.succeeded.is_empty();
    is_own(group).then(|| Gang { group: group.into(), together, thinned })
}

/// How many pods have still to succeed, at most.
fn missing(job: &wire::Job) -> u32 {
    let missing = job.spec.completions.map(|total| total.saturating_sub(job.status.succeeded.unwrap_or(0)));
    missing.map_or(u32::MAX, |missing| u32::try_from(missing).unwrap_or(0))
}

fn count(pods: Option<i64>) -> u32 {
    pods.and_then(|pods| u32::try_from(pods).ok()).unwrap_or(0)
}

/// The indexes that are not run again, as ranges.
fn ended_indexes(job: &wire::Job) -> Box<str> {
    let lists = [&job.status.completed_indexes, &job.status.failed_indexes];
    let lists: Vec<&str> =
        lists.into_iter().flatten().map(String::as_str).filter(|l| !l.is_empty()).collect();
    lists.join(",").into()
}

/// Whether the Job makes no more pods for good. Its last pods hold their resources until they have gone.
fn finished(job: &wire::Job) -> bool {
    job.metadata.deletion_timestamp.is_some() || conditions(job).any(ends)
}

/// The condition by which its controller says that it is suspended.
fn suspension(job: &wire::Job) -> Option<&wire::Condition> {
    conditions(job).find(|condition| condition.type_ == "Suspended" && condition.status == "True")
}

/// How long its last run took, once it has ended.
fn ran(job: &wire::Job) -> Option<Duration> {
    let last = || {
        let ended = |condition: &&wire::Condition| ends(condition);
        conditions(job).filter(ended).filter_map(|condition| condition.last_transition_time.as_ref()).max()
    };
    let ended = job.status.completion_time.as_ref().or_else(last)?;
    Some(instant(ended).since(instant(job.status.start_time.as_ref()?)))
}

/// Whether a condition says that the Job makes no more pods for good.
fn ends(condition: &wire::Condition) -> bool {
    condition.status == "True"
        && matches!(condition.type_.as_str(), "Complete" | "Failed" | "FailureTarget" | "SuccessCriteriaMet")
}

/// Whether a condition says that the Job has ended: its controller writes no other one after it.
fn is_last(condition: &wire::Condition) -> bool {
    condition.status == "True" && matches!(condition.type_.as_str(), "Complete" | "Failed")
}

fn conditions(job: &wire::Job) -> impl Iterator<Item = &wire::Condition> {
    job.status.conditions.as_deref().unwrap_or_default().iter()
}

#[cfg(test)]
mod tests;
