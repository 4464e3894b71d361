//! The books: which workloads and pods there are, and what each of them holds where.
//!
//! A workload is charged for what it was admitted with until its last pod is gone, not until it is
//! told to stop. Every change of a workload or of one of its pods takes its old charge off the
//! nodes and accounts and puts the new one on, so the totals are exact at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::capacity::devices::Holder;
use crate::state::avoided_nodes::AvoidedNodes;
use crate::state::holders::Holders;
use crate::state::nodes::NodeTable;
use crate::state::quotas::QuotaTree;
use crate::state::sizes::SizedPod;
use crate::state::totals::{Contribution, UsageTotals};
use crate::state::users::Part;
use crate::state::workload::{
    Phase, Usage, WorkloadInfo, charge_accounts, charge_nodes, next_phase, queue_name, settle_time, usage_of,
};
use crate::types::amount::ResourceList;
use crate::types::ids::{NodeId, PoolId, Priority, TeamId, WorkloadIndex};
use crate::types::vector::{PODS, Resources, Vector};
use crate::types::{
    DEFAULT_POOL, Event, Name, Pod, PodId, PodShape, Pool, Queue, Reason, Size, Time, Workload, WorkloadId,
};

mod pools;
mod register;

use crate::state::cluster::register::Register;

#[derive(Clone, Debug)]
struct PodInfo {
    node: Option<NodeId>,
    owner: Option<WorkloadId>,
    need: Vector,
}

/// Whether a change can have made room, or only taken some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nobody who had to wait can have become able to start.
    Tighter,
    /// Somebody may be able to start now.
    Looser,
    /// What a share is worth, who belongs where, or the rules have changed: all bets are off.
    RequeueAll,
}

/// Everything that is known.
#[derive(Clone, Debug, Default)]
pub struct ClusterState {
    /// The numbers of resource names.
    pub resources: Resources,
    /// The nodes.
    pub nodes: NodeTable,
    /// The teams and their accounts.
    pub quotas: QuotaTree,
    pools: BTreeMap<Name, Pool>,
    workloads: Register,
    pods: BTreeMap<PodId, PodInfo>,
    /// Pods whose owner is no managed workload (yet), by that owner.
    orphans: BTreeMap<WorkloadId, BTreeSet<PodId>>,
    /// Elastic workloads that run with fewer pods than they want.
    short: BTreeSet<WorkloadId>,
    /// Those who run by an admission to a node that is no more.
    lost_pods: BTreeSet<WorkloadId>,
    /// Those who were told to stop and will wait again.
    going: BTreeSet<WorkloadId>,
    /// When which stop is taken for done; entries may be out of date and are checked when due.
    settling: BTreeSet<(Time, WorkloadId)>,
    holders: Holders,
    /// What those who run hold and might yield.
    pub totals: UsageTotals,
    /// The shapes of all workloads, each once.
    shapes: BTreeSet<Arc<PodShape>>,
}

impl ClusterState {
    /// The workload of that identity.
    #[must_use]
    pub fn get(&self, id: &WorkloadId) -> Option<&WorkloadInfo> {
        self.workloads.get(id)
    }

    /// The workload in a place.
    #[must_use]
    pub fn at(&self, place: WorkloadIndex) -> Option<&WorkloadInfo> {
        self.workloads.at(place)
    }

    /// Every workload, by identity.
    pub fn iter(&self) -> impl Iterator<Item = &WorkloadInfo> {
        self.workloads.values()
    }

    /// Elastic workloads that run, or are about to, with fewer pods than they want, by identity.
    pub fn short(&self) -> impl Iterator<Item = &WorkloadId> {
        self.short.iter()
    }

    /// Those who run by an admission to a node that is no more, by identity.
    pub fn lost_pods(&self) -> impl Iterator<Item = &WorkloadId> {
        self.lost_pods.iter()
    }

    /// Those who were told to stop and will wait again, by identity.
    pub fn going(&self) -> impl Iterator<Item = &WorkloadInfo> {
        self.going.iter().filter_map(|id| self.workloads.get(id))
    }

    /// The teams that hold something in a pool for workloads of their own.
    pub fn teams_holding(&self, pool: PoolId) -> impl Iterator<Item = TeamId> {
        self.holders.teams_in(pool)
    }

    /// Those for whom a team's own account in a pool pays, whatever their phase, the newest first.
    pub fn holders(&self, pool: PoolId, team: TeamId) -> impl DoubleEndedIterator<Item = &WorkloadInfo> {
        self.holders.of_team(pool, team).filter_map(|place| self.workloads.at(place))
    }

    /// Those of a team that run, or are about to, and may be evicted or made smaller, the newest first.
    pub fn reclaimable(&self, pool: PoolId, team: TeamId) -> impl DoubleEndedIterator<Item = &WorkloadInfo> {
        self.totals.reclaimable(pool, team).filter_map(|(_, place)| self.workloads.at(place))
    }

