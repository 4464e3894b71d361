//! Every write on a workload: bounded in number, each only while leading, each until it is known how
//! it ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{DynamicObject, Request, Status};
use kube::{Client, Resource};
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::call::{Caller, Failure, Pace, unsendable};
use super::clock::now;
use super::leader::Leadership;
use super::pod_groups::{self, Owner, PodGroup};
use super::reduce::job::{JobSeen, job};
use super::reduce::other::other;
use super::reduce::pod::{PodSeen, pod};
use super::reduce::uid;
use super::{patch, wire};
use crate::api::names;
use crate::engine::types::{Name, WorkloadId, WorkloadKind};
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
    /// Let pods run that an admission of their group has not reached yet.
    Release,
    /// Let a pod of a Job go to its place.
    Place,
    /// Have the Job controller make a pod of a Job anew.
    Remake {
        /// Whether its node is gone, so that nobody is left to end it.
        lost: bool,
    },
}

impl Purpose {
    fn label(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Resize => "resize",
            Self::Evict => "evict",
            Self::Fail => "fail",
            Self::Restore => "restore",
            Self::Release => "release",
            Self::Place => "place",
            Self::Remake { .. } => "remake",
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
    /// What is done.
    pub deed: Deed,
    /// The pods to be marked first as disrupted, and why. Where a Job shrinks, it loses these.
    pub disrupted: Vec<Name>,
    /// The sentence they are marked with.
    pub message: String,
    /// The PodGroup that must be there first.
    pub group: Option<PodGroup>,
}

impl Write {
    /// The Job, as the PodGroup knows it.
    fn owner(&self) -> Owner<'_> {
        Owner { namespace: &self.namespace, name: &self.name, uid: &self.id.0 }
    }
}

/// What is done to an object.
#[derive(Clone, Debug)]
pub enum Deed {
    /// It is changed.
    Patch(json_patch::Patch),
    /// Its status is changed.
    PatchStatus(json_patch::Patch),
    /// The API server is asked to end it, which its disruption budget may forbid.
    Evict,
    /// It is several objects: one after the other until one write has been made, then the others at once.
    Each(Vec<Write>),
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
    /// The objects of one workload, as far as they are there.
    Pods(Vec<PodSeen>),
}

impl Look {
    fn is_of(&self, id: &WorkloadId) -> bool {
        match self {
            Self::Job(seen) | Self::Other(_, seen) => seen.uid == id.0,
            Self::Pod(seen) => seen.uid == id.0,
            Self::Pods(_) => true,
        }
    }

