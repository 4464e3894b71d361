//! What a preemptor has to leave of reserved capacity when it starts in the place of its victims (law 7).
//!
//! Reserved capacity that running workloads still hold is not missing yet: a preemptor that takes the place of one of them keeps
//! the owner waiting for no more than before. So its search masks only the part that no workload holds, or that is not
//! expected to come free until the reserved start. Each set is then judged as a whole.

use std::collections::BTreeMap;

use crate::cycle::reserve::binding::binding_copies;
use crate::cycle::reserve::mask::mask_of;
use crate::cycle::reserve::whole::{fits_with, is_among, reserved_before, staying_on};
use crate::placement::Placement;
use crate::placement::waiting::WaitingWorkload;
use crate::prediction::timeline::{Slot, running_admission};
use crate::preemption::{Masked, Take, Victims};
use crate::scheduler::Scheduler;
use crate::scheduler::reservations::{Reservation, Reserved};
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{NodeId, PoolId};
use crate::types::vector::Vector;
use crate::types::{Time, WorkloadId};

/// The reserved capacity that a preemptor has to leave free beside its victims' places; `None` if that is all of it.
pub fn masks_beside_victims(
    scheduler: &Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
) -> Option<Vec<Masked>> {
    let state = &scheduler.state;
    let mut free: BTreeMap<NodeId, Vector> = BTreeMap::new();
    let (mut masks, mut less) = (Vec::new(), false);
    for (reservation, slot) in binding_copies(scheduler, waiting, pool) {
        // Which part of a device comes free does not follow from amounts.
        if !state.nodes.demand(&reservation.need).fractions().is_empty() {
            masks.push(mask_of(&reservation, &slot));
            continue;
        }
        for (node, pods) in &slot.placement {
            let reserved = reservation.need.times(*pods);
            let kept = match slot.at {
                Some(at) => beyond(&reserved, &held_until(scheduler, *node, at)),
                None => {
                    let free = free
                        .entry(*node)
                        .or_insert_with(|| state.nodes.get(*node).settled().amounts().clone());
                    let kept = within(&reserved, free);
                    free.add(&kept, -1);
                    kept
                }
            };
            less |= !kept.equals(&reserved);
            let placement = Placement::from([(*node, 1)]);
            masks.push(Masked { owner: reservation.owner.clone(), need: kept, placement });
        }
    }
    less.then_some(masks)
}

/// The part of an amount that goes beyond another.
fn beyond(amount: &Vector, other: &Vector) -> Vector {
    let mut rest = Vector::default();
    for (resource, milli) in amount.nonzero() {
        rest.set(resource, milli.saturating_sub(other.get(resource)).max(0));
    }
    rest
}

/// The part of an amount that another covers.
fn within(amount: &Vector, other: &Vector) -> Vector {
    let mut part = Vector::default();
    for (resource, milli) in amount.nonzero() {
        part.set(resource, milli.min(other.get(resource)).max(0));
    }
    part
}

/// What running workloads hold on a node that are expected to have ended by then.
fn held_until(scheduler: &Scheduler, node: NodeId, at: Time) -> Vector {
    let mut held = Vector::default();
    for (info, there) in scheduler.state.occupants(node).filter(|(info, _)| ends_by(scheduler, info, at)) {
        held.add(&info.need, i64::from(staying_on(info, node, there)));
    }
    held
}

/// Whether a running workload is expected to have ended by then.
fn ends_by(scheduler: &Scheduler, info: &WorkloadInfo, at: Time) -> bool {
    running_admission(info).is_some()
        && scheduler.prediction.timeline.end(&info.workload.id).is_some_and(|end| end <= at)
}

/// The reservations with a reserved start that bind a preemptor.
pub struct ReservedStarts(Vec<ReservedStart>);

struct ReservedStart {
    reservation: Reservation,
    slot: Slot,
    at: Time,
    /// What is reserved on its nodes for owners before its own.
    before: Vec<Masked>,
}

