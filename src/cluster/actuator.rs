//! Every write on a workload: bounded in number, each only while leading, each until its outcome is known.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::Client;
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{DynamicObject, Request, Status};
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::call::{Caller, Failure, Pace, unsendable};
use super::clock::now;
use super::leader::Leadership;
use super::pod_groups::{self, Owner, PodGroup};
use super::reduce::uid;
use super::start_time;
use super::target::custom::custom;
use super::target::job::job;
use super::target::pod::{self, PodSeen, pod};
use super::target::{JobSeen, Operation, Resource};
use super::{patch, wire};
use crate::api::names;
use crate::engine::types::{Name, PodId, WorkloadId};
use crate::kinds::{Kind, Watched};
use crate::metrics::Metrics;

/// The purpose of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Let a workload run.
    Admit,
    /// Let a running Job continue with other pods.
    Resize,
    /// Stop a workload.
    Evict,
    /// End a workload as failed.
    Fail,
    /// Give a stopped Job its user's template back.
    Restore,
    /// Let pods run that the admission of their group has not reached yet.
    Release,
    /// Give a pod of a Job its node.
    Place,
    /// End a pod on a node that does not answer.
    EndPod,
    /// Have the Job controller replace a pod.
    Remake {
        /// Whether its node is gone, so that no kubelet can end it.
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
            Self::EndPod => "end_pod",
            Self::Remake { .. } => "remake",
        }
    }
}

/// One write on one workload.
#[derive(Clone, Debug)]
pub struct Write {
    /// The workload.
    pub id: WorkloadId,
    /// The API resource of its object.
    pub resource: Resource,
    /// The namespace.
    pub namespace: Name,
    /// The name.
    pub name: Name,
    /// The purpose.
    pub purpose: Purpose,
    /// The number of the decision it carries out; the outcome repeats it.
    pub decision: u64,
    /// The write itself.
    pub task: Task,
    /// The pods to be marked as disrupted first. A Job that shrinks loses these.
    pub disrupted: Vec<Name>,
    /// The message of that mark.
    pub message: String,
    /// The PodGroup that must exist first.
    pub group: Option<PodGroup>,
}

impl Write {
    /// The Job, as the PodGroup knows it.
    fn owner(&self) -> Owner<'_> {
        Owner { namespace: &self.namespace, name: &self.name, uid: &self.id.0 }
    }
}

/// The objects that a write changes.
#[derive(Clone, Debug)]
pub enum Task {
    /// The object of the workload.
    Single(Operation),
    /// None: the write is known to be refused, for this reason.
    Impossible(String),
    /// Several objects: one after the other until the first write succeeds, then the rest at once.
    Each(Vec<Write>),
}

/// How a write ended.
#[derive(Debug)]
pub struct Outcome {
    /// The workload.
    pub id: WorkloadId,
    /// The purpose of the write.
    pub purpose: Purpose,
    /// The number of the decision it carried out.
    pub decision: u64,
    /// The end of the write.
    pub end: End,
}

/// The certain end of a write.
#[derive(Debug)]
pub enum End {
    /// It was made; the object after it.
    Done(Look),
    /// The object has changed since the decision, perhaps by this very write, the first answer to which was
    /// lost; the object now.
    Moved(Look),
    /// The object is gone.
    Gone,
    /// The API server refused it.
    Refused(String),
    /// This process no longer leads, and the end of the write is not known.
    Abandoned,
}

/// An object as the API server has it.
#[derive(Debug)]
pub enum Look {
    /// A Job.
    Job(JobSeen),
    /// An object of a custom kind, with its entry of the table.
    Other(Arc<Kind>, JobSeen),
    /// A pod.
    Pod(PodSeen),
    /// The existing pods of one workload.
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
    /// An actuator that reports to `outcomes`; `waiting` counts the unfinished writes.
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
            // The receiver is gone when the session has ended; the next session goes by the objects.
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
    let kubelet_is_gone = match write.purpose {
        Purpose::Remake { lost } => Some(lost),
        Purpose::EndPod => Some(true),
        _ => None,
    };
    if let Some(lost) = kubelet_is_gone {
        return remake(caller, write, lost).await.map_or_else(failed, |()| End::Gone);
    }
    if let Some(group) = &write.group
        && let Err(failure) = pod_groups::ensure(caller, write.owner(), group).await
    {
        return failed(failure);
    }
    match &write.task {
        Task::Each(writes) => all_or_none(caller, writes).await,
        Task::Impossible(why) => End::Refused(why.clone()),
        Task::Single(_) => single(caller, write).await,
    }
}