    fn pods(self) -> Vec<PodSeen> {
        match self {
            Self::Job(_) | Self::Other(..) => Vec::new(),
            Self::Pod(seen) => vec![seen],
            Self::Pods(seen) => seen,
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
        claim: Leadership,
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
    if let Purpose::Remake { lost } = write.purpose {
        return remake(caller, write, lost).await.map_or_else(failed, |()| End::Gone);
    }
    if let Some(group) = &write.group
        && let Err(failure) = pod_groups::ensure(caller, write.owner(), group).await
    {
        return failed(failure);
    }
    match &write.deed {
        Deed::Each(writes) => all_or_none(caller, writes).await,
        deed => single(caller, write, deed).await,
    }
}

async fn single(caller: &Caller, write: &Write, deed: &Deed) -> End {
    let (patch, on_status) = match deed {
        Deed::Evict => return evict(caller, write).await.unwrap_or_else(failed),
        Deed::Each(_) => return End::Refused("a pod of a group is not a group".to_owned()),
        Deed::Patch(patch) => (patch, false),
        Deed::PatchStatus(patch) => (patch, true),
    };
    let made = match &write.other {
        Some(kind) => {
            let watched = Watched::of(kind);
            let look = |object: &DynamicObject| Look::Other(Arc::clone(kind), other(&watched, object, now()));
            change(caller, write, &watched.resource, patch, on_status, look).await
        }
        None if write.kind.is_pods() => {
            change::<wire::Pod>(caller, write, &(), patch, on_status, look_at_pod).await
        }
        None => change::<wire::Job>(caller, write, &(), patch, on_status, look_at_job).await,
    };
    made.unwrap_or_else(failed)
}

/// Makes the writes on the objects of one workload. What stands in the way of all of them shows with the
/// first, before anything is done. Whom an admission has not reached then it reaches later; of those who
/// are to stop, one that does not means that the decision has not been carried out.
async fn all_or_none(caller: &Caller, writes: &[Write]) -> End {
    let mut seen = Vec::new();
    let mut rest = writes.iter();
    for write in rest.by_ref() {
        match single(caller, write, &write.deed).await {
            End::Done(look) => {
                seen.extend(look.pods());
                break;
            }
            End::Moved(look) => {
                seen.extend(look.pods());
                return End::Moved(Look::Pods(seen));
            }
            End::Gone => {}
            end @ (End::Refused(_) | End::Abandoned) => return end,
        }
    }
    let rest: Vec<&Write> = rest.collect();
    let ends = futures::future::join_all(rest.iter().map(|write| single(caller, write, &write.deed))).await;
    let mut left_out = None;
    let mut abandoned = false;
    for (end, write) in ends.into_iter().zip(rest) {
        let message = match end {
            End::Gone => continue,
            End::Done(look) => {
                seen.extend(look.pods());
                continue;
            }
            End::Moved(look) => {
                seen.extend(look.pods());
                "it has changed meanwhile".to_owned()
            }
            End::Refused(message) => message,
            End::Abandoned => {
                abandoned = true;
                continue;
            }
        };
        tracing::debug!(pod = %write.name, message, "a pod of a group was left out");
        let lets_run = matches!(write.purpose, Purpose::Admit | Purpose::Release);
        if !lets_run {
            left_out = Some(format!("{}: {message}", write.name));
        }
    }
    match left_out {
        _ if abandoned => End::Abandoned,
        Some(message) => End::Refused(message),
        None => End::Done(Look::Pods(seen)),
    }
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
    patch: &json_patch::Patch,
    on_status: bool,
    look: impl Fn(&K) -> Look,
) -> Result<End, Failure>
where
    K: Resource + DeserializeOwned,
{
    let object = requests::<K>(write, kind);
    let versioned = patch::is_versioned(patch);
    let patch = Patch::Json::<()>(patch.clone());
    let request = if on_status {
        object.patch_subresource("status", &write.name, &params(), &patch)
    } else {
        object.patch(&write.name, &params(), &patch)
    };
    let request = request.map_err(unsendable)?;
    match caller.until_known::<K>(Some(write.purpose.label()), versioned, request).await {
        Ok(made) => Ok(End::Done(look(&made))),
        Err(Failure::Moved) => {
            let request = object.get(&write.name, &GetParams::default()).map_err(unsendable)?;
            let seen = look(&caller.until_known::<K>(None, false, request).await?);
            // Another object of the same name is not the one that was decided on.
            if seen.is_of(&write.id) { Ok(End::Moved(seen)) } else { Ok(End::Gone) }
        }
        Err(failure) => Err(failure),
    }
}

/// Has the API server end a pod by its Eviction API, and looks at what it is then. That may be asked again
/// without harm: a pod that is ending goes on ending.
async fn evict(caller: &Caller, write: &Write) -> Result<End, Failure> {
    let object = requests::<wire::Pod>(write, &());
    let body = serde_json::to_vec(&patch::eviction(&write.namespace, &write.name, &write.id.0));
    let body = body.map_err(|error| Failure::Refused(error.to_string()))?;
    let request = object.create_subresource("eviction", &write.name, &PostParams::default(), body);
    let request = request.map_err(unsendable)?;
    match caller.until_known::<Status>(Some(write.purpose.label()), true, request).await {
        // A refusal may come with a code that says it was done.
        Ok(answer) if answer.is_failure() => return Err(Failure::Refused(answer.message)),
        Ok(_) | Err(Failure::Moved) => {}
        // It has ended meanwhile, by this eviction or by itself.
        Err(Failure::Gone) => return Ok(End::Done(Look::Pods(Vec::new()))),
        Err(failure) => return Err(failure),
    }
    let request = object.get(&write.name, &GetParams::default()).map_err(unsendable)?;
    match caller.until_known::<wire::Pod>(None, false, request).await {
        Ok(there) if uid(&there.metadata) == write.id.0 && there.metadata.deletion_timestamp.is_none() => {
            Ok(End::Moved(look_at_pod(&there)))
        }
        Ok(there) if uid(&there.metadata) == write.id.0 => Ok(End::Done(look_at_pod(&there))),
        Ok(_) | Err(Failure::Gone) => Ok(End::Done(Look::Pods(Vec::new()))),
        Err(failure) => Err(failure),
    }
}

/// Takes a pod out of its Job's books and deletes it. Once the first is done, so must be the second: a pod
/// that nobody counts would not count as succeeded either.
async fn remake(caller: &Caller, write: &Write, lost: bool) -> Result<(), Failure> {
    let (pods, label) = (requests::<wire::Pod>(write, &()), Some(write.purpose.label()));
    let disown = Patch::Strategic(patch::disown(&write.id.0));
    let request = pods.patch(&write.name, &params(), &disown).map_err(unsendable)?;
    caller.until_known::<IgnoredAny>(label, true, request).await?;
    let delete = DeleteParams {
        grace_period_seconds: lost.then_some(0),
        preconditions: Some(Preconditions { uid: Some(write.id.0.to_string()), resource_version: None }),
        ..DeleteParams::default()
    };
    let request = pods.delete(&write.name, &delete).map_err(unsendable)?;
    caller.until_known::<IgnoredAny>(label, true, request).await.map(|_| ())
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
