//! Warning events for workloads that cannot start as specified, one for each reason.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cluster::events::{Notice, Notices};
use crate::cluster::mirror::Mirror;
use crate::engine::Engine;
use crate::engine::types::Reason;
use crate::engine::types::{Event, Observed, Time, Unready, Workload, WorkloadId};

/// The most workloads to check in one cycle.
const CHECKS: usize = 256;
/// The delay before a full check after a change of teams or nodes.
const FULL_CHECK: Duration = Duration::from_secs(5);

/// The workloads to check and the reasons already reported.
#[derive(Debug, Default)]
pub struct Unschedulable {
    unchecked: BTreeSet<WorkloadId>,
    reported: BTreeMap<WorkloadId, Reason>,
    full_check: Option<Time>,
}

impl Unschedulable {
    /// Marks the workloads with a verdict that an event may change.
    pub fn note(&mut self, event: &Event, now: Time) {
        match event {
            Event::WorkloadApplied(workload) if may_be_unschedulable(workload) => {
                self.unchecked.insert(workload.id.clone());
            }
            Event::WorkloadRemoved(id) => {
                self.unchecked.remove(id);
                self.reported.remove(id);
            }
            Event::TeamApplied(_) | Event::TeamRemoved(_) | Event::NodeApplied(_) => {
                self.full_check.get_or_insert(now.after(FULL_CHECK));
            }
            _ => {}
        }
    }

    /// When the next full check is due.
    pub fn next(&self) -> Option<Time> {
        self.full_check
    }

    /// Checks up to [`CHECKS`] workloads and publishes an event for each new reason.
    pub fn report(&mut self, engine: &Engine, mirror: &Mirror, notices: &Notices, now: Time) {
        if self.full_check.is_some_and(|at| at <= now) {
            self.full_check = None;
            let queued = engine.workloads().filter(|workload| may_be_unschedulable(workload));
            self.unchecked.extend(queued.map(|workload| workload.id.clone()));
        }
        for _ in 0..CHECKS {
            let Some(id) = self.unchecked.pop_first() else { break };
            let Some(verdict) = engine.verdict(&id) else { continue };
            if !needs_a_change(verdict.reason) {
                self.reported.remove(&id);
                continue;
            }
            if self.reported.insert(id.clone(), verdict.reason) == Some(verdict.reason) {
                continue;
            }
            if let Some((managed, _)) = mirror.workload(&id) {
                let code = verdict.reason.code();
                let rollout = mirror.rollout(&id).map(|rollout| format!("; {rollout}")).unwrap_or_default();
                notices.publish_each(mirror.references(&managed.workload), |about| Notice {
                    about,
                    warning: true,
                    reason: "Refused",
                    action: "Hold",
                    occasion: code.to_lowercase(),
                    note: format!("{code}: {}{rollout}", verdict.message),
                });
            }
        }
    }
}

/// Whether a workload waits and may have a reason that only a change of its spec or quota resolves.
fn may_be_unschedulable(workload: &Workload) -> bool {
    matches!(workload.state, Observed::Queued | Observed::Unready(Unready::Unlike | Unready::Uncounted(_)))
}

/// Whether a reason does not pass by waiting.
fn needs_a_change(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::NoNodeFits
            | Reason::NotPreemptibleOverGuarantee
            | Reason::UnknownTeam
            | Reason::UnknownQueue
            | Reason::UnlikePods
            | Reason::Uncounted
    )
}