/// Makes the write on one object.
async fn single(caller: &Caller, write: &Write) -> End {
    let (patch, on_status) = match &write.task {
        Task::Single(Operation::Patch(patch)) => (patch, false),
        Task::Single(Operation::PatchStatus(patch)) => (patch, true),
        Task::Single(Operation::Evict) => return evict(caller, write).await.unwrap_or_else(failed),
        Task::Single(Operation::Delete) => return delete(caller, write).await.unwrap_or_else(failed),
        Task::Impossible(why) => return End::Refused(why.clone()),
        Task::Each(_) => return End::Refused("a pod of a group is not a group".to_owned()),
    };
    let part = on_status.then_some("status");
    let made = match &write.resource {
        Resource::Custom(kind) => {
            let watched = Watched::of(kind);
            let look =
                |object: &DynamicObject| Look::Other(Arc::clone(kind), custom(&watched, object, now()));
            change(caller, write, &watched.resource, (patch, part), look).await
        }
        Resource::Pod => change::<wire::Pod>(caller, write, &(), (patch, part), look_at_pod).await,
        Resource::Job => change_job(caller, write, (patch, part)).await,
    };
    made.unwrap_or_else(failed)
}

/// Makes the writes on the pods of one workload. An obstacle to all of them shows with the first, before any
/// change. An admission reaches pods that it misses now later. A pod that does not stop means that the decision
/// has not been carried out.
async fn all_or_none(caller: &Caller, writes: &[Write]) -> End {
    let mut seen = Vec::new();
    let mut rest = writes.iter();
    for write in rest.by_ref() {
        match single(caller, write).await {
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
    let ends = futures::future::join_all(rest.iter().map(|write| single(caller, write))).await;
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
                "the pod has changed since the decision".to_owned()
            }
            End::Refused(message) => message,
            End::Abandoned => {
                abandoned = true;
                continue;
            }
        };
        tracing::debug!(pod = %write.name, message, "pod of a group not written");
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
        Failure::Refused(message) | Failure::Immutable(message) => End::Refused(message),
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

/// Patches the object or a part of it, or reads the object where the patch no longer applies.
async fn change<K>(
    caller: &Caller,
    write: &Write,
    kind: &K::DynamicType,
    (patch, part): (&json_patch::Patch, Option<&str>),
    look: impl Fn(&K) -> Look,
) -> Result<End, Failure>
where
    K: kube::Resource + DeserializeOwned,
{
    let object = requests::<K>(write, kind);
    let versioned = patch::is_versioned(patch);
    let patch = Patch::Json::<()>(patch.clone());
    let request = match part {
        Some(part) => object.patch_subresource(part, &write.name, &params(), &patch),
        None => object.patch(&write.name, &params(), &patch),
    };
    let request = request.map_err(unsendable)?;
    match caller.until_known::<K>(Some(write.purpose.label()), versioned, request).await {
        Ok(made) => Ok(End::Done(look(&made))),
        Err(Failure::Moved) => {
            let request = object.get(&write.name, &GetParams::default()).map_err(unsendable)?;
            let seen = look(&caller.until_known::<K>(None, false, request).await?);
            // Another object of the same name is not the object of the decision.
            if seen.is_of(&write.id) { Ok(End::Moved(seen)) } else { Ok(End::Gone) }
        }
        Err(failure) => Err(failure),
    }
}

/// Patches a Job. A Job that has run may need its start time cleared first. Each step begins from the object as it
/// is, so another leader goes on after any of them.
async fn change_job(
    caller: &Caller,
    write: &Write,
    patch: (&json_patch::Patch, Option<&str>),
) -> Result<End, Failure> {
    match change::<wire::Job>(caller, write, &(), patch, look_at_job).await {
        Err(Failure::Immutable(refusal)) => {
            let (jobs, label) = (requests::<wire::Job>(write, &()), write.purpose.label());
            start_time::clear(caller, &jobs, (&write.name, &write.id.0), label, refusal).await?;
            change::<wire::Job>(caller, write, &(), patch, look_at_job).await
        }
        made => made,
    }
}

/// Ends a pod by the Eviction API, and reads the pod afterwards. The request can be repeated without harm: a pod
/// that is ending goes on ending.
async fn evict(caller: &Caller, write: &Write) -> Result<End, Failure> {
    let object = requests::<wire::Pod>(write, &());
    let body = serde_json::to_vec(&pod::eviction(&write.namespace, &write.name, &write.id.0));
    let body = body.map_err(|error| Failure::Refused(error.to_string()))?;
    let request = object.create_subresource("eviction", &write.name, &PostParams::default(), body);
    let request = request.map_err(unsendable)?;
    let uid = &write.id.0;
    match caller.until_known::<Status>(Some(write.purpose.label()), true, request).await {
        // A refusal may come with the code of success.
        Ok(answer) if answer.is_failure() => return Err(Failure::Refused(answer.message)),
        Ok(_) | Err(Failure::Moved) => {}
        // It has ended, by this eviction or by itself.
        Err(Failure::Gone) => return Ok(End::Done(Look::Pods(Vec::new()))),
        Err(failure) => return Err(failure),
    }
    look_after_end(caller, write, uid).await
}

/// Reads a pod that is to end.
async fn look_after_end(caller: &Caller, write: &Write, pod: &Name) -> Result<End, Failure> {
    let object = requests::<wire::Pod>(write, &());
    let request = object.get(&write.name, &GetParams::default()).map_err(unsendable)?;
    match caller.until_known::<wire::Pod>(None, false, request).await {
        Ok(there) if uid(&there.metadata) == *pod && there.metadata.deletion_timestamp.is_none() => {
            Ok(End::Moved(look_at_pod(&there)))
        }
        Ok(there) if uid(&there.metadata) == *pod => Ok(End::Done(look_at_pod(&there))),
        Ok(_) | Err(Failure::Gone) => Ok(End::Done(Look::Pods(Vec::new()))),
        Err(failure) => Err(failure),
    }
}

/// Deletes a pod that was never admitted, and reads it afterwards.
async fn delete(caller: &Caller, write: &Write) -> Result<End, Failure> {
    let Some(PodId(uid)) = write.id.unadmitted_pod() else {
        return Err(Failure::Refused("only a pod that was never admitted is deleted".to_owned()));
    };
    let object = requests::<wire::Pod>(write, &());
    let preconditions = Some(Preconditions { uid: Some(uid.to_string()), resource_version: None });
    let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
    let request = object.delete(&write.name, &parameters).map_err(unsendable)?;
    match caller.until_known::<IgnoredAny>(Some(write.purpose.label()), true, request).await {
        Ok(_) | Err(Failure::Moved) => {}
        Err(Failure::Gone) => return Ok(End::Done(Look::Pods(Vec::new()))),
        Err(failure) => return Err(failure),
    }
    look_after_end(caller, write, &uid).await
}

/// Removes a pod from the count of its Job and deletes it. The second step must follow the first: a pod that is
/// not counted would not count as succeeded either.
async fn remake(caller: &Caller, write: &Write, lost: bool) -> Result<(), Failure> {
    let (pods, label) = (requests::<wire::Pod>(write, &()), Some(write.purpose.label()));
    let disown = Patch::Strategic(pod::disown(&write.id.0));
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

/// Marks one pod as disrupted.
async fn mark_disrupted(caller: &Caller, write: &Write, name: &str) -> Result<(), Failure> {
    let condition = match write.purpose {
        Purpose::Resize => pod::delete_first,
        _ => pod::disruption,
    };
    let condition = Patch::Strategic(condition(jiff::Timestamp::now(), &write.message));
    let request = requests::<wire::Pod>(write, &()).patch_subresource("status", name, &params(), &condition);
    let request = request.map_err(unsendable)?;
    caller.until_known::<IgnoredAny>(Some("disruption"), false, request).await.map(|_| ())
}

fn requests<K: kube::Resource>(write: &Write, kind: &K::DynamicType) -> Request {
    Request::new(K::url_path(kind, Some(&write.namespace)))
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PatchParams::default() }
}
