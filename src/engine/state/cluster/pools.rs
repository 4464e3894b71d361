//! The assignment of nodes to pools, and amounts in the currency of a pool.

use crate::state::cluster::state::{ClusterState, Effect};
use crate::types::amount::{Amount, ResourceList};
use crate::types::ids::{NodeId, PoolId};
use crate::types::vector::{PODS, Vector};
use crate::types::{CURRENCY, DEFAULT_POOL, Name, Node, WorkloadId};

impl ClusterState {
    /// Sets the definition of a node; `None` when it is gone.
    pub(super) fn set_node(&mut self, name: &Name, node: Option<Node>) -> Effect {
        let index = self.nodes.intern(name);
        let slots = self.resources.intern(&PODS.into());
        let known = self.nodes.get(index);
        if known.node == node {
            return Effect::Tighter;
        }
        let (old_pool, existed) = (known.pool, known.node.is_some());
        let old = known.allocatable.clone();
        if existed {
            self.quotas.add_capacity(old_pool, &old, -1);
        }
        let pool = node.as_ref().map(|node| self.pool_of(node));
        let known = self.nodes.get(index).node.as_ref();
        let offers = |node: Option<&Node>| node.map(|node| node.allocatable.clone());
        let same = pool == known.map(|_| old_pool) && offers(known) == offers(node.as_ref());
        let mut allocatable =
            node.as_ref().map(|node| self.resources.vector(&node.allocatable)).unwrap_or_default();
        if let Some(pool) = pool {
            self.count_in_currency(pool, &mut allocatable);
        }
        self.nodes.set(index, node, allocatable, slots);
        if let Some(pool) = pool {
            self.nodes.set_pool(index, pool, self.quotas.pool_name(pool));
            let capacity = self.nodes.get(index).allocatable.clone();
            self.quotas.add_capacity(pool, &capacity, 1);
        }
        // A placement planned for a node that is gone is no longer charged to it.
        let affected: Vec<WorkloadId> = self.holders.on_node(index).map(|(id, _)| id.clone()).collect();
        for id in affected {
            self.recharge(&id);
        }
        if same { Effect::Looser } else { Effect::RequeueAll }
    }

    /// The first pool by name that selects the node, else the default pool.
    fn pool_of(&mut self, node: &Node) -> PoolId {
        let name = self
            .pools
            .values()
            .find(|pool| pool.selects(node))
            .map_or_else(|| DEFAULT_POOL.into(), |pool| pool.name.clone());
        self.quotas.intern_pool(&name)
    }

    /// Assigns every node to its pool again; counts all usage again if weights have changed.
    pub(super) fn assign_pools(&mut self, reweighed: bool) -> Effect {
        let alive: Vec<(NodeId, PoolId, Node)> =
            self.nodes.alive().map(|(index, info, node)| (index, info.pool, node.clone())).collect();
        let slots = self.resources.intern(&PODS.into());
        for (index, old, node) in alive {
            let pool = self.pool_of(&node);
            if pool != old || reweighed {
                let capacity = self.nodes.get(index).allocatable.clone();
                self.quotas.add_capacity(old, &capacity, -1);
                let mut allocatable = self.resources.vector(&node.allocatable);
                self.count_in_currency(pool, &mut allocatable);
                self.nodes.set(index, Some(node), allocatable, slots);
                self.nodes.set_pool(index, pool, self.quotas.pool_name(pool));
                let capacity = self.nodes.get(index).allocatable.clone();
                self.quotas.add_capacity(pool, &capacity, 1);
            }
        }
        if reweighed {
            let ids: Vec<WorkloadId> = self.workloads.keys().cloned().collect();
            for id in ids {
                self.recharge(&id);
            }
        }
        Effect::RequeueAll
    }

    /// Sets what an amount counts in the currency of a pool; zero where the pool has none.
    pub fn count_in_currency(&mut self, pool: PoolId, amount: &mut Vector) {
        let currency = self.resources.intern(&CURRENCY.into());
        let worth = self.worth(pool, amount);
        if worth != amount.get(currency) {
            amount.set(currency, worth);
        }
    }

    /// What a list is worth in the currency of a pool; nothing where the pool has none.
    #[must_use]
    pub fn in_currency(&self, pool: &str, list: &ResourceList) -> Option<Amount> {
        let weights = &self.pools.get(pool)?.weights;
        let sum = weighed(weights, |name| list.get(name).map_or(0, |amount| amount.as_milli()));
        (!weights.is_empty()).then_some(Amount::milli(sum))
    }

    /// An amount in the currency of a pool, in thousandths.
    #[must_use]
    pub fn worth(&self, pool: PoolId, amount: &Vector) -> i64 {
        let Some(pool) = self.pools.get(self.quotas.pool_name(pool)) else { return 0 };
        weighed(&pool.weights, |name| self.resources.find(name).map_or(0, |index| amount.get(index)))
    }
}

/// The sum of amounts by their weights; `milli` gives the amount of a resource in thousandths, as the sum is.
fn weighed(weights: &ResourceList, milli: impl Fn(&Name) -> i64) -> i64 {
    let worth = |(name, weight): (&Name, &Amount)| milli(name).saturating_mul(weight.as_milli()) / 1000;
    weights.iter().map(worth).fold(0, i64::saturating_add)
}
