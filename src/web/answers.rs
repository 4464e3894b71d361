//! Answers of the API server, shared for a moment among viewers with the same rights.
//!
//! However many viewers there are, the API server gets a bounded number of requests a second: the more of them are
//! looking, the longer an answer is used.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{Request, StatusCode};
use jiff::Timestamp;
use kube::Client;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::access::Viewer;
use crate::api::question::QuestionSpec;
use crate::client::{self, Scope, Unanswered};

/// The shortest time for which an answer is used.
const SHORTEST: Duration = Duration::from_secs(2);
/// The requests to the API server a second, however many viewers there are.
const PER_SECOND: u32 = 20;
/// How long a request may wait for its turn.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an answer is kept after its last use.
const KEPT: Duration = Duration::from_secs(60);
/// The most bytes of kept answers, and the most of them.
const MOST_BYTES: usize = 128 << 20;
const MOST_KEPT: usize = 4_096;

/// Why there is no page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The status of HTTP.
    pub status: StatusCode,
    /// One line that says what to do.
    pub message: String,
}

impl Problem {
    /// A problem of this status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

impl From<Unanswered> for Problem {
    fn from(unanswered: Unanswered) -> Self {
        let status = |code| StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_GATEWAY);
        match unanswered {
            Unanswered::OfUser { code, message } => Self::new(status(code), message),
            Unanswered::OfSluice { message, .. } => Self::new(StatusCode::SERVICE_UNAVAILABLE, message),
            Unanswered::Unreachable(error) => {
                tracing::warn!(%error, "the API server does not answer");
                Self::new(StatusCode::BAD_GATEWAY, "the API server does not answer")
            }
        }
    }
}

/// An answer.
#[derive(Debug, Default)]
pub struct Answer {
    /// The version of its rows.
    pub version: String,
    /// Where the next page begins, if there is one.
    pub cursor: Option<String>,
    /// Its rows as JSON, which takes less memory than values do.
    rows: String,
}

impl Answer {
    /// The rows.
    ///
    /// # Errors
    /// When they are not what this version of Sluice knows.
    pub fn rows<T: DeserializeOwned>(&self) -> Result<Vec<T>, Problem> {
        serde_json::from_str(&self.rows).map_err(|error| {
            tracing::warn!(%error, "unexpected answer of Sluice");
            Problem::new(StatusCode::BAD_GATEWAY, "Sluice answers in a form that this page does not know")
        })
    }
}

/// Viewer, scope and question.
type Key = ([u8; 32], Scope, String);
type Outcome = Result<Shared, Problem>;

/// An answer with its age.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    answer: Arc<Answer>,
    /// When it was true.
    pub at: Timestamp,
}

impl Deref for Shared {
    type Target = Answer;

    fn deref(&self) -> &Answer {
        &self.answer
    }
}

/// The place of one answer. Its lock is held while the question is asked, so that it is asked once.
#[derive(Debug)]
struct Place {
    used: Mutex<Instant>,
    bytes: Mutex<usize>,
    last: tokio::sync::Mutex<Option<(Instant, Outcome)>>,
}

/// The answers.
pub struct Answers {
    client: Client,
    places: Mutex<HashMap<Key, Arc<Place>>>,
    pace: Pace,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Answers {
    /// No answers yet.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, places: Mutex::default(), pace: Pace::new(PER_SECOND) }
    }

    /// How long an answer is used now, and how often a page should look for a change.
    #[must_use]
    pub fn valid(&self) -> Duration {
        let places = locked(&self.places);
        let now = Instant::now();
        let recent = places.values().filter(|place| now.duration_since(*locked(&place.used)) < KEPT).count();
        valid(recent)
    }

    /// One page of an answer.
    ///
    /// # Errors
    /// [`Problem`].
    pub async fn ask(&self, viewer: &Viewer, scope: &Scope, spec: &QuestionSpec) -> Outcome {
        let key = (viewer.key, scope.clone(), serde_json::to_string(spec).unwrap_or_default());
        self.kept(key, async |last: Option<&Answer>| {
            let since = last.map(|last| last.version.clone());
            let question = QuestionSpec { since, ..spec.clone() };
            let answer = client::ask(&self.client, viewer.bearer.as_ref(), scope, &question).await?;
            if answer.unchanged {
                return Ok(None);
            }
            let (version, cursor) = (answer.version.clone().unwrap_or_default(), answer.cursor.clone());
            let rows = answer.rows().map_err(|error| {
                tracing::warn!(%error, "unexpected answer of Sluice");
                Problem::new(StatusCode::BAD_GATEWAY, "unexpected answer of Sluice")
            })?;
            Ok(Some(Answer { version, cursor, rows }))
        })
        .await
    }

