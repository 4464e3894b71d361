//! Nominated capacity: held for a preemptor while its victims end, and for a workload that moves.

use std::collections::BTreeSet;

use crate::cycle::admit::admit;
use crate::cycle::nominated_plan::{
    as_planned, freed_by, is_permitted, leaves_to_older, starts_as_planned, waiting_for,
};
use crate::cycle::{other_pools, requeue, reserve};
use crate::explain;
use crate::placement::waiting::{WaitingWorkload, fits_now};
use crate::placement::{self, Capacity, Placement, Request};
use crate::scheduler::Scheduler;
use crate::scheduler::nomination::{Nomination, Victim};
use crate::scheduler::nominations::{Broken, BrokenPlan};
use crate::scheduler::watch::Watch;
use crate::state::cluster::ClusterState;
use crate::state::workload::Phase;
use crate::types::ids::PoolId;
use crate::types::{Plan, Time, WorkloadId};

/// The victims of a plan.
#[derive(Default)]
pub struct PlanVictims {
    /// Those that it adds.
    pub added: Vec<Victim>,
    /// Those that end already, for a plan that it replaces.
    pub ending: Vec<Victim>,
    /// Whether the preemptor only takes places of its own team that were safe from the fair shares of other teams, by
    /// [`crate::cycle::settled`].
    pub settled: bool,
}

/// Nominates the capacity of a placement to a workload until it is free.
pub fn nominate_for(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    placement: Placement,
    victims: PlanVictims,
    within_guarantee: bool,
) {
    let PlanVictims { added, ending, settled } = victims;
    // What ends elsewhere for the plan that is replaced is nothing that the workload waits for.
    let there = ending.iter().filter(|victim| runs_on(&scheduler.state, victim.take.id(), &placement));
    let names: Vec<WorkloadId> = there.chain(&added).map(|victim| victim.take.id().clone()).collect();
    let victims = [ending, added].concat();
    let message = explain::waiting(&scheduler.state, &placement, &names);
    let nomination = Nomination::new(&scheduler.state, waiting, pool, placement, victims, message);
    let nomination = Nomination { within_guarantee, settled, ..nomination };
    scheduler.nominate(nomination);
    scheduler.queue.pending.remove(&waiting.id);
    reserve::release(scheduler, &waiting.id);
}

/// Admits workloads once their nominated capacity is free, and ends nominations of capacity that will not become free. Returns the
/// workloads that may start in a pool which they prefer to the one of their nomination: that is looked at after it.
pub fn progress(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) -> BTreeSet<WorkloadId> {
    let (keeps_to_plan, mut deferred) = (scheduler.keeps_to_plan(now), BTreeSet::new());
    let (mut last, end) = (None, scheduler.nominations.end());
    while let Some(place) = scheduler.nominations.next_due(&scheduler.state, last, end) {
        debug_assert!(still_wait(scheduler, last, place), "a nomination still waits while its watch holds");
        last = Some(place);
        let Some(nomination) = scheduler.nominations.at(place) else { continue };
        let has_ended = match wait_of(&scheduler.state, nomination) {
            Wait::Certain { watch } => {
                scheduler.nominations.watch(place, watch);
                continue;
            }
            Wait::Ended => true,
            Wait::Open => false,
        };
        if !has_ended && !keeps_to_plan && other_pools::preferred_have_capacity(&scheduler.state, nomination)
        {
            deferred.insert(nomination.id.clone());
            continue;
        }
        if has_ended {
            let id = nomination.id.clone();
            scheduler.end_nomination(&id);
            continue;
        }
        progress_at(scheduler, place, keeps_to_plan, now, plan);
    }
    debug_assert!(still_wait(scheduler, last, end), "a nomination still waits while its watch holds");
    deferred
}

/// Does the same for a workload that was deferred, once something has happened that its plan did not know.
pub fn progress_of(scheduler: &mut Scheduler, id: &WorkloadId, now: Time, plan: &mut Plan) {
    if let Some(place) = scheduler.nominations.place_of(id) {
        progress_at(scheduler, place, false, now, plan);
    }
}

/// Whether all nominations between two places still wait by a full look, for checks of the watches.
fn still_wait(scheduler: &Scheduler, last: Option<u64>, end: u64) -> bool {
    let waits = |nomination| matches!(wait_of(&scheduler.state, nomination), Wait::Certain { .. });
    scheduler.nominations.between(last, end).all(waits)
}

