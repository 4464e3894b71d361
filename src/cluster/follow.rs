//! One watch: what it lists, then what changes, passed on for as long as somebody listens.

use std::fmt::Debug;
use std::time::Duration;

use backon::ExponentialBuilder;
use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use kube::runtime::watcher::{self, ExponentialBackoff, watcher};
use kube::{Api, Error, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;

use super::mirror::Change;
use super::table::{Flaw, Seen};
use crate::engine::types::Name;

/// How objects of one kind are keyed, read and passed on.
pub struct Watched<K, T> {
    /// The key of an object.
    pub key: fn(&K) -> Name,
    /// What is kept of it.
    pub read: fn(&K) -> Result<T, Flaw>,
    /// Whose message it is.
    pub wrap: fn(Seen<T>) -> Change,
}

/// The name of an object, its key among those without a namespace.
pub fn named<K: Resource>(object: &K) -> Name {
    object.meta().name.as_deref().unwrap_or_default().into()
}

/// How soon a watch that failed begins again.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// How late at most, however often it has failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// After so long without a failure the pauses begin anew.
const FORGIVEN_AFTER: Duration = Duration::from_secs(30);

/// The pauses between the beginnings of a watch that fails. They are short because who asks meanwhile is answered
/// from what was seen before: a Job whose Team was made in between is told that there is no such Team.
pub fn pauses() -> impl Backoff {
    let pauses = ExponentialBuilder::default()
        .with_min_delay(FIRST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times();
    ResetTimerBackoff::new(ExponentialBackoff::from(pauses), FORGIVEN_AFTER)
}

/// Passes on what is seen until an error after which it `ends`; false when nobody listens.
pub async fn follow<K, T>(
    api: Api<K>,
    watched: &Watched<K, T>,
    changes: &Sender<Change>,
    ends: fn(&watcher::Error) -> bool,
) -> bool
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = watcher(api, watcher::Config::default()).backoff(pauses());
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let seen = match event {
            Ok(watcher::Event::Init) => Seen::ListBegins,
            Ok(watcher::Event::InitDone) => Seen::ListEnds,
            Ok(watcher::Event::Delete(object)) => Seen::Deleted((watched.key)(&object)),
            Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                let key = (watched.key)(&object);
                match (watched.read)(&object) {
                    Ok(read) => Seen::Object(key, read),
                    Err(flaw) => {
                        let (kind, problem) = (K::kind(&()), &flaw.problem);
                        tracing::warn!(%kind, name = %key, problem, "unreadable object; what was known of it stays");
                        Seen::Unreadable(key, flaw)
                    }
                }
            }
            Err(error) => {
                tracing::warn!(kind = %K::kind(&()), %error, "watch failed, it starts again");
                if ends(&error) {
                    return true;
                }
                continue;
            }
        };
        if changes.send((watched.wrap)(seen)).await.is_err() {
            return false;
        }
    }
    true
}

/// Whether a watch has failed because its kind is not served any more, or not to us.
pub fn withdrawn(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    match error {
        WatchError(status) => matches!(status.code, 403 | 404),
        InitialListFailed(Error::Api(status))
        | WatchStartFailed(Error::Api(status))
        | WatchFailed(Error::Api(status)) => matches!(status.code, 403 | 404),
        _ => false,
    }
}
