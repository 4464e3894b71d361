//! Carrying out what a search decided: who stops, shrinks or moves for a claimant.

use std::collections::BTreeMap;

use crate::explain;
use crate::placement::Placement;
use crate::placement::waiting::WaitingWorkload;
use crate::preemption::Take;
use crate::scheduler::Scheduler;
use crate::scheduler::nominations::{Nomination, Victim};
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::NodeId;
use crate::types::{Action, Admission, EvictReason, Name, Plan, ResizeCause, Time, WorkloadId};

/// Decides what happens to one victim; `None` if it does not run (any more).
pub fn take(
    scheduler: &mut Scheduler,
    take: Take,
    preemptor: &WaitingWorkload,
    within_guarantee: bool,
    now: Time,
    plan: &mut Plan,
) -> Option<Victim> {
    let info = scheduler.state.get(take.id())?;
    let Phase::Running(admission) = info.phase.clone() else { return None };
    let (place, before) = (info.index, admission.clone());
    match &take {
        Take::Whole(id) => {
            let reason = if info.team == preemptor.team {
                EvictReason::Preempted
            } else if within_guarantee {
                EvictReason::Reclaimed
            } else {
                EvictReason::FairShare
            };
            evict(scheduler, id, Some(&preemptor.id), reason, now, plan);
        }
        Take::Shrink(id, pods) => {
            let to = without(scheduler, info, &admission, pods);
            let message = explain::shrunk(&scheduler.state, info, &preemptor.id, to.pods);
            resize(
                scheduler,
                Resize {
                    id,
                    from: admission,
                    to,
                    cause: ResizeCause::Shrunk,
                    preemptor: Some(&preemptor.id),
                    message,
                },
                plan,
            );
        }
        Take::Shift(id, pods, places) => {
            let mut to = without(scheduler, info, &admission, pods);
            for (node, pods) in places {
                *to.nodes.entry(scheduler.state.nodes.name(*node).clone()).or_default() += pods;
                to.pods += pods;
            }
            let message = explain::shifted(&scheduler.state, &preemptor.id, places);
            resize(
                scheduler,
                Resize {
                    id,
                    from: admission,
                    to,
                    cause: ResizeCause::Moved,
                    preemptor: Some(&preemptor.id),
                    message,
                },
                plan,
            );
        }
        Take::Move(id, to) => {
            evict(scheduler, id, Some(&preemptor.id), EvictReason::Moved, now, plan);
            hold_for_mover(scheduler, id, &admission, to.clone());
        }
    }
    Some(Victim { take, place, before })
}

/// An admission without so many pods on these nodes.
fn without(
    scheduler: &Scheduler,
    info: &WorkloadInfo,
    admission: &Admission,
    pods: &BTreeMap<NodeId, u32>,
) -> Admission {
    let left = |(node, there): (&NodeId, &u32)| {
        let left = there.saturating_sub(pods.get(node).copied().unwrap_or(0));
        (left > 0).then(|| (scheduler.state.nodes.name(*node).clone(), left))
    };
    let nodes: BTreeMap<Name, u32> = info.usage.staying().iter().filter_map(left).collect();
    Admission { pods: nodes.values().sum(), nodes, ..admission.clone() }
}

/// Decides that somebody who runs goes back to the queue.
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
    let not_ready = scheduler.retries.gangs.rest(id).map(|rest| rest.message.as_str());
    let message = explain::evicted(&scheduler.state, info, preemptor, reason, not_ready, now);
    scheduler.state.set_phase(id, Phase::Stopping(admission));
    plan.actions.push(Action::Evict { workload: id.clone(), preemptor: preemptor.cloned(), reason, message });
}

/// A change of the pods with which a running workload goes on.
pub struct Resize<'a> {
    /// The workload.
    pub id: &'a WorkloadId,
    /// What it was admitted with.
    pub from: Admission,
    /// What it goes on with.
    pub to: Admission,
    /// The rule.
    pub cause: ResizeCause,
    /// The preemptor that gets the capacity, if there is one.
    pub preemptor: Option<&'a WorkloadId>,
    /// The reason in one sentence.
    pub message: String,
}

/// Decides that a running workload goes on with other pods.
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

/// Holds the place to which a workload moves until it has stopped where it runs.
pub fn hold_for_mover(scheduler: &mut Scheduler, id: &WorkloadId, admission: &Admission, to: Placement) {
    let Some(mover) = WaitingWorkload::of(&scheduler.state, id) else { return };
    // It goes on with as many pods as run: else others would take the room that it gives up in passing.
    let mover = mover.with_pods(to.values().sum());
    let pool = scheduler.state.quotas.intern_pool(&admission.pool);
    let message = explain::waiting(&scheduler.state, &to, &[]);
    let nomination = Nomination::new(&mover, pool, to, Vec::new(), message);
    nomination.nominate(&mut scheduler.state, 1);
    scheduler.nominations.all.push(nomination);
}
