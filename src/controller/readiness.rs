//! Readiness of a replica.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this replica can answer requests: its caches are full, it has a certificate, and it is not
/// shutting down.
#[derive(Debug, Default)]
pub struct Readiness {
    lists: AtomicBool,
    webhook: AtomicBool,
    ending: AtomicBool,
}

impl Readiness {
    /// Records that the first lists are complete; true on the first call.
    pub fn lists_complete(&self) -> bool {
        !self.lists.swap(true, Ordering::Relaxed)
    }

    /// Records that the webhook has its certificate.
    pub fn webhook_serves(&self) {
        self.webhook.store(true, Ordering::Relaxed);
    }

    /// Records that the replica shuts down.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Why the replica is not ready; `None` when it is.
    #[must_use]
    pub fn lacks(&self) -> Option<&'static str> {
        if self.ending.load(Ordering::Relaxed) {
            Some("Sluice is shutting down")
        } else if !self.lists.load(Ordering::Relaxed) {
            Some("the first lists of the cluster are not complete yet")
        } else if !self.webhook.load(Ordering::Relaxed) {
            Some("the webhook has no certificate yet")
        } else {
            None
        }
    }
}
