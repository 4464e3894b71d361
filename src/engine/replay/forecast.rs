//! Forecasts: the expected start of every waiting workload, and what would happen to a workload that is not
//! submitted yet.
//!
//! A copy of the engine is played forward three times: with short, usual and long runs (see
//! [`crate::prediction::run_times`]). No further workload is submitted in it, and a workload whose end cannot be predicted
//! runs for ever; a workload that waits for one of these has no estimate.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::engine::Engine;
use crate::prediction::run_times::Length;
use crate::prediction::timeline;
use crate::replay::{Happening, Life, NeverSettles, Run};
use crate::state::workload::Phase;
use crate::types::{Admission, Event, Time, Verdict, Workload, WorkloadId};

/// How far a forecast looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The most instants at which something happens.
    pub steps: u32,
    /// The most starts of waiting workloads.
    pub starts: usize,
    /// The farthest time ahead.
    pub ahead: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { steps: 5_000, starts: 1_000, ahead: Duration::from_secs(60 * 24 * 3600) }
    }
}

/// When a workload is expected to start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Eta {
    /// If runs are short; the earliest of the three otherwise.
    pub early: Option<Time>,
    /// If runs are as usual; `None` when that cannot be said.
    pub likely: Option<Time>,
    /// If runs are long; the latest of the three otherwise. `None` when that cannot be bounded.
    pub late: Option<Time>,
}

/// The expected starts of waiting workloads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Forecast {
    /// When it was made.
    pub at: Time,
    /// By waiting workload.
    pub etas: BTreeMap<WorkloadId, Eta>,
    /// It was cut short by its [`Bounds`]; those without an estimate may have one beyond.
    pub cut: bool,
}

/// What would happen to a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prospect {
    /// When it would start.
    pub eta: Eta,
    /// Where, if runs are as usual.
    pub admission: Option<Admission>,
    /// The workloads that would be evicted or shrunk for it.
    pub displaced: Vec<WorkloadId>,
    /// Its verdict at once.
    pub verdict: Option<Verdict>,
    /// The forecast was cut short by its [`Bounds`].
    pub cut: bool,
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

/// A copy of an engine that is played forward.
struct Play {
    run: Run,
    /// Waiting workloads that have not started yet.
    waiting: BTreeSet<WorkloadId>,
    starts: BTreeMap<WorkloadId, (Time, Admission)>,
    /// Victims that were evicted or shrunk, each with its preemptor.
    displaced: Vec<(WorkloadId, WorkloadId)>,
    cut: bool,
}

impl Play {
    fn new(engine: Engine, now: Time, case: Case) -> Self {
        let mut lives = Vec::new();
        let mut waiting = BTreeSet::new();
        for info in engine.scheduler.state.iter().filter(|info| !info.removed && info.unadmitted.is_none()) {
            let started = timeline::running_admission(info).map(|admission| admission.at);
            let elapsed = started.map_or(Duration::ZERO, |started| now.since(started));
            let length = engine.scheduler.prediction.run_times.length(&engine.scheduler.state, info, elapsed);
            let run = length.map(|length| case.of(length));
            lives.push((info.workload.id.clone(), Life { run, ..Life::default() }));
            if info.phase == Phase::Pending && info.workload.pods > 0 {
                waiting.insert(info.workload.id.clone());
            }
        }
        let mut run = Run::new(engine, now);
        for (id, life) in lives {
            run.adopt(&id, life);
        }
        Self { run, waiting, starts: BTreeMap::new(), displaced: Vec::new(), cut: false }
    }

    /// Plays up to an instant; false if `go_on` ended it before the decisions there were complete.
    fn step(&mut self, to: Time, go_on: &mut dyn FnMut() -> bool) -> Result<bool, NeverSettles> {
        let (waiting, starts, displaced) = (&mut self.waiting, &mut self.starts, &mut self.displaced);
        let mut on = |at: Time, happening: &Happening| match happening {
            Happening::Admitted { id, admission, .. } if waiting.remove(id) => {
                starts.insert(id.clone(), (at, admission.clone()));
            }
            Happening::Failed { id, .. } => {
                waiting.remove(id);
            }
            Happening::Evicted { id, preemptor: Some(preemptor), .. }
            | Happening::Resized { id, preemptor: Some(preemptor), .. } => {
                displaced.push((id.clone(), preemptor.clone()));
            }
            _ => {}
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
        while only.map_or(!self.waiting.is_empty(), |id| self.waiting.contains(id)) {
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

/// The result of a play, without its engine.
struct Played {
    starts: BTreeMap<WorkloadId, (Time, Admission)>,
    displaced: Vec<(WorkloadId, WorkloadId)>,
    cut: bool,
}

impl From<Play> for Played {
    fn from(play: Play) -> Self {
        Self { starts: play.starts, displaced: play.displaced, cut: play.cut }
    }
}

/// The result of three plays for one workload.
fn eta(plays: &[Played; 3], id: &WorkloadId) -> Eta {
    let starts = || plays.iter().map(|play| play.starts.get(id).map(|(at, _)| *at));
    let all = starts().all(|start| start.is_some());
    Eta {
        early: starts().flatten().min(),
        likely: starts().nth(1).flatten(),
        late: starts().flatten().max().filter(|_| all),
    }
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
        Played::from(play)
    });
    let waiting = engine
        .scheduler
        .state
        .iter()
        .filter(|info| info.phase == Phase::Pending && !info.removed && info.workload.pods > 0);
    Forecast {
        at: now,
        etas: waiting.map(|info| (info.workload.id.clone(), eta(&plays, &info.workload.id))).collect(),
        cut: plays.iter().any(|play| play.cut),
    }
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
    let id = workload.id.clone();
    let mut with = engine.clone();
    with.apply(Event::WorkloadApplied(workload), now);
    let mut verdict = None;
    let plays = Case::ALL.map(|case| {
        let mut play = Play::new(with.clone(), now, case);
        let rests = play.step(now, &mut || go_on(case));
        verdict = play.run.engine().verdict(&id);
        if rests.is_ok_and(|rests| rests) {
            play.finish(now, bounds, Some(&id), &mut || go_on(case));
        } else {
            play.cut = true;
        }
        Played::from(play)
    });
    let usual = &plays[1];
    let displaced = usual.displaced.iter().filter(|(_, preemptor)| *preemptor == id);
    Prospect {
        eta: eta(&plays, &id),
        admission: usual.starts.get(&id).map(|(_, admission)| admission.clone()),
        displaced: displaced.map(|(who, _)| who.clone()).collect(),
        verdict,
        cut: plays.iter().any(|play| play.cut),
    }
}
