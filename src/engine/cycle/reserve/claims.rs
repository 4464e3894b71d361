//! The reservations that matter where a workload is to start, by what its start has to do with them.

use crate::cycle::reserve::binding::{backfills, binding_copies, not_binding_copies};
use crate::placement::waiting::Attempt;
use crate::scheduler::Scheduler;
use crate::scheduler::reservations::Reserved;

/// The reservations with nodes in a pool that matter where a workload is to start there. They are copies: capacity is masked
/// while they are judged.
pub struct Claims {
    /// Those that bind it and that it does not backfill: it may start only where they stay whole.
    pub kept: Vec<Reserved>,
    /// Those that bind it and that it backfills: it ends in time for them.
    pub backfilled: Vec<Reserved>,
    /// Those of other teams that do not bind it and that it does not backfill: they stay whole where that is possible.
    pub spared: Vec<Reserved>,
}

/// What is asked of a start.
pub struct LeaveWhole<'a> {
    /// The reservations that have to stay whole.
    pub these: Vec<&'a Reserved>,
    /// The reservations that the start respects: what is reserved for them is not there for owners behind theirs. It takes the
    /// place of any other.
    pub respected: Vec<&'a Reserved>,
}

impl Claims {
    /// The reservations that matter to an attempt.
    pub fn of(scheduler: &Scheduler, attempt: Attempt<'_>) -> Self {
        let Attempt { waiting, pool, now, .. } = attempt;
        let backfills =
            |(reservation, slot): &Reserved| backfills(scheduler, waiting, now, (reservation, slot));
        let binding = binding_copies(scheduler, waiting, pool);
        let mut spared = not_binding_copies(scheduler, waiting, pool, &binding);
        spared.retain(|reserved| !backfills(reserved));
        let (backfilled, kept) = binding.into_iter().partition(backfills);
        Self { kept, backfilled, spared }
    }

    /// What a start must do: leave whole what it keeps.
    pub fn must(&self) -> LeaveWhole<'_> {
        LeaveWhole {
            these: self.kept.iter().collect(),
            respected: self.kept.iter().chain(&self.backfilled).collect(),
        }
    }

    /// What a start that leaves whole what it keeps should do besides: leave whole what it spares.
    pub fn should(&self) -> LeaveWhole<'_> {
        LeaveWhole { these: self.spared.iter().collect(), respected: self.all() }
    }

    /// Both in one.
    pub fn both(&self) -> LeaveWhole<'_> {
        LeaveWhole { these: self.kept.iter().chain(&self.spared).collect(), respected: self.all() }
    }

    fn all(&self) -> Vec<&Reserved> {
        self.kept.iter().chain(&self.backfilled).chain(&self.spared).collect()
    }
}
