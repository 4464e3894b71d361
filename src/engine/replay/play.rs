//! One play of a copy of an engine: forward in time, with runs of a given length.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::engine::Engine;
use crate::prediction::Prediction;
use crate::prediction::arrivals::Submissions;
use crate::prediction::run_times::Length;
use crate::replay::grounds::{Basis, Endless, Ledger, Unbounded};
use crate::replay::opening::{Opened, Opening};
use crate::replay::{Happening, Life, NeverSettles, Run};
use crate::types::{Admission, BudgetView, Time, WorkloadId};

/// How far a forecast looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most instants at which something happens.
    pub steps: u32,
    /// The most starts of waiting workloads.
    pub starts: usize,
    /// The farthest time ahead; a budget of a quarter is full again within 92 days.
    pub ahead: Duration,
}

/// The most submissions of a day that are taken to come again.
const MOST_TO_COME: usize = 128;

impl Default for Bounds {
    fn default() -> Self {
        Self { steps: 5_000, starts: 1_000, ahead: Duration::from_secs(100 * 24 * 3600) }
    }
}

/// When a workload is expected to start: all three times, or none when its start cannot be bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Eta {
    /// If runs are short; the earliest of the three otherwise.
    pub early: Option<Time>,
    /// If runs are as usual.
    pub likely: Option<Time>,
    /// If runs are long; the latest of the three otherwise.
    pub late: Option<Time>,
}

/// What becomes of a victim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    /// The number of pods that it keeps; `None` when it is evicted.
    pub keeps: Option<u32>,
    /// The number of pods that it loses.
    pub pods: u32,
    /// The work that these had done since they started or last saved it, summed over pods.
    pub lost: Duration,
    /// When an evicted one would start again, if runs are as usual.
    pub back: Option<Time>,
}

/// A victim that was evicted or shrunk for a preemptor.
pub struct Victim {
    /// The workload.
    pub id: WorkloadId,
    /// Its preemptor.
    pub preemptor: WorkloadId,
    /// What becomes of it.
    pub fate: Fate,
}

/// How long runs are taken to be, and how long their pods take to end once they are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// Short.
    Early,
    /// As usual.
    Likely,
    /// Long.
    Late,
}

impl Case {
    /// All, in this order.
    pub const ALL: [Self; 3] = [Self::Early, Self::Likely, Self::Late];

    /// The length of the run with this number among similar ones.
    fn of(self, length: Length, number: usize) -> Duration {
        match self {
            Self::Early => length.early,
            Self::Likely => length.usual(number),
            Self::Late => length.late,
        }
    }

    /// How long pods with this grace period take to end.
    fn ending(self, grace: Duration) -> Duration {
        match self {
            Self::Early => Duration::ZERO,
            Self::Likely | Self::Late => grace,
        }
    }
}

/// The start of a workload in a play.
pub struct Start {
    /// When.
    pub at: Time,
    /// On which nodes.
    pub admission: Admission,
    /// What that rests on.
    pub basis: Basis,
    /// The length of the run.
    pub length: Option<Duration>,
}

/// A copy of an engine that is played forward.
pub struct Play {
    run: Run,
    began: Time,
    /// Waiting workloads that have not started yet, with the length of their run.
    waiting: BTreeMap<WorkloadId, Option<Duration>>,
    /// The starts of these.
    pub starts: BTreeMap<WorkloadId, Start>,
    /// What ends and starts rest on.
    pub ledger: Ledger,
    /// The number of pods of each workload that runs.
    sizes: BTreeMap<WorkloadId, u32>,
    /// Victims that were evicted or shrunk, each with its preemptor.
    displaced: Vec<Victim>,
    /// It was cut short.
    pub cut: bool,
    to_come: Submissions,
    case: Case,
}

