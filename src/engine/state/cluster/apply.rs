//! Events of teams, pools, nodes, workloads and pods, applied to the workload cache.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::state::charges::{charge_quotas, queue_name};
use crate::state::cluster::state::{ClusterState, Effect};
use crate::state::sizes::SizedPod;
use crate::state::totals::Contribution;
use crate::state::workload::{Phase, Usage, WorkloadInfo, next_phase};
use crate::types::amount::ResourceList;
use crate::types::ids::{PoolId, TeamId};
use crate::types::vector::{PODS, Vector};
use crate::types::{
    DEFAULT_POOL, Event, Name, Observed, PastUsage, PodShape, Size, Team, Time, Unready, Workload, WorkloadId,
};

/// The most that a waiting workload may ask for of one resource in all, in thousandths: a pebibyte of memory. So sums of it
/// and of what a team uses cannot overflow (law 17).
const MOST: i128 = 1 << 60;

/// The most pools of which a status tells past usage.
const MOST_POOLS: usize = 256;

/// Whether so many pods of this need ask for more than can be counted.
fn is_absurd(need: &Vector, pods: u32) -> bool {
    need.entries().any(|(_, milli)| i128::from(milli) * i128::from(pods) > MOST)
}

/// Whether a team keeps its parent, its queues and the way in which it orders its users.
fn keeps_ownership(before: Option<&Team>, after: Option<&Team>) -> bool {
    before.zip(after).is_some_and(|(before, after)| {
        (&before.parent, &before.queues, before.fair_users)
            == (&after.parent, &after.queues, after.fair_users)
    })
}

impl ClusterState {
    /// Records an event. [`Event::WriteFailed`], [`Event::PodsMisplaced`] and [`Event::PodsReady`] do not
    /// concern the cluster state.
    pub fn apply(&mut self, event: Event) -> Effect {
        let known = self.resources.count();
        let effect = self.applied(event);
        if self.resources.count() > known {
            self.count_again();
        }
        effect
    }

    fn applied(&mut self, event: Event) -> Effect {
        match event {
            Event::TeamApplied(team) => self.set_team(&team.name.clone(), Some(team)),
            Event::TeamRemoved(name) => self.set_team(&name, None),
            Event::PoolApplied(pool) => {
                self.quotas.intern_pool(&pool.name);
                let before = self.pools.insert(pool.name.clone(), pool.clone());
                self.assign_pools(before.map(|pool| pool.weights).unwrap_or_default() != pool.weights)
            }
            Event::PoolRemoved(name) => {
                let before = self.pools.remove(&name);
                self.assign_pools(before.is_some_and(|pool| !pool.weights.is_empty()))
            }
            Event::NodeApplied(node) => self.node_applied(node),
            Event::NodeRemoved(name) => self.node_removed(&name),
            Event::WorkloadApplied(workload) => self.set_workload(workload),
            Event::WorkloadRemoved(id) => self.remove_workload(&id),
            Event::PodApplied(pod) => self.set_pod(pod),
            Event::PodRemoved(id) => self.remove_pod(&id),
            Event::PodNotEnded(_)
            | Event::WriteFailed { .. }
            | Event::AdmissionRefused(_)
            | Event::ObjectChanged(_)
            | Event::PodsMisplaced(_)
            | Event::PodsReady(_)
            | Event::PastUsage(_)
            | Event::BudgetUsed(_)
            | Event::RunLengths(_) => Effect::Tighter,
        }
    }

    /// Takes note of the past usage in the status of a team; with `adopt`, the engine's own value goes on from there.
    pub fn note_past_usage(&mut self, past: &PastUsage, now: Time, half_life: Duration, adopt: bool) {
        let known = self.resources.count();
        let mut pools = BTreeMap::new();
        for (pool, usage) in past.pools.iter().take(MOST_POOLS) {
            pools.insert(self.quotas.intern_pool(pool), self.resources.vector(usage));
        }
        self.quotas.note_written(&past.team, &pools, (past.at, now), half_life, adopt);
        if self.resources.count() > known {
            self.count_again();
        }
    }

