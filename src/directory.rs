//! The directory that the webhook reads: the team of each namespace, and the queues of each team.
//!
//! The cache replaces it as a whole when one of these objects changes. The webhook reads it without a
//! lock, and can wait for the next version when an object is not in this one yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::api::caps::Caps;
use crate::api::priority::Class;
use crate::api::seats::Seats;
use crate::engine::Ceilings;
use crate::engine::types::amount::ResourceList;
use crate::engine::types::{DEFAULT_POOL, Name, Team};
use crate::kinds::Kinds;

/// The directory, shared by its readers and replaced by the cache.
#[derive(Clone, Debug, Default)]
pub struct SharedDirectory(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    current: ArcSwap<Directory>,
    replaced: Notify,
}

impl SharedDirectory {
    /// The current directory.
    #[must_use]
    pub fn load(&self) -> Arc<Directory> {
        self.0.current.load_full()
    }

    /// Replaces the directory and wakes all waiting readers.
    pub fn store(&self, directory: Directory) {
        self.0.current.store(Arc::new(directory));
        self.0.replaced.notify_waiters();
    }

    /// Wakes all waiting readers without a replacement: pod places may have changed.
    pub fn wake(&self) {
        self.0.replaced.notify_waiters();
    }

    /// Completes with the next replacement or wake-up after this call, even if it is first polled later.
    pub fn replaced(&self) -> Notified<'_> {
        self.0.replaced.notified()
    }
}

/// The nodes of the pods of admitted Jobs, by the UID of the Job. All clones refer to one map. It changes with every
/// admission, so unlike the directory it is not replaced as a whole.
#[derive(Clone, Debug, Default)]
pub struct Places(Arc<RwLock<PodPlaces>>);

#[derive(Debug, Default)]
struct PodPlaces {
    /// From the admission records.
    seen: BTreeMap<Name, Arc<Seats>>,
    /// From records with a write in flight. The Job controller may create pods before that write is answered.
    coming: BTreeMap<Name, Arc<Seats>>,
    /// The UIDs of Jobs with gangs that have succeeded pods.
    thinned: BTreeSet<Name>,
}

impl Places {
    /// The places of a Job's pods; `None` unless each pod of the Job has its own place.
    #[must_use]
    pub fn of(&self, job: &str) -> Option<Arc<Seats>> {
        let places = self.0.read().unwrap_or_else(PoisonError::into_inner);
        places.seen.get(job).or_else(|| places.coming.get(job)).cloned()
    }

    /// Sets the places in a Job's record; `None` removes them.
    pub fn put(&self, job: &Name, seats: Option<&Arc<Seats>>) {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).seen.get(job).cloned();
        if known.as_ref() == seats {
            return;
        }
        let mut places = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match seats {
            Some(seats) => drop(places.seen.insert(Arc::clone(job), Arc::clone(seats))),
            None => drop(places.seen.remove(job)),
        }
    }

    /// Sets the places of a Job just before its admission is written, so they are known before its pods exist.
    pub fn expect(&self, job: &Name, seats: Seats) {
        let mut places = self.0.write().unwrap_or_else(PoisonError::into_inner);
        places.coming.insert(Arc::clone(job), Arc::new(seats));
    }

    /// Whether pods of a Job's gang have succeeded, so the remaining pods are fewer than its PodGroup's `minCount`.
    #[must_use]
    pub fn thinned(&self, job: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).thinned.contains(job)
    }

    /// Sets whether pods of a Job's gang have succeeded.
    pub fn thin(&self, job: &Name, thinned: bool) {
        if self.thinned(job) == thinned {
            return;
        }
        let mut places = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if thinned {
            places.thinned.insert(Arc::clone(job));
        } else {
            places.thinned.remove(job);
        }
    }

    /// Drops the Jobs for which `there` is false.
    pub fn keep(&self, there: impl Fn(&Name) -> bool) {
        let mut places = self.0.write().unwrap_or_else(PoisonError::into_inner);
        places.seen.retain(|job, _| there(job));
        places.thinned.retain(there);
    }

    /// Drops the expected places of all Jobs, because their writes are no longer tracked.
    pub fn forget_expected(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).coming.clear();
    }

    /// Drops the expected places of a Job: its record is cached now, or its write has failed.
    pub fn settled(&self, job: &Name) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).coming.remove(job);
    }
}

