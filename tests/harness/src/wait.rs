//! Waiting for something to become true.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const PAUSE: Duration = Duration::from_millis(100);

/// Asks again and again until the answer is `Ok`; after `timeout` the error says what was last seen.
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
                bail!("waited {:.0?} in vain for this: {what}. Last seen: {seen}", began.elapsed());
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// How long to wait for what takes seconds, on a machine that may be busy.
#[must_use]
pub fn patience() -> Duration {
    Duration::from_secs(60)
}
