//! Forecasts on request: the expected start of waiting workloads, and the what-if result of a Job.
//!
//! Decisions never wait for a forecast. The control loop hands out a copy of its engine, and a separate thread
//! replays it forward within a time budget. A new copy is requested only when the last forecast has expired; the
//! longer it took to make, the longer it is valid.

mod candidate;
mod verdicts;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

pub use self::verdicts::{Foreseen, Said, Verdicts};
use crate::api::question::MOST_TOGETHER;
use crate::background;
use crate::cluster::clock::now;
use crate::cluster::target::unsubmitted;
use crate::controller::{Asker, Question};
use crate::directory::Directory;
use crate::engine::Engine;
use crate::engine::replay::calibration::Calibration;
use crate::engine::replay::forecast::{Bounds, Case, Submission, forecast_shown};
use crate::engine::types::{Reason, Time};
use crate::view::{Accelerators, EtaRow, PoolAccelerators, RunRow, WhatIfRow, WorkloadRow};

/// The shortest time between two forecasts.
const PERIOD: Duration = Duration::from_millis(500);
/// Validity of a forecast as a multiple of its cost: forecasts take at most an eightieth of one processor.
const VALIDITY: u32 = 80;
/// How long each of the three replays of a forecast may take.
const BUDGET: Duration = Duration::from_secs(2);
/// How long after the beginning of the first forecast answers wait for it. Those that come later go without, until it is there: it
/// takes seconds where ten thousand workloads wait.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long an answer waits for a new forecast where there is an older one, or where it is about many workloads; not at all if the
/// older one took longer to make.
const RENEWAL: Duration = Duration::from_millis(150);

/// The expected starts by kind, namespace and name of the workload.
type ByName = HashMap<String, (Arc<EtaRow>, Option<RunRow>)>;

fn key(kind: &str, namespace: &str, name: &str) -> String {
    format!("{kind}/{namespace}/{name}")
}

/// The expected starts of one forecast.
#[derive(Debug)]
struct ExpectedStarts {
    etas: ByName,
    began: Instant,
    cost: Duration,
}

impl ExpectedStarts {
    fn has_expired(&self) -> bool {
        self.began.elapsed() > PERIOD.max(self.cost.saturating_mul(VALIDITY))
    }
}

/// The expected starts of the newest forecast; without one none is filled in.
#[derive(Clone, Debug)]
pub struct Starts(Option<Arc<ExpectedStarts>>);

impl Starts {
    /// Fills in the expected start of each waiting workload.
    pub fn fill_in(&self, rows: &mut [WorkloadRow]) {
        let Self(Some(starts)) = self else { return };
        for row in rows.iter_mut().filter(|row| row.waits()) {
            // What can never start has no start to expect, and the forecast may be older than the pause of a queue.
            let known = starts.etas.get(&key(&row.kind, &row.head.namespace, &row.head.name));
            let Some((eta, run)) = known.filter(|_| !row.head.never_starts) else { continue };
            (row.eta, row.run) = if row.head.reason == Reason::QueuePaused.code() {
                (Some(Arc::new(eta.of_paused_queue())), None)
            } else {
                (Some(Arc::clone(eta)), run.clone())
            };
        }
    }
}

/// Makes forecasts from copies of the engine.
#[derive(Clone, Debug)]
pub struct Forecaster {
    asker: Asker,
    newest: watch::Sender<Option<Arc<ExpectedStarts>>>,
    /// When the first forecast began.
    began: Arc<OnceLock<Instant>>,
    /// How earlier forecasts came true.
    calibration: Arc<ArcSwap<Calibration>>,
    /// One forecast at a time.
    forecasts: Arc<Semaphore>,
    /// One what-if replay at a time.
    what_ifs: Arc<Semaphore>,
    /// The one that runs and the one that may wait for it.
    asked: Arc<Semaphore>,
    /// Resources that count as GPUs, besides those in quotas.
    accelerators: Accelerators,
    stop: CancellationToken,
}

