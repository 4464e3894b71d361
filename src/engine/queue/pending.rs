//! Who waits, in order, grouped so that workloads that are alike are looked at once.
//!
//! Within a team the order is the one of [`rank`]. Workloads that cannot be told apart by any decision form
//! a class; when the first of a class cannot start, none can. Where users take turns a class is of one user,
//! so what that user holds moves whole classes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::state::users::{UserOf, UserShare};
use crate::types::ids::{ClassId, HeadroomId, PoolId, TeamId, WorkloadIndex};
use crate::types::ratio::Ratio;
use crate::types::{Name, PodShape, Size, Topology, Verdict, WorkloadId};

pub use crate::queue::rank::Rank;

/// What decides about a workload besides its place in the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClassKey {
    /// Its queue by name.
    pub queue: Option<Name>,
    /// Its PriorityClass value.
    pub priority: i32,
    /// How many pods it wants.
    pub pods: u32,
    /// With how many it may start.
    pub least_pods: u32,
    /// What each of them needs.
    pub shape: Arc<PodShape>,
    /// The sizes with which it would make do.
    pub sizes: Vec<Size>,
    /// Within which domains they are to lie.
    pub topology: Topology,
    /// The pools it may use.
    pub pools: Vec<Name>,
    /// Whether it can be evicted at all.
    pub evictable: bool,
    /// How long it says it will run at most, which decides whom it may pass.
    pub time_limit: Option<Duration>,
    /// Whose they are, where the users of the team take turns.
    pub user: Option<Name>,
}

/// Something without a change of which a class cannot start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// Room for so many pods must come free.
    Headroom(HeadroomId, u64),
    /// What a team holds in a pool must change.
    Quota(PoolId, TeamId),
    /// Somebody with at least such a share must have something that can be taken.
    Share(PoolId, Ratio),
    /// What a queue holds must change.
    Queue(TeamId, Name),
}

/// What is to be expected of a waiting workload that cannot start now.
pub enum Blocked {
    /// It cannot before one of these changes.
    Until(Vec<Condition>),
    /// It cannot start before one of these changes, but others might have to make room for it.
    MayPreempt {
        /// What is missing for a start.
        conditions: Vec<Condition>,
        /// Whether its own guarantee holds it.
        within_guarantee: bool,
    },
    /// Nothing that is known of here keeps it from starting.
    Unknown,
}

/// Whether a class is to be looked at.
#[derive(Clone, Debug, Default)]
enum Status {
    /// It may be able to start.
    #[default]
    Active,
    /// It could not start when it was looked at in that epoch; anything that makes room may change that.
    Backlog { generation: u64 },
    /// It cannot start before one of these has changed.
    Blocked(Vec<Condition>),
    /// The same, but others might have to make room for it. None did when it was looked at in that epoch.
    MayPreempt { conditions: Vec<Condition>, within_guarantee: bool, generation: u64 },
}

/// The waiting workloads of one team that are alike.
#[derive(Clone, Debug)]
struct Class {
    team: TeamId,
    key: ClassKey,
    waiting: BTreeSet<Rank>,
    /// What their user holds, where users take turns.
    held: UserShare,
    status: Status,
    /// Why the first could not start when it was looked at last.
    refusal: Option<Verdict>,
}

/// The first of a class, in the order of its team.
type First = (Rank, ClassId);

/// What the workloads of a class must have to start: so many such pods, lying like that, in one of these pools.
pub type Wanted = (u32, Arc<PodShape>, Topology, Vec<Name>);

/// All waiting workloads.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    classes: BTreeMap<ClassId, Class>,
    next: ClassId,
    index: BTreeMap<TeamId, BTreeMap<ClassKey, ClassId>>,
    /// The classes of each user, where users take turns.
    users: BTreeMap<UserOf, BTreeSet<ClassId>>,
    places: BTreeMap<WorkloadId, (ClassId, Rank)>,
    ready: BTreeMap<TeamId, BTreeSet<First>>,
    /// Classes that anything that makes room may let start, by since when nothing is known to have.
    backlog: BTreeSet<(u64, ClassId)>,
    backlog_of: BTreeMap<TeamId, BTreeSet<ClassId>>,
    /// Classes for which others might have to make room, by whether they are owed none, and since when
    /// nothing is known to have made a difference.
    may_preempt: BTreeSet<(bool, u64, ClassId)>,
    may_preempt_of: BTreeMap<TeamId, BTreeSet<ClassId>>,
    /// Classes that may be owed room, by what they must have.
    potential_preemptors: BTreeMap<Wanted, BTreeSet<(TeamId, ClassId)>>,
    /// Classes that wait for room, by team, then by what they wait for.
    gates: BTreeMap<TeamId, BTreeMap<(HeadroomId, u64), BTreeSet<First>>>,
    /// The teams of which somebody waits for so much room, with how many classes.
    gate_teams: BTreeMap<HeadroomId, BTreeMap<(u64, TeamId), usize>>,
    quota_usages: BTreeMap<(PoolId, TeamId), BTreeSet<ClassId>>,
    shares: BTreeMap<PoolId, BTreeSet<(Ratio, ClassId)>>,
    queues: BTreeMap<(TeamId, Name), BTreeSet<ClassId>>,
    /// Teams of which somebody has become ready since they were asked for.
    newly_active: BTreeSet<TeamId>,
}

