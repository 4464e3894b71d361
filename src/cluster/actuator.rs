//! Every write on a workload: bounded in number, each only while leading, each until it is known how
//! it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::api::{GetParams, Patch, PatchParams};
use kube::core::{DynamicObject, Request};
use kube::{Client, Resource};
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::call::{Caller, Failure, Pace};
use super::leader::Claim;
use super::reduce::job::{JobSeen, job};
use super::reduce::other::other;
use super::reduce::pod::{PodSeen, pod};
use super::watch::now;
use super::{patch, wire};
use crate::api::names;
use crate::engine::model::{Name, WorkloadId, WorkloadKind};
use crate::kinds::{Kind, Watched};
use crate::metrics::Metrics;

/// What a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Let a workload run.
    Admit,
    /// Let a running Job go on with other pods.
    Resize,
    /// Tell a workload to stop.
    Evict,
    /// End a workload as failed.
    Fail,
    /// Give a stopped Job its user's template back.
    Restore,
}

impl Purpose {
    fn label(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Resize => "resize",
            Self::Evict => "evict",
            Self::Fail => "fail",
            Self::Restore => "restore",
        }
    }
}

/// One write on one workload.
#[derive(Clone, Debug)]
pub struct Write {
    /// The workload.
    pub id: WorkloadId,
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its entry of the table, if it is of another kind.
    pub other: Option<Arc<Kind>>,
    /// Its namespace.
    pub namespace: Name,
    /// Its name.
    pub name: Name,
    /// What for.
    pub purpose: Purpose,
    /// Which decision it carries out; its outcome says so again.
    pub decision: u64,
    /// The change.
    pub patch: json_patch::Patch,
    /// Whether it changes the status of the object and not the rest.
    pub on_status: bool,
    /// The pods to be marked first as disrupted, and why. Where a Job shrinks, it loses these.
    pub disrupted: Vec<Name>,
    /// The sentence they are marked with.
    pub message: String,
}

/// How a write ended.
#[derive(Debug)]
pub struct Outcome {
    /// The workload.
    pub id: WorkloadId,
    /// What for.
    pub purpose: Purpose,
    /// Which decision it was to carry out.
    pub decision: u64,
    /// How.
    pub end: End,
}

/// What became of a write, for certain.
#[derive(Debug)]
pub enum End {
    /// It was made, and this is the object.
    Done(Look),
    /// The object is no longer what the write was decided on, perhaps by this very write whose first
    /// answer was lost; this is what it is now.
    Moved(Look),
    /// The object is gone.
    Gone,
    /// The API server refused it.
    Refused(String),
    /// This process no longer leads, and what became of the write is not known.
    Abandoned,
}

/// An object as the API server has it.
#[derive(Debug)]
pub enum Look {
    /// A Job.
    Job(JobSeen),
    /// An object of another kind, with the entry of the table.
    Other(Arc<Kind>, JobSeen),
    /// A pod.
    Pod(PodSeen),
}

impl Look {
    fn uid(&self) -> &Name {
        match self {
            Self::Job(seen) | Self::Other(_, seen) => &seen.uid,
            Self::Pod(seen) => &seen.uid,
        }
    }
}

/// Makes the writes; dropped, it abandons them.
pub struct Actuator {
    caller: Caller,
    waiting: Arc<AtomicUsize>,
    writes: JoinSet<()>,
    outcomes: mpsc::UnboundedSender<Outcome>,
}

impl Actuator {
    /// An actuator that reports to `outcomes`; `waiting` counts what it has still to do.
    #[must_use]
    pub fn new(
        client: Client,
        claim: Claim,
        metrics: Arc<Metrics>,
        waiting: Arc<AtomicUsize>,
        outcomes: mpsc::UnboundedSender<Outcome>,
    ) -> Self {
        let caller = Caller::new(client, claim, metrics, Pace::default());
        Self { caller, waiting, writes: JoinSet::new(), outcomes }
    }