/// Namespaces, teams and pools as the webhook needs them.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Whether the first lists are complete. Until then, an unknown team may still be listed.
    pub complete: bool,
    /// The namespaces with the team label.
    pub namespaces: BTreeMap<Name, Membership>,
    /// The teams.
    pub teams: BTreeMap<Name, Team>,
    /// The default PriorityClass of a queue, by team and queue.
    pub queue_priority_classes: BTreeMap<(Name, Name), Name>,
    /// The longest termination grace period in a queue that has its own, by team and queue.
    pub graces: BTreeMap<(Name, Name), Duration>,
    /// What a new workload may consist of.
    pub caps: Caps,
    /// The names of the node pools.
    pub pools: BTreeSet<Name>,
    /// What the nodes of each pool that has nodes offer together.
    pub offers: BTreeMap<Name, ResourceList>,
    /// The pools with weights.
    pub weighted: BTreeSet<Name>,
    /// The teams that cannot be read.
    pub unreadable_teams: BTreeSet<Name>,
    /// For each pool that offers GPU fractions, the part of a GPU that a unit of each resource stands for.
    pub shares: BTreeMap<Name, ResourceList>,
    /// The sizes of the nodes, once all are known.
    pub ceilings: Option<Ceilings>,
    /// The PriorityClasses; `None` where no kube-scheduler acts on them, so that pods keep theirs.
    pub classes: Option<BTreeMap<Name, Class>>,
    /// The custom kinds: kinds besides Job and Pod with objects that are workloads.
    pub kinds: Kinds,
    /// Whether Sluice creates a PodGroup for a gang.
    pub pod_groups: bool,
    /// The places of the pods of admitted Jobs.
    pub places: Places,
}

impl Directory {
    /// Why Sluice does not manage a namespace; `None` if it does.
    #[must_use]
    pub fn unmanaged(&self, namespace: &str) -> Option<String> {
        let line = || {
            format!(
                "namespace {namespace:?} belongs to no team, so Sluice does not queue its workloads; label it sluice.dev/team"
            )
        };
        (!self.namespaces.contains_key(namespace)).then(line)
    }

    /// Which of the names that a question filters by is none, with those that there are.
    #[must_use]
    pub fn unknown(&self, names: &Names<'_>) -> Option<String> {
        let Names { team, queue, pool } = *names;
        if let Some(team) = team.filter(|team| !self.teams.contains_key(*team)) {
            return Some(format!("there is no team {team}; {}", listed(self.teams.keys())));
        }
        if let Some(pool) = pool.filter(|pool| *pool != DEFAULT_POOL && !self.pools.contains(*pool)) {
            let default = Name::from(DEFAULT_POOL);
            let pools: BTreeSet<&Name> = self.pools.iter().chain([&default]).collect();
            return Some(format!("there is no pool {pool}; {}", listed(pools)));
        }
        let queue = queue?;
        let teams = self.teams.values().filter(|of| team.is_none_or(|team| *of.name == *team));
        let queues: BTreeSet<&Name> = teams.flat_map(|team| &team.queues).map(|queue| &queue.name).collect();
        if queues.iter().any(|known| ***known == *queue) {
            return None;
        }
        let of = team.map_or_else(String::new, |team| format!(" in team {team}"));
        Some(format!("there is no queue {queue}{of}; {}", listed(queues)))
    }
}

/// Names that a question filters by.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names<'a> {
    /// The team.
    pub team: Option<&'a str>,
    /// The queue.
    pub queue: Option<&'a str>,
    /// The pool.
    pub pool: Option<&'a str>,
}

/// The most names that a sentence lists.
const FEW: usize = 20;

fn listed<'a>(names: impl IntoIterator<Item = &'a Name>) -> String {
    let names: Vec<&str> = names.into_iter().map(|name| &**name).collect();
    let more = names.len().saturating_sub(FEW);
    let first = names.get(..FEW).unwrap_or(&names).join(", ");
    match (names.len(), more) {
        (0, _) => "there are none".to_owned(),
        (1, _) => format!("there is {first}"),
        (_, 0) => format!("there are {first}"),
        _ => format!("there are {first} and {more} more"),
    }
}

/// The team and default queue in a namespace's labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The team of the namespace.
    pub team: Name,
    /// The queue of workloads that name none; `None` for the team's default queue.
    pub queue: Option<Name>,
}
