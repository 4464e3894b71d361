//! The tree of teams in all pools: definitions, and the usage of each team.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::state::quotas::budgets::Budgets;
use crate::state::quotas::hypothetical::Account;
use crate::state::quotas::usage::QuotaUsage;
use crate::state::users::{UserOf, Users};
use crate::types::ids::{PoolId, TeamId};
use crate::types::ratio::Ratio;
use crate::types::vector::{Resources, Vector};
use crate::types::{Name, Queue, Team};

/// One team.
#[derive(Clone, Debug)]
pub struct TeamInfo {
    /// Its name.
    pub name: Name,
    /// Its definition; `None` while only other objects refer to it.
    pub team: Option<Team>,
    /// The team itself, its parent and so on up to the root.
    pub path: Vec<TeamId>,
}

impl TeamInfo {
    /// The queue called `name`; without a name, the first queue. `None` when there is no such queue.
    #[must_use]
    pub fn queue(&self, name: Option<&Name>) -> Option<&Queue> {
        let queues = &self.team.as_ref()?.queues;
        match name {
            None => queues.first(),
            Some(name) => queues.iter().find(|queue| queue.name == *name),
        }
    }
}

/// The borrowed capacity of a team, comparable across teams; from the root down to the team.
///
/// Each element is `max over resources (borrowed ÷ capacity) ÷ weight` (dominant share, Ghodsi et al., NSDI
/// 2011, of the usage beyond guarantees; law 5). With weight 0 it is infinite as soon as anything is
/// borrowed.
pub type Share = Vec<Ratio>;

/// Changes of usage that nothing has looked at yet.
#[derive(Debug)]
pub struct Changes {
    usages: BTreeSet<(PoolId, TeamId)>,
    queues: BTreeSet<(TeamId, Name)>,
    users: BTreeSet<UserOf>,
    eased: BTreeSet<TeamId>,
}

/// All teams in all pools.
#[derive(Clone, Debug, Default)]
pub struct QuotaTree {
    pub(super) teams: Vec<TeamInfo>,
    team_index: BTreeMap<Name, TeamId>,
    pool_names: Vec<Name>,
    pool_index: BTreeMap<Name, PoolId>,
    /// `quota_usages[pool][team]`
    pub(super) quota_usages: Vec<Vec<QuotaUsage>>,
    pub(super) capacity: Vec<Vector>,
    pub(super) queue_held: BTreeMap<(TeamId, Name), Vector>,
    pub(super) reserves: Vec<bool>,
    /// The resources that a guarantee or a limit of the pool lists.
    pub(super) listed: Vec<BTreeSet<usize>>,
    /// Whether a team has children.
    is_parent: Vec<bool>,
    /// By uppermost team: the teams with paths that end there, in order.
    trees: Vec<Vec<TeamId>>,
    /// Usages that changed since the last [`QuotaTree::take_dirty`]; those of the teams above changed as
    /// well.
    dirty: BTreeSet<(PoolId, TeamId)>,
    /// Queues with a changed usage since the last [`QuotaTree::take_dirty_queues`].
    dirty_queues: BTreeSet<(TeamId, Name)>,
    /// The usage of users, in teams that rank their users.
    pub users: Users,
    /// The budgets of teams, and what is used of them.
    pub budgets: Budgets,
}

impl QuotaTree {
    /// The team of that name, known from now on.
    pub fn intern_team(&mut self, name: &Name) -> TeamId {
        if let Some(index) = self.team_index.get(name) {
            return *index;
        }
        let index = TeamId(self.teams.len());
        self.teams.push(TeamInfo { name: name.clone(), team: None, path: vec![index] });
        self.trees.push(vec![index]);
        self.team_index.insert(name.clone(), index);
        for quota_usages in &mut self.quota_usages {
            quota_usages.push(QuotaUsage::default());
        }
        index
    }

    /// The pool of that name, known from now on.
    pub fn intern_pool(&mut self, name: &Name) -> PoolId {
        if let Some(index) = self.pool_index.get(name) {
            return *index;
        }
        let index = PoolId(self.pool_names.len());
        self.pool_names.push(name.clone());
        self.pool_index.insert(name.clone(), index);
        self.quota_usages.push(vec![QuotaUsage::default(); self.teams.len()]);
        self.capacity.push(Vector::default());
        self.reserves.push(false);
        self.listed.push(BTreeSet::new());
        index
    }

