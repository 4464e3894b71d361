//! What is to be expected, for whoever asks: when those who wait will start, and what would become of a
//! Job that is not there yet.
//!
//! Decisions never wait for it. The loop only hands out a copy of its engine, which is played forward on
//! a thread of its own, for so long at most; and it hands out the next one only when somebody asks and
//! the last forecast is old, the older the longer it took to make.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::api::record::timestamp;
use crate::cluster::clock::now;
use crate::cluster::target::{self, Managed};
use crate::cluster::wire;
use crate::controller::{Asker, Candidate, Question};
use crate::directory::Directory;
use crate::engine::Engine;
use crate::engine::replay::forecast::{Bounds, Case, forecast_while, what_if_while};
use crate::engine::types::Time;
use crate::view::{EtaRow, ProspectRow, WorkloadRow};
use crate::webhook::offline::stored;

/// The shortest time between two forecasts.
const PERIOD: Duration = Duration::from_secs(2);
/// How many times as long as it took to make is a forecast good for: at most a twentieth of one processor
/// goes into forecasts.
const WORTH: u32 = 20;
/// How long each of the three plays of a forecast may take.
const BUDGET: Duration = Duration::from_secs(2);
/// How long an answer waits for a new forecast rather than give an older one.
const PATIENCE: Duration = Duration::from_secs(3);
/// The UID of what is not there.
const NOBODY: &str = "what-if";

/// A workload as people name it: kind, namespace, name.
type Called = (String, String, String);

/// A forecast that was made.
#[derive(Debug)]
struct Told {
    etas: BTreeMap<Called, EtaRow>,
    began: Instant,
    cost: Duration,
}

impl Told {
    fn is_old(&self) -> bool {
        self.began.elapsed() > PERIOD.max(self.cost.saturating_mul(WORTH))
    }
}

/// Foretells.
#[derive(Clone, Debug)]
pub struct Foresight {
    asker: Asker,
    newest: watch::Sender<Option<Arc<Told>>>,
    /// Whoever makes a forecast.
    forecaster: Arc<Semaphore>,
    /// Whoever answers what would be.
    prophet: Arc<Semaphore>,
    stop: CancellationToken,
}

/// Why it is not said what would become of an object.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// The object cannot be taken: one sentence for whoever wrote it.
    #[error("{0}")]
    Refused(String),
    /// Nobody knows the cluster, or not yet, or it is too large.
    #[error("Sluice has not read the cluster yet, is ending, or has too many workloads to play them forward")]
    Unknown,
}

impl Foresight {
    /// Foretells from the engine of the loop that `asker` asks, until `stop`.
    #[must_use]
    pub fn new(asker: Asker, stop: CancellationToken) -> Self {
        let one = || Arc::new(Semaphore::new(1));
        Self { asker, newest: watch::Sender::new(None), forecaster: one(), prophet: one(), stop }
    }

    /// Says of those who wait when they are expected to start.
    pub async fn fill_in(&self, rows: &mut [WorkloadRow]) {
        if !rows.iter().any(WorkloadRow::waits) {
            return;
        }
        let Some(told) = self.newest().await else { return };
        for row in rows.iter_mut().filter(|row| row.waits()) {
            row.eta = told.etas.get(&(row.kind.clone(), row.namespace.clone(), row.name.clone())).copied();
        }
    }

    /// The newest forecast there is; a new one, if the last is old and the new one is not long in coming.
    async fn newest(&self) -> Option<Arc<Told>> {
        let mut newest = self.newest.subscribe();
        let told = newest.borrow_and_update().clone();
        if told.as_deref().is_none_or(Told::is_old) {
            self.refresh();
            // Where there is none in time, or none at all, the older one has to do: it says its age.
            let _ = timeout(PATIENCE, newest.changed()).await;
        }
        newest.borrow().clone()
    }

