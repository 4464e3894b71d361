//! Ends, in order of time.

use std::collections::BTreeMap;

use crate::types::{Time, WorkloadId};

/// Which timer it is: when it fires, and its place among those of the same time.
pub type Key = (Time, u64);

/// What happens when a timer fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Pods end by themselves, with success.
    End,
    /// Ending pods are gone.
    Gone,
    /// The workload has run for as long as it may.
    Expired,
}

/// Pods of one workload to which the same happens at the same time.
#[derive(Clone, Debug)]
pub struct Timer {
    /// The workload.
    pub id: WorkloadId,
    /// The kind of end.
    pub due: Due,
    /// Which ones.
    pub pods: Vec<u32>,
}

/// All timers.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    set: BTreeMap<Key, Timer>,
    made: u64,
    /// How many of them are ends that pods come to by themselves.
    ends: usize,
}

impl Timers {
    /// Sets a timer.
    pub fn set(&mut self, at: Time, timer: Timer) -> Key {
        self.made += 1;
        let key = (at, self.made);
        self.ends += usize::from(timer.due == Due::End);
        self.set.insert(key, timer);
        key
    }

    /// Takes one pod off a timer; one without pods does not fire.
    pub fn drop_pod(&mut self, key: Key, pod: u32) {
        let Some(timer) = self.set.get_mut(&key) else { return };
        timer.pods.retain(|other| *other != pod);
        if timer.pods.is_empty() {
            self.ends -= usize::from(timer.due == Due::End);
            self.set.remove(&key);
        }
    }

    /// Takes a timer back.
    pub fn clear(&mut self, key: Key) {
        if let Some(timer) = self.set.remove(&key) {
            self.ends -= usize::from(timer.due == Due::End);
        }
    }

    /// Whether any pod comes to its end by itself.
    pub fn has_ends(&self) -> bool {
        self.ends > 0
    }

    /// When the next one fires.
    pub fn first(&self) -> Option<Time> {
        self.set.first_key_value().map(|((at, _), _)| *at)
    }

    /// The next one, if it fires at or before `now`.
    pub fn take_due(&mut self, now: Time) -> Option<Timer> {
        let first = self.set.first_entry()?;
        let timer = (first.key().0 <= now).then(|| first.remove())?;
        self.ends -= usize::from(timer.due == Due::End);
        Some(timer)
    }
}