impl Play {
    /// A play of an engine that begins at `now`; the opening is that of the engine at that time.
    pub fn new(engine: Engine, opening: &Opening, now: Time, case: Case) -> Self {
        let life = |run: &Opened| {
            let length = run.length.map(|length| case.of(length, run.number));
            (run.id.clone(), Life { run: length, completions: None, grace: case.ending(run.grace) })
        };
        // Sorted lists become maps in one go, which is much faster than one entry after the other.
        let lives: BTreeMap<WorkloadId, Life> =
            opening.runs.iter().filter(|run| run.waits).map(life).collect();
        let mut waiting: BTreeMap<_, _> = lives.iter().map(|(id, life)| (id.clone(), life.run)).collect();
        for id in &opening.without_pods {
            waiting.remove(id);
        }
        let mut run = Run::new(engine, now).with_rough_ages();
        run.adopt_waiting(lives);
        for (id, life) in opening.runs.iter().filter(|run| !run.waits).map(life) {
            run.adopt(&id, life);
        }
        let (starts, displaced) = (BTreeMap::new(), Vec::new());
        let (ledger, sizes) = (opening.ledger.clone(), opening.sizes.clone());
        let to_come = Submissions::default();
        Self { run, began: now, waiting, starts, ledger, sizes, displaced, cut: false, to_come, case }
    }

    /// Lets the submissions of the last day come again, where runs are long: the play for the latest start.
    pub fn with_arrivals(mut self, bounds: Bounds) -> Self {
        if self.case == Case::Late {
            let Prediction { run_times, arrivals, .. } = &self.run.engine().scheduler.prediction;
            self.to_come = arrivals.to_come(run_times, self.began, bounds.ahead, MOST_TO_COME);
        }
        self
    }

    /// Plays up to an instant; false if `go_on` ended it before the decisions there were complete.
    pub fn step(&mut self, to: Time, go_on: &mut dyn FnMut() -> bool) -> Result<bool, NeverSettles> {
        let ends = |view: &BudgetView| view.period.map(|(_, end)| end);
        let refills: Vec<Time> = self.run.engine().budgets(self.run.now()).iter().filter_map(ends).collect();
        let Self { began, waiting, starts, ledger, displaced, sizes, .. } = self;
        let mut on = |at: Time, happening: &Happening| match happening {
            Happening::Admitted { id, admission, .. } => {
                let basis = ledger.start(id, admission, at > *began, refills.contains(&at));
                sizes.insert(id.clone(), admission.pods);
                if let Some(length) = waiting.remove(id) {
                    starts.insert(id.clone(), Start { at, admission: admission.clone(), basis, length });
                }
                let gone =
                    displaced.iter_mut().filter(|victim| victim.id == *id && victim.fate.keeps.is_none());
                gone.for_each(|victim| victim.fate.back = victim.fate.back.or(Some(at)));
            }
            Happening::Failed { id, .. } => {
                waiting.remove(id);
                ledger.end(id);
            }
            Happening::Finished { id, .. } => ledger.end(id),
            Happening::PodsGone { id } | Happening::PodsLost { id, .. } => ledger.gone(id),
            Happening::Evicted { id, preemptor, lost, .. } => {
                ledger.gone(id);
                let pods = sizes.remove(id).unwrap_or(0);
                let fate = Fate { keeps: None, pods, lost: *lost, back: None };
                let victim =
                    |preemptor: &WorkloadId| Victim { id: id.clone(), preemptor: preemptor.clone(), fate };
                displaced.extend(preemptor.as_ref().map(victim));
            }
            Happening::Resized { id, preemptor, admission, lost, .. } => {
                ledger.gone(id);
                let keeps = admission.pods;
                let pods = sizes.insert(id.clone(), keeps).unwrap_or(keeps).saturating_sub(keeps);
                let fate = Fate { keeps: Some(keeps), pods, lost: *lost, back: None };
                let victim =
                    |preemptor: &WorkloadId| Victim { id: id.clone(), preemptor: preemptor.clone(), fate };
                displaced.extend(preemptor.as_ref().map(victim));
            }
        };
        self.run.reach(to, &mut on)?;
        while self.to_come.next_at().is_some_and(|next| next <= to)
            && let Some(next) = self.to_come.next()
        {
            let (run, grace) = (Some(self.case.of(next.length, 0)), self.case.ending(next.workload.grace));
            self.run.submit(next.workload, Life { run, completions: None, grace });
        }
        self.run.settle_while(&mut on, go_on)
    }

