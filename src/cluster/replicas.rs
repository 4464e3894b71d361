//! Pods of Deployments by version, to explain a rollout that waits for quota.

use std::collections::{BTreeMap, BTreeSet};

use super::table::Table;
use super::target::pod::PodSeen;
use crate::engine::types::{Name, Observed};

/// The namespace and name of a Deployment.
pub type Key = (Name, Name);

/// The UIDs of the pods of each Deployment.
#[derive(Debug, Default)]
pub struct Replicas(BTreeMap<Key, BTreeSet<Name>>);

impl Replicas {
    /// Moves a pod from one Deployment to another; `None` stands for no Deployment.
    pub fn note(&mut self, pod: &Name, before: Option<&Key>, now: Option<&Key>) {
        if before == now {
            return;
        }
        if let Some(key) = before
            && let Some(pods) = self.0.get_mut(key)
        {
            pods.remove(pod);
            if pods.is_empty() {
                self.0.remove(key);
            }
        }
        if let Some(key) = now {
            self.0.entry(key.clone()).or_default().insert(pod.clone());
        }
    }

    /// A clause about the pods that a waiting pod replaces, if it is part of a rollout.
    #[must_use]
    pub fn rollout(&self, pod: &PodSeen, pods: &Table<PodSeen>) -> Option<String> {
        let managed = pod.managed.as_deref()?;
        let own = managed.replica()?;
        let (namespace, of) = key(pod)?;
        let older = |seen: &&PodSeen| {
            let managed = seen.managed.as_deref();
            managed.is_some_and(|managed| {
                matches!(managed.workload.state, Observed::Admitted(_))
                    && managed.replica().is_some_and(|other| other.version != own.version)
            })
        };
        let all = self.0.get(&(namespace.clone(), of.clone()))?.iter();
        let count = all.filter_map(|uid| pods.get(uid)).filter(older).count();
        let pods = if count == 1 { "pod" } else { "pods" };
        (count > 0).then(|| {
            format!(
                "It replaces {count} {pods} of {namespace}/{of}, which use quota until their replacements run; \
                 set maxUnavailable to let the Deployment end some of them first."
            )
        })
    }
}

/// The Deployment of a pod.
#[must_use]
pub fn key(pod: &PodSeen) -> Option<Key> {
    let managed = pod.managed.as_deref()?;
    let replica = managed.replica()?;
    Some((managed.workload.namespace.clone(), replica.of.clone()))
}
