//! One write from its first call to its certain end.

use std::sync::Arc;

use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{DynamicObject, Request, Status};
use serde::de::{DeserializeOwned, IgnoredAny};

use super::super::call::{Caller, Failure, unsendable};
use super::super::clock::now;
use super::super::reduce::uid;
use super::super::target::custom::custom;
use super::super::target::job::job;
use super::super::target::pod::{self, pod};
use super::super::target::{Operation, Resource};
use super::super::{patch, pod_groups, start_time, wire};
use super::{End, Look, Purpose, Task, Write};
use crate::api::names;
use crate::engine::types::{Name, PodId};
use crate::kinds::Watched;

/// Makes a write.
pub(super) async fn carry_out(caller: &Caller, write: &Write) -> End {
    for name in &write.disrupted {
        match mark_disrupted(caller, write, name).await {
            // A pod that is gone needs no mark, and one that takes none ends without it.
            Ok(()) | Err(Failure::Gone | Failure::Moved | Failure::Refused(_)) => {}
            Err(failure) => return failed(failure),
        }
    }
    if let Purpose::Shorten { seconds } = write.purpose {
        return shorten(caller, write, seconds).await.map_or_else(failed, |()| End::Gone);
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

/// Makes the write on one object. Where the API server refuses a patch for good, smaller ones follow: a user may have
/// filled the object, so that there is no room left for all that the patch adds.
async fn single(caller: &Caller, write: &Write) -> End {
    let (patch, part) = match &write.task {
        Task::Single(Operation::Patch(patch)) => (patch, None),
        Task::Single(Operation::PatchStatus(patch)) => (patch, Some("status")),
        Task::Single(Operation::Evict) => return evict(caller, write).await.unwrap_or_else(failed),
        Task::Single(Operation::Delete) => return delete(caller, write).await.unwrap_or_else(failed),
        Task::Impossible(why) => return End::Refused(why.clone()),
        Task::Each(_) => return End::Refused("a pod of a group is not a group".to_owned()),
    };
    let mut made = patched(caller, write, (patch, part)).await;
    for patch in &write.smaller {
        let Err(Failure::Refused(message)) = &made else { break };
        tracing::info!(object = %write.name, namespace = %write.namespace, message, "a smaller patch follows");
        made = patched(caller, write, (patch, part)).await;
    }
    made.unwrap_or_else(failed)
}

/// Patches the object of a write.
async fn patched(
    caller: &Caller,
    write: &Write,
    patch: (&json_patch::Patch, Option<&str>),
) -> Result<End, Failure> {
    match &write.resource {
        Resource::Custom(kind) => {
            let watched = Watched::of(kind);
            let look =
                |object: &DynamicObject| Look::Other(Arc::clone(kind), custom(&watched, object, now()));
            change(caller, write, &watched.resource, patch, look).await
        }
        Resource::Pod => change::<wire::Pod>(caller, write, &(), patch, look_at_pod).await,
        Resource::Job => change_job(caller, write, patch).await,
    }
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
            end @ (End::Refused(_) | End::NotNow(_) | End::Abandoned) => return end,
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
            End::Refused(message) | End::NotNow(message) => message,
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
        Some(message) => End::NotNow(message),
        None => End::Done(Look::Pods(seen)),
    }
}

fn failed(failure: Failure) -> End {
    match failure {
        Failure::Refused(message) | Failure::Immutable(message) => End::Refused(message),
        Failure::NotNow(message) => End::NotNow(message),
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

/// Deletes a pod and reads it afterwards. No disruption budget keeps one that was never admitted, or that a budget has kept
/// for as long as a grace period may last.
async fn delete(caller: &Caller, write: &Write) -> Result<End, Failure> {
    let uid = write.id.unadmitted_pod().map_or_else(|| write.id.0.clone(), |PodId(uid)| uid);
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

/// Deletes a pod again that is about to end. The API server takes a shorter grace period, and counts it from the first
/// deletion.
async fn shorten(caller: &Caller, write: &Write, seconds: u32) -> Result<(), Failure> {
    let delete = DeleteParams {
        grace_period_seconds: Some(seconds),
        preconditions: Some(Preconditions { uid: Some(write.id.0.to_string()), resource_version: None }),
        ..DeleteParams::default()
    };
    let request = requests::<wire::Pod>(write, &()).delete(&write.name, &delete).map_err(unsendable)?;
    caller.until_known::<IgnoredAny>(Some(write.purpose.label()), true, request).await.map(|_| ())
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
