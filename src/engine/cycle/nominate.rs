//! Capacity promised: to those for whom others leave, and to those who move.

use crate::cycle::admit::admit;
use crate::cycle::{requeue, reserve};
use crate::explain;
use crate::placement::waiting::{WaitingWorkload, fits_now};
use crate::placement::{self, Capacity, Placement, Request};
use crate::preemption::Take;
use crate::scheduler::Scheduler;
use crate::scheduler::nominations::{Nomination, Victim};
use crate::state::freed::Freed;
use crate::state::rules;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::PoolId;
use crate::types::{Plan, Time, WorkloadId};

/// Lets those start whose room has become free; gives up on room that will not come.
pub fn progress(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    for nomination in std::mem::take(&mut scheduler.nominations.all) {
        match nomination.info(&scheduler.state).map(|info| &info.phase) {
            Some(Phase::Pending) => {}
            // It moves, and has not stopped yet.
            Some(Phase::Stopping(_) | Phase::Leaving { .. }) => {
                scheduler.nominations.all.push(nomination);
                continue;
            }
            _ => {
                nomination.nominate(&mut scheduler.state, -1);
                continue;
            }
        }
        if is_on_its_way(scheduler, &nomination) {
            scheduler.nominations.all.push(nomination);
            continue;
        }
        let Some(waiting) = WaitingWorkload::of(&scheduler.state, &nomination.id) else {
            nomination.nominate(&mut scheduler.state, -1);
            continue;
        };
        let waiting = waiting.with_pods(nomination.pods);
        let waiting = waiting.in_pool(&scheduler.state, nomination.pool);
        nomination.nominate(&mut scheduler.state, -1);
        let nodes = placement::eligible(&scheduler.state, &waiting.request(nomination.pool));
        if let Some(start) = fits_now(&scheduler.state, &waiting, nomination.pool, &nodes, false) {
            admit(scheduler, &waiting, nomination.pool, start, now, plan);
            continue;
        }
        // The room may come elsewhere than planned, but it must come from those who leave for it.
        let staying: Vec<&Victim> =
            nomination.victims.iter().filter(|victim| stays(scheduler, victim)).collect();
        let mut freed = Freed::new();
        for victim in &staying {
            let Some(info) = scheduler.state.get(victim.take.id()) else { continue };
            match &victim.take {
                Take::Whole(_) | Take::Move(..) => rules::free(&mut freed, info),
                Take::Shrink(_, pods) | Take::Shift(_, pods, _) => {
                    rules::free_pods(&mut freed, info, pods);
                }
            }
        }
        // Whose eviction failed to be written is kept in view while its pause lasts; then the search is
        // made anew, for by now it may be wrong to take it.
        let pausing = staying.iter().all(|victim| scheduler.pauses(victim.take.id()));
        let settled = Capacity::Settled(&freed).place(&scheduler.state, &waiting, nomination.pool, &nodes);
        match settled.filter(|_| pausing) {
            Some(placement) => {
                let nomination = Nomination { placement, ..nomination };
                nomination.nominate(&mut scheduler.state, 1);
                scheduler.nominations.all.push(nomination);
            }
            None => {
                scheduler.cursor.generation += 1;
                requeue::queue_up(scheduler, &nomination.id);
            }
        }
    }
}

/// Whether a victim runs on as before, because what was decided about it could not be written.
fn stays(scheduler: &Scheduler, victim: &Victim) -> bool {
    let id = victim.take.id();
    let info = scheduler.state.at(victim.place).filter(|info| info.workload.id == *id);
    info.or_else(|| scheduler.state.get(id))
        .is_some_and(|info| matches!(&info.phase, Phase::Running(admission) if *admission == victim.before))
}

/// Holds the room that a placement needs until it has become free.
pub fn nominate_for(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    placement: Placement,
    victims: Vec<Victim>,
) {
    let names: Vec<WorkloadId> = victims.iter().map(|victim| victim.take.id().clone()).collect();
    let message = explain::waiting(&scheduler.state, &placement, &names);
    let nomination = Nomination::new(waiting, pool, placement, victims, message);
    nomination.nominate(&mut scheduler.state, 1);
    scheduler.nominations.all.push(nomination);
    scheduler.queue.pending.remove(&waiting.id);
    reserve::release(scheduler, &waiting.id);
}

/// Whether its room is not there yet, and will be once those who were told to leave are gone. False also
/// where that would take a closer look.
fn is_on_its_way(scheduler: &Scheduler, nomination: &Nomination) -> bool {
    let request = Request {
        pool: nomination.pool,
        shape: &nomination.shape,
        topology: &nomination.topology,
        need: &nomination.need,
        pods: nomination.pods,
        beside: None,
    };
    let same =
        |info: &WorkloadInfo| info.shape == nomination.shape && info.workload.topology == nomination.topology;
    nomination.info(&scheduler.state).is_some_and(same)
        && !nomination.victims.iter().any(|victim| stays(scheduler, victim))
        && placement::fits_once_settled(&scheduler.state, &request, &nomination.placement)
}
