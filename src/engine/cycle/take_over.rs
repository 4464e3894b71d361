//! A workload within guarantee takes over capacity that is being cleared for a borrowing preemptor, where it would otherwise
//! wait or evict more (law 8). Within a team the order decides (law 9).

use crate::cycle::nominate::{freed_by, nominate_for};
use crate::cycle::{requeue, reserve};
use crate::placement::waiting::Attempt;
use crate::placement::{Capacity, Placement};
use crate::scheduler::Scheduler;
use crate::scheduler::nominations::{Broken, Nomination, Victim};
use crate::state::cluster::ClusterState;
use crate::state::quotas::Hypothetical;

/// Nominates the capacity of a borrowing preemptor to a workload within guarantee, the latest preemptor's first; the preemptor
/// waits again. False if no such capacity lets the workload start.
pub fn run(scheduler: &mut Scheduler, attempt: Attempt<'_>) -> bool {
    let Attempt { waiting, pool, .. } = attempt;
    if !waiting.within_guarantee(&scheduler.state, pool) {
        return false;
    }
    let found = scheduler.nominations.iter().rev().find_map(|nomination| {
        in_place_of(&scheduler.state, nomination, attempt).map(|placement| (nomination.id.clone(), placement))
    });
    let Some((id, placement)) = found else { return false };
    let Some(nomination) = scheduler.nominations.remove(&id) else { return false };
    nomination.nominate(&mut scheduler.state, -1);
    scheduler.cursor.generation += 1;
    let broken = Broken::TakenOver(waiting.id.clone());
    scheduler.nominations.broken.insert(nomination.id.clone(), broken);
    requeue::queue_up(scheduler, &nomination.id);
    reserve::note_taken(scheduler, waiting, pool, &placement);
    nominate_for(scheduler, waiting, pool, placement, nomination.victims);
    true
}

/// A placement in the capacity that is nominated to a borrowing preemptor, and what is free beside it.
fn in_place_of(state: &ClusterState, nomination: &Nomination, attempt: Attempt<'_>) -> Option<Placement> {
    let Attempt { waiting, pool, nodes, .. } = attempt;
    if goes_first(state, nomination, attempt) {
        return None;
    }
    let borrows = nomination.pool == pool && !nomination.victims.is_empty();
    // What the holders of parts of a device leave depends on which device they have.
    if !borrows || !state.nodes.demand(&nomination.need).fractions().is_empty() {
        return None;
    }
    let mut without = Hypothetical::new();
    state.quotas.assume(&mut without, nomination.account(), &nomination.total, -1);
    if state.quotas.within_guarantee(pool, nomination.team, &nomination.total, &without)
        || state.quotas.over_limit(pool, waiting.team, &waiting.total, &without, true).is_some()
    {
        return None;
    }
    let remaining: Vec<&Victim> =
        nomination.victims.iter().filter(|victim| victim.still_runs(state)).collect();
    let mut freed = freed_by(state, &remaining);
    for (node, pods) in &nomination.placement {
        freed.give(*node, &nomination.id, &nomination.need, *pods);
    }
    Capacity::Settled(&freed).place(state, waiting, pool, nodes)
}

/// Whether a preemptor stands before its sibling in the order of their team (law 9), so that the sibling leaves it the
/// capacity that is being cleared.
fn goes_first(state: &ClusterState, nomination: &Nomination, attempt: Attempt<'_>) -> bool {
    let waiting = attempt.waiting;
    let priority = |info| state.priority_of(info);
    nomination.team == waiting.team
        && nomination.info(state).map(priority) >= state.at(waiting.index).map(priority)
}
