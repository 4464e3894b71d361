//! Whether a replica is fit to be asked.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this replica can answer: only with a full view of the cluster, and not while it ends.
#[derive(Debug, Default)]
pub struct Readiness {
    lists: AtomicBool,
    webhook: AtomicBool,
    ending: AtomicBool,
}

impl Readiness {
    /// The first lists are complete; true when that is news.
    pub fn lists_complete(&self) -> bool {
        !self.lists.swap(true, Ordering::Relaxed)
    }

    /// The webhook has its certificate.
    pub fn webhook_serves(&self) {
        self.webhook.store(true, Ordering::Relaxed);
    }

    /// The end is near.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Why it is not ready; `None` when it is.
    #[must_use]
    pub fn lacks(&self) -> Option<&'static str> {
        if self.ending.load(Ordering::Relaxed) {
            Some("it is ending")
        } else if !self.lists.load(Ordering::Relaxed) {
            Some("the cluster has not been read yet")
        } else if !self.webhook.load(Ordering::Relaxed) {
            Some("the webhook has no certificate yet")
        } else {
            None
        }
    }
}