    /// The Events about an object, the newest last; none where the viewer may not read them.
    ///
    /// # Errors
    /// [`Problem`], if the API server is too busy.
    pub async fn events(&self, viewer: &Viewer, namespace: &str, name: &str) -> Outcome {
        let is_name = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.'));
        if !client::is_namespace(namespace) || !is_name(name) {
            return Ok(Shared::default());
        }
        let path = format!(
            "/api/v1/namespaces/{namespace}/events?limit=100&fieldSelector=involvedObject.name%3D{name}"
        );
        let key = (viewer.key, Scope::Cluster, path.clone());
        self.kept(key, async |_| {
            let mut request = Request::get(&path);
            if let Some(bearer) = &viewer.bearer {
                request = request.header(AUTHORIZATION, bearer);
            }
            let request = request.body(Vec::new());
            let request =
                request.map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))?;
            let list = self.client.request::<Value>(request).await.unwrap_or_default();
            let rows = list["items"].to_string();
            let mut digest = DefaultHasher::new();
            digest.write(rows.as_bytes());
            let version = format!("{:016x}", digest.finish());
            let rows = if rows == "null" { "[]".to_owned() } else { rows };
            Ok(Some(Answer { version, cursor: None, rows }))
        })
        .await
    }

    /// The kept answer if it is new enough, else one that is fetched; `None` from `fetch` keeps the last.
    async fn kept(
        &self,
        key: Key,
        fetch: impl AsyncFnOnce(Option<&Answer>) -> Result<Option<Answer>, Problem>,
    ) -> Outcome {
        let place = self.place(key);
        let mut last = place.last.lock().await;
        if let Some((at, outcome)) = &*last
            && at.elapsed() < self.valid()
        {
            return outcome.clone();
        }
        let before = last.as_ref().and_then(|(_, outcome)| outcome.clone().ok());
        if !self.pace.turn().await {
            // An older answer says when it was made.
            return before.ok_or_else(|| {
                Problem::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "too many viewers at once; try again in a moment",
                )
            });
        }
        let (asked, at) = (Instant::now(), Timestamp::now());
        let outcome = match fetch(before.as_deref()).await {
            Ok(Some(answer)) => Ok(Shared { answer: Arc::new(answer), at }),
            Ok(None) => before
                .map(|before| Shared { at, ..before })
                .ok_or_else(|| Problem::new(StatusCode::BAD_GATEWAY, "no answer")),
            Err(problem) => Err(problem),
        };
        *locked(&place.bytes) = outcome.as_ref().map_or(0, |shared| shared.rows.len());
        *last = Some((asked, outcome.clone()));
        outcome
    }

    /// The place of an answer. Those that are not used any more go, and more of them where there are too many.
    fn place(&self, key: Key) -> Arc<Place> {
        let mut places = locked(&self.places);
        let now = Instant::now();
        if let Some(place) = places.get(&key) {
            *locked(&place.used) = now;
            return Arc::clone(place);
        }
        places.retain(|_, place| now.duration_since(*locked(&place.used)) < KEPT);
        let bytes = |places: &HashMap<Key, Arc<Place>>| -> usize {
            places.values().map(|place| *locked(&place.bytes)).sum()
        };
        while places.len() >= MOST_KEPT || bytes(&places) > MOST_BYTES {
            let oldest =
                places.iter().min_by_key(|(_, place)| *locked(&place.used)).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            places.remove(&oldest);
        }
        let place = Arc::new(Place {
            used: Mutex::new(now),
            bytes: Mutex::default(),
            last: tokio::sync::Mutex::default(),
        });
        places.insert(key, Arc::clone(&place));
        place
    }
}

/// How long an answer is used while this many are in use: together they are asked at most three quarters as often as
/// the pace allows.
fn valid(in_use: usize) -> Duration {
    let in_use = u32::try_from(in_use).unwrap_or(u32::MAX);
    SHORTEST.max(Duration::from_secs(1).saturating_mul(in_use) * 4 / (PER_SECOND * 3))
}

