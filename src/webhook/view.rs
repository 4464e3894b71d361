//! The directory as one answer reads it.

use std::cell::Cell;
use std::sync::Arc;

use crate::api::seats::Seats;
use crate::directory::{Directory, Membership};
use crate::engine::types::amount::ResourceList;
use crate::engine::types::{DEFAULT_POOL, Name, Team};
use crate::kinds::Kinds;

/// A directory that remembers whether something was looked for in vain: what is missing may have
/// been written a moment ago, and then the answer is worth a short wait.
#[derive(Debug)]
pub struct View<'a> {
    directory: &'a Directory,
    missed: Cell<bool>,
}

impl<'a> View<'a> {
    /// Looks at a directory.
    #[must_use]
    pub fn new(directory: &'a Directory) -> Self {
        Self { directory, missed: Cell::new(false) }
    }

    /// Whether anything that was looked for is not there.
    #[must_use]
    pub fn missed(&self) -> bool {
        self.missed.get()
    }

    /// Whether what is not there does not exist, as far as anybody can know.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.directory.complete
    }

    /// The kinds besides Job and Pod whose objects are workloads.
    #[must_use]
    pub fn kinds(&self) -> &'a Kinds {
        &self.directory.kinds
    }

    /// Whether the API server knows PodGroups, of the version that is known here.
    #[must_use]
    pub fn pod_groups(&self) -> bool {
        self.directory.pod_groups
    }

    /// Whose a namespace is. The API server asks only about namespaces that carry the label, so one
    /// without a team is one whose label has not been seen yet.
    pub fn namespace(&self, name: &str) -> Option<&'a Membership> {
        self.noted(self.directory.namespaces.get(name))
    }

    /// A team.
    pub fn team(&self, name: &str) -> Option<&'a Team> {
        self.noted(self.directory.teams.get(name))
    }

    /// A queue of a team.
    pub fn queue(&self, team: &Team, name: &str) -> Option<Name> {
        let found = team.queues.iter().find(|queue| &*queue.name == name);
        self.noted(found.map(|queue| Arc::clone(&queue.name)))
    }

    /// Whether there is a pool of that name.
    pub fn pool(&self, name: &str) -> bool {
        name == DEFAULT_POOL || self.noted(self.directory.pools.get(name)).is_some()
    }

    /// What the nodes of a pool offer for a share of a GPU; many offer nothing.
    pub fn shares(&self, pool: &str) -> ResourceList {
        self.directory.shares.get(pool).cloned().unwrap_or_default()
    }

    /// The places of the pods of a Job by its UID. The API server asks only about pods that wait for one,
    /// so a Job that is not known is one whose admission has not been seen yet.
    pub fn places(&self, job: &str) -> Option<Arc<Seats>> {
        self.noted(self.directory.places.of(job))
    }

    /// Whether some pods of a Job's gang have succeeded.
    #[must_use]
    pub fn thinned(&self, job: &str) -> bool {
        self.directory.places.thinned(job)
    }

    /// The PriorityClass that a queue gives; many give none.
    pub fn priority_class(&self, team: &Name, queue: &Name) -> Option<Name> {
        self.directory.queue_priority_classes.get(&(Arc::clone(team), Arc::clone(queue))).cloned()
    }

    fn noted<T>(&self, found: Option<T>) -> Option<T> {
        if found.is_none() {
            self.missed.set(true);
        }
        found
    }
}
