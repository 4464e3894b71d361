//! Pods and workloads that run without a decision of the engine.

use std::collections::BTreeMap;

use crate::capacity::fit::admits;
use crate::replay::Run;
use crate::state::quotas::Hypothetical;
use crate::types::vector::{PODS, Vector};
use crate::types::{Admission, Name, Observed, PodShape, Time, WorkloadId};

impl Run {
    /// Lets a workload that waits run on these nodes since `at`, as one that was admitted before the
    /// run began; the pool is that of its nodes, and whether it borrows follows from its team's usage.
    ///
    /// Gives nothing, and changes nothing, when it does not wait or no such node exists.
    pub fn place(
        &mut self,
        id: &WorkloadId,
        nodes: BTreeMap<Name, u32>,
        pods: u32,
        at: Time,
    ) -> Option<Admission> {
        self.take_up_awaited(id);
        let state = &self.engine.scheduler.state;
        let index = nodes.keys().find_map(|node| state.nodes.find(node))?;
        let pool = state.nodes.get(index).pool;
        let info = state.get(id)?;
        let amount = info.need.times(pods);
        let borrowed = !state.quotas.within_guarantee(pool, info.team, &amount, &Hypothetical::new());
        let admission = Admission {
            pool: state.quotas.pool_name(pool).clone(),
            nodes,
            pods,
            borrowed,
            share: None,
            spared: false,
            unfunded: false,
            at,
        };
        let item = self.items.get_mut(id).filter(|item| item.workload.state == Observed::Queued)?;
        item.set_state(Observed::Admitted(admission.clone()));
        self.dirty = true;
        self.show(id);
        self.settle_in(id);
        Some(admission)
    }

    /// The first node by name on which an unmanaged pod would start: one that admits it and has free capacity, nominated
    /// or not.
    #[must_use]
    pub fn room_for(&self, shape: &PodShape) -> Option<Name> {
        let state = &self.engine.scheduler.state;
        let mut need = Vector::default();
        for (resource, amount) in &shape.requests {
            // A resource that no node offers has no number.
            need.set(state.resources.find(resource)?, amount.as_milli());
        }
        let slots = state.resources.find(PODS)?;
        need.set(slots, need.get(slots) + 1000);
        let demand = state.nodes.demand(&need);
        let mut nodes = state.nodes.alive();
        nodes
            .find(|(_, info, node)| info.open() && admits(node, shape) && info.unheld().fits(&demand) > 0)
            .map(|(_, _, node)| node.name.clone())
    }
}
