//! Gangs that do not come up: where not all pods of a workload with several are ready in the time its queue
//! gives them, the whole of it goes back to the queue.
//!
//! Once all have been ready at the same time that is over for this run; who loses pods later is no concern
//! of this. What keeps a gang from coming up will often keep it from it again, so it rests before it is
//! tried anew, twice as long each time, until it has come up or its object changes.
//!
//! Nothing on the cluster says that a gang has come up before. One that is found running past its time, by
//! an engine that has just begun, is taken to have: else it would have been put back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Engine;
use super::books::Books;
use super::decision::{EvictReason, Plan};
use super::entry::{Entry, Phase};
use super::explain;
use super::model::{Admission, Observed, PodsReady, Time, Workload, WorkloadId, backoff};
use super::victims::evict;

/// How long a gang rests the first time.
const FIRST_REST: Duration = Duration::from_secs(30);
/// How long at most.
const LONGEST_REST: Duration = Duration::from_secs(1800);

/// How far a workload's pods have come.
#[derive(Clone, Debug, Default)]
struct Gang {
    /// How many are ready.
    ready: u32,
    /// How many have succeeded so far, in all of its runs.
    succeeded: u32,
    run: Option<Run>,
    /// By when all pods of the present run must be ready.
    due: Option<Time>,
    rest: Option<Rest>,
}

/// One run of a workload.
#[derive(Clone, Debug)]
struct Run {
    /// When it was admitted.
    at: Time,
    /// When it was found running, if nobody here saw it start.
    found: Option<Time>,
    /// How many pods had succeeded before.
    before: u32,
    /// Whether all of its pods have been ready at the same time.
    up: bool,
}

/// What follows from runs that did not come up.
#[derive(Clone, Debug)]
pub struct Rest {
    /// How many runs have not.
    times: u32,
    /// When the last of them was admitted.
    run: Time,
    /// When it may start again; none once that time has come.
    until: Option<Time>,
    /// How long it rests.
    pub pause: Duration,
    /// What was said about it.
    pub message: String,
}

/// Whose pods are to be ready by when, and who rests.
#[derive(Clone, Debug, Default)]
pub struct Gangs {
    gangs: BTreeMap<WorkloadId, Gang>,
    /// By when whose pods must be ready.
    due: BTreeSet<(Time, WorkloadId)>,
    /// Until when who rests.
    resting: BTreeSet<(Time, WorkloadId)>,
}

