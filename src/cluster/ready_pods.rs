//! Ready and succeeded pods of each workload.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use crate::engine::types::{PodsReady, WorkloadId};

/// The numbers of ready and succeeded pods, by workload.
#[derive(Debug, Default)]
pub struct ReadyPods {
    counts: BTreeMap<WorkloadId, Count>,
    changed: BTreeSet<WorkloadId>,
}

#[derive(Debug, Default)]
struct Count {
    ready: u32,
    succeeded: u32,
}

impl ReadyPods {
    /// Moves a ready pod from one workload to another; `None` stands for a pod that is not ready or has none.
    pub fn ready(&mut self, before: Option<&WorkloadId>, now: Option<&WorkloadId>) {
        if before == now {
            return;
        }
        if let Some(id) = before
            && let Some(count) = self.counts.get_mut(id)
        {
            count.ready = count.ready.saturating_sub(1);
            if count.ready == 0 && count.succeeded == 0 {
                self.counts.remove(id);
            }
            self.changed.insert(id.clone());
        }
        if let Some(id) = now {
            self.counts.entry(id.clone()).or_default().ready += 1;
            self.changed.insert(id.clone());
        }
    }

    /// Counts a pod that ran and has succeeded.
    pub fn succeeded(&mut self, id: &WorkloadId) {
        self.counts.entry(id.clone()).or_default().succeeded += 1;
        self.changed.insert(id.clone());
    }

    /// Drops a deleted workload.
    pub fn remove(&mut self, id: &WorkloadId) {
        self.counts.remove(id);
    }

    /// The numbers of a workload's pods.
    pub fn of(&self, id: &WorkloadId) -> PodsReady {
        let (ready, succeeded) = self.counts.get(id).map_or((0, 0), |count| (count.ready, count.succeeded));
        PodsReady { workload: id.clone(), ready, succeeded }
    }

    /// The workloads with numbers that changed since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<WorkloadId> {
        take(&mut self.changed)
    }
}
