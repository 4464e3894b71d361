//! Requests of resources that no node and no quota names, and what happens once one does.

use std::sync::Arc;

use crate::state::cluster::state::ClusterState;
use crate::types::amount::ResourceList;
use crate::types::vector::{UNOFFERED, Vector};
use crate::types::{Pod, PodId, Workload};

impl ClusterState {
    /// The need of a pod. A pod that runs needs no node, so a resource that no node offers counts nothing; its requests
    /// are returned if the pod is to be counted again once one offers it.
    pub(super) fn need_of_pod(&mut self, requests: ResourceList) -> (Vector, Option<ResourceList>) {
        let mut need = self.need_of(&requests);
        let unoffered = need.get(UNOFFERED) != 0;
        if unoffered {
            need.set(UNOFFERED, 0);
        }
        (need, unoffered.then_some(requests))
    }

    /// Counts the requests again that name a resource without a number: a node or a quota has named new ones.
    pub(super) fn count_again(&mut self) {
        let waits = |needs: &Vector| needs.get(UNOFFERED) != 0;
        let infos = self.workloads.values().filter(|info| {
            !info.removed && (waits(&info.need) || info.sizes.iter().any(|size| waits(&size.need)))
        });
        let workloads: Vec<Arc<Workload>> = infos.map(|info| Arc::clone(&info.workload)).collect();
        for workload in workloads {
            self.set_workload(workload);
        }
        let pods: Vec<PodId> = self.unoffered.keys().cloned().collect();
        for id in pods {
            let Some(known) = self.pods.get(&id) else { continue };
            let node = known.node.map(|node| self.nodes.name(node).clone());
            let requests = self.unoffered.get(&id).cloned().unwrap_or_default();
            let (workload, unadmitted) = (known.owner.clone(), known.unadmitted.clone());
            let profile = known.profile.clone();
            let pod = Pod { id: id.clone(), workload, node, requests, profile, unadmitted };
            self.remove_pod(&id);
            self.set_pod(pod);
        }
    }
}
