//! Carries out a preemption search's decisions: victims are evicted, shrunk or moved for a preemptor.

use std::collections::BTreeMap;

use crate::explain;
use crate::placement::Placement;
use crate::placement::waiting::WaitingWorkload;
use crate::preemption::Take;
use crate::scheduler::Scheduler;
use crate::scheduler::nomination::{Nomination, Victim};
use crate::state::cluster::ClusterState;
use crate::state::quotas::Hypothetical;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{NodeId, TeamId};
use crate::types::{Action, Admission, EvictReason, Name, Plan, ResizeCause, Time, WorkloadId};

/// Carries out the decision about one victim; `None` if the victim does not run any more.
pub fn carry_out(
    scheduler: &mut Scheduler,
    take: Take,
    preemptor: &WaitingWorkload,
    within_guarantee: bool,
    now: Time,
    plan: &mut Plan,
) -> Option<Victim> {
    let state = &scheduler.state;
    let info = state.get(take.id())?;
    let Phase::Running(admission) = info.phase.clone() else { return None };
    let (index, before) = (info.index, admission.clone());
    let preemptor_id = Some(&preemptor.id);
    match &take {
        Take::Whole(id) => {
            let reason = reason_of_eviction(info, preemptor, within_guarantee);
            evict(scheduler, id, preemptor_id, reason, now, plan);
        }
        Take::Move(id, to) => {
            evict(scheduler, id, preemptor_id, EvictReason::Moved, now, plan);
            nominate_for_move(scheduler, id, &admission, to.clone());
        }
        Take::Shrink(id, pods) => {
            let to = without(state, info, &admission, pods);
            let message = explain::shrunk(state, info, &preemptor.id, to.pods);
            let cause = ResizeCause::Shrunk;
            let shrunk = Resize { id, from: admission, to, cause, preemptor: preemptor_id, message };
            resize(scheduler, shrunk, plan);
        }
        Take::Shift(id, pods, placement) => {
            let to = shifted(state, info, &admission, (pods, placement));
            let message = explain::shifted(state, &preemptor.id, placement);
            let cause = ResizeCause::Moved;
            let shifted = Resize { id, from: admission, to, cause, preemptor: preemptor_id, message };
            resize(scheduler, shifted, plan);
        }
    }
    Some(Victim { take, index, before })
}

/// The rule by which a preemptor evicts a whole workload.
fn reason_of_eviction(
    victim: &WorkloadInfo,
    preemptor: &WaitingWorkload,
    within_guarantee: bool,
) -> EvictReason {
    if victim.team == preemptor.team {
        EvictReason::Preempted
    } else if within_guarantee {
        EvictReason::Reclaimed
    } else {
        EvictReason::FairShare
    }
}

/// An admission with these pods on the nodes of a placement instead. It keeps their number, so it
/// borrows as before.
fn shifted(
    state: &ClusterState,
    info: &WorkloadInfo,
    admission: &Admission,
    (pods, placement): (&BTreeMap<NodeId, u32>, &Placement),
) -> Admission {
    let mut to = without(state, info, admission, pods);
    state.nodes.add_pods(placement, &mut to);
    to.borrowed = admission.borrowed;
    to
}

/// An admission with fewer pods on these nodes.
fn without(
    state: &ClusterState,
    info: &WorkloadInfo,
    admission: &Admission,
    pods: &BTreeMap<NodeId, u32>,
) -> Admission {
    let left = |(node, there): (&NodeId, &u32)| {
        let left = there.saturating_sub(pods.get(node).copied().unwrap_or(0));
        (left > 0).then(|| (state.nodes.name(*node).clone(), left))
    };
    let nodes: BTreeMap<Name, u32> = info.usage.staying().iter().filter_map(left).collect();
    let borrowed = admission.borrowed && still_borrows(state, info, pods.values().sum());
    Admission { pods: nodes.values().sum(), nodes, borrowed, ..admission.clone() }
}

/// Whether a team on the path of a workload still borrows once so many pods of it have ended.
fn still_borrows(state: &ClusterState, info: &WorkloadInfo, pods: u32) -> bool {
    let (quotas, pool) = (&state.quotas, info.usage.pool);
    let mut without = Hypothetical::new();
    quotas.assume(&mut without, info.account(), &info.need.times(pods), -1);
    let is_beyond = |at: &TeamId| quotas.each_beyond_guarantee(pool, std::iter::once(*at), &without);
    let guaranteed = quotas.guaranteed_levels(pool, info.team);
    // Without any guarantee, all is borrowed.
    guaranteed.is_empty() || guaranteed.iter().any(is_beyond)
}

/// Returns a running workload to the queue.
pub fn evict(
    scheduler: &mut Scheduler,
    id: &WorkloadId,
    preemptor: Option<&WorkloadId>,
    reason: EvictReason,
    now: Time,
    plan: &mut Plan,
) {
    let Some(info) = scheduler.state.get(id) else { return };
    let Phase::Running(admission) = info.phase.clone() else { return };
    let rest = scheduler.retries.gangs.rest(id).map(|rest| rest.message.as_str());
    let message = explain::evicted(&scheduler.state, info, preemptor, reason, rest, now);
    scheduler.state.note_unadmitted_eviction(id, now);
    scheduler.state.set_phase(id, Phase::Stopping(admission));
    plan.actions.push(Action::Evict { workload: id.clone(), preemptor: preemptor.cloned(), reason, message });
}

/// A change of the pods with which a running workload goes on.
pub struct Resize<'a> {
    /// The workload.
    pub id: &'a WorkloadId,
    /// The admission until now.
    pub from: Admission,
    /// The admission from now on.
    pub to: Admission,
    /// The rule.
    pub cause: ResizeCause,
    /// The preemptor that gets the capacity, if there is one.
    pub preemptor: Option<&'a WorkloadId>,
    /// The reason in one sentence.
    pub message: String,
}

/// Lets a running workload go on with other pods.
pub fn resize(scheduler: &mut Scheduler, resize: Resize<'_>, plan: &mut Plan) {
    let Resize { id, from, to, cause, preemptor, message } = resize;
    scheduler.state.set_phase(id, Phase::Resizing { from, to: to.clone() });
    plan.actions.push(Action::Resize {
        workload: id.clone(),
        admission: to,
        cause,
        preemptor: preemptor.cloned(),
        message,
    });
}

/// Nominates the new nodes of a workload that moves, until it has ended where it runs.
pub fn nominate_for_move(scheduler: &mut Scheduler, id: &WorkloadId, admission: &Admission, to: Placement) {
    let Some(mover) = WaitingWorkload::of(&scheduler.state, id) else { return };
    // It keeps its number of pods; otherwise other workloads would take the capacity that the move frees.
    let mover = mover.with_pods(to.values().sum());
    let pool = scheduler.state.quotas.intern_pool(&admission.pool);
    let message = explain::waiting(&scheduler.state, &to, &[]);
    let nomination = Nomination {
        moves: true,
        ..Nomination::new(&scheduler.state, &mover, pool, to, Vec::new(), message)
    };
    scheduler.nominate(nomination);
}
