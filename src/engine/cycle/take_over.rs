//! A workload within guarantee takes over capacity that is being cleared for a borrowing preemptor, where it would otherwise wait or
//! evict more (law 8). Within a team the order decides (law 9): a workload takes over from one with a lower priority, whether they borrow or
//! not, since it would evict that one as soon as it has started.

use crate::cycle::nominate::{PlanVictims, nominate_for};
use crate::cycle::nominated_plan::freed_by;
use crate::cycle::victims::{self, OnItsWay};
use crate::cycle::{requeue, reserve};
use crate::placement::waiting::{Attempt, WaitingWorkload};
use crate::placement::{Capacity, Placement};
use crate::preemption::{Masked, Victims};
use crate::scheduler::Scheduler;
use crate::scheduler::nomination::{Nomination, Victim};
use crate::scheduler::nominations::{Broken, BrokenPlan};
use crate::scheduler::set_aside::Aside;
use crate::state::cluster::ClusterState;
use crate::state::lending;
use crate::state::quotas::Hypothetical;

/// The most preemptors of which it is tried whether the workload needs what is cleared for them.
const MOST_SPARED: usize = 16;

/// Nominates the capacity of another preemptor to a workload, the latest preemptor's first; the preemptor waits again. False if no
/// such capacity lets the workload start.
pub fn run(scheduler: &mut Scheduler, attempt: Attempt<'_>) -> bool {
    let Attempt { waiting, pool, .. } = attempt;
    let state = &scheduler.state;
    let may_be_within = own_guarantee_may_hold(scheduler, attempt);
    let found = scheduler.nominations.iter().rev().find_map(|nomination| {
        let is_tried = may_be_within || is_sibling(nomination, attempt);
        let placement = is_tried.then(|| in_place_of(state, nomination, attempt)).flatten();
        placement.map(|placement| (nomination.id.clone(), placement))
    });
    let Some((id, placement)) = found else { return false };
    let Some(nomination) = scheduler.end_nomination(&id) else { return false };
    let within_guarantee = waiting.within_guarantee(&scheduler.state, pool);
    queue_preemptor(scheduler, &nomination, waiting);
    reserve::note_taken(scheduler, waiting, pool, &placement);
    let victims = PlanVictims { ending: nomination.victims, ..PlanVictims::default() };
    nominate_for(scheduler, waiting, pool, placement, victims, within_guarantee);
    true
}

/// Whether a preemptor is nominated from which a workload may take over whether it is within guarantee or not.
pub fn has_sibling(scheduler: &Scheduler, attempt: Attempt<'_>) -> bool {
    let state = &scheduler.state;
    scheduler.nominations.iter().any(|nomination| {
        nomination.pool == attempt.pool
            && is_sibling(nomination, attempt)
            && may_take_over(state, nomination, attempt)
    })
}

/// The victims that let a workload within guarantee start on the capacity of borrowing preemptors, where none do beside it, and the
/// workloads that end for these preemptors. They wait again: once they ran, the workload would evict them and the same victims.
pub fn with_victims(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    masked: &[Masked],
) -> Option<(Victims, Vec<Victim>)> {
    if !own_guarantee_may_hold(scheduler, attempt) {
        return None;
    }
    let places = scheduler.nominations.places(|nomination| {
        let ends = !nomination.victims.iter().any(|victim| victim.still_runs(&scheduler.state));
        ends && may_take_over(&scheduler.state, nomination, attempt)
    });
    if places.is_empty() || !may_be_within_guarantee(scheduler, attempt, &places) {
        return None;
    }
    scheduler.without_nominations(places, |scheduler, aside| {
        let found = start(scheduler, attempt, masked)?;
        let (found, taken) = spare_others(scheduler, attempt, masked, (std::mem::take(aside), found));
        let mut ending = Vec::new();
        for nomination in taken {
            queue_preemptor(scheduler, &nomination, attempt.waiting);
            ending.extend(nomination.victims);
        }
        Some((found, ending))
    })
}

