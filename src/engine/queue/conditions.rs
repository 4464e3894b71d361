//! The blocked classes, indexed by the conditions they are blocked on.

use std::collections::{BTreeMap, BTreeSet};

use crate::queue::class::{Condition, First};
use crate::types::Name;
use crate::types::ids::{ClassId, HeadroomId, PoolId, TeamId};
use crate::types::ratio::Ratio;

/// The classes that are blocked on each condition.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    /// The classes blocked on headroom, by team, shape and number of pods.
    headroom: BTreeMap<TeamId, BTreeMap<(HeadroomId, u64), BTreeSet<First>>>,
    /// How many classes of a team are blocked on headroom, by shape and number of pods.
    headroom_teams: BTreeMap<HeadroomId, BTreeMap<(u64, TeamId), usize>>,
    quotas: BTreeMap<(PoolId, TeamId), BTreeSet<ClassId>>,
    guarantees: BTreeMap<(PoolId, TeamId), BTreeSet<ClassId>>,
    shares: BTreeMap<PoolId, BTreeSet<(Ratio, ClassId)>>,
    queues: BTreeMap<(TeamId, Name), BTreeSet<ClassId>>,
    budgets: BTreeMap<TeamId, BTreeSet<ClassId>>,
    /// The classes blocked on quota and not on headroom, by team.
    limited: BTreeMap<TeamId, BTreeSet<First>>,
}

impl Conditions {
    /// Adds the first workload of a class to a condition of that class, or removes it.
    pub fn set(&mut self, team: TeamId, first: &First, condition: &Condition, blocked: bool) {
        let class = first.1;
        match condition {
            Condition::Quota(pool, of) => set_member(&mut self.quotas, (*pool, *of), class, blocked),
            Condition::Guarantee(pool, of) => set_member(&mut self.guarantees, (*pool, *of), class, blocked),
            Condition::Share(pool, share) => set_member(&mut self.shares, *pool, (*share, class), blocked),
            Condition::Queue(of, queue) => {
                set_member(&mut self.queues, (*of, queue.clone()), class, blocked);
            }
            Condition::Budget(of) => set_member(&mut self.budgets, *of, class, blocked),
            Condition::Headroom(shape, pods) => self.set_headroom(team, first, (*shape, *pods), blocked),
        }
    }

    /// Adds the first workload of a class that waits for quota and not for headroom, or removes it.
    pub fn set_limited(&mut self, team: TeamId, first: First, blocked: bool) {
        set_member(&mut self.limited, team, first, blocked);
    }

    /// The first workload of a team that waits for quota, of the classes for which `which` is true.
    pub fn first_limited(&self, team: TeamId, which: impl Fn(ClassId) -> bool) -> Option<&First> {
        self.limited.get(&team)?.iter().find(|(_, class)| which(*class))
    }

    /// The classes of a team that wait for quota and not for headroom.
    pub fn limited(&self, team: TeamId) -> Vec<ClassId> {
        self.limited.get(&team).into_iter().flatten().map(|(_, class)| *class).collect()
    }

    fn set_headroom(&mut self, team: TeamId, first: &First, wanted: (HeadroomId, u64), blocked: bool) {
        let gates = self.headroom.entry(team).or_default();
        set_member(gates, wanted, first.clone(), blocked);
        if gates.is_empty() {
            self.headroom.remove(&team);
        }
        let (shape, pods) = wanted;
        let teams = self.headroom_teams.entry(shape).or_default();
        let classes = teams.entry((pods, team)).or_default();
        *classes = if blocked { *classes + 1 } else { classes.saturating_sub(1) };
        if *classes == 0 {
            teams.remove(&(pods, team));
        }
        if teams.is_empty() {
            self.headroom_teams.remove(&shape);
        }
    }

    /// The classes of a team that are blocked on headroom which suffices now, by the headroom of each shape.
    pub fn firsts_that_fit(
        &self,
        team: TeamId,
        headroom: impl Fn(HeadroomId) -> u64,
    ) -> impl Iterator<Item = &First> {
        let gates = self.headroom.get(&team).into_iter().flatten();
        let open = gates.filter(move |((shape, pods), _)| headroom(*shape) >= *pods);
        open.filter_map(|(_, firsts)| firsts.first())
    }

    /// The first workload of a team that is blocked on headroom of one of these shapes, without the classes
    /// in `except`.
    pub fn first_waiting(
        &self,
        team: TeamId,
        wanted: impl Fn(HeadroomId) -> bool,
        except: &BTreeMap<ClassId, TeamId>,
    ) -> Option<&First> {
        let gates = self.headroom.get(&team)?.iter().filter(|((shape, _), _)| wanted(*shape));
        gates.filter_map(|(_, firsts)| firsts.iter().find(|(_, class)| !except.contains_key(class))).min()
    }

    /// The teams with a class for which headroom of `now` pods suffices, and headroom of `before` pods did not.
    pub fn teams_waiting_for(
        &self,
        shape: HeadroomId,
        before: u64,
        now: u64,
    ) -> impl Iterator<Item = TeamId> + '_ {
        let teams = self.headroom_teams.get(&shape).filter(|_| before < now).into_iter();
        let opened = (before + 1, TeamId::MIN)..(now + 1, TeamId::MIN);
        teams.flat_map(move |teams| teams.range(opened.clone())).map(|((_, team), _)| *team)
    }

    /// Whether a class is blocked on headroom of a shape.
    pub fn waits_for(&self, shape: HeadroomId) -> bool {
        self.headroom_teams.contains_key(&shape)
    }

    /// The classes that are blocked on the usage of a team in a pool.
    pub fn on_quota(&self, pool: PoolId, team: TeamId) -> Vec<ClassId> {
        self.quotas.get(&(pool, team)).into_iter().flatten().copied().collect()
    }

    /// The classes that wait for more of the guarantee of a team in a pool to be idle.
    pub fn on_guarantee(&self, pool: PoolId, team: TeamId) -> Vec<ClassId> {
        self.guarantees.get(&(pool, team)).into_iter().flatten().copied().collect()
    }

    /// The classes that are blocked on the usage of a queue.
    pub fn on_queue(&self, team: TeamId, queue: &Name) -> Vec<ClassId> {
        self.queues.get(&(team, queue.clone())).into_iter().flatten().copied().collect()
    }

    /// The classes that are blocked on the budget of a team.
    pub fn on_budget(&self, team: TeamId) -> Vec<ClassId> {
        self.budgets.get(&team).into_iter().flatten().copied().collect()
    }

    /// The teams with budgets that classes are blocked on.
    pub fn budgets(&self) -> impl Iterator<Item = TeamId> + '_ {
        self.budgets.keys().copied()
    }

    /// The classes that may preempt from a team with this share.
    pub fn on_share(&self, pool: PoolId, share: Ratio) -> Vec<ClassId> {
        let classes = self.shares.get(&pool).into_iter();
        classes.flat_map(|classes| classes.range(..=(share, ClassId::MAX))).map(|(_, class)| *class).collect()
    }
}

/// Adds an item to one of several sets, or removes it. Empty sets are dropped.
pub fn set_member<K: Ord, T: Ord>(sets: &mut BTreeMap<K, BTreeSet<T>>, key: K, item: T, member: bool) {
    if member {
        sets.entry(key).or_default().insert(item);
    } else if let Some(set) = sets.get_mut(&key) {
        set.remove(&item);
        if set.is_empty() {
            sets.remove(&key);
        }
    }
}
