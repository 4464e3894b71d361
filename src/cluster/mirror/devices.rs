//! What is known of claimed devices, as amounts on the nodes, workloads and pods that it concerns.

use super::super::dra::{Concerns, News};
use super::super::reduce::claims::{ClaimSeen, Claims, DeviceClassSeen, SliceSeen, TemplateSeen};
use super::super::table::{Seen, Step, Versioned};
use super::super::target::pod::PodSeen;
use super::fill::keep_counted;
use super::{Makers, Mirror};
use crate::engine::types::amount::ResourceList;
use crate::engine::types::{Event, Name, Node};

impl Mirror {
    /// Takes note of a message about claimed devices, and counts anew what it concerns.
    pub(super) fn take_devices(&mut self, news: News) {
        let Concerns { nodes, users } = self.dra.take(news);
        for name in nodes {
            let Some(node) = self.nodes.get_mut(&name) else { continue };
            let before = node.allocatable.clone();
            self.dra.offer_again(node);
            if node.allocatable != before {
                self.events.push(Event::NodeApplied(node.clone()));
            }
        }
        for uid in users {
            self.look_again(uid);
        }
    }

    /// What pods request of which nothing else is known, with what they claim; the error says why that cannot be told.
    pub fn requests_with(&self, claims: &Claims) -> Result<ResourceList, Name> {
        self.dra.requests_with(claims)
    }

    /// A look at a node with the devices that drivers offer there.
    pub(super) fn with_devices(&mut self, mut seen: Seen<Node>) -> Seen<Node> {
        if let Seen::Object(_, node) = &mut seen {
            self.dra.offer(node);
        }
        seen
    }

    /// Has somebody looked at as if it had been seen once more.
    fn look_again(&mut self, uid: Name) {
        if let Some(seen) = self.jobs.get(&uid) {
            let step = Step::Put(uid, Some(seen.clone()));
            return self.job_steps(Makers::Jobs, vec![step]);
        }
        if let Some(seen) = self.pods.get(&uid) {
            let step = Step::Put(uid, Some(seen.clone()));
            return self.pod_steps(vec![step]);
        }
        let place = self.kin.tables.iter().position(|table| table.get(&uid).is_some());
        let seen = place.and_then(|place| self.kin.tables[place].get(&uid).cloned());
        if let (Some(place), Some(seen)) = (place, seen) {
            self.job_steps(Makers::Others(place), vec![Step::Put(uid, Some(seen))]);
        }
    }

    /// Counts what a pod holds by claims.
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

/// What a pod claims, be it only as a workload that waits.
fn claims_of(seen: &PodSeen) -> Option<&Claims> {
    seen.claims.as_deref().or_else(|| seen.managed.as_ref()?.claims.as_deref())
}

/// Sluice does not write these: what the watch says comes in order.
macro_rules! in_order {
    ($($kind:ty),*) => {$(impl Versioned for $kind {
        fn version(&self) -> u64 {
            0
        }
    })*};
}
in_order!(SliceSeen, DeviceClassSeen, TemplateSeen, ClaimSeen);
