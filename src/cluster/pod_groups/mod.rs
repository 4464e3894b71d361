//! PodGroups: whether the API server serves them, and the PodGroup of a gang before its pods need it.
//!
//! kube-scheduler starts no pod that names a PodGroup until the PodGroup exists with `minCount` pods. Pods that have
//! ended do not count, and a PodGroup cannot be changed. So pods that are made after others have succeeded do not name
//! it (`webhook/gang.rs`), and no pod needs it from then on. If a user deletes it before, it is created again under its
//! name. The old one must be gone first: its finalizer is removed when no pod names it.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, OwnerReference};
use kube::api::{ApiResource, GetParams, ListParams, PostParams};
use kube::core::{DynamicObject, ObjectMeta, Request};
use kube::{Api, Client, Error, Resource};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;
use tokio::time::{Instant, sleep};

use super::call::{Caller, Failure, unsendable};
use super::mirror::Change;
use crate::api::names;
use crate::engine::types::Name;

const GROUP: &str = "scheduling.k8s.io";
/// The supported version of the API, that of Kubernetes 1.36.
const VERSION: &str = "v1alpha2";
/// The version of the group that every API server has, with other kinds.
const PRIORITIES: &str = "v1";
const PLURAL: &str = "podgroups";
/// The label in the metric of writes.
const LABEL: &str = "pod_group";

/// The time between two checks for PodGroups: an API server gets them by a restart.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// The same before the first answer, without which nothing is decided.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long the deletion of a PodGroup may take, once no pod names it.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time between two checks of a PodGroup that is being deleted.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether the API server serves PodGroups.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Served {
    /// Not at all.
    No,
    /// In other versions than the supported one.
    Otherwise(Vec<String>),
    /// Sluice may not use them, or may not even list the versions.
    Forbidden(String),
    /// In the supported version.
    Yes,
}

/// Reports to `changes` whether PodGroups can be created, now and whenever that changes.
pub async fn follow(client: Client, changes: Sender<Change>) {
    let mut known = None;
    loop {
        match look(&client).await {
            Ok(served) if known.as_ref() == Some(&served) => {}
            Ok(served) => {
                log(&served, known.is_some());
                if changes.send(Change::PodGroups(served == Served::Yes)).await.is_err() {
                    return;
                }
                known = Some(served);
            }
            Err(error) => tracing::warn!(%error, "cannot check for PodGroups"),
        }
        sleep(if known.is_some() { LOOK_AGAIN } else { ASK_AGAIN }).await;
    }
}

/// Logs an answer; `known` says that it is not the first.
fn log(served: &Served, known: bool) {
    match served {
        Served::No if known => tracing::info!("the API server no longer serves PodGroups; gangs get none"),
        Served::No => {}
        Served::Otherwise(versions) => {
            let versions = versions.join(", ");
            tracing::info!(versions, "unsupported versions of PodGroups; gangs get none");
        }
        Served::Forbidden(problem) => {
            tracing::warn!(problem, "Sluice may not create PodGroups; gangs get none");
        }
        Served::Yes => tracing::info!(version = VERSION, "each gang gets a PodGroup"),
    }
}

async fn look(client: &Client) -> kube::Result<Served> {
    match find(client).await {
        Err(Error::Api(answer)) if answer.code == 403 => Ok(Served::Forbidden(answer.message)),
        Err(Error::Api(answer)) if answer.code == 404 => Ok(Served::No),
        found => found,
    }
}

async fn find(client: &Client) -> kube::Result<Served> {
    let request = axum::http::Request::get(format!("/apis/{GROUP}")).body(Vec::new());
    let group: APIGroup = client.request(request.map_err(Error::HttpError)?).await?;
    let mut versions = Vec::new();
    for one in group.versions.into_iter().filter(|one| one.version != PRIORITIES) {
        let kinds = client.list_api_group_resources(&one.group_version).await?;
        if kinds.resources.iter().any(|kind| kind.name == PLURAL) {
            versions.push(one.version);
        }
    }
    if !versions.iter().any(|version| version == VERSION) {
        return Ok(if versions.is_empty() { Served::No } else { Served::Otherwise(versions) });
    }
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    all.list_metadata(&ListParams::default().limit(1)).await.map(|_| Served::Yes)
}

