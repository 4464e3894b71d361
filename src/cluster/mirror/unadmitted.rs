//! What the team of a namespace is charged for a pod that belongs to no known workload (law 15).

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::super::ownership::Ownership;
use super::super::table::Table;
use super::super::target::pod::{PodSeen, unadmitted};
use super::super::target::{JobSeen, Managed};
use super::Mirror;
use crate::engine::types::{Event, Name, PodId, PodOwner, Replacement, Unadmitted, WorkloadId};

/// Takes a pod from its workload once the object of that is deleted and the pod is not. Such an object no longer follows its
/// suspension, and where a finalizer keeps it, nothing ends its pods: they run unadmitted.
pub(super) fn leave_deleted(jobs: &Table<JobSeen>, ownership: &Ownership, pod: &mut PodSeen) {
    let Some(WorkloadId(owner)) = pod.belongs.as_ref().filter(|_| !pod.ending && pod.managed.is_none())
    else {
        return;
    };
    let seen = jobs.get(owner).or_else(|| ownership.get(owner));
    if seen.and_then(|seen| seen.managed.as_deref()).is_some_and(|managed| managed.facts.deleting) {
        pod.left = true;
        pod.belongs = None;
        if let Some(holds) = &mut pod.holds {
            holds.workload = None;
        }
    }
}

impl Mirror {
    /// Completes what a pod holds with the facts for its charge.
    pub(super) fn charge_to_team(&mut self, uid: &Name) {
        let facts = self.pods.get(uid).and_then(|seen| self.unadmitted_facts(seen)).map(Box::new);
        if let Some(holds) = self.pods.get_mut(uid).and_then(|seen| seen.holds.as_mut()) {
            holds.unadmitted = facts;
        }
    }

    /// Charges the pods of namespaces again that have entered a team, left one, or moved.
    pub(super) fn charge_again(&mut self, namespaces: &BTreeSet<Name>) {
        let pods: Vec<Name> = self
            .pods
            .iter()
            .filter(|(_, seen)| seen.holds.is_some() && namespaces.contains(&seen.namespace))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in pods {
            let before = self.pods.get(&uid).and_then(|seen| seen.holds.clone());
            self.charge_to_team(&uid);
            let now = self.pods.get(&uid).and_then(|seen| seen.holds.as_ref());
            if before.as_ref() != now {
                self.events.extend(now.cloned().map(Event::PodApplied));
            }
        }
    }

    fn unadmitted_facts(&self, seen: &PodSeen) -> Option<Unadmitted> {
        seen.holds.as_ref()?.node.as_ref()?;
        let namespace = self.namespaces.get(&seen.namespace)?;
        let team = namespace.membership.as_ref()?.team.clone();
        if seen.rides_along {
            return None;
        }
        let label = |owner: &OwnerReference| PodOwner {
            uid: owner.uid.as_str().into(),
            label: format!("{}/{}", owner.kind, owner.name).into(),
        };
        Some(Unadmitted {
            team,
            namespace: seen.namespace.clone(),
            name: seen.name.clone(),
            created: seen.created,
            owner: seen.controller.as_deref().map(label),
            replacement: self.replacement(seen),
            adopted: namespace.since.is_some_and(|since| seen.created <= since),
            ending: seen.ending,
        })
    }

    /// What would follow the end of a pod. The Job controller, the DaemonSet controller and the operators of custom kinds
    /// make pods without a gate; every other controller's pods are held.
    fn replacement(&self, seen: &PodSeen) -> Replacement {
        let at_once = match seen.controller.as_deref() {
            // No controller makes further pods of a deleted object.
            _ if seen.left => false,
            None => seen.mirrors,
            Some(owner) => {
                let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
                matches!(
                    (group, owner.kind.as_str()),
                    ("apps", "DaemonSet") | ("batch", "Job") | ("", "Node")
                ) || self.ownership.is_parent(owner)
            }
        };
        if at_once { Replacement::AtOnce } else { Replacement::Held }
    }

    /// A pod that was never admitted, as the object of its eviction, with its version.
    #[must_use]
    pub fn unadmitted(&self, id: &WorkloadId) -> Option<(Managed, u64)> {
        let PodId(uid) = id.unadmitted_pod()?;
        let seen = self.pods.get(&uid)?;
        let facts = seen.holds.as_ref()?.unadmitted.as_deref()?;
        Some((unadmitted(seen, facts), seen.version))
    }
}
