//! What the handler of Questions knows, and how much it does at once.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::metrics::AskMetrics;
use super::page::Listing;
use super::scope::{Refusal, Scope, stopping};
use super::shared::{Made, Shared};
use crate::api::question::QuestionSpec;
use crate::certs::proof::Proof;
use crate::controller::{Asker, Readiness};
use crate::directory::SharedDirectory;
use crate::forecast::Forecaster;
use crate::history::query::Reader;
use crate::view::Accelerators;
use crate::webhook::body::Budget;

/// The answers in work at once; each may hold a row of every workload. Further questions wait for their turn.
pub(super) const AT_ONCE: usize = 4;
/// The pages of answers that are written at once: each is compressed, for milliseconds of a processor.
const PAGES_AT_ONCE: usize = 2;
/// The questions that may wait for their turn.
pub(super) const MOST_WAITING: usize = 60;

/// The state of the handler.
#[derive(Clone)]
pub struct AskState {
    /// Questions to the control loop.
    pub asker: Asker,
    /// Expected starts and what-if results.
    pub forecaster: Forecaster,
    /// Resources that count as GPUs, besides those in quotas.
    pub accelerators: Accelerators,
    /// Namespaces and teams.
    pub directory: SharedDirectory,
    /// What a Question must carry.
    pub proof: Proof,
    /// Whether the first lists are complete.
    pub ready: Arc<Readiness>,
    /// The past.
    pub history: Reader,
    /// Durations of the answers.
    pub metrics: AskMetrics,
    pub(super) turns: Turns,
    pub(super) shared: Shared,
}

/// The bounds of what is in work at once.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    pub(super) budget: Budget,
    /// The answers that are being made.
    open: Arc<Semaphore>,
    /// The pages of them that are being written.
    pages: Arc<Semaphore>,
    /// These and the questions that wait.
    pub(super) all: Arc<Semaphore>,
}

impl AskState {
    /// The state of a replica.
    #[must_use]
    pub fn new(
        (asker, forecaster, history): (Asker, Forecaster, Reader),
        accelerators: Accelerators,
        directory: SharedDirectory,
        proof: Proof,
        ready: Arc<Readiness>,
        metrics: AskMetrics,
    ) -> Self {
        let permits = |count| Arc::new(Semaphore::new(count));
        let turns = Turns {
            budget: Budget::default(),
            open: permits(AT_ONCE),
            pages: permits(PAGES_AT_ONCE),
            all: permits(AT_ONCE + MOST_WAITING),
        };
        Self {
            asker,
            forecaster,
            accelerators,
            directory,
            proof,
            ready,
            history,
            metrics,
            turns,
            shared: Shared::default(),
        }
    }
}

pub(super) async fn in_turn<T>(
    state: &AskState,
    answer: impl Future<Output = Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let _turn = state.turns.open.acquire().await.map_err(|_| stopping())?;
    answer.await
}

/// What questions for the same rows have in common.
pub(super) fn key((scope, viewer): (&Scope, &str), spec: &QuestionSpec) -> String {
    let asked = QuestionSpec { cursor: None, limit: None, since: None, encoding: None, ..spec.clone() };
    format!("{scope:?} {viewer:?} {}", json!(asked))
}

/// An answer from the rows that `make` makes, or has made a moment ago for the same question of `viewer`. `make` gets the last listing
/// of that question, if that is kept.
pub(super) async fn shared<F: Future<Output = Result<Made, Refusal>>>(
    state: &AskState,
    (scope, viewer): (&Scope, &str),
    spec: &QuestionSpec,
    make: impl FnOnce(Option<Arc<Listing>>) -> F,
) -> Result<Value, Refusal> {
    let (key, spec) = (key((scope, viewer), spec), spec.clone());
    let listing = state.shared.get(key, |before| in_turn(state, make(before))).await?;
    let _turn = state.turns.pages.acquire().await.map_err(|_| stopping())?;
    away(move || listing.page(&spec)).await
}

/// Makes an answer on a thread of its own, so that no review waits for it.
pub(super) async fn away<T: Send + 'static>(
    make: impl FnOnce() -> serde_json::Result<T> + Send + 'static,
) -> Result<T, Refusal> {
    let made = tokio::task::spawn_blocking(make).await.map_err(|_| stopping())?;
    made.map_err(|error| Refusal::unavailable(error.to_string()))
}

/// Makes the rows of an answer on a thread of its own, and says what they cost.
pub(super) async fn made(
    make: impl FnOnce() -> serde_json::Result<Listing> + Send + 'static,
) -> Result<Made, Refusal> {
    let began = Instant::now();
    let listing = Arc::new(away(make).await?);
    Ok(Made { listing, cost: began.elapsed() })
}
