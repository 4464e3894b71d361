//! How many pods of each workload are up.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use crate::engine::types::{PodsReady, WorkloadId};

/// The pods that are ready, and those that were and have succeeded, by workload.
#[derive(Debug, Default)]
pub struct Up {
    counts: BTreeMap<WorkloadId, Count>,
    changed: BTreeSet<WorkloadId>,
}

#[derive(Debug, Default)]
struct Count {
    ready: u32,
    succeeded: u32,
}

impl Up {
    /// A pod that was ready and of one workload before is ready and of another now.
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

    /// A pod of a workload that ran has succeeded.
    pub fn succeeded(&mut self, id: &WorkloadId) {
        self.counts.entry(id.clone()).or_default().succeeded += 1;
        self.changed.insert(id.clone());
    }

    /// A workload is gone.
    pub fn forget(&mut self, id: &WorkloadId) {
        self.counts.remove(id);
    }

    /// How many pods of a workload are up.
    pub fn of(&self, id: &WorkloadId) -> PodsReady {
        let (ready, succeeded) = self.counts.get(id).map_or((0, 0), |count| (count.ready, count.succeeded));
        PodsReady { workload: id.clone(), ready, succeeded }
    }

    /// Those of which something has changed since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<WorkloadId> {
        take(&mut self.changed)
    }
}