    /// Sets or removes a team's definition. If its parent or its queues change, all usage must be charged
    /// again afterwards ([`QuotaTree::clear_usage`]).
    pub fn set_team(&mut self, name: &Name, team: Option<Team>, resources: &mut Resources) {
        let index = self.intern_team(name);
        if let Some(parent) = team.as_ref().and_then(|team| team.parent.clone()) {
            self.intern_team(&parent);
        }
        for pool in team.iter().flat_map(|team| team.quotas.keys()).cloned().collect::<Vec<_>>() {
            self.intern_pool(&pool);
        }
        for pool in PoolId::first(self.pool_names.len()) {
            let quota = team.as_ref().and_then(|team| team.quotas.get(&self.pool_names[pool]));
            let old = std::mem::take(&mut self.quota_usages[pool][index]);
            // Its usage stays, and what it borrowed is not forgotten. All that is cached is dropped below.
            let mut quota_usage = QuotaUsage {
                governed: SmallVec::new(),
                guaranteed: Vector::default(),
                limit: BTreeMap::new(),
                lendable: BTreeMap::new(),
                ..old
            };
            if let Some(quota) = quota {
                let mut caps = |list: &crate::types::amount::ResourceList| {
                    list.iter().map(|(name, amount)| (resources.intern(name), amount.as_milli())).collect()
                };
                quota_usage.limit = caps(&quota.limit);
                quota_usage.lendable = caps(&quota.lendable);
                let governed = caps(&quota.guaranteed);
                quota_usage.set_guarantee(resources.vector(&quota.guaranteed), governed);
            }
            self.quota_usages[pool][index] = quota_usage;
            self.dirty.insert((pool, index));
        }
        self.budgets.define(index, team.as_ref().and_then(|team| team.budget));
        if team.is_none() {
            self.budgets.forget(index);
        }
        self.teams[index].team = team;
        self.relink();
    }

    /// Computes every team's path to its root. A parent that would close a cycle is ignored.
    fn relink(&mut self) {
        for index in TeamId::first(self.teams.len()) {
            let mut path = vec![index];
            let mut at = index;
            while let Some(parent) = self.teams[at].team.as_ref().and_then(|team| team.parent.as_ref()) {
                let Some(parent) = self.team_index.get(parent) else { break };
                if path.contains(parent) {
                    break;
                }
                path.push(*parent);
                at = *parent;
            }
            self.teams[index].path = path;
        }
        self.trees = vec![Vec::new(); self.teams.len()];
        for index in TeamId::first(self.teams.len()) {
            let root = self.root_of(index);
            self.trees[root].push(index);
        }
        self.is_parent = vec![false; self.teams.len()];
        for parent in self.teams.iter().filter_map(|team| team.path.get(1)) {
            self.is_parent[*parent] = true;
        }
        for pool in PoolId::first(self.quota_usages.len()) {
            self.reserves[pool] =
                self.quota_usages[pool].iter().any(|quota_usage| !quota_usage.lendable.is_empty());
            self.listed[pool] = self.quota_usages[pool].iter().flat_map(QuotaUsage::listed).collect();
            self.sum_guarantees_below(pool);
        }
    }

    /// Adds up the guarantees below teams without a guarantee of their own, children before parents.
    fn sum_guarantees_below(&mut self, pool: PoolId) {
        for quota_usage in &mut self.quota_usages[pool] {
            quota_usage.below.clear();
            quota_usage.clear_cache();
        }
        let mut by_depth: Vec<TeamId> = TeamId::first(self.teams.len()).collect();
        by_depth.sort_by_key(|at| std::cmp::Reverse(self.teams[*at].path.len()));
        for at in by_depth {
            let Some(parent) = self.teams[at].path.get(1).copied() else { continue };
            let quota_usage = &self.quota_usages[pool][at];
            let own: Vec<(usize, i64)> = if quota_usage.has_guarantee() {
                quota_usage.governed().collect()
            } else {
                quota_usage.below.iter().map(|(index, milli)| (*index, *milli)).collect()
            };
            for (index, milli) in own {
                let below = self.quota_usages[pool][parent].below.entry(index).or_default();
                *below = below.saturating_add(milli);
            }
        }
    }

