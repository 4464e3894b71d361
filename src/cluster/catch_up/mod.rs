//! Whether the cache of a replica that gains the lease shows every write of the leader before it.
//!
//! The replica has watched the cluster all along, so the cache has nearly everything. But a watch may lag behind: the API
//! server serves it from a cache of its own. A leader that decides on such a view admits again what was admitted a moment
//! ago. So the names and versions of all objects of the kinds that a leader writes and decides on are listed once, with
//! reads that etcd confirms. Then the cache waits until the watches have delivered each of them in that version or a
//! later one, and the end of each object that the list no longer has. From then on the cache is no older than a list that
//! was begun in this term.
//!
//! Versions of one kind are numbers that grow: Kubernetes promises it from 1.35 on, and etcd has always done so. A version
//! that is no number, a list that fails, or a watch that does not deliver in time means that the cluster is listed again.
//!
//! Kinds that a leader only reads are not compared: of those a leader too knows only what its watches deliver. Nor are the
//! statuses of NodePools, PodGroups and the twins of PriorityClasses: a leader writes them, and no decision depends on them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::{ListMeta, Request};
use kube::{Client, Resource};
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::mirror::{Change, Mirror, Written};
use super::table::Seen;
use crate::api::team::Team;
use crate::engine::types::Name;
use crate::kinds::{Kinds, Watched};

/// The most objects of one answer.
const PAGE: u32 = 2_000;
/// The time limit of one answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How long the watches may take to deliver what has been listed.
const PATIENCE: Duration = Duration::from_secs(5);

/// The objects of a kind at one moment.
#[derive(Debug, Default)]
pub struct Listed {
    /// The version of each object, by its key in the cache.
    objects: BTreeMap<Name, u64>,
    /// The version of the list.
    version: u64,
}

/// The end of one list.
#[derive(Debug)]
pub struct Answer {
    kind: Written,
    listed: Result<Listed, String>,
}

/// How far a cache is behind.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something that was listed has not been delivered yet.
    Behind,
    /// The cache is no older than the lists.
    Level,
    /// It cannot be known, for this reason.
    Unknown(String),
}

/// A cache that is compared with the lists of a new term.
#[derive(Debug)]
pub struct CatchUp {
    answers: mpsc::UnboundedReceiver<Answer>,
    /// The number of lists without an answer.
    open: usize,
    /// Objects in a list that the cache does not show in that version, with the version.
    behind: BTreeMap<(Written, Name), u64>,
    /// Cached objects that a list no longer had, with the version of the list.
    ended: BTreeMap<(Written, Name), u64>,
    /// The objects that were deleted since the lists were begun. One of them may be in a list.
    deleted: BTreeSet<(Written, Name)>,
    problem: Option<String>,
    began: Instant,
    /// Until when the watches may deliver.
    due: Instant,
    _lists: JoinSet<()>,
}

impl CatchUp {
    /// Begins the lists.
    #[must_use]
    pub fn begin(client: &Client, kinds: &Kinds) -> Self {
        let (sender, answers) = mpsc::unbounded_channel();
        let mut lists = JoinSet::new();
        let written = [
            (Written::Team, Team::url_path(&(), None)),
            (Written::Job, Job::url_path(&(), None)),
            (Written::Pod, Pod::url_path(&(), None)),
        ];
        let custom = |(place, watched): (usize, &Watched)| {
            watched.entry.as_ref()?;
            let path = kube::core::DynamicObject::url_path(&watched.resource, None);
            Some((Written::Custom(place), path))
        };
        let custom = kinds.watched().iter().enumerate().filter_map(custom);
        for (kind, path) in written.into_iter().chain(custom) {
            let (client, sender) = (client.clone(), sender.clone());
            lists.spawn(async move {
                let listed = list(&client, kind, path).await;
                // The receiver goes when another replica leads.
                let _ = sender.send(Answer { kind, listed });
            });
        }
        Self {
            answers,
            open: lists.len(),
            behind: BTreeMap::new(),
            ended: BTreeMap::new(),
            deleted: BTreeSet::new(),
            problem: None,
            began: Instant::now(),
            due: Instant::now() + PATIENCE,
            _lists: lists,
        }
    }

