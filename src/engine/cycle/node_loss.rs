//! Nodes that go away with pods on them: the lost pods are made anew, or the whole workload goes back.

use crate::cycle::evict::{Resize, evict, resize};
use crate::cycle::replace::replaced;
use crate::explain;
use crate::scheduler::Scheduler;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::{Admission, EvictReason, OnPodLoss, Plan, ResizeCause, Time, WorkloadId};

/// Puts right whoever runs by an admission to nodes that are no more.
pub fn run(scheduler: &mut Scheduler, now: Time, plan: &mut Plan) {
    let lost: Vec<WorkloadId> = scheduler.state.lost_pods().cloned().collect();
    for id in lost {
        if scheduler.pauses(&id) {
            continue;
        }
        let Some(info) = scheduler.state.get(&id) else { continue };
        let Phase::Running(admission) = info.phase.clone() else { continue };
        // A pod of its own that is lost is gone for good; its object says so.
        if !info.workload.resumable {
            continue;
        }
        let least = info.least_pods();
        match remaining(scheduler, info, &admission) {
            Some(kept) => match replaced(scheduler, &id, &admission, &kept) {
                Some(to) => {
                    let message = explain::replaced(to.pods - kept.pods);
                    resize(
                        scheduler,
                        Resize {
                            id: &id,
                            from: admission,
                            to,
                            cause: ResizeCause::Replaced,
                            preemptor: None,
                            message,
                        },
                        plan,
                    );
                }
                None if kept.pods >= least => {
                    let message = explain::lost_pods(admission.pods.saturating_sub(kept.pods), kept.pods);
                    resize(
                        scheduler,
                        Resize {
                            id: &id,
                            from: admission,
                            to: kept,
                            cause: ResizeCause::Shrunk,
                            preemptor: None,
                            message,
                        },
                        plan,
                    );
                }
                None => evict(scheduler, &id, None, EvictReason::NodeLost, now, plan),
            },
            None => evict(scheduler, &id, None, EvictReason::NodeLost, now, plan),
        }
    }
}

/// What is left of an admission; `None` if nothing is, or if the workload cannot go on without the rest.
fn remaining(scheduler: &Scheduler, info: &WorkloadInfo, admission: &Admission) -> Option<Admission> {
    let state = &scheduler.state;
    let on_loss = state.queue_of(info).map_or_else(|_| OnPodLoss::default(), |queue| queue.on_pod_loss);
    let mut kept = admission.clone();
    kept.nodes
        .retain(|name, _| state.nodes.find(name).is_some_and(|node| state.nodes.get(node).node.is_some()));
    kept.pods = kept.nodes.values().sum();
    (kept.pods > 0 && info.workload.resizable && on_loss == OnPodLoss::Replace).then_some(kept)
}