    /// Whether a change of a team may move paths and queues, so that workloads are charged to other teams or queues.
    #[must_use]
    pub fn moves_workloads(&self, event: &Event) -> bool {
        let known = |name: &Name| self.quotas.find_team(name).and_then(|team| team.team.as_ref());
        match event {
            Event::TeamApplied(team) => !keeps_ownership(known(&team.name), Some(team)),
            Event::TeamRemoved(_) => true,
            _ => false,
        }
    }

    fn set_team(&mut self, name: &Name, team: Option<Team>) -> Effect {
        let guarantees = |team: Option<&Team>| -> Vec<(Name, ResourceList)> {
            let quotas = team.into_iter().flat_map(|team| &team.quotas);
            quotas.map(|(pool, quota)| (pool.clone(), quota.guaranteed.clone())).collect()
        };
        let index = self.quotas.intern_team(name);
        let known = self.quotas.team(index).team.as_ref();
        let unchanged = keeps_ownership(known, team.as_ref());
        let budget = |team: Option<&Team>| team.and_then(|team| team.budget);
        let same_budget = budget(known) == budget(team.as_ref());
        let same_guarantees = guarantees(known) == guarantees(team.as_ref());
        self.quotas.set_team(name, team, &mut self.resources);
        self.recharge_loose();
        if unchanged {
            if !same_guarantees {
                self.recharge_below(index);
            }
            if !same_budget {
                self.count_budgets_again();
            }
            return Effect::Looser;
        }
        let ids: Vec<WorkloadId> = self.workloads.keys().cloned().collect();
        self.quotas.clear_usage();
        for id in &ids {
            let fixed = self.workloads.get(id).is_some_and(|info| !self.preemptible(info));
            let levels = self.oversize_levels(id);
            if let Some(info) = self.workloads.get_mut(id) {
                let queue = queue_name(&self.quotas, info);
                (info.charged_queue, info.charged_fixed) = (queue, fixed);
                info.oversize = levels;
                charge_quotas(&mut self.quotas, info, 1);
            }
        }
        // The rules of a queue decide which workloads are preemptible.
        let mut totals = std::mem::take(&mut self.totals);
        totals.clear();
        for contribution in self
            .workloads
            .values()
            .filter_map(|info| Contribution::of(info, self.priority_of(info), self.preemptible(info)))
        {
            totals.add(&contribution);
        }
        self.totals = totals;
        self.count_budgets_again();
        Effect::RequeueAll
    }

    /// Charges those workloads of a team and of the teams below it again that its guarantees count otherwise now: they decide
    /// which workloads are larger.
    fn recharge_below(&mut self, at: TeamId) {
        let (mut ids, mut usages): (Vec<WorkloadId>, Vec<(PoolId, TeamId)>) = Default::default();
        for (_, pool) in self.quotas.pools() {
            for team in self.quotas.at_or_below(at) {
                let mut holders = self.holders(pool, team).peekable();
                if holders.peek().is_some() {
                    usages.push((pool, team));
                }
                let otherwise = holders.filter(|info| self.oversize_of(info) != info.oversize);
                ids.extend(otherwise.map(|info| info.workload.id.clone()));
            }
        }
        for id in ids {
            self.recharge(&id);
        }
        for (pool, team) in usages {
            self.quotas.mark_dirty(pool, team);
        }
    }

