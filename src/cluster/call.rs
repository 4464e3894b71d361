//! One call about one object, repeated until it is known how it ended.
//!
//! A PATCH without an answer may have happened, or may happen yet: the connection broke behind it, or
//! it waits somewhere in the API server. To take it for failed would be to give away room that is
//! taken a moment later. So the very same PATCH is sent again until there is an answer. That is safe
//! because it tests the generation (of a pod: the version) it was decided on and moves it: it happens
//! once at most, and the answer to any one of its copies settles all of them. Only a refusal does not,
//! since an earlier copy may have passed where this one did not; it counts once every copy without an
//! answer is too old to be alive.
//!
//! Each call is made only while leading. It ends when the claim does, here by a timer and in the API
//! server by the deadline it is given with the request.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{Request, Uri};
use kube::Client;
use kube::core::Status;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use super::leader::Leadership;
use super::patch;
use crate::metrics::Metrics;

/// How calls are paced.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How many run at once.
    pub at_once: usize,
    /// How long one may take; the client itself would wait for ever.
    pub deadline: Duration,
    /// How long to wait before the first repetition; the wait doubles with each.
    pub first_pause: Duration,
    /// The longest wait.
    pub longest_pause: Duration,
    /// How long a call without an answer may still take effect. The API server gives it up with its
    /// deadline, and etcd drops within seconds what it could not agree on.
    pub linger: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            at_once: 64,
            deadline: Duration::from_secs(5),
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(2),
            linger: Duration::from_secs(30),
        }
    }
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The object is not what the change was decided on any more, perhaps by this very change.
    Moved,
    /// The object is gone; the watch will say so.
    Gone,
    /// The API server refused it.
    Refused(String),
    /// This process no longer leads, and it is not known whether the change has been made.
    NotLeading,
}

/// A request that cannot even be written down is refused.
pub(super) fn unsendable(error: kube::core::request::Error) -> Failure {
    Failure::Refused(error.to_string())
}

/// What became of one call.
enum Answer<T> {
    Done(T),
    Failed(Failure),
    /// Nothing has happened; another time it may.
    NotNow(String),
    /// It may have happened.
    Unknown(String),
}

impl<T> Answer<T> {
    fn label(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::Failed(Failure::Moved) => "conflict",
            Self::Failed(Failure::Gone) => "gone",
            Self::Failed(Failure::Refused(_)) | Self::NotNow(_) => "refused",
            Self::Failed(Failure::NotLeading) | Self::Unknown(_) => "unanswered",
        }
    }
}

/// Makes calls.
#[derive(Clone)]
pub struct Caller {
    client: Client,
    claim: Leadership,
    metrics: Arc<Metrics>,
    permits: Arc<Semaphore>,
    pace: Pace,
}

impl Caller {
    /// A caller that keeps to `pace`.
    #[must_use]
    pub fn new(client: Client, claim: Leadership, metrics: Arc<Metrics>, pace: Pace) -> Self {
        let permits = Arc::new(Semaphore::new(pace.at_once));
        Self { client, claim, metrics, permits, pace }
    }

    /// Calls until the answer is certain; counts each call that writes under its `label`. A conflict
    /// says that the object has moved only where the request carries a version.
    ///
    /// # Errors
    /// Why the change was not made.
    pub async fn until_known<T: DeserializeOwned>(
        &self,
        label: Option<&str>,
        versioned: bool,
        request: Request<Vec<u8>>,
    ) -> Result<T, Failure> {
        let mut pause = self.pace.first_pause;
        let mut doubt_until: Option<Instant> = None;
        loop {
            let answer = self.once(&request, versioned).await;
            if let Some(label) = label {
                self.metrics.api_writes.with_label_values(&[label, answer.label()]).inc();
            }
            let problem = match answer {
                Answer::Done(object) => return Ok(object),
                Answer::Failed(Failure::Refused(message))
                    if doubt_until.is_some_and(|until| Instant::now() < until) =>
                {
                    message
                }
                Answer::Failed(failure) => return Err(failure),
                Answer::NotNow(message) => message,
                Answer::Unknown(message) => {
                    doubt_until = Some(Instant::now() + self.pace.linger);
                    message
                }
            };
            tracing::debug!(uri = %request.uri(), problem, "a call is repeated");
            sleep(pause.min(self.claim.remaining())).await;
            pause = (pause * 2).min(self.pace.longest_pause);
        }
    }

    async fn once<T: DeserializeOwned>(&self, request: &Request<Vec<u8>>, versioned: bool) -> Answer<T> {
        let Ok(_permit) = self.permits.acquire().await else { return Answer::Failed(Failure::NotLeading) };
        let limit = self.claim.remaining().min(self.pace.deadline);
        if limit < Duration::from_millis(1) {
            return Answer::Failed(Failure::NotLeading);
        }
        match timeout(limit, self.client.request(due_within(request.clone(), limit))).await {
            Ok(Ok(object)) => Answer::Done(object),
            Ok(Err(kube::Error::Api(status))) => judge(&status, versioned),
            Ok(Err(error)) => Answer::Unknown(error.to_string()),
            Err(_) => Answer::Unknown("no answer in time".to_owned()),
        }
    }
}

/// What the API server's refusal says about whether anything has happened.
fn judge<T>(status: &Status, versioned: bool) -> Answer<T> {
    let message = said(status);
    match status.code {
        _ if patch::does_not_apply(status) => Answer::Failed(Failure::Moved),
        409 if versioned => Answer::Failed(Failure::Moved),
        404 => Answer::Failed(Failure::Gone),
        // A budget may forbid it for long: what follows from that is to be decided, not waited for.
        429 if forbidden_by_budget(status) => Answer::Failed(Failure::Refused(message)),
        // The API server tries a few times by itself to get between the writes of others.
        409 | 429 => Answer::NotNow(message),
        // Another's webhook fails before anything is stored, and may go on failing for long.
        500 if message.contains("failed calling webhook") => Answer::Failed(Failure::Refused(message)),
        500.. => Answer::Unknown(message),
        _ => Answer::Failed(Failure::Refused(message)),
    }
}

/// What the API server says, with the numbers where it gives them besides.
fn said(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let budgets = causes.filter(|cause| cause.reason == DISRUPTION_BUDGET).map(|cause| &cause.message);
    [&status.message].into_iter().chain(budgets).cloned().collect::<Vec<_>>().join(" ")
}

/// The cause of a refusal that a PodDisruptionBudget stands behind.
const DISRUPTION_BUDGET: &str = "DisruptionBudget";

/// Whether an eviction is refused because it would leave fewer pods than a PodDisruptionBudget wants.
fn forbidden_by_budget(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == DISRUPTION_BUDGET)
}

/// The request with the time after which the API server gives it up by itself.
fn due_within(mut request: Request<Vec<u8>>, limit: Duration) -> Request<Vec<u8>> {
    let joint = if request.uri().query().is_some() { '&' } else { '?' };
    let uri = format!("{}{joint}timeout={}ms", request.uri(), limit.as_millis());
    if let Ok(uri) = uri.parse::<Uri>() {
        *request.uri_mut() = uri;
    }
    request
}

#[cfg(test)]
#[path = "call_tests.rs"]
mod tests;
