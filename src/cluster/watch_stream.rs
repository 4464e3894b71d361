//! One watch: a list, then its changes, forwarded until the receiver closes.

use std::fmt::Debug;
use std::time::Duration;

use backon::ExponentialBuilder;
use futures::StreamExt;
use kube::core::ObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use kube::runtime::watcher::{self, ExponentialBackoff, watcher};
use kube::{Api, Client, Error, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;

use super::guarded::{Guarded, Unread};
use super::mirror::Change;
use super::reduce::version;
use super::table::{Flaw, Seen};
use crate::engine::types::Name;

/// How objects of one kind are keyed, converted and sent.
pub struct Watched<K, T> {
    /// The key of an object.
    pub key: fn(&ObjectMeta) -> Name,
    /// Converts an object into its cached form.
    pub read: fn(&K) -> Result<T, Flaw>,
    /// Wraps the message in the variant of its kind.
    pub wrap: fn(Seen<T>) -> Change,
}

/// The key of a cluster-scoped object: its name.
pub fn named(metadata: &ObjectMeta) -> Name {
    metadata.name.as_deref().unwrap_or_default().into()
}

/// The pause after the first failure of a watch.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause, which the jitter may double. Two watches must not be further apart than
/// [`crate::engine::types::SETTLE`], after which the record of a stopped Job is no longer charged.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The time without a failure after which the pauses start over.
const RESET_AFTER: Duration = Duration::from_secs(30);

/// The pauses between restarts of a failed watch. They are short because the webhook answers from the stale
/// cache in the meantime: it refuses a Job of a Team created since then.
pub fn pauses() -> impl Backoff {
    let pauses = ExponentialBuilder::default()
        .with_min_delay(FIRST_PAUSE)
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times();
    ResetTimerBackoff::new(ExponentialBackoff::from(pauses), RESET_AFTER)
}

/// Sends lists and changes until an error for which `ends` is true. Returns false when the receiver is closed.
pub async fn forward<K, T>(
    client: Client,
    watched: &Watched<K, T>,
    changes: &Sender<Change>,
    ends: fn(&watcher::Error) -> bool,
) -> bool
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let api: Api<Guarded<K>> = Api::all(client);
    let events = watcher(api, watcher::Config::default()).backoff(pauses());
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let seen = match event {
            Ok(watcher::Event::Init) => Seen::ListBegins,
            Ok(watcher::Event::InitDone) => Seen::ListEnds,
            Ok(watcher::Event::Delete(object)) => Seen::Deleted((watched.key)(object.meta())),
            Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                let key = (watched.key)(object.meta());
                let read = match &object.0 {
                    Ok(object) => (watched.read)(object),
                    Err(unread) => Err(unread.as_ref().into()),
                };
                match read {
                    Ok(read) => Seen::Object(key, read),
                    Err(flaw) => {
                        report(&K::kind(&()), object.meta(), &flaw.problem);
                        Seen::Unreadable(key, flaw)
                    }
                }
            }
            Err(error) => {
                tracing::warn!(kind = %K::kind(&()), %error, "watch failed; restarting");
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

/// Logs an object that cannot be read.
pub fn report(kind: &str, metadata: &ObjectMeta, problem: &str) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let (namespace, name) = (text(&metadata.namespace), text(&metadata.name));
    tracing::warn!(
        kind,
        namespace,
        name,
        problem,
        "cannot read object; its last readable version stays in effect"
    );
}

impl From<&Unread> for Flaw {
    fn from(unread: &Unread) -> Self {
        Self {
            generation: unread.metadata.generation,
            version: version(&unread.metadata),
            problem: unread.problem.clone(),
        }
    }
}

/// Whether a watch failed because its kind is no longer served or no longer permitted.
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
