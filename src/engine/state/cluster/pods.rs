//! Pods: counted to their workload, or to their node alone while their owner is not managed.

use crate::capacity::devices::Holder;
use crate::state::cluster::state::{ClusterState, Effect, PodInfo};
use crate::types::{Pod, PodId, WorkloadId};

impl ClusterState {
    pub(super) fn adopt_orphans(&mut self, id: &WorkloadId) {
        for pod in self.orphans.remove(id).unwrap_or_default() {
            let Some(pod_info) = self.pods.get(&pod) else { continue };
            if let Some(node) = pod_info.node {
                self.nodes.hold(node, &Holder::Pod(pod.clone()), &pod_info.need, 0, 0);
            }
            let node = pod_info.node;
            if let Some(info) = self.workloads.get_mut(id) {
                *info.live.entry(node).or_default() += 1;
            }
        }
    }

    pub(super) fn set_pod(&mut self, pod: Pod) -> Effect {
        let node = pod.node.as_ref().map(|node| self.nodes.intern(node));
        if let Some(known) = self.pods.get(&pod.id)
            && known.node == node
            && known.owner == pod.workload
        {
            return Effect::Tighter;
        }
        let effect = self.remove_pod(&pod.id);
        let need = self.need_of_pod(&pod);
        match pod.workload.as_ref().filter(|id| self.workloads.contains_key(id)) {
            Some(id) => {
                if let Some(info) = self.workloads.get_mut(id) {
                    *info.live.entry(node).or_default() += 1;
                }
                self.recharge(&id.clone());
            }
            None => {
                if let Some(owner) = &pod.workload {
                    self.orphans.entry(owner.clone()).or_default().insert(pod.id.clone());
                }
                if let Some(node) = node {
                    self.nodes.hold(node, &Holder::Pod(pod.id.clone()), &need, 1, 0);
                }
            }
        }
        self.pods.insert(pod.id, PodInfo { node, owner: pod.workload, need });
        effect
    }

    pub(super) fn remove_pod(&mut self, id: &PodId) -> Effect {
        let Some(pod) = self.pods.remove(id) else { return Effect::Tighter };
        self.unoffered.remove(id);
        match pod.owner.as_ref().filter(|owner| self.workloads.contains_key(owner)) {
            Some(owner) => {
                if let Some(info) = self.workloads.get_mut(owner)
                    && let Some(count) = info.live.get_mut(&pod.node)
                {
                    *count -= 1;
                    if *count == 0 {
                        info.live.remove(&pod.node);
                    }
                }
                self.recharge(owner);
                self.forget_if_gone(owner);
            }
            None => {
                if let Some(owner) = &pod.owner
                    && let Some(orphans) = self.orphans.get_mut(owner)
                {
                    orphans.remove(id);
                    if orphans.is_empty() {
                        self.orphans.remove(owner);
                    }
                }
                if let Some(node) = pod.node {
                    self.nodes.hold(node, &Holder::Pod(id.clone()), &pod.need, 0, 0);
                }
            }
        }
        Effect::Looser
    }
}
