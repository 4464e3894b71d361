//! Reservations: nodes and a start time kept for the first workload of a team that finds no capacity (law 7).

use std::collections::{BTreeMap, BTreeSet};

use crate::placement::waiting::WaitingWorkload;
use crate::prediction::timeline::Slot;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{ClassId, PoolId, TeamId};
use crate::types::vector::Vector;
use crate::types::{Name, Time, WorkloadId};

/// The reservation of one team in one pool.
#[derive(Clone, Debug)]
pub struct Reservation {
    /// The workload it is for.
    pub owner: WorkloadId,
    /// The owner's team.
    pub team: TeamId,
    /// The need of one pod of the owner.
    pub need: Vector,
    /// The number of pods the owner must have.
    pub pods: u32,
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
    /// Since when nodes or quota have been kept for the owner, and with them its user's turn.
    pub kept_since: Option<Time>,
}

/// The capacity that a reservation keeps.
#[derive(Clone, Debug)]
pub enum ReservedCapacity {
    /// None yet.
    Waiting,
    /// Nodes, and the time at which the owner is to start there.
    Slot(Slot),
    /// Quota, and no nodes yet: it is not foretold when the quota comes free, and until then no node is kept idle for it.
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
#[derive(Clone, Debug, PartialEq, Eq)]
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

    /// When its owner is expected to start; `None` when that cannot be predicted.
    #[must_use]
    pub fn start(&self) -> Option<Time> {
        match (&self.capacity, self.quota) {
            (ReservedCapacity::Slot(slot), _) => slot.at,
            (ReservedCapacity::Quota, QuotaStart::At(at)) => Some(at),
            _ => None,
        }
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

/// All reservations.
#[derive(Clone, Debug, Default)]
pub struct ReservationTable {
    /// The reservation of each team in each pool.
    pub by_team: BTreeMap<(PoolId, TeamId), Reservation>,
    /// Whether a reservation has ended and its successor has not been determined yet.
    pub ended: bool,
    /// The generation in which a team had no workload that could own a reservation in a pool.
    pub unowned_since: BTreeMap<(PoolId, TeamId), u64>,
    /// The generation, and the classes that were considered as owners in it.
    pub considered: (u64, BTreeSet<ClassId>),
}

impl ReservationTable {
    /// The reservations in a pool.
    pub fn in_pool(&self, pool: PoolId) -> impl Iterator<Item = &Reservation> {
        self.by_team.range((pool, TeamId::MIN)..=(pool, TeamId::MAX)).map(|(_, reservation)| reservation)
    }
}
