//! A bounded number of Events: so many at once, and then one more in each interval.

use std::time::Duration;

use crate::engine::types::Time;

/// How many Events of a kind may be published.
#[derive(Debug)]
pub struct Allowance {
    most: u32,
    every: Duration,
    /// The Events published since the allowance was full, and the time up to which they are taken off again.
    spent: u32,
    refilled: Time,
}

impl Allowance {
    /// At most `most` at once, and one more in each interval.
    pub fn new(most: u32, every: Duration) -> Self {
        Self { most, every, spent: 0, refilled: Time(0) }
    }

    /// Takes what time allows off the Events published.
    pub fn refill(&mut self, now: Time) {
        let allowed = now.since(self.refilled).as_millis() / self.every.as_millis().max(1);
        if allowed > 0 {
            self.spent = self.spent.saturating_sub(u32::try_from(allowed).unwrap_or(u32::MAX));
            self.refilled = now;
        }
    }

    /// Whether nothing is left.
    pub fn is_spent(&self) -> bool {
        self.spent >= self.most
    }

    /// Counts Events.
    pub fn spend(&mut self, events: usize) {
        self.spent = self.spent.saturating_add(u32::try_from(events).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_comes_back_with_time() {
        let mut allowance = Allowance::new(100, Duration::from_millis(200));
        allowance.spend(100);
        assert!(allowance.is_spent());
        allowance.refill(Time(1_000));
        assert_eq!((allowance.spent, allowance.is_spent()), (95, false));
        allowance.refill(Time(1_100));
        assert_eq!((allowance.spent, allowance.refilled), (95, Time(1_000)));
        allowance.refill(Time(3_600_000));
        assert_eq!(allowance.spent, 0);
    }
}
