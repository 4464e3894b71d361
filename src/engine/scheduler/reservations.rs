//! Reservations: nodes and a start time kept for the first workload of a team that finds no capacity (law 7).

use std::collections::{BTreeMap, BTreeSet};

use crate::placement::waiting::WaitingWorkload;
use crate::prediction::timeline::Slot;
use crate::queue::order::ClassOrder;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{ClassId, PoolId, TeamId};
use crate::types::vector::Vector;
use crate::types::{Admission, Name, Time, WorkloadId};

/// The reservation of one team in one pool.
#[derive(Clone, Debug)]
pub struct Reservation {
    /// The workload it is for.
    pub owner: WorkloadId,
    /// The owner's team.
    pub team: TeamId,
    /// The uppermost team above it.
    pub root: TeamId,
    /// The need of one pod of the owner.
    pub need: Vector,
    /// The number of pods the owner must have.
    pub pods: u32,
    /// Since when the owner waits.
    pub waits_since: Time,
    /// The time from which nodes are reserved even if the owner's start cannot be predicted.
    pub due: Time,
    /// The reserved capacity, or why there is none.
    pub capacity: ReservedCapacity,
    /// When the quota on the owner's path is free for it.
    pub quota: QuotaStart,
    /// Whether a workload of another team, within guarantee, has taken reserved capacity.
    pub taken: bool,
    /// The older owner that must start before this reservation gets capacity again, if it was deferred.
    pub deferred_behind: Option<WorkloadId>,
    /// When the capacity was decided.
    pub decided: Time,
    /// The generation in which it was last reviewed.
    pub reviewed: u64,
    /// Since when nodes or quota have been kept for the owner.
    pub kept_since: Option<Time>,
    /// Since when nodes have been kept for it.
    pub nodes_since: Option<Time>,
}

/// The capacity that a reservation keeps.
#[derive(Clone, Debug)]
pub enum ReservedCapacity {
    /// None yet.
    Waiting,
    /// Nodes, and the time at which the owner is to start there.
    Slot(Slot),
    /// Quota, and no nodes yet: no run tells when the quota comes free, and until then no node is kept idle for it.
    Quota,
    /// Quota; no nodes are possible beside the reservations of other teams, and one of their owners has to start first.
    Infeasible,
}

/// When quota comes free, if running workloads end as expected; later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuotaStart {
    /// It is free.
    Now,
    /// Then.
    At(Time),
    /// Nothing tells when.
    Unpredictable,
}

/// A level of a path that limits what workloads may use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The limit of a team.
    Limit(TeamId),
    /// The guarantee of a team, for work that is never preempted.
    Guarantee(TeamId),
    /// The limit of a queue.
    Queue(TeamId, Name),
}

impl Level {
    /// The team at the level: its workloads, and those of the teams below it, hold quota there.
    #[must_use]
    pub fn team(&self) -> TeamId {
        match self {
            Self::Limit(team) | Self::Guarantee(team) | Self::Queue(team, _) => *team,
        }
    }
}

/// A reservation with its slot.
pub type Reserved = (Reservation, Slot);

impl Reservation {
    /// The reserved slot, if there is one.
    #[must_use]
    pub fn slot(&self) -> Option<&Slot> {
        match &self.capacity {
            ReservedCapacity::Slot(slot) => Some(slot),
            ReservedCapacity::Waiting | ReservedCapacity::Quota | ReservedCapacity::Infeasible => None,
        }
    }

    /// Changes what it keeps, as decided now.
    pub fn keep(&mut self, capacity: ReservedCapacity, now: Time) {
        self.capacity = capacity;
        self.decided = now;
        self.kept_since = self.keeps_quota().then(|| self.kept_since.unwrap_or(now));
        self.nodes_since = self.slot().is_some().then(|| self.nodes_since.unwrap_or(now));
    }

    /// Whether quota is kept for its owner.
    #[must_use]
    pub fn keeps_quota(&self) -> bool {
        !matches!(self.capacity, ReservedCapacity::Waiting)
    }

    /// Whether its owner waits for quota alone, so that no change of the nodes matters to it.
    #[must_use]
    pub fn awaits_quota(&self) -> bool {
        self.quota != QuotaStart::Now && self.slot().is_none()
    }

    /// Whether only changes under its root matter to its owner now: it waits for quota that nothing tells when it comes free, or at a
    /// time to come while the pool is `full`, with as many reservations of nodes as it may have.
    #[must_use]
    pub fn awaits_its_root(&self, full: bool, now: Time) -> bool {
        match self.quota {
            QuotaStart::Now => false,
            QuotaStart::At(at) => full && at >= now && matches!(self.capacity, ReservedCapacity::Quota),
            QuotaStart::Unpredictable => true,
        }
    }

    /// When its owner is expected to start; `None` when that cannot be predicted.
    #[must_use]
    pub fn start(&self) -> Option<Time> {
        match (&self.capacity, self.quota) {
            (ReservedCapacity::Slot(slot), _) => slot.at,
            (ReservedCapacity::Quota, QuotaStart::At(at)) => Some(at),
            _ => None,
        }
    }

