//! The quota forest: what each team is promised in each pool, and what it and those below it hold.
//!
//! A team's guarantee speaks of the resources it lists (it *governs* them); what a team does not
//! list is limited by the nodes alone. A team that lists nothing in a pool is guaranteed nothing
//! there; as somebody's parent it is looked through.

mod shares;
mod usage;

use std::collections::{BTreeMap, BTreeSet};

use crate::state::users::{UserOf, Users};
use crate::types::ids::{PoolId, TeamId};
use crate::types::ratio::Ratio;
use crate::types::vector::{Resources, Vector};
use crate::types::{Name, Queue, Team};

pub use crate::state::quotas::usage::QuotaUsage;

/// One team.
#[derive(Clone, Debug)]
pub struct TeamInfo {
    /// Its name.
    pub name: Name,
    /// Its definition; `None` while others only speak of it.
    pub team: Option<Team>,
    /// The team itself, its parent and so on up to the root.
    pub path: Vec<TeamId>,
}

impl TeamInfo {
    /// The queue that `name` (or its absence) means; `None` when there is none of that name.
    #[must_use]
    pub fn queue(&self, name: Option<&Name>) -> Option<&Queue> {
        let queues = &self.team.as_ref()?.queues;
        match name {
            None => queues.first(),
            Some(name) => queues.iter().find(|queue| queue.name == *name),
        }
    }
}

/// A team's use of the surplus, comparable across teams; from the root down to the team.
///
/// Each element is `max over resources (surplus ÷ capacity) ÷ weight` (dominant share, Ghodsi et al.,
/// NSDI 2011, over what lies beyond guarantees). Weight 0 is infinite as soon as there is any.
pub type Share = Vec<Ratio>;

/// Changes to accounts that a decision imagines: what is added to or taken from whom.
pub type Hypothetical = BTreeMap<TeamId, Vector>;

/// All teams in all pools.
#[derive(Clone, Debug, Default)]
pub struct QuotaTree {
    teams: Vec<TeamInfo>,
    team_index: BTreeMap<Name, TeamId>,
    pool_names: Vec<Name>,
    pool_index: BTreeMap<Name, PoolId>,
    /// `accounts[pool][team]`
    quota_usages: Vec<Vec<QuotaUsage>>,
    capacity: Vec<Vector>,
    queue_held: BTreeMap<(TeamId, Name), Vector>,
    reserves: Vec<bool>,
    /// Whether a team stands above another one.
    above: Vec<bool>,
    /// Accounts that are others than when they were last asked for; those above them are as well.
    dirty: BTreeSet<(PoolId, TeamId)>,
    /// Queues that hold something else.
    dirty_queues: BTreeSet<(TeamId, Name)>,
    /// What users hold in teams where they take turns.
    pub users: Users,
}

impl QuotaTree {
    /// The team of that name, known from now on.
    pub fn intern_team(&mut self, name: &Name) -> TeamId {
        if let Some(index) = self.team_index.get(name) {
            return *index;
        }
        let index = TeamId(self.teams.len());
        self.teams.push(TeamInfo { name: name.clone(), team: None, path: vec![index] });
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
        index
    }