/// Admits the workload of the nomination at a place if it fits now, and ends the nomination if it does not last.
fn progress_at(scheduler: &mut Scheduler, place: u64, keeps_to_plan: bool, now: Time, plan: &mut Plan) {
    let nomination = scheduler.nominations.at(place);
    let waiting = nomination.and_then(|nomination| waiting_for(&scheduler.state, nomination));
    scheduler.without_nomination(place, |scheduler, nomination| {
        let Some(waiting) = waiting else { return (None, ()) };
        let lasting = match next_step(scheduler, &waiting, (place, &nomination), keeps_to_plan) {
            NextStep::Start(placement) => {
                admit(scheduler, &waiting, nomination.pool, placement, now, plan);
                None
            }
            NextStep::Wait(placement) => Some(on_nodes(&scheduler.state, nomination, placement)),
            NextStep::End => {
                end(scheduler, &nomination);
                None
            }
        };
        (lasting, ())
    });
}

/// How a nomination goes on.
enum NextStep {
    /// Its workload starts on these nodes now.
    Start(Placement),
    /// Its workload waits for the capacity of these nodes.
    Wait(Placement),
    /// Its capacity does not come free, or its workload may not start.
    End,
}

/// How a nomination goes on of which nothing is charged now.
///
/// Its workload starts on the nodes of the plan. Other nodes are looked for once something has happened that the plan did not
/// know, or where the nodes of the plan do not come free.
fn next_step(
    scheduler: &Scheduler,
    waiting: &WaitingWorkload,
    (place, nomination): (u64, &Nomination),
    keeps_to_plan: bool,
) -> NextStep {
    let (state, pool) = (&scheduler.state, nomination.pool);
    let remaining = nomination.running_victims(state);
    let freed = freed_by(state, &remaining);
    if !is_permitted(state, waiting, nomination, &remaining, &freed) {
        return NextStep::End;
    }
    let spares_older = |start: &Placement| {
        let older: Vec<&Nomination> = scheduler.nominations.between(None, place).collect();
        leaves_to_older(state, nomination, &older, start)
    };
    if let Some(start) = starts_as_planned(state, waiting, nomination).filter(spares_older) {
        return NextStep::Start(start);
    }
    // It must be the capacity of the victims. While the pause after a failed write lasts, the victim stays chosen. After
    // that the search is made again, because the choice may be wrong by then.
    let pausing = remaining.iter().all(|victim| scheduler.pauses(victim.take.id()));
    let as_planned = as_planned(state, waiting, nomination, Capacity::Settled(&freed));
    let as_planned = as_planned.filter(|_| pausing);
    if keeps_to_plan && let Some(placement) = as_planned {
        return NextStep::Wait(placement);
    }
    let nodes = placement::eligible(state, &waiting.request(pool));
    if let Some(start) = fits_now(state, waiting, pool, &nodes).filter(spares_older) {
        return NextStep::Start(start);
    }
    let elsewhere = || {
        let placement = Capacity::Settled(&freed).place(state, waiting, pool, &nodes);
        placement.filter(|_| pausing)
    };
    as_planned.or_else(elsewhere).map_or(NextStep::End, NextStep::Wait)
}

/// Notes that a nomination has ended; its workload waits again.
pub fn end(scheduler: &mut Scheduler, nomination: &Nomination) {
    if let Some(change) = scheduler.cursor.latest_change().cloned() {
        let broken = BrokenPlan { why: Broken::After(change), victims: nomination.victims.clone() };
        scheduler.nominations.broken.insert(nomination.id.clone(), broken);
    }
    requeue::queue_again(scheduler, &nomination.id);
}

/// A nomination on the nodes of a placement. Its sentence names the victims that hold capacity there, and stays where the nodes do.
fn on_nodes(state: &ClusterState, nomination: Nomination, placement: Placement) -> Nomination {
    let same_nodes = placement.keys().eq(nomination.placement.keys());
    let mut nomination = Nomination { placement, ..nomination };
    if !same_nodes {
        nomination.message = message_for(state, &nomination);
    }
    nomination
}

/// The sentence of a nomination that has got other nodes: it names the victims that hold capacity on these.
pub fn message_for(state: &ClusterState, nomination: &Nomination) -> String {
    let ids = nomination.victims.iter().map(|victim| victim.take.id());
    let ids = ids.filter(|id| runs_on(state, id, &nomination.placement)).cloned();
    explain::waiting(state, &nomination.placement, &ids.collect::<Vec<_>>())
}

/// Whether pods of a workload are on one of these nodes.
fn runs_on(state: &ClusterState, id: &WorkloadId, placement: &Placement) -> bool {
    state.get(id).is_some_and(|info| info.usage.nodes.keys().any(|node| placement.contains_key(node)))
}