/// Why there is no what-if result.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// The object is not acceptable: one sentence for its author.
    #[error("{0}")]
    Refused(String),
    /// The cluster's state is not available, or too large to copy.
    #[error("no forecast: Sluice is starting or stopping, or the cluster has too many workloads to replay")]
    Unknown,
    /// Each replay takes seconds of a processor, so few may wait.
    #[error("two what-if questions are in work already; try again in a few seconds")]
    Busy,
}

impl Forecaster {
    /// Makes forecasts from the engine behind `asker`, until `stop`.
    #[must_use]
    pub fn new(asker: Asker, stop: CancellationToken) -> Self {
        let permits = |count| Arc::new(Semaphore::new(count));
        let newest = watch::Sender::new(None);
        let calibration = Arc::default();
        Self {
            asker,
            newest,
            began: Arc::default(),
            calibration,
            forecasts: permits(1),
            what_ifs: permits(1),
            asked: permits(2),
            accelerators: Accelerators::default(),
            stop,
        }
    }

    /// The same with these resources counted as GPUs, besides those in quotas.
    #[must_use]
    pub fn counting(self, accelerators: Accelerators) -> Self {
        Self { accelerators, ..self }
    }

    /// Verdicts on objects that are sent with dry-run. They lean on the same past as the forecasts.
    #[must_use]
    pub fn verdicts(&self) -> Verdicts {
        let accelerators = self.accelerators.clone();
        Verdicts::new(self.asker.clone(), Arc::clone(&self.calibration), accelerators, self.stop.clone())
    }

    /// The newest expected starts. For many workloads none is waited for that would take long to make.
    pub async fn starts(&self, many: bool) -> Starts {
        Starts(self.newest(many).await)
    }

    /// Fills in the expected start of each waiting workload.
    pub async fn fill_in(&self, rows: &mut [WorkloadRow]) {
        if !rows.iter().any(WorkloadRow::waits) {
            return;
        }
        self.starts(false).await.fill_in(rows);
    }

    /// The newest forecast; a new one if the last has expired and the new one arrives in time.
    async fn newest(&self, many: bool) -> Option<Arc<ExpectedStarts>> {
        let mut newest = self.newest.subscribe();
        let last = newest.borrow_and_update().clone();
        if last.as_deref().is_none_or(ExpectedStarts::has_expired) {
            self.refresh();
            // After a timeout the older forecast is used: it carries its own time.
            let patience = match last.as_deref() {
                None => {
                    let since = self.began.get().map_or(Duration::ZERO, Instant::elapsed);
                    PATIENCE.saturating_sub(since).min(if many { RENEWAL } else { PATIENCE })
                }
                Some(last) if last.cost > RENEWAL => Duration::ZERO,
                Some(_) => RENEWAL,
            };
            let _ = timeout(patience, newest.changed()).await;
        }
        newest.borrow().clone()
    }

    /// Starts a forecast unless one is under way.
    fn refresh(&self) {
        let Ok(permit) = Arc::clone(&self.forecasts).try_acquire_owned() else { return };
        let Self { asker, newest, began: first, calibration, stop, .. } = self.clone();
        tokio::spawn(async move {
            let began = Instant::now();
            let made = match asker.ask(Question::Engine).await.flatten() {
                Some(engine) => {
                    first.get_or_init(|| began);
                    let made = background::spawn(move || {
                        // What-if questions and verdicts read it meanwhile.
                        let mut learned = Calibration::clone(&calibration.load());
                        let starts = expected_starts(&engine, now(), &mut learned, &stop);
                        calibration.store(Arc::new(learned));
                        starts
                    })
                    .await;
                    made.inspect_err(|error| tracing::error!(%error, "forecast failed")).ok()
                }
                None => None,
            };
            newest.send_modify(|newest| {
                if let Some(etas) = made {
                    *newest = Some(Arc::new(ExpectedStarts { etas, began, cost: began.elapsed() }));
                }
            });
            drop(permit);
        });
    }

