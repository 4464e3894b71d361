//! A workload as its object shows it, and what follows for its runs.

use std::collections::BTreeMap;
use std::time::Duration;

use super::super::record::{Ending, Head, RunKey, Transition};
use crate::engine::types::amount::Amount;
use crate::engine::types::{Admission, FailReason, Name, Time, Workload, WorkloadId};

/// A workload as its object is now.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// Its queue.
    pub queue: &'a Name,
    /// The note of its last eviction: when, for which workload, and why.
    pub eviction: Option<(Time, &'a str, &'a str)>,
    /// The record of its admission, whatever its state.
    pub admission: Option<&'a Admission>,
    /// The reason in its status for which it failed.
    pub failure: Option<&'a str>,
    /// What it leaves once it has ended.
    pub past: Option<Past<'a>>,
}

/// What the object of a workload that has ended says.
#[derive(Clone, Copy, Debug)]
pub struct Past<'a> {
    /// The requests of each pod.
    pub requests: &'a [(Name, Amount)],
    /// When it ended.
    pub ended: Option<Time>,
    /// Whether it succeeded.
    pub succeeded: Option<bool>,
}

/// What stops a run.
#[derive(Clone, Debug)]
pub struct Stop {
    /// How it ends.
    pub how: Ending,
    /// The reason.
    pub reason: String,
    /// The workload it stops for.
    pub for_workload: String,
    /// When it was stopped.
    pub at: Option<i64>,
    /// Until when its work is saved, where some is lost.
    pub saved_at: Option<i64>,
}

/// The key of a run.
pub fn key_of(id: &WorkloadId, admitted_at: i64) -> RunKey {
    RunKey { uid: id.0.to_string(), admitted_at }
}

/// What the object and its record say of a run.
pub fn head(subject: &Subject<'_>, admission: &Admission, queued_at: Option<i64>) -> Head {
    let workload = subject.workload;
    let nodes: BTreeMap<&str, u32> = admission.nodes.iter().map(|(node, pods)| (&**node, *pods)).collect();
    Head {
        namespace: workload.namespace.to_string(),
        name: workload.name.to_string(),
        kind: workload.kind.to_string(),
        team: workload.team.to_string(),
        queue: subject.queue.to_string(),
        pool: admission.pool.to_string(),
        username: workload.user.as_deref().unwrap_or_default().to_owned(),
        submitted_at: workload.submitted.0,
        queued_at,
        pods: i64::from(admission.pods),
        nodes: serde_json::to_string(&nodes).unwrap_or_default(),
        devices: 0,
        borrowed: admission.borrowed,
    }
}

/// Something that happened to a workload, yet without reason and grade.
pub fn happened(subject: &Subject<'_>, admitted_at: i64, transition: &str, at: i64) -> Transition {
    let workload = subject.workload;
    Transition {
        uid: workload.id.0.to_string(),
        admitted_at,
        transition: transition.into(),
        at,
        namespace: workload.namespace.to_string(),
        name: workload.name.to_string(),
        team: workload.team.to_string(),
        ..Transition::default()
    }
}

/// What stops a workload that is leaving: Sluice, by its note, or else its user.
pub fn stop(subject: &Subject<'_>, admission: &Admission, since: Time) -> Stop {
    match subject.eviction.filter(|(at, ..)| *at >= admission.at) {
        Some((at, preemptor, reason)) => {
            // A rule ends pods and custom kinds for good by the same note. Nothing of them is lost to another workload.
            let fails = FailReason::ALL.iter().any(|rule| rule.code() == reason);
            Stop {
                how: if fails { Ending::Failed } else { Ending::Evicted },
                reason: reason.to_owned(),
                for_workload: preemptor.to_owned(),
                at: Some(at.0),
                saved_at: (!fails).then(|| saved(subject.workload, admission.at, at).0),
            }
        }
        None => Stop {
            how: Ending::Stopped,
            reason: String::new(),
            for_workload: String::new(),
            at: Some(since.0),
            saved_at: None,
        },
    }
}

/// How a workload has ended, with the reason that its object gives.
pub fn ending<'a>(subject: &Subject<'a>) -> (Ending, &'a str) {
    let reason = subject.failure.unwrap_or_default();
    match subject.past.and_then(|past| past.succeeded) {
        Some(true) => (Ending::Completed, ""),
        Some(false) => (Ending::Failed, reason),
        None if !reason.is_empty() => (Ending::Failed, reason),
        None if subject.past.is_some() => (Ending::Deleted, ""),
        None => (Ending::Ended, ""),
    }
}

/// Until when the work of a run is saved that is evicted at `at`.
pub fn saved(workload: &Workload, started: Time, at: Time) -> Time {
    if let Some(last) = workload.last_checkpoint {
        return last.max(started).min(at);
    }
    let interval = workload.checkpoint_interval.map_or(0, |interval| interval.as_millis());
    let ran = at.since(started).as_millis();
    let kept = ran.checked_div(interval).unwrap_or(0) * interval;
    started.after(Duration::from_millis(u64::try_from(kept).unwrap_or(0)))
}
