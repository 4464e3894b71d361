//! Where a workload may start without touching reserved capacity.

use crate::cycle::reserve::claims::LeaveWhole;
use crate::cycle::reserve::mask::with_masked;
use crate::cycle::reserve::whole::excess_pods;
use crate::placement::Placement;
use crate::placement::waiting::{Attempt, may_start_now};
use crate::preemption::Masked;
use crate::scheduler::Scheduler;

/// Where a workload may start that leaves whole what it is asked to: on other nodes, or beside the reserved pods.
pub fn place_beside(
    scheduler: &mut Scheduler,
    attempt: Attempt<'_>,
    asked: &LeaveWhole<'_>,
) -> Option<Placement> {
    let Attempt { waiting, pool, nodes, .. } = attempt;
    let mut barred = Placement::new();
    for (reservation, slot) in &asked.these {
        for (node, pods) in excess_pods(scheduler, waiting, pool, (reservation, slot), &asked.respected) {
            let most = barred.entry(node).or_default();
            *most = pods.max(*most);
        }
    }
    let barred = Masked { owner: waiting.id.clone(), need: waiting.need.clone(), placement: barred };
    with_masked(scheduler, &[barred], |scheduler| may_start_now(&scheduler.state, waiting, pool, nodes))
}