    /// Clears all usage, before every workload is charged again.
    pub fn clear_usage(&mut self) {
        for quota_usage in self.quota_usages.iter_mut().flatten() {
            quota_usage.held = Vector::default();
            quota_usage.terminating = Vector::default();
            quota_usage.nominated = Vector::default();
            quota_usage.fixed = Vector::default();
            quota_usage.fixed_terminating = Vector::default();
            quota_usage.oversize = Vector::default();
            quota_usage.incoming = Vector::default();
            quota_usage.incoming_oversize = Vector::default();
            quota_usage.clear_cache();
        }
        self.queue_held.clear();
        self.users.clear();
    }

    /// Adds `times` × `held` to the usage of a team, and `times` × `terminating` to its terminating part.
    pub fn hold(&mut self, pool: PoolId, team: TeamId, held: &Vector, terminating: &Vector, times: i64) {
        self.dirty.insert((pool, team));
        for at in &self.teams[team].path {
            let quota_usage = &mut self.quota_usages[pool][*at];
            quota_usage.held.add(held, times);
            quota_usage.terminating.add(terminating, times);
            quota_usage.clear_cache();
        }
    }

    /// Adds `amount` × `times` to the usage that the guarantees of these teams do not count.
    pub fn hold_oversize(&mut self, pool: PoolId, levels: &[TeamId], amount: &Vector, times: i64) {
        for at in levels {
            let quota_usage = &mut self.quota_usages[pool][*at];
            quota_usage.oversize.add(amount, times);
            quota_usage.clear_cache();
        }
    }

    /// Adds `times` × `held` to the usage of a team that is never preempted, of which `terminating` ends.
    pub fn hold_fixed(
        &mut self,
        pool: PoolId,
        team: TeamId,
        held: &Vector,
        terminating: &Vector,
        times: i64,
    ) {
        self.dirty.insert((pool, team));
        for at in &self.teams[team].path {
            let quota_usage = &mut self.quota_usages[pool][*at];
            quota_usage.fixed.add(&held.plus(terminating, -1), times);
            quota_usage.fixed_terminating.add(terminating, times);
        }
    }

    /// Adds `amount` × `times` to the usage of a queue over all pools.
    pub fn hold_queue(&mut self, team: TeamId, queue: &Name, amount: &Vector, times: i64) {
        let key = (team, queue.clone());
        self.dirty_queues.insert(key.clone());
        self.queue_held.entry(key).or_default().add(amount, times);
    }

    /// The user in a team that ranks its users; workloads without a user count as one user.
    #[must_use]
    pub fn user_of(&self, team: TeamId, user: Option<&Name>) -> Option<UserOf> {
        let ranked = self.teams[team].team.as_ref().is_some_and(|team| team.fair_users);
        ranked.then(|| (team, user.cloned().unwrap_or_else(|| "".into())))
    }

    /// Adds `amount` × `times` to the capacity that is nominated to workloads of a team. A workload that `moves` runs
    /// elsewhere until then, the others wait.
    pub fn nominate(&mut self, pool: PoolId, account: Account<'_>, amount: &Vector, times: i64, moves: bool) {
        self.dirty.insert((pool, account.team));
        for at in &self.teams[account.team].path {
            let quota_usage = &mut self.quota_usages[pool][*at];
            let is_oversize = account.oversize.contains(at);
            quota_usage.nominated.add(amount, times);
            if is_oversize {
                quota_usage.oversize.add(amount, times);
            }
            if !moves {
                quota_usage.incoming.add(amount, times);
            }
            if is_oversize && !moves {
                quota_usage.incoming_oversize.add(amount, times);
            }
            quota_usage.clear_cache();
        }
    }

    /// Commits what a workload that capacity is nominated to may use of budgets, or takes it back with `times` = -1.
    pub fn commit(&mut self, team: TeamId, amount: i128, times: i64) {
        self.budgets.commit(&self.teams[team].path, amount, times);
    }

