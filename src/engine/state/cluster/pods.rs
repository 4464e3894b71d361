//! Pods: counted to their workload, to the team of their namespace, or to their node alone.

use crate::capacity::devices::Holder;
use crate::state::cluster::state::{ClusterState, Effect, PodInfo};
use crate::state::nodes::Hold;
use crate::types::{Pod, PodId, WorkloadId};

impl ClusterState {
    /// Counts the pods of an owner that has just become known to its workload. The caller charges the workload.
    pub(super) fn adopt_orphans(&mut self, id: &WorkloadId) {
        for pod in self.orphans.remove(id).unwrap_or_default() {
            self.detach_loose(&pod);
            let node = self.pods.get(&pod).and_then(|info| info.node);
            if let Some(info) = self.workloads.get_mut(id) {
                *info.live.entry(node).or_default() += 1;
            }
        }
    }

    pub(super) fn set_pod(&mut self, pod: Pod) -> Effect {
        let node = pod.node.as_ref().map(|node| self.nodes.intern(node));
        let (need, unoffered) = self.need_of_pod(pod.requests);
        let Pod { id, workload: owner, profile, unadmitted, .. } = pod;
        let info = PodInfo { node, owner, need, profile, unadmitted, charged: false };
        if self.pods.get(&id).is_some_and(|known| known.is_like(&info)) {
            return Effect::Tighter;
        }
        let effect = self.remove_pod(&id);
        let owner = info.owner.clone();
        if let Some(requests) = unoffered {
            self.unoffered.insert(id.clone(), requests);
        }
        self.pods.insert(id.clone(), info);
        self.note_lost(&id);
        match owner.filter(|id| self.workloads.contains_key(id)) {
            Some(owner) => {
                if let Some(info) = self.workloads.get_mut(&owner) {
                    *info.live.entry(node).or_default() += 1;
                }
                self.recharge(&owner);
            }
            None => self.attach_loose(&id),
        }
        effect
    }

    pub(super) fn remove_pod(&mut self, id: &PodId) -> Effect {
        self.unoffered.remove(id);
        self.on_lost_nodes.remove(id);
        let Some(pod) = self.pods.get(id) else { return Effect::Tighter };
        let node = pod.node;
        match pod.owner.clone().filter(|owner| self.workloads.contains_key(owner)) {
            Some(owner) => {
                self.pods.remove(id);
                if let Some(info) = self.workloads.get_mut(&owner)
                    && let Some(count) = info.live.get_mut(&node)
                {
                    *count -= 1;
                    if *count == 0 {
                        info.live.remove(&node);
                    }
                }
                self.recharge(&owner);
                self.forget_if_gone(&owner);
            }
            None => {
                self.detach_loose(id);
                self.pods.remove(id);
            }
        }
        Effect::Looser
    }

    /// Whether a pod belongs to a workload that stops, or has more pods than it goes on with.
    #[must_use]
    pub fn is_ending(&self, id: &PodId) -> bool {
        let Some(pod) = self.pods.get(id) else { return true };
        let owner = match &pod.owner {
            Some(owner) if self.workloads.contains_key(owner) => owner.clone(),
            _ => WorkloadId::of_unadmitted(id),
        };
        self.workloads.get(&owner).is_some_and(|info| info.usage.terminating_pods > 0)
    }

    /// Counts a pod of no known workload: to the team of its namespace where that is charged, else to its node.
    pub(super) fn attach_loose(&mut self, id: &PodId) {
        let Some(pod) = self.pods.get(id) else { return };
        if let Some(owner) = &pod.owner {
            self.orphans.entry(owner.clone()).or_default().insert(id.clone());
        }
        let Some(node) = pod.node.filter(|node| !self.nodes.get(*node).lost) else { return };
        if pod.unadmitted.is_some() {
            self.loose.insert(id.clone());
        }
        if !self.charge_unadmitted(id)
            && let Some(pod) = self.pods.get(id)
        {
            let hold = Hold { need: pod.need.clone(), profile: pod.profile.clone(), pods: 1, terminating: 0 };
            self.nodes.hold(node, &Holder::Pod(id.clone()), hold);
        }
    }

    /// Takes back what [`Self::attach_loose`] has counted.
    pub(super) fn detach_loose(&mut self, id: &PodId) {
        self.loose.remove(id);
        let Some(pod) = self.pods.get(id) else { return };
        if let Some(owner) = &pod.owner
            && let Some(orphans) = self.orphans.get_mut(owner)
        {
            orphans.remove(id);
            if orphans.is_empty() {
                self.orphans.remove(owner);
            }
        }
        if self.uncharge_unadmitted(id) {
            return;
        }
        if let Some(PodInfo { node: Some(node), .. }) = self.pods.get(id) {
            self.nodes.hold(*node, &Holder::Pod(id.clone()), Hold::default());
        }
    }
}
