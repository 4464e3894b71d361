//! What is known of the cluster: the questions that decisions' writes, the webhook and people ask.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use k8s_openapi::api::core::v1::ObjectReference;

use super::super::events::reference;
use super::super::fault::{Fault, fault};
use super::super::reduce::team::{NamespaceSeen, PoolSeen};
use super::super::target::Managed;
use super::super::target::pod::PodSeen;
use super::Mirror;
use super::fill::complete;
use crate::directory::{Directory, Places};
use crate::engine::types::{Name, Node, Observed, SETTLE, Time, Workload, WorkloadId, WorkloadKind};

impl Mirror {
    /// Whether every first list has been read to its end.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.directory_complete()
            && self.nodes.complete()
            && self.classes.complete()
            && self.jobs.complete()
            && self.pods.complete()
            && self.kin.complete()
            && self.dra.complete()
    }

    fn directory_complete(&self) -> bool {
        let listed = self.namespaces.complete() && self.teams.complete() && self.pools.complete();
        listed && self.pod_groups.is_some()
    }

    /// The directory for the webhook, if it has changed since the last call.
    pub fn directory(&mut self) -> Option<Directory> {
        if !take(&mut self.directory_changed) {
            return None;
        }
        let labelled = |(name, seen): (&Name, &NamespaceSeen)| Some((name.clone(), seen.membership.clone()?));
        Some(Directory {
            complete: self.directory_complete(),
            places: self.places.clone(),
            namespaces: self.namespaces.iter().filter_map(labelled).collect(),
            teams: self.teams.iter().map(|(name, seen)| (name.clone(), seen.team.clone())).collect(),
            queue_priority_classes: self
                .teams
                .iter()
                .flat_map(|(team, seen)| {
                    seen.classes
                        .iter()
                        .map(move |(queue, class)| ((team.clone(), queue.clone()), class.clone()))
                })
                .collect(),
            pools: self.pools.iter().map(|(name, _)| name.clone()).collect(),
            shares: self
                .pools
                .iter()
                .filter(|(_, seen)| !seen.shares.is_empty())
                .map(|(name, seen)| (name.clone(), seen.shares.clone()))
                .collect(),
            kinds: self.kin.kinds().clone(),
            pod_groups: self.pod_groups(),
        })
    }

    /// Whether gangs get a PodGroup.
    #[must_use]
    pub fn pod_groups(&self) -> bool {
        self.pod_groups == Some(true)
    }

    /// A managed workload and the version its patches must meet.
    #[must_use]
    pub fn workload(&self, id: &WorkloadId) -> Option<(&Managed, u64)> {
        let job = self.jobs.get(&id.0).and_then(|seen| Some((seen.managed.as_deref()?, seen.version)));
        let other = || self.kin.get(&id.0).and_then(|seen| Some((seen.managed.as_deref()?, seen.version)));
        let group = || self.groups.get(id).map(|managed| (managed, 0));
        job.or_else(other)
            .or_else(group)
            .or_else(|| self.pods.get(&id.0).and_then(|seen| Some((seen.managed.as_deref()?, seen.version))))
    }

    /// The workload that an object which is not there would be.
    #[must_use]
    pub fn would_be(&self, mut managed: Managed) -> Workload {
        complete(&self.namespaces, &self.classes, self.unlabelled_default, &self.dra, &mut managed);
        managed.workload
    }

    /// The pods that a workload is made of, the oldest first; none unless it is a group.
    pub fn members(&self, id: &WorkloadId) -> impl Iterator<Item = (&Managed, u64)> {
        let seen = self.groups.members(id).filter_map(|uid| self.pods.get(uid));
        seen.filter_map(|seen| Some((seen.managed.as_deref()?, seen.version)))
    }

    /// What a pod that waits is to take the place of, if it is part of a Deployment's rollout.
    #[must_use]
    pub fn rollout(&self, id: &WorkloadId) -> Option<String> {
        self.replicas.rollout(self.pods.get(&id.0)?, &self.pods)
    }

    /// The objects of a workload: of a group its pods, else its own one.
    #[must_use]
    pub fn references(&self, workload: &Workload) -> Vec<ObjectReference> {
        let pods: Vec<ObjectReference> =
            self.members(&workload.id).map(|(managed, _)| reference(&managed.workload)).collect();
        if workload.kind == WorkloadKind::PodGroup { pods } else { vec![reference(workload)] }
    }

    /// The pods of an admitted group that are still gated, with the node of each.
    pub fn unreached(&self, id: &WorkloadId) -> impl Iterator<Item = (&Managed, u64)> {
        let seen = self.groups.unreached(id).iter().filter_map(|(uid, _)| self.pods.get(uid));
        seen.filter_map(|seen| Some((seen.managed.as_deref()?, seen.version)))
    }

    /// The admitted groups that have such pods.
    pub fn half_released(&self) -> impl Iterator<Item = &WorkloadId> {
        self.groups.with_unreached()
    }

    /// The group that a pod belongs to by its name, as the workload it is.
    #[must_use]
    pub fn group_of(&self, namespace: &str, pod: &str) -> Option<&WorkloadId> {
        let named =
            |managed: &Managed| *managed.workload.namespace == *namespace && *managed.workload.name == *pod;
        self.groups.ids().find(|id| self.members(id).any(|(managed, _)| named(managed)))
    }

    /// The names of the pods of a workload that have not ended.
    #[must_use]
    pub fn pods_of(&self, id: &WorkloadId) -> Vec<Name> {
        let pods = self.pods_of.get(id).into_iter().flatten();
        pods.filter_map(|uid| Some(self.pods.get(uid)?.name.clone())).collect()
    }

    /// The pods of a workload that have not ended.
    pub fn pods_with_uid(&self, id: &WorkloadId) -> impl Iterator<Item = (&Name, &PodSeen)> {
        let pods = self.pods_of.get(id).into_iter().flatten();
        pods.filter_map(|uid| Some((uid, self.pods.get(uid)?)))
    }

    /// A pod.
    #[must_use]
    pub fn pod(&self, uid: &Name) -> Option<&PodSeen> {
        self.pods.get(uid)
    }

    /// A node.
    #[must_use]
    pub fn node(&self, name: &Name) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// What the webhook knows of the places of pods.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// The Jobs of which something may have changed that concerns the places of their pods.
    pub fn take_stirred(&mut self) -> BTreeSet<WorkloadId> {
        take(&mut self.stirred)
    }

    /// How many pods of a workload that have not ended are on each node, by name.
    #[must_use]
    pub fn pods_by_node(&self, id: &WorkloadId) -> BTreeMap<Name, Vec<Name>> {
        let mut nodes: BTreeMap<Name, Vec<Name>> = BTreeMap::new();
        let pods = self.pods_of.get(id).into_iter().flatten();
        for seen in pods.filter_map(|uid| self.pods.get(uid)) {
            if let Some(node) = seen.holds.as_ref().and_then(|pod| pod.node.clone()) {
                nodes.entry(node).or_default().push(seen.name.clone());
            }
        }
        nodes
    }

    /// The stopped Jobs of which nothing is left, so that their template can be restored. A controller that
    /// never got to say that a Job runs does not say that it has stopped either; it is given time to.
    pub fn restorable(&self, now: Time) -> impl Iterator<Item = &WorkloadId> {
        let over = move |state: &Observed| match state {
            Observed::Leaving { stopped, since, .. } => *stopped || since.after(SETTLE) <= now,
            _ => false,
        };
        self.leaving.iter().filter(move |id| {
            let stopped = self.workload(id).is_some_and(|(managed, _)| {
                over(&managed.workload.state) && !managed.counts_pods() && !managed.workload.team.is_empty()
            });
            stopped && !self.pods_of.contains_key(*id)
        })
    }

    /// The queue a workload is in: its own, or the first of its team.
    #[must_use]
    pub fn queue_of(&self, workload: &Workload) -> Name {
        let first = || self.teams.get(&workload.team).and_then(|seen| seen.team.queues.first());
        let chosen = workload.queue.clone().or_else(|| first().map(|queue| queue.name.clone()));
        chosen.unwrap_or_else(|| "".into())
    }

    /// The teams, also those that cannot be read: the generation of each, and what is wrong with it.
    pub fn teams(&self) -> impl Iterator<Item = (&Name, Option<i64>, Option<Fault>)> {
        let sound = self.teams.iter().filter(|(name, _)| self.teams.flaw(name).is_none());
        let sound = sound.map(|(name, seen)| (name, seen.generation));
        let flawed = self.teams.flaws().map(|(name, flaw)| (name, flaw.generation));
        sound
            .chain(flawed)
            .map(|(name, generation)| (name, generation, fault(name, &self.teams, &self.pools)))
    }

    /// The node pools.
    pub fn pools(&self) -> impl Iterator<Item = (&Name, &PoolSeen)> {
        self.pools.iter()
    }
}
