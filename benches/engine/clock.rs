//! What a measurement counts as time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The processor time that this thread has had so far. The engine waits for nothing, so on an idle machine that
/// is the time that passes; on a busy one it leaves out what others take.
pub fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
