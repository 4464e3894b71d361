//! One stream of changes out of the watches.

use std::fmt::Debug;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

use super::mirror::Change;
use super::reduce::job::job;
use super::reduce::node::node;
use super::reduce::pod::pod;
use super::reduce::{team, uid};
use super::table::{Flaw, Seen};
use super::{devices, others, pod_groups, wire};
use crate::api::node_pool::NodePool;
use crate::api::team::Team;
use crate::engine::model::{Name, Time};
use crate::kinds::Kinds;

/// How objects of one kind are keyed, read and passed on.
pub struct Watched<K, T> {
    /// The key of an object.
    pub key: fn(&K) -> Name,
    /// What is kept of it.
    pub read: fn(&K) -> Result<T, Flaw>,
    /// Whose message it is.
    pub wrap: fn(Seen<T>) -> Change,
}

/// Starts every watch; they send to `changes` until the set is dropped. Each begins with a list that
/// is not older than this call.
#[must_use]
pub fn start(client: &Client, kinds: &Kinds, changes: &Sender<Change>) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    others::start(client, kinds, changes, &mut watches);
    watches.spawn(pod_groups::follow(client.clone(), changes.clone()));
    devices::start(client, changes, &mut watches);
    let mut source = Source { client, changes, watches: &mut watches };
    source.watch(Watched { key: named::<Guarded<Team>>, read: read_team, wrap: Change::Team });
    source.watch(Watched { key: named::<Guarded<NodePool>>, read: read_pool, wrap: Change::Pool });
    source.watch(Watched {
        key: named::<PartialObjectMeta<Namespace>>,
        read: |object| Ok(team::namespace(object)),
        wrap: Change::Namespace,
    });
    source.watch(Watched { key: named::<wire::Node>, read: |object| Ok(node(object)), wrap: Change::Node });
    source.watch(Watched {
        key: named::<PriorityClass>,
        read: |object| Ok(team::class(object)),
        wrap: Change::Class,
    });
    source.watch(Watched {
        key: |object: &wire::Job| uid(&object.metadata),
        read: |object| Ok(job(object, now())),
        wrap: Change::Job,
    });
    source.watch(Watched {
        key: |object: &wire::Pod| uid(&object.metadata),
        read: |object| Ok(pod(object)),
        wrap: Change::Pod,
    });
    watches
}

type Guarded<K> = DeserializeGuard<K>;

/// The time on the wall.
#[must_use]
pub fn now() -> Time {
    Time(jiff::Timestamp::now().as_millisecond())
}

/// The name of an object, its key among those without a namespace.
pub fn named<K: Resource>(object: &K) -> Name {
    object.meta().name.as_deref().unwrap_or_default().into()
}

fn read_team(object: &Guarded<Team>) -> Result<team::TeamSeen, Flaw> {
    let readable = readable(object)?;
    team::team(readable).map_err(|problem| Flaw { generation: readable.metadata.generation, problem })
}

fn read_pool(object: &Guarded<NodePool>) -> Result<team::PoolSeen, Flaw> {
    let readable = readable(object)?;
    team::pool(readable).map_err(|problem| Flaw { generation: readable.metadata.generation, problem })
}

fn readable<K>(object: &Guarded<K>) -> Result<&K, Flaw> {
    object
        .0
        .as_ref()
        .map_err(|invalid| Flaw { generation: invalid.metadata.generation, problem: invalid.error.clone() })
}

/// Where watches read from and send to.
struct Source<'a> {
    client: &'a Client,
    changes: &'a Sender<Change>,
    watches: &'a mut JoinSet<()>,
}

impl Source<'_> {
    fn watch<K, T>(&mut self, watched: Watched<K, T>)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
        T: Send + 'static,
    {
        let (client, changes) = (self.client.clone(), self.changes.clone());
        // Kinds that are always there come back after any error.
        self.watches.spawn(async move {
            follow(Api::all(client), &watched, &changes, |_| false).await;
        });
    }
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
    let events = watcher(api, watcher::Config::default()).default_backoff();
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
