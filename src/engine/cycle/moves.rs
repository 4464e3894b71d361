//! Workloads that are moved for a preemptor and lose the nodes to which they move, for instance because these were cordoned.
//!
//! A move costs a workload a restart, never its place: it was moved because it could not be evicted (laws 3 and 4). So it moves to
//! other nodes, and where there are none beside its preemptor, it starts again where it ran and the preemptor plans again. Once the
//! preemptor has started or plans elsewhere, it returns to the nodes where its pods still end, and a workload of another team to which
//! that capacity was nominated waits in the queue again.

use crate::cycle::nominate::{self, message_for};
use crate::cycle::nominated_plan::{as_planned, freed_by, waiting_for};
use crate::placement::waiting::WaitingWorkload;
use crate::placement::{self, Capacity, Placement};
use crate::preemption::Take;
use crate::scheduler::Scheduler;
use crate::scheduler::nomination::{Nomination, Victim};
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::quotas::{Hypothetical, Protection};
use crate::types::ids::{NodeId, TeamId};
use crate::types::{Plan, Time, WorkloadId};

/// Finds other nodes for workloads that move where those of the plan do not take them any more.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    // Echoes of its own writes take no node away.
    if scheduler.keeps_to_plan(now) {
        return;
    }
    for place in scheduler.nominations.places(|nomination| nomination.moves) {
        let taken = scheduler.without_nomination(place, |scheduler, nomination| {
            let (nomination, taken) = match next_placement(scheduler, &nomination) {
                Some(placement) => (to(&scheduler.state, nomination, placement), None),
                None => in_place_of_another(scheduler, nomination),
            };
            (Some(nomination), taken)
        });
        match taken.flatten() {
            Some(Taken::FromPreemptor(preemptor)) => nominate::progress_of(scheduler, &preemptor, now, plan),
            Some(Taken::FromOther(other)) => {
                if let Some(nomination) = scheduler.end_nomination(&other) {
                    nominate::end(scheduler, &nomination);
                }
            }
            None => {}
        }
    }
}

/// The workload from which one that moves takes the place.
enum Taken {
    /// Its preemptor, which plans again.
    FromPreemptor(WorkloadId),
    /// Another one that waits for that place, which is queued again.
    FromOther(WorkloadId),
}

/// The place of the nomination for which a workload moves.
fn preemptor_of(scheduler: &Scheduler, id: &WorkloadId) -> Option<u64> {
    let moves_it = |victim: &Victim| matches!(&victim.take, Take::Move(moved, _) if moved == id);
    scheduler.nominations.places(|nomination| nomination.victims.iter().any(moves_it)).first().copied()
}

/// The nodes to which a workload moves by what is known now: those of the plan while they take it. They may be the place of another
/// victim of which the eviction is still to be written.
fn next_placement(scheduler: &Scheduler, nomination: &Nomination) -> Option<Placement> {
    let state = &scheduler.state;
    let preemptor = preemptor_of(scheduler, &nomination.id).and_then(|place| scheduler.nominations.at(place));
    let remaining = preemptor.map(|preemptor| preemptor.running_victims(state)).unwrap_or_default();
    let freed = freed_by(state, &remaining);
    let waiting = waiting_for(state, nomination)?;
    as_planned(state, &waiting, nomination, Capacity::Settled(&freed))
        .or_else(|| settled(state, &waiting, nomination, &freed, |_| true))
}

/// A placement of a workload once everything has settled and this is free, on those of its nodes for which `which` is true.
fn settled(
    state: &ClusterState,
    waiting: &WaitingWorkload,
    nomination: &Nomination,
    freed: &Freed,
    which: impl Fn(&NodeId) -> bool,
) -> Option<Placement> {
    let nodes = placement::eligible(state, &waiting.request(nomination.pool));
    let nodes: Vec<NodeId> = nodes.iter().copied().filter(which).collect();
    Capacity::Settled(freed).place(state, waiting, nomination.pool, &nodes)
}

