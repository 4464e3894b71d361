//! Points in time, and pauses between tries.

use std::time::Duration;

/// A point in time: milliseconds since the Unix epoch (or since the start of a simulation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    /// The time `duration` later; the last representable time if that is out of range.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The duration since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// The pause after `times` earlier failures: `first`, doubled with each failure, at most `longest`.
#[must_use]
pub fn backoff(first: Duration, longest: Duration, times: u32) -> Duration {
    first.saturating_mul(1 << times.min(16)).min(longest)
}