impl Pending {
    /// Puts a workload in its place; it is taken out of any other first. It is to be looked at if it is
    /// the first of its kind, or was changed. `held` is what its user holds, where users take turns.
    pub fn insert(&mut self, team: TeamId, key: ClassKey, rank: Rank, held: UserShare) {
        let known = self.index.get(&team).and_then(|classes| classes.get(&key)).copied();
        if let Some((class, old)) = self.places.get(rank.id()) {
            if Some(*class) == known && *old == rank {
                return;
            }
            self.remove(&rank.id().clone());
        }
        let class = self.index.get(&team).and_then(|classes| classes.get(&key)).copied();
        let class = class.unwrap_or_else(|| {
            let class = self.next;
            self.next = self.next.next();
            self.index.entry(team).or_default().insert(key.clone(), class);
            if let Some(user) = key.user.clone() {
                self.users.entry((team, user)).or_default().insert(class);
            }
            let (waiting, status) = (BTreeSet::new(), Status::Active);
            self.classes.insert(class, Class { team, key, waiting, held, status, refusal: None });
            class
        });
        self.places.insert(rank.id().clone(), (class, rank.clone()));
        self.refile(class, |class| {
            class.waiting.insert(rank);
        });
    }

    /// Takes a workload out.
    pub fn remove(&mut self, id: &WorkloadId) {
        let Some((class, rank)) = self.places.remove(id) else { return };
        self.refile(class, |class| {
            class.waiting.remove(&rank);
        });
        if self.classes.get(&class).is_some_and(|class| class.waiting.is_empty())
            && let Some(Class { team, key, .. }) = self.classes.remove(&class)
            && let Some(classes) = self.index.get_mut(&team)
        {
            classes.remove(&key);
            if classes.is_empty() {
                self.index.remove(&team);
            }
            if let Some(user) = key.user {
                put(&mut self.users, (team, user), class, false);
            }
        }
    }

    /// The rank of a workload among those of its team that wait.
    #[must_use]
    pub fn rank(&self, id: &WorkloadId) -> Option<Rank> {
        let (class, rank) = self.places.get(id)?;
        let held = self.classes.get(class).map_or(0, |class| class.held);
        Some(rank.clone().holding(held))
    }

    /// Puts all that a user has waiting where it belongs by what the user holds of its first pool.
    pub fn weigh(&mut self, team: TeamId, user: &Name, held: impl Fn(&[Name]) -> UserShare) {
        let classes = self.users.get(&(team, user.clone()));
        for class in classes.into_iter().flatten().copied().collect::<Vec<_>>() {
            let Some(known) = self.classes.get(&class) else { continue };
            let now = held(&known.key.pools);
            if now != known.held {
                self.refile(class, |class| class.held = now);
            }
        }
    }

    /// The classes of which somebody goes before a workload of the same team.
    #[must_use]
    pub fn ahead_of(&self, id: &WorkloadId) -> Vec<ClassId> {
        let class = self.class_of(id).and_then(|class| self.classes.get(&class));
        let (Some(rank), Some(team)) = (self.rank(id), class.map(|class| class.team)) else {
            return Vec::new();
        };
        let before = |class: &Class| {
            class.waiting.first().is_some_and(|first| first.clone().holding(class.held) < rank)
        };
        let classes = self.index.get(&team).into_iter().flat_map(BTreeMap::values).copied();
        classes.filter(|class| self.classes.get(class).is_some_and(before)).collect()
    }

    /// The class a workload waits in.
    #[must_use]
    pub fn class_of(&self, id: &WorkloadId) -> Option<ClassId> {
        self.places.get(id).map(|(class, _)| *class)
    }

    /// Whose a class is, and its first.
    #[must_use]
    pub fn first_of(&self, class: ClassId) -> Option<(TeamId, &Rank)> {
        self.classes.get(&class).and_then(|class| Some((class.team, class.waiting.first()?)))
    }

