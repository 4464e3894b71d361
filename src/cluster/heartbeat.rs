//! The heartbeat of the decision loop: a loop that hangs, or is busy for minutes, must not keep the lead.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The longest time without a beat while the lease is renewed. The loop beats once a second when nothing happens.
pub const RENEWED: Duration = Duration::from_secs(15);
/// The longest time without a beat before the process counts as dead and is started again.
pub const LIVES: Duration = Duration::from_secs(60);

/// When the decision loop last ran. Clones share it.
#[derive(Clone, Debug)]
pub struct Heartbeat(Arc<watch::Sender<Instant>>);

impl Default for Heartbeat {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Instant::now())))
    }
}

impl Heartbeat {
    /// Records that the loop runs.
    pub fn beat(&self) {
        self.0.send_replace(Instant::now());
    }

    /// Puts the last beat this far into the past.
    #[cfg(test)]
    pub(crate) fn stopped_since(&self, age: Duration) {
        self.0.send_replace(Instant::now().checked_sub(age).expect("the machine runs for longer"));
    }

    /// The time since the last beat; before the first one, since the loop was set up.
    #[must_use]
    pub fn age(&self) -> Duration {
        self.0.borrow().elapsed()
    }

    /// Why the process counts as dead; `None` while it lives.
    #[must_use]
    pub fn stopped(&self) -> Option<String> {
        let age = self.age();
        (age > LIVES).then(|| format!("the decision loop has not run for {} s", age.as_secs()))
    }
}
