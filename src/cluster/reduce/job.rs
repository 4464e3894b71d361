//! A Job as the engine sees it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::Value;

use super::super::wire;
use super::claims::{Claims, claims};
use super::shape::shape;
use super::{
    Facts, Gang, Managed, Sizes, annotation, controller, created, eviction, gates, instant, label, name,
    record, share_device, uid, version, wishes,
};
use crate::api::names;
use crate::api::pod_group::is_own;
use crate::api::record::{Record, time};
use crate::api::seats::Seats;
use crate::engine::types::{Admission, Name, Observed, PodShape, Time, Workload, WorkloadId, WorkloadKind};

/// What one look at a Job gives.
#[derive(Clone, Debug)]
pub struct JobSeen {
    /// Its UID.
    pub uid: Name,
    /// Its version.
    pub version: u64,
    /// Who made it.
    pub controller: Option<Box<OwnerReference>>,
    /// What Sluice has to do with it; `None` for a Job that runs without its doing.
    pub managed: Option<Box<Managed>>,
}

/// Reduces a Job seen at `now`.
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
    let metadata = &job.metadata;
    let record = record(metadata);
    let held = annotation(metadata, names::HELD) == Some("true");
    let suspended = job.spec.suspend == Some(true);
    if record.is_none() && !suspended && !(held && finished(job)) {
        return None;
    }
    let eviction = eviction(metadata);
    let gates: Vec<Name> = gates(&job.spec.template.spec);
    // Where each pod gets its own place, the template's affinity stays its user's.
    let one_by_one = gates.iter().any(|gate| &**gate == names::GATE_PLACEMENT);
    let kept = annotation(metadata, names::USER_AFFINITY);
    let user_affinity: Option<Box<str>> = match (kept, &record, &job.spec.template.spec.affinity) {
        (Some(kept), ..) => Some(kept.into()),
        (None, Some(_), Some(written)) if one_by_one => Some(written.to_string().into()),
        // The template's affinity is Sluice's own.
        (None, Some(_), _) | (None, None, None) => None,
        (None, None, Some(written)) => Some(written.to_string().into()),
    };
    let parallelism = job.spec.parallelism.and_then(|pods| u32::try_from(pods).ok()).unwrap_or(1);
    let wanted = wanted(parallelism, record.as_ref());
    let pods = wanted.min(missing(job));
    let state = if finished(job) {
        Observed::Finished
    } else {
        match (suspended, record.as_ref().map(Admission::from)) {
            (false, Some(admission)) => Observed::Admitted(admission),
            (true, Some(admission)) => {
                let told = eviction.as_ref().map(|eviction| time(eviction.at));
                let (since, stopped) = stopping(job, told, now);
                Observed::Leaving { admission, since, stopped }
            }
            // A Job of no pods has nothing to admit.
            (_, None) if held && pods > 0 => Observed::Queued,
            (_, None) => Observed::OnHold,
        }
    };
    let over = state == Observed::Finished;
    let wishes = wishes(metadata, job.spec.active_deadline_seconds);
    // The API server refuses to change the parallelism of a gang that has a PodGroup.
    let may_change = job.spec.template.spec.scheduling_group.is_none();
    let min_pods = wishes.min_pods.filter(|_| may_change).map(|fewest| fewest.min(pods));
    let elastic = min_pods.is_some_and(|fewest| fewest < pods);
    let admitted = matches!(state, Observed::Admitted(_));
    let spec = &job.spec.template.spec;
    let affinity: Option<Value> = if elastic && admitted && !one_by_one {
        // The template of a running Job cannot change, so whatever pods it gets go where that says.
        spec.affinity.clone()
    } else {
        user_affinity.as_deref().and_then(|text| serde_json::from_str(text).ok())
    };
    let share = record.as_ref().and_then(|record| record.share.as_deref());
    let choice = Sizes::of(metadata, spec, share).filter(|_| !over);
    let sizes = choice.as_ref().map(|choice| choice.requests(spec)).unwrap_or_default();
    let mut shape = if over { PodShape::default() } else { shape(spec, affinity.as_ref()) };
    let share = wishes.share.filter(|_| !over && sizes.is_empty());
    let whole_device = share.and_then(|share| share_device(&mut shape.requests, share));
    if let Some(full) = sizes.first() {
        shape.requests = full.requests.clone();
    }
    let namespace = name(metadata.namespace.as_ref());
    let claims = Claims::of_template(&namespace, vec![claims(spec, None)], &shape.requests, &sizes);
    Some(Box::new(Managed {
        claims: claims.filter(|_| !over),
        own_queue: label(metadata, names::QUEUE),
        class: spec.priority_class_name.as_deref().map(Name::from),
        facts: Facts {
            uid: uid(metadata),
            user_affinity: user_affinity.filter(|_| !over),
            keeps_affinity: kept.is_some(),
            record: annotation(metadata, names::ADMISSION).map(Into::into),
            has_eviction: annotation(metadata, names::EVICTION).is_some(),
            held,
            has_failure_policy: job.spec.pod_failure_policy.is_some(),
            active: count(job.status.active),
            terminating: count(job.status.terminating),
            gates,
            done: (job.spec.completion_mode.as_deref() == Some("Indexed")).then(|| ended_indexes(job)),
            seats: record
                .as_ref()
                .filter(|_| one_by_one && admitted)
                .map(|record| Arc::new(Seats::of(record))),
            eviction,
            generation: metadata.generation,
            parallelism,
            wanted,
            started: job.status.start_time.is_some(),
            conditioned: conditions(job).next().is_some(),
            failure: conditions(job)
                .find(|condition| ends(condition) && condition.type_.starts_with("Fail"))
                .map(|condition| condition.reason.as_str().into()),
            deleting: metadata.deletion_timestamp.is_some(),
            replica: None,
            annotated: metadata.annotations.is_some(),
            whole_device,
            sizes: choice.map(Arc::new),
            other: None,
            gang: gang(job, parallelism).filter(|_| !over).map(Box::new),
        },
        workload: Workload {
            id: WorkloadId(uid(metadata)),
            kind: WorkloadKind::Job,
            namespace,
            name: name(metadata.name.as_ref()),
            team: "".into(),
            queue: None,
            priority: 0,
            submitted: created(metadata),
            pods,
            shape,
            sizes,
            pools: wishes.pools,
            resumable: true,
            expendable: false,
            time_limit: wishes.time_limit,
            last_checkpoint: wishes.last_checkpoint,
            checkpoint_interval: wishes.checkpoint_interval,
            min_pods,
            topology: wishes.topology,
            user: wishes.user,
            resizable: (elastic || admitted && one_by_one) && (admitted || state == Observed::Queued),
            ran: record.filter(|_| over).and_then(|_| ran(job)),
            state,
        },
    }))
}