    pub(super) fn set_workload(&mut self, mut workload: Arc<Workload>) -> Effect {
        let id = workload.id.clone();
        let team = self.quotas.intern_team(&workload.team);
        let need = self.need_of(&workload.shape.requests);
        let avoided_nodes = self.workloads.get(&id).and_then(|info| info.avoided_nodes.as_deref());
        let shape = match avoided_nodes.and_then(|avoided_nodes| avoided_nodes.narrowed(&workload.shape)) {
            Some(narrowed) => self.intern_shape(&narrowed),
            None => self.intern_shape(&workload.shape),
        };
        let sizes = self.sized_pods(&workload, &shape);
        let needs = || std::iter::once(&need).chain(sizes.iter().map(|size| &size.need));
        if workload.state == Observed::Queued && needs().any(|need| is_absurd(need, workload.pods)) {
            let why = "its pods ask for more in all than can be counted";
            Arc::make_mut(&mut workload).state = Observed::Unready(Unready::Uncounted(why.into()));
        }
        if !self.workloads.contains_key(&id) {
            let pools =
                if workload.pools.is_empty() { vec![DEFAULT_POOL.into()] } else { workload.pools.clone() };
            self.nodes.record_pods(pools, &workload.shape, &need, workload.pods);
            let pod = SizedPod { shape: Arc::clone(&shape), need: need.clone() };
            let info = WorkloadInfo::new(workload.clone(), team, pod, sizes.clone());
            self.workloads.insert(id.clone(), info);
            self.adopt_orphans(&id);
        }
        self.uncharge(&id);
        let Some(info) = self.workloads.get_mut(&id) else { return Effect::Tighter };
        let before = (info.phase.clone(), info.usage.clone());
        info.phase = next_phase(&info.phase, &workload);
        info.workload = workload;
        info.team = team;
        // The last pods of a finished workload hold what they were granted until they have gone (law 1), whatever its
        // object says by then.
        if info.phase != Phase::Finished {
            (info.need, info.shape) = (need, shape);
        }
        info.sizes = sizes;
        info.settle_size();
        info.removed = false;
        self.charge(&id);
        self.workloads.get(&id).map_or(Effect::Tighter, |info| self.effect(info, before))
    }

    /// Capacity was freed if less is held than before, or if the object now confirms a decision.
    fn effect(&self, info: &WorkloadInfo, before: (Phase, Usage)) -> Effect {
        let (old_phase, old) = before;
        let less = info.usage.pods < old.pods
            || old.nodes.iter().any(|(node, pods)| info.usage.nodes.get(node).copied().unwrap_or(0) < *pods);
        let changed = old_phase != info.phase && !matches!(info.phase, Phase::Pending | Phase::Starting(_));
        if less || changed { Effect::Looser } else { Effect::Tighter }
    }

    fn remove_workload(&mut self, id: &WorkloadId) -> Effect {
        self.uncharge(id);
        let Some(info) = self.workloads.get_mut(id) else { return Effect::Tighter };
        info.removed = true;
        info.phase = Phase::Finished;
        self.charge(id);
        self.forget_if_gone(id);
        Effect::Looser
    }

    pub(super) fn forget_if_gone(&mut self, id: &WorkloadId) {
        if self.workloads.get(id).is_some_and(|info| info.removed && info.pods() == 0) {
            self.uncharge(id);
            self.note_charge(id);
            self.workloads.remove(id);
            self.growable.remove(id);
            self.lost_pods.remove(id);
            self.stopping.remove(id);
            self.releasable.remove(id);
        }
    }

    /// The need of a pod with these requests, its pod slot included.
    pub(super) fn need_of(&mut self, requests: &ResourceList) -> Vector {
        let slots = self.resources.intern(&PODS.into());
        let mut need = self.resources.request(requests);
        need.set(slots, need.get(slots) + 1000);
        self.nodes.learn(&self.resources);
        need
    }

    /// The stored copy of a shape, shared by all workloads that have it.
    pub(super) fn intern_shape(&mut self, shape: &PodShape) -> Arc<PodShape> {
        if let Some(known) = self.shapes.get(shape) {
            return Arc::clone(known);
        }
        self.shapes.retain(|known| Arc::strong_count(known) > 1);
        let shape = Arc::new(shape.clone());
        self.shapes.insert(Arc::clone(&shape));
        shape
    }

    /// A pod of a workload at each of its sizes, on the nodes that `shape` admits.
    pub(super) fn sized_pods(&mut self, workload: &Workload, shape: &PodShape) -> Vec<SizedPod> {
        let sized = |size: &Size| {
            let shape = PodShape { requests: size.requests.clone(), ..shape.clone() };
            SizedPod { shape: self.intern_shape(&shape), need: self.need_of(&size.requests) }
        };
        workload.sizes.iter().map(sized).collect()
    }
}
