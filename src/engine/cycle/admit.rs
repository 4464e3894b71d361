//! Admits a workload: it starts on the nodes of a placement.

use crate::cycle::reserve;
use crate::explain;
use crate::placement::Placement;
use crate::placement::waiting::WaitingWorkload;
use crate::scheduler::Scheduler;
use crate::state::workload::Phase;
use crate::types::ids::PoolId;
use crate::types::{Action, Admission, Plan, Time};

/// Admits a waiting workload to a pool, and ends its place in the queue and its reservation.
pub fn admit(
    scheduler: &mut Scheduler,
    waiting: &WaitingWorkload,
    pool: PoolId,
    placement: Placement,
    now: Time,
    plan: &mut Plan,
) {
    let beyond = !waiting.within_guarantee(&scheduler.state, pool);
    let borrowed = beyond && waiting.preemptible;
    let mut message = explain::admitted(&scheduler.state, waiting, pool, beyond);
    let less = scheduler.state.get(&waiting.id).map(|info| explain::less(info, waiting.share));
    message.push_str(&less.unwrap_or_default());
    if waiting.unfunded {
        message.push_str(explain::UNFUNDED);
    }
    let nodes = placement.iter().map(|(node, pods)| (scheduler.state.nodes.name(*node).clone(), *pods));
    let admission = Admission {
        pool: scheduler.state.quotas.pool_name(pool).clone(),
        nodes: nodes.collect(),
        pods: placement.values().sum(),
        borrowed,
        share: waiting.share,
        unfunded: waiting.unfunded,
        spared: waiting.spared,
        at: now,
    };
    scheduler.state.set_phase(&waiting.id, Phase::Starting(admission.clone()));
    scheduler.queue.pending.remove(&waiting.id);
    scheduler.nominations.broken.remove(&waiting.id);
    reserve::note_start(scheduler, &waiting.id);
    plan.actions.push(Action::Admit { workload: waiting.id.clone(), admission, message });
}
