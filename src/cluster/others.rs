//! The watches on the kinds of the table, of which a cluster may have some, or get them later.

use std::time::Duration;

use futures::StreamExt;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Error};
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::clock::now;
use super::follow::{pauses, withdrawn};
use super::mirror::Change;
use super::reduce::uid;
use super::table::Seen;
use super::target::custom::custom;

use crate::kinds::{Kinds, Watched};

/// How long after a look a kind that is not served is looked for again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Starts a watch on every kind; they send to `changes` until the set is dropped.
pub fn start(client: &Client, kinds: &Kinds, changes: &Sender<Change>, watches: &mut JoinSet<()>) {
    for (place, watched) in kinds.watched().iter().enumerate() {
        watches.spawn(follow(client.clone(), place, watched.clone(), changes.clone()));
    }
}

/// Watches a kind for as long as there is one, and waits for it for as long as there is none.
async fn follow(client: Client, place: usize, watched: Watched, changes: Sender<Change>) {
    let kind = watched.resource.kind.clone();
    let api: Api<DynamicObject> = Api::all_with(client, &watched.resource);
    let mut told = false;
    loop {
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => {
                tracing::info!(kind, version = watched.resource.api_version, "watching");
                told = false;
                if !watch(&api, place, &watched, &changes).await {
                    return;
                }
            }
            Err(Error::Api(answer)) if matches!(answer.code, 403 | 404) => {
                if answer.code == 403 && !told {
                    told = true;
                    let problem = &answer.message;
                    tracing::warn!(
                        kind,
                        problem,
                        "Sluice may not read objects of this kind; they are not watched"
                    );
                }
                // What is not there is known completely.
                for seen in [Seen::ListBegins, Seen::ListEnds] {
                    if changes.send(Change::Other(place, seen)).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) => tracing::warn!(kind, %error, "cannot tell whether the kind is there"),
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Passes on what is seen until the kind is not served any more; false when nobody listens.
async fn watch(api: &Api<DynamicObject>, place: usize, watched: &Watched, changes: &Sender<Change>) -> bool {
    let mut events = watcher(api.clone(), watcher::Config::default()).backoff(pauses()).boxed();
    while let Some(event) = events.next().await {
        let seen = match event {
            Ok(watcher::Event::Init) => Seen::ListBegins,
            Ok(watcher::Event::InitDone) => Seen::ListEnds,
            Ok(watcher::Event::Delete(object)) => Seen::Deleted(uid(&object.metadata)),
            Ok(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
                Seen::Object(uid(&object.metadata), custom(watched, &object, now()))
            }
            Err(error) => {
                tracing::warn!(kind = watched.resource.kind, %error, "watch failed, it starts again");
                if withdrawn(&error) {
                    return true;
                }
                continue;
            }
        };
        if changes.send(Change::Other(place, seen)).await.is_err() {
            return false;
        }
    }
    true
}
