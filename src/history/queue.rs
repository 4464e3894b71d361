//! The bounded queue between the loop and the thread that writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use prometheus::{IntCounter, IntGauge, Registry};

use super::record::Fact;

/// The metrics.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Facts written.
    pub written: IntCounter,
    /// Facts lost.
    pub dropped: IntCounter,
    /// Facts that wait.
    pub waiting: IntGauge,
    /// Whether the store takes what is written.
    pub up: IntGauge,
}

/// Registers the metrics.
///
/// # Errors
/// If the registry has them already.
pub fn counts(registry: &Registry) -> prometheus::Result<Counts> {
    let counts = Counts {
        written: IntCounter::new("sluice_history_written_total", "Facts that were written to the history.")?,
        dropped: IntCounter::new(
            "sluice_history_dropped_total",
            "Facts that the history lost because too many waited, or because its store refused them.",
        )?,
        waiting: IntGauge::new("sluice_history_waiting", "Facts that wait to be written to the history.")?,
        up: IntGauge::new(
            "sluice_history_up",
            "1 while the store of the history takes what is written, else 0.",
        )?,
    };
    registry.register(Box::new(counts.written.clone()))?;
    registry.register(Box::new(counts.dropped.clone()))?;
    registry.register(Box::new(counts.waiting.clone()))?;
    registry.register(Box::new(counts.up.clone()))?;
    Ok(counts)
}

/// What the writer and the loop tell each other.
#[derive(Debug, Default)]
pub struct Signals {
    /// Facts were dropped since the last batch.
    pub lost: AtomicBool,
    /// The store is back, and something was lost meanwhile.
    pub refill: AtomicBool,
    /// Sluice ends.
    pub ends: AtomicBool,
}

/// Takes facts. All clones feed one queue.
#[derive(Clone, Debug)]
pub struct Historian {
    sender: Option<SyncSender<Box<Fact>>>,
    counts: Counts,
    signals: Arc<Signals>,
}

impl Historian {
    /// One that keeps nothing.
    #[must_use]
    pub fn off(counts: Counts) -> Self {
        Self { sender: None, counts, signals: Arc::default() }
    }

    /// Whether anything is kept.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.sender.is_some()
    }

    /// Queues a fact; drops and counts it where too many wait.
    pub fn send(&self, fact: Fact) {
        let Some(sender) = &self.sender else { return };
        self.counts.waiting.inc();
        if sender.try_send(Box::new(fact)).is_err() {
            self.counts.waiting.dec();
            self.counts.dropped.inc();
            self.signals.lost.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the objects are to be written again, once after each loss.
    #[must_use]
    pub fn take_refill(&self) -> bool {
        self.signals.refill.load(Ordering::Relaxed) && self.signals.refill.swap(false, Ordering::Relaxed)
    }
}

/// A queue of so many facts, the historian that fills it, and its end. Its places take memory also while they are empty, so
/// they hold pointers: 100,000 facts in place would take 42 MB.
#[must_use]
pub fn queue(backlog: usize, counts: Counts, signals: Arc<Signals>) -> (Historian, Receiver<Box<Fact>>) {
    let (sender, receiver) = sync_channel(backlog);
    (Historian { sender: Some(sender), counts, signals }, receiver)
}
