//! The read side of the history: single runs and reports, for Questions.
//!
//! Queries run on threads of their own, a few at once, so that no admission review waits for the store. A reader that has no
//! turn, a store that does not answer and a history that is off are sentences.

mod choice;
mod evictions;
mod periods;
mod report;
mod runs;
mod sums;
mod waits;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

pub use self::choice::Choice;
pub use self::periods::Periods;
pub use self::report::{report, report_of_runs};
pub use self::runs::{Place, runs};
use super::store::{Location, Store, StoreError};
use crate::api::accounts::HistoryFilter;
use crate::view::accounts::{HistoryRow, ReportRow};

/// The queries that run at once.
const AT_ONCE: usize = 2;
/// The queries that may wait for their turn: others than about the past must find room among all Questions.
const MOST_WAITING: usize = 14;
/// How long a query may take, with the wait for its turn; below the time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a report is used again, as for its further pages.
const KEPT: Duration = Duration::from_secs(20);
/// The most reports that are kept, and their most rows.
const MOST_KEPT: (usize, usize) = (32, 100_000);
/// How long a store that did not answer is not asked again.
const PAUSE: Duration = Duration::from_secs(2);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unread {
    /// There is no history.
    #[error("the history is off: Sluice runs without --history")]
    Off,
    /// Too many questions at once.
    #[error("too many questions about the history at once; try again in a moment")]
    Busy,
    /// The query takes too long.
    #[error("the history takes more than {} s for this; ask for a shorter time", PATIENCE.as_secs())]
    Slow,
    /// The store does not answer.
    #[error("the history cannot be read: {0}")]
    Broken(String),
}

/// Reads the history; clones share their bounds.
#[derive(Clone)]
pub struct Reader(Option<Arc<Shared>>);

/// A report, and when it was made.
type Kept = (Instant, Arc<Vec<ReportRow>>);

struct Shared {
    location: Location,
    turns: Arc<Semaphore>,
    /// Turns, and places of those that wait.
    places: Semaphore,
    /// Connections that are not in use.
    idle: Mutex<Vec<Store>>,
    failed: Mutex<Option<(Instant, String)>>,
    reports: Mutex<HashMap<String, Kept>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reader {
    /// The reader of a store; of none where the history is off.
    #[must_use]
    pub fn new(location: Option<Location>) -> Self {
        let shared = |location| {
            Arc::new(Shared {
                location,
                turns: Arc::new(Semaphore::new(AT_ONCE)),
                places: Semaphore::new(AT_ONCE + MOST_WAITING),
                idle: Mutex::default(),
                failed: Mutex::default(),
                reports: Mutex::default(),
            })
        };
        Self(location.map(shared))
    }

    /// At most `most` runs after a place, the newest first.
    ///
    /// # Errors
    /// [`Unread`].
    pub async fn runs(
        &self,
        filter: HistoryFilter,
        after: Option<Place>,
        most: usize,
    ) -> Result<Vec<HistoryRow>, Unread> {
        self.read(move |store| runs(store, &filter, after.as_ref(), most)).await
    }

    /// The rows of a report.
    ///
    /// # Errors
    /// [`Unread`].
    pub async fn report(&self, choice: Choice) -> Result<Arc<Vec<ReportRow>>, Unread> {
        let shared = self.0.as_ref().ok_or(Unread::Off)?;
        let key = format!("{choice:?}");
        let known = {
            let reports = locked(&shared.reports);
            reports.get(&key).filter(|(at, _)| at.elapsed() < KEPT).map(|(_, rows)| Arc::clone(rows))
        };
        if let Some(rows) = known {
            return Ok(rows);
        }
        let rows = Arc::new(self.read(move |store| report(store, &choice)).await?);
        let mut reports = locked(&shared.reports);
        reports.retain(|_, (at, _)| at.elapsed() < KEPT);
        let kept = reports.values().map(|(_, rows)| rows.len()).sum::<usize>();
        if reports.len() < MOST_KEPT.0 && kept.saturating_add(rows.len()) <= MOST_KEPT.1 {
            reports.insert(key, (Instant::now(), Arc::clone(&rows)));
        }
        Ok(rows)
    }

    /// Runs a query on a thread of its own. One that takes too long goes on there and keeps its turn, so the load on the
    /// store stays bounded.
    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&mut Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Unread> {
        let shared = Arc::clone(self.0.as_ref().ok_or(Unread::Off)?);
        if let Some((at, problem)) = &*locked(&shared.failed)
            && at.elapsed() < PAUSE
        {
            return Err(Unread::Broken(problem.clone()));
        }
        let until = Instant::now() + PATIENCE;
        let places = Arc::clone(&shared);
        let _place = places.places.try_acquire().map_err(|_| Unread::Busy)?;
        let turn = timeout(PATIENCE, Arc::clone(&shared.turns).acquire_owned()).await;
        let turn = turn.map_err(|_| Unread::Busy)?.map_err(|_| Unread::Busy)?;
        let work = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let outcome = shared.with_store(query);
            let problem = outcome.as_ref().err().map(|problem| (Instant::now(), problem.clone()));
            *locked(&shared.failed) = problem;
            outcome
        });
        match timeout(until.saturating_duration_since(Instant::now()), work).await {
            Err(_) => Err(Unread::Slow),
            Ok(Ok(outcome)) => outcome.map_err(Unread::Broken),
            Ok(Err(_)) => Err(Unread::Broken("its reader stopped".to_owned())),
        }
    }
}

impl Shared {
    /// Queries a connection that is not in use, or a new one.
    fn with_store<T>(&self, query: impl FnOnce(&mut Store) -> Result<T, StoreError>) -> Result<T, String> {
        let idle = locked(&self.idle).pop();
        let store = match idle {
            Some(store) => Ok(store),
            None => Store::read(&self.location),
        };
        let mut store = store.map_err(|error| self.said(&error))?;
        let rows = query(&mut store).map_err(|error| self.said(&error))?;
        locked(&self.idle).push(store);
        Ok(rows)
    }

    /// A problem for its log, and for people without its details.
    fn said(&self, error: &StoreError) -> String {
        tracing::warn!(%error, store = %self.location, "the history cannot be read");
        match error {
            StoreError::Refused(_) => "its store refuses the question".to_owned(),
            _ => "its store does not answer".to_owned(),
        }
    }
}