fn resource() -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: VERSION.to_owned(),
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "PodGroup".to_owned(),
        plural: PLURAL.to_owned(),
    }
}

/// The Job that owns a PodGroup.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// The namespace of both.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
}

/// The PodGroup that the pods of an admission name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGroup {
    /// Its name.
    pub name: Name,
    /// How many pods start all or none; `None` if each may start alone.
    pub together: Option<u32>,
    /// Whether it may exist already, from an earlier admission.
    pub may_be_there: bool,
}

impl PodGroup {
    /// The object to create, owned by the Job to be admitted.
    fn object(&self, job: Owner<'_>) -> Value {
        let policy = match self.together {
            Some(pods) => json!({"gang": {"minCount": pods}}),
            None => json!({"basic": {}}),
        };
        let resource = resource();
        json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": &*self.name,
                "namespace": job.namespace,
                "ownerReferences": [{
                    "apiVersion": "batch/v1", "kind": "Job", "name": job.name, "uid": job.uid,
                    "controller": true,
                }],
            },
            "spec": {"schedulingPolicy": policy},
        })
    }
}

/// An existing PodGroup.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Existing {
    metadata: ObjectMeta,
}

/// The next step for an existing PodGroup.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// None: the pods start with it.
    Keep,
    /// It is being deleted; the next one can be created afterwards.
    Wait,
    /// It belongs to another object.
    Refuse,
}

impl Existing {
    fn next(&self, job: Owner<'_>) -> Next {
        let owner = |owner: &OwnerReference| owner.uid == job.uid;
        match &self.metadata {
            metadata if metadata.deletion_timestamp.is_some() => Next::Wait,
            metadata if !metadata.owner_references.iter().flatten().any(owner) => Next::Refuse,
            _ => Next::Keep,
        }
    }
}

/// Makes sure that the PodGroup of an admission exists.
///
/// # Errors
/// Why it does not.
pub async fn ensure(caller: &Caller, job: Owner<'_>, wanted: &PodGroup) -> Result<(), Failure> {
    let until = Instant::now() + PATIENCE;
    let requests = Request::new(DynamicObject::url_path(&resource(), Some(job.namespace)));
    let mut may_be_there = wanted.may_be_there;
    loop {
        if !may_be_there {
            match create(caller, job, wanted, &requests).await {
                Err(Failure::Moved) => {}
                // The namespace is gone, and the Job with it, or the kind is, and kube-scheduler ignores it.
                Err(Failure::Gone) => return Ok(()),
                created => return created,
            }
        }
        let request = requests.get(&wanted.name, &GetParams::default()).map_err(unsendable)?;
        let existing = match caller.until_known::<Existing>(None, false, request).await {
            Ok(existing) => existing,
            Err(Failure::Gone) => {
                may_be_there = false;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        match existing.next(job) {
            Next::Keep => return Ok(()),
            Next::Refuse => {
                return Err(Failure::Refused(format!("PodGroup {} belongs to another object", wanted.name)));
            }
            Next::Wait => {}
        }
        if Instant::now() >= until {
            return Err(Failure::NotNow(format!("PodGroup {} is still being deleted", wanted.name)));
        }
        may_be_there = true;
        sleep(PAUSE).await;
    }
}

/// Creates it; [`Failure::Moved`] if one of its name exists.
async fn create(
    caller: &Caller,
    job: Owner<'_>,
    wanted: &PodGroup,
    requests: &Request,
) -> Result<(), Failure> {
    let params = PostParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PostParams::default() };
    let body = serde_json::to_vec(&wanted.object(job));
    let body = body.map_err(|error| Failure::Refused(error.to_string()))?;
    let request = requests.create(&params, body).map_err(unsendable)?;
    match caller.until_known::<IgnoredAny>(Some(LABEL), true, request).await {
        Err(Failure::Refused(message)) => {
            Err(Failure::Refused(format!("PodGroup {} cannot be created: {message}", wanted.name)))
        }
        made => made.map(|_| ()),
    }
}

#[cfg(test)]
mod tests;