    /// Those that hold room on a node, by identity, with how many pods of theirs.
    pub fn occupants(&self, node: NodeId) -> impl Iterator<Item = (&WorkloadInfo, u32)> {
        let entries = self.holders.on_node(node).filter_map(|(_, place)| self.workloads.at(place));
        entries.filter_map(move |info| info.usage.nodes.get(&node).map(|pods| (info, *pods)))
    }

    /// Every pod that holds room, with who owns it, where it is and what it takes.
    pub fn pods(&self) -> impl Iterator<Item = (&PodId, Option<&WorkloadId>, Option<&Name>, &Vector)> {
        self.pods.iter().map(|(id, pod)| {
            let node = pod.node.map(|node| self.nodes.name(node));
            (id, pod.owner.as_ref(), node, &pod.need)
        })
    }

    /// The labels that name the topology domains of a pool, outermost first.
    #[must_use]
    pub fn topology(&self, pool: PoolId) -> &[Name] {
        self.pools.get(self.quotas.pool_name(pool)).map_or(&[], |pool| &pool.topology)
    }

    /// The queue a workload is in; the error says that its team or queue does not exist.
    ///
    /// # Errors
    /// [`crate::types::Reason::UnknownTeam`] or [`crate::types::Reason::UnknownQueue`].
    pub fn queue_of(&self, info: &WorkloadInfo) -> Result<&Queue, Reason> {
        let team = self.quotas.team(info.team);
        if team.team.is_none() {
            return Err(Reason::UnknownTeam);
        }
        team.queue(info.workload.queue.as_ref()).ok_or(Reason::UnknownQueue)
    }

    /// The priority that orders workloads inside a team (law 9): the queue's, then the PriorityClass's. A workload
    /// that runs because it had waited too long is preempted by none of those it passed: they would take
    /// its place at once.
    #[must_use]
    pub fn priority_of(&self, info: &WorkloadInfo) -> Priority {
        if info.raised && info.phase.admission().is_some() {
            return Priority::HIGHEST;
        }
        let queue = self.queue_of(info).map_or(0, |queue| queue.priority);
        Priority { queue, class: info.workload.priority }
    }

    /// Whether a workload may be evicted at all. A workload whose queue was removed is preemptible.
    #[must_use]
    pub fn preemptible(&self, info: &WorkloadInfo) -> bool {
        let evictable = info.workload.resumable || info.workload.expendable;
        evictable && self.queue_of(info).map_or(true, |queue| queue.preemptible)
    }

