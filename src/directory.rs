//! What the webhook knows: which namespace belongs to which team, and which queues a team has.
//!
//! The watches replace it whole when one of these objects changes; the webhook reads it without a
//! lock, and can wait for the next one where what it looks for is not in this one yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::engine::amount::ResourceList;
use crate::engine::model::{Name, Team};
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

    /// Ends with the next replacement after this call, even if it is not polled before.
    pub fn replaced(&self) -> Notified<'_> {
        self.0.replaced.notified()
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
}

/// What a namespace's labels say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The team of everything in it.
    pub team: Name,
    /// The queue of what names none, if not the team's own default.
    pub queue: Option<Name>,
}
