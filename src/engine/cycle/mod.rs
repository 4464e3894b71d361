//! The scheduling cycle: from the events since the last plan to the actions of the next.

pub mod admit;
pub mod attempt;
pub mod attempts;
pub mod awaited;
pub mod blocked;
pub mod deadlines;
pub mod defragment;
pub mod elastic_start;
pub mod elsewhere;
pub mod events;
pub mod evict;
pub mod excess;
pub mod grow;
pub mod kept;
pub mod limits;
pub mod misplaced;
pub mod moves;
pub mod next_owner;
pub mod node_loss;
pub mod nominate;
pub mod nominated_plan;
pub mod other_pools;
pub mod pod_loss;
pub mod pods_ready;
pub mod preempt;
pub mod recall;
pub mod refusal;
pub mod release;
pub mod replace;
pub mod requeue;
pub mod reserve;
pub mod settled;
pub mod smaller_size;
pub mod take_free;
pub mod take_over;
pub mod unreachable;
pub mod victims;
pub mod wake;

use std::collections::BTreeSet;

use crate::scheduler::Scheduler;
use crate::scheduler::nominations::PlanComplete;
use crate::types::{Plan, Time};

/// Runs one scheduling cycle and returns its actions, in the order in which they are to be carried out.
pub fn run(scheduler: &mut Scheduler, now: Time) -> Plan {
    let mut plan = Plan::default();
    // 1. Let time pass: decay past usage, count stops as done that no object confirmed in time, and nodes as lost that
    //    have not answered for too long.
    events::advance(scheduler, now);
    unreachable::advance(scheduler, now);
    // 2. End pauses: requeue workloads, and allow avoided nodes again. Follow the orders that users give their work.
    requeue::end_pauses(scheduler, now);
    requeue::follow_user_order(scheduler);
    misplaced::lift(scheduler, now);
    pods_ready::lift(scheduler, now);
    // 3. Fail workloads that ran longer than their queue allows, raise those that waited longer, evict pods that were never
    //    admitted where a team holds more than its limit, and take pods that can never run again off the records.
    limits::enforce(scheduler, now, &mut plan);
    excess::run(scheduler, now, &mut plan);
    release::run(scheduler, now, &mut plan);
    // 4. Review reservations that have become due.
    reserve::review_due(scheduler, now);
    // 5. Requeue workloads that are called back. Replace lost pods, follow misplaced ones, requeue gangs that did not become
    //    ready or lost a pod, and end pods on nodes that do not answer.
    recall::run(scheduler, now, &mut plan);
    misplaced::run(scheduler, now, &mut plan);
    pods_ready::run(scheduler, now, &mut plan);
    pod_loss::run(scheduler, now, &mut plan);
    node_loss::run(scheduler, now, &mut plan);
    unreachable::run(scheduler, now, &mut plan);
    // 6. Find other nodes for workloads that move and have lost theirs. Admit preemptors once their nominated capacity is free,
    //    but for those that may start in a pool that they prefer.
    moves::run(scheduler, now, &mut plan);
    let deferred = nominate::progress(scheduler, now, &mut plan);
    // Echoes of a preemption's own writes are no reason to decide anything else.
    if scheduler.keeps_to_plan(now) {
        return plan;
    }
    // 7. Attempt the waiting workloads in order: admit, preempt, or say why not. Fail those that have waited for as long as
    //    their queue allows and could not start, and attempt the others without them. Preemptors that still wait for their
    //    nominated capacity have their place in this order for free capacity in their other pools.
    limits::attempt_due(scheduler, now);
    attempts::run(scheduler, deferred, now, &mut plan);
    if !scheduler.cursor.cut_short && limits::fail_waiting(scheduler, now, &mut plan) {
        attempts::run(scheduler, BTreeSet::new(), now, &mut plan);
    }
    // 8. Let running elastic workloads grow into capacity that no waiting workload can use.
    if !scheduler.cursor.cut_short {
        grow::run(scheduler, now, &mut plan);
    }
    scheduler.queue.forget_unused_headroom();
    // 9. Move one workload now and then where that leaves free capacity in larger pieces.
    defragment::run(scheduler, now, &mut plan);
    note_complete(scheduler);
    plan
}

/// Notes that a plan with preemptions is complete, unless workloads are left for the next cycle. Searches that were put off wait until
/// it has ended.
fn note_complete(scheduler: &mut Scheduler) {
    scheduler.nominations.plan = None;
    if scheduler.nominations.preempts() && !scheduler.has_more() {
        let (environment, until) = (scheduler.cursor.environment(), deadlines::next_but_searches(scheduler));
        scheduler.nominations.plan = Some(PlanComplete { environment, until });
    }
}
