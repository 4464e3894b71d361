//! Frees capacity for a waiting workload: capacity that ending pods leave is nominated, else victims are searched.

use crate::cycle::nominate::{PlanVictims, nominate_for};
use crate::cycle::victims::{self, OnItsWay};
use crate::cycle::{blocked, evict, limits, reserve, settled, take_free, take_over};
use crate::explain;
use crate::placement::waiting::Attempt;
use crate::preemption::{Take, Victims};
use crate::queue::again::SearchTurn;
use crate::scheduler::Scheduler;
use crate::scheduler::nomination::Victim;
use crate::types::Plan;

/// How an attempt to free capacity for a workload has ended.
pub enum Preemption {
    /// Capacity is nominated to the workload, or it has started.
    Settled,
    /// Victims were searched, and there is no set of them that lets it start.
    NoVictims,
    /// Nothing is preempted for it as things are.
    NotSearched,
    /// The search was put off: its turn comes later.
    PutOff,
}

/// Nominates capacity that is being freed already, or preempts workloads for it. Reserved capacity that the workload must respect
/// is masked meanwhile. Whether it is the turn of a borrower to search is asked once in an attempt, and kept in `turn`.
pub fn preempt(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    turn: &mut Option<SearchTurn>,
    plan: &mut Plan,
) -> Preemption {
    let Attempt { waiting, pool, .. } = attempt;
    let masked = reserve::masks_for(scheduler, waiting, pool);
    if take_free::run(scheduler, attempt, &masked, plan) {
        return Preemption::Settled;
    }
    let nominated =
        reserve::with_masked(scheduler, &masked, |scheduler| {
            match victims::capacity_on_its_way(scheduler, attempt) {
                OnItsWay::Nominate(placement) => {
                    reserve::note_taken(scheduler, waiting, pool, &placement);
                    nominate_for(scheduler, waiting, pool, placement, PlanVictims::default(), true);
                    Some(Preemption::Settled)
                }
                OnItsWay::LeaveToOrder => Some(Preemption::NotSearched),
                OnItsWay::TooLittle => take_over::run(scheduler, attempt).then_some(Preemption::Settled),
            }
        });
    if let Some(nominated) = nominated {
        return nominated;
    }
    if !blocked::may_preempt(scheduler, waiting, pool) {
        return Preemption::NotSearched;
    }
    let turn = waits_for_its_turn(scheduler, attempt)
        .then(|| *turn.get_or_insert_with(|| turn_to_search(scheduler, attempt)));
    if turn == Some(SearchTurn::PutOff) {
        return Preemption::PutOff;
    }
    let before = scheduler.cursor.effort.sets;
    let found = victims::beside_reserved(scheduler, attempt, &masked).map(|victims| (victims, Vec::new()));
    let found = found.or_else(|| take_over::with_victims(scheduler, attempt, &masked));
    if turn == Some(SearchTurn::Again) {
        let tried = scheduler.cursor.effort.sets - before;
        scheduler.queue.pending.note_sets(tried);
    }
    let Some((victims, ending)) = found else { return Preemption::NoVictims };
    carry_out(scheduler, attempt, victims, ending, plan);
    Preemption::Settled
}

/// Whether a search is made only in the turn of its class. That of a plan which is amended, and one at the end of the longest wait, are
/// the last that can help.
fn waits_for_its_turn(scheduler: &Scheduler, attempt: Attempt<'_>) -> bool {
    let Attempt { waiting, pool, now, .. } = attempt;
    blocked::is_paced(&scheduler.state, waiting, pool)
        && scheduler.nominations.still_ending(&scheduler.state, &waiting.id).is_empty()
        && !limits::is_due(scheduler, &waiting.id, now)
}

/// Whether victims are searched now for a borrower.
fn turn_to_search(scheduler: &mut Scheduler, attempt: Attempt<'_>) -> SearchTurn {
    let generation = scheduler.cursor.generation();
    scheduler.queue.pending.turn_to_search(&attempt.waiting.id, generation, attempt.now)
}

/// Preempts the victims and nominates their capacity to the preemptor, with that of workloads which are `ending` already.
fn carry_out(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    victims: Victims,
    ending: Vec<Victim>,
    plan: &mut Plan,
) {
    let Attempt { waiting, pool, now, .. } = attempt;
    let Victims { takes, placement, within_guarantee, .. } = victims;
    if !within_guarantee {
        let evicted = |take: &Take| matches!(take, Take::Whole(_)).then(|| take.id().clone());
        let external_changes = scheduler.cursor.external_changes();
        let evicted = takes.iter().filter_map(evicted);
        scheduler.nominations.note_borrowing_preemption(&waiting.id, external_changes, evicted);
    }
    let settled = ending.is_empty() && settled::leave_places(&scheduler.state, waiting, pool, &takes, now);
    let (first, mut victims) = (plan.actions.len(), PlanVictims { added: Vec::new(), ending, settled });
    for take in takes {
        victims.added.extend(evict::carry_out(scheduler, take, waiting, within_guarantee, now, plan));
    }
    if let Some(broken) = scheduler.nominations.broken.remove(&waiting.id) {
        let still_ends = broken.victims.into_iter().filter(|victim| victim.still_ends(&scheduler.state));
        victims.ending.extend(still_ends);
        let why = explain::broken_plan(&scheduler.state, &broken.why);
        plan.actions.iter_mut().skip(first).for_each(|action| action.add_to_message(&why));
    }
    reserve::note_taken(scheduler, waiting, pool, &placement);
    nominate_for(scheduler, waiting, pool, placement, victims, within_guarantee);
}
