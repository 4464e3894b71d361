//! Masks reserved capacity: it is taken off the nodes only while a workload is considered that must respect it.

use crate::cycle::reserve::binding::binding;
use crate::placement::waiting::WaitingWorkload;
use crate::prediction::timeline::Slot;
use crate::preemption::Masked;
use crate::scheduler::Scheduler;
use crate::scheduler::reservations::Reservation;
use crate::types::ids::PoolId;

/// The capacity of a reservation, as capacity to mask.
pub fn mask_of(reservation: &Reservation, slot: &Slot) -> Masked {
    Masked {
        owner: reservation.owner.clone(),
        need: reservation.need.clone(),
        placement: slot.placement.clone(),
    }
}

/// All reserved capacity in a pool that a waiting workload must respect.
pub fn masks_for(scheduler: &Scheduler, waiting: &WaitingWorkload, pool: PoolId) -> Vec<Masked> {
    binding(scheduler, waiting, pool).map(|(reservation, slot)| mask_of(reservation, slot)).collect()
}

/// Runs `act` while that capacity is masked.
pub fn with_masked<T>(
    scheduler: &mut Scheduler,
    masked: &[Masked],
    act: impl FnOnce(&mut Scheduler) -> T,
) -> T {
    let capacity = masked.iter().flat_map(|Masked { need, placement, .. }| {
        placement.iter().map(move |(node, pods)| (*node, need, *pods))
    });
    let masks = scheduler.state.nodes.mask(capacity);
    let result = act(scheduler);
    scheduler.state.nodes.unmask(masks);
    result
}
