//! Gangs: all pods of such a workload must become ready in time, else it rests before the next run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::state::cluster::ClusterState;
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::{Admission, Reason, Time, WorkloadId, backoff};

/// How long a gang rests the first time.
const FIRST_REST: Duration = Duration::from_secs(30);
/// The longest rest.
const LONGEST_REST: Duration = Duration::from_secs(1800);
/// A run that lasted so long and then lost a pod is no crash loop.
const STABLE: Duration = Duration::from_secs(600);

/// The progress of a gang's pods.
#[derive(Clone, Debug, Default)]
pub struct Gang {
    /// The number of ready pods.
    pub ready: u32,
    /// The number of pods that have succeeded, in all runs.
    pub succeeded: u32,
    /// The present run.
    pub run: Option<Run>,
    /// The time by which all pods of the present run must be ready.
    pub due: Option<Time>,
    /// The rest after failed runs.
    pub rest: Option<Rest>,
    /// Its last runs, as far as they ended soon because a pod was lost.
    pub losses: Option<Losses>,
}

/// Runs in a row that ended because a pod was lost.
#[derive(Clone, Copy, Debug)]
pub struct Losses {
    /// When the last such run was admitted.
    run: Time,
    /// The number of runs before the last one that ended so, each within [`STABLE`] of its admission.
    before: u32,
}

/// One run of a gang.
#[derive(Clone, Debug)]
pub struct Run {
    /// When it was admitted.
    pub at: Time,
    /// When this engine found it running; `None` if this engine saw it start.
    pub found: Option<Time>,
    /// The number of pods that had succeeded in earlier runs.
    pub before: u32,
    /// Whether all of its pods have been ready at the same time.
    pub up: bool,
}

/// The rest after runs that did not become ready, or soon lost a pod.
#[derive(Clone, Debug)]
pub struct Rest {
    /// The code of the reason.
    pub reason: Reason,
    /// The number of runs before the last one that failed in the same way.
    pub times: u32,
    /// When the last such run was admitted.
    pub run: Time,
    /// When the gang may start again; `None` once that time has come.
    pub until: Option<Time>,
    /// How long it rests.
    pub pause: Duration,
    /// The reason for the rest, for users.
    pub message: String,
}

/// All gangs, with their deadlines and rests by time.
#[derive(Clone, Debug, Default)]
pub struct Gangs {
    /// The gangs that have run or were reported.
    pub gangs: BTreeMap<WorkloadId, Gang>,
    /// The times by which gangs must be ready.
    pub due: Times,
    /// The times at which rests end.
    pub resting: Times,
    /// The running gangs that have lost a pod.
    pub lost: BTreeSet<WorkloadId>,
}

/// Times of workloads, the earliest first.
type Times = BTreeSet<(Time, WorkloadId)>;

/// Removes a time of a workload, if it has one.
fn remove(times: &mut Times, at: Option<Time>, id: &WorkloadId) {
    if let Some(at) = at {
        times.remove(&(at, id.clone()));
    }
}

