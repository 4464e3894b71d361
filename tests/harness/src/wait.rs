//! Waiting for a condition.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const PAUSE: Duration = Duration::from_millis(100);

/// Repeats the check until it returns `Ok`. The error after `timeout` contains the last failure.
pub async fn eventually<T>(
    what: &str,
    timeout: Duration,
    mut question: impl AsyncFnMut() -> Result<T, String>,
) -> Result<T> {
    let began = Instant::now();
    loop {
        match question().await {
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
