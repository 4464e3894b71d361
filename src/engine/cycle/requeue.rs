//! Puts workloads into the queue, or takes them out of it.

use std::sync::Arc;

use crate::cycle::reserve;
use crate::queue::class::ClassKey;
use crate::scheduler::Scheduler;
use crate::scheduler::retries::Failure;
use crate::state::cluster::ClusterState;
use crate::state::nodes::selects;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::{PodTerm, Profile, Time, WorkloadId};

/// Requeues workloads at the end of their pause after a failed write.
pub fn end_pauses(scheduler: &mut Scheduler, now: Time) {
    let over = |failure: &Failure| failure.until.is_some_and(|until| until <= now);
    let failures = &scheduler.retries.failures;
    let due: Vec<WorkloadId> =
        failures.iter().filter(|(_, failure)| over(failure)).map(|(id, _)| id.clone()).collect();
    for id in due {
        if scheduler.state.get(&id).is_none() {
            scheduler.retries.failures.remove(&id);
            continue;
        }
        if let Some(failure) = scheduler.retries.failures.get_mut(&id) {
            failure.until = None;
        }
        queue_again(scheduler, &id);
    }
}

/// Gives the workloads of users the places that their order has changed.
pub fn follow_user_order(scheduler: &mut Scheduler) {
    for id in scheduler.queue.user_order.divide(&scheduler.state) {
        queue_up(scheduler, &id);
    }
    scheduler.queue.user_order.settled();
}

/// Puts a workload into the queue that may start now for a reason of its own: nothing around it need have changed.
pub fn queue_again(scheduler: &mut Scheduler, id: &WorkloadId) {
    scheduler.cursor.note_looser();
    queue_up(scheduler, id);
}

/// Puts a workload into the queue if it waits and may be attempted, else takes it out.
pub fn queue_up(scheduler: &mut Scheduler, id: &WorkloadId) {
    scheduler.deadlines.arm(&mut scheduler.state, id);
    scheduler.retries.gangs.arm(&scheduler.state, id);
    scheduler.queue.user_order.note(&scheduler.state, id);
    let state = &scheduler.state;
    let waits = state.get(id).filter(|info| {
        let wants = info.phase == Phase::Pending && !info.removed && info.workload.pods > 0;
        wants
            && !state.is_paused(info)
            && !scheduler.retries.pauses(id)
            && scheduler.retries.gangs.rest(id).is_none()
    });
    let nominated = scheduler.nominations.contains(id);
    let Some(info) = waits.filter(|_| !nominated) else {
        scheduler.queue.pending.remove(id);
        return;
    };
    let workload = &info.workload;
    let key = ClassKey {
        queue: workload.queue.clone(),
        priority: workload.priority,
        pods: workload.pods,
        least_pods: info.least_pods(),
        shape: Arc::clone(&info.shape),
        sizes: workload.sizes.clone(),
        topology: workload.topology.clone(),
        profile: seen(state, &workload.profile),
        pools: workload.pools.clone(),
        evictable: workload.resumable || workload.expendable,
        refused: scheduler.retries.refused.contains(id),
        time_limit: workload.time_limit,
        user: state.quotas.user_of(info.team, workload.user.as_ref()).map(|(_, user)| user),
    };
    let rank = scheduler.queue.rank_in_class(state, info);
    let held = state.user_share(info.team, key.user.as_ref(), &key.pools);
    let pending = &mut scheduler.queue.pending;
    let before = pending.rank(id);
    pending.insert(info.team, key, rank, held);
    // An owner that has moved back stands behind workloads that may own the reservation now.
    let moved_back = before.is_some_and(|before| pending.rank(id).is_some_and(|rank| before < rank));
    if moved_back && scheduler.reservations.owned_by(id).is_some() {
        reserve::requeue_before(scheduler, id);
    }
}

/// The part of a profile on which placements depend; `None` if they do not.
fn seen(state: &ClusterState, profile: &Arc<Profile>) -> Option<Arc<Profile>> {
    let repelling: Vec<&PodTerm> = state.nodes.constraints.repelling(profile).map(|term| &**term).collect();
    let matters = profile.is_constrained() || !repelling.is_empty();
    matters.then(|| Arc::new(profile.reduced(repelling.into_iter())))
}

/// Queues the waiting workloads again that pods on nodes have begun to repel, in classes of their own.
pub fn note_repelled(scheduler: &mut Scheduler) {
    let new = scheduler.state.nodes.constraints.take_new();
    if new.is_empty() {
        return;
    }
    let repelled = |info: &&WorkloadInfo| {
        info.phase == Phase::Pending && new.iter().any(|term| selects(&term.pods, &info.workload.profile))
    };
    let ids: Vec<WorkloadId> =
        scheduler.state.iter().filter(repelled).map(|info| info.workload.id.clone()).collect();
    ids.iter().for_each(|id| queue_up(scheduler, id));
}
