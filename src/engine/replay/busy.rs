//! The requests of all pods of a replay.

use std::collections::BTreeMap;

use crate::types::PodId;
use crate::types::amount::{Amount, ResourceList};
use crate::types::vector::PODS;

/// The sum over all pods, managed and unmanaged.
#[derive(Clone, Debug, Default)]
pub struct Busy {
    total: ResourceList,
    foreign: BTreeMap<PodId, ResourceList>,
}

impl Busy {
    /// Adds `times` × `requests`; `times` may be negative.
    pub fn change(&mut self, requests: &ResourceList, times: i64) {
        for (resource, amount) in requests.iter().filter(|(resource, _)| &***resource != PODS) {
            let total = self.total.entry(resource.clone()).or_default();
            *total = *total + Amount::milli(amount.as_milli().saturating_mul(times));
        }
    }

    /// A pod that was not started by the run; one that is seen again counts once.
    pub fn known(&mut self, pod: &PodId, requests: &ResourceList, foreign: bool) {
        if foreign {
            self.foreign_gone(pod);
            self.foreign.insert(pod.clone(), requests.clone());
        }
        self.change(requests, 1);
    }

    /// A foreign pod is gone.
    pub fn foreign_gone(&mut self, pod: &PodId) {
        if let Some(requests) = self.foreign.remove(pod) {
            self.change(&requests, -1);
        }
    }
}

impl Busy {
    /// The sum.
    #[must_use]
    pub fn total(&self) -> &ResourceList {
        &self.total
    }
}