    /// Starts to make a forecast, unless one is being made.
    fn refresh(&self) {
        let Ok(permit) = Arc::clone(&self.forecaster).try_acquire_owned() else { return };
        let Self { asker, newest, stop, .. } = self.clone();
        tokio::spawn(async move {
            let began = Instant::now();
            let made = match asker.ask(Question::Engine).await.flatten() {
                Some(engine) => {
                    let made = tokio::task::spawn_blocking(move || foretold(&engine, now(), &stop)).await;
                    made.inspect_err(|error| tracing::error!(%error, "a forecast failed")).ok()
                }
                None => None,
            };
            newest.send_modify(|newest| {
                if let Some(etas) = made {
                    *newest = Some(Arc::new(Told { etas, began, cost: began.elapsed() }));
                }
            });
            drop(permit);
        });
    }

    /// What would become of a Job if it were submitted now, in a cluster with these teams.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn what_if(&self, directory: &Directory, object: Value) -> Result<ProspectRow, Unanswered> {
        let managed = reduced(directory, object, now()).map_err(Unanswered::Refused)?;
        let _permit = self.prophet.acquire().await.map_err(|_| Unanswered::Unknown)?;
        let asked = self.asker.ask(|to| Question::Candidate(managed, to)).await.flatten();
        let Candidate { engine, workload, queue } = asked.ok_or(Unanswered::Unknown)?;
        let stop = self.stop.clone();
        let prospect = tokio::task::spawn_blocking(move || {
            let at = now();
            let mut go_on = patience(&stop);
            let prospect =
                what_if_while(&engine, workload.clone(), at, Bounds::default(), &mut |case| go_on(case));
            ProspectRow::new(&engine, &workload, &queue, &prospect, at)
        });
        prospect.await.map_err(|_| Unanswered::Unknown)
    }
}

/// When those who wait are expected to start.
fn foretold(engine: &Engine, now: Time, stop: &CancellationToken) -> BTreeMap<Called, EtaRow> {
    let mut go_on = patience(stop);
    let forecast = forecast_while(engine, now, Bounds::default(), &mut |case| go_on(case));
    let called = forecast.etas.iter().filter_map(|(id, eta)| {
        let workload = engine.workload(id)?;
        let called = (workload.kind.to_string(), workload.namespace.to_string(), workload.name.to_string());
        Some((called, EtaRow::new(eta, now)))
    });
    called.collect()
}

/// Lets each play take as long as its budget, and none any longer once everything is to end.
fn patience(stop: &CancellationToken) -> impl FnMut(Case) -> bool + use<'_> {
    let mut current: Option<(Case, Instant)> = None;
    move |case| {
        let began = match current {
            Some((known, began)) if known == case => began,
            _ => Instant::now(),
        };
        current = Some((case, began));
        began.elapsed() < BUDGET && !stop.is_cancelled()
    }
}

/// A Job as Sluice would see it once it had been submitted at `now`.
fn reduced(directory: &Directory, mut object: Value, now: Time) -> Result<Box<Managed>, String> {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let [version, kind, namespace] = ["/apiVersion", "/kind", "/metadata/namespace"].map(text);
    if (version.as_str(), kind.as_str()) != ("batch/v1", "Job") {
        return Err(format!("expected a Job of batch/v1, and this is a {kind:?} of {version:?}"));
    }
    if !directory.namespaces.contains_key(&*namespace) {
        return Err(format!(
            "namespace {namespace:?} belongs to no team, so its Jobs do not wait for Sluice"
        ));
    }
    // What would make it another than a new one.
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    let (mut object, _) = stored(directory, "", None, object)?;
    object["metadata"]["uid"] = NOBODY.into();
    object["metadata"]["creationTimestamp"] = timestamp(now).to_string().into();
    let job: wire::Job = serde_path_to_error::deserialize(object).map_err(|error| error.to_string())?;
    target::job::job(&job, now).managed.ok_or_else(|| "it would not be Sluice's to start".to_owned())
}

#[cfg(test)]
mod tests;
