//! Forecasts: the expected start of every waiting workload, and what would happen to a workload that is not
//! submitted yet.
//!
//! A copy of the engine is played forward three times: with short, usual and long runs (see
//! [`crate::prediction::run_times`]). No further workload is submitted in it. A run is bounded by its time limit, or by
//! runs of the same team, queue and size that have ended; a run without either goes on for ever. A workload has an
//! estimate only if it starts in all three plays, so that something bounds it, and the estimate says what it rests on
//! (law 14). The answer for the others names the run without a known end.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::engine::Engine;
use crate::prediction::run_times::Length;
use crate::prediction::timeline;
use crate::replay::grounds::{Basis, Endless, Grounds, Ledger, Unbounded};
use crate::replay::{Happening, Life, NeverSettles, Run};
use crate::state::workload::Phase;
use crate::types::{Admission, BudgetView, Event, PlaceView, Time, Verdict, Workload, WorkloadId};

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

/// A run that is expected, if runs are as usual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedRun {
    /// Its pool, and its pods by node.
    pub admission: Admission,
    /// Its end, where a limit or earlier runs of its kind bound it.
    pub end: Option<Time>,
}

/// The expected end of a workload that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// If runs are as usual.
    pub likely: Time,
    /// If runs are long; the time limit, where there is one.
    pub latest: Time,
    /// Whether a time limit ends it.
    pub limited: bool,
}

/// The expected starts of waiting workloads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// When it was made.
    pub at: Time,
    /// By waiting workload.
    pub etas: BTreeMap<WorkloadId, Eta>,
    /// What each of these rests on, or why there is none.
    pub grounds: BTreeMap<WorkloadId, Grounds>,
    /// The run of each that has an estimate.
    pub runs: BTreeMap<WorkloadId, ExpectedRun>,
    /// It was cut short by its [`Bounds`]; those without an estimate may have one beyond.
    pub cut: bool,
}

/// What would happen to a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// When it would start.
    pub eta: Eta,
    /// What that rests on, or why it is not known.
    pub grounds: Grounds,
    /// Where it would stand in the queue.
    pub place: Option<PlaceView>,
    /// Where, if runs are as usual.
    pub admission: Option<Admission>,
    /// The workloads that would be evicted or shrunk for it.
    pub displaced: Vec<WorkloadId>,
    /// What would become of each of these, in the same order; empty while that is not predicted.
    pub fates: Vec<Fate>,
    /// Its verdict at once; `None` if the decisions at once were not complete when they had to end.
    pub verdict: Option<Verdict>,
    /// The forecast was cut short by its [`Bounds`].
    pub cut: bool,
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
struct Victim {
    id: WorkloadId,
    preemptor: WorkloadId,
    fate: Fate,
}

/// How long runs are taken to be.
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
    const ALL: [Self; 3] = [Self::Early, Self::Likely, Self::Late];

    fn of(self, length: Length) -> Duration {
        match self {
            Self::Early => length.early,
            Self::Likely => length.likely,
            Self::Late => length.late,
        }
    }
}

/// The start of a workload in a play.
struct Start {
    at: Time,
    admission: Admission,
    basis: Basis,
    length: Option<Duration>,
}

/// A copy of an engine that is played forward.
struct Play {
    run: Run,
    began: Time,
    /// Waiting workloads that have not started yet, with the length of their run.
    waiting: BTreeMap<WorkloadId, Option<Duration>>,
    starts: BTreeMap<WorkloadId, Start>,
    ledger: Ledger,
    /// The number of pods of each workload that runs.
    sizes: BTreeMap<WorkloadId, u32>,
    /// Victims that were evicted or shrunk, each with its preemptor.
    displaced: Vec<Victim>,
    cut: bool,
}

impl Play {
    fn new(engine: Engine, now: Time, case: Case) -> Self {
        let (mut lives, mut ledger) = (Vec::new(), Ledger::default());
        let (mut waiting, mut sizes) = (BTreeMap::new(), BTreeMap::new());
        for info in engine.scheduler.state.iter().filter(|info| !info.removed && info.unadmitted.is_none()) {
            let admission = timeline::running_admission(info);
            sizes.extend(admission.map(|admission| (info.workload.id.clone(), admission.pods)));
            let started = admission.map(|admission| admission.at);
            let elapsed = started.map_or(Duration::ZERO, |started| now.since(started));
            let run_times = &engine.scheduler.prediction.run_times;
            let length = run_times.length_of_like(&engine.scheduler.state, info, elapsed);
            ledger.enter(&engine, info, length);
            let run = length.map(|length| case.of(length));
            lives.push((info.workload.id.clone(), Life { run, ..Life::default() }));
            if info.phase == Phase::Pending && info.workload.pods > 0 {
                waiting.insert(info.workload.id.clone(), run);
            }
        }
        let mut run = Run::new(engine, now);
        for (id, life) in lives {
            run.adopt(&id, life);
        }
        let (starts, displaced) = (BTreeMap::new(), Vec::new());
        Self { run, began: now, waiting, starts, ledger, sizes, displaced, cut: false }
    }