    /// Starts a write; its outcome follows.
    pub fn start(&mut self, write: Write) {
        while self.writes.try_join_next().is_some() {}
        let (caller, outcomes) = (self.caller.clone(), self.outcomes.clone());
        let under_way = UnderWay::new(&self.waiting);
        self.writes.spawn(async move {
            let _under_way = under_way;
            let end = carry_out(&caller, &write).await;
            // Nobody listens when the session has ended; the next one reads everything anew.
            let Write { id, purpose, decision, .. } = write;
            let _ = outcomes.send(Outcome { id, purpose, decision, end });
        });
    }

    /// Waits for the writes that have been started, `at_most` so long; false when some are abandoned.
    pub async fn finish(mut self, at_most: Duration) -> bool {
        let all = async { while self.writes.join_next().await.is_some() {} };
        timeout(at_most, all).await.is_ok()
    }
}

/// Counts a write from its start to its end, also when it is abandoned.
struct UnderWay(Arc<AtomicUsize>);

impl UnderWay {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn carry_out(caller: &Caller, write: &Write) -> End {
    for name in &write.disrupted {
        match mark_disrupted(caller, write, name).await {
            // A pod that is gone needs no mark.
            Ok(()) | Err(Failure::Gone | Failure::Moved) => {}
            Err(failure) => return failed(failure),
        }
    }
    let made = match &write.other {
        Some(kind) => {
            let watched = Watched::of(kind);
            let look = |object: &DynamicObject| Look::Other(Arc::clone(kind), other(&watched, object, now()));
            change(caller, write, &watched.resource, look).await
        }
        None if write.kind == WorkloadKind::Pod => change::<wire::Pod>(caller, write, &(), look_at_pod).await,
        None => change::<wire::Job>(caller, write, &(), look_at_job).await,
    };
    made.unwrap_or_else(failed)
}

fn failed(failure: Failure) -> End {
    match failure {
        Failure::Refused(message) => End::Refused(message),
        Failure::NotLeading => End::Abandoned,
        Failure::Gone | Failure::Moved => End::Gone,
    }
}

fn look_at_job(object: &wire::Job) -> Look {
    Look::Job(job(object, now()))
}

fn look_at_pod(object: &wire::Pod) -> Look {
    Look::Pod(pod(object))
}

/// Makes the change, or looks at what the object is instead.
async fn change<K>(
    caller: &Caller,
    write: &Write,
    kind: &K::DynamicType,
    look: impl Fn(&K) -> Look,
) -> Result<End, Failure>
where
    K: Resource + DeserializeOwned,
{
    let object = requests::<K>(write, kind);
    let patch = Patch::Json::<()>(write.patch.clone());
    let request = if write.on_status {
        object.patch_subresource("status", &write.name, &params(), &patch)
    } else {
        object.patch(&write.name, &params(), &patch)
    };
    let request = request.map_err(unsendable)?;
    let versioned = patch::is_versioned(&write.patch);
    match caller.until_known::<K>(Some(write.purpose.label()), versioned, request).await {
        Ok(made) => Ok(End::Done(look(&made))),
        Err(Failure::Moved) => {
            let request = object.get(&write.name, &GetParams::default()).map_err(unsendable)?;
            let seen = look(&caller.until_known::<K>(None, false, request).await?);
            // Another object of the same name is not the one that was decided on.
            if *seen.uid() == write.id.0 { Ok(End::Moved(seen)) } else { Ok(End::Gone) }
        }
        Err(failure) => Err(failure),
    }
}

/// Marks one pod.
async fn mark_disrupted(caller: &Caller, write: &Write, name: &str) -> Result<(), Failure> {
    let condition = match write.purpose {
        Purpose::Resize => patch::first_to_go,
        _ => patch::disruption,
    };
    let condition = Patch::Strategic(condition(jiff::Timestamp::now(), &write.message));
    let request = requests::<wire::Pod>(write, &()).patch_subresource("status", name, &params(), &condition);
    let request = request.map_err(unsendable)?;
    caller.until_known::<IgnoredAny>(Some("disruption"), false, request).await.map(|_| ())
}

fn requests<K: Resource>(write: &Write, kind: &K::DynamicType) -> Request {
    Request::new(K::url_path(kind, Some(&write.namespace)))
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PatchParams::default() }
}

fn unsendable(error: kube::core::request::Error) -> Failure {
    Failure::Refused(error.to_string())
}