    /// Whether its owner waits for a running workload with this admission: one that ran before nodes or quota were kept. What has
    /// started since lets no other workload start in spite of the reservation, so that finitely many do.
    #[must_use]
    pub fn is_in_the_way(&self, admission: &Admission) -> bool {
        self.kept_since.is_some_and(|since| admission.at < since)
    }

    /// Whether no capacity can be reserved beside the reservations of other teams.
    #[must_use]
    pub fn is_infeasible(&self) -> bool {
        matches!(self.capacity, ReservedCapacity::Infeasible)
    }

    /// Whether it still fits its owner's request.
    #[must_use]
    pub fn is_for(&self, info: &WorkloadInfo, waiting: &WaitingWorkload) -> bool {
        matches!(info.phase, Phase::Pending | Phase::Starting(_))
            && !info.removed
            && waiting.team == self.team
            && waiting.pods == self.pods
            && waiting.need.equals(&self.need)
    }
}

/// The pool and the team of a reservation.
pub type Place = (PoolId, TeamId);

/// All reservations: one of each team in each pool. A thousand teams may wait for quota at once, so decisions find by an
/// index the few that concern them.
#[derive(Clone, Debug, Default)]
pub struct ReservationTable {
    all: BTreeMap<Place, Reservation>,
    owners: BTreeMap<WorkloadId, Place>,
    /// Those that keep nodes, or are to.
    with_nodes: BTreeSet<Place>,
    by_root: BTreeMap<TeamId, BTreeSet<Place>>,
    /// Whether a reservation has ended and its successor has not been determined yet.
    pub ended: bool,
    /// The classes that may own a reservation.
    pub candidates: Candidates,
}

/// The classes that may own a reservation.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    /// The classes that were considered since the last change, with their teams.
    pub considered: BTreeMap<ClassId, TeamId>,
    /// The generation up to which they were.
    pub generation: u64,
    /// The others in order, for each pool: those that wait for headroom or quota, or for quota alone.
    pub orders: BTreeMap<(PoolId, bool), ClassOrder>,
}

impl Candidates {
    /// Marks teams that may have another candidate, or another position.
    pub fn mark_stale(&mut self, teams: impl IntoIterator<Item = TeamId>) {
        let teams: Vec<TeamId> = teams.into_iter().collect();
        self.orders.values_mut().for_each(|order| order.mark_stale(teams.iter().copied()));
    }
}

impl ReservationTable {
    /// All of them, by pool and team.
    pub fn iter(&self) -> impl Iterator<Item = (&Place, &Reservation)> {
        self.all.iter()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The reservation of a team in a pool.
    #[must_use]
    pub fn get(&self, place: &Place) -> Option<&Reservation> {
        self.all.get(place)
    }

    /// The reservation of a workload.
    #[must_use]
    pub fn owned_by(&self, owner: &WorkloadId) -> Option<(Place, &Reservation)> {
        let place = self.owners.get(owner)?;
        Some((*place, self.all.get(place)?))
    }

    /// The reservations in a pool that keep nodes, or are to.
    pub fn with_nodes(&self, pool: PoolId) -> impl Iterator<Item = &Reservation> {
        let places = self.with_nodes.range((pool, TeamId::MIN)..=(pool, TeamId::MAX));
        places.filter_map(|place| self.all.get(place))
    }

    /// The reservations of the teams below a root team.
    pub fn below(&self, root: TeamId) -> impl Iterator<Item = (PoolId, &Reservation)> {
        let places = self.by_root.get(&root).into_iter().flatten();
        places.filter_map(|place| Some((place.0, self.all.get(place)?)))
    }

    /// Adds a reservation, and returns the one in its place until now.
    pub fn insert(&mut self, place: Place, reservation: Reservation) -> Option<Reservation> {
        let before = self.remove(&place);
        self.index(place, &reservation);
        self.all.insert(place, reservation);
        before
    }

    /// Removes the reservation of a team in a pool.
    pub fn remove(&mut self, place: &Place) -> Option<Reservation> {
        let reservation = self.all.remove(place)?;
        self.owners.remove(&reservation.owner);
        self.with_nodes.remove(place);
        if let Some(places) = self.by_root.get_mut(&reservation.root) {
            places.remove(place);
            if places.is_empty() {
                self.by_root.remove(&reservation.root);
            }
        }
        Some(reservation)
    }

    /// Changes the reservation of a team in a pool, if there is one.
    pub fn change(&mut self, place: &Place, change: impl FnOnce(&mut Reservation)) {
        if let Some(mut reservation) = self.remove(place) {
            change(&mut reservation);
            self.insert(*place, reservation);
        }
    }

    /// Takes note that the paths of teams have changed.
    pub fn set_roots(&mut self, root: impl Fn(TeamId) -> TeamId) {
        for place in self.all.keys().copied().collect::<Vec<Place>>() {
            self.change(&place, |reservation| reservation.root = root(reservation.team));
        }
    }

    fn index(&mut self, place: Place, reservation: &Reservation) {
        self.owners.insert(reservation.owner.clone(), place);
        if !reservation.awaits_quota() {
            self.with_nodes.insert(place);
        }
        self.by_root.entry(reservation.root).or_default().insert(place);
    }
}
