//! Watches on the custom kinds. The API server may serve any of them, and start or stop to at any time.

use std::time::Duration;

use futures::StreamExt;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Error, Resource};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::clock::now;
use super::guarded::Guarded;
use super::mirror::Change;
use super::reduce::uid;
use super::table::Seen;
use super::target::custom::custom;
use super::watch_stream::{pauses, report, withdrawn};

use crate::kinds::{Kinds, Watched};

/// The pause between two checks whether the API server serves a kind.
const RECHECK: Duration = Duration::from_secs(5);

/// Starts a watch on every custom kind. The watches send to `changes` until the set is dropped.
pub fn start(client: &Client, kinds: &Kinds, changes: &Sender<Change>, watches: &mut JoinSet<()>) {
    for (place, watched) in kinds.watched().iter().enumerate() {
        watches.spawn(keep_watching(client.clone(), place, watched.clone(), changes.clone()));
    }
}

/// Watches a kind while it is served, and waits for it while it is not.
async fn keep_watching(client: Client, place: usize, watched: Watched, changes: Sender<Change>) {
    let kind = watched.resource.kind.clone();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &watched.resource);
    let mut denial_logged = false;
    loop {
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => {
                tracing::info!(kind, version = watched.resource.api_version, "watching");
                denial_logged = false;
                if !watch(&client, place, &watched, &changes).await {
                    return;
                }
            }
            Err(Error::Api(answer)) if matches!(answer.code, 403 | 404) => {
                if answer.code == 403 && !denial_logged {
                    denial_logged = true;
                    let problem = &answer.message;
                    tracing::warn!(
                        kind,
                        problem,
                        "no permission to list this kind; its objects are not managed"
                    );
                }
                // A kind that is not served has a complete, empty list.
                for seen in [Seen::ListBegins, Seen::ListEnds] {
                    if changes.send(Change::Custom(place, seen)).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) => tracing::warn!(kind, %error, "cannot check whether the kind is served"),
        }
        sleep(RECHECK).await;
    }
}

/// Sends lists and changes until the kind is no longer served. Returns false when the receiver is closed.
async fn watch(client: &Client, place: usize, watched: &Watched, changes: &Sender<Change>) -> bool {
    let api: Api<Guarded<DynamicObject>> = Api::all_with(client.clone(), &watched.resource);
    let mut events = watcher(api, watcher::Config::default()).backoff(pauses()).boxed();
    while let Some(event) = events.next().await {
        let seen = match event {
            Ok(watcher::Event::Init) => Seen::ListBegins,
            Ok(watcher::Event::InitDone) => Seen::ListEnds,
            Ok(watcher::Event::Delete(object)) => Seen::Deleted(uid(object.meta())),
            Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                let key = uid(object.meta());
                match &object.0 {
                    Ok(object) => Seen::Object(key, custom(watched, object, now())),
                    Err(unread) => {
                        report(&watched.resource.kind, &unread.metadata, &unread.problem);
                        Seen::Unreadable(key, unread.as_ref().into())
                    }
                }
            }
            Err(error) => {
                tracing::warn!(kind = watched.resource.kind, %error, "watch failed; restarting");
                if withdrawn(&error) {
                    return true;
                }
                continue;
            }
        };
        if changes.send(Change::Custom(place, seen)).await.is_err() {
            return false;
        }
    }
    true
}
