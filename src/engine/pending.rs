//! Who waits, in order, grouped so that workloads that are alike are looked at once.
//!
//! Within a team the order is the one of [`rank`]. Workloads that cannot be told apart by any decision form
//! a class; when the first of a class cannot start, none can. Where users take turns a class is of one user,
//! so what that user holds moves whole classes.

mod rank;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::books::Place;
use super::decision::Verdict;
use super::forest::{PoolIx, TeamIx};
use super::model::{Name, PodShape, Size, Topology, WorkloadId};
use super::rooms::RoomIx;
use super::share::Ratio;
use super::users::{Part, UserOf};
pub use rank::Rank;

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

/// Number of a class in [`Pending`].
pub type ClassIx = usize;

/// Something without a change of which a class cannot start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watch {
    /// Room for so many pods must come free.
    Room(RoomIx, u64),
    /// What a team holds in a pool must change.
    Account(PoolIx, TeamIx),
    /// Somebody with at least such a share must have something that can be taken.
    Share(PoolIx, Ratio),
    /// What a queue holds must change.
    Queue(TeamIx, Name),
}

/// What is to be expected of a waiting workload that cannot start now.
pub enum Outlook {
    /// It cannot before one of these changes.
    Hopeless(Vec<Watch>),
    /// It cannot start before one of these changes, but others might have to make room for it.
    Claim {
        /// What is missing for a start.
        watches: Vec<Watch>,
        /// Whether its own guarantee holds it.
        owed: bool,
    },
    /// Nothing that is known of here keeps it from starting.
    Open,
}

/// Whether a class is to be looked at.
#[derive(Clone, Debug, Default)]
enum Status {
    /// It may be able to start.
    #[default]
    Ready,
    /// It could not start when it was looked at in that epoch; anything that makes room may change that.
    Undecided { epoch: u64 },
    /// It cannot start before one of these has changed.
    Watching(Vec<Watch>),
    /// The same, but others might have to make room for it. None did when it was looked at in that epoch.
    Doubtful { watches: Vec<Watch>, owed: bool, epoch: u64 },
}

/// The waiting workloads of one team that are alike.
#[derive(Clone, Debug)]
struct Class {
    team: TeamIx,
    key: ClassKey,
    waiting: BTreeSet<Rank>,
    /// What their user holds, where users take turns.
    held: Part,
    status: Status,
    /// Why the first could not start when it was looked at last.
    refusal: Option<Verdict>,
}

/// The first of a class, in the order of its team.
type First = (Rank, ClassIx);

/// What the workloads of a class must have to start: so many such pods, lying like that, in one of these pools.
pub type Wanted = (u32, Arc<PodShape>, Topology, Vec<Name>);

/// All waiting workloads.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    classes: BTreeMap<ClassIx, Class>,
    next: ClassIx,
    index: BTreeMap<TeamIx, BTreeMap<ClassKey, ClassIx>>,
    /// The classes of each user, where users take turns.
    users: BTreeMap<UserOf, BTreeSet<ClassIx>>,
    places: BTreeMap<WorkloadId, (ClassIx, Rank)>,
    ready: BTreeMap<TeamIx, BTreeSet<First>>,
    /// Classes that anything that makes room may let start, by since when nothing is known to have.
    undecided: BTreeSet<(u64, ClassIx)>,
    undecided_of: BTreeMap<TeamIx, BTreeSet<ClassIx>>,
    /// Classes for which others might have to make room, by whether they are owed none, and since when
    /// nothing is known to have made a difference.
    doubtful: BTreeSet<(bool, u64, ClassIx)>,
    doubtful_of: BTreeMap<TeamIx, BTreeSet<ClassIx>>,
    /// Classes that may be owed room, by what they must have.
    hopeful: BTreeMap<Wanted, BTreeSet<(TeamIx, ClassIx)>>,
    /// Classes that wait for room, by team, then by what they wait for.
    gates: BTreeMap<TeamIx, BTreeMap<(RoomIx, u64), BTreeSet<First>>>,
    /// The teams of which somebody waits for so much room, with how many classes.
    gate_teams: BTreeMap<RoomIx, BTreeMap<(u64, TeamIx), usize>>,
    accounts: BTreeMap<(PoolIx, TeamIx), BTreeSet<ClassIx>>,
    shares: BTreeMap<PoolIx, BTreeSet<(Ratio, ClassIx)>>,
    queues: BTreeMap<(TeamIx, Name), BTreeSet<ClassIx>>,
    /// Teams of which somebody has become ready since they were asked for.
    stirred: BTreeSet<TeamIx>,
}

