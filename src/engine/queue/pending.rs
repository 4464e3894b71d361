//! All waiting workloads, in order, grouped into classes.
//!
//! Only the first workload of a class is attempted. If it cannot start, the class is blocked, and it is
//! requeued when one of its conditions changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::queue::class::{Blocked, Class, ClassKey, Condition, Demand, First, Status};
use crate::queue::conditions::{Conditions, set_member};
use crate::queue::pace::Pace;
use crate::queue::preemptors::PotentialPreemptors;
use crate::queue::rank::Rank;
use crate::queue::retry::Retry;
use crate::state::users::{UserOf, UserShare};
use crate::types::ids::{ClassId, HeadroomId, PoolId, TeamId, WorkloadIndex};
use crate::types::ratio::Ratio;
use crate::types::{DEFAULT_POOL, Name, Profile, Verdict, WorkloadId};

/// The pool that workloads with these ask for first.
pub fn first_of(pools: &[Name]) -> Name {
    pools.first().cloned().unwrap_or_else(|| DEFAULT_POOL.into())
}

/// All waiting workloads.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    /// Each shared with the copies of an engine, until one of them changes it.
    pub(super) classes: BTreeMap<ClassId, Arc<Class>>,
    next: ClassId,
    index: BTreeMap<TeamId, BTreeMap<ClassKey, ClassId>>,
    /// The classes of each user, in teams that order their users by usage.
    users: BTreeMap<UserOf, BTreeSet<ClassId>>,
    workloads: BTreeMap<WorkloadId, (ClassId, Rank)>,
    /// The first workloads of active classes.
    active: BTreeMap<TeamId, BTreeSet<First>>,
    /// Teams with a class that became active since [`Self::take_newly_active`].
    newly_active: BTreeSet<TeamId>,
    /// Teams of which a class has changed since [`Self::take_changed`].
    changed: BTreeSet<TeamId>,
    pub(super) conditions: Conditions,
    pub(super) retry: Retry,
    /// How many borrowers have searched again lately.
    pub(super) pace: Pace,
    potential_preemptors: PotentialPreemptors,
    /// The classes with an affinity or a spread: pods that come to a node may let them start.
    followers: BTreeSet<ClassId>,
}

impl Pending {
    /// Queues a workload by its class and rank, and removes it from any former position.
    ///
    /// A new class is active, and so is one that gets another first workload: that one may stand before the owner of a
    /// reservation, as the first until now did not. `user_usage` is the usage of the workload's user, in a team that
    /// orders its users by usage.
    pub fn insert(&mut self, team: TeamId, key: ClassKey, rank: Rank, user_usage: UserShare) {
        let known = self.index.get(&team).and_then(|classes| classes.get(&key)).copied();
        if let Some((class, old)) = self.workloads.get(rank.id()) {
            if Some(*class) == known && *old == rank {
                return;
            }
            self.remove(&rank.id().clone());
        }
        let class = self.index.get(&team).and_then(|classes| classes.get(&key)).copied();
        let class = class.unwrap_or_else(|| self.add_class(team, key, user_usage));
        self.workloads.insert(rank.id().clone(), (class, rank.clone()));
        self.update(class, |class| {
            if class.waiting.first().is_some_and(|first| rank < *first) {
                class.status = Status::Active;
            }
            class.waiting.insert(rank);
        });
    }

    fn add_class(&mut self, team: TeamId, key: ClassKey, user_usage: UserShare) -> ClassId {
        let class = self.next;
        self.next = self.next.next();
        self.index.entry(team).or_default().insert(key.clone(), class);
        if let Some(user) = key.user.clone() {
            self.users.entry((team, user)).or_default().insert(class);
        }
        let follows = |profile: &Arc<Profile>| !(profile.together.is_empty() && profile.spread.is_empty());
        if key.profile.as_ref().is_some_and(follows) {
            self.followers.insert(class);
        }
        let (waiting, status) = (BTreeSet::new(), Status::Active);
        let new = Class {
            team,
            key,
            waiting,
            user_usage,
            status,
            searched: None,
            put_off: None,
            put_off_now: false,
            refusal: None,
        };
        self.classes.insert(class, Arc::new(new));
        class
    }

