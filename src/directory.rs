//! What the webhook knows: which namespace belongs to which team, and which queues a team has.
//!
//! The watches replace it whole when one of these objects changes; the webhook reads it without a
//! lock, so an answer never waits for anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::engine::model::{Name, Team};

/// The directory that readers share and the watches replace.
pub type SharedDirectory = Arc<ArcSwap<Directory>>;

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
    pub pools: std::collections::BTreeSet<Name>,
}

/// What a namespace's labels say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The team of everything in it.
    pub team: Name,
    /// The queue of what names none, if not the team's own default.
    pub queue: Option<Name>,
}