impl Gangs {
    /// Takes note of where a workload stands after a change of it or of its phase.
    pub fn note(&mut self, books: &Books, id: &WorkloadId, before: Option<&Phase>, now: Time) {
        let entry = books.get(id).filter(|entry| !entry.removed && entry.phase != Phase::Finished);
        let Some(entry) = entry else {
            if let Some(gang) = self.gangs.remove(id) {
                self.resting.strike(gang.rest.and_then(|rest| rest.until), id);
                self.due.strike(gang.due, id);
            }
            return;
        };
        match &entry.phase {
            Phase::Running(admission) if admission.pods > 1 => {
                let gang = self.gangs.entry(id.clone()).or_default();
                if gang.run.as_ref().is_none_or(|run| run.at != admission.at) {
                    let found = before.is_none().then_some(now);
                    let before = if found.is_some() { 0 } else { gang.succeeded };
                    gang.run = Some(Run { at: admission.at, found, before, up: false });
                    // What was told before is of another run.
                    gang.ready = 0;
                }
                if gang.look(entry, admission) {
                    self.forgive(id);
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
    pub fn arm(&mut self, books: &Books, id: &WorkloadId) {
        let Some(gang) = self.gangs.get_mut(id) else { return };
        let due = books.get(id).and_then(|entry| gang.due_of(books, entry));
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
    pub fn awaited(&self, entry: &Entry, admission: &Admission) -> Option<(u32, u32)> {
        let gang = self.gangs.get(&entry.workload.id).filter(|gang| gang.due.is_some())?;
        let run = gang.run.as_ref()?;
        Some((gang.there(run), gang.needed(run, entry, admission)))
    }

    /// Lets a workload start whenever it can.
    fn forgive(&mut self, id: &WorkloadId) -> bool {
        let rest = self.gangs.get_mut(id).and_then(|gang| gang.rest.take());
        let until = rest.and_then(|rest| rest.until);
        self.resting.strike(until, id);
        until.is_some()
    }
}

impl Gang {
    /// How many pods of a run have done their work.
    fn done(&self, run: &Run) -> u32 {
        self.succeeded.saturating_sub(run.before)
    }

    /// How many pods of a run are up, or were and have done their work.
    fn there(&self, run: &Run) -> u32 {
        self.ready.saturating_add(self.done(run))
    }

    /// How many must be: those granted, unless fewer are wanted now for another reason than what is done.
    fn needed(&self, run: &Run, entry: &Entry, admission: &Admission) -> u32 {
        admission.pods.min(entry.workload.pods.saturating_add(self.done(run)))
    }

    /// Takes note of it if all pods are up; that makes up for the runs before.
    fn look(&mut self, entry: &Entry, admission: &Admission) -> bool {
        let Some(run) = self.run.as_ref().filter(|run| !run.up) else { return false };
        let up = self.there(run) >= self.needed(run, entry, admission);
        if let Some(run) = self.run.as_mut().filter(|_| up) {
            run.up = true;
        }
        up
    }

    fn due_of(&self, books: &Books, entry: &Entry) -> Option<Time> {
        let (Phase::Running(admission) | Phase::Resizing { from: admission, .. }) = &entry.phase else {
            return None;
        };
        let run = self.run.as_ref().filter(|run| !run.up && run.at == admission.at)?;
        let due = run.at.after(books.queue_of(entry).ok()?.ready_timeout?);
        let returns = entry.workload.resumable || entry.workload.expendable;
        (returns && run.found.is_none_or(|found| found < due)).then_some(due)
    }
}

/// Sets of times of workloads.
trait Dates {
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

/// Takes note of how many pods of a workload are up.
pub fn tell(engine: &mut Engine, told: &PodsReady) {
    let Some(entry) = engine.books.get(&told.workload).filter(|entry| !entry.removed) else { return };
    let gang = engine.gangs.gangs.entry(told.workload.clone()).or_default();
    (gang.ready, gang.succeeded) = (told.ready, told.succeeded);
    let came_up = match &entry.phase {
        Phase::Running(admission) | Phase::Resizing { to: admission, .. } => gang.look(entry, admission),
        _ => false,
    };
    if came_up {
        engine.gangs.forgive(&told.workload);
        engine.gangs.arm(&engine.books, &told.workload);
    }
}

/// Lets a workload that waits start whenever it can if its object says something else than before.
pub fn forgive_changed(engine: &mut Engine, workload: &Workload) {
    let waits = |workload: &Workload| matches!(workload.state, Observed::Queued | Observed::OnHold);
    let before = engine.books.get(&workload.id).map(|entry| &entry.workload);
    let changed = before.is_some_and(|before| waits(before) && waits(workload) && before != workload);
    if changed && engine.gangs.forgive(&workload.id) {
        engine.epoch += 1;
    }
}

/// Lets those start again who have rested.
pub fn lift(engine: &mut Engine, now: Time) {
    while let Some((until, id)) = engine.gangs.resting.first().cloned().filter(|(until, _)| *until <= now) {
        engine.gangs.resting.remove(&(until, id.clone()));
        if let Some(rest) = engine.gangs.gangs.get_mut(&id).and_then(|gang| gang.rest.as_mut()) {
            rest.until = None;
        }
        engine.epoch += 1;
        engine.outside += 1;
        engine.queue_up(&id);
    }
}

/// When a gang's time is up, or one has rested.
#[must_use]
pub fn next(engine: &Engine) -> Option<Time> {
    let due = engine.gangs.due.iter().find(|(_, id)| can_go(engine, id));
    [due, engine.gangs.resting.first()].into_iter().flatten().map(|(at, _)| *at).min()
}

/// Whether nothing else is being done with a workload: what is, brings it to another phase or fails, and
/// either asks for a plan.
fn can_go(engine: &Engine, id: &WorkloadId) -> bool {
    let runs = |entry: &Entry| matches!(entry.phase, Phase::Running(_));
    engine.books.get(id).is_some_and(runs) && !engine.pauses(id)
}

/// Puts those back whose time is up.
pub fn run(engine: &mut Engine, now: Time, plan: &mut Plan) {
    let passed = engine.gangs.due.iter().take_while(|(at, _)| *at <= now);
    let due: Vec<WorkloadId> = passed.map(|(_, id)| id).filter(|id| can_go(engine, id)).cloned().collect();
    for id in due {
        put_back(engine, &id, now, plan);
        engine.gangs.arm(&engine.books, &id);
    }
}

fn put_back(engine: &mut Engine, id: &WorkloadId, now: Time, plan: &mut Plan) {
    let Some(entry) = engine.books.get(id) else { return };
    let Phase::Running(admission) = &entry.phase else { return };
    let Some((there, needed)) = engine.gangs.awaited(entry, admission) else { return };
    let Ok(queue) = engine.books.queue_of(entry) else { return };
    let run = admission.at;
    let message = explain::not_ready(queue, there, needed, now.since(run));
    let Some(gang) = engine.gangs.gangs.get_mut(id) else { return };
    // Where the write of this failed, it is the same run again.
    let times = match &gang.rest {
        Some(rest) if rest.run == run => rest.times,
        Some(rest) => rest.times + 1,
        None => 0,
    };
    let pause = backoff(FIRST_REST, LONGEST_REST, times);
    let until = now.after(pause);
    let before = gang.rest.replace(Rest { times, run, until: Some(until), pause, message });
    engine.gangs.resting.strike(before.and_then(|rest| rest.until), id);
    engine.gangs.resting.insert((until, id.clone()));
    evict(engine, id, None, EvictReason::NotReady, now, plan);
}
