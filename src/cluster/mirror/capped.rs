//! Messages about workloads, reduced where these are above a cap, before anything of them is kept.

use super::super::table::Seen;
use super::super::target::pod::PodSeen;
use super::super::target::{JobSeen, Managed};
use super::Mirror;
use crate::api::caps::Caps;

/// What a watch has seen of an object that may be a workload.
pub(super) trait Workloads {
    fn managed_mut(&mut self) -> Option<&mut Managed>;
}

impl Workloads for JobSeen {
    fn managed_mut(&mut self) -> Option<&mut Managed> {
        self.managed.as_deref_mut()
    }
}

impl Workloads for PodSeen {
    fn managed_mut(&mut self) -> Option<&mut Managed> {
        self.managed.as_deref_mut()
    }
}

impl Mirror {
    /// The cache with these caps on waiting workloads.
    #[must_use]
    pub fn capped(self, caps: Caps) -> Self {
        Self { caps, ..self }
    }

    pub(super) fn within<T: Workloads>(&self, mut seen: T) -> T {
        if let Some(managed) = seen.managed_mut() {
            managed.keep_within(&self.caps);
        }
        seen
    }

    pub(super) fn message_within<T: Workloads>(&self, message: Seen<T>) -> Seen<T> {
        match message {
            Seen::Object(key, seen) => Seen::Object(key, self.within(seen)),
            other => other,
        }
    }
}