    /// The time since the lists were begun.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Waits for the next answer; `None` after the last. Safe to cancel.
    pub async fn answer(&mut self) -> Option<Answer> {
        self.answers.recv().await
    }

    /// Compares a list with the cache.
    pub fn take(&mut self, answer: Answer, mirror: &Mirror) {
        let Answer { kind, listed } = answer;
        self.open -= 1;
        self.due = Instant::now() + PATIENCE;
        let listed = match listed {
            Ok(listed) => listed,
            Err(problem) => {
                self.problem = Some(problem);
                return;
            }
        };
        let gone = mirror.keys_of(kind).filter(|key| !listed.objects.contains_key(*key)).cloned();
        self.ended.extend(gone.map(|key| ((kind, key), listed.version)));
        self.behind.extend(listed.objects.into_iter().map(|(key, version)| ((kind, key), version)));
        self.forget_delivered(mirror);
    }

    /// Notes what a message of a watch says about the end of an object, before the cache takes it.
    pub fn note(&mut self, change: &Change) {
        let deleted = match change {
            Change::Job(Seen::Deleted(key)) => (Written::Job, key),
            Change::Pod(Seen::Deleted(key)) => (Written::Pod, key),
            Change::Custom(place, Seen::Deleted(key)) => (Written::Custom(*place), key),
            // A Team of the same name may follow.
            _ => return,
        };
        self.deleted.insert((deleted.0, deleted.1.clone()));
    }

    /// How far the cache is behind.
    pub fn progress(&mut self, mirror: &Mirror) -> Progress {
        if let Some(problem) = self.problem.take() {
            return Progress::Unknown(problem);
        }
        self.forget_delivered(mirror);
        let missing = self.behind.len() + self.ended.len();
        if self.open == 0 && missing == 0 {
            return Progress::Level;
        }
        if self.open == 0 && Instant::now() >= self.due {
            return Progress::Unknown(format!("the watches have not delivered {missing} objects in time"));
        }
        Progress::Behind
    }

    fn forget_delivered(&mut self, mirror: &Mirror) {
        let shown = |kind: &Written, key: &Name| mirror.version_of(*kind, key);
        let deleted = &self.deleted;
        self.behind.retain(|object, version| {
            shown(&object.0, &object.1).is_none_or(|seen| seen < *version) && !deleted.contains(object)
        });
        // An object that is newer than the list was created after it.
        self.ended.retain(|(kind, key), list| shown(kind, key).is_some_and(|seen| seen <= *list));
    }
}

/// One page of the metadata of a kind; all other fields are skipped.
#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Identity,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    name: String,
    uid: String,
    resource_version: String,
}

/// Lists the metadata of a kind. Without a version in the request the answer is as new as the request.
async fn list(client: &Client, kind: Written, path: String) -> Result<Listed, String> {
    let requests = Request::new(path);
    let mut listed = Listed::default();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let request = requests.list_metadata(&params).map_err(|error| error.to_string())?;
        let page = match timeout(ANSWER, client.request::<Page>(request)).await {
            Ok(Ok(page)) => page,
            // A custom kind that is not served, or that Sluice may not list, has no objects in the cache either.
            Ok(Err(kube::Error::Api(status)))
                if matches!(kind, Written::Custom(_)) && matches!(status.code, 403 | 404) =>
            {
                return Ok(listed);
            }
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err("the API server did not answer a list of versions in time".to_owned()),
        };
        let number =
            |text: &str| text.parse::<u64>().map_err(|_| format!("the version {text:?} is not a number"));
        listed.version = number(page.metadata.resource_version.as_deref().unwrap_or_default())?;
        for Item { metadata: Identity { name, uid, resource_version } } in page.items {
            let key = if kind == Written::Team { name } else { uid };
            listed.objects.insert(key.into(), number(&resource_version)?);
        }
        params.continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
        if params.continue_token.is_none() {
            return Ok(listed);
        }
    }
}

#[cfg(test)]
mod tests;