    /// Removes a workload.
    pub fn remove(&mut self, id: &WorkloadId) {
        let Some((class, rank)) = self.workloads.remove(id) else { return };
        self.update(class, |class| {
            class.waiting.remove(&rank);
        });
        if self.classes.get(&class).is_some_and(|class| class.waiting.is_empty())
            && let Some(Class { team, key, .. }) = self.classes.remove(&class).map(Arc::unwrap_or_clone)
            && let Some(classes) = self.index.get_mut(&team)
        {
            self.followers.remove(&class);
            classes.remove(&key);
            if classes.is_empty() {
                self.index.remove(&team);
            }
            if let Some(user) = key.user {
                set_member(&mut self.users, (team, user), class, false);
            }
        }
    }

    /// The rank of a workload among the waiting workloads of its team.
    #[must_use]
    pub fn rank(&self, id: &WorkloadId) -> Option<Rank> {
        let (class, rank) = self.workloads.get(id)?;
        let user_usage = self.classes.get(class).map_or(0, |class| class.user_usage);
        Some(rank.clone().with_user_usage(user_usage))
    }

    /// The position of a workload among those of its team that ask for the same pool first, and their number.
    #[must_use]
    pub fn position(&self, id: &WorkloadId) -> Option<(usize, usize)> {
        let (own, rank) = (self.classes.get(&self.class_of(id)?)?, self.rank(id)?);
        let classes = self.index.get(&own.team)?.values().filter_map(|class| self.classes.get(class));
        let pool = |class: &Class| first_of(&class.key.pools);
        let (mut before, mut waiting) = (0, 0);
        for class in classes.filter(|class| pool(class) == pool(own)) {
            waiting += class.waiting.len();
            let ranks = class.waiting.iter().map(|rank| rank.clone().with_user_usage(class.user_usage));
            before += ranks.take_while(|other| *other < rank).count();
        }
        Some((before + 1, waiting))
    }

    /// Reorders the classes of a user by the user's usage, which `usage` computes from their pools.
    pub fn set_user_usage(&mut self, team: TeamId, user: &Name, usage: impl Fn(&[Name]) -> UserShare) {
        let classes = self.users.get(&(team, user.clone()));
        for class in classes.into_iter().flatten().copied().collect::<Vec<_>>() {
            let Some(known) = self.classes.get(&class) else { continue };
            let now = usage(&known.key.pools);
            if now != known.user_usage {
                self.update(class, |class| class.user_usage = now);
            }
        }
    }

    /// The classes with a workload that stands before a workload of the same team.
    #[must_use]
    pub fn before(&self, id: &WorkloadId) -> Vec<ClassId> {
        let class = self.class_of(id).and_then(|class| self.classes.get(&class));
        let (Some(rank), Some(team)) = (self.rank(id), class.map(|class| class.team)) else {
            return Vec::new();
        };
        let before = |class: &Class| class.first().is_some_and(|first| first < rank);
        let classes = self.index.get(&team).into_iter().flat_map(BTreeMap::values).copied();
        classes.filter(|class| self.classes.get(class).is_some_and(|class| before(class))).collect()
    }

    /// The class that a workload waits in.
    #[must_use]
    pub fn class_of(&self, id: &WorkloadId) -> Option<ClassId> {
        self.workloads.get(id).map(|(class, _)| *class)
    }

    /// The team of a class, and its first workload.
    #[must_use]
    pub fn first_of(&self, class: ClassId) -> Option<(TeamId, &Rank)> {
        self.classes.get(&class).and_then(|class| Some((class.team, class.waiting.first()?)))
    }

    /// The first workload of every class of a team.
    pub fn firsts_of(&self, team: TeamId) -> impl Iterator<Item = &WorkloadId> {
        let classes = self.index.get(&team).into_iter().flat_map(BTreeMap::values);
        let classes = classes.filter_map(|class| self.classes.get(class));
        classes.filter_map(|class| class.waiting.first()).map(Rank::id)
    }