/// Spaces requests out.
#[derive(Debug)]
struct Pace {
    apart: Duration,
    /// When the next request may start; up to a second in the past, so that a page may ask several things at once.
    next: Mutex<Instant>,
}

impl Pace {
    fn new(per_second: u32) -> Self {
        Self { apart: Duration::from_secs(1) / per_second, next: Mutex::new(Instant::now()) }
    }

    /// Waits for the next turn; false if that would take too long.
    async fn turn(&self) -> bool {
        let now = Instant::now();
        let at = {
            let mut next = locked(&self.next);
            let earliest = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
            let at = (*next).max(earliest);
            if at > now + PATIENCE {
                return false;
            }
            *next = at + self.apart;
            at
        };
        sleep_until(at).await;
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Answers of an API server that counts its requests.
    fn answers(requests: &Arc<AtomicUsize>) -> Answers {
        let requests = Arc::clone(requests);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            requests.fetch_add(1, Ordering::Relaxed);
            let denied = request.headers().get(AUTHORIZATION).is_some_and(|bearer| bearer == "Bearer denied");
            let (status, body) = if denied {
                (403, r#"{"kind":"Status","status":"Failure","message":"cannot create resource","code":403}"#)
            } else {
                (201, r#"{"answer":{"version":"1","rows":[{"a":1}],"at":"2026-11-24T10:00:00Z"}}"#)
            };
            let response = axum::http::Response::builder()
                .status(status)
                .body(kube::client::Body::from(body.as_bytes().to_vec()));
            async move { Ok::<_, std::convert::Infallible>(response.expect("a response")) }
        });
        Answers::new(Client::new(service, "default"))
    }

    fn viewer(key: u8, bearer: Option<&'static str>) -> Viewer {
        Viewer { bearer: bearer.map(axum::http::HeaderValue::from_static), key: [key; 32] }
    }

    #[tokio::test]
    async fn viewers_with_the_same_rights_share_an_answer_and_others_do_not() {
        let requests = Arc::default();
        let answers = answers(&requests);
        let (scope, spec) = (Scope::Cluster, QuestionSpec::default());
        for _ in 0..200 {
            let answer = answers.ask(&viewer(0, None), &scope, &spec).await.expect("an answer");
            assert_eq!(answer.rows::<Value>().expect("rows").len(), 1);
        }
        assert_eq!(requests.load(Ordering::Relaxed), 1);
        let denied = answers.ask(&viewer(1, Some("Bearer denied")), &scope, &spec).await;
        assert_eq!(denied.expect_err("it is not allowed").status, StatusCode::FORBIDDEN);
        assert_eq!(requests.load(Ordering::Relaxed), 2);
        let _ = answers.ask(&viewer(0, None), &Scope::Namespace("a".to_owned()), &spec).await;
        assert_eq!(requests.load(Ordering::Relaxed), 3, "another scope");
    }

    #[tokio::test(start_paused = true)]
    async fn however_many_viewers_there_are_the_api_server_gets_few_requests() {
        let requests = Arc::default();
        let answers = Arc::new(answers(&requests));
        // 200 viewers of different rights look at once as often as they are asked to, for five minutes.
        let looks = (0..200).map(|key| {
            let answers = Arc::clone(&answers);
            tokio::spawn(async move {
                let began = Instant::now();
                while began.elapsed() < Duration::from_secs(300) {
                    let _ = answers.ask(&viewer(key, None), &Scope::Cluster, &QuestionSpec::default()).await;
                    tokio::time::sleep(answers.valid()).await;
                }
            })
        });
        for look in looks.collect::<Vec<_>>() {
            look.await.expect("no panic");
        }
        let requests = requests.load(Ordering::Relaxed);
        assert!((1_000..=6_020).contains(&requests), "{requests} requests in 300 s");
    }

    #[test]
    fn the_more_answers_are_in_use_the_longer_each_is_valid() {
        assert_eq!(valid(3), SHORTEST);
        assert!((13..=14).contains(&valid(200).as_secs()), "{:?}", valid(200));
        assert!(valid(usize::MAX) > Duration::from_secs(1_000));
    }
}
