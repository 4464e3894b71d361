//! Work that takes much of a processor and for which no decision waits, such as forecasts, on threads of lower priority.
//!
//! Decisions, admission reviews and writes of the same process get the processor first. So do other processes, where the
//! kernel shares a processor by threads and not by containers.

use std::panic::resume_unwind;

use tokio::task::JoinHandle;

/// The priority of these threads, as a nice value: beside others they get a tenth of a processor, and all that is idle.
const NICE: i32 = 10;

/// Does the work on a thread of its own, like [`tokio::task::spawn_blocking`]. A priority that is lowered cannot be raised
/// again without rights, so the thread ends with its work.
///
/// # Panics
/// Where a thread cannot be started, the work panics: its handle says so.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    // The thread that waits belongs to the runtime, which so knows of work that is under way.
    tokio::task::spawn_blocking(move || {
        let lowered = move || {
            lower();
            work()
        };
        std::thread::scope(|scope| scope.spawn(lowered).join()).unwrap_or_else(|panic| resume_unwind(panic))
    })
}

/// Gives the thread that asks the lower priority, until it ends.
pub fn lower() {
    // Without a process, Linux changes the thread that asks.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "cannot lower the priority of a thread");
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[tokio::test]
    async fn work_in_the_background_has_a_lower_priority_and_nothing_else_has() {
        let before = getpriority_process(None).expect("a priority");
        let inside = spawn(|| getpriority_process(None)).await.expect("no panic");
        assert_eq!(inside.expect("a priority"), NICE);
        assert_eq!(getpriority_process(None).expect("a priority"), before);
        let pool = tokio::task::spawn_blocking(|| getpriority_process(None)).await.expect("no panic");
        assert_eq!(pool.expect("a priority"), before, "the threads of the runtime keep theirs");
    }

    #[tokio::test]
    async fn a_panic_in_the_background_is_that_of_its_handle() {
        let ended = spawn(|| panic!("as work might")).await;
        assert!(ended.expect_err("it panicked").is_panic());
    }
}
