//! Forecasts: the expected start of every waiting workload, and what would happen to a workload that is not
//! submitted yet.
//!
//! A copy of the engine is played forward three times: with short, usual and long runs (see
//! [`crate::prediction::run_times`]). Pods that are evicted end at once in the first play, and after their whole grace
//! period in the others. What people are shown rests besides on the submissions of the last day, which come
//! again in the play with long runs, and on how earlier forecasts came true ([`crate::replay::calibration`]). A run is
//! bounded by its time limit, or by runs of the same team, queue and size that have ended; a run without either goes on
//! for ever. A workload has an estimate only if it starts in all three plays, so that something bounds it, and the estimate
//! says what it rests on (law 14). The answer for the others names the run without a known end.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::engine::Engine;
use crate::prediction::run_times::{Length, Manner};
use crate::prediction::timeline;
use crate::replay::calibration::{Calibration, Corrections};
use crate::replay::grounds::{self, Basis, Grounds, Unbounded};
use crate::replay::opening::Opening;
use crate::replay::play::{Play, Played, Start};
use crate::replay::{Happening, Run};
use crate::scheduler::Scheduler;
use crate::state::workload::Phase;
use crate::types::{Admission, Event, Likeness, PlaceView, Time, Verdict, Workload, WorkloadId};

pub use crate::replay::play::{Bounds, Case, Eta, Fate};

/// A run that is expected, if runs are as usual.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedRun {
    /// Its pool, and its pods by node.
    pub admission: Admission,
    /// Its end, where a limit or earlier runs of its kind bound it.
    pub end: Option<Time>,
    /// What the end rests on, in one sentence; empty without an end.
    pub sentence: String,
}

/// The expected end of a workload that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// If runs are as usual.
    pub likely: Time,
    /// If runs are long; the time limit, where there is one.
    pub latest: Time,
    /// Whether a time limit ends it.
    pub limited: bool,
    /// What the runs behind the estimate have in common with it.
    pub like: Likeness,
    /// What the end rests on, in one sentence.
    pub sentence: String,
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

/// What would happen to a workload if it were submitted now: the answer to a what-if. It is made from a [`Submission`], either
/// of what is decided at once or of the three plays as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// When it would start.
    pub eta: Eta,
    /// What that rests on, or why it is not known.
    pub grounds: Grounds,
    /// Where it would stand in the queue.
    pub place: Option<PlaceView>,
    /// With which pool and nodes it would start, if runs are as usual; `None` where no start is foreseen.
    pub admission: Option<Admission>,
    /// The workloads that would be evicted or shrunk for it.
    pub displaced: Vec<WorkloadId>,
    /// What would become of each of these, in the same order; empty while that is not predicted.
    pub fates: Vec<Fate>,
    /// Its verdict at once; `None` if the decisions at once were not complete when they had to end.
    pub verdict: Option<Verdict>,
    /// What is not known may be beyond the [`Bounds`] of the forecast, or no play was made.
    pub cut: bool,
}

