//! What the webhook knows: which namespace belongs to which team, and which queues a team has.
//!
//! The watches replace it whole when one of these objects changes; the webhook reads it without a
//! lock, and can wait for the next one where what it looks for is not in this one yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::api::seats::Seats;
use crate::engine::types::amount::ResourceList;
use crate::engine::types::{Name, Team};
use crate::kinds::Kinds;

/// The directory that readers share and the watches replace.
#[derive(Clone, Debug, Default)]
pub struct SharedDirectory(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    current: ArcSwap<Directory>,
    replaced: Notify,
}

impl SharedDirectory {
    /// The directory as it is now.
    #[must_use]
    pub fn load(&self) -> Arc<Directory> {
        self.0.current.load_full()
    }

    /// Replaces it, and wakes whoever waits for that.
    pub fn store(&self, directory: Directory) {
        self.0.current.store(Arc::new(directory));
        self.0.replaced.notify_waiters();
    }

    /// Wakes whoever waits for a replacement, because something else has come that it may wait for.
    pub fn wake(&self) {
        self.0.replaced.notify_waiters();
    }

    /// Ends with the next replacement after this call, even if it is not polled before.
    pub fn replaced(&self) -> Notified<'_> {
        self.0.replaced.notified()
    }
}

/// The places of the pods of admitted Jobs, by the UID of the Job: one book, of which all clones tell. It
/// changes with every admission, so unlike the rest it is not replaced whole.
#[derive(Clone, Debug, Default)]
pub struct Places(Arc<RwLock<Book>>);

#[derive(Debug, Default)]
struct Book {
    /// As the records say.
    seen: BTreeMap<Name, Arc<Seats>>,
    /// As records are being written. Pods are made of an admission as soon as the API server has it, which
    /// may be before its answer is here.
    coming: BTreeMap<Name, Arc<Seats>>,
    /// The Jobs of whose gangs some pods have succeeded, by UID.
    thinned: BTreeSet<Name>,
}

impl Places {
    /// The places of a Job whose pods each get their own; nothing if it is not known to be such a one.
    #[must_use]
    pub fn of(&self, job: &str) -> Option<Arc<Seats>> {
        let book = self.0.read().unwrap_or_else(PoisonError::into_inner);
        book.seen.get(job).or_else(|| book.coming.get(job)).cloned()
    }

    /// Notes the places of a Job as its record says, or that it says none.
    pub fn put(&self, job: &Name, seats: Option<&Arc<Seats>>) {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner).seen.get(job).cloned();
        if known.as_ref() == seats {
            return;
        }
        let mut book = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match seats {
            Some(seats) => drop(book.seen.insert(Arc::clone(job), Arc::clone(seats))),
            None => drop(book.seen.remove(job)),
        }
    }

    /// Notes the places of a Job whose admission is about to be written; its pods cannot be made before.
    pub fn expect(&self, job: &Name, seats: Seats) {
        let mut book = self.0.write().unwrap_or_else(PoisonError::into_inner);
        book.coming.insert(Arc::clone(job), Arc::new(seats));
    }

    /// Whether some pods of a Job's gang have succeeded, so that the rest is too few for its PodGroup.
    #[must_use]
    pub fn thinned(&self, job: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).thinned.contains(job)
    }

    /// Notes whether some pods of a Job's gang have succeeded.
    pub fn thin(&self, job: &Name, thinned: bool) {
        if self.thinned(job) == thinned {
            return;
        }
        let mut book = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if thinned {
            book.thinned.insert(Arc::clone(job));
        } else {
            book.thinned.remove(job);
        }
    }

    /// Keeps only the Jobs that are there.
    pub fn keep(&self, there: impl Fn(&Name) -> bool) {
        let mut book = self.0.write().unwrap_or_else(PoisonError::into_inner);
        book.seen.retain(|job, _| there(job));
        book.thinned.retain(there);
    }

    /// Forgets what was expected of any Job: nobody waits for the answers any more.
    pub fn expect_nothing(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).coming.clear();
    }

    /// Forgets what was expected of a Job: it is seen now, or will not be.
    pub fn settled(&self, job: &Name) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).coming.remove(job);
    }
}

/// Namespaces and teams.
#[derive(Clone, Debug, Default)]
pub struct Directory {
    /// Whether the first lists of all of these are complete. Before, an unknown team may only be unread.
    pub complete: bool,
    /// The namespaces that carry the team label.
    pub namespaces: BTreeMap<Name, Membership>,
    /// The teams.
    pub teams: BTreeMap<Name, Team>,
    /// For each team, the PriorityClass its queues give to pods that name none.
    pub queue_priority_classes: BTreeMap<(Name, Name), Name>,
    /// The node pools' names.
    pub pools: BTreeSet<Name>,
    /// What the nodes of pools offer for a share of a GPU, where they do.
    pub shares: BTreeMap<Name, ResourceList>,
    /// The kinds besides Job and Pod whose objects are workloads.
    pub kinds: Kinds,
    /// Whether gangs get a PodGroup.
    pub pod_groups: bool,
    /// The places of pods.
    pub places: Places,
}

/// What a namespace's labels say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The team of everything in it.
    pub team: Name,
    /// The queue of what names none, if not the team's own default.
    pub queue: Option<Name>,
}
