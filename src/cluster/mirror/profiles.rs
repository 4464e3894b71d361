//! The profiles of pods, each stored once: the pods of a workload, and most pods of a cluster, have few of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::target::pod::PodSeen;
use crate::engine::types::Profile;

/// The least number of profiles after which unused ones are looked for.
const SWEEP: usize = 1024;

/// The profiles of the cached pods.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    known: BTreeSet<Arc<Profile>>,
    sweep_at: usize,
}

impl Profiles {
    /// Lets a pod share the stored copy of its profile.
    pub(super) fn share(&mut self, seen: &mut PodSeen) {
        if let Some(profile) = seen.holds.as_mut().and_then(|holds| holds.profile.as_mut()) {
            *profile = self.stored(profile);
        }
        if let Some(managed) = seen.managed.as_deref_mut() {
            managed.workload.profile = self.stored(&managed.workload.profile);
        }
    }

    fn stored(&mut self, profile: &Arc<Profile>) -> Arc<Profile> {
        if let Some(known) = self.known.get(profile) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.sweep_at.max(SWEEP) {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.sweep_at = 2 * self.known.len();
        }
        self.known.insert(Arc::clone(profile));
        Arc::clone(profile)
    }
}
