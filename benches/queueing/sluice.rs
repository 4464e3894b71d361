//! Sluice on a trace: the engine of the cluster, replayed in time.
//!
//! Every team has its own nodes as guarantee, weight 1 and one preemptible queue. Run times are not given;
//! the engine learns them. A job larger than a node is a gang of equal pods.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use anyhow::Result;
use sluice_engine::Engine;
use sluice_engine::replay::calibration::Calibration;
use sluice_engine::replay::forecast::{self, Bounds, Eta};
use sluice_engine::replay::{Happening, Life, Run as Play};
use sluice_engine::types::amount::{Amount, ResourceList};
use sluice_engine::types::{
    DEFAULT_POOL, Event, FairShareWindow, Node, Observed, PodShape, Queue, Quota, Settings, Team, Time,
    Workload, WorkloadId,
};

use super::literature::Literature;
use super::outcome::{Outcome, Predicted, Predictor, Run};
use super::trace::{Job, NODE, Trace};

const GPU: &str = "nvidia.com/gpu";

/// The options that an administrator chooses; the same on every trace.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Time after its start during which a job is spared, except from preemptors within guarantee that have
    /// no other way.
    pub min_runtime: Duration,
    /// Time after that during which it may be evicted for fair shares.
    pub window: Duration,
    /// Time after which the first workload of a queue that cannot start gets a reservation.
    pub reserve_after: Duration,
    /// Time that pods take to stop.
    pub grace: Duration,
    /// Interval between forecasts of all waiting jobs; zero for none.
    pub forecast_every: Duration,
}

/// Horizon of a forecast: the benchmark makes many of them on copies of a busy cluster.
const BOUNDS: Bounds = Bounds { steps: 1_000, starts: 400, ahead: Duration::from_secs(7 * 86_400) };

/// Runs the engine over a trace until every job has finished.
///
/// # Errors
/// When its decisions do not come to rest.
pub fn run(trace: &Trace, choice: Choice, progress: &dyn Fn(usize)) -> Result<Outcome> {
    let mut play = Play::new(Engine::with_settings(Settings::default()), Time(0));
    for index in 0..trace.nodes {
        play.apply(Event::NodeApplied(Node {
            name: format!("node-{index:03}").into(),
            labels: BTreeMap::new(),
            allocatable: gpus(NODE),
            taints: Vec::new(),
            schedulable: true,
            unreachable: None,
        }));
    }
    for team in &trace.teams {
        play.apply(Event::TeamApplied(Team {
            name: team.name.as_str().into(),
            parent: None,
            quotas: BTreeMap::from([(
                DEFAULT_POOL.into(),
                Quota { guaranteed: gpus(team.nodes * NODE), ..Quota::default() },
            )]),
            weight: 1,
            fair_users: false,
            budget: None,
            queues: vec![Queue {
                min_runtime: choice.min_runtime,
                fair_share_window: FairShareWindow::For(choice.window),
                reserve_after: choice.reserve_after,
                ..Queue::fallback()
            }],
        }));
    }
    let mut log = Log { starts: vec![0; trace.jobs.len()], ..Log::default() };
    let mut next = 0;
    let mut forecast = trace.jobs.first().map_or(0, |job| job.submit);
    while let Some(now) = trace.jobs.get(next).map(|job| job.submit) {
        let mut on = |at: Time, happening: &Happening| {
            log.note(trace, at, happening);
            progress(log.finished);
        };
        play.reach(time(now), &mut on)?;
        let first = next;
        while let Some(job) = trace.jobs.get(next).filter(|job| job.submit == now) {
            let life = Life { run: Some(duration(job.duration)), completions: None, grace: choice.grace };
            play.submit(workload(trace, next, job), life);
            next += 1;
        }
        play.settle(&mut on)?;
        let submitted = first..next;
        let one_waits = || {
            let waits = |job: usize| {
                let workload = play.engine().workload(&identity(job));
                workload.is_some_and(|workload| workload.state == Observed::Queued)
            };
            submitted.clone().any(waits)
        };
        // At a submission if possible, so that there are forecasts at submission too.
        let late = forecast + i64::try_from(choice.forecast_every.as_secs())? / 2;
        if !choice.forecast_every.is_zero() && now >= forecast && (now >= late || one_waits()) {
            forecast = now + i64::try_from(choice.forecast_every.as_secs())?;
            log.expect(play.engine(), trace, now, submitted);
        }
    }
    while let Some(at) = play.next() {
        play.advance(at, &mut |at, happening| {
            log.note(trace, at, happening);
            progress(log.finished);
        })?;
    }
    Ok(log.outcome)
}

