//! Charges workloads to their quotas, nodes and totals.

use std::collections::BTreeSet;

use crate::state::charges::{charge_nodes, charge_quotas, queue_name, usage_of};
use crate::state::cluster::state::ClusterState;
use crate::state::rules::oversize_in;
use crate::state::totals::Contribution;
use crate::state::workload::{Phase, Usage, WorkloadInfo, settle_time};
use crate::types::ids::{PoolId, TeamId};
use crate::types::{Standing, WorkloadId};

impl ClusterState {
    pub(super) fn contribution(&self, id: &WorkloadId) -> Option<Contribution> {
        let info = self.workloads.get(id)?;
        Contribution::of(info, self.priority_of(info), self.preemptible(info))
    }

    pub(super) fn recharge(&mut self, id: &WorkloadId) {
        self.uncharge(id);
        self.charge(id);
    }

    pub(super) fn uncharge(&mut self, id: &WorkloadId) {
        if let Some(contribution) = self.contribution(id) {
            self.totals.remove(&contribution);
        }
        self.uncharge_budgets(id);
        let Some(info) = self.workloads.get_mut(id) else { return };
        self.holders.remove(info, &mut self.nodes);
        charge_quotas(&mut self.quotas, info, -1);
        // The usage on nodes is replaced when the workload is charged again, so fractions stay on their
        // devices.
        let nodes = std::mem::take(&mut info.usage.nodes);
        info.usage = Usage { pool: info.usage.pool, nodes, ..Usage::default() };
    }

    /// The levels that a workload is charged to without counting against their guarantees.
    pub(super) fn oversize_levels(&self, id: &WorkloadId) -> Vec<TeamId> {
        self.workloads.get(id).map(|info| self.oversize_of(info)).unwrap_or_default()
    }

    /// The same of a known workload.
    pub(super) fn oversize_of(&self, info: &WorkloadInfo) -> Vec<TeamId> {
        if info.usage.pods > 0 { oversize_in(self, info, info.usage.pool) } else { Vec::new() }
    }

    /// Notes that the charge of a workload may have changed.
    pub(super) fn note_charge(&mut self, id: &WorkloadId) {
        if let Some(recharged) = &mut self.recharged
            && !recharged.contains(id)
        {
            recharged.insert(id.clone());
        }
    }

    /// Charges a workload to what it uses in its phase, and files it under what it may be looked up for.
    pub(super) fn charge(&mut self, id: &WorkloadId) {
        self.note_charge(id);
        let Some(pool) = self.pool_to_charge(id) else { return };
        self.count_worth(id, pool);
        let fixed = self.workloads.get(id).is_some_and(|info| !self.preemptible(info));
        let Some(info) = self.workloads.get_mut(id) else { return };
        info.charged_fixed = fixed;
        let usage = usage_of(info, pool, &self.nodes);
        let before = std::mem::replace(&mut info.usage, usage);
        info.charged_queue = queue_name(&self.quotas, info);
        let levels = self.oversize_levels(id);
        let Some(info) = self.workloads.get_mut(id) else { return };
        info.oversize = levels;
        charge_quotas(&mut self.quotas, info, 1);
        charge_nodes(&mut self.nodes, info, &before.nodes);
        self.holders.add(info, &mut self.nodes);
        self.file(id);
        self.charge_budgets(id);
        if let Some(contribution) = self.contribution(id) {
            self.totals.add(&contribution);
        }
    }

    /// The pool in which a workload is charged; `None` if it is not known.
    fn pool_to_charge(&mut self, id: &WorkloadId) -> Option<PoolId> {
        let info = self.workloads.get(id)?;
        // A pod that was never admitted is charged in the pool of its node, wherever that moves.
        let admission = info.phase.admission().filter(|_| info.unadmitted.is_none());
        Some(match admission {
            Some(admission) => self.quotas.intern_pool(&admission.pool),
            None => {
                let node = info.live.keys().flatten().next();
                node.map_or(info.usage.pool, |node| self.nodes.get(*node).pool)
            }
        })
    }

    /// Counts what a workload needs in the currency of the pool where it is charged, or of the first that it asks for while it
    /// waits.
    fn count_worth(&mut self, id: &WorkloadId, pool: PoolId) {
        if self.pools.values().all(|pool| pool.weights.is_empty()) {
            return;
        }
        let Some(info) = self.workloads.get_mut(id) else { return };
        let first = info.workload.pools.first().and_then(|name| self.quotas.pool(name));
        let paid = if info.phase.admission().is_some() { pool } else { first.unwrap_or(pool) };
        let mut need = std::mem::take(&mut info.need);
        let mut sizes = std::mem::take(&mut info.sizes);
        self.count_in_currency(paid, &mut need);
        for size in &mut sizes {
            self.count_in_currency(paid, &mut size.need);
        }
        if let Some(info) = self.workloads.get_mut(id) {
            (info.need, info.sizes) = (need, sizes);
        }
    }

    /// Puts a workload into the sets in which the steps of a cycle find what concerns them, or takes it out.
    fn file(&mut self, id: &WorkloadId) {
        let Some(info) = self.workloads.get(id) else { return };
        if let Some(due) = settle_time(info) {
            self.settling.insert((due, id.clone()));
        }
        update_membership(&mut self.growable, id, info.may_grow());
        update_membership(&mut self.lost_pods, id, info.has_lost_pods(&self.nodes));
        update_membership(&mut self.releasable, id, info.excess_pods() > 0);
        let first = info.unadmitted == Some(Standing::First) && matches!(info.phase, Phase::Running(_));
        update_membership(&mut self.first, id, first);
        let stopping = matches!(info.phase, Phase::Stopping(_) | Phase::Leaving { .. }) && !info.removed;
        update_membership(&mut self.stopping, id, stopping);
    }
}

/// Inserts a workload into a set, or removes it.
fn update_membership(set: &mut BTreeSet<WorkloadId>, id: &WorkloadId, belongs: bool) {
    if !belongs {
        set.remove(id);
    } else if !set.contains(id) {
        set.insert(id.clone());
    }
}
