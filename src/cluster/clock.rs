//! The clock of the edge; the engine has none.

use crate::engine::types::Time;

/// The time on the wall.
#[must_use]
pub fn now() -> Time {
    Time(jiff::Timestamp::now().as_millisecond())
}