impl Pending {
    /// Puts a workload in its place; it is taken out of any other first. It is to be looked at if it is
    /// the first of its kind, or was changed. `held` is what its user holds, where users take turns.
    pub fn insert(&mut self, team: TeamIx, key: ClassKey, rank: Rank, held: Part) {
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
            self.next += 1;
            self.index.entry(team).or_default().insert(key.clone(), class);
            if let Some(user) = key.user.clone() {
                self.users.entry((team, user)).or_default().insert(class);
            }
            let (waiting, status) = (BTreeSet::new(), Status::Ready);
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
    pub fn weigh(&mut self, team: TeamIx, user: &Name, held: impl Fn(&[Name]) -> Part) {
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
    pub fn ahead_of(&self, id: &WorkloadId) -> Vec<ClassIx> {
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
    pub fn class_of(&self, id: &WorkloadId) -> Option<ClassIx> {
        self.places.get(id).map(|(class, _)| *class)
    }

    /// Whose a class is, and its first.
    #[must_use]
    pub fn first_of(&self, class: ClassIx) -> Option<(TeamIx, &Rank)> {
        self.classes.get(&class).and_then(|class| Some((class.team, class.waiting.first()?)))
    }

    /// The first of every class of a team.
    pub fn firsts_of(&self, team: TeamIx) -> impl Iterator<Item = &WorkloadId> {
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
    pub fn hopeful(&self) -> impl Iterator<Item = (&Wanted, Place, impl Iterator<Item = TeamIx>)> {
        self.hopeful
            .keys()
            .filter_map(|wanted| Some((wanted, self.one_hopeful(wanted)?, self.hopeful_teams(wanted))))
    }

    /// The teams of those who must have that.
    pub fn hopeful_teams(&self, wanted: &Wanted) -> impl Iterator<Item = TeamIx> {
        let mut last = None;
        let teams = self.hopeful.get(wanted).into_iter().flatten().map(|(team, _)| *team);
        teams.filter(move |team| last.replace(*team) != Some(*team))
    }

    /// One of them who must have that.
    #[must_use]
    pub fn one_hopeful(&self, wanted: &Wanted) -> Option<Place> {
        let (_, class) = self.hopeful.get(wanted)?.first()?;
        self.place_of_first(*class)
    }

    /// Those of a team who must have that, the first of each class.
    pub fn hopeful_of(&self, wanted: &Wanted, team: TeamIx) -> impl Iterator<Item = Place> {
        let classes = self.hopeful.get(wanted).into_iter();
        let classes = classes.flat_map(move |classes| classes.range((team, 0)..=(team, ClassIx::MAX)));
        classes.filter_map(|(_, class)| self.place_of_first(*class))
    }

    fn place_of_first(&self, class: ClassIx) -> Option<Place> {
        self.classes.get(&class)?.waiting.first().map(Rank::place)
    }

    /// The teams of which somebody has become ready since this was last asked.
    pub fn take_stirred(&mut self) -> BTreeSet<TeamIx> {
        std::mem::take(&mut self.stirred)
    }

    /// The teams with somebody for whom room for `pods` of a shape is enough, and for `before` was not.
    pub fn teams_waiting_for(
        &self,
        room: RoomIx,
        before: u64,
        pods: u64,
    ) -> impl Iterator<Item = TeamIx> + '_ {
        let teams = self.gate_teams.get(&room).filter(|_| before < pods).into_iter();
        let opened = (before + 1, 0)..(pods + 1, 0);
        teams.flat_map(move |teams| teams.range(opened.clone())).map(|((_, team), _)| *team)
    }

    /// The first of the team that may be able to start, given how many pods of which shape find room.
    #[must_use]
    pub fn head(&self, team: TeamIx, room: impl Fn(RoomIx) -> u64) -> Option<&Rank> {
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
        team: TeamIx,
        wanted: impl Fn(RoomIx) -> bool,
        aside: &BTreeSet<ClassIx>,
    ) -> Option<&(Rank, ClassIx)> {
        let gates = self.gates.get(&team)?.iter().filter(|((room, _), _)| wanted(*room));
        gates.filter_map(|(_, firsts)| firsts.iter().find(|(_, class)| !aside.contains(class))).min()
    }

    /// Whether anybody waits for room for that shape.
    #[must_use]
    pub fn waits_for(&self, room: RoomIx) -> bool {
        self.gate_teams.contains_key(&room)
    }

    /// Notes that a workload, and so all that are like it, could not start: until something changes that
    /// its outlook names; if there is nothing of the kind, until anything makes room.
    pub fn block(&mut self, id: &WorkloadId, outlook: Outlook, epoch: u64, verdict: Verdict) {
        let Some(class) = self.class_of(id) else { return };
        self.refile(class, |class| {
            class.status = match outlook {
                Outlook::Hopeless(watches) => Status::Watching(watches),
                Outlook::Claim { watches, owed } => Status::Doubtful { watches, owed, epoch },
                Outlook::Open => Status::Undecided { epoch },
            };
            class.refusal = Some(verdict);
        });
    }

    /// Takes note of another outlook of a class than before. If it is room now that is missing, the class
    /// is to be looked at: for it may be its turn for room to be reserved.
    pub fn reconsider(&mut self, class: ClassIx, outlook: Outlook) {
        let for_room = |watches: &[Watch]| watches.iter().any(|watch| matches!(watch, Watch::Room(..)));
        match (self.classes.get(&class).map(|class| &class.status), outlook) {
            (Some(Status::Watching(before)), Outlook::Hopeless(watches)) if *before == watches => {}
            (
                Some(Status::Watching(before) | Status::Doubtful { watches: before, .. }),
                Outlook::Hopeless(watches),
            ) if for_room(before) || !for_room(&watches) => {
                self.refile(class, |class| class.status = Status::Watching(watches));
            }
            (
                Some(Status::Watching(before) | Status::Doubtful { watches: before, .. }),
                Outlook::Claim { watches, owed },
            ) if for_room(before) || !for_room(&watches) => {
                self.refile(class, |class| class.status = Status::Doubtful { watches, owed, epoch: 0 });
            }
            _ => self.wake(class),
        }
    }

    /// Lets so many be looked at again for whom others might have to make room since something has made
    /// room after they were looked at last, those that are owed it first. False if there are none.
    pub fn wake_doubtful(&mut self, epoch: u64, most: usize) -> bool {
        let stale = |owed_none: bool| {
            self.doubtful.range((owed_none, 0, 0)..(owed_none, epoch, 0)).map(|(_, _, class)| *class)
        };
        let classes: Vec<ClassIx> = stale(false).chain(stale(true)).take(most).collect();
        for class in &classes {
            self.wake(*class);
        }
        !classes.is_empty()
    }

    /// Whether anybody is left for [`Self::wake_undecided`] or [`Self::wake_doubtful`].
    #[must_use]
    pub fn has_doubts(&self, epoch: u64) -> bool {
        let stale =
            |owed_none: bool| self.doubtful.range((owed_none, 0, 0)..(owed_none, epoch, 0)).next().is_some();
        stale(false) || stale(true) || self.undecided.range(..(epoch, 0)).next().is_some()
    }

    /// Lets a class be looked at.
    pub fn wake(&mut self, class: ClassIx) {
        if self.classes.get(&class).is_some_and(|class| !matches!(class.status, Status::Ready)) {
            self.refile(class, |class| class.status = Status::Ready);
        }
    }

    /// Lets so many be looked at again that anything may let start that has made room since they were looked
    /// at last; how many that are.
    pub fn wake_undecided(&mut self, epoch: u64, most: usize) -> usize {
        let stale = self.undecided.range(..(epoch, 0)).map(|(_, class)| *class);
        let classes: Vec<ClassIx> = stale.take(most).collect();
        for class in &classes {
            self.wake(*class);
        }
        classes.len()
    }

    /// Lets everybody be looked at again.
    pub fn wake_all(&mut self) {
        let classes: Vec<ClassIx> = self.classes.keys().copied().collect();
        for class in classes {
            self.wake(class);
        }
    }

    /// The classes that watch what a team holds in a pool.
    pub fn watching_account(&self, pool: PoolIx, team: TeamIx) -> Vec<ClassIx> {
        self.accounts.get(&(pool, team)).into_iter().flatten().copied().collect()
    }

    /// The classes that watch what a queue holds.
    pub fn watching_queue(&self, team: TeamIx, queue: &Name) -> Vec<ClassIx> {
        self.queues.get(&(team, queue.clone())).into_iter().flatten().copied().collect()
    }

    /// The classes for which a share of that size is enough to take from.
    pub fn watching_share(&self, pool: PoolIx, share: Ratio) -> Vec<ClassIx> {
        let classes = self.shares.get(&pool).into_iter();
        classes.flat_map(|classes| classes.range(..=(share, ClassIx::MAX))).map(|(_, class)| *class).collect()
    }

    /// Why a workload, or one like it, could not start when it was looked at, and whether that is bound to
    /// be so still; `None` when it does not wait or was not looked at.
    #[must_use]
    pub fn refusal(&self, id: &WorkloadId) -> Option<(&Verdict, bool)> {
        let class = self.classes.get(&self.class_of(id)?)?;
        Some((class.refusal.as_ref()?, !matches!(class.status, Status::Watching(_))))
    }

    /// The teams of which somebody waits for room for that shape.
    pub fn teams_at(&self, room: RoomIx) -> impl Iterator<Item = TeamIx> + '_ {
        self.gate_teams.get(&room).into_iter().flat_map(|teams| teams.keys()).map(|(_, team)| *team)
    }

    /// Changes a class and files it anew under what it is and waits for.
    fn refile(&mut self, number: ClassIx, change: impl FnOnce(&mut Class)) {
        let Some(mut class) = self.classes.remove(&number) else { return };
        self.file(number, &class, false);
        change(&mut class);
        self.file(number, &class, true);
        self.classes.insert(number, class);
    }

    /// Files a class, or takes it out of the files.
    fn file(&mut self, number: ClassIx, class: &Class, into: bool) {
        let Some(first) = class.waiting.first() else { return };
        let first = (first.clone().holding(class.held), number);
        let team = class.team;
        if !matches!(class.status, Status::Watching(_) | Status::Doubtful { owed: false, .. }) {
            let ClassKey { least_pods, shape, topology, pools, .. } = &class.key;
            let wanted = (*least_pods, Arc::clone(shape), topology.clone(), pools.clone());
            put(&mut self.hopeful, wanted, (team, number), into);
        }
        match &class.status {
            Status::Ready => {
                put(&mut self.ready, team, first, into);
                self.stirred.insert(team);
            }
            Status::Undecided { epoch } => {
                if into {
                    self.undecided.insert((*epoch, number));
                } else {
                    self.undecided.remove(&(*epoch, number));
                }
                put(&mut self.undecided_of, team, number, into);
            }
            Status::Watching(watches) => {
                for watch in watches {
                    self.file_watch(number, team, &first, watch, into);
                }
            }
            Status::Doubtful { watches, owed, epoch } => {
                let place = (!owed, *epoch, number);
                if into {
                    self.doubtful.insert(place);
                } else {
                    self.doubtful.remove(&place);
                }
                put(&mut self.doubtful_of, team, number, into);
                for watch in watches {
                    self.file_watch(number, team, &first, watch, into);
                }
            }
        }
    }

    fn file_watch(&mut self, number: ClassIx, team: TeamIx, first: &First, watch: &Watch, into: bool) {
        match watch {
            Watch::Account(pool, at) => put(&mut self.accounts, (*pool, *at), number, into),
            Watch::Share(pool, share) => put(&mut self.shares, *pool, (*share, number), into),
            Watch::Queue(at, queue) => put(&mut self.queues, (*at, queue.clone()), number, into),
            Watch::Room(room, pods) => {
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
