//! Claimed devices as amounts of nodes, workloads and pods.

use super::super::dra::{Affected, News};
use super::super::reduce::claims::{ClaimSeen, Claims, DeviceClassSeen, SliceSeen, TemplateSeen};
use super::super::table::{Seen, Step, Versioned};
use super::super::target::pod::PodSeen;
use super::fill::keep_counted;
use super::{Mirror, OwnerTable};
use crate::engine::types::amount::ResourceList;
use crate::engine::types::{Event, Name, Node};

impl Mirror {
    /// Applies a message about claimed devices and recounts the affected nodes, workloads and pods.
    pub(super) fn take_devices(&mut self, news: News) {
        let Affected { nodes, dependents } = self.dra.take(news);
        for name in nodes {
            let Some(node) = self.nodes.get_mut(&name) else { continue };
            let before = node.allocatable.clone();
            self.dra.offer_again(node);
            if node.allocatable != before {
                self.events.push(Event::NodeApplied(node.clone()));
            }
        }
        for uid in dependents {
            self.apply_again(uid);
        }
    }

    /// The requests of a pod with its claimed devices.
    ///
    /// # Errors
    /// Why the claimed devices cannot be counted.
    pub fn requests_with(&self, claims: &Claims) -> Result<ResourceList, Name> {
        self.dra.requests_with(claims)
    }

    /// Adds the devices that drivers offer on a node.
    pub(super) fn with_devices(&mut self, mut seen: Seen<Node>) -> Seen<Node> {
        if let Seen::Object(_, node) = &mut seen {
            self.dra.offer(node);
        }
        seen
    }

    /// Applies a cached object again, as if the watch had sent it.
    fn apply_again(&mut self, uid: Name) {
        if let Some(seen) = self.jobs.get(&uid) {
            let step = Step::Put(uid, Some(seen.clone()));
            return self.job_steps(OwnerTable::Jobs, vec![step]);
        }
        if let Some(seen) = self.pods.get(&uid) {
            let step = Step::Put(uid, Some(seen.clone()));
            return self.pod_steps(vec![step]);
        }
        let place = self.ownership.tables.iter().position(|table| table.get(&uid).is_some());
        let seen = place.and_then(|place| self.ownership.tables[place].get(&uid).cloned());
        if let (Some(place), Some(seen)) = (place, seen) {
            self.job_steps(OwnerTable::Custom(place), vec![Step::Put(uid, Some(seen))]);
        }
    }

    /// Counts the claimed devices of a pod.
    pub(super) fn count_pod(&mut self, uid: &Name, before: Option<&PodSeen>) {
        let claimed_before = before.and_then(|before| before.claims.as_deref());
        let of_workload = before.and_then(|before| before.managed.as_ref()?.claims.as_deref());
        let now = self.pods.get_mut(uid);
        let claims = now.as_deref().and_then(claims_of);
        self.dra.note(uid, before.and_then(claims_of), claims);
        let Some(now) = now else { return };
        keep_counted(now.managed.as_mut().and_then(|managed| managed.claims.as_deref_mut()), of_workload);
        keep_counted(now.claims.as_deref_mut(), claimed_before);
        if let (Some(claims), Some(holds)) = (now.claims.as_deref_mut(), &mut now.holds) {
            holds.requests = self.dra.held(uid, claims);
        }
    }
}

/// The claims of a pod, running or waiting.
fn claims_of(seen: &PodSeen) -> Option<&Claims> {
    seen.claims.as_deref().or_else(|| seen.managed.as_ref()?.claims.as_deref())
}

/// Kinds that Sluice does not write need no version: their watch messages arrive in order.
macro_rules! in_order {
    ($($kind:ty),*) => {$(impl Versioned for $kind {
        fn version(&self) -> u64 {
            0
        }
    })*};
}
in_order!(SliceSeen, DeviceClassSeen, TemplateSeen, ClaimSeen);