/// How a nomination stands.
enum Wait {
    /// Its workload does not wait any more.
    Ended,
    /// Its workload moves and still ends where it runs, or its capacity will be free once the pods that are ending are gone. It stays
    /// so while the watch holds; without one it has to be looked at in each cycle.
    Certain { watch: Option<Watch> },
    /// It may start, or only a closer look can tell.
    Open,
}

/// How a nomination stands, without a search.
fn wait_of(state: &ClusterState, nomination: &Nomination) -> Wait {
    let Some(info) = nomination.info(state) else { return Wait::Ended };
    let itself = std::iter::once(nomination.index);
    match info.phase {
        Phase::Pending => {}
        Phase::Stopping(_) | Phase::Leaving { .. } => {
            return Wait::Certain { watch: Some(Watch::new(state, itself, std::iter::empty(), None)) };
        }
        _ => return Wait::Ended,
    }
    let request = Request {
        pool: nomination.pool,
        shape: &nomination.shape,
        topology: &nomination.topology,
        profile: &nomination.profile,
        need: &nomination.need,
        pods: nomination.pods,
        beside: None,
    };
    let is_same = info.shape == nomination.shape && info.workload.topology == nomination.topology;
    let victims = &nomination.victims;
    if !is_same || victims.iter().any(|victim| victim.still_runs(state)) {
        return Wait::Open;
    }
    let enough = placement::starts_before_settled(state, &request, &nomination.placement);
    let Some(enough) = enough else { return Wait::Open };
    // A victim that is gone may come back with another index.
    let known = victims.iter().all(|victim| victim.at_its_index(state).is_some());
    let watch = known.then(|| {
        let workloads = itself.chain(victims.iter().map(|victim| victim.index));
        Watch::new(state, workloads, nomination.placement.keys().copied(), Some(enough))
    });
    Wait::Certain { watch }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Wait, progress, wait_of};
    use crate::Engine;
    use crate::types::amount::{Amount, ResourceList};
    use crate::types::{Action, Event, Node, Observed, Plan, PodShape, Queue, Quota, Team, Time, Workload};

    const NOW: Time = Time(0);

    fn gpus(count: i64) -> ResourceList {
        ResourceList::from([("nvidia.com/gpu".into(), Amount::units(count))])
    }

    /// A Job of that many pods with one GPU each in team a.
    fn job(name: &str, pods: u32, priority: i32) -> Workload {
        let shape = PodShape { requests: gpus(1), ..PodShape::default() };
        Workload { priority, ..Workload::job(&"a".into(), &name.into(), pods, shape, NOW) }
    }

    #[test]
    fn a_look_at_a_nomination_that_lasts_is_no_change_of_usage() {
        let mut engine = Engine::new();
        let quota = Quota { guaranteed: gpus(3), limit: gpus(3), lendable: ResourceList::new() };
        let quotas = [("default".into(), quota)].into();
        let team = Team {
            name: "a".into(),
            parent: None,
            quotas,
            weight: 1,
            fair_users: false,
            budget: None,
            queues: vec![Queue::fallback()],
        };
        let node = Node {
            name: "n0".into(),
            labels: BTreeMap::new(),
            allocatable: gpus(7),
            taints: Vec::new(),
            schedulable: true,
            unreachable: None,
        };
        let low = job("low", 2, 0);
        for event in [Event::TeamApplied(team), Event::NodeApplied(node), Event::workload(low.clone())] {
            engine.apply(event, NOW);
        }
        let actions = engine.plan(NOW).actions;
        let [Action::Admit { admission, .. }] = &actions[..] else { panic!("{actions:?}") };
        let runs = Workload { state: Observed::Admitted(admission.clone()), ..low };
        engine.apply(Event::workload(runs), NOW);
        engine.apply(Event::workload(job("high", 3, 1)), NOW);
        let actions = engine.plan(NOW).actions;
        assert!(matches!(&actions[..], [Action::Evict { .. }]), "{actions:?}");

        let scheduler = &mut engine.scheduler;
        let nomination = scheduler.nominations.iter().next().expect("a nomination");
        assert!(
            matches!(wait_of(&scheduler.state, nomination), Wait::Open),
            "the node has capacity, the limit leaves none"
        );
        scheduler.state.quotas.set_changes_aside();
        let mut plan = Plan::default();
        progress(scheduler, NOW, &mut plan);
        assert!(plan.actions.is_empty() && scheduler.nominations.preempts(), "it still waits");
        assert_eq!(scheduler.state.quotas.take_dirty(), [].into());
    }
}