    /// Plays up to an instant; false if `go_on` ended it before the decisions there were complete.
    fn step(&mut self, to: Time, go_on: &mut dyn FnMut() -> bool) -> Result<bool, NeverSettles> {
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
        self.run.settle_while(&mut on, go_on)
    }

    /// Plays until the workloads in question have started, nothing more happens, a bound is reached, or `go_on` ends
    /// it.
    fn finish(
        &mut self,
        now: Time,
        bounds: Bounds,
        only: Option<&WorkloadId>,
        go_on: &mut dyn FnMut() -> bool,
    ) {
        let mut steps = 0;
        while only.map_or(!self.waiting.is_empty(), |id| self.waiting.contains_key(id)) {
            let Some(next) = self.run.next() else { return };
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
    fn see_victims_back(
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
struct Played {
    starts: BTreeMap<WorkloadId, Start>,
    displaced: Vec<Victim>,
    cut: bool,
    /// Why each of these has not started.
    unbounded: BTreeMap<WorkloadId, Unbounded>,
}

impl Play {
    /// Ends the play. Why a workload has not started is looked up in the play with long runs alone, and with `only` for that
    /// workload alone.
    fn end(self, case: Case, only: Option<&WorkloadId>) -> Played {
        let Self { run, waiting, starts, ledger, displaced, cut, .. } = self;
        let asked = waiting.keys().filter(|id| case == Case::Late && only.is_none_or(|only| only == *id));
        let endless = if cut { Endless::default() } else { ledger.endless(run.engine()) };
        let why = |id: &WorkloadId| match cut {
            true => Unbounded::Cut,
            false => endless.in_the_way(run.engine(), id),
        };
        Played { unbounded: asked.map(|id| (id.clone(), why(id))).collect(), starts, displaced, cut }
    }
}

/// The result of three plays for one workload: it has an expected start only if it has started in all of them.
fn eta(plays: &[Played; 3], id: &WorkloadId) -> (Eta, Grounds) {
    let starts: Vec<&Start> = plays.iter().filter_map(|play| play.starts.get(id)).collect();
    let [_, likely, _] = *starts else {
        let cut = if plays.iter().any(|play| play.cut) { Unbounded::Cut } else { Unbounded::NothingEnds };
        return (Eta::default(), Err(plays[2].unbounded.get(id).cloned().unwrap_or(cut)));
    };
    let times = || starts.iter().map(|start| start.at);
    let eta = Eta { early: times().min(), likely: Some(likely.at), late: times().max() };
    (eta, Ok(starts.iter().map(|start| start.basis).fold(Basis::AtOnce, Basis::and)))
}

/// The expected end of a workload that runs, by its limit or by runs of its own kind that have ended.
pub fn expected_end(engine: &Engine, id: &WorkloadId, now: Time) -> Option<RunEnd> {
    let scheduler = &engine.scheduler;
    let info = scheduler.state.get(id)?;
    let started = timeline::running_admission(info)?.at;
    let run_times = &scheduler.prediction.run_times;
    let length = run_times.length_of_like(&scheduler.state, info, now.since(started))?;
    let [likely, latest] = [length.likely, length.late].map(|length| started.after(length));
    Some(RunEnd { likely, latest, limited: length.limited })
}

/// The expected start of every waiting workload.
pub fn forecast(engine: &Engine, now: Time, bounds: Bounds) -> Forecast {
    forecast_while(engine, now, bounds, &mut |_| true)
}

/// The expected start of every waiting workload, as far as the three plays get while `go_on` allows each further plan.
pub fn forecast_while(
    engine: &Engine,
    now: Time,
    bounds: Bounds,
    go_on: &mut dyn FnMut(Case) -> bool,
) -> Forecast {
    let plays = Case::ALL.map(|case| {
        let mut play = Play::new(engine.clone(), now, case);
        play.finish(now, bounds, None, &mut || go_on(case));
        play.end(case, None)
    });
    let waiting = engine
        .scheduler
        .state
        .iter()
        .filter(|info| info.phase == Phase::Pending && !info.removed && info.workload.pods > 0);
    let mut forecast = Forecast { at: now, cut: plays.iter().any(|play| play.cut), ..Forecast::default() };
    for id in waiting.map(|info| &info.workload.id) {
        let (eta, grounds) = eta(&plays, id);
        let usual = plays[1].starts.get(id).filter(|_| eta.likely.is_some());
        forecast.runs.extend(usual.map(|start| {
            let end = start.length.map(|length| start.at.after(length));
            (id.clone(), ExpectedRun { admission: start.admission.clone(), end })
        }));
        forecast.etas.insert(id.clone(), eta);
        forecast.grounds.insert(id.clone(), grounds);
    }
    forecast
}

/// What would happen to a workload if it were submitted now.
pub fn what_if(engine: &Engine, workload: Workload, now: Time, bounds: Bounds) -> Prospect {
    what_if_while(engine, workload, now, bounds, &mut |_| true)
}

/// What would happen to a workload if it were submitted now, as far as the three plays get while `go_on` allows each
/// further plan.
pub fn what_if_while(
    engine: &Engine,
    workload: Workload,
    now: Time,
    bounds: Bounds,
    go_on: &mut dyn FnMut(Case) -> bool,
) -> Prospect {
    let submitted = Submission::new(engine.clone(), workload, now, &mut || go_on(Case::Late));
    submitted.foretold(bounds, go_on)
}

/// A workload that is submitted to a copy of an engine: its verdict at once, and then its expected start.
pub struct Submission {
    /// The engine with the workload, before any decision.
    with: Engine,
    id: WorkloadId,
    now: Time,
    place: Option<PlaceView>,
    /// What is decided at once, while no run has ended.
    verdict: Option<Verdict>,
    admission: Option<Admission>,
    displaced: Vec<WorkloadId>,
}

impl Submission {
    /// Submits the workload at `now` and decides at once, as far as `go_on` allows each further plan.
    pub fn new(mut with: Engine, workload: Workload, now: Time, go_on: &mut dyn FnMut() -> bool) -> Self {
        let id = workload.id.clone();
        with.apply(Event::WorkloadApplied(workload), now);
        let (mut admission, mut displaced) = (None, Vec::new());
        let mut on = |_: Time, happening: &Happening| match happening {
            Happening::Admitted { id: admitted, admission: given, .. } if *admitted == id => {
                admission = Some(given.clone());
            }
            Happening::Evicted { id: victim, preemptor: Some(preemptor), .. }
            | Happening::Resized { id: victim, preemptor: Some(preemptor), .. }
                if *preemptor == id =>
            {
                displaced.push(victim.clone());
            }
            _ => {}
        };
        // Workloads that are not adopted run on.
        let mut run = Run::new(with.clone(), now);
        let rests = run.settle_while(&mut on, go_on).is_ok_and(|rests| rests);
        let verdict = run.engine().verdict(&id).filter(|_| rests);
        let place = with.places().remove(&id);
        Self { with, id, now, place, verdict, admission, displaced }
    }

    /// The engine with the workload, before any decision.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.with
    }

    /// What is decided at once. Only a workload that starts at once has an expected start here.
    #[must_use]
    pub fn at_once(&self) -> Prospect {
        let at = self.admission.as_ref().map(|_| self.now);
        Prospect {
            eta: Eta { early: at, likely: at, late: at },
            grounds: if at.is_some() { Ok(Basis::AtOnce) } else { Err(Unbounded::Cut) },
            place: self.place.clone(),
            admission: self.admission.clone(),
            displaced: self.displaced.clone(),
            fates: Vec::new(),
            verdict: self.verdict.clone(),
            cut: at.is_none(),
        }
    }

    /// Whether it starts at once, so that there is nothing to predict.
    #[must_use]
    pub fn starts_at_once(&self) -> bool {
        self.verdict.is_some() && self.admission.is_some()
    }

    /// The same with the expected start, as far as the three plays get while `go_on` allows each further plan.
    pub fn foretold(&self, bounds: Bounds, go_on: &mut dyn FnMut(Case) -> bool) -> Prospect {
        if self.starts_at_once() && self.displaced.is_empty() {
            return self.at_once();
        }
        let Self { with, id, now, place, verdict, .. } = self;
        let plays = Case::ALL.map(|case| {
            let mut play = Play::new(with.clone(), *now, case);
            if let Some(verdict) = verdict {
                play.ledger.refused(id, verdict.reason);
            }
            if play.step(*now, &mut || go_on(case)).is_ok_and(|rests| rests) {
                play.finish(*now, bounds, Some(id), &mut || go_on(case));
                if case == Case::Likely && !play.cut {
                    play.see_victims_back(id, *now, bounds, &mut || go_on(case));
                }
            } else {
                play.cut = true;
            }
            play.end(case, Some(id))
        });
        let usual = &plays[1];
        let victims: Vec<&Victim> = usual.displaced.iter().filter(|victim| victim.preemptor == *id).collect();
        if self.starts_at_once() {
            let fate = |id: &WorkloadId| {
                victims.iter().find(|victim| victim.id == *id).map(|victim| victim.fate.clone())
            };
            let fates: Option<Vec<Fate>> = self.displaced.iter().map(fate).collect();
            return Prospect { fates: fates.unwrap_or_default(), ..self.at_once() };
        }
        let (eta, grounds) = eta(&plays, id);
        Prospect {
            eta,
            grounds,
            place: place.clone(),
            admission: usual.starts.get(id).map(|start| start.admission.clone()),
            displaced: victims.iter().map(|victim| victim.id.clone()).collect(),
            fates: victims.iter().map(|victim| victim.fate.clone()).collect(),
            verdict: verdict.clone(),
            cut: plays.iter().any(|play| play.cut),
        }
    }
}
