//! Reported misplaced pods, and until when workloads avoid nodes.

use std::collections::{BTreeMap, BTreeSet};

use crate::types::{MisplacedPods, Time, WorkloadId};

/// The workloads with misplaced pods.
#[derive(Clone, Debug, Default)]
pub struct Misplaced {
    /// The reports that no cycle has decided on yet.
    pub reported: BTreeMap<WorkloadId, MisplacedPods>,
    /// When workloads may use the nodes again that they avoid; may name workloads that avoid none any more.
    pub until: BTreeSet<(Time, WorkloadId)>,
}

impl Misplaced {
    /// The earliest time at which a workload may use its avoided nodes again.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.until.first().map(|(until, _)| *until)
    }

    /// Sets the time until which a workload avoids nodes.
    pub fn avoid_until(&mut self, until: Time, id: &WorkloadId) {
        self.until.retain(|(_, other)| other != id);
        self.until.insert((until, id.clone()));
    }

    /// Removes a workload that may use its avoided nodes again at `now`, the earliest first.
    pub fn take_due(&mut self, now: Time) -> Option<WorkloadId> {
        self.next().filter(|until| *until <= now)?;
        self.until.pop_first().map(|(_, id)| id)
    }
}
