//! Merges all watches into one stream of changes.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinSet;

use super::clock::now;
use super::mirror::Change;
use super::reduce::node::node;
use super::reduce::{team, uid, version};
use super::table::Flaw;
use super::target::job::job;
use super::target::pod::pod;
use super::watch_stream::{Watched, forward, named};
use super::{custom_kinds, devices, pod_groups, wire};
use crate::api::node_pool::NodePool;
use crate::api::priority::Class;
use crate::api::team::Team;
use crate::kinds::Kinds;

/// Starts every watch. They send to `changes` until the set is dropped. Each starts with a list that is not
/// older than this call.
#[must_use]
pub fn start(client: &Client, kinds: &Kinds, changes: &Sender<Change>) -> JoinSet<()> {
    let mut watches = JoinSet::new();
    custom_kinds::start(client, kinds, changes, &mut watches);
    watches.spawn(pod_groups::follow(client.clone(), changes.clone()));
    devices::start(client, changes, &mut watches);
    let mut starter = Starter { client, changes, watches: &mut watches };
    starter.watch(Watched { key: named, read: read_team, wrap: Change::Team });
    starter.watch(Watched { key: named, read: read_pool, wrap: Change::Pool });
    starter.watch(Watched {
        key: named,
        read: |object: &PartialObjectMeta<Namespace>| Ok(team::namespace(object)),
        wrap: Change::Namespace,
    });
    starter.watch(Watched { key: named, read: |object: &wire::Node| Ok(node(object)), wrap: Change::Node });
    starter.watch(Watched {
        key: named,
        read: |object: &PriorityClass| Ok(Class::of(object)),
        wrap: Change::Class,
    });
    starter.watch(Watched { key: uid, read: |object: &wire::Job| Ok(job(object, now())), wrap: Change::Job });
    starter.watch(Watched { key: uid, read: |object: &wire::Pod| Ok(pod(object)), wrap: Change::Pod });
    watches
}

fn read_team(object: &Team) -> Result<team::TeamSeen, Flaw> {
    team::team(object).map_err(|problem| flaw(&object.metadata, problem))
}

fn read_pool(object: &NodePool) -> Result<team::PoolSeen, Flaw> {
    team::pool(object).map_err(|problem| flaw(&object.metadata, problem))
}

fn flaw(metadata: &ObjectMeta, problem: String) -> Flaw {
    Flaw { generation: metadata.generation, version: version(metadata), problem }
}

/// Starts watches on built-in and own kinds.
struct Starter<'a> {
    client: &'a Client,
    changes: &'a Sender<Change>,
    watches: &'a mut JoinSet<()>,
}

impl Starter<'_> {
    fn watch<K, T>(&mut self, watched: Watched<K, T>)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
        T: Send + 'static,
    {
        let (client, changes) = (self.client.clone(), self.changes.clone());
        // These kinds are always served, so the watch restarts after any error.
        self.watches.spawn(async move {
            forward(client, &watched, &changes, |_| false).await;
        });
    }
}
