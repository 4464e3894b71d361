//! What an object would be to the engine that is not submitted.

use std::sync::Arc;

use kube::core::DynamicObject;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::super::wire;
use super::{Managed, custom, job, pod, pod_group};
use crate::engine::types::{Name, Observed, Time, WorkloadKind};
use crate::kinds::Kinds;

/// A workload that is not submitted.
#[derive(Debug)]
pub struct Unsubmitted {
    /// The workload; of a pod of a group, the whole group.
    pub managed: Box<Managed>,
    /// The name and size of the group that the object is a pod of.
    pub group: Option<(Name, u32)>,
}

/// The workload that an object would become that is stored at `now` as it is; `None` where it is none.
///
/// # Errors
/// Which field cannot be read.
pub fn read(kinds: &Kinds, object: &Value, now: Time) -> Result<Option<Unsubmitted>, String> {
    let alone = |managed: Option<Box<Managed>>| managed.map(|managed| Unsubmitted { managed, group: None });
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
    let managed = seen.managed.as_ref()?;
    let Some(group) = &seen.group else {
        return Some(Unsubmitted { managed: managed.clone(), group: None });
    };
    let id = managed.workload.id.clone();
    let mut whole = pod_group::gathering(&id, &group.name, &[&seen], 0)?;
    let workload = Arc::make_mut(&mut whole.workload);
    (workload.pods, workload.state) = (group.size, Observed::Queued);
    workload.kind = WorkloadKind::PodGroup;
    Some(Unsubmitted { managed: Box::new(whole), group: Some((group.name.clone(), group.size)) })
}