/// The parallelism the user wrote: Sluice's own as long as it is what Sluice granted, else a newer one.
fn wanted(parallelism: u32, record: Option<&Record>) -> u32 {
    let granted = record.filter(|record| record.pods == parallelism);
    granted.and_then(|record| record.wanted).unwrap_or(parallelism)
}

/// The PodGroup that Sluice has named for its pods.
fn gang(job: &wire::Job, parallelism: u32) -> Option<Gang> {
    let group = job.spec.template.spec.scheduling_group.as_ref()?.pod_group_name.as_deref()?;
    let together = job.spec.completions.is_none_or(|all| all <= i64::from(parallelism));
    is_own(group).then(|| Gang { group: group.into(), together })
}

/// How many pods have still to succeed, at most.
fn missing(job: &wire::Job) -> u32 {
    let missing = job.spec.completions.map(|total| total - job.status.succeeded.unwrap_or(0));
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

/// Whether the Job makes no more pods for good. What its last pods hold is held by themselves.
fn finished(job: &wire::Job) -> bool {
    job.metadata.deletion_timestamp.is_some() || conditions(job).any(ends)
}

/// How long its last run took, where it has come to its end.
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

fn conditions(job: &wire::Job) -> impl Iterator<Item = &wire::Condition> {
    job.status.conditions.as_deref().unwrap_or_default().iter()
}

/// Since when the Job is being stopped, and whether its controller has confirmed that it makes no
/// more pods. The condition's time has whole seconds, so the second of the eviction counts.
fn stopping(job: &wire::Job, told: Option<Time>, now: Time) -> (Time, bool) {
    let suspended = conditions(job)
        .find(|condition| condition.type_ == "Suspended" && condition.status == "True")
        .map(|condition| condition.last_transition_time.as_ref().map_or(now, instant));
    let since = told.or(suspended).unwrap_or(now);
    let whole_second = Time(since.0.div_euclid(1000) * 1000);
    let confirmed = suspended.is_some_and(|at| at >= whole_second) && job.status.active.unwrap_or(0) == 0;
    (since, confirmed)
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;
