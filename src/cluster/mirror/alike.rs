//! What many workloads and pods have alike: shapes, profiles and names. Each is stored once, since most of the memory of a
//! waiting Job would be copies of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::target::Managed;
use super::super::target::pod::PodSeen;
use crate::engine::types::{Name, PodShape, Profile, Workload, WorkloadId};

/// The least number of values after which unused ones are looked for.
const SWEEP: usize = 1024;

/// The values of the cached objects.
#[derive(Debug, Default)]
pub(super) struct Alike {
    profiles: Stored<Profile>,
    shapes: Stored<PodShape>,
    names: Stored<str>,
}

impl Alike {
    /// Lets a pod share the stored copies.
    pub(super) fn share_pod(&mut self, seen: &mut PodSeen) {
        if let Some(profile) = seen.holds.as_mut().and_then(|holds| holds.profile.as_mut()) {
            self.profiles.share(profile);
        }
        if let Some(managed) = seen.managed.as_deref_mut() {
            let workload = Arc::make_mut(&mut managed.workload);
            self.profiles.share(&mut workload.profile);
            self.shapes.share(&mut workload.shape);
        }
    }

    /// Lets a Job, or an object of a custom kind, with this UID share the stored copies. Its pods have labels with its own name and
    /// UID, so its profile is its own, but for the names in it.
    pub(super) fn share_job(&mut self, uid: &Name, managed: &mut Managed) {
        managed.facts.uid = uid.clone();
        let own_names = [&mut managed.own_queue, &mut managed.class];
        own_names.into_iter().flatten().for_each(|name| self.names.share(name));
        let workload = Arc::make_mut(&mut managed.workload);
        workload.id = WorkloadId(uid.clone());
        self.shapes.share(&mut workload.shape);
        let Workload { namespace, name, user, pools, profile, .. } = workload;
        let several = pools.iter_mut().chain(user);
        several.chain([&mut *namespace]).for_each(|name| self.names.share(name));
        let profile = Arc::make_mut(profile);
        self.names.share(&mut profile.namespace);
        profile.labels = profile.labels.with_copies(|known| {
            let own = [uid, &*name].into_iter().find(|own| *own == known);
            let mut copy = own.unwrap_or(known).clone();
            if own.is_none() {
                self.names.share(&mut copy);
            }
            copy
        });
    }
}

/// Values that are stored once each.
#[derive(Debug)]
struct Stored<T: ?Sized> {
    known: BTreeSet<Arc<T>>,
    sweep_at: usize,
}

impl<T: ?Sized> Default for Stored<T> {
    fn default() -> Self {
        Self { known: BTreeSet::new(), sweep_at: SWEEP }
    }
}

impl<T: Ord + ?Sized> Stored<T> {
    /// Replaces a value by the stored copy of it.
    fn share(&mut self, value: &mut Arc<T>) {
        if let Some(known) = self.known.get(value) {
            *value = Arc::clone(known);
            return;
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|known| Arc::strong_count(known) > 1);
            self.sweep_at = SWEEP.max(2 * self.known.len());
        }
        self.known.insert(Arc::clone(value));
    }
}
