//! Changes of a workload that the engine itself decides, or that time brings.

use std::sync::Arc;

use crate::state::avoided_nodes::AvoidedNodes;
use crate::state::cluster::state::ClusterState;
use crate::state::workload::{Phase, settle_time};
use crate::types::{Time, WorkloadId};

impl ClusterState {
    /// Moves a workload to another phase, by a decision of the engine or because time has passed.
    pub fn set_phase(&mut self, id: &WorkloadId, phase: Phase) {
        self.uncharge(id);
        if let Some(info) = self.workloads.get_mut(id) {
            info.phase = phase;
            info.settle_size();
        }
        self.charge(id);
    }

    /// Sets whether a workload is ordered before the others of its team because it waits too long.
    pub fn raise(&mut self, id: &WorkloadId, raised: bool) {
        let before = self.contribution(id);
        let Some(info) = self.workloads.get_mut(id) else { return };
        if std::mem::replace(&mut info.raised, raised) != raised {
            before.iter().for_each(|contribution| self.totals.remove(contribution));
            self.contribution(id).iter().for_each(|contribution| self.totals.add(contribution));
        }
    }

    /// Sets the nodes that a workload avoids, and narrows its shape to the others.
    pub fn set_avoided_nodes(&mut self, id: &WorkloadId, avoided_nodes: AvoidedNodes) {
        let Some(info) = self.workloads.get(id) else { return };
        let narrowed = avoided_nodes.narrowed(&info.workload.shape);
        let workload = Arc::clone(&info.workload);
        let shape = self.intern_shape(narrowed.as_ref().unwrap_or(&workload.shape));
        let sizes = self.sized_pods(&workload, &shape);
        if let Some(info) = self.workloads.get_mut(id) {
            info.shape = shape;
            info.sizes = sizes;
            info.settle_size();
            info.avoided_nodes = Some(Box::new(avoided_nodes));
        }
    }

    /// Marks workloads as stopped if their stop was not confirmed within [`crate::types::SETTLE`]; true if
    /// there were any.
    pub fn settle(&mut self, now: Time) -> bool {
        let mut settled = false;
        while let Some((due, id)) = self.settling.first().cloned().filter(|(due, _)| *due <= now) {
            self.settling.remove(&(due, id.clone()));
            let Some(info) = self.workloads.get(&id).filter(|e| settle_time(e) == Some(due)) else {
                continue;
            };
            if let Phase::Leaving { admission, since, .. } = info.phase.clone() {
                self.set_phase(&id, Phase::Leaving { admission, since, stopped: true });
                settled = true;
            }
        }
        settled
    }

    /// The next time at which [`ClusterState::settle`] has an effect.
    #[must_use]
    pub fn next_settle(&self) -> Option<Time> {
        self.settling.first().map(|(due, _)| *due)
    }
}