    /// The first of every class of a team.
    pub fn firsts_of(&self, team: TeamId) -> impl Iterator<Item = &WorkloadId> {
        let classes = self.index.get(&team).into_iter().flat_map(BTreeMap::values);
        let classes = classes.filter_map(|class| self.classes.get(class));
        classes.filter_map(|class| class.waiting.first()).map(Rank::id)
    }

    /// The first of every class, with how many there are in it.
    pub fn firsts(&self) -> impl Iterator<Item = (&WorkloadId, usize)> {
        let classes =
            self.index.values().flat_map(BTreeMap::values).filter_map(|class| self.classes.get(class));
        classes.filter_map(|class| class.waiting.first().map(|rank| (rank.id(), class.waiting.len())))
    }

    /// The classes that might be owed room and start, were it there, by what they must have, with the first of one
    /// and the teams: whoever watches for something is known not to be owed any.
    pub fn potential_preemptors(
        &self,
    ) -> impl Iterator<Item = (&Wanted, WorkloadIndex, impl Iterator<Item = TeamId>)> {
        self.potential_preemptors.keys().filter_map(|wanted| {
            Some((wanted, self.one_potential_preemptor(wanted)?, self.potential_preemptor_teams(wanted)))
        })
    }

    /// The teams of those who must have that.
    pub fn potential_preemptor_teams(&self, wanted: &Wanted) -> impl Iterator<Item = TeamId> {
        let mut last = None;
        let teams = self.potential_preemptors.get(wanted).into_iter().flatten().map(|(team, _)| *team);
        teams.filter(move |team| last.replace(*team) != Some(*team))
    }

    /// One of them who must have that.
    #[must_use]
    pub fn one_potential_preemptor(&self, wanted: &Wanted) -> Option<WorkloadIndex> {
        let (_, class) = self.potential_preemptors.get(wanted)?.first()?;
        self.place_of_first(*class)
    }

    /// Those of a team who must have that, the first of each class.
    pub fn potential_preemptors_of(
        &self,
        wanted: &Wanted,
        team: TeamId,
    ) -> impl Iterator<Item = WorkloadIndex> {
        let classes = self.potential_preemptors.get(wanted).into_iter();
        let classes =
            classes.flat_map(move |classes| classes.range((team, ClassId::MIN)..=(team, ClassId::MAX)));
        classes.filter_map(|(_, class)| self.place_of_first(*class))
    }

    fn place_of_first(&self, class: ClassId) -> Option<WorkloadIndex> {
        self.classes.get(&class)?.waiting.first().map(Rank::place)
    }

    /// The teams of which somebody has become ready since this was last asked.
    pub fn take_newly_active(&mut self) -> BTreeSet<TeamId> {
        std::mem::take(&mut self.newly_active)
    }

