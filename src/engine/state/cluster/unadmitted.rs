//! Pods that hold capacity of a team without an admission (law 15).
//!
//! Each of them is charged to the team of its namespace as a running workload of one pod, so that quotas, fair shares
//! and the search for victims count it like every other. It has no queue and the lowest priority.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::state::cluster::state::ClusterState;
use crate::state::sizes::SizedPod;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{PoolId, TeamId};
use crate::types::vector::{PODS, Vector};
use crate::types::{
    Admission, Observed, PodId, PodShape, Replacement, Standing, Time, Unadmitted, Workload, WorkloadId,
    WorkloadKind,
};

/// How long an owner is remembered that has lost a pod to an eviction.
const REMEMBERED: Duration = Duration::from_secs(3600);

impl ClusterState {
    /// Charges a bound pod of no known workload to the team of its namespace; false if the team is not charged for it.
    pub(super) fn charge_unadmitted(&mut self, id: &PodId) -> bool {
        let Some(pod) = self.pods.get(id) else { return false };
        let (Some(node), Some(facts)) = (pod.node, pod.unadmitted.as_deref().cloned()) else { return false };
        let (need, profile) = (pod.need.clone(), pod.profile.clone().unwrap_or_default());
        let team = self.quotas.intern_team(&facts.team);
        if !self.is_listed(team, &need) {
            return false;
        }
        let standing = self.standing(&facts);
        let admission = Admission {
            pool: self.quotas.pool_name(self.nodes.get(node).pool).clone(),
            nodes: BTreeMap::from([(self.nodes.name(node).clone(), 1)]),
            pods: 1,
            borrowed: false,
            share: None,
            spared: false,
            unfunded: false,
            at: facts.created,
        };
        let mut requests = self.resources.list(&need);
        requests.remove(PODS);
        let shape = PodShape { requests, ..PodShape::default() };
        let workload = Workload {
            id: WorkloadId::of_unadmitted(id),
            kind: WorkloadKind::Pod,
            namespace: facts.namespace,
            resumable: false,
            expendable: standing != Standing::Fixed,
            profile,
            state: Observed::Admitted(admission.clone()),
            ..Workload::job(&facts.team, &facts.name, 1, shape.clone(), facts.created)
        };
        let stray = workload.id.clone();
        let pod = SizedPod { shape: self.intern_shape(&shape), need };
        let info = WorkloadInfo {
            phase: if facts.ending { Phase::Stopping(admission) } else { Phase::Running(admission) },
            live: BTreeMap::from([(Some(node), 1)]),
            unadmitted: Some(standing),
            ..WorkloadInfo::new(workload.into(), team, pod, Vec::new())
        };
        self.workloads.insert(stray.clone(), info);
        self.charge(&stray);
        if let Some(pod) = self.pods.get_mut(id) {
            pod.charged = true;
        }
        true
    }

    /// Takes the charge of a pod back; false if there was none.
    pub(super) fn uncharge_unadmitted(&mut self, id: &PodId) -> bool {
        let Some(pod) = self.pods.get_mut(id).filter(|pod| pod.charged) else { return false };
        pod.charged = false;
        let stray = WorkloadId::of_unadmitted(id);
        self.uncharge(&stray);
        if let Some(info) = self.workloads.get_mut(&stray) {
            info.live.clear();
            info.phase = Phase::Finished;
        }
        self.charge(&stray);
        self.uncharge(&stray);
        self.workloads.remove(&stray);
        true
    }

    /// Charges the pods of no known workload again: the resources that a team's quotas list may have changed.
    pub(super) fn recharge_loose(&mut self) {
        let ids: Vec<PodId> = self.loose.iter().cloned().collect();
        for id in ids {
            let Some(pod) = self.pods.get(&id) else { continue };
            let Some(facts) = pod.unadmitted.as_deref() else { continue };
            let (charged, need, team) = (pod.charged, pod.need.clone(), facts.team.clone());
            let team = self.quotas.intern_team(&team);
            if self.is_listed(team, &need) != charged {
                self.detach_loose(&id);
                self.attach_loose(&id);
            }
        }
    }

    /// Whether a pod asks for a resource that a quota on the path of its team lists. Where no quota lists any, devices
    /// count: a team without a quota borrows all that it uses.
    fn is_listed(&self, team: TeamId, need: &Vector) -> bool {
        let path = &self.quotas.team(team).path;
        let pools = || self.quotas.pools().map(|(_, pool)| pool);
        let listed: BTreeSet<usize> = pools()
            .flat_map(|pool: PoolId| path.iter().map(move |at| (pool, *at)))
            .flat_map(|(pool, at)| self.quotas.quota_usage(pool, at).listed())
            .collect();
        need.nonzero().any(|(index, _)| {
            if listed.is_empty() { self.resources.is_device(index) } else { listed.contains(&index) }
        })
    }

    /// How far a pod may be evicted. An owner that has come back once after an eviction, unheld, would do so again.
    fn standing(&self, facts: &Unadmitted) -> Standing {
        let evicted = facts.owner.as_ref().and_then(|owner| self.evicted_owners.get(&owner.uid));
        if facts.replacement == Replacement::AtOnce || evicted.is_some_and(|at| facts.created >= *at) {
            Standing::Fixed
        } else if facts.adopted {
            Standing::Adopted
        } else {
            Standing::First
        }
    }

    /// Remembers the owner of a pod that is evicted without ever having been admitted.
    pub fn note_unadmitted_eviction(&mut self, id: &WorkloadId, now: Time) {
        let Some(pod) = id.unadmitted_pod() else { return };
        let facts = self.pods.get(&pod).and_then(|pod| pod.unadmitted.as_deref());
        if let Some(owner) = facts.and_then(|facts| facts.owner.as_ref()) {
            let uid = owner.uid.clone();
            self.evicted_owners.retain(|_, at| now.since(*at) < REMEMBERED);
            self.evicted_owners.insert(uid, now);
        }
    }

    /// The running pods that are evicted before any admitted workload, by identity.
    pub fn evicted_first(&self) -> impl Iterator<Item = &WorkloadInfo> {
        self.first.iter().filter_map(|id| self.workloads.get(id))
    }

    /// The pods that are charged to a team without an admission, with the facts about each.
    pub fn unadmitted(&self) -> impl Iterator<Item = (&WorkloadInfo, &Unadmitted)> {
        self.loose.iter().filter_map(|id| {
            let facts = self.pods.get(id)?.unadmitted.as_deref()?;
            Some((self.workloads.get(&WorkloadId::of_unadmitted(id))?, facts))
        })
    }
}
