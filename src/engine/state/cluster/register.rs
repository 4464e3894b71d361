//! All workloads by identity. Each has a stable index, so a lookup by index needs no search.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::state::workload::WorkloadInfo;
use crate::types::WorkloadId;
use crate::types::ids::WorkloadIndex;

/// The workload infos, by identity and by index.
#[derive(Clone, Debug, Default)]
pub struct Register {
    indices: BTreeMap<WorkloadId, WorkloadIndex>,
    /// Shared with the copies of an engine, until one of them changes the workload.
    infos: Vec<Option<Arc<WorkloadInfo>>>,
    /// By index: a number that changes with the workload.
    revisions: Vec<u64>,
    /// The last number given to a workload.
    revision: u64,
    free: Vec<WorkloadIndex>,
}

impl Register {
    /// The workload at an index.
    pub fn at(&self, index: WorkloadIndex) -> Option<&WorkloadInfo> {
        self.infos.get(index.0)?.as_deref()
    }

    /// The workload of an identity.
    pub fn get(&self, id: &WorkloadId) -> Option<&WorkloadInfo> {
        self.at(*self.indices.get(id)?)
    }

    /// The same, mutable; its revision changes.
    pub fn get_mut(&mut self, id: &WorkloadId) -> Option<&mut WorkloadInfo> {
        let index = *self.indices.get(id)?;
        self.mark_changed(index);
        self.infos.get_mut(index.0)?.as_mut().map(Arc::make_mut)
    }

    /// A number that changes whenever the workload at an index does, or another one gets the index.
    pub fn revision(&self, index: WorkloadIndex) -> u64 {
        self.revisions.get(index.0).copied().unwrap_or_default()
    }

    /// The highest of these numbers.
    pub fn last_revision(&self) -> u64 {
        self.revision
    }

    fn mark_changed(&mut self, index: WorkloadIndex) {
        self.revision += 1;
        if let Some(revision) = self.revisions.get_mut(index.0) {
            *revision = self.revision;
        }
    }

    /// Whether the workload is registered.
    pub fn contains_key(&self, id: &WorkloadId) -> bool {
        self.indices.contains_key(id)
    }

    /// Registers a workload that is not registered yet, and sets its index.
    pub fn insert(&mut self, id: WorkloadId, mut info: WorkloadInfo) {
        let index = self.free.pop().unwrap_or(WorkloadIndex(self.infos.len()));
        if index.0 == self.infos.len() {
            self.infos.push(None);
            self.revisions.push(0);
        }
        info.index = index;
        self.infos[index] = Some(Arc::new(info));
        self.mark_changed(index);
        self.indices.insert(id, index);
    }

    /// Removes a workload; its index is used again.
    pub fn remove(&mut self, id: &WorkloadId) {
        if let Some(index) = self.indices.remove(id) {
            self.infos[index] = None;
            self.mark_changed(index);
            self.free.push(index);
        }
    }

    /// Every identity, in order.
    pub fn keys(&self) -> impl Iterator<Item = &WorkloadId> {
        self.indices.keys()
    }

    /// Every workload, by identity.
    pub fn values(&self) -> impl Iterator<Item = &WorkloadInfo> {
        self.values_after(None)
    }

    /// Every workload with an identity after this one, in their order.
    pub fn values_after(&self, id: Option<&WorkloadId>) -> impl Iterator<Item = &WorkloadInfo> {
        let after = id.map_or(Bound::Unbounded, Bound::Excluded);
        let indices = self.indices.range::<WorkloadId, _>((after, Bound::Unbounded));
        indices.filter_map(|(_, index)| self.at(*index))
    }
}
