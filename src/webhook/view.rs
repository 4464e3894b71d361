//! The directory during one review.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crate::api::caps::Caps;
use crate::api::names;
use crate::api::priority::{Class, twin_of};
use crate::api::seats::Seats;
use crate::directory::{Directory, Membership};
use crate::engine::types::amount::ResourceList;
use crate::engine::types::{DEFAULT_POOL, Name, Team, Workload};
use crate::faults::Fault;
use crate::kinds::Kinds;

/// What was not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// A name that a user has written, or the label of a namespace.
    Name,
    /// The nodes of an admitted Job's pods.
    Places,
}

/// A directory that records failed lookups.
///
/// A missing object may have been created a moment ago, so the review is repeated with the next directory.
#[derive(Debug)]
pub struct View<'a> {
    directory: &'a Directory,
    missed: Cell<Option<Missed>>,
}

impl<'a> View<'a> {
    /// A view without failed lookups.
    #[must_use]
    pub fn new(directory: &'a Directory) -> Self {
        Self { directory, missed: Cell::new(None) }
    }

    /// What a failed lookup was for.
    #[must_use]
    pub fn missed(&self) -> Option<Missed> {
        self.missed.get()
    }

    /// Whether the first lists are complete, so that a missing object does not exist.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.directory.complete
    }

    /// The directory itself.
    #[must_use]
    pub fn directory(&self) -> &'a Directory {
        self.directory
    }

    /// The faults of a Team. One may be that an object is missing which was created a moment ago.
    pub fn faults_of(&self, find: impl Fn(&Directory) -> Vec<Fault>) -> Vec<Fault> {
        let found = find(self.directory);
        if found.iter().any(|fault| matches!(fault.reason, "ParentNotFound" | "PoolNotFound")) {
            self.missed.set(self.missed.get().or(Some(Missed::Name)));
        }
        found
    }

    /// The custom kinds.
    #[must_use]
    pub fn kinds(&self) -> &'a Kinds {
        &self.directory.kinds
    }

    /// What a new workload may consist of.
    #[must_use]
    pub fn caps(&self) -> &'a Caps {
        &self.directory.caps
    }

    /// The longest termination grace period of a queue that has its own.
    #[must_use]
    pub fn grace(&self, team: &Name, queue: &Name) -> Option<Duration> {
        self.directory.graces.get(&(Arc::clone(team), Arc::clone(queue))).copied()
    }

    /// Whether the API server has PodGroups of the supported version.
    #[must_use]
    pub fn pod_groups(&self) -> bool {
        self.directory.pod_groups
    }

    /// The team of a namespace. The API server sends only reviews of labelled namespaces, so a missing entry means
    /// that the label has not been seen yet.
    pub fn namespace(&self, name: &str) -> Option<&'a Membership> {
        self.recorded(self.directory.namespaces.get(name))
    }

    /// A team.
    pub fn team(&self, name: &str) -> Option<&'a Team> {
        self.recorded(self.directory.teams.get(name))
    }

    /// A queue of a team.
    pub fn queue(&self, team: &Team, name: &str) -> Option<Name> {
        let found = team.queues.iter().find(|queue| &*queue.name == name);
        self.recorded(found.map(|queue| Arc::clone(&queue.name)))
    }

    /// Whether there is a pool of that name.
    pub fn pool(&self, name: &str) -> bool {
        name == DEFAULT_POOL || self.recorded(self.directory.pools.get(name)).is_some()
    }

    /// Why a new workload can never start, where the sizes of nodes, quotas and queues tell.
    #[must_use]
    pub fn never(&self, workload: &Workload) -> Option<String> {
        self.directory.ceilings.as_ref()?.never(workload, &self.directory.teams)
    }

    /// The devices that the nodes of a pool offer for a GPU fraction, each with its part of a GPU; often none.
    pub fn fraction_devices(&self, pool: &str) -> ResourceList {
        self.directory.shares.get(pool).cloned().unwrap_or_default()
    }

    /// The nodes of a Job's pods, by the UID of the Job. The API server sends only pods with the placement gate, so a
    /// missing entry means that the admission has not been seen yet.
    pub fn places(&self, job: &str) -> Option<Arc<Seats>> {
        self.recorded_as(Missed::Places, self.directory.places.of(job))
    }

    /// Whether some pods of a Job's gang have succeeded.
    #[must_use]
    pub fn has_succeeded_pods(&self, job: &str) -> bool {
        self.directory.places.thinned(job)
    }

    /// The default PriorityClass of a queue; often none.
    pub fn priority_class(&self, team: &Name, queue: &Name) -> Option<Name> {
        self.directory.queue_priority_classes.get(&(Arc::clone(team), Arc::clone(queue))).cloned()
    }

    /// Whether classes that preempt are replaced.
    #[must_use]
    pub fn replaces_classes(&self) -> bool {
        self.directory.classes.is_some()
    }

    /// The PriorityClass of pods that name none; often none.
    #[must_use]
    pub fn default_class(&self) -> Option<&'a str> {
        let mut classes = self.directory.classes.iter().flatten();
        classes.find(|(_, class)| class.global_default).map(|(name, _)| &**name)
    }

    /// A PriorityClass.
    pub fn class(&self, name: &str) -> Option<&'a Class> {
        self.recorded(self.directory.classes.as_ref().and_then(|classes| classes.get(name)))
    }

    /// Whether no class of this name exists, and Sluice will make none of it either.
    #[must_use]
    pub fn lacks_class(&self, name: &str) -> bool {
        let Some(classes) = self.directory.classes.as_ref().filter(|_| self.directory.complete) else {
            return false;
        };
        let is_to_come = || name == names::CLASS || classes.keys().any(|class| twin_of(class) == name);
        !classes.contains_key(name) && !is_to_come()
    }

    /// Whether there is a twin of this name for this class as it is now; an empty name stands for no class.
    pub fn twin_exists(&self, name: &str, class: &str) -> bool {
        let classes = self.directory.classes.as_ref();
        let value = if class.is_empty() { Some(0) } else { self.class(class).map(|class| class.value) };
        let twin = classes.and_then(|classes| classes.get(name));
        self.recorded(twin.filter(|twin| value.is_some_and(|value| twin.is_twin_of(class, value)))).is_some()
    }

    fn recorded<T>(&self, found: Option<T>) -> Option<T> {
        self.recorded_as(Missed::Name, found)
    }

    fn recorded_as<T>(&self, what: Missed, found: Option<T>) -> Option<T> {
        if found.is_none() {
            self.missed.set(Some(what));
        }
        found
    }
}