#[derive(Default)]
struct Log {
    /// Start of the current run of each job.
    starts: Vec<i64>,
    /// The forecasts of each waiting job.
    expected: BTreeMap<usize, Vec<Expected>>,
    calibration: Calibration,
    literature: Literature,
    outcome: Outcome,
    finished: usize,
}

/// A forecast of the start of one job.
struct Expected {
    asked: i64,
    by: Predictor,
    eta: Eta,
    at_submission: bool,
}

impl Log {
    /// Makes the forecasts of all predictors, to compare them with the actual starts.
    fn expect(&mut self, engine: &Engine, trace: &Trace, now: i64, submitted: Range<usize>) {
        let told = forecast::forecast_shown(engine, time(now), BOUNDS, &mut self.calibration, &mut |_| true);
        let mut by = vec![(Predictor::Sluice, told.etas)];
        for predictor in [Predictor::LastTwo, Predictor::Request] {
            let lengths = |workload: &Workload, elapsed: Duration| {
                let job = workload.id.0.parse::<usize>().ok()?;
                self.literature.length(predictor, trace, job, elapsed)
            };
            let starts = forecast::starts_by(engine, time(now), BOUNDS, &lengths);
            let exactly = |at| Eta { early: Some(at), likely: Some(at), late: Some(at) };
            by.push((predictor, starts.into_iter().map(|(id, at)| (id, exactly(at))).collect()));
        }
        for (by, etas) in by {
            for (id, eta) in etas {
                if let (Ok(job), Some(_)) = (id.0.parse::<usize>(), eta.likely) {
                    let at_submission = submitted.contains(&job);
                    let expected = Expected { asked: now, by, eta, at_submission };
                    self.expected.entry(job).or_default().push(expected);
                }
            }
        }
    }

    fn note(&mut self, trace: &Trace, at: Time, happening: &Happening) {
        let Ok(job) = happening.workload().0.parse::<usize>() else { return };
        let now = at.0 / 1000;
        match happening {
            Happening::Admitted { .. } => {
                self.starts[job] = now;
                let expected = self.expected.remove(&job).unwrap_or_default();
                let predicted =
                    expected.into_iter().filter_map(|Expected { asked, by, eta, at_submission }| {
                        let seconds = |time: Time| time.0 / 1000;
                        let within = eta.early.is_some_and(|early| seconds(early) <= now)
                            && eta.late.is_none_or(|late| now <= seconds(late));
                        let error = (now - seconds(eta.likely?)).abs();
                        Some(Predicted { by, error, left: now - asked, within, at_submission })
                    });
                self.outcome.predicted.extend(predicted);
            }
            Happening::Evicted { .. } => {
                self.outcome.runs.push(Run { job, start: self.starts[job], end: now, finished: false });
            }
            Happening::Finished { .. } => {
                self.finished += 1;
                self.literature.ended(trace, job);
                self.outcome.runs.push(Run { job, start: self.starts[job], end: now, finished: true });
            }
            _ => {}
        }
    }
}

fn identity(job: usize) -> WorkloadId {
    WorkloadId(format!("{job:06}").into())
}

fn workload(trace: &Trace, index: usize, job: &Job) -> Workload {
    let team = trace.teams[job.team].name.as_str();
    let pods = pods(job.gpus);
    let shape = PodShape { requests: gpus(job.gpus / pods), ..PodShape::default() };
    Workload {
        id: identity(index),
        ..Workload::job(&team.into(), &format!("job-{index:06}").into(), pods, shape, time(job.submit))
    }
}

/// The fewest equal pods of a job that each fit a node.
fn pods(gpus: u32) -> u32 {
    (gpus.div_ceil(NODE)..=gpus).find(|pods| gpus.is_multiple_of(*pods)).unwrap_or(gpus)
}

fn gpus(count: u32) -> ResourceList {
    ResourceList::from([(GPU.into(), Amount::units(i64::from(count)))])
}

fn time(seconds: i64) -> Time {
    Time(seconds * 1000)
}

fn duration(seconds: i64) -> Duration {
    Duration::from_secs(seconds.unsigned_abs())
}
