//! One call on one object, repeated until its outcome is known.
//!
//! A PATCH without an answer may have taken effect, or may do so later: the connection broke after it, or it waits
//! in the API server. If it counted as failed, capacity could be given away that is taken a moment later. So the
//! same PATCH is sent again until there is an answer. That is safe, because the PATCH tests the generation (of a
//! pod, the version) of its decision and changes it. It takes effect at most once, and the answer to any copy
//! settles all of them. A refusal is the exception, since an earlier copy may have passed before: it counts once
//! every copy without an answer is too old to take effect.
//!
//! Each call is made only while leading. It ends with the leadership: here by a timer, and in the API server by the
//! deadline in the request.

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

/// The pace of calls.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The number of calls at once.
    pub at_once: usize,
    /// The longest time of one call; the client itself would wait for ever.
    pub deadline: Duration,
    /// The wait before the first repetition; it doubles with each.
    pub first_pause: Duration,
    /// The longest wait.
    pub longest_pause: Duration,
    /// How long a call without an answer may still take effect. The API server ends it at its deadline, and etcd
    /// drops a proposal without agreement within seconds.
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

/// The number of tries after which a call that is repeated is worth a warning.
const WARN_AFTER: u32 = 5;

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The object has changed since the decision, perhaps by this very change.
    Moved,
    /// The object is gone; the watch will report it.
    Gone,
    /// The API server refused it, and would refuse it again.
    Refused(String),
    /// It was refused for a reason that may pass while the object stays as it is: a webhook of another component does not
    /// answer, or a right is missing.
    NotNow(String),
    /// The API server does not let the pod template of the Job change, at least not now.
    Immutable(String),
    /// This process no longer leads, and the outcome of the change is not known.
    NotLeading,
}

/// A request that cannot be encoded counts as refused.
pub(super) fn unsendable(error: kube::core::request::Error) -> Failure {
    Failure::Refused(error.to_string())
}

/// The answer to one call.
enum Answer<T> {
    Done(T),
    Failed(Failure),
    /// It took no effect; a repetition may.
    NotNow(String),
    /// It may have taken effect.
    Unknown(String),
}

impl<T> Answer<T> {
    fn label(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::Failed(Failure::Moved) => "conflict",
            Self::Failed(Failure::Gone) => "gone",
            Self::Failed(Failure::Refused(_) | Failure::Immutable(_) | Failure::NotNow(_))
            | Self::NotNow(_) => "refused",
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
    /// A caller at this pace.
    #[must_use]
    pub fn new(client: Client, claim: Leadership, metrics: Arc<Metrics>, pace: Pace) -> Self {
        let permits = Arc::new(Semaphore::new(pace.at_once));
        Self { client, claim, metrics, permits, pace }
    }

    /// Calls until the answer is certain, and counts each call that writes under its `label`. A conflict means that
    /// the object has changed only where the request names a version.
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
        let mut tries = 0_u32;
        loop {
            let answer = self.once(&request, versioned).await;
            if let Some(label) = label {
                self.metrics.api_writes.with_label_values(&[label, answer.label()]).inc();
            }
            let problem = match answer {
                Answer::Done(object) => return Ok(object),
                Answer::Failed(
                    Failure::Refused(message) | Failure::Immutable(message) | Failure::NotNow(message),
                ) if doubt_until.is_some_and(|until| Instant::now() < until) => message,
                Answer::Failed(failure) => return Err(failure),
                Answer::NotNow(message) => message,
                Answer::Unknown(message) => {
                    doubt_until = Some(Instant::now() + self.pace.linger);
                    message
                }
            };
            tries += 1;
            // Conflicts and restarts of the API server pass within a few tries.
            if tries == WARN_AFTER {
                tracing::warn!(method = %request.method(), object = request.uri().path(), problem, "a call is repeated");
            } else {
                tracing::debug!(method = %request.method(), object = request.uri().path(), problem, "repeating a call");
            }
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
            Err(_) => Answer::Unknown("no answer before the deadline".to_owned()),
        }
    }
}

/// Whether a call that the API server refused took effect.
fn judge<T>(status: &Status, versioned: bool) -> Answer<T> {
    let message = message(status);
    match status.code {
        _ if patch::does_not_apply(status) => Answer::Failed(Failure::Moved),
        422 if patch::finds_template_immutable(status) => Answer::Failed(Failure::Immutable(message)),
        409 if versioned => Answer::Failed(Failure::Moved),
        404 => Answer::Failed(Failure::Gone),
        // A disruption budget may forbid it for long, which calls for a decision instead of a repetition.
        429 if forbidden_by_budget(status) => Answer::Failed(Failure::Refused(message)),
        // The API server repeats a conflicting write a few times by itself, then gives up.
        409 | 429 => Answer::NotNow(message),
        // A failing webhook means that nothing is stored, and it may fail for long.
        500 if message.contains("failed calling webhook") => Answer::Failed(Failure::NotNow(message)),
        // Nothing is stored, and the same object is too large every time.
        500 if is_too_large(&message) => Answer::Failed(Failure::Refused(message)),
        401 | 403 if lacks_right(&message) => Answer::Failed(Failure::NotNow(message)),
        500.. => Answer::Unknown(message),
        _ => Answer::Failed(Failure::Refused(message)),
    }
}

/// Whether Sluice itself may not do this: its rights are missing, which says nothing about the object.
fn lacks_right(message: &str) -> bool {
    message.contains("cannot ") && message.contains(" resource ") || message == "Unauthorized"
}

/// Whether the API server could not store an object because of its size. It says so with the code of an error of its own.
fn is_too_large(message: &str) -> bool {
    message.contains("etcdserver: request is too large")
        || message.contains("ResourceExhausted") && message.contains("message larger than max")
}

/// The message of the API server, with the numbers of disruption budgets in its details.
fn message(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let budgets = causes.filter(|cause| cause.reason == DISRUPTION_BUDGET).map(|cause| &cause.message);
    [&status.message].into_iter().chain(budgets).cloned().collect::<Vec<_>>().join(" ")
}

/// The cause of a refusal by a PodDisruptionBudget.
const DISRUPTION_BUDGET: &str = "DisruptionBudget";

/// Whether an eviction is refused because it would leave fewer pods than a PodDisruptionBudget allows.
fn forbidden_by_budget(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == DISRUPTION_BUDGET)
}

/// The request with the deadline at which the API server ends it.
fn due_within(mut request: Request<Vec<u8>>, limit: Duration) -> Request<Vec<u8>> {
    let joint = if request.uri().query().is_some() { '&' } else { '?' };
    let uri = format!("{}{joint}timeout={}ms", request.uri(), limit.as_millis());
    if let Ok(uri) = uri.parse::<Uri>() {
        *request.uri_mut() = uri;
    }
    request
}

#[cfg(test)]
mod tests;