    /// The what-if results of objects: the state, start and victims of each workload if `user` submitted them now to these
    /// teams, one after the other. The pods of one group are one workload.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn what_if(
        &self,
        directory: &Directory,
        user: &str,
        objects: Vec<Value>,
    ) -> Result<Vec<WhatIfRow>, Unanswered> {
        let (count, began) = (objects.len(), now());
        let submitted = |(number, object): (usize, Value)| {
            let uid = format!("what-if-{number}");
            let which = if count > 1 { format!("workload {number} of {count}: ") } else { String::new() };
            // A millisecond apart, so that each comes after the one before.
            let behind = i64::try_from(count - number).unwrap_or(0);
            candidate::submitted(directory, user, object, (&uid, Time(began.0 - behind)))
                .map_err(|problem| Unanswered::Refused(which + &problem))
        };
        let objects: Vec<_> = (1..).zip(objects).map(submitted).collect::<Result<_, _>>()?;
        let unsubmitted = unsubmitted::together(objects);
        if unsubmitted.len() > MOST_TOGETHER {
            let problem = format!("at most {MOST_TOGETHER} workloads are judged together");
            return Err(Unanswered::Refused(problem));
        }
        let asked = Arc::clone(&self.asked).try_acquire_owned().map_err(|_| Unanswered::Busy)?;
        let turn = Arc::clone(&self.what_ifs).acquire_owned().await.map_err(|_| Unanswered::Unknown)?;
        let (mut engine, mut known, mut workloads) = (None, None, Vec::new());
        let mut shares = BTreeMap::new();
        for one in unsubmitted {
            let asked_for = |to| Question::Candidate(one.managed, known, to);
            let candidate = self.asker.ask(asked_for).await.flatten().ok_or(Unanswered::Unknown)?;
            engine = candidate.engine.or(engine);
            known = Some(candidate.changes);
            shares = candidate.shares;
            workloads.push((candidate.workload, candidate.queue));
        }
        let mut engine = *engine.ok_or(Unanswered::Unknown)?;
        let (stop, calibration) = (self.stop.clone(), Arc::clone(&self.calibration));
        let accelerators = PoolAccelerators::of(&engine, &self.accelerators, &shares);
        let result = background::spawn(move || {
            // The replay goes on when its caller has gone, and so does its turn.
            let _held = (asked, turn);
            let (at, mut rows) = (now(), Vec::new());
            let corrections = calibration.load().corrections(at);
            let budget = BUDGET / u32::try_from(workloads.len()).unwrap_or(u32::MAX).max(1);
            for (workload, queue) in workloads {
                let mut go_on = within_budget(&stop, budget);
                let mut submitted = Submission::new(engine, workload.clone(), at, &mut || go_on(Case::Late));
                let result = submitted.shown(Bounds::default(), &corrections, &mut |case| go_on(case));
                rows.push(WhatIfRow::new(
                    (submitted.engine(), submitted.decided()),
                    (&workload, &queue),
                    &result,
                    &accelerators,
                    at,
                ));
                engine = submitted.decided().clone();
            }
            rows
        });
        result.await.map_err(|_| Unanswered::Unknown)
    }
}

/// The expected start of each waiting workload.
fn expected_starts(
    engine: &Engine,
    now: Time,
    calibration: &mut Calibration,
    stop: &CancellationToken,
) -> ByName {
    let mut go_on = within_budget(stop, BUDGET);
    let forecast = forecast_shown(engine, now, Bounds::default(), calibration, &mut |case| go_on(case));
    let places = engine.places();
    let rows = forecast.etas.iter().filter_map(|(id, eta)| {
        let (workload, grounds) = (engine.workload(id)?, forecast.grounds.get(id)?);
        let run = forecast.runs.get(id).map(RunRow::to_come);
        let eta = EtaRow::new(engine, eta, grounds, places.get(id), now);
        Some((key(&workload.kind.to_string(), &workload.namespace, &workload.name), (Arc::new(eta), run)))
    });
    rows.collect()
}

/// Lets each replay run for its budget, and stops all of them on shutdown.
fn within_budget(stop: &CancellationToken, budget: Duration) -> impl FnMut(Case) -> bool + use<'_> {
    let mut current: Option<(Case, Instant)> = None;
    move |case| {
        let began = match current {
            Some((known, began)) if known == case => began,
            _ => Instant::now(),
        };
        current = Some((case, began));
        began.elapsed() < budget && !stop.is_cancelled()
    }
}

#[cfg(test)]
mod tests;
