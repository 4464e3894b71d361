//! The history: every submission, admission, resize, eviction and end, what each run was charged for how long, and what teams used.
//!
//! It is for people, never for decisions. Each replica puts what it sees into a bounded queue and goes on; a thread of its own
//! of lower priority writes it. Facts have keys, so both replicas may write the same. What a store that is down has missed is taken from the
//! objects that still exist.

pub mod export;
pub mod generate;
mod merge;
pub mod query;
mod queue;
pub mod record;
pub mod store;
pub mod tracker;
mod writer;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub use self::merge::merge;
pub use self::queue::{Counts, Historian, counts};
use self::queue::{Signals, queue};
use self::store::Location;
use self::writer::Writer;
use crate::background;

/// The most facts that wait to be written.
pub const BACKLOG: usize = 100_000;
/// The time for what waits when Sluice ends.
const FLUSH: Duration = Duration::from_secs(3);
/// The file where there is no flag, if its directory is there.
const USUAL: &str = "/var/lib/sluice/history.db";

/// Options of the history.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Where the history is kept: a file of SQLite, a postgres:// URL, or off. By default /var/lib/sluice/history.db, if that
    /// directory is there. A password belongs into the environment variable, or into --history-password-file.
    #[arg(long, env = "SLUICE_HISTORY", hide_env_values = true, value_name = "FILE|URL|off")]
    pub history: Option<String>,
    /// How long the history is kept.
    #[arg(long, default_value = "90d", value_parser = keep, value_name = "DURATION")]
    pub history_keep: Duration,
    /// File with the password of the PostgreSQL server; read again for each connection.
    #[arg(long, value_name = "FILE")]
    pub history_password_file: Option<PathBuf>,
    /// File with further certificate authorities of the PostgreSQL server, in PEM; those of Mozilla are trusted always.
    #[arg(long, value_name = "FILE")]
    pub history_ca: Option<PathBuf>,
}

impl Options {
    /// Where the history is kept; `None` if it is not.
    ///
    /// # Errors
    /// One line that names the flag. It never holds a URL.
    pub fn location(&self) -> Result<Option<Location>, String> {
        let text = match self.history.as_deref() {
            Some("off") => return Ok(None),
            Some(text) => text,
            None => match directory(Path::new(USUAL)).is_dir() {
                true => USUAL,
                false => return Ok(None),
            },
        };
        let location = Location::parse(text).map_err(|problem| format!("--history: {problem}"))?;
        if let Location::File(file) = &location
            && !directory(file).is_dir()
        {
            return Err(format!("--history {}: there is no such directory", file.display()));
        }
        Ok(Some(location.with(self.history_password_file.clone(), self.history_ca.clone())))
    }
}

/// Reads a time to keep: days such as `90d`, or a duration.
fn keep(text: &str) -> Result<Duration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    let duration = match days {
        Some(days) => Duration::from_secs(u64::from(days) * 24 * 3600),
        None => crate::api::values::duration(text)?,
    };
    if duration < Duration::from_secs(3600) { Err("must be at least 1h".to_owned()) } else { Ok(duration) }
}

fn directory(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A number for a process, unique among the replicas and their restarts.
#[must_use]
pub fn session(identity: &str, started: i64) -> i64 {
    let mut hasher = DefaultHasher::new();
    identity.hash(&mut hasher);
    // Milliseconds and 10 bits of the name; positive.
    started
        .saturating_mul(1 << 10)
        .saturating_add(i64::try_from(hasher.finish() % (1 << 10)).unwrap_or(0))
        .max(1)
}

/// The thread that writes.
#[derive(Debug)]
pub struct Recording {
    thread: Option<std::thread::JoinHandle<()>>,
    signals: Arc<Signals>,
}

impl Recording {
    /// Waits for what is queued, a moment at most. Every historian must be gone by then.
    pub fn finish(self) {
        let Some(thread) = self.thread else { return };
        self.signals.ends.store(true, Ordering::Relaxed);
        let until = std::time::Instant::now() + FLUSH;
        while !thread.is_finished() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        if !thread.is_finished() {
            tracing::warn!("ending with facts that the history did not take");
        }
    }
}

/// Starts to write to a store, which need not be reachable yet.
///
/// # Errors
/// If the thread cannot be started.
pub fn start(
    location: Option<Location>,
    keep: Duration,
    counts: Counts,
) -> std::io::Result<(Historian, Recording)> {
    let signals = Arc::<Signals>::default();
    let Some(location) = location else {
        return Ok((Historian::off(counts), Recording { thread: None, signals }));
    };
    let (historian, receiver) = queue(BACKLOG, counts.clone(), Arc::clone(&signals));
    let writer = Writer::new(location, keep, counts, Arc::clone(&signals));
    let write = move || {
        background::lower();
        writer.run(&receiver);
    };
    let thread = std::thread::Builder::new().name("history".into()).spawn(write)?;
    Ok((historian, Recording { thread: Some(thread), signals }))
}

#[cfg(test)]
mod tests;
