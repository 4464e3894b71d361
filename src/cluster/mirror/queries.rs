//! Queries on the cache, for writes, the webhook and the HTTP API.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;

use super::super::events::reference;
use super::super::fault::unreadable;
use super::super::reduce::team::{NamespaceSeen, PoolSeen, TeamSeen};
use super::super::target::Managed;
use super::super::target::pod::{PodSeen, Stretched};
use super::Mirror;
use super::fill::complete;
use crate::api::priority::Class;
use crate::directory::{Directory, Places};
use crate::engine::Ceilings;
use crate::engine::types::DEFAULT_POOL;
use crate::engine::types::amount::ResourceList;
use crate::engine::types::{Name, Node, Observed, Pool, SETTLE, Time, Workload, WorkloadId, WorkloadKind};
use crate::faults::Fault;

impl Mirror {
    /// Whether every first list is complete.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.directory_complete()
            && self.nodes.complete()
            && self.jobs.complete()
            && self.pods.complete()
            && self.ownership.complete()
            && self.dra.complete()
    }

    fn directory_complete(&self) -> bool {
        let listed = self.namespaces.complete() && self.teams.complete() && self.pools.complete();
        let listed = listed && self.classes.complete();
        listed && self.pod_groups.is_some()
    }

    /// The directory for the webhook, if it has changed since the last call.
    pub fn directory(&mut self) -> Option<Directory> {
        if !take(&mut self.directory_changed) {
            return None;
        }
        let labelled = |(name, seen): (&Name, &NamespaceSeen)| Some((name.clone(), seen.membership.clone()?));
        let graces = self.teams.iter().flat_map(|(team, seen)| {
            seen.graces.iter().map(move |(queue, grace)| ((team.clone(), queue.clone()), *grace))
        });
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
            offers: self.offers(),
            weighted: self
                .pools
                .iter()
                .filter(|(_, seen)| !seen.pool.weights.is_empty())
                .map(|(name, _)| name.clone())
                .collect(),
            unreadable_teams: self.teams.flaws().map(|(name, _)| name.clone()).collect(),
            shares: self
                .pools
                .iter()
                .filter(|(_, seen)| !seen.shares.is_empty())
                .map(|(name, seen)| (name.clone(), seen.shares.clone()))
                .collect(),
            ceilings: self.nodes.complete().then(|| {
                let pools: Vec<&Pool> = self.pools.iter().map(|(_, seen)| &seen.pool).collect();
                Ceilings::new(&pools, self.nodes.iter().map(|(_, node)| node))
            }),
            classes: Some(self.classes.iter().map(|(name, class)| (name.clone(), class.clone())).collect()),
            graces: graces.collect(),
            caps: self.caps,
            kinds: self.ownership.kinds().clone(),
            pod_groups: self.pod_groups(),
        })
    }

    /// What the nodes of each pool offer together. A node belongs to the first pool by name that selects it.
    fn offers(&self) -> BTreeMap<Name, ResourceList> {
        let mut offers: BTreeMap<Name, ResourceList> = BTreeMap::new();
        for (_, node) in self.nodes.iter() {
            let selects = |seen: &PoolSeen| {
                let selector = &seen.pool.node_selector;
                !selector.is_empty()
                    && selector.iter().all(|(key, value)| node.labels.get(key) == Some(value))
            };
            let pool = self.pools.iter().find(|(_, seen)| selects(seen)).map(|(name, _)| name.clone());
            let all = offers.entry(pool.unwrap_or_else(|| DEFAULT_POOL.into())).or_default();
            for (resource, amount) in &node.allocatable {
                let offered = all.entry(resource.clone()).or_default();
                *offered = *offered + *amount;
            }
        }
        offers
    }

    /// The PriorityClasses.
    pub fn classes(&self) -> impl Iterator<Item = (&Name, &Class)> {
        self.classes.iter()
    }

    /// Whether a PriorityClass has changed since the last call.
    pub fn take_changed_classes(&mut self) -> bool {
        take(&mut self.classes_changed)
    }

    /// Whether a workload that has not ended names a PriorityClass.
    #[must_use]
    pub fn names_class(&self, class: &str) -> bool {
        let jobs = self.jobs.iter().filter_map(|(_, seen)| seen.managed.as_deref());
        let pods = self.pods.iter().filter_map(|(_, seen)| seen.managed.as_deref());
        let mut all = jobs.chain(self.ownership.managed()).chain(pods);
        all.any(|one| one.class.as_deref() == Some(class) && one.workload.state != Observed::Finished)
    }

    /// Whether Sluice creates a PodGroup for a gang.
    #[must_use]
    pub fn pod_groups(&self) -> bool {
        self.pod_groups == Some(true)
    }

    /// A managed workload and the resource version its patches require.
    #[must_use]
    pub fn workload(&self, id: &WorkloadId) -> Option<(&Managed, u64)> {
        let job = self.jobs.get(&id.0).and_then(|seen| Some((seen.managed.as_deref()?, seen.version)));
        let other =
            || self.ownership.get(&id.0).and_then(|seen| Some((seen.managed.as_deref()?, seen.version)));
        let group = || self.groups.get(id).map(|managed| (managed, 0));
        job.or_else(other)
            .or_else(group)
            .or_else(|| self.pods.get(&id.0).and_then(|seen| Some((seen.managed.as_deref()?, seen.version))))
    }

    /// What a decision is about: a managed workload, or a pod that was never admitted.
    #[must_use]
    pub fn subject(&self, id: &WorkloadId) -> Option<(Cow<'_, Managed>, u64)> {
        let managed = self.workload(id).map(|(managed, version)| (Cow::Borrowed(managed), version));
        managed.or_else(|| self.unadmitted(id).map(|(managed, version)| (Cow::Owned(managed), version)))
    }

    /// The workload that an object not yet submitted would become.
    #[must_use]
    pub fn completed_workload(&self, mut managed: Managed) -> Workload {
        managed.keep_within(&self.caps);
        complete(&self.namespaces, &self.classes, self.unlabelled_default, &self.dra, &mut managed);
        Arc::unwrap_or_clone(managed.workload)
    }

    /// The pods of teams that were deleted with a longer grace period than any cap lets them have, with the one they may
    /// have: that of their queue, or their own where it is longer.
    pub fn overlong(&self) -> impl Iterator<Item = (&PodSeen, Duration)> {
        self.stretched.iter().filter_map(|uid| {
            let seen = self.pods.get(uid)?;
            let Stretched { given, own } = seen.stretched?;
            let most = self.longest_grace(seen)?.max(own);
            (given > most).then_some((seen, most))
        })
    }

    /// The longest grace period of a pod: that of the queue of its workload, and without one of any queue of its team.
    fn longest_grace(&self, seen: &PodSeen) -> Option<Duration> {
        let membership = self.namespaces.get(&seen.namespace)?.membership.as_ref()?;
        let graces = self.teams.get(&membership.team).map_or(&[][..], |team| &team.graces);
        let workload = seen.belongs.as_ref().and_then(|id| self.workload(id));
        let Some((managed, _)) = workload else {
            return graces.iter().map(|(_, grace)| *grace).chain([self.caps.grace]).max();
        };
        Some(self.grace_cap(&managed.workload))
    }

    /// The longest grace period that the queue of a workload lets its pods have.
    #[must_use]
    pub fn grace_cap(&self, workload: &Workload) -> Duration {
        let graces = self.teams.get(&workload.team).map_or(&[][..], |team| &team.graces);
        let own = graces.iter().find(|(queue, _)| Some(queue) == workload.queue.as_ref());
        own.map_or(self.caps.grace, |(_, grace)| *grace)
    }

    /// The pods of a pod group, oldest first; empty for other workloads.
    pub fn members(&self, id: &WorkloadId) -> impl Iterator<Item = (&Managed, u64)> {
        let seen = self.groups.members(id).filter_map(|uid| self.pods.get(uid));
        seen.filter_map(|seen| Some((seen.managed.as_deref()?, seen.version)))
    }

    /// A clause about the pods that a waiting pod replaces, if it is part of a Deployment's rollout.
    #[must_use]
    pub fn rollout(&self, id: &WorkloadId) -> Option<String> {
        self.replicas.rollout(self.pods.get(&id.0)?, &self.pods)
    }

    /// The objects of a workload: the pods of a pod group, else a single object.
    #[must_use]
    pub fn references(&self, workload: &Workload) -> Vec<ObjectReference> {
        let pods: Vec<ObjectReference> =
            self.members(&workload.id).map(|(managed, _)| reference(&managed.workload)).collect();
        if workload.kind == WorkloadKind::PodGroup { pods } else { vec![reference(workload)] }
    }

    /// The pods of an admitted pod group that are still gated, with their resource versions.
    pub fn still_gated(&self, id: &WorkloadId) -> impl Iterator<Item = (&Managed, u64)> {
        let seen = self.groups.still_gated(id).iter().filter_map(|(uid, _)| self.pods.get(uid));
        seen.filter_map(|seen| Some((seen.managed.as_deref()?, seen.version)))
    }

    /// The admitted pod groups with gated pods.
    pub fn partly_admitted(&self) -> impl Iterator<Item = &WorkloadId> {
        self.groups.with_still_gated()
    }

    /// The workload of the pod group that contains a pod with this name.
    #[must_use]
    pub fn group_of(&self, namespace: &str, pod: &str) -> Option<&WorkloadId> {
        let named =
            |managed: &Managed| *managed.workload.namespace == *namespace && *managed.workload.name == *pod;
        self.groups.ids().find(|id| self.members(id).any(|(managed, _)| named(managed)))
    }

    /// The names of a workload's pods that have not ended.
    #[must_use]
    pub fn pods_of(&self, id: &WorkloadId) -> Vec<Name> {
        let pods = self.pods_of.get(id).into_iter().flatten();
        pods.filter_map(|uid| Some(self.pods.get(uid)?.name.clone())).collect()
    }

    /// The pods of a workload that have not ended, by UID.
    pub fn pods_with_uid(&self, id: &WorkloadId) -> impl Iterator<Item = (&Name, &PodSeen)> {
        let pods = self.pods_of.get(id).into_iter().flatten();
        pods.filter_map(|uid| Some((uid, self.pods.get(uid)?)))
    }

    /// A cached pod.
    #[must_use]
    pub fn pod(&self, uid: &Name) -> Option<&PodSeen> {
        self.pods.get(uid)
    }

    /// A cached node.
    #[must_use]
    pub fn node(&self, name: &Name) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// The places of pods, shared with the webhook.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Takes the Jobs with a change that may affect the places of their pods.
    pub fn take_dirty_jobs(&mut self) -> BTreeSet<WorkloadId> {
        take(&mut self.dirty_jobs)
    }

    /// Marks every object that may have pods, so that the places of all pods are looked at again.
    pub fn mark_all_dirty(&mut self) {
        let jobs = self.jobs.iter().map(|(uid, _)| WorkloadId(uid.clone()));
        self.dirty_jobs.extend(jobs.chain(self.pods_of.keys().cloned()));
    }

    /// The names of a workload's pods that have not ended, by node.
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

    /// The stopped Jobs without pods, so their templates can be restored. A Job controller that never reported a Job
    /// as running does not report it as stopped either; such a Job is stopped after [`SETTLE`].
    pub fn restorable(&self, now: Time) -> impl Iterator<Item = &WorkloadId> {
        let over = move |state: &Observed| match state {
            Observed::Leaving { stopped, since, .. } => *stopped || since.after(SETTLE) <= now,
            _ => false,
        };
        self.vacant.iter().filter(move |id| {
            self.workload(id).is_some_and(|(managed, _)| {
                over(&managed.workload.state) && !managed.workload.team.is_empty()
            })
        })
    }

    /// The Jobs that their controller cannot end, see [`Managed::add_start_time`].
    pub fn cannot_end(&self) -> impl Iterator<Item = &WorkloadId> {
        self.cannot_end.iter()
    }

    /// The queue of a workload: the one it names, else the first of its team.
    #[must_use]
    pub fn queue_of(&self, workload: &Workload) -> Name {
        let first = || self.teams.get(&workload.team).and_then(|seen| seen.team.queues.first());
        let chosen = workload.queue.clone().or_else(|| first().map(|queue| queue.name.clone()));
        chosen.unwrap_or_else(|| "".into())
    }

    /// The UIDs of the teams.
    pub fn uids_of_teams(&self) -> impl Iterator<Item = (String, String)> {
        self.teams.iter().map(|(name, seen)| (name.to_string(), seen.uid.to_string()))
    }

    /// A team as its object says.
    #[must_use]
    pub fn team(&self, name: &Name) -> Option<&TeamSeen> {
        self.teams.get(name)
    }

    /// The team of a namespace.
    #[must_use]
    pub fn team_of(&self, namespace: &Name) -> Option<Name> {
        Some(self.namespaces.get(namespace)?.membership.as_ref()?.team.clone())
    }

    /// The teams, including unreadable ones, with generation, and fault if they cannot be read.
    pub fn teams(&self) -> impl Iterator<Item = (&Name, Option<i64>, Option<Fault>)> {
        let sound = self.teams.iter().filter(|(name, _)| self.teams.flaw(name).is_none());
        let sound = sound.map(|(name, seen)| (name, seen.generation));
        let flawed = self.teams.flaws().map(|(name, flaw)| (name, flaw.generation));
        sound.chain(flawed).map(|(name, generation)| (name, generation, unreadable(name, &self.teams)))
    }

    /// The node pools.
    pub fn pools(&self) -> impl Iterator<Item = (&Name, &PoolSeen)> {
        self.pools.iter()
    }
}
