//! Sluice on a trace: the engine of the cluster, replayed in time.
//!
//! Every team has its own nodes as guarantee, weight 1 and one preemptible queue. Run times are not given;
//! the engine learns them. A job larger than a node is a gang of equal pods.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use sluice_engine::Engine;
use sluice_engine::replay::forecast::{self, Bounds, Eta, Forecast};
use sluice_engine::replay::{Happening, Life, Run as Play};
use sluice_engine::types::amount::{Amount, ResourceList};
use sluice_engine::types::{
    DEFAULT_POOL, Event, FairShareWindow, Node, PodShape, Queue, Quota, Settings, Team, Time, Workload,
    WorkloadId,
};

use super::outcome::{Outcome, Predicted, Run};
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
const BOUNDS: Bounds = Bounds { steps: 400, starts: 400, ahead: Duration::from_secs(7 * 86_400) };

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
            log.note(at, happening);
            progress(log.finished);
        };
        play.reach(time(now), &mut on)?;
        while let Some(job) = trace.jobs.get(next).filter(|job| job.submit == now) {
            let life = Life { run: Some(duration(job.duration)), completions: None, grace: choice.grace };
            play.submit(workload(trace, next, job), life);
            next += 1;
        }
        play.settle(&mut on)?;
        if !choice.forecast_every.is_zero() && now >= forecast {
            forecast = now + i64::try_from(choice.forecast_every.as_secs())?;
            log.expect(&forecast::forecast(play.engine(), time(now), BOUNDS));
        }
    }
    while let Some(at) = play.next() {
        play.advance(at, &mut |at, happening| {
            log.note(at, happening);
            progress(log.finished);
        })?;
    }
    Ok(log.outcome)
}

#[derive(Default)]
struct Log {
    /// Start of the current run of each job.
    starts: Vec<i64>,
    /// The time of each forecast of each waiting job, and the start that it tells.
    expected: BTreeMap<usize, Vec<(i64, Eta)>>,
    outcome: Outcome,
    finished: usize,
}

impl Log {
    /// Remembers a forecast, to compare it with the actual starts.
    fn expect(&mut self, forecast: &Forecast) {
        for (id, eta) in &forecast.etas {
            if let (Ok(job), Some(_)) = (id.0.parse::<usize>(), eta.likely) {
                self.expected.entry(job).or_default().push((forecast.at.0 / 1000, *eta));
            }
        }
    }

    fn note(&mut self, at: Time, happening: &Happening) {
        let Ok(job) = happening.workload().0.parse::<usize>() else { return };
        let now = at.0 / 1000;
        match happening {
            Happening::Admitted { .. } => {
                self.starts[job] = now;
                let expected = self.expected.remove(&job).unwrap_or_default();
                let predicted = expected.into_iter().filter_map(|(asked, eta)| {
                    let seconds = |time: Time| time.0 / 1000;
                    let within = eta.early.is_some_and(|early| seconds(early) <= now)
                        && eta.late.is_none_or(|late| now <= seconds(late));
                    Some(Predicted { error: (now - seconds(eta.likely?)).abs(), left: now - asked, within })
                });
                self.outcome.predicted.extend(predicted);
            }
            Happening::Evicted { .. } => {
                self.outcome.runs.push(Run { job, start: self.starts[job], end: now, finished: false });
            }
            Happening::Finished { .. } => {
                self.finished += 1;
                self.outcome.runs.push(Run { job, start: self.starts[job], end: now, finished: true });
            }
            _ => {}
        }
    }
}

fn workload(trace: &Trace, index: usize, job: &Job) -> Workload {
    let team = trace.teams[job.team].name.as_str();
    let pods = pods(job.gpus);
    let shape = PodShape { requests: gpus(job.gpus / pods), ..PodShape::default() };
    Workload {
        id: WorkloadId(format!("{index:06}").into()),
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