impl ReservedStarts {
    /// Those that bind a preemptor in a pool.
    pub fn of(scheduler: &Scheduler, waiting: &WaitingWorkload, pool: PoolId) -> Self {
        let binding = binding_copies(scheduler, waiting, pool);
        let respected: Vec<&Reserved> = binding.iter().collect();
        let starts = binding.iter().filter_map(|(reservation, slot)| {
            let at = slot.at?;
            let before =
                reserved_before(scheduler, pool, (reservation, slot), |other| is_among(&respected, other));
            Some(ReservedStart { reservation: reservation.clone(), slot: slot.clone(), at, before })
        });
        Self(starts.collect())
    }

    /// Whether all of them stay whole when the preemptor has taken the place of these victims, while capacity is `masked`. A
    /// reservation without a reserved start does by what [`masks_beside_victims`] leaves of it.
    pub fn stay_whole_after(
        &self,
        scheduler: &Scheduler,
        waiting: &WaitingWorkload,
        victims: &Victims,
        masked: &[Masked],
    ) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let after = After::of(&scheduler.state, waiting, victims);
        self.0.iter().all(|ReservedStart { reservation, slot, at, before }| {
            let mut shared = slot.placement.iter().filter(|(node, _)| after.placed.contains_key(node));
            shared.all(|(node, pods)| {
                let mut freed = after.freed_until(scheduler, *node, *at);
                let on_node = |of: &Masked| of.placement.get(node).copied().unwrap_or(0);
                masked.iter().for_each(|mask| freed.give(*node, &mask.owner, &mask.need, on_node(mask)));
                before.iter().for_each(|mask| freed.take(*node, &mask.need, None, on_node(mask)));
                fits_with(scheduler, reservation, *node, &freed) >= *pods
            })
        })
    }
}

/// What a set of victims changes on nodes.
struct After {
    /// How many pods of which workload are gone from a node.
    gone: BTreeMap<(NodeId, WorkloadId), u32>,
    /// The needs of the pods that come to a node, with their number: those of the preemptor and of workloads that move.
    placed: BTreeMap<NodeId, Vec<(Vector, u32)>>,
}

impl After {
    fn of(state: &ClusterState, waiting: &WaitingWorkload, victims: &Victims) -> Self {
        let mut after = Self { gone: BTreeMap::new(), placed: BTreeMap::new() };
        after.place(&waiting.need, &victims.placement);
        for take in &victims.takes {
            let Some(info) = state.get(take.id()) else { continue };
            let (gone, to) = match take {
                Take::Whole(_) => (info.usage.staying(), None),
                Take::Move(_, to) => (info.usage.staying(), Some(to)),
                Take::Shrink(_, gone) => (gone, None),
                Take::Shift(_, gone, to) => (gone, Some(to)),
            };
            after.gone.extend(gone.iter().map(|(node, pods)| ((*node, take.id().clone()), *pods)));
            if let Some(to) = to {
                after.place(&info.need, to);
            }
        }
        after
    }

    /// What is free on a node then, less what the preemptor and the workloads that move take of it.
    fn freed_until(&self, scheduler: &Scheduler, node: NodeId, at: Time) -> Freed {
        let mut freed = Freed::new();
        for (info, there) in scheduler.state.occupants(node) {
            let id = &info.workload.id;
            let staying = staying_on(info, node, there);
            let gone = self.gone.get(&(node, id.clone())).copied().unwrap_or(0).min(staying);
            let leaves = if ends_by(scheduler, info, at) { staying } else { gone };
            if leaves > 0 {
                freed.give(node, id, &info.need, leaves);
            }
        }
        for (need, pods) in self.placed.get(&node).into_iter().flatten() {
            freed.take(node, need, None, *pods);
        }
        freed
    }

    fn place(&mut self, need: &Vector, placement: &Placement) {
        for (node, pods) in placement {
            self.placed.entry(*node).or_default().push((need.clone(), *pods));
        }
    }
}