    /// Plays until the workloads in question have started, nothing more happens, a bound is reached, or `go_on` ends
    /// it.
    pub fn finish(
        &mut self,
        now: Time,
        bounds: Bounds,
        only: Option<&WorkloadId>,
        go_on: &mut dyn FnMut() -> bool,
    ) {
        let mut steps = 0;
        while only.map_or(!self.waiting.is_empty(), |id| self.waiting.contains_key(id)) {
            let Some(next) = self.run.next() else { return };
            let next = self.to_come.next_at().map_or(next, |to_come| to_come.min(next));
            let in_bounds =
                steps < bounds.steps && self.starts.len() < bounds.starts && next <= now.after(bounds.ahead);
            // Decisions without a fixed point say nothing about starts.
            if !in_bounds || !go_on() || !self.step(next, go_on).is_ok_and(|rests| rests) {
                self.cut = true;
                return;
            }
            steps += 1;
        }
    }
}

impl Play {
    /// Plays on until the victims of a preemptor have started again, as far as the bounds allow.
    pub fn see_victims_back(
        &mut self,
        preemptor: &WorkloadId,
        now: Time,
        bounds: Bounds,
        go_on: &mut dyn FnMut() -> bool,
    ) {
        let is_away = |victim: &Victim| {
            victim.preemptor == *preemptor && victim.fate.keeps.is_none() && victim.fate.back.is_none()
        };
        for _ in 0..bounds.steps {
            if !self.displaced.iter().any(is_away) {
                return;
            }
            let next = self.run.next().filter(|next| *next <= now.after(bounds.ahead));
            let Some(next) = next.filter(|_| go_on()) else { return };
            if !self.step(next, go_on).is_ok_and(|rests| rests) {
                return;
            }
        }
    }
}

/// The result of a play.
#[derive(Default)]
pub struct Played {
    /// The starts.
    pub starts: BTreeMap<WorkloadId, Start>,
    /// The victims.
    displaced: Vec<Victim>,
    /// It was cut short.
    pub cut: bool,
    /// Why each of these has not started.
    pub unbounded: BTreeMap<WorkloadId, Unbounded>,
}

impl Played {
    /// The victims of a preemptor.
    pub fn victims_of(&self, preemptor: &WorkloadId) -> impl Iterator<Item = &Victim> {
        self.displaced.iter().filter(move |victim| victim.preemptor == *preemptor)
    }
}

impl Play {
    /// Ends the play. Why a workload has not started is not looked up in the play with short runs, and with `only` for that
    /// workload alone.
    pub fn end(self, case: Case, only: Option<&WorkloadId>) -> Played {
        let Self { run, waiting, starts, ledger, displaced, cut, .. } = self;
        let asked = waiting.keys().filter(|id| case != Case::Early && only.is_none_or(|only| only == *id));
        let endless =
            if cut || case == Case::Early { Endless::default() } else { ledger.endless(run.engine()) };
        let state = &run.engine().scheduler.state;
        let is_paused = |id: &WorkloadId| state.get(id).is_some_and(|info| state.is_paused(info));
        let why = |id: &WorkloadId| {
            if is_paused(id) {
                Unbounded::QueuePaused
            } else if cut {
                Unbounded::Cut
            } else {
                endless.in_the_way(run.engine(), id)
            }
        };
        Played { unbounded: asked.map(|id| (id.clone(), why(id))).collect(), starts, displaced, cut }
    }
}
