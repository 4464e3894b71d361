//! Watches on the objects of dynamic resource allocation, while the API server serves them.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use kube::api::ListParams;
use kube::core::ObjectMeta;
use kube::{Api, Client, Error, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::dra::{News, key};
use super::mirror::Change;
use super::reduce::claims::{claim, device_class, slice, template};
use super::table::Seen;
use super::watch_stream::{Watched, forward, named, withdrawn};
use crate::engine::types::Name;

/// The pause before the next check of an API that is not served; it appears with an upgrade of the API server.
const RECHECK: Duration = Duration::from_secs(60);
/// The pause after a failed check or watch.
const RETRY: Duration = Duration::from_secs(2);

/// Starts the watches. They send to `changes` until the set is dropped.
pub fn start(client: &Client, changes: &Sender<Change>, watches: &mut JoinSet<()>) {
    let slices = Watched {
        key: named,
        read: |object: &ResourceSlice| Ok(slice(object)),
        wrap: |seen| Change::Devices(News::Slice(seen)),
    };
    watches.spawn(keep_watching(client.clone(), slices, changes.clone()));
    let classes = Watched {
        key: named,
        read: |object: &DeviceClass| Ok(device_class(object)),
        wrap: |seen| Change::Devices(News::Class(seen)),
    };
    watches.spawn(keep_watching(client.clone(), classes, changes.clone()));
    let templates = Watched {
        key: within,
        read: |object: &ResourceClaimTemplate| Ok(template(object)),
        wrap: |seen| Change::Devices(News::Template(seen)),
    };
    watches.spawn(keep_watching(client.clone(), templates, changes.clone()));
    let claims = Watched {
        key: within,
        read: |object: &ResourceClaim| Ok(claim(object)),
        wrap: |seen| Change::Devices(News::Claim(seen)),
    };
    watches.spawn(keep_watching(client.clone(), claims, changes.clone()));
}

fn within(metadata: &ObjectMeta) -> Name {
    key(metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

/// Watches a kind while it is served, and waits for it while it is not.
async fn keep_watching<K, T>(client: Client, watched: Watched<K, T>, changes: Sender<Change>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    T: Send + 'static,
{
    let kind = K::kind(&());
    let api: Api<K> = Api::all(client.clone());
    let mut denial_logged = false;
    loop {
        let pause = match api.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => {
                if !forward(client.clone(), &watched, &changes, withdrawn).await {
                    return;
                }
                RETRY
            }
            Err(Error::Api(answer)) if matches!(answer.code, 403 | 404) => {
                if answer.code == 403 && !std::mem::replace(&mut denial_logged, true) {
                    let problem = &answer.message;
                    tracing::warn!(%kind, problem, "no permission to list objects of dynamic resource allocation; claimed devices are not counted");
                }
                // A kind that is not served has a complete, empty list.
                for seen in [Seen::ListBegins, Seen::ListEnds] {
                    if changes.send((watched.wrap)(seen)).await.is_err() {
                        return;
                    }
                }
                RECHECK
            }
            Err(error) => {
                tracing::warn!(%kind, %error, "cannot check whether the kind is served");
                RETRY
            }
        };
        sleep(pause).await;
    }
}