/// Puts the nominations back beside which the same victims let the workload start, the oldest first; returns the others, and
/// where the workload starts then. The first attempt is made with all that lie on other nodes.
fn spare_others(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    masked: &[Masked],
    (aside, mut found): (Vec<Aside>, Victims),
) -> (Victims, Vec<Nomination>) {
    let apart = |Aside { nomination, .. }: &Aside| {
        !nomination.placement.keys().any(|node| found.placement.contains_key(node))
    };
    let (apart, beside): (Vec<Aside>, Vec<Aside>) = aside.into_iter().partition(apart);
    let refused = spare(scheduler, attempt, masked, (apart, &mut found));
    let rest: Vec<Aside> = refused.into_iter().chain(beside).collect();
    let (mut taken, mut left) = (Vec::new(), rest.len());
    for (tried, one) in rest.into_iter().enumerate() {
        left -= 1;
        // Without any the workload would not start.
        let is_needed = taken.is_empty() && left == 0 || tried >= MOST_SPARED;
        let refused = match is_needed {
            true => vec![one],
            false => spare(scheduler, attempt, masked, (vec![one], &mut found)),
        };
        taken.extend(refused.into_iter().map(|one| one.nomination));
    }
    (found, taken)
}

/// Puts nominations back; returns them where the workload would need other victims beside them.
fn spare(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    masked: &[Masked],
    (aside, found): (Vec<Aside>, &mut Victims),
) -> Vec<Aside> {
    if aside.is_empty() {
        return aside;
    }
    let with_the_same = |scheduler: &mut Scheduler| {
        start(scheduler, attempt, masked).filter(|start| start.takes == found.takes)
    };
    match scheduler.put_back_beside(aside, with_the_same) {
        Ok(start) => {
            *found = start;
            Vec::new()
        }
        Err(aside) => aside,
    }
}

/// The victims with which a workload starts within guarantee; none where capacity is on its way that is enough.
fn start(scheduler: &mut Scheduler, attempt: Attempt<'_>, masked: &[Masked]) -> Option<Victims> {
    let on_its_way =
        reserve::with_masked(scheduler, masked, |scheduler| victims::capacity_on_its_way(scheduler, attempt));
    match on_its_way {
        OnItsWay::Nominate(placement) => {
            return Some(Victims {
                takes: Vec::new(),
                placement,
                within_guarantee: true,
                by_exchange: false,
            });
        }
        OnItsWay::LeaveToOrder if attempt.waiting.within_guarantee(&scheduler.state, attempt.pool) => {
            return None;
        }
        OnItsWay::LeaveToOrder | OnItsWay::TooLittle => {}
    }
    let found = victims::beside_reserved(scheduler, attempt, masked);
    found.filter(|victims| victims.within_guarantee && !victims.by_exchange)
}

/// Whether the guarantee of its own team may hold a workload without the nominations of that team. It spares most borrowers a look
/// at every nomination.
pub fn own_guarantee_may_hold(scheduler: &Scheduler, attempt: Attempt<'_>) -> bool {
    let (state, Attempt { waiting, pool, .. }) = (&scheduler.state, attempt);
    if scheduler.nominations.is_empty() {
        return false;
    }
    if !state.quotas.quota_usage(pool, waiting.team).covers_any(&waiting.total) {
        return true;
    }
    let mut without = Hypothetical::new();
    for own in scheduler.nominations.iter().filter(|own| own.team == waiting.team && own.pool == pool) {
        state.quotas.assume(&mut without, own.account(), &own.total, -1);
    }
    let lower = state.totals.reclaimable_below(pool, waiting.team, waiting.priority);
    state.quotas.assume(&mut without, waiting.team, &lower, -1);
    state.quotas.own_guarantee_would_hold(pool, waiting.team, &waiting.total, &without)
}

/// Whether a workload may be within guarantee without these nominations and the lower priorities of its team.
fn may_be_within_guarantee(scheduler: &Scheduler, attempt: Attempt<'_>, places: &[u64]) -> bool {
    let (state, Attempt { waiting, pool, .. }) = (&scheduler.state, attempt);
    let mut without = Hypothetical::new();
    for nomination in places.iter().filter_map(|place| scheduler.nominations.at(*place)) {
        state.quotas.assume(&mut without, nomination.account(), &nomination.total, -1);
    }
    let lower = state.totals.reclaimable_below(pool, waiting.team, waiting.priority);
    state.quotas.assume(&mut without, waiting.team, &lower, -1);
    waiting.within_guarantee_after(state, pool, &without)
}