impl Gangs {
    /// Follows a change of a workload or of its phase; `before` is its phase until now.
    pub fn note(&mut self, state: &ClusterState, id: &WorkloadId, before: Option<&Phase>, now: Time) {
        let info = state.get(id).filter(|info| !info.removed && info.phase != Phase::Finished);
        let Some(info) = info else {
            self.lost.remove(id);
            if let Some(gang) = self.gangs.remove(id) {
                remove(&mut self.resting, gang.rest.and_then(|rest| rest.until), id);
                remove(&mut self.due, gang.due, id);
            }
            return;
        };
        let is_gang = |admission: &Admission| admission.pods > 1 && info.workload.resumable;
        match &info.phase {
            Phase::Running(admission) if is_gang(admission) && info.workload.failed_pods > 0 => {
                self.lost.insert(id.clone());
            }
            _ => _ = self.lost.remove(id),
        }
        match &info.phase {
            Phase::Running(admission) if admission.pods > 1 => {
                let gang = self.gangs.entry(id.clone()).or_default();
                if gang.run.as_ref().is_none_or(|run| run.at != admission.at) {
                    let found = before.is_none().then_some(now);
                    let before = if found.is_some() { 0 } else { gang.succeeded };
                    gang.run = Some(Run { at: admission.at, found, before, up: false });
                    // The count of ready pods is of an earlier run.
                    gang.ready = 0;
                }
                if gang.note_ready(info, admission) {
                    self.end_rest(id);
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

    /// Sets the time by which a gang must be ready from its queue.
    pub fn arm(&mut self, state: &ClusterState, id: &WorkloadId) {
        let Some(gang) = self.gangs.get_mut(id) else { return };
        let due = state.get(id).and_then(|info| gang.due_of(state, info));
        let before = std::mem::replace(&mut gang.due, due);
        if before != due {
            remove(&mut self.due, before, id);
            self.due.extend(due.map(|due| (due, id.clone())));
        }
    }

    /// The rest of a workload, if it may not start yet.
    #[must_use]
    pub fn rest(&self, id: &WorkloadId) -> Option<&Rest> {
        self.gangs.get(id)?.rest.as_ref().filter(|rest| rest.until.is_some())
    }

    /// The number of pods that are ready and the number that must be, while a gang has a deadline.
    #[must_use]
    pub fn awaited(&self, info: &WorkloadInfo, admission: &Admission) -> Option<(u32, u32)> {
        let gang = self.gangs.get(&info.workload.id).filter(|gang| gang.due.is_some())?;
        let run = gang.run.as_ref()?;
        Some((gang.present(run), gang.needed(run, info, admission)))
    }

    /// Lets a gang rest after a run, admitted at `run`, that did not become ready; the rest doubles with every run in
    /// a row.
    pub fn start_rest(&mut self, id: &WorkloadId, run: Time, message: String, now: Time) {
        let Some(gang) = self.gangs.get_mut(id) else { return };
        // After a failed write of the eviction it is the same run again.
        let times = match &gang.rest {
            Some(rest) if rest.run == run => rest.times,
            Some(rest) => rest.times + 1,
            None => 0,
        };
        let pause = backoff(FIRST_REST, LONGEST_REST, times);
        let until = Some(now.after(pause));
        self.set_rest(id, Rest { reason: Reason::NotReady, times, run, until, pause, message });
    }

    /// Notes that a gang lost a pod in the run that was admitted at `run`. If its run before ended so too and this one was
    /// short, it rests; the rest doubles with every such run in a row.
    pub fn lost_in_run(&mut self, id: &WorkloadId, run: Time, message: String, now: Time) {
        let gang = self.gangs.entry(id.clone()).or_default();
        let before = match &gang.losses {
            // After a failed write of the eviction it is the same run again.
            Some(losses) if losses.run == run => losses.before,
            Some(losses) if now.since(run) < STABLE => losses.before + 1,
            _ => 0,
        };
        gang.losses = Some(Losses { run, before });
        self.lost.remove(id);
        let Some(times) = before.checked_sub(1) else { return };
        let pause = backoff(FIRST_REST, LONGEST_REST, times);
        let until = Some(now.after(pause));
        self.set_rest(id, Rest { reason: Reason::PodLost, times, run, until, pause, message });
    }

    fn set_rest(&mut self, id: &WorkloadId, rest: Rest) {
        let Some(gang) = self.gangs.get_mut(id) else { return };
        let until = rest.until;
        let before = gang.rest.replace(rest);
        remove(&mut self.resting, before.and_then(|rest| rest.until), id);
        self.resting.extend(until.map(|until| (until, id.clone())));
    }

    /// Removes a gang from the resting ones if its rest is over at `now`, the earliest first.
    pub fn take_rested(&mut self, now: Time) -> Option<WorkloadId> {
        self.resting.first().filter(|(until, _)| *until <= now)?;
        let (_, id) = self.resting.pop_first()?;
        if let Some(rest) = self.gangs.get_mut(&id).and_then(|gang| gang.rest.as_mut()) {
            rest.until = None;
        }
        Some(id)
    }

    /// Ends a gang's rest and forgets its failed runs, because its object has changed; true if it was resting.
    pub fn forget_failed_runs(&mut self, id: &WorkloadId) -> bool {
        if let Some(gang) = self.gangs.get_mut(id) {
            gang.losses = None;
        }
        self.end_rest(id)
    }

    /// Ends a gang's rest and forgets the runs that did not become ready; true if it was resting.
    pub fn end_rest(&mut self, id: &WorkloadId) -> bool {
        let rest = self.gangs.get_mut(id).and_then(|gang| gang.rest.take());
        let until = rest.and_then(|rest| rest.until);
        remove(&mut self.resting, until, id);
        until.is_some()
    }
}

impl Gang {
    /// The number of pods of a run that have succeeded.
    fn done(&self, run: &Run) -> u32 {
        self.succeeded.saturating_sub(run.before)
    }

    /// The number of pods of a run that are ready or have succeeded.
    fn present(&self, run: &Run) -> u32 {
        self.ready.saturating_add(self.done(run))
    }

    /// The number of pods that must be ready or have succeeded: those admitted, or fewer if the workload asks for
    /// fewer now and not because pods have succeeded.
    fn needed(&self, run: &Run, info: &WorkloadInfo, admission: &Admission) -> u32 {
        admission.pods.min(info.workload.pods.saturating_add(self.done(run)))
    }

    /// Marks the present run as ready if all of its pods are; true if it was not ready before.
    pub fn note_ready(&mut self, info: &WorkloadInfo, admission: &Admission) -> bool {
        let Some(run) = self.run.as_ref().filter(|run| !run.up) else { return false };
        let up = self.present(run) >= self.needed(run, info, admission);
        if let Some(run) = self.run.as_mut().filter(|_| up) {
            run.up = true;
        }
        up
    }

    /// The time by which the pods of the present run must be ready; `None` if there is none.
    fn due_of(&self, state: &ClusterState, info: &WorkloadInfo) -> Option<Time> {
        let (Phase::Running(admission) | Phase::Resizing { from: admission, .. }) = &info.phase else {
            return None;
        };
        let run = self.run.as_ref().filter(|run| !run.up && run.at == admission.at)?;
        let due = run.at.after(state.queue_of(info).ok()?.ready_timeout?);
        let returns = info.workload.resumable || info.workload.expendable;
        (returns && run.found.is_none_or(|found| found < due)).then_some(due)
    }
}
