//! The watches on claimed devices, while the API server serves that API.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use kube::api::ListParams;
use kube::{Api, Client, Error, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::dra::{News, key};
use super::follow::{Watched, follow, named, withdrawn};
use super::mirror::Change;
use super::reduce::claims::{claim, device_class, slice, template};
use super::table::Seen;
use crate::engine::types::Name;

/// How long after a look an API that is not served is looked for again: it comes with another API server.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// The same where the look failed.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// Starts the watches; they send to `changes` until the set is dropped.
pub fn start(client: &Client, changes: &Sender<Change>, watches: &mut JoinSet<()>) {
    let slices = Watched {
        key: named::<ResourceSlice>,
        read: |object| Ok(slice(object)),
        wrap: |seen| Change::Devices(News::Slice(seen)),
    };
    watches.spawn(keep(client.clone(), slices, changes.clone()));
    let classes = Watched {
        key: named::<DeviceClass>,
        read: |object| Ok(device_class(object)),
        wrap: |seen| Change::Devices(News::Class(seen)),
    };
    watches.spawn(keep(client.clone(), classes, changes.clone()));
    let templates = Watched {
        key: within::<ResourceClaimTemplate>,
        read: |object| Ok(template(object)),
        wrap: |seen| Change::Devices(News::Template(seen)),
    };
    watches.spawn(keep(client.clone(), templates, changes.clone()));
    let claims = Watched {
        key: within::<ResourceClaim>,
        read: |object| Ok(claim(object)),
        wrap: |seen| Change::Devices(News::Claim(seen)),
    };
    watches.spawn(keep(client.clone(), claims, changes.clone()));
}

fn within<K: Resource>(object: &K) -> Name {
    let metadata = object.meta();
    key(metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

/// Watches a kind for as long as there is one, and waits for it for as long as there is none.
async fn keep<K, T>(client: Client, watched: Watched<K, T>, changes: Sender<Change>)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    T: Send + 'static,
{
    let kind = K::kind(&());
    let api: Api<K> = Api::all(client);
    let mut told = false;
    loop {
        let pause = match api.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => {
                if !follow(api.clone(), &watched, &changes, withdrawn).await {
                    return;
                }
                TRY_AGAIN
            }
            Err(Error::Api(answer)) if matches!(answer.code, 403 | 404) => {
                if answer.code == 403 && !std::mem::replace(&mut told, true) {
                    let problem = &answer.message;
                    tracing::warn!(%kind, problem, "Sluice may not read claimed devices; they are not counted");
                }
                // What is not there is known completely.
                for seen in [Seen::ListBegins, Seen::ListEnds] {
                    if changes.send((watched.wrap)(seen)).await.is_err() {
                        return;
                    }
                }
                LOOK_AGAIN
            }
            Err(error) => {
                tracing::warn!(%kind, %error, "cannot tell whether the kind is there");
                TRY_AGAIN
            }
        };
        sleep(pause).await;
    }
}
