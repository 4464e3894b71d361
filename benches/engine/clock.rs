//! The clock of a measurement.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Processor time of this thread. The engine never waits, so on an idle machine it equals elapsed time; on a
/// busy one it excludes other load.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
