//! Nodes that do not answer. After a while such a node offers nothing and its pods are held nowhere (law 1): no kubelet
//! can confirm their end, so waiting for that would keep their workloads and quotas for ever.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::state::cluster::state::{ClusterState, Effect, PodInfo};
use crate::types::ids::NodeId;
use crate::types::{Name, Node, PodId, Time, WorkloadId};

impl ClusterState {
    /// Records a node that was created or changed.
    pub(super) fn node_applied(&mut self, node: Node) -> Effect {
        let name = node.name.clone();
        let index = self.nodes.intern(&name);
        let Some(since) = node.unreachable else {
            self.unreachable.remove(&index);
            return self.set_lost(index, false, Some(node));
        };
        self.unreachable.insert(index, since);
        // A lost node stays lost until it answers, whatever else changes.
        if self.nodes.get(index).lost { Effect::Tighter } else { self.set_node(&name, Some(node)) }
    }

    /// Records that a node was deleted. The pods of a lost one stay lost.
    pub(super) fn node_removed(&mut self, name: &Name) -> Effect {
        let index = self.nodes.intern(name);
        self.unreachable.remove(&index);
        self.set_node(name, None)
    }

    /// Counts the nodes as lost that have not answered for `after`; false if there was none.
    pub fn lose_nodes(&mut self, now: Time, after: Duration) -> bool {
        let due = |(index, since): (&NodeId, &Time)| {
            (!self.nodes.get(*index).lost && since.after(after) <= now).then_some(*index)
        };
        let due: Vec<NodeId> = self.unreachable.iter().filter_map(due).collect();
        for index in &due {
            self.set_lost(*index, true, None);
        }
        !due.is_empty()
    }

    /// When the next node counts as lost.
    #[must_use]
    pub fn next_loss(&self, after: Duration) -> Option<Time> {
        let waiting = self.unreachable.iter().filter(|(index, _)| !self.nodes.get(**index).lost);
        waiting.map(|(_, since)| since.after(after)).min()
    }

    /// Whether a node exists and counts as lost because it does not answer.
    #[must_use]
    pub fn is_silent(&self, name: &Name) -> bool {
        let index = self.nodes.find(name);
        index.is_some_and(|index| self.nodes.get(index).lost && self.unreachable.contains_key(&index))
    }

    /// Since when a node has not answered.
    #[must_use]
    pub fn silent_since(&self, index: NodeId) -> Option<Time> {
        self.unreachable.get(&index).copied()
    }

    /// The pods of known workloads on lost nodes, with workload and node.
    pub fn pods_on_lost_nodes(&self) -> impl Iterator<Item = (&PodId, &WorkloadId, NodeId)> {
        self.on_lost_nodes.iter().filter_map(|id| {
            let pod = self.pods.get(id)?;
            Some((id, pod.owner.as_ref()?, pod.node?))
        })
    }

    /// Notes whether a pod of a known workload is on a lost node.
    pub(super) fn note_lost(&mut self, id: &PodId) {
        let pod = self.pods.get(id).filter(|pod| pod.node.is_some_and(|node| self.nodes.get(node).lost));
        if pod.is_some() {
            self.on_lost_nodes.insert(id.clone());
        } else {
            self.on_lost_nodes.remove(id);
        }
    }

    /// Marks a node as lost, or as found again with the definition that it has now, and charges the pods on it again.
    fn set_lost(&mut self, index: NodeId, lost: bool, node: Option<Node>) -> Effect {
        let name = self.nodes.name(index).clone();
        if self.nodes.get(index).lost == lost {
            return self.set_node(&name, node);
        }
        let there = |(_, pod): &(&PodId, &PodInfo)| pod.node == Some(index);
        let there: Vec<PodId> = self.pods.iter().filter(there).map(|(id, _)| id.clone()).collect();
        let owner = |state: &Self, id: &PodId| {
            let owner = state.pods.get(id)?.owner.clone()?;
            state.workloads.contains_key(&owner).then_some(owner)
        };
        let owners: BTreeSet<WorkloadId> = there.iter().filter_map(|id| owner(self, id)).collect();
        let loose: Vec<&PodId> = there.iter().filter(|id| owner(self, id).is_none()).collect();
        for id in &loose {
            self.detach_loose(id);
        }
        self.nodes.set_lost(index, lost);
        self.set_node(&name, node);
        for id in &loose {
            self.attach_loose(id);
        }
        for id in &there {
            self.note_lost(id);
        }
        for id in &owners {
            self.recharge(id);
        }
        Effect::RequeueAll
    }
}
