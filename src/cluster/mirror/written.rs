//! The objects of the kinds that a leader writes and decides on, with their versions.

use super::Mirror;
use crate::engine::types::Name;

/// A kind with objects that a leader writes and decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Written {
    /// Teams, by name: their statuses have the past usage.
    Team,
    /// Jobs, by UID.
    Job,
    /// Pods, by UID.
    Pod,
    /// The objects of a custom kind, by UID, with the index of the kind in the kinds table.
    Custom(usize),
}

impl Mirror {
    /// The newest version seen of an object, cached or not; `None` for one that is not there.
    #[must_use]
    pub fn version_of(&self, kind: Written, key: &str) -> Option<u64> {
        match kind {
            Written::Team => self.teams.version(key),
            Written::Job => self.jobs.version(key),
            Written::Pod => self.pods.version(key),
            Written::Custom(place) => self.ownership.tables.get(place)?.version(key),
        }
    }

    /// The keys of the cached objects of a kind.
    pub fn keys_of(&self, kind: Written) -> Box<dyn Iterator<Item = &Name> + '_> {
        match kind {
            Written::Team => Box::new(self.teams.iter().map(|(key, _)| key)),
            Written::Job => Box::new(self.jobs.iter().map(|(key, _)| key)),
            Written::Pod => Box::new(self.pods.iter().map(|(key, _)| key)),
            Written::Custom(place) => Box::new(
                self.ownership
                    .tables
                    .get(place)
                    .into_iter()
                    .flat_map(|table| table.iter().map(|(key, _)| key)),
            ),
        }
    }
}
