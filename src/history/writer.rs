//! The thread that writes: batches, tried again with rising pauses until the store takes them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::queue::{Counts, Signals};
use super::record::Fact;
use super::store::{Location, Store, StoreError};
use crate::engine::types::backoff;

/// The most facts of one batch.
const BATCH: usize = 2000;
/// How long a batch gathers.
const GATHER: Duration = Duration::from_millis(500);
/// The pauses between tries.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// How often room is made for one batch, before it is the disk itself that is full.
const TRIES_WHEN_FULL: u32 = 5;
/// How often old rows are deleted.
const CLEANING: Duration = Duration::from_secs(3600);
/// The steps of a pause, in which it notices that Sluice ends.
const STEP: Duration = Duration::from_millis(100);

/// Writes facts to one store.
pub struct Writer {
    location: Location,
    keep: Duration,
    counts: Counts,
    signals: Arc<Signals>,
    store: Option<Store>,
    cleaned: Option<Instant>,
}

impl Writer {
    pub fn new(location: Location, keep: Duration, counts: Counts, signals: Arc<Signals>) -> Self {
        Self { location, keep, counts, signals, store: None, cleaned: None }
    }

    /// Runs until all senders are gone.
    pub fn run(mut self, facts: &Receiver<Box<Fact>>) {
        loop {
            let first = match facts.recv_timeout(GATHER) {
                Ok(fact) => fact,
                Err(RecvTimeoutError::Timeout) => {
                    self.idle();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut batch = vec![*first];
            let until = Instant::now() + GATHER;
            while batch.len() < BATCH
                && let Ok(fact) = facts.recv_timeout(until.saturating_duration_since(Instant::now()))
            {
                batch.push(*fact);
            }
            self.deliver(&batch);
            self.counts.waiting.sub(i64::try_from(batch.len()).unwrap_or(i64::MAX));
        }
    }

    /// Opens the store before there is anything to write, and cleans it.
    fn idle(&mut self) {
        if self.store.is_none() && self.cleaned.is_some() {
            return;
        }
        if let Err(error) = self.clean() {
            self.down(&error);
            self.cleaned.get_or_insert_with(Instant::now);
        }
    }

    /// Writes a batch, however long it takes, unless Sluice ends.
    fn deliver(&mut self, batch: &[Fact]) {
        let mut batch = batch;
        let (first, longest) = PAUSES;
        for tries in 0.. {
            match self.write(batch) {
                Ok(()) => {
                    self.counts.written.inc_by(batch.len() as u64);
                    if tries > 0 {
                        tracing::info!(store = %self.location, "the history is written again");
                    }
                    // What was dropped meanwhile is taken from the objects.
                    if self.signals.lost.swap(false, Ordering::Relaxed) {
                        self.signals.refill.store(true, Ordering::Relaxed);
                    }
                    return;
                }
                Err(StoreError::Refused(problem)) => {
                    batch = self.give_up(batch, &problem);
                    if batch.is_empty() {
                        return;
                    }
                }
                Err(StoreError::Full) if tries < TRIES_WHEN_FULL => {
                    let now = jiff::Timestamp::now().as_millisecond();
                    let room = self.open().and_then(|store| store.make_room(now));
                    tracing::warn!(store = %self.location, made = room.is_ok(), "the history is full; its oldest part goes");
                    continue;
                }
                Err(error) => self.down(&error),
            }
            let until = Instant::now() + backoff(first, longest, tries);
            while Instant::now() < until {
                if self.signals.ends.load(Ordering::Relaxed) && tries > 0 {
                    self.counts.dropped.inc_by(batch.len() as u64);
                    return;
                }
                std::thread::sleep(STEP);
            }
        }
    }

    fn write(&mut self, batch: &[Fact]) -> Result<(), StoreError> {
        self.open()?.write(batch)?;
        self.counts.up.set(1);
        if self.cleaned.is_none_or(|at| at.elapsed() > CLEANING) {
            self.clean()?;
        }
        Ok(())
    }

    fn open(&mut self) -> Result<&mut Store, StoreError> {
        if self.store.is_none() {
            let store = Store::open(&self.location)?;
            tracing::info!(store = %self.location, "the history is open");
            self.store = Some(store);
            self.counts.up.set(1);
        }
        self.store.as_mut().ok_or_else(|| StoreError::Unavailable("not open".to_owned()))
    }

    fn clean(&mut self) -> Result<(), StoreError> {
        let now = jiff::Timestamp::now().as_millisecond();
        let keep = i64::try_from(self.keep.as_millis()).unwrap_or(i64::MAX);
        self.open()?.forget(now.saturating_sub(keep), now)?;
        self.cleaned = Some(Instant::now());
        Ok(())
    }

    /// The store does not take anything now.
    fn down(&mut self, error: &StoreError) {
        self.store = None;
        self.counts.up.set(0);
        tracing::warn!(store = %self.location, %error, "the history cannot be written; decisions go on");
    }

    /// A batch that will never be taken: its facts are tried one by one, and the bad ones dropped.
    /// Returns those that are left when the store takes none any more.
    fn give_up<'a>(&mut self, batch: &'a [Fact], problem: &str) -> &'a [Fact] {
        tracing::warn!(store = %self.location, problem, "the store refuses facts of the history");
        for (at, fact) in batch.iter().enumerate() {
            match self.write(std::slice::from_ref(fact)) {
                Ok(()) => self.counts.written.inc(),
                Err(StoreError::Refused(_)) => self.counts.dropped.inc(),
                Err(error) => {
                    self.down(&error);
                    return batch.get(at..).unwrap_or_default();
                }
            }
        }
        &[]
    }
}
