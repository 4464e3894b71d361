//! Workloads whose pods must all become ready in time, and the pauses of those that did not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::state::cluster::ClusterState;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::{Admission, Time, WorkloadId};

/// How far a workload's pods have come.
#[derive(Clone, Debug, Default)]
pub struct Gang {
    /// How many are ready.
    pub ready: u32,
    /// How many have succeeded so far, in all of its runs.
    pub succeeded: u32,
    pub run: Option<Run>,
    /// By when all pods of the present run must be ready.
    pub due: Option<Time>,
    pub rest: Option<Rest>,
}

/// One run of a workload.
#[derive(Clone, Debug)]
pub struct Run {
    /// When it was admitted.
    pub at: Time,
    /// When it was found running, if nobody here saw it start.
    pub found: Option<Time>,
    /// How many pods had succeeded before.
    pub before: u32,
    /// Whether all of its pods have been ready at the same time.
    pub up: bool,
}

/// What follows from runs that did not come up.
#[derive(Clone, Debug)]
pub struct Rest {
    /// How many runs have not.
    pub times: u32,
    /// When the last of them was admitted.
    pub run: Time,
    /// When it may start again; none once that time has come.
    pub until: Option<Time>,
    /// How long it rests.
    pub pause: Duration,
    /// What was said about it.
    pub message: String,
}

/// Whose pods are to be ready by when, and who rests.
#[derive(Clone, Debug, Default)]
pub struct Gangs {
    pub gangs: BTreeMap<WorkloadId, Gang>,
    /// By when whose pods must be ready.
    pub due: BTreeSet<(Time, WorkloadId)>,
    /// Until when who rests.
    pub resting: BTreeSet<(Time, WorkloadId)>,
}

impl Gangs {
    /// Takes note of where a workload stands after a change of it or of its phase.
    pub fn note(&mut self, state: &ClusterState, id: &WorkloadId, before: Option<&Phase>, now: Time) {
        let info = state.get(id).filter(|info| !info.removed && info.phase != Phase::Finished);
        let Some(info) = info else {
            if let Some(gang) = self.gangs.remove(id) {
                self.resting.strike(gang.rest.and_then(|rest| rest.until), id);
                self.due.strike(gang.due, id);
            }
            return;
        };
        match &info.phase {
            Phase::Running(admission) if admission.pods > 1 => {
                let gang = self.gangs.entry(id.clone()).or_default();
                if gang.run.as_ref().is_none_or(|run| run.at != admission.at) {
                    let found = before.is_none().then_some(now);
                    let before = if found.is_some() { 0 } else { gang.succeeded };
                    gang.run = Some(Run { at: admission.at, found, before, up: false });
                    // What was told before is of another run.
                    gang.ready = 0;
                }
                if gang.look(info, admission) {
                    self.clear(id);
                }
            }
            Phase::Pending | Phase::Hold | Phase::Leaving { .. } => {
                if let Some(gang) = self.gangs.get_mut(id) {
                    gang.run = None;
                }
            }
            _ => {}
        }
    }

    /// Sets the time by which a workload's pods must be ready to what its queue says.
    pub fn arm(&mut self, state: &ClusterState, id: &WorkloadId) {
        let Some(gang) = self.gangs.get_mut(id) else { return };
        let due = state.get(id).and_then(|info| gang.due_of(state, info));
        let before = std::mem::replace(&mut gang.due, due);
        if before != due {
            self.due.strike(before, id);
            self.due.extend(due.map(|due| (due, id.clone())));
        }
    }

    /// Why a workload that waits is not to start yet, if it rests.
    #[must_use]
    pub fn rest(&self, id: &WorkloadId) -> Option<&Rest> {
        self.gangs.get(id)?.rest.as_ref().filter(|rest| rest.until.is_some())
    }

    /// How many pods of a workload that runs are up and how many must be, while that is waited for.
    #[must_use]
    pub fn awaited(&self, info: &WorkloadInfo, admission: &Admission) -> Option<(u32, u32)> {
        let gang = self.gangs.get(&info.workload.id).filter(|gang| gang.due.is_some())?;
        let run = gang.run.as_ref()?;
        Some((gang.there(run), gang.needed(run, info, admission)))
    }

    /// Lets a workload start whenever it can.
    pub fn clear(&mut self, id: &WorkloadId) -> bool {
        let rest = self.gangs.get_mut(id).and_then(|gang| gang.rest.take());
        let until = rest.and_then(|rest| rest.until);
        self.resting.strike(until, id);
        until.is_some()
    }
}

impl Gang {
    /// How many pods of a run have done their work.
    pub fn done(&self, run: &Run) -> u32 {
        self.succeeded.saturating_sub(run.before)
    }

    /// How many pods of a run are up, or were and have done their work.
    pub fn there(&self, run: &Run) -> u32 {
        self.ready.saturating_add(self.done(run))
    }

    /// How many must be: those granted, unless fewer are wanted now for another reason than what is done.
    pub fn needed(&self, run: &Run, info: &WorkloadInfo, admission: &Admission) -> u32 {
        admission.pods.min(info.workload.pods.saturating_add(self.done(run)))
    }

    /// Takes note of it if all pods are up; that makes up for the runs before.
    pub fn look(&mut self, info: &WorkloadInfo, admission: &Admission) -> bool {
        let Some(run) = self.run.as_ref().filter(|run| !run.up) else { return false };
        let up = self.there(run) >= self.needed(run, info, admission);
        if let Some(run) = self.run.as_mut().filter(|_| up) {
            run.up = true;
        }
        up
    }

    pub fn due_of(&self, state: &ClusterState, info: &WorkloadInfo) -> Option<Time> {
        let (Phase::Running(admission) | Phase::Resizing { from: admission, .. }) = &info.phase else {
            return None;
        };
        let run = self.run.as_ref().filter(|run| !run.up && run.at == admission.at)?;
        let due = run.at.after(state.queue_of(info).ok()?.ready_timeout?);
        let returns = info.workload.resumable || info.workload.expendable;
        (returns && run.found.is_none_or(|found| found < due)).then_some(due)
    }
}

/// Sets of times of workloads.
pub trait Dates {
    /// Takes a time of a workload out, if it is there.
    fn strike(&mut self, at: Option<Time>, id: &WorkloadId);
}

impl Dates for BTreeSet<(Time, WorkloadId)> {
    fn strike(&mut self, at: Option<Time>, id: &WorkloadId) {
        if let Some(at) = at {
            self.remove(&(at, id.clone()));
        }
    }
}
