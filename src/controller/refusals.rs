//! Telling the owners of workloads that cannot start as things are, once for each reason.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cluster::events::{Notice, Notices};
use crate::cluster::mirror::Mirror;
use crate::engine::Engine;
use crate::engine::types::Reason;
use crate::engine::types::{Event, Observed, Time, Unready, Workload, WorkloadId};

/// How many are looked for at once.
const LOOKS: usize = 256;
/// How long after a change of teams or nodes they are looked for anew.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Who has been told what, and who is to be looked at.
#[derive(Debug, Default)]
pub struct Refusals {
    unexplained: BTreeSet<WorkloadId>,
    told: BTreeMap<WorkloadId, Reason>,
    look_again: Option<Time>,
}

impl Refusals {
    /// Takes note of what may have changed a verdict.
    pub fn note(&mut self, event: &Event, now: Time) {
        match event {
            Event::WorkloadApplied(workload) if to_be_told(workload) => {
                self.unexplained.insert(workload.id.clone());
            }
            Event::WorkloadRemoved(id) => {
                self.unexplained.remove(id);
                self.told.remove(id);
            }
            Event::TeamApplied(_) | Event::TeamRemoved(_) | Event::NodeApplied(_) => {
                self.look_again.get_or_insert(now.after(LOOK_AGAIN));
            }
            _ => {}
        }
    }

    /// When all are to be looked at anew.
    pub fn next(&self) -> Option<Time> {
        self.look_again
    }

    /// Looks at some, and tells.
    pub fn tell(&mut self, engine: &Engine, mirror: &Mirror, notices: &Notices, now: Time) {
        if self.look_again.is_some_and(|at| at <= now) {
            self.look_again = None;
            let queued = engine.workloads().filter(|workload| to_be_told(workload));
            self.unexplained.extend(queued.map(|workload| workload.id.clone()));
        }
        for _ in 0..LOOKS {
            let Some(id) = self.unexplained.pop_first() else { break };
            let Some(verdict) = engine.verdict(&id) else { continue };
            if !refuses(verdict.reason) {
                self.told.remove(&id);
                continue;
            }
            if self.told.insert(id.clone(), verdict.reason) == Some(verdict.reason) {
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

/// Whether there may be something to tell of a workload that only its owner can change.
fn to_be_told(workload: &Workload) -> bool {
    matches!(workload.state, Observed::Queued | Observed::Unready(Unready::Unlike | Unready::Uncounted(_)))
}

/// Whether a reason will not pass by waiting.
fn refuses(reason: Reason) -> bool {
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