    /// Marks a usage as changed: it is judged by other numbers.
    pub fn mark_dirty(&mut self, pool: PoolId, team: TeamId) {
        self.dirty.insert((pool, team));
    }

    /// The usages that changed since the last call, without those of the teams above.
    pub fn take_dirty(&mut self) -> BTreeSet<(PoolId, TeamId)> {
        std::mem::take(&mut self.dirty)
    }

    /// Sets aside the changes that nothing has looked at yet, so that later ones can be dropped without them.
    pub fn set_changes_aside(&mut self) -> Changes {
        Changes {
            usages: self.take_dirty(),
            queues: self.take_dirty_queues(),
            users: self.users.take_dirty(),
            eased: self.budgets.take_eased(),
        }
    }

    /// Puts back the changes that were set aside, and drops those since: they cancel each other out.
    pub fn drop_changes(&mut self, before: Changes) {
        self.set_changes_aside();
        self.add_changes(before);
    }

    /// Adds changes that were set aside.
    pub fn add_changes(&mut self, mut before: Changes) {
        self.dirty.append(&mut before.usages);
        self.dirty_queues.append(&mut before.queues);
        self.users.mark_dirty(before.users);
        self.budgets.mark_eased(before.eased);
    }

    /// The queues with a changed usage since the last call.
    pub fn take_dirty_queues(&mut self) -> BTreeSet<(TeamId, Name)> {
        std::mem::take(&mut self.dirty_queues)
    }

    /// Whether a team has children.
    #[must_use]
    pub fn has_children(&self, team: TeamId) -> bool {
        self.is_parent.get(team.0).copied().unwrap_or(false)
    }

    /// Adds to the capacity of a pool.
    pub fn add_capacity(&mut self, pool: PoolId, amount: &Vector, times: i64) {
        self.capacity[pool].add(amount, times);
        self.quota_usages[pool].iter_mut().for_each(QuotaUsage::clear_cache);
    }

    /// The capacity of all nodes of a pool.
    #[must_use]
    pub fn capacity(&self, pool: PoolId) -> &Vector {
        &self.capacity[pool]
    }

    /// The team with that index.
    #[must_use]
    pub fn team(&self, team: TeamId) -> &TeamInfo {
        &self.teams[team]
    }

    /// The team of that name, if it was ever mentioned.
    #[must_use]
    pub fn find_team(&self, name: &Name) -> Option<&TeamInfo> {
        self.team_index.get(name).map(|index| &self.teams[*index])
    }

    /// The uppermost team on the path of a team.
    #[must_use]
    pub fn root_of(&self, team: TeamId) -> TeamId {
        self.teams[team].path.last().copied().unwrap_or(team)
    }

    /// The teams with paths that end at an uppermost team, that team included, in order.
    #[must_use]
    pub fn tree(&self, root: TeamId) -> &[TeamId] {
        self.trees.get(root.0).map_or(&[], Vec::as_slice)
    }

    /// A team and all teams below it, in order.
    pub fn at_or_below(&self, at: TeamId) -> impl Iterator<Item = TeamId> {
        let tree = self.tree(self.root_of(at)).iter().copied();
        tree.filter(move |team| self.teams[*team].path.contains(&at))
    }

    /// Every team that is defined, by name.
    pub fn teams(&self) -> impl Iterator<Item = (TeamId, &TeamInfo)> {
        self.team_index.values().map(|index| (*index, &self.teams[*index]))
    }

    /// The name of the pool with that index.
    #[must_use]
    pub fn pool_name(&self, pool: PoolId) -> &Name {
        &self.pool_names[pool]
    }

    /// The pool of that name, if it was ever mentioned.
    #[must_use]
    pub fn pool(&self, name: &str) -> Option<PoolId> {
        self.pool_index.get(name).copied()
    }

    /// Every pool ever mentioned, by name.
    pub fn pools(&self) -> impl Iterator<Item = (&Name, PoolId)> {
        self.pool_index.iter().map(|(name, index)| (name, *index))
    }

    /// The usage of a team in a pool.
    #[must_use]
    pub fn quota_usage(&self, pool: PoolId, team: TeamId) -> &QuotaUsage {
        &self.quota_usages[pool][team]
    }
}