    /// Takes note of an event. [`Event::WriteFailed`], [`Event::PodsAstray`] and [`Event::PodsReady`] are not for
    /// the books.
    pub fn apply(&mut self, event: Event) -> Effect {
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
            Event::NodeApplied(node) => self.set_node(&node.name.clone(), Some(node)),
            Event::NodeRemoved(name) => self.set_node(&name, None),
            Event::WorkloadApplied(workload) => self.set_workload(workload),
            Event::WorkloadRemoved(id) => self.remove_workload(&id),
            Event::PodApplied(pod) => self.set_pod(pod),
            Event::PodRemoved(id) => self.remove_pod(&id),
            Event::WriteFailed { .. } | Event::PodsMisplaced(_) | Event::PodsReady(_) => Effect::Tighter,
        }
    }

    fn set_team(&mut self, name: &Name, team: Option<crate::types::Team>) -> Effect {
        let standing = |team: Option<&crate::types::Team>| {
            team.map(|team| (team.parent.clone(), team.queues.clone(), team.fair_users))
        };
        let index = self.quotas.intern_team(name);
        let before = standing(self.quotas.team(index).team.as_ref());
        let stays = before.is_some() && before == standing(team.as_ref());
        self.quotas.set_team(name, team, &mut self.resources);
        if stays {
            return Effect::Looser;
        }
        let ids: Vec<WorkloadId> = self.workloads.keys().cloned().collect();
        self.quotas.clear_use();
        for id in &ids {
            if let Some(info) = self.workloads.get_mut(id) {
                let queue = queue_name(&self.quotas, info);
                info.charged_queue = queue;
                charge_accounts(&mut self.quotas, info, 1);
            }
        }
        // A queue's rules decide who might yield what.
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
        Effect::RequeueAll
    }

    /// What a user of a team holds of the first of these pools; nothing where users do not take turns.
    #[must_use]
    pub fn part_of(&self, team: TeamId, user: Option<&Name>, pools: &[Name]) -> Part {
        let default: Name = DEFAULT_POOL.into();
        let pool = self.quotas.pool(pools.first().unwrap_or(&default));
        let part = |(user, pool): (&Name, PoolId)| {
            self.quotas.users.part(&(team, user.clone()), pool, self.quotas.capacity(pool))
        };
        user.zip(pool).map_or(0, part)
    }

    /// What a pod of such requests takes of a node, its slot included.
    fn need_of(&mut self, requests: &ResourceList) -> Vector {
        let slots = self.resources.intern(&PODS.into());
        let mut need = self.resources.vector(requests);
        need.set(slots, need.get(slots) + 1000);
        self.nodes.learn(&self.resources);
        need
    }

    /// The same shape in the one place where it is kept for all who have it.
    fn intern_shape(&mut self, shape: &PodShape) -> Arc<PodShape> {
        if let Some(known) = self.shapes.get(shape) {
            return Arc::clone(known);
        }
        self.shapes.retain(|known| Arc::strong_count(known) > 1);
        let shape = Arc::new(shape.clone());
        self.shapes.insert(Arc::clone(&shape));
        shape
    }

    /// What a pod of a workload is at each of its sizes, where it may be on the nodes of `shape`.
    fn sizings(&mut self, workload: &Workload, shape: &PodShape) -> Vec<SizedPod> {
        let sizing = |size: &Size| {
            let shape = PodShape { requests: size.requests.clone(), ..shape.clone() };
            SizedPod { shape: self.intern_shape(&shape), need: self.need_of(&size.requests) }
        };
        workload.sizes.iter().map(sizing).collect()
    }

    fn set_workload(&mut self, workload: Workload) -> Effect {
        let id = workload.id.clone();
        let team = self.quotas.intern_team(&workload.team);
        let need = self.need_of(&workload.shape.requests);
        let avoided_nodes = self.workloads.get(&id).and_then(|info| info.avoided_nodes.as_deref());
        let shape = match avoided_nodes.and_then(|avoided_nodes| avoided_nodes.narrowed(&workload.shape)) {
            Some(narrowed) => self.intern_shape(&narrowed),
            None => self.intern_shape(&workload.shape),
        };
        let sizes = self.sizings(&workload, &shape);
        if !self.workloads.contains_key(&id) {
            let pools =
                if workload.pools.is_empty() { vec![DEFAULT_POOL.into()] } else { workload.pools.clone() };
            self.nodes.note(pools, &workload.shape, &need, workload.pods);
            self.workloads.insert(
                id.clone(),
                WorkloadInfo {
                    workload: workload.clone(),
                    team,
                    place: WorkloadIndex::MIN,
                    need: need.clone(),
                    phase: Phase::Pending,
                    usage: Usage::default(),
                    removed: false,
                    live: BTreeMap::new(),
                    charged_queue: "".into(),
                    raised: false,
                    avoided_nodes: None,
                    shape: Arc::clone(&shape),
                    sizes: sizes.clone(),
                },
            );
            self.adopt_orphans(&id);
        }
        self.uncharge(&id);
        let Some(info) = self.workloads.get_mut(&id) else { return Effect::Tighter };
        let before = (info.phase.clone(), info.usage.clone());
        info.phase = next_phase(&info.phase, &workload.state);
        info.workload = workload;
        info.team = team;
        // What is left of one that has ended holds what it was granted.
        if info.phase != Phase::Finished || sizes.is_empty() {
            (info.need, info.shape) = (need, shape);
        }
        info.sizes = sizes;
        info.settle_size();
        info.removed = false;
        self.charge(&id);
        self.workloads.get(&id).map_or(Effect::Tighter, |info| self.effect(info, before))
    }

    /// Room was made if less is held than before, or if a decision not yet carried out is now done.
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

    fn forget_if_gone(&mut self, id: &WorkloadId) {
        if self.workloads.get(id).is_some_and(|info| info.removed && info.pods() == 0) {
            self.uncharge(id);
            self.workloads.remove(id);
            self.short.remove(id);
            self.lost_pods.remove(id);
            self.going.remove(id);
        }
    }

    fn adopt_orphans(&mut self, id: &WorkloadId) {
        for pod in self.orphans.remove(id).unwrap_or_default() {
            let Some(stray) = self.pods.get(&pod) else { continue };
            if let Some(node) = stray.node {
                self.nodes.hold(node, &Holder::Pod(pod.clone()), &stray.need, 0, 0);
            }
            let node = stray.node;
            if let Some(info) = self.workloads.get_mut(id) {
                *info.live.entry(node).or_default() += 1;
            }
        }
    }

    fn set_pod(&mut self, pod: Pod) -> Effect {
        let node = pod.node.as_ref().map(|node| self.nodes.intern(node));
        if let Some(known) = self.pods.get(&pod.id)
            && known.node == node
            && known.owner == pod.workload
        {
            return Effect::Tighter;
        }
        let effect = self.remove_pod(&pod.id);
        let need = self.need_of(&pod.requests);
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

    fn remove_pod(&mut self, id: &PodId) -> Effect {
        let Some(pod) = self.pods.remove(id) else { return Effect::Tighter };
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

    /// Moves a workload to another phase, by the engine's own decision or the passing of time.
    pub fn set_phase(&mut self, id: &WorkloadId, phase: Phase) {
        self.uncharge(id);
        if let Some(info) = self.workloads.get_mut(id) {
            info.phase = phase;
            info.settle_size();
        }
        self.charge(id);
    }

    /// Notes whether a workload goes before the others of its team because it waits for too long.
    pub fn raise(&mut self, id: &WorkloadId, raised: bool) {
        let before = self.contribution(id);
        let Some(info) = self.workloads.get_mut(id) else { return };
        if std::mem::replace(&mut info.raised, raised) != raised {
            before.iter().for_each(|contribution| self.totals.remove(contribution));
            self.contribution(id).iter().for_each(|contribution| self.totals.add(contribution));
        }
    }

    /// Notes where pods of a workload could not be started; while there are such nodes, it goes to others.
    pub fn set_strayed(&mut self, id: &WorkloadId, avoided_nodes: AvoidedNodes) {
        let Some(info) = self.workloads.get(id) else { return };
        let narrowed = avoided_nodes.narrowed(&info.workload.shape);
        let shape = narrowed.unwrap_or_else(|| info.workload.shape.clone());
        let workload = info.workload.clone();
        let shape = self.intern_shape(&shape);
        let sizes = self.sizings(&workload, &shape);
        if let Some(info) = self.workloads.get_mut(id) {
            info.shape = shape;
            info.sizes = sizes;
            info.settle_size();
            info.avoided_nodes = Some(Box::new(avoided_nodes));
        }
    }

    fn contribution(&self, id: &WorkloadId) -> Option<Contribution> {
        {
            let info = self.workloads.get(id)?;
            Contribution::of(info, self.priority_of(info), self.preemptible(info))
        }
    }

    /// Marks those as stopped whose stop nobody confirmed within [`SETTLE`]; true if there were any.
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

    /// When [`Books::settle`] next has something to do.
    #[must_use]
    pub fn next_settle(&self) -> Option<Time> {
        self.settling.first().map(|(due, _)| *due)
    }

    fn recharge(&mut self, id: &WorkloadId) {
        self.uncharge(id);
        self.charge(id);
    }

    fn uncharge(&mut self, id: &WorkloadId) {
        if let Some(contribution) = self.contribution(id) {
            self.totals.remove(&contribution);
        }
        let Some(info) = self.workloads.get_mut(id) else { return };
        self.holders.remove(info, &mut self.nodes);
        charge_accounts(&mut self.quotas, info, -1);
        // What it holds on its nodes is replaced when it is charged anew, so that shares stay in place.
        let nodes = std::mem::take(&mut info.usage.nodes);
        info.usage = Usage { pool: info.usage.pool, nodes, ..Usage::default() };
    }

    fn charge(&mut self, id: &WorkloadId) {
        let Some(info) = self.workloads.get_mut(id) else { return };
        let pool = info.phase.admission().map(|admission| admission.pool.clone());
        let pool = match pool {
            Some(pool) => self.quotas.intern_pool(&pool),
            None if info.live.is_empty() => info.usage.pool,
            None => info.live.keys().flatten().next().map_or(info.usage.pool, |n| self.nodes.get(*n).pool),
        };
        if self.pools.values().any(|pool| !pool.weights.is_empty()) {
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
        let Some(info) = self.workloads.get_mut(id) else { return };
        let usage = usage_of(info, pool, &self.nodes);
        let before = std::mem::replace(&mut info.usage, usage);
        info.charged_queue = queue_name(&self.quotas, info);
        charge_accounts(&mut self.quotas, info, 1);
        charge_nodes(&mut self.nodes, info, &before.nodes);
        self.holders.add(info, &mut self.nodes);
        if let Some(due) = settle_time(info) {
            self.settling.insert((due, id.clone()));
        }
        note(&mut self.short, id, info.may_grow());
        note(&mut self.lost_pods, id, info.has_lost_pods(&self.nodes));
        let going = matches!(info.phase, Phase::Stopping(_) | Phase::Leaving { .. }) && !info.removed;
        note(&mut self.going, id, going);
        if let Some(contribution) = self.contribution(id) {
            self.totals.add(&contribution);
        }
    }
}

/// Keeps a workload in a set as long as it belongs there.
fn note(set: &mut BTreeSet<WorkloadId>, id: &WorkloadId, belongs: bool) {
    if !belongs {
        set.remove(id);
    } else if !set.contains(id) {
        set.insert(id.clone());
    }
}

#[cfg(test)]
mod tests;
