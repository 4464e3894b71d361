//! Pods of a group as workloads, updated as pods come and go.
//!
//! The waiting pods of a group are one workload until it is admitted. From then on, the record on each pod
//! names the pods that started together. A pod that comes later, while these run, stays a workload of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::table::Table;
use super::target::pod::{OWN_GROUP, PodSeen};
use super::target::{Managed, pod_group};
use crate::engine::types::{Name, Observed, Workload, WorkloadId};

/// The namespace and name of a group.
pub type Key = (Name, Name);

/// All groups.
#[derive(Debug, Default)]
pub struct Groups {
    groups: BTreeMap<Key, Group>,
    together: BTreeMap<WorkloadId, Together>,
    /// The admitted workloads with gated pods.
    still_gated: BTreeSet<WorkloadId>,
}

/// The pods of one group.
#[derive(Debug, Default)]
struct Group {
    /// The UIDs of all pods with the group's label.
    pods: BTreeSet<Name>,
    /// The workload of the waiting pods. Its ID stays while any of them waits, as its admission may be in flight.
    waiting: Option<WorkloadId>,
    /// The pods that are workloads of their own.
    single: BTreeSet<Name>,
    /// The workloads last reported to the engine.
    reported: BTreeMap<WorkloadId, Arc<Workload>>,
}

/// A workload made of several pods.
#[derive(Debug)]
struct Together {
    managed: Managed,
    /// The UIDs of its pods, oldest first.
    members: Vec<Name>,
    /// The admitted pods that are still gated, with the node of each.
    still_gated: Vec<(Name, Name)>,
}

/// A change of a workload of a group.
#[derive(Debug)]
pub enum Change {
    /// The workload is new or changed; its former team, if it had one.
    Put(WorkloadId, Option<Name>),
    /// The workload is gone; its former team.
    Gone(WorkloadId, Name),
}

impl Groups {
    /// Moves a pod from one group to another; `None` stands for no group.
    pub fn note(&mut self, pod: &Name, before: Option<&Key>, now: Option<&Key>) {
        if before == now {
            return;
        }
        if let Some(group) = before.and_then(|key| self.groups.get_mut(key)) {
            group.pods.remove(pod);
            group.single.remove(pod);
        }
        if let Some(key) = now {
            self.groups.entry(key.clone()).or_default().pods.insert(pod.clone());
        }
    }

    /// The groups in the namespaces for which `chosen` is true.
    pub fn keys(&self, chosen: impl Fn(&Name) -> bool) -> Vec<Key> {
        self.groups.keys().filter(|(namespace, _)| chosen(namespace)).cloned().collect()
    }

    /// The workloads made of several pods.
    pub fn ids(&self) -> impl Iterator<Item = &WorkloadId> {
        self.together.keys()
    }

    /// A workload made of several pods.
    #[must_use]
    pub fn get(&self, id: &WorkloadId) -> Option<&Managed> {
        self.together.get(id).map(|together| &together.managed)
    }

    /// The UIDs of a workload's pods, oldest first.
    pub fn members(&self, id: &WorkloadId) -> impl Iterator<Item = &Name> {
        self.together.get(id).into_iter().flat_map(|together| &together.members)
    }

    /// The admitted pods of a workload that are still gated, with the node of each.
    pub fn still_gated(&self, id: &WorkloadId) -> &[(Name, Name)] {
        self.together.get(id).map_or(&[], |together| &together.still_gated)
    }

    /// The admitted workloads with gated pods.
    pub fn with_still_gated(&self) -> impl Iterator<Item = &WorkloadId> {
        self.still_gated.iter()
    }

    /// The workloads of all groups, those of a single pod too.
    pub fn reported(&self) -> impl Iterator<Item = &Arc<Workload>> {
        self.groups.values().flat_map(|group| group.reported.values())
    }

    /// Derives the workloads of a group from its pods; returns the changes.
    pub fn update(&mut self, key: &Key, pods: &Table<PodSeen>) -> Vec<Change> {
        let Some(group) = self.groups.get_mut(key) else { return Vec::new() };
        let found = group.sort(&key.1, pods);
        let mut changes = Vec::new();
        let mut now: BTreeMap<WorkloadId, Arc<Workload>> = BTreeMap::new();
        for (id, together) in found {
            now.insert(id.clone(), Arc::clone(&together.managed.workload));
            keep(&mut self.still_gated, &id, !together.still_gated.is_empty());
            self.together.insert(id, together);
        }
        for uid in &group.single {
            if let Some(managed) = pods.get(uid).and_then(|seen| seen.managed.as_deref()) {
                now.insert(managed.workload.id.clone(), Arc::clone(&managed.workload));
            }
        }
        let before = std::mem::replace(&mut group.reported, now);
        for (id, workload) in &before {
            if !group.reported.contains_key(id) {
                self.together.remove(id);
                self.still_gated.remove(id);
                changes.push(Change::Gone(id.clone(), workload.team.clone()));
            }
        }
        for (id, workload) in &group.reported {
            let old = before.get(id);
            if old != Some(workload) {
                changes.push(Change::Put(id.clone(), old.map(|old| old.team.clone())));
            }
        }
        if group.pods.is_empty() {
            self.groups.remove(key);
        }
        changes
    }
}

