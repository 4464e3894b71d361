//! Which pods of a group are one workload together, kept up to date as they come and go.
//!
//! Pods that wait are one workload until it is admitted. Then the record on each of them says who started
//! together; whoever comes later while those run is a workload of its own, and stays one.

use std::collections::{BTreeMap, BTreeSet};

use super::table::Table;
use super::target::pod::PodSeen;
use super::target::{Managed, pod_group};
use crate::engine::types::{Name, Observed, Workload, WorkloadId};

/// A namespace, and the name of a group in it.
pub type Key = (Name, Name);

/// All groups.
#[derive(Debug, Default)]
pub struct Groups {
    groups: BTreeMap<Key, Group>,
    together: BTreeMap<WorkloadId, Together>,
    /// Those with pods that their admission has not reached.
    unreached: BTreeSet<WorkloadId>,
}

/// The pods of one group.
#[derive(Debug, Default)]
struct Group {
    /// All that carry its label, by UID.
    pods: BTreeSet<Name>,
    /// Who those are that wait together. It stays while any of them waits: it may be being admitted.
    waiting: Option<WorkloadId>,
    /// Those that are workloads of their own.
    single: BTreeSet<Name>,
    /// What the engine was last told of.
    told: BTreeMap<WorkloadId, Workload>,
}

/// Pods that are one workload.
#[derive(Debug)]
struct Together {
    managed: Managed,
    /// By UID, the oldest first.
    members: Vec<Name>,
    /// Those that are admitted and still gated, with the node of each.
    unreached: Vec<(Name, Name)>,
}

/// What has become of a workload of a group.
#[derive(Debug)]
pub enum Change {
    /// It is new or changed; before, it was of this team.
    Put(WorkloadId, Option<Name>),
    /// It is no more; it was of this team.
    Gone(WorkloadId, Name),
}

impl Groups {
    /// A pod has come into a group, or left it.
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

    /// The groups of a namespace, or all.
    pub fn keys(&self, chosen: impl Fn(&Name) -> bool) -> Vec<Key> {
        self.groups.keys().filter(|(namespace, _)| chosen(namespace)).cloned().collect()
    }

    /// The workloads that are groups.
    pub fn ids(&self) -> impl Iterator<Item = &WorkloadId> {
        self.together.keys()
    }

    /// The pods of a workload that is a group, as one.
    #[must_use]
    pub fn get(&self, id: &WorkloadId) -> Option<&Managed> {
        self.together.get(id).map(|together| &together.managed)
    }

    /// The pods of a group by UID, the oldest first.
    pub fn members(&self, id: &WorkloadId) -> impl Iterator<Item = &Name> {
        self.together.get(id).into_iter().flat_map(|together| &together.members)
    }

    /// The pods that are admitted and have not been told, with the node of each.
    pub fn unreached(&self, id: &WorkloadId) -> &[(Name, Name)] {
        self.together.get(id).map_or(&[], |together| &together.unreached)
    }

    /// The groups that have such pods.
    pub fn with_unreached(&self) -> impl Iterator<Item = &WorkloadId> {
        self.unreached.iter()
    }

    /// Looks at the pods of a group anew; what that changes.
    pub fn look(&mut self, key: &Key, pods: &Table<PodSeen>) -> Vec<Change> {
        let Some(group) = self.groups.get_mut(key) else { return Vec::new() };
        let found = group.sort(&key.1, pods);
        let mut changes = Vec::new();
        let mut now: BTreeMap<WorkloadId, Workload> = BTreeMap::new();
        for (id, together) in found {
            now.insert(id.clone(), together.managed.workload.clone());
            keep(&mut self.unreached, &id, !together.unreached.is_empty());
            self.together.insert(id, together);
        }
        for uid in &group.single {
            if let Some(managed) = pods.get(uid).and_then(|seen| seen.managed.as_deref()) {
                now.insert(managed.workload.id.clone(), managed.workload.clone());
            }
        }
        let before = std::mem::replace(&mut group.told, now);
        for (id, workload) in &before {
            if !group.told.contains_key(id) {
                self.together.remove(id);
                self.unreached.remove(id);
                changes.push(Change::Gone(id.clone(), workload.team.clone()));
            }
        }
        for (id, workload) in &group.told {
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
    /// Finds out who is with whom.
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
        let mut unreached: BTreeMap<WorkloadId, Vec<(Name, Name)>> = BTreeMap::new();
        let mut waiting = Vec::new();
        let mut running = 0;
        for pod in &seen {
            if pod.group.as_ref().is_some_and(|group| group.admitted.is_some()) {
                continue;
            }
            match (state(pod), planned.get(&*pod.uid)) {
                (Some(Observed::Queued), Some((id, node))) => {
                    admitted.entry(id.clone()).or_default().push(pod);
                    unreached.entry(id.clone()).or_default().push((pod.uid.clone(), node.clone()));
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
                let unreached = unreached.remove(&id).unwrap_or_default();
                found.insert(id, Together { managed, members, unreached });
            }
        }
        match waiting.first() {
            Some(first) => {
                let id =
                    self.waiting.get_or_insert_with(|| WorkloadId(format!("group/{}", first.uid).into()));
                if let Some(managed) = pod_group::gathering(id, name, &waiting, running) {
                    let members = waiting.iter().map(|pod| pod.uid.clone()).collect();
                    found.insert(id.clone(), Together { managed, members, unreached: Vec::new() });
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

/// The order in which the pods of a group were made; of one second, shorter names go first, since numbers
/// at their ends grow longer.
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
#[path = "groups_tests.rs"]
mod tests;
