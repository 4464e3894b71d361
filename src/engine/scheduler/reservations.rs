//! Reservations: nodes and a start time kept for the first workload of a team that finds no capacity (law 7).

use std::collections::{BTreeMap, BTreeSet};

use crate::placement::waiting::WaitingWorkload;
use crate::prediction::timeline::Slot;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{ClassId, PoolId, TeamId};
use crate::types::vector::Vector;
use crate::types::{Time, WorkloadId};

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
    /// Whether a workload of another team, within guarantee, has taken reserved capacity.
    pub taken: bool,
    /// The older owner that must start before this reservation gets capacity again, if it was deferred.
    pub deferred_behind: Option<WorkloadId>,
    /// When the capacity was decided.
    pub decided: Time,
}

/// The capacity that a reservation keeps.
#[derive(Clone, Debug)]
pub enum ReservedCapacity {
    /// None yet.
    Waiting,
    /// Nodes, and the time at which the owner is to start there.
    Slot(Slot),
    /// None is possible beside the reservations of other teams; one of their owners has to start first.
    Infeasible,
}

/// A reservation with its slot.
pub type Reserved = (Reservation, Slot);

impl Reservation {
    /// The reserved slot, if there is one.
    #[must_use]
    pub fn slot(&self) -> Option<&Slot> {
        match &self.capacity {
            ReservedCapacity::Slot(slot) => Some(slot),
            ReservedCapacity::Waiting | ReservedCapacity::Infeasible => None,
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