impl Group {
    /// Partitions the pods into workloads.
    fn sort(&mut self, name: &Name, pods: &Table<PodSeen>) -> BTreeMap<WorkloadId, Together> {
        let mut seen: Vec<&PodSeen> = self.pods.iter().filter_map(|uid| pods.get(uid)).collect();
        seen.sort_by(|left, right| age(left).cmp(&age(right)));
        let mut admitted: BTreeMap<WorkloadId, Vec<&PodSeen>> = BTreeMap::new();
        for pod in &seen {
            if let Some(together) = pod.group.as_ref().and_then(|group| group.admitted.as_ref()) {
                admitted.entry(WorkloadId(together.id.as_str().into())).or_default().push(pod);
            }
        }
        let mut planned: BTreeMap<&str, (WorkloadId, Name)> = BTreeMap::new();
        let mut some_run = false;
        for (id, pods) in &admitted {
            let Some(running) = pods.iter().find(|pod| lives(pod)) else { continue };
            some_run = true;
            let together = running.group.as_ref().and_then(|group| group.admitted.as_ref());
            for (uid, node) in together.into_iter().flat_map(|group| &group.members) {
                planned.insert(uid, (id.clone(), node.as_str().into()));
            }
        }
        let mut still_gated: BTreeMap<WorkloadId, Vec<(Name, Name)>> = BTreeMap::new();
        let mut waiting = Vec::new();
        let mut running = 0;
        for pod in &seen {
            if pod.group.as_ref().is_some_and(|group| group.admitted.is_some()) {
                continue;
            }
            match (state(pod), planned.get(&*pod.uid)) {
                (Some(Observed::Queued), Some((id, node))) => {
                    admitted.entry(id.clone()).or_default().push(pod);
                    still_gated.entry(id.clone()).or_default().push((pod.uid.clone(), node.clone()));
                }
                (Some(Observed::Queued), None) if some_run || self.single.contains(&pod.uid) => {
                    self.single.insert(pod.uid.clone());
                }
                (Some(Observed::Queued), None) => waiting.push(*pod),
                (Some(Observed::Finished), _) if !self.single.contains(&pod.uid) => {}
                (Some(state), _) => {
                    running += u32::from(matches!(state, Observed::Admitted(_)));
                    self.single.insert(pod.uid.clone());
                }
                (None, _) => {}
            }
        }
        self.single.retain(|uid| self.pods.contains(uid));
        let mut found = BTreeMap::new();
        for (id, mut pods) in admitted {
            if self.waiting.as_ref() == Some(&id) {
                self.waiting = None;
            }
            pods.sort_by(|left, right| age(left).cmp(&age(right)));
            if let Some(managed) = pod_group::admitted(&id, name, &pods) {
                let members = pods.iter().map(|pod| pod.uid.clone()).collect();
                let still_gated = still_gated.remove(&id).unwrap_or_default();
                found.insert(id, Together { managed, members, still_gated });
            }
        }
        match waiting.first() {
            Some(first) => {
                let id = self
                    .waiting
                    .get_or_insert_with(|| WorkloadId(format!("{OWN_GROUP}{}", first.uid).into()));
                if let Some(managed) = pod_group::gathering(id, name, &waiting, running) {
                    let members = waiting.iter().map(|pod| pod.uid.clone()).collect();
                    found.insert(id.clone(), Together { managed, members, still_gated: Vec::new() });
                }
            }
            None => self.waiting = None,
        }
        found
    }
}

fn state(pod: &PodSeen) -> Option<&Observed> {
    pod.managed.as_deref().map(|managed| &managed.workload.state)
}

fn lives(pod: &PodSeen) -> bool {
    state(pod).is_some_and(|state| *state != Observed::Finished)
}

/// The order of creation of the pods of a group. Within one second, shorter names come first, because the number
/// at the end of a name grows.
fn age(pod: &PodSeen) -> impl Ord + '_ {
    let submitted = pod.managed.as_deref().map(|managed| managed.workload.submitted);
    (submitted, pod.name.len(), &*pod.name, &*pod.uid)
}

fn keep(set: &mut BTreeSet<WorkloadId>, id: &WorkloadId, belongs: bool) {
    if belongs {
        set.insert(id.clone());
    } else {
        set.remove(id);
    }
}

#[cfg(test)]
mod tests;
