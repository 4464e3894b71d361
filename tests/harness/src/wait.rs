//! Waiting for a condition.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const PAUSE: Duration = Duration::from_millis(100);

/// The longest time of a command on a running control plane. By itself one could wait for ever, for an answer or for the end
/// of an object.
pub(crate) const COMMAND: Duration = Duration::from_secs(180);

/// The longest time of one check: a request to the API server has no limit of its own.
const CHECK: Duration = Duration::from_secs(60);

/// Repeats the check until it returns `Ok`. The error after `timeout` contains the last failure. A check that does not
/// end is given up and repeated.
pub async fn eventually<T>(
    what: &str,
    timeout: Duration,
    mut question: impl AsyncFnMut() -> Result<T, String>,
) -> Result<T> {
    let began = Instant::now();
    loop {
        let answer = tokio::time::timeout(CHECK, question()).await;
        match answer.unwrap_or_else(|_| Err(format!("the check did not end within {CHECK:?}"))) {
            Ok(answer) => return Ok(answer),
            Err(seen) if began.elapsed() >= timeout => {
                bail!("timed out after {:.0?}, waiting for: {what}. Last seen: {seen}", began.elapsed());
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Timeout for steps that take seconds, on a machine that may be busy.
#[must_use]
pub fn patience() -> Duration {
    Duration::from_secs(60)
}