/// The result of three plays for one workload: it has an expected start only if it has started in all of them.
fn eta(plays: [&Played; 3], id: &WorkloadId) -> (Eta, Grounds) {
    let starts: Vec<&Start> = plays.iter().filter_map(|play| play.starts.get(id)).collect();
    let [_, likely, _] = *starts else {
        let cut = if plays.iter().any(|play| play.cut) { Unbounded::Cut } else { Unbounded::NothingEnds };
        // The submissions of the last day come again without end in the play with long runs, which is cut short then and
        // tells nothing.
        let unbounded = plays[1].unbounded.get(id).or_else(|| plays[2].unbounded.get(id));
        return (Eta::default(), Err(unbounded.cloned().unwrap_or(cut)));
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
    let length = run_times.shown_length(&Manner::of(&scheduler.state, info), now.since(started))?;
    let [likely, latest] = [length.likely, length.late].map(|length| started.after(length));
    let Length { limited, like, .. } = length;
    Some(RunEnd { likely, latest, limited, like, sentence: grounds::of_run(&info.workload, length, true) })
}

/// The expected start of every waiting workload, if no other workload is submitted.
pub fn forecast(engine: &Engine, now: Time, bounds: Bounds) -> Forecast {
    let opening = Opening::new(engine, now);
    forecast_of(
        engine,
        now,
        Case::ALL.map(|case| {
            let mut play = Play::new(engine.clone(), &opening, now, case);
            play.finish(now, bounds, None, &mut || true);
            play.end(case, None)
        }),
    )
}

/// The expected start of every waiting workload as people are shown it: the submissions of the last day come again, and earlier
/// forecasts correct this one. The plays go on while `go_on` allows each further plan.
pub fn forecast_shown(
    engine: &Engine,
    now: Time,
    bounds: Bounds,
    calibration: &mut Calibration,
    go_on: &mut dyn FnMut(Case) -> bool,
) -> Forecast {
    calibration.learn(engine);
    let opening = Opening::new(engine, now);
    let mut forecast = forecast_of(
        engine,
        now,
        Case::ALL.map(|case| {
            let mut play = Play::new(engine.clone(), &opening, now, case).with_arrivals(bounds);
            play.finish(now, bounds, None, &mut || go_on(case));
            play.end(case, None)
        }),
    );
    let corrections = calibration.corrections(now);
    for (id, eta) in &mut forecast.etas {
        calibration.remember(id, *eta, now);
        *eta = corrections.corrected(*eta, now);
    }
    forecast
}

/// What the length of the run of a waiting workload rests on; empty where it is not known.
fn length_sentence(engine: &Engine, id: &WorkloadId) -> String {
    let Scheduler { state, prediction, .. } = &engine.scheduler;
    let info = state.get(id);
    let length =
        info.and_then(|info| prediction.run_times.shown_length(&Manner::of(state, info), Duration::ZERO));
    let sentence = info.zip(length).map(|(info, length)| grounds::of_run(&info.workload, length, false));
    sentence.unwrap_or_default()
}

/// The start of every waiting workload that starts in a play where each run takes as long as `lengths` says of its workload
/// and the time that it has been running, and no other workload is submitted: to compare predictors.
pub fn starts_by(
    engine: &Engine,
    now: Time,
    bounds: Bounds,
    lengths: &dyn Fn(&Workload, Duration) -> Option<Duration>,
) -> BTreeMap<WorkloadId, Time> {
    let opening = Opening::with_lengths(engine, now, &|info, _, elapsed| {
        lengths(&info.workload, elapsed).map(Length::exactly)
    });
    let mut play = Play::new(engine.clone(), &opening, now, Case::Likely);
    play.finish(now, bounds, None, &mut || true);
    play.starts.into_iter().map(|(id, start)| (id, start.at)).collect()
}

/// The forecast of three plays.
fn forecast_of(engine: &Engine, now: Time, plays: [Played; 3]) -> Forecast {
    let waiting = engine
        .scheduler
        .state
        .iter()
        .filter(|info| info.phase == Phase::Pending && !info.removed && info.workload.pods > 0);
    let mut forecast = Forecast { at: now, cut: plays.iter().any(|play| play.cut), ..Forecast::default() };
    for id in waiting.map(|info| &info.workload.id) {
        let (eta, grounds) = eta(plays.each_ref(), id);
        let usual = plays[1].starts.get(id).filter(|_| eta.likely.is_some());
        forecast.runs.extend(usual.map(|start| {
            let end = start.length.map(|length| start.at.after(length));
            let admission = start.admission.clone();
            (id.clone(), ExpectedRun { admission, end, sentence: length_sentence(engine, id) })
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
    submitted.uncorrected(bounds, go_on)
}

/// A workload that is submitted to a copy of an engine. What is decided at once is known from the first; its expected start takes
/// three plays, which [`Submission::shown`] and [`Submission::uncorrected`] make.
pub struct Submission {
    /// The engine with the workload, before any decision.
    with: Engine,
    /// The same once everything that is decided at once has been decided.
    decided: Run,
    id: WorkloadId,
    now: Time,
    place: Option<PlaceView>,
    /// What is decided at once, while no run has ended.
    verdict: Option<Verdict>,
    admission: Option<Admission>,
    displaced: Vec<WorkloadId>,
    /// Whether the submissions of the last day come again.
    with_arrivals: bool,
}

impl Submission {
    /// Submits the workload at `now` and decides at once, as far as `go_on` allows each further plan.
    pub fn new(mut with: Engine, workload: Workload, now: Time, go_on: &mut dyn FnMut() -> bool) -> Self {
        let id = workload.id.clone();
        with.apply(Event::workload(workload), now);
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
        let place = with.place(&id);
        Self { with, decided: run, id, now, place, verdict, admission, displaced, with_arrivals: false }
    }

    /// The engine once the workload has its decision, for what is submitted after it.
    #[must_use]
    pub fn decided(&self) -> &Engine {
        self.decided.engine()
    }

    /// The engine with the workload, before any decision.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.with
    }

    /// What is decided at once, without a play. Only a workload that starts at once has an expected start here.
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

    /// What is decided at once, of a workload that starts once its victims have stopped: at once if their pods do not need their
    /// grace period, and as in this play otherwise. The play also tells what becomes of the victims.
    fn after_victims(&self, usual: &Played) -> Prospect {
        let fate = |id: &WorkloadId| usual.victims_of(&self.id).find(|victim| victim.id == *id);
        let fates = self.displaced.iter().map(|id| fate(id).map(|victim| victim.fate.clone()));
        let fates = fates.collect::<Option<Vec<Fate>>>().unwrap_or_default();
        let at_once = Prospect { fates, ..self.at_once() };
        let Some(start) = usual.starts.get(&self.id) else { return at_once };
        let eta = Eta { early: Some(self.now), likely: Some(start.at), late: Some(start.at) };
        Prospect { eta, grounds: Ok(start.basis), ..at_once }
    }

    /// Whether it starts at once, so that there is nothing to predict.
    #[must_use]
    pub fn starts_at_once(&self) -> bool {
        self.verdict.is_some() && self.admission.is_some()
    }

    /// What would happen to it, with the expected start as people are shown it: see [`forecast_shown`].
    pub fn shown(
        &mut self,
        bounds: Bounds,
        corrections: &Corrections,
        go_on: &mut dyn FnMut(Case) -> bool,
    ) -> Prospect {
        self.with_arrivals = true;
        let mut prospect = self.uncorrected(bounds, go_on);
        prospect.eta = corrections.corrected(prospect.eta, self.now);
        prospect
    }

    /// What would happen to it, as far as the three plays get while `go_on` allows each further plan. No earlier forecast corrects
    /// the expected start.
    pub fn uncorrected(&self, bounds: Bounds, go_on: &mut dyn FnMut(Case) -> bool) -> Prospect {
        if self.starts_at_once() && self.displaced.is_empty() {
            return self.at_once();
        }
        let Self { with, id, now, place, verdict, .. } = self;
        let opening = Opening::new(with, *now);
        let mut play = |case| self.play(&opening, case, bounds, &mut || go_on(case));
        let usual = play(Case::Likely);
        if self.starts_at_once() {
            return self.after_victims(&usual);
        }
        // It has an estimate only if it starts in all plays.
        let late = if usual.starts.contains_key(id) { play(Case::Late) } else { Played::default() };
        let early = if late.starts.contains_key(id) { play(Case::Early) } else { Played::default() };
        let (eta, grounds) = eta([&early, &usual, &late], id);
        Prospect {
            eta,
            grounds,
            place: place.clone(),
            admission: usual.starts.get(id).map(|start| start.admission.clone()),
            displaced: usual.victims_of(id).map(|victim| victim.id.clone()).collect(),
            fates: usual.victims_of(id).map(|victim| victim.fate.clone()).collect(),
            verdict: verdict.clone(),
            cut: [&early, &usual, &late].iter().any(|play| play.cut),
        }
    }

    /// One play, until the workload has started; that with usual runs also until its victims have started again.
    fn play(&self, opening: &Opening, case: Case, bounds: Bounds, go_on: &mut dyn FnMut() -> bool) -> Played {
        let Self { with, id, now, .. } = self;
        let mut play = Play::new(with.clone(), opening, *now, case);
        if self.with_arrivals {
            play = play.with_arrivals(bounds);
        }
        if let Some(verdict) = &self.verdict {
            play.ledger.refused(id, verdict.reason);
        }
        if play.step(*now, go_on).is_ok_and(|rests| rests) {
            play.finish(*now, bounds, Some(id), go_on);
            if case == Case::Likely && !play.cut {
                play.see_victims_back(id, *now, bounds, go_on);
            }
        } else {
            play.cut = true;
        }
        play.end(case, Some(id))
    }
}