/// The nomination with other nodes.
fn to(state: &ClusterState, nomination: Nomination, placement: Placement) -> Nomination {
    if placement == nomination.placement {
        return nomination;
    }
    let mut other = Nomination { placement, ..nomination };
    other.message = message_for(state, &other);
    other
}

/// Lets a workload that moves start in the place of a workload that could not have evicted it: its preemptor, or once that has
/// started or plans elsewhere, another one to which capacity is nominated where it ran.
fn in_place_of_another(scheduler: &mut Scheduler, nomination: Nomination) -> (Nomination, Option<Taken>) {
    let found = match preemptor_of(scheduler, &nomination.id) {
        Some(place) => in_place_of_preemptor(scheduler, &nomination, place),
        None => in_place_of_other(scheduler, &nomination),
    };
    match found {
        Some((placement, taken)) => (to(&scheduler.state, nomination, placement), Some(taken)),
        None => (nomination, None),
    }
}

/// The place of the preemptor, best where the workload ran.
fn in_place_of_preemptor(
    scheduler: &mut Scheduler,
    nomination: &Nomination,
    place: u64,
) -> Option<(Placement, Taken)> {
    let team = scheduler.nominations.at(place)?.team;
    if !keeps_its_place(&scheduler.state, nomination, team) {
        return None;
    }
    let found = scheduler.without_nomination(place, |scheduler, preemptor| {
        let found = best_where_it_ran(&scheduler.state, nomination);
        let found = found.map(|placement| (placement, Taken::FromPreemptor(preemptor.id.clone())));
        (Some(preemptor), found)
    });
    found.flatten()
}

/// The place of a workload of another team to which capacity is nominated on nodes where this one's pods still end, and which did not
/// run there itself.
fn in_place_of_other(scheduler: &mut Scheduler, nomination: &Nomination) -> Option<(Placement, Taken)> {
    let ran = nomination.info(&scheduler.state)?.usage.nodes.clone();
    let there = |node: &NodeId| ran.contains_key(node);
    let state = &scheduler.state;
    let others = scheduler.nominations.places(|other| {
        let ran_there = other.info(state).is_some_and(|info| info.usage.nodes.keys().any(there));
        other.team != nomination.team && other.placement.keys().any(there) && !ran_there
    });
    others.into_iter().find_map(|place| {
        let found = scheduler.without_nomination(place, |scheduler, other| {
            let state = &scheduler.state;
            let keeps = keeps_its_place(state, nomination, other.team);
            let waiting = waiting_for(state, nomination).filter(|_| keeps);
            let found = waiting.and_then(|it| settled(state, &it, nomination, &Freed::new(), there));
            let found = found.map(|placement| (placement, Taken::FromOther(other.id.clone())));
            (Some(other), found)
        });
        found.flatten()
    })
}

/// A placement of a workload that moves on what is free, on the nodes where it ran if it fits there.
fn best_where_it_ran(state: &ClusterState, nomination: &Nomination) -> Option<Placement> {
    let (waiting, freed) = (waiting_for(state, nomination)?, Freed::new());
    let ran = nomination.info(state).map(|info| &info.usage.nodes);
    let where_it_ran = |node: &NodeId| ran.is_some_and(|ran| ran.contains_key(node));
    settled(state, &waiting, nomination, &freed, where_it_ran)
        .or_else(|| settled(state, &waiting, nomination, &freed, |_| true))
}

/// Whether a workload that moves keeps its place against a team: it is of that team, where only what that team may not preempt moves,
/// or the guarantee of its own team holds it.
fn keeps_its_place(state: &ClusterState, nomination: &Nomination, team: TeamId) -> bool {
    let Nomination { pool, total, need, oversize, .. } = nomination;
    if nomination.team == team {
        return true;
    }
    let levels: Vec<TeamId> = state.quotas.levels_below_common(nomination.team, team).collect();
    let protection = Protection { levels: &levels, oversize, from_borrower: false };
    let mut running = Hypothetical::new();
    state.quotas.assume(&mut running, nomination.account(), total, 1);
    !state.quotas.beyond_guarantee(*pool, protection, need, &running)
}