    /// The first workload of every class, with the number of workloads in the class.
    pub fn firsts(&self) -> impl Iterator<Item = (&WorkloadId, usize)> {
        let classes =
            self.index.values().flat_map(BTreeMap::values).filter_map(|class| self.classes.get(class));
        classes.filter_map(|class| class.waiting.first().map(|rank| (rank.id(), class.waiting.len())))
    }

    /// Every waiting workload, with its team and the pools that it may use.
    pub fn ranks(&self) -> impl Iterator<Item = (TeamId, &[Name], Rank)> {
        self.classes.values().flat_map(|class| {
            let ranks = class.waiting.iter().map(|rank| rank.clone().with_user_usage(class.user_usage));
            ranks.map(|rank| (class.team, class.key.pools.as_slice(), rank))
        })
    }

    /// The demands of the classes that may be within guarantee, each with one workload and the teams.
    ///
    /// Blocked classes are left out: they are known not to be within guarantee.
    pub fn potential_preemptors(
        &self,
    ) -> impl Iterator<Item = (&Demand, WorkloadIndex, impl Iterator<Item = TeamId>)> {
        self.potential_preemptors.demands().filter_map(|demand| {
            Some((demand, self.one_potential_preemptor(demand)?, self.potential_preemptor_teams(demand)))
        })
    }

    /// The teams of the potential preemptors with that demand.
    pub fn potential_preemptor_teams(&self, demand: &Demand) -> impl Iterator<Item = TeamId> {
        self.potential_preemptors.teams(demand)
    }

    /// One potential preemptor with that demand.
    #[must_use]
    pub fn one_potential_preemptor(&self, demand: &Demand) -> Option<WorkloadIndex> {
        self.index_of_first(self.potential_preemptors.one(demand)?)
    }

    /// The potential preemptors of a team with that demand: the first workload of each class.
    pub fn potential_preemptors_of(
        &self,
        demand: &Demand,
        team: TeamId,
    ) -> impl Iterator<Item = WorkloadIndex> {
        self.potential_preemptors.of_team(demand, team).filter_map(|class| self.index_of_first(class))
    }

    fn index_of_first(&self, class: ClassId) -> Option<WorkloadIndex> {
        self.classes.get(&class)?.waiting.first().map(Rank::index)
    }

    /// The teams with a class that became active since the last call.
    pub fn take_newly_active(&mut self) -> BTreeSet<TeamId> {
        std::mem::take(&mut self.newly_active)
    }

