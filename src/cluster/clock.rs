//! The wall clock of the adapters; the engine has no clock.

use crate::engine::types::Time;

/// The current time.
#[must_use]
pub fn now() -> Time {
    Time(jiff::Timestamp::now().as_millisecond())
}
