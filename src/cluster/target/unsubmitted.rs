//! What an object would be to the engine that is not submitted.

use std::sync::Arc;

use kube::core::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::wire;
use super::pod::PodSeen;
use super::{Managed, custom, job, pod, pod_group};
use crate::engine::types::{Name, Observed, Time, Unready};
use crate::kinds::Kinds;

/// A workload that is not submitted.
#[derive(Debug)]
pub struct Unsubmitted {
    /// The workload; of a pod of a group, the whole group.
    pub managed: Box<Managed>,
    /// The name and size of the group that the object is a pod of.
    pub group: Option<(Name, u32)>,
    /// The pods of the group.
    pods: Vec<PodSeen>,
}

/// The workload that an object would become that is stored at `now` as it is; `None` where it is none.
///
/// # Errors
/// Which field cannot be read.
pub fn read(kinds: &Kinds, object: &Value, now: Time) -> Result<Option<Unsubmitted>, String> {
    let alone = |managed: Option<Box<Managed>>| {
        managed.map(|managed| Unsubmitted { managed, group: None, pods: Vec::new() })
    };
    let kind = object["kind"].as_str().unwrap_or_default();
    let version = object["apiVersion"].as_str().unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    match (group, kind) {
        ("batch", "Job") => Ok(alone(job::job(&parsed::<wire::Job>(object)?, now).managed)),
        ("", "Pod") => Ok(single(&parsed::<wire::Pod>(object)?)),
        _ => {
            let found = kinds.watched().iter().find(|watched| {
                watched.entry.as_ref().is_some_and(|entry| entry.group() == group && entry.kind == kind)
            });
            let Some(watched) = found else { return Ok(None) };
            let object = parsed::<DynamicObject>(object)?;
            Ok(alone(custom::custom(watched, &object, now).managed))
        }
    }
}

fn parsed<K: DeserializeOwned>(object: &Value) -> Result<K, String> {
    serde_path_to_error::deserialize(object).map_err(|error| error.to_string())
}

/// A pod; one of a group stands for all pods of the group, as if they were submitted together.
fn single(pod: &wire::Pod) -> Option<Unsubmitted> {
    let seen = pod::pod(pod);
    if seen.group.is_some() {
        return whole(vec![seen]);
    }
    Some(Unsubmitted { managed: seen.managed?, group: None, pods: Vec::new() })
}

/// The group of these pods, with as many more of the same as its size asks for.
fn whole(pods: Vec<PodSeen>) -> Option<Unsubmitted> {
    let first = pods.first()?;
    let (id, name) = (&first.managed.as_deref()?.workload.id, &first.group.as_ref()?.name);
    let size = pods.iter().filter_map(|pod| pod.group.as_ref()).map(|group| group.size).max()?;
    let there = u32::try_from(pods.len()).unwrap_or(u32::MAX);
    let all: Vec<&PodSeen> = pods.iter().collect();
    let mut managed = pod_group::gathering(id, name, &all, size.saturating_sub(there))?;
    let workload = Arc::make_mut(&mut managed.workload);
    workload.pods = size.max(there);
    if workload.state != Observed::Unready(Unready::Unlike) {
        workload.state = Observed::Queued;
    }
    let group = Some((name.clone(), workload.pods));
    Some(Unsubmitted { managed: Box::new(managed), group, pods })
}

/// Objects that are submitted together as workloads: the pods of one group are one, at the place of its first pod.
#[must_use]
pub fn together(objects: Vec<Unsubmitted>) -> Vec<Unsubmitted> {
    let mut workloads: Vec<Unsubmitted> = Vec::new();
    for mut one in objects {
        let group = |one: &Unsubmitted| {
            one.group.as_ref().map(|(name, _)| (one.managed.workload.namespace.clone(), name.clone()))
        };
        let known = workloads.iter_mut().find(|known| group(known).is_some() && group(known) == group(&one));
        match known {
            Some(known) => known.pods.append(&mut one.pods),
            None => workloads.push(one),
        }
    }
    let again = |one: Unsubmitted| if one.pods.len() > 1 { whole(one.pods) } else { Some(one) };
    workloads.into_iter().filter_map(again).collect()
}
