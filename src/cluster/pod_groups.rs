//! PodGroups: whether the API server has them, and that a gang's is there before its pods look for it.
//!
//! kube-scheduler starts none of the pods that name a PodGroup before that is there with as many of them as it asks
//! for. Pods that have ended do not count, and nothing of a PodGroup can be changed, so one that asks for more pods
//! than are left to run would hold them for ever: it is deleted and made anew. Its name cannot change either, so the
//! old one must be gone first; its finalizer goes when no pod is left that names it.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, OwnerReference};
use kube::api::{ApiResource, DeleteParams, GetParams, ListParams, PostParams, Preconditions};
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
/// The version of the API that this is written for: of 1.36.
const VERSION: &str = "v1alpha2";
/// The version of the group that has other kinds and is always there.
const PRIORITIES: &str = "v1";
const PLURAL: &str = "podgroups";
/// As a label of the metric of writes.
const LABEL: &str = "pod_group";

/// How long after a look it is looked again whether there are PodGroups: an API server gets them by a restart.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// The same as long as it is not known: until then nothing is decided.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long a PodGroup may take to be gone, once no pod is left that names it.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long to wait between two looks at one that goes.
const PAUSE: Duration = Duration::from_millis(100);

/// What there is of PodGroups.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Served {
    /// Nothing.
    No,
    /// Other versions than the one known here.
    Otherwise(Vec<String>),
    /// Sluice may not use them, or not even ask.
    Forbidden(String),
    /// All that is needed.
    Yes,
}

/// Tells `changes` whether PodGroups can be made, now and whenever that changes.
pub async fn follow(client: Client, changes: Sender<Change>) {
    let mut known = None;
    loop {
        match look(&client).await {
            Ok(served) if known.as_ref() == Some(&served) => {}
            Ok(served) => {
                tell(&served, known.is_some());
                if changes.send(Change::PodGroups(served == Served::Yes)).await.is_err() {
                    return;
                }
                known = Some(served);
            }
            Err(error) => tracing::warn!(%error, "cannot tell whether there are PodGroups"),
        }
        sleep(if known.is_some() { LOOK_AGAIN } else { ASK_AGAIN }).await;
    }
}

fn tell(served: &Served, known: bool) {
    match served {
        Served::No if known => tracing::info!("there are no PodGroups any more; gangs go without"),
        Served::No => {}
        Served::Otherwise(versions) => {
            let versions = versions.join(", ");
            tracing::info!(versions, "PodGroups are of versions not known here; gangs go without");
        }
        Served::Forbidden(problem) => {
            tracing::warn!(problem, "Sluice may not make PodGroups; gangs go without");
        }
        Served::Yes => tracing::info!(version = VERSION, "there are PodGroups; gangs get one each"),
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

/// The Job that a PodGroup goes with.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a> {
    /// Where it is, and the PodGroup with it.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
}

/// The PodGroup that the pods of an admission look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodGroup {
    /// Its name.
    pub name: Name,
    /// How many pods start all or none; nothing if each may start by itself.
    pub together: Option<u32>,
    /// Whether it may be there already, from an earlier admission.
    pub may_be_there: bool,
}

impl PodGroup {
    /// As it is made: it goes with the Job that is to be admitted.
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

/// A PodGroup as it is there.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct There {
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    scheduling_policy: Policy,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Policy {
    gang: Option<GangPolicy>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GangPolicy {
    min_count: u32,
}

/// What is to be done about a PodGroup that is there.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Nothing: with it, the pods start.
    Go,
    /// It goes; another can be made when it is gone.
    Wait,
    /// It would hold the pods for ever.
    Delete,
    /// It is somebody else's.
    Leave,
}

impl There {
    fn next(&self, job: Owner<'_>, wanted: &PodGroup) -> Next {
        let owner = |owner: &OwnerReference| owner.uid == job.uid;
        let most = wanted.together.unwrap_or(0);
        let holds = self.spec.scheduling_policy.gang.as_ref().is_some_and(|gang| gang.min_count > most);
        match &self.metadata {
            metadata if metadata.deletion_timestamp.is_some() => Next::Wait,
            metadata if !metadata.owner_references.iter().flatten().any(owner) => Next::Leave,
            _ if holds => Next::Delete,
            _ => Next::Go,
        }
    }
}

/// Sees to it that the PodGroup of an admission is there.
///
/// # Errors
/// Why it is not.
pub async fn ensure(caller: &Caller, job: Owner<'_>, wanted: &PodGroup) -> Result<(), Failure> {
    let until = Instant::now() + PATIENCE;
    let requests = Request::new(DynamicObject::url_path(&resource(), Some(job.namespace)));
    let mut may_be_there = wanted.may_be_there;
    loop {
        if !may_be_there {
            match make(caller, job, wanted, &requests).await {
                Err(Failure::Moved) => {}
                // Either the namespace is gone, and the Job with it, or the kind, and nobody looks for it.
                Err(Failure::Gone) => return Ok(()),
                made => return made,
            }
        }
        let request = requests.get(&wanted.name, &GetParams::default()).map_err(unsendable)?;
        let there = match caller.until_known::<There>(None, false, request).await {
            Ok(there) => there,
            Err(Failure::Gone) => {
                may_be_there = false;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        match there.next(job, wanted) {
            Next::Go => return Ok(()),
            Next::Leave => {
                return Err(Failure::Refused(format!("PodGroup {} is not the Job's", wanted.name)));
            }
            Next::Wait => {}
            Next::Delete => delete(caller, wanted, there.metadata.uid, &requests).await?,
        }
        if Instant::now() >= until {
            return Err(Failure::Refused(format!("PodGroup {} is still being deleted", wanted.name)));
        }
        may_be_there = true;
        sleep(PAUSE).await;
    }
}

/// Makes it; [`Failure::Moved`] if there is one of its name.
async fn make(caller: &Caller, job: Owner<'_>, wanted: &PodGroup, requests: &Request) -> Result<(), Failure> {
    let params = PostParams { field_manager: Some(names::FIELD_MANAGER.into()), ..PostParams::default() };
    let body = serde_json::to_vec(&wanted.object(job));
    let body = body.map_err(|error| Failure::Refused(error.to_string()))?;
    let request = requests.create(&params, body).map_err(unsendable)?;
    match caller.until_known::<IgnoredAny>(Some(LABEL), true, request).await {
        Err(Failure::Refused(message)) => {
            Err(Failure::Refused(format!("PodGroup {} cannot be made: {message}", wanted.name)))
        }
        made => made.map(|_| ()),
    }
}

/// Deletes the very one that was looked at.
async fn delete(
    caller: &Caller,
    wanted: &PodGroup,
    uid: Option<String>,
    requests: &Request,
) -> Result<(), Failure> {
    let preconditions = Some(Preconditions { uid, resource_version: None });
    let params = DeleteParams { preconditions, ..DeleteParams::default() };
    let request = requests.delete(&wanted.name, &params).map_err(unsendable)?;
    match caller.until_known::<IgnoredAny>(Some(LABEL), true, request).await {
        Ok(_) | Err(Failure::Gone | Failure::Moved) => Ok(()),
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
#[path = "pod_groups_tests.rs"]
mod tests;
