//! Pods that were ended on nodes that do not answer.

use std::collections::BTreeMap;

use crate::types::{PodId, WorkloadId};

/// The pods whose end is decided and not confirmed yet, with their workload.
#[derive(Clone, Debug, Default)]
pub struct EndedPods(BTreeMap<PodId, WorkloadId>);

impl EndedPods {
    /// Whether the end of a pod is decided.
    #[must_use]
    pub fn contains(&self, pod: &PodId) -> bool {
        self.0.contains_key(pod)
    }

    /// Notes that the end of a pod is decided.
    pub fn insert(&mut self, pod: PodId, workload: WorkloadId) {
        self.0.insert(pod, workload);
    }

    /// Forgets a pod that is gone.
    pub fn gone(&mut self, pod: &PodId) {
        self.0.remove(pod);
    }

    /// Takes back the decisions about pods of a workload after a failed write; false if there was none.
    pub fn take_back(&mut self, workload: &WorkloadId) -> bool {
        let before = self.0.len();
        self.0.retain(|_, owner| owner != workload);
        self.0.len() < before
    }
}
