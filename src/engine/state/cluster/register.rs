//! All workloads by identity, each in a place that stays the same: who knows the place need not search for it.

use std::collections::BTreeMap;

use crate::state::workload::WorkloadInfo;
use crate::types::WorkloadId;
use crate::types::ids::WorkloadIndex;

/// The entries of all workloads.
#[derive(Clone, Debug, Default)]
pub struct Register {
    places: BTreeMap<WorkloadId, WorkloadIndex>,
    entries: Vec<Option<WorkloadInfo>>,
    vacant: Vec<WorkloadIndex>,
}

impl Register {
    /// The entry in a place.
    pub fn at(&self, place: WorkloadIndex) -> Option<&WorkloadInfo> {
        self.entries.get(place.0)?.as_ref()
    }

    /// The entry of a workload.
    pub fn get(&self, id: &WorkloadId) -> Option<&WorkloadInfo> {
        self.at(*self.places.get(id)?)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, id: &WorkloadId) -> Option<&mut WorkloadInfo> {
        self.entries.get_mut(self.places.get(id)?.0)?.as_mut()
    }

    /// Whether there is an entry of that workload.
    pub fn contains_key(&self, id: &WorkloadId) -> bool {
        self.places.contains_key(id)
    }

    /// Takes in the entry of a workload that has none yet, and tells it its place.
    pub fn insert(&mut self, id: WorkloadId, mut info: WorkloadInfo) {
        let place = self.vacant.pop().unwrap_or(WorkloadIndex(self.entries.len()));
        if place.0 == self.entries.len() {
            self.entries.push(None);
        }
        info.place = place;
        self.entries[place] = Some(info);
        self.places.insert(id, place);
    }

    /// Takes out the entry of a workload.
    pub fn remove(&mut self, id: &WorkloadId) {
        if let Some(place) = self.places.remove(id) {
            self.entries[place] = None;
            self.vacant.push(place);
        }
    }

    /// Every workload, in order.
    pub fn keys(&self) -> impl Iterator<Item = &WorkloadId> {
        self.places.keys()
    }

    /// Every entry, in the order of the identities.
    pub fn values(&self) -> impl Iterator<Item = &WorkloadInfo> {
        self.places.values().filter_map(|place| self.at(*place))
    }
}
