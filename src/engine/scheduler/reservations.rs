//! Reservations: start time and nodes that are kept for the first workload of a team in a pool.

use std::collections::{BTreeMap, BTreeSet};

use crate::placement::waiting::WaitingWorkload;
use crate::prediction::timeline::Slot;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{ClassId, PoolId, TeamId};
use crate::types::vector::Vector;
use crate::types::{Time, WorkloadId};

/// Who has its turn to start next, by pool and team.
pub type Reservations = BTreeMap<(PoolId, TeamId), Reservation>;

/// A workload that has its turn in a pool.
#[derive(Clone, Debug)]
pub struct Reservation {
    /// Whose it is.
    pub owner: WorkloadId,
    /// Its team.
    pub team: TeamId,
    /// What one of its pods takes.
    pub need: Vector,
    /// How many it must have.
    pub pods: u32,
    /// From when on room is reserved for it even if its start cannot be predicted.
    pub due: Time,
    /// What is reserved, if something is.
    pub slot: Option<Slot>,
    /// Nothing can be, beside what is promised to other teams; one of these has to start first.
    pub crowded: bool,
    /// Whether somebody of another team, who is owed its room, has taken of what was reserved.
    pub overtaken: bool,
    /// For whose start it waits before room is reserved for it again, if it has given way.
    pub behind: Option<WorkloadId>,
    /// When that was decided.
    pub decided: Time,
}

/// A turn with what is reserved for it.
pub type Reserved = (Reservation, Slot);

impl Reservation {
    /// Whether it is still what the workload asks for.
    #[must_use]
    pub fn is_for(&self, info: &WorkloadInfo, waiting: &WaitingWorkload) -> bool {
        matches!(info.phase, Phase::Pending | Phase::Starting(_))
            && !info.removed
            && waiting.team == self.team
            && waiting.pods == self.pods
            && waiting.need.equals(&self.need)
    }
}

/// All reservations, by pool and team.
#[derive(Clone, Debug, Default)]
pub struct ReservationTable {
    /// The reservation of each team in each pool.
    pub by_team: Reservations,
    /// Whether a reservation has ended and its successor has not been determined yet.
    pub ended: bool,
    /// The generation in which a team had no workload that could own a reservation in a pool.
    pub unowned_since: BTreeMap<(PoolId, TeamId), u64>,
    /// The classes that were considered as owners, and in which generation.
    pub considered: (u64, BTreeSet<ClassId>),
}