/// Queues a preemptor again of which the capacity was taken over.
fn queue_preemptor(scheduler: &mut Scheduler, nomination: &Nomination, by: &WaitingWorkload) {
    // What is cleared is the workload's now, so no plan of the preemptor counts it.
    let broken = BrokenPlan { why: Broken::TakenOver(by.id.clone()), victims: Vec::new() };
    scheduler.nominations.broken.insert(nomination.id.clone(), broken);
    requeue::queue_again(scheduler, &nomination.id);
}

/// A placement in the capacity that is nominated to another preemptor, and what is free beside it.
fn in_place_of(state: &ClusterState, nomination: &Nomination, attempt: Attempt<'_>) -> Option<Placement> {
    let Attempt { waiting, pool, nodes, .. } = attempt;
    if !may_take_over(state, nomination, attempt) {
        return None;
    }
    let without = without(state, nomination);
    // Both may count at the same team above them, so the workload too is judged without the preemptor.
    if state.quotas.over_limit(pool, waiting.team, &waiting.total, &without).is_some() {
        return None;
    }
    let mut freed = freed_by(state, &nomination.running_victims(state));
    for (node, pods) in &nomination.placement {
        freed.give(*node, &nomination.id, &nomination.need, *pods);
    }
    // It may borrow in place of a sibling, as it might once that has started and is evicted for it.
    let may_borrow = || {
        is_sibling(nomination, attempt)
            && waiting.preemptible
            && !waiting.unfunded
            && lending::allows(state, waiting.loan(pool), &freed, &without)
    };
    if !waiting.within_guarantee_after(state, pool, &without) && !may_borrow() {
        return None;
    }
    Capacity::Settled(&freed).place(state, waiting, pool, nodes)
}

/// Whether a preemptor yields what is being cleared for it to a workload within guarantee: it borrows, or is of the same team and of a
/// lower priority.
pub fn may_take_over(state: &ClusterState, nomination: &Nomination, attempt: Attempt<'_>) -> bool {
    nomination.pool == attempt.pool
        && !goes_first(state, nomination, attempt)
        // What the holders of parts of a device leave depends on which device they have.
        && state.nodes.demand(&nomination.need).fractions().is_empty()
        && (is_sibling(nomination, attempt) || !nomination.victims.is_empty() && borrows(state, nomination))
}

/// Whether a preemptor is of the same team, and may be evicted for the workload once it has started.
fn is_sibling(nomination: &Nomination, attempt: Attempt<'_>) -> bool {
    nomination.team == attempt.waiting.team && !nomination.moves && !nomination.fixed
}

/// The changes of quota usage without a nomination.
fn without(state: &ClusterState, nomination: &Nomination) -> Hypothetical {
    let mut without = Hypothetical::new();
    state.quotas.assume(&mut without, nomination.account(), &nomination.total, -1);
    without
}

/// Whether a preemptor borrows. One that is within guarantee in exchange for its victims does not, while the guarantee of its own
/// team holds it: to take over from it would only exchange it for the workload, and it would preempt again.
fn borrows(state: &ClusterState, nomination: &Nomination) -> bool {
    let (Nomination { pool, team, total, .. }, without) = (nomination, without(state, nomination));
    let by_plan =
        nomination.within_guarantee && state.quotas.own_guarantee_would_hold(*pool, *team, total, &without);
    !by_plan && !state.quotas.within_guarantee(*pool, *team, total, &without)
}

/// Whether a preemptor stands before its sibling in the order of their team (law 9), so that the sibling leaves it the
/// capacity that is being cleared.
fn goes_first(state: &ClusterState, nomination: &Nomination, attempt: Attempt<'_>) -> bool {
    let waiting = attempt.waiting;
    let priority = |info| state.priority_of(info);
    nomination.team == waiting.team
        && nomination.info(state).map(priority) >= state.at(waiting.index).map(priority)
}