    /// The teams with somebody for whom room for `pods` of a shape is enough, and for `before` was not.
    pub fn teams_waiting_for(
        &self,
        room: HeadroomId,
        before: u64,
        pods: u64,
    ) -> impl Iterator<Item = TeamId> + '_ {
        let teams = self.gate_teams.get(&room).filter(|_| before < pods).into_iter();
        let opened = (before + 1, TeamId::MIN)..(pods + 1, TeamId::MIN);
        teams.flat_map(move |teams| teams.range(opened.clone())).map(|((_, team), _)| *team)
    }

    /// The first of the team that may be able to start, given how many pods of which shape find room.
    #[must_use]
    pub fn head(&self, team: TeamId, room: impl Fn(HeadroomId) -> u64) -> Option<&Rank> {
        let ready = self.ready.get(&team).and_then(BTreeSet::first);
        let gates = self.gates.get(&team).into_iter().flatten();
        let open = gates.filter(|((shape, pods), _)| room(*shape) >= *pods);
        let heads = open.filter_map(|(_, firsts)| firsts.first()).chain(ready);
        heads.min().map(|(rank, _)| rank)
    }

    /// The first of the team that waits for room for one of these shapes, some classes aside.
    #[must_use]
    pub fn first_waiting(
        &self,
        team: TeamId,
        wanted: impl Fn(HeadroomId) -> bool,
        aside: &BTreeSet<ClassId>,
    ) -> Option<&(Rank, ClassId)> {
        let gates = self.gates.get(&team)?.iter().filter(|((room, _), _)| wanted(*room));
        gates.filter_map(|(_, firsts)| firsts.iter().find(|(_, class)| !aside.contains(class))).min()
    }

    /// Whether anybody waits for room for that shape.
    #[must_use]
    pub fn waits_for(&self, room: HeadroomId) -> bool {
        self.gate_teams.contains_key(&room)
    }

    /// Notes that a workload, and so all that are like it, could not start: until something changes that
    /// its outlook names; if there is nothing of the kind, until anything makes room.
    pub fn block(&mut self, id: &WorkloadId, outlook: Blocked, generation: u64, verdict: Verdict) {
        let Some(class) = self.class_of(id) else { return };
        self.refile(class, |class| {
            class.status = match outlook {
                Blocked::Until(conditions) => Status::Blocked(conditions),
                Blocked::MayPreempt { conditions, within_guarantee } => {
                    Status::MayPreempt { conditions, within_guarantee, generation }
                }
                Blocked::Unknown => Status::Backlog { generation },
            };
            class.refusal = Some(verdict);
        });
    }

    /// Takes note of another outlook of a class than before. If it is room now that is missing, the class
    /// is to be looked at: for it may be its turn for room to be reserved.
    pub fn reconsider(&mut self, class: ClassId, outlook: Blocked) {
        let for_room = |conditions: &[Condition]| {
            conditions.iter().any(|condition| matches!(condition, Condition::Headroom(..)))
        };
        match (self.classes.get(&class).map(|class| &class.status), outlook) {
            (Some(Status::Blocked(before)), Blocked::Until(conditions)) if *before == conditions => {}
            (
                Some(Status::Blocked(before) | Status::MayPreempt { conditions: before, .. }),
                Blocked::Until(conditions),
            ) if for_room(before) || !for_room(&conditions) => {
                self.refile(class, |class| class.status = Status::Blocked(conditions));
            }
            (
                Some(Status::Blocked(before) | Status::MayPreempt { conditions: before, .. }),
                Blocked::MayPreempt { conditions, within_guarantee },
            ) if for_room(before) || !for_room(&conditions) => {
                self.refile(class, |class| {
                    class.status = Status::MayPreempt { conditions, within_guarantee, generation: 0 }
                });
            }
            _ => self.wake(class),
        }
    }

    /// Lets so many be looked at again for whom others might have to make room since something has made
    /// room after they were looked at last, those that are owed it first. False if there are none.
    pub fn wake_may_preempt(&mut self, generation: u64, most: usize) -> bool {
        let stale = |none_within_guarantee: bool| {
            self.may_preempt
                .range(
                    (none_within_guarantee, 0, ClassId::MIN)
                        ..(none_within_guarantee, generation, ClassId::MIN),
                )
                .map(|(_, _, class)| *class)
        };
        let classes: Vec<ClassId> = stale(false).chain(stale(true)).take(most).collect();
        for class in &classes {
            self.wake(*class);
        }
        !classes.is_empty()
    }

    /// Whether anybody is left for [`Self::wake_undecided`] or [`Self::wake_doubtful`].
    #[must_use]
    pub fn has_backlog(&self, generation: u64) -> bool {
        let stale = |none_within_guarantee: bool| {
            self.may_preempt
                .range(
                    (none_within_guarantee, 0, ClassId::MIN)
                        ..(none_within_guarantee, generation, ClassId::MIN),
                )
                .next()
                .is_some()
        };
        stale(false) || stale(true) || self.backlog.range(..(generation, ClassId::MIN)).next().is_some()
    }

    /// Lets a class be looked at.
    pub fn wake(&mut self, class: ClassId) {
        if self.classes.get(&class).is_some_and(|class| !matches!(class.status, Status::Active)) {
            self.refile(class, |class| class.status = Status::Active);
        }
    }

    /// Lets so many be looked at again that anything may let start that has made room since they were looked
    /// at last; how many that are.
    pub fn wake_backlog(&mut self, generation: u64, most: usize) -> usize {
        let stale = self.backlog.range(..(generation, ClassId::MIN)).map(|(_, class)| *class);
        let classes: Vec<ClassId> = stale.take(most).collect();
        for class in &classes {
            self.wake(*class);
        }
        classes.len()
    }

    /// Lets everybody be looked at again.
    pub fn wake_all(&mut self) {
        let classes: Vec<ClassId> = self.classes.keys().copied().collect();
        for class in classes {
            self.wake(class);
        }
    }

    /// The classes that watch what a team holds in a pool.
    pub fn blocked_on_quota(&self, pool: PoolId, team: TeamId) -> Vec<ClassId> {
        self.quota_usages.get(&(pool, team)).into_iter().flatten().copied().collect()
    }

    /// The classes that watch what a queue holds.
    pub fn blocked_on_queue(&self, team: TeamId, queue: &Name) -> Vec<ClassId> {
        self.queues.get(&(team, queue.clone())).into_iter().flatten().copied().collect()
    }

    /// The classes for which a share of that size is enough to take from.
    pub fn blocked_on_share(&self, pool: PoolId, share: Ratio) -> Vec<ClassId> {
        let classes = self.shares.get(&pool).into_iter();
        classes.flat_map(|classes| classes.range(..=(share, ClassId::MAX))).map(|(_, class)| *class).collect()
    }

    /// Why a workload, or one like it, could not start when it was looked at, and whether that is bound to
    /// be so still; `None` when it does not wait or was not looked at.
    #[must_use]
    pub fn refusal(&self, id: &WorkloadId) -> Option<(&Verdict, bool)> {
        let class = self.classes.get(&self.class_of(id)?)?;
        Some((class.refusal.as_ref()?, !matches!(class.status, Status::Blocked(_))))
    }

    /// The teams of which somebody waits for room for that shape.
    pub fn teams_at(&self, room: HeadroomId) -> impl Iterator<Item = TeamId> + '_ {
        self.gate_teams.get(&room).into_iter().flat_map(|teams| teams.keys()).map(|(_, team)| *team)
    }

    /// Changes a class and files it anew under what it is and waits for.
    fn refile(&mut self, number: ClassId, change: impl FnOnce(&mut Class)) {
        let Some(mut class) = self.classes.remove(&number) else { return };
        self.file(number, &class, false);
        change(&mut class);
        self.file(number, &class, true);
        self.classes.insert(number, class);
    }

    /// Files a class, or takes it out of the files.
    fn file(&mut self, number: ClassId, class: &Class, into: bool) {
        let Some(first) = class.waiting.first() else { return };
        let first = (first.clone().holding(class.held), number);
        let team = class.team;
        if !matches!(class.status, Status::Blocked(_) | Status::MayPreempt { within_guarantee: false, .. }) {
            let ClassKey { least_pods, shape, topology, pools, .. } = &class.key;
            let wanted = (*least_pods, Arc::clone(shape), topology.clone(), pools.clone());
            put(&mut self.potential_preemptors, wanted, (team, number), into);
        }
        match &class.status {
            Status::Active => {
                put(&mut self.ready, team, first, into);
                self.newly_active.insert(team);
            }
            Status::Backlog { generation } => {
                if into {
                    self.backlog.insert((*generation, number));
                } else {
                    self.backlog.remove(&(*generation, number));
                }
                put(&mut self.backlog_of, team, number, into);
            }
            Status::Blocked(conditions) => {
                for condition in conditions {
                    self.file_condition(number, team, &first, condition, into);
                }
            }
            Status::MayPreempt { conditions, within_guarantee, generation } => {
                let place = (!within_guarantee, *generation, number);
                if into {
                    self.may_preempt.insert(place);
                } else {
                    self.may_preempt.remove(&place);
                }
                put(&mut self.may_preempt_of, team, number, into);
                for condition in conditions {
                    self.file_condition(number, team, &first, condition, into);
                }
            }
        }
    }

    fn file_condition(
        &mut self,
        number: ClassId,
        team: TeamId,
        first: &First,
        condition: &Condition,
        into: bool,
    ) {
        match condition {
            Condition::Quota(pool, at) => put(&mut self.quota_usages, (*pool, *at), number, into),
            Condition::Share(pool, share) => put(&mut self.shares, *pool, (*share, number), into),
            Condition::Queue(at, queue) => put(&mut self.queues, (*at, queue.clone()), number, into),
            Condition::Headroom(room, pods) => {
                let gates = self.gates.entry(team).or_default();
                put(gates, (*room, *pods), first.clone(), into);
                if gates.is_empty() {
                    self.gates.remove(&team);
                }
                let teams = self.gate_teams.entry(*room).or_default();
                let classes = teams.entry((*pods, team)).or_default();
                *classes = if into { *classes + 1 } else { classes.saturating_sub(1) };
                if *classes == 0 {
                    teams.remove(&(*pods, team));
                }
                if teams.is_empty() {
                    self.gate_teams.remove(room);
                }
            }
        }
    }
}

/// Puts an item into one of many sets, or takes it out; no set is kept that is empty.
fn put<K: Ord, T: Ord>(sets: &mut BTreeMap<K, BTreeSet<T>>, key: K, item: T, into: bool) {
    if into {
        sets.entry(key).or_default().insert(item);
    } else if let Some(set) = sets.get_mut(&key) {
        set.remove(&item);
        if set.is_empty() {
            sets.remove(&key);
        }
    }
}