    /// Sets or removes a team's definition. If its parent or its queues are others than before, whoever
    /// holds something must be charged anew afterwards ([`Forest::clear_use`]).
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
            let (held, leaving, nominated) = (old.held, old.leaving, old.nominated);
            let mut quota_usage = QuotaUsage { held, leaving, nominated, ..QuotaUsage::default() };
            if let Some(quota) = quota {
                let mut caps = |list: &crate::types::amount::ResourceList| {
                    list.iter().map(|(name, amount)| (resources.intern(name), amount.as_milli())).collect()
                };
                quota_usage.limit = caps(&quota.limit);
                quota_usage.lendable = caps(&quota.lendable);
                quota_usage.governed = quota.guaranteed.keys().map(|name| resources.intern(name)).collect();
                quota_usage.guaranteed = resources.vector(&quota.guaranteed);
            }
            self.quota_usages[pool][index] = quota_usage;
            self.dirty.insert((pool, index));
        }
        self.teams[index].team = team;
        self.relink();
    }

    /// Works out every team's path to its root. A parent that would close a circle is ignored.
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
        self.above = vec![false; self.teams.len()];
        for parent in self.teams.iter().filter_map(|team| team.path.get(1)) {
            self.above[*parent] = true;
        }
        for pool in PoolId::first(self.quota_usages.len()) {
            self.reserves[pool] =
                self.quota_usages[pool].iter().any(|quota_usage| !quota_usage.lendable.is_empty());
            self.sum_up_promises(pool);
        }
    }

    /// Works out what is promised below teams that promise nothing themselves, children before parents.
    fn sum_up_promises(&mut self, pool: PoolId) {
        for quota_usage in &mut self.quota_usages[pool] {
            quota_usage.below.clear();
            quota_usage.forget();
        }
        let mut by_depth: Vec<TeamId> = TeamId::first(self.teams.len()).collect();
        by_depth.sort_by_key(|at| std::cmp::Reverse(self.teams[*at].path.len()));
        for at in by_depth {
            let Some(parent) = self.teams[at].path.get(1).copied() else { continue };
            let quota_usage = &self.quota_usages[pool][at];
            let own: Vec<(usize, i64)> = if quota_usage.promises() {
                quota_usage.governed().collect()
            } else {
                quota_usage.below.iter().map(|(index, milli)| (*index, *milli)).collect()
            };
            for (index, milli) in own {
                *self.quota_usages[pool][parent].below.entry(index).or_default() += milli;
            }
        }
    }

    /// Forgets all use, before everything is charged anew.
    pub fn clear_use(&mut self) {
        for quota_usage in self.quota_usages.iter_mut().flatten() {
            quota_usage.held = Vector::default();
            quota_usage.leaving = Vector::default();
            quota_usage.nominated = Vector::default();
            quota_usage.forget();
        }
        self.queue_held.clear();
        self.users.clear();
    }

    /// Adds `times` × `held` to what a team holds, and `times` × `going` to the part of it that is about
    /// to leave.
    pub fn hold(&mut self, pool: PoolId, team: TeamId, held: &Vector, going: &Vector, times: i64) {
        self.dirty.insert((pool, team));
        for at in &self.teams[team].path {
            let quota_usage = &mut self.quota_usages[pool][*at];
            quota_usage.held.add(held, times);
            quota_usage.leaving.add(going, times);
            quota_usage.forget();
        }
    }

    /// Adds `amount` × `times` to what a queue holds over all pools.
    pub fn hold_queue(&mut self, team: TeamId, queue: &Name, amount: &Vector, times: i64) {
        let key = (team, queue.clone());
        self.dirty_queues.insert(key.clone());
        self.queue_held.entry(key).or_default().add(amount, times);
    }

    /// The user in a team where users take turns; all who did not say who they are count as one.
    #[must_use]
    pub fn user_of(&self, team: TeamId, user: Option<&Name>) -> Option<UserOf> {
        let take_turns = self.teams[team].team.as_ref().is_some_and(|team| team.fair_users);
        take_turns.then(|| (team, user.cloned().unwrap_or_else(|| "".into())))
    }

    /// Adds `amount` × `times` to what a team's claimants will take.
    pub fn nominate(&mut self, pool: PoolId, team: TeamId, amount: &Vector, times: i64) {
        self.dirty.insert((pool, team));
        for at in self.teams[team].path.clone() {
            self.quota_usages[pool][at].nominated.add(amount, times);
            self.quota_usages[pool][at].forget();
        }
    }

    /// The accounts that have become others since this was last asked, without those above them.
    pub fn take_dirty(&mut self) -> BTreeSet<(PoolId, TeamId)> {
        std::mem::take(&mut self.dirty)
    }

    /// The queues that hold something else than when this was last asked.
    pub fn take_dirty_queues(&mut self) -> BTreeSet<(TeamId, Name)> {
        std::mem::take(&mut self.dirty_queues)
    }

    /// Whether a team stands above another one.
    #[must_use]
    pub fn stands_above(&self, team: TeamId) -> bool {
        self.above.get(team.0).copied().unwrap_or(false)
    }

    /// Adds to what a pool's nodes offer in total.
    pub fn add_capacity(&mut self, pool: PoolId, amount: &Vector, times: i64) {
        self.capacity[pool].add(amount, times);
        self.quota_usages[pool].iter_mut().for_each(QuotaUsage::forget);
    }

    /// What a pool's nodes offer in total.
    #[must_use]
    pub fn capacity(&self, pool: PoolId) -> &Vector {
        &self.capacity[pool]
    }

    /// The team with that index.
    #[must_use]
    pub fn team(&self, team: TeamId) -> &TeamInfo {
        &self.teams[team]
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

    /// The pool of that name, if it was ever heard of.
    #[must_use]
    pub fn pool(&self, name: &Name) -> Option<PoolId> {
        self.pool_index.get(name).copied()
    }

    /// Every pool ever heard of, by name.
    pub fn pools(&self) -> impl Iterator<Item = (&Name, PoolId)> {
        self.pool_index.iter().map(|(name, index)| (name, *index))
    }

    /// A team's books in a pool.
    #[must_use]
    pub fn quota_usage(&self, pool: PoolId, team: TeamId) -> &QuotaUsage {
        &self.quota_usages[pool][team]
    }

    /// The first team on the path whose limit does not hold `amount` more, with the resource. Both
    /// what is held now and what will be once evictions end must stay within.
    #[must_use]
    pub fn over_limit(
        &self,
        pool: PoolId,
        team: TeamId,
        amount: &Vector,
        hypothetical: &Hypothetical,
        settled_only: bool,
    ) -> Option<(TeamId, usize)> {
        self.teams[team].path.iter().find_map(|at| {
            let quota_usage = &self.quota_usages[pool][*at];
            quota_usage.limit.iter().find_map(|(index, cap)| {
                let more = amount.get(*index);
                let change = hypothetical.get(at).map_or(0, |vector| vector.get(*index));
                let over_now = !settled_only && quota_usage.held.get(*index) + more > *cap;
                let over = over_now || quota_usage.settled(*index) + change + more > *cap;
                (more > 0 && over).then_some((*at, *index))
            })
        })
    }

    /// The first resource of which the queue's limit does not hold `amount` more.
    #[must_use]
    pub fn over_queue_limit(
        &self,
        team: TeamId,
        queue: &Queue,
        amount: &Vector,
        resources: &Resources,
    ) -> Option<usize> {
        let held = self.queue_held.get(&(team, queue.name.clone()));
        amount.nonzero().map(|(index, _)| index).find(|index| {
            queue.limit.get(resources.name(*index)).is_some_and(|cap| {
                held.map_or(0, |held| held.get(*index)) + amount.get(*index) > cap.as_milli()
            })
        })
    }

    /// Whether the team and every team above it are within their guarantees with `amount` more and
    /// the imagined changes: what is asked for is then *owed*. Only resources that are asked for
    /// count, and at least one of them must be promised to the team itself.
    #[must_use]
    pub fn within_guarantee(
        &self,
        pool: PoolId,
        team: TeamId,
        amount: &Vector,
        hypothetical: &Hypothetical,
    ) -> bool {
        let own = &self.quota_usages[pool][team];
        own.governed().any(|(index, _)| amount.get(index) > 0)
            && self.teams[team].path.iter().all(|at| {
                let quota_usage = &self.quota_usages[pool][*at];
                quota_usage.governed().all(|(index, guaranteed)| {
                    let more = amount.get(index);
                    let change = hypothetical.get(at).map_or(0, |vector| vector.get(index));
                    more == 0 || quota_usage.settled(index) + change + more <= guaranteed
                })
            })
    }

    /// Whether the team's own guarantee, the ones above it aside, holds `amount` more of something.
    #[must_use]
    pub fn own_guarantee_holds(&self, pool: PoolId, team: TeamId, amount: &Vector) -> bool {
        let own = &self.quota_usages[pool][team];
        own.governed().any(|(index, _)| amount.get(index) > 0)
            && own.governed().all(|(index, guaranteed)| {
                let more = amount.get(index);
                more == 0 || own.settled(index) + more <= guaranteed
            })
    }

    /// The same after the imagined changes.
    #[must_use]
    pub fn own_guarantee_would_hold(
        &self,
        pool: PoolId,
        team: TeamId,
        amount: &Vector,
        hypothetical: &Hypothetical,
    ) -> bool {
        let changed = hypothetical.get(&team).map(|change| amount.plus(change, 1));
        let asked = |index: usize| amount.get(index) > 0;
        let own = &self.quota_usages[pool][team];
        own.governed().any(|(index, _)| asked(index))
            && own.governed().filter(|(index, _)| asked(*index)).all(|(index, guaranteed)| {
                own.settled(index) + changed.as_ref().unwrap_or(amount).get(index) <= guaranteed
            })
    }

    /// The part of `of`'s path that a claimant of team `by` must respect: all levels below the
    /// lowest team that both stand under.
    pub fn levels_below_common<'a>(&'a self, of: TeamId, by: TeamId) -> impl Iterator<Item = TeamId> + 'a {
        let above = &self.teams[by].path;
        self.teams[of].path.iter().copied().take_while(move |at| !above.contains(at))
    }

    /// Whether each of `levels` holds more than its guarantee of something in `amount`, so that
    /// `amount` may be taken from it for others. A level that is promised nothing protects nothing.
    #[must_use]
    pub fn beyond_guarantee(
        &self,
        pool: PoolId,
        levels: &[TeamId],
        amount: &Vector,
        hypothetical: &Hypothetical,
    ) -> bool {
        levels.iter().all(|at| {
            let quota_usage = &self.quota_usages[pool][*at];
            !quota_usage.promises()
                || quota_usage.governed().any(|(index, guaranteed)| {
                    let change = hypothetical.get(at).map_or(0, |vector| vector.get(index));
                    amount.get(index) > 0 && quota_usage.settled(index) + change > guaranteed
                })
        })
    }

    /// Whether each of `levels` holds more of something than it is promised.
    #[must_use]
    pub fn any_beyond_guarantee(
        &self,
        pool: PoolId,
        mut levels: impl Iterator<Item = TeamId>,
        hypothetical: &Hypothetical,
    ) -> bool {
        levels.all(|at| {
            let quota_usage = &self.quota_usages[pool][at];
            match hypothetical.get(&at) {
                None => quota_usage.is_beyond_guarantee(),
                Some(change) => quota_usage.would_be_beyond_guarantee(change),
            }
        })
    }

    /// Whether taking `amount` leaves one of `levels` below its guarantee: it *straddles* it.
    #[must_use]
    pub fn straddles(
        &self,
        pool: PoolId,
        levels: &[TeamId],
        amount: &Vector,
        hypothetical: &Hypothetical,
    ) -> bool {
        levels.iter().any(|at| {
            let quota_usage = &self.quota_usages[pool][*at];
            quota_usage.governed().any(|(index, guaranteed)| {
                let change = hypothetical.get(at).map_or(0, |vector| vector.get(index));
                let less = amount.get(index);
                less > 0 && quota_usage.settled(index) + change - less < guaranteed
            })
        })
    }

    /// Adds `amount` × `times` to the imagined use of a team and all above it.
    pub fn assume(&self, hypothetical: &mut Hypothetical, team: TeamId, amount: &Vector, times: i64) {
        for at in &self.teams[team].path {
            hypothetical.entry(*at).or_default().add(amount, times);
        }
    }

    /// Whether any team of the pool keeps part of its idle guarantee to itself.
    #[must_use]
    pub fn has_reserves(&self, pool: PoolId) -> bool {
        self.reserves[pool]
    }

    /// What must stay free because idle guarantees are not lent in full, once `team` holds `amount`
    /// more. A parent's reserve covers those of its children.
    #[must_use]
    pub fn reserve_after(&self, pool: PoolId, team: TeamId, amount: &Vector) -> Vector {
        let path = &self.teams[team].path;
        let own = |at: TeamId| {
            let quota_usage = &self.quota_usages[pool][at];
            let mut reserve = Vector::default();
            for (index, lendable) in &quota_usage.lendable {
                let more = if path.contains(&at) { amount.get(*index) } else { 0 };
                let kept = quota_usage.guaranteed.get(*index) - lendable;
                reserve.set(*index, (kept - quota_usage.settled(*index) - more).max(0));
            }
            reserve
        };
        // Children before parents: each team's reserve is at least the sum of those below it.
        let mut below: BTreeMap<TeamId, Vector> = BTreeMap::new();
        let mut by_depth: Vec<TeamId> = TeamId::first(self.teams.len()).collect();
        by_depth.sort_by_key(|at| std::cmp::Reverse(self.teams[*at].path.len()));
        let mut total = Vector::default();
        for at in by_depth {
            let mut reserve = own(at);
            if let Some(children) = below.remove(&at) {
                for (index, milli) in children.entries() {
                    reserve.set(index, reserve.get(index).max(milli));
                }
            }
            match self.teams[at].path.get(1) {
                Some(parent) => below.entry(*parent).or_default().add(&reserve, 1),
                None => total.add(&reserve, 1),
            }
        }
        total
    }
}