    /// The teams of which a class has changed since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<TeamId> {
        std::mem::take(&mut self.changed)
    }

    /// The teams with a waiting workload.
    pub fn teams(&self) -> impl Iterator<Item = TeamId> + '_ {
        self.index.keys().copied()
    }

    /// Whether a team has a waiting workload.
    #[must_use]
    pub fn has_team(&self, team: TeamId) -> bool {
        self.index.contains_key(&team)
    }

    /// The teams with a class for which headroom of `now` pods suffices, and headroom of `before` pods did not.
    pub fn teams_waiting_for(
        &self,
        shape: HeadroomId,
        before: u64,
        now: u64,
    ) -> impl Iterator<Item = TeamId> + '_ {
        self.conditions.teams_waiting_for(shape, before, now)
    }

    /// The first workload of the team that may be able to start, by the headroom of each shape in pods.
    #[must_use]
    pub fn head(&self, team: TeamId, headroom: impl Fn(HeadroomId) -> u64) -> Option<&Rank> {
        self.first_startable(team, headroom, |_| true)
    }

    /// The first workload of the team that may be able to start and for which `which` is true.
    #[must_use]
    pub fn first_startable(
        &self,
        team: TeamId,
        headroom: impl Fn(HeadroomId) -> u64,
        which: impl Fn(&Rank) -> bool,
    ) -> Option<&Rank> {
        let active = self.active.get(&team).into_iter().flatten().find(|(rank, _)| which(rank));
        let fit = self.conditions.firsts_that_fit(team, headroom).filter(|(rank, _)| which(rank));
        fit.chain(active).min().map(|(rank, _)| rank)
    }

    /// The first workload of the team that is blocked on headroom of one of these shapes, without the
    /// classes in `except`.
    #[must_use]
    pub fn first_waiting(
        &self,
        team: TeamId,
        wanted: impl Fn(HeadroomId) -> bool,
        except: &BTreeMap<ClassId, TeamId>,
    ) -> Option<&(Rank, ClassId)> {
        self.conditions.first_waiting(team, wanted, except)
    }

    /// The first workload of the team that waits for quota and not for headroom and may use these pools, without the
    /// classes in `except`.
    #[must_use]
    pub fn first_limited(
        &self,
        team: TeamId,
        pools: impl Fn(&[Name]) -> bool,
        except: &BTreeMap<ClassId, TeamId>,
    ) -> Option<&(Rank, ClassId)> {
        let uses = |class: ClassId| self.classes.get(&class).is_some_and(|class| pools(&class.key.pools));
        self.conditions.first_limited(team, |class| !except.contains_key(&class) && uses(class))
    }

    /// Whether the workloads of a class may use a pool.
    #[must_use]
    pub fn may_use(&self, class: ClassId, pool: &Name) -> bool {
        self.classes.get(&class).is_some_and(|class| match class.key.pools.is_empty() {
            true => **pool == *DEFAULT_POOL,
            false => class.key.pools.contains(pool),
        })
    }

    /// Whether a class is blocked on headroom of a shape.
    #[must_use]
    pub fn waits_for(&self, shape: HeadroomId) -> bool {
        self.conditions.waits_for(shape)
    }

    /// Records that a workload, and so its class, could not start in a generation.
    ///
    /// The class is attempted again when one of its conditions changes, or without conditions when capacity
    /// is freed.
    pub fn block(&mut self, id: &WorkloadId, blocked: Blocked, generation: u64, verdict: Verdict) {
        let Some(class) = self.class_of(id) else { return };
        self.update(class, |class| {
            let put_off = std::mem::take(&mut class.put_off_now) && !matches!(blocked, Blocked::Until(_));
            class.put_off = put_off.then(|| class.search_before(generation));
            class.status = Status::blocked(blocked, generation);
            class.refusal = Some(verdict);
        });
    }

    /// Whether a class may be able to start.
    #[must_use]
    pub fn is_active(&self, class: ClassId) -> bool {
        self.classes.get(&class).is_some_and(|class| matches!(class.status, Status::Active))
    }

    /// Whether a class cannot start before one of its conditions changes.
    #[must_use]
    pub fn is_blocked(&self, class: ClassId) -> bool {
        self.classes.get(&class).is_some_and(|class| matches!(class.status, Status::Blocked { .. }))
    }

    /// Replaces the conditions of a blocked class, at a generation. Returns whether it is requeued instead. A borrower keeps
    /// its place among those that search again.
    ///
    /// A class that newly lacks headroom is requeued, because it may be due a reservation; so is one that has come within
    /// guarantee, because it may preempt before any borrower starts (law 9).
    pub fn reconsider(&mut self, class: ClassId, blocked: Blocked, generation: u64) -> bool {
        let needs_headroom = |conditions: &[Condition]| {
            conditions.iter().any(|condition| matches!(condition, Condition::Headroom(..)))
        };
        let Some(status) = self.classes.get(&class).map(|class| &class.status) else { return false };
        let before = match status {
            Status::Blocked { until } | Status::MayPreempt { until, .. } => Some(until),
            Status::Active | Status::Backlog { .. } => None,
        };
        let conditions = match &blocked {
            Blocked::Until(conditions) | Blocked::MayPreempt { conditions, .. } => Some(conditions),
            Blocked::Unknown => None,
        };
        let within_guarantee = blocked.is_within_guarantee() && !status.is_within_guarantee();
        let Some((before, conditions)) = before.zip(conditions).filter(|_| !within_guarantee) else {
            self.requeue(class);
            return true;
        };
        let same = matches!((status, &blocked), (Status::Blocked { .. }, Blocked::Until(_)));
        if same && before == conditions {
            return false;
        }
        let requeues = !needs_headroom(before) && needs_headroom(conditions);
        if requeues {
            self.requeue(class);
        } else {
            self.update(class, |class| {
                let since = if blocked.is_paced() { class.search_before(generation) } else { 0 };
                class.put_off = class.put_off.filter(|_| !matches!(blocked, Blocked::Until(_)));
                class.status = Status::blocked(blocked, since);
            });
        }
        requeues
    }

    /// Whether a class waits with an affinity or a spread.
    #[must_use]
    pub fn has_followers(&self) -> bool {
        !self.followers.is_empty()
    }

    /// The classes with an affinity or a spread for which `which` is true.
    pub fn followers(&self, which: impl Fn(&Profile) -> bool) -> Vec<ClassId> {
        let profile = |class: &ClassId| self.classes.get(class)?.key.profile.as_deref();
        let wanted = |class: &&ClassId| profile(class).is_some_and(&which);
        self.followers.iter().filter(wanted).copied().collect()
    }

    /// The classes that are blocked on the usage of a team in a pool.
    pub fn blocked_on_quota(&self, pool: PoolId, team: TeamId) -> Vec<ClassId> {
        self.conditions.on_quota(pool, team)
    }

    /// The classes that wait for more of the guarantee of a team in a pool to be idle.
    pub fn blocked_on_guarantee(&self, pool: PoolId, team: TeamId) -> Vec<ClassId> {
        self.conditions.on_guarantee(pool, team)
    }

    /// The classes that are blocked on the usage of a queue.
    pub fn blocked_on_queue(&self, team: TeamId, queue: &Name) -> Vec<ClassId> {
        self.conditions.on_queue(team, queue)
    }

    /// The classes that are blocked on the budget of a team.
    pub fn blocked_on_budget(&self, team: TeamId) -> Vec<ClassId> {
        self.conditions.on_budget(team)
    }

    /// The teams with budgets that classes are blocked on.
    pub fn budgets(&self) -> impl Iterator<Item = TeamId> + '_ {
        self.conditions.budgets()
    }

    /// The blocked classes that may preempt from a team with this share.
    pub fn blocked_on_share(&self, pool: PoolId, share: Ratio) -> Vec<ClassId> {
        self.conditions.on_share(pool, share)
    }

    /// Why a class could not start at its last attempt, and whether that may have changed.
    ///
    /// `None` when no workload waits in it or none was attempted yet.
    #[must_use]
    pub fn refusal(&self, class: ClassId) -> Option<(&Verdict, bool)> {
        let class = self.classes.get(&class)?;
        Some((class.refusal.as_ref()?, !matches!(class.status, Status::Blocked { .. })))
    }

    /// Changes a class and updates all indexes.
    pub(super) fn update(&mut self, id: ClassId, change: impl FnOnce(&mut Class)) {
        let Some(mut class) = self.classes.remove(&id) else { return };
        self.changed.insert(class.team);
        self.set_indexed(id, &class, false);
        change(Arc::make_mut(&mut class));
        self.set_indexed(id, &class, true);
        self.classes.insert(id, class);
    }

    /// Adds a class to all indexes, or removes it from them.
    fn set_indexed(&mut self, id: ClassId, class: &Class, indexed: bool) {
        let Some(rank) = class.first() else { return };
        let (first, team) = ((rank, id), class.team);
        if class.status.may_be_within_guarantee() {
            self.potential_preemptors.set(class.demand(), team, id, indexed);
        }
        self.retry.set(id, class, indexed);
        for condition in class.status.conditions() {
            self.conditions.set(team, &first, condition, indexed);
        }
        if class.status.lacks_quota() {
            self.conditions.set_limited(team, first.clone(), indexed);
        }
        if matches!(class.status, Status::Active) {
            set_member(&mut self.active, team, first, indexed);
            self.newly_active.insert(team);
        }
    }
}
