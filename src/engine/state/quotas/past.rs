//! What a team borrowed in the past, half as much after each half-life. Every value follows from an anchor (an amount at
//! an instant), so it does not depend on how often time was let pass.

use std::time::Duration;

use crate::types::Time;
use crate::types::vector::Vector;

/// 2 to the power of −2⁻ᵏ for k = 1…32, in units of 2⁻⁶².
const ROOTS: [u128; 32] = {
    let mut roots = [0; 32];
    let mut root: u128 = 1 << 61;
    let mut k = 0;
    while k < roots.len() {
        root = (root << 62).isqrt();
        roots[k] = root;
        k += 1;
    }
    roots
};

/// The part of past usage that is left after `elapsed`, in units of 2⁻³².
fn remaining(elapsed: Duration, half_life: Duration) -> i128 {
    let (elapsed, half_life) = (elapsed.as_millis(), half_life.as_millis().max(1));
    let Ok(whole) = u32::try_from(elapsed / half_life) else { return 0 };
    // Both durations have at most 74 bits, and what is left of the division is less than the half-life.
    let within = ((elapsed % half_life) << 32) / half_life;
    let bits = ROOTS.iter().enumerate().filter(|(k, _)| within >> (31 - k) & 1 == 1);
    let part = bits.fold(1_u128 << 62, |part, (_, root)| (part * root) >> 62);
    i128::try_from((part >> 30).checked_shr(whole).unwrap_or(0)).unwrap_or(0)
}

/// `amount` × `part` ÷ 2³², rounded down. The amount has up to 97 bits, the part up to 33.
fn scaled(amount: i128, part: i128) -> i128 {
    let (high, low) = (amount >> 32, amount & i128::from(u32::MAX));
    high * part + ((low * part) >> 32)
}

/// The past borrowed usage of one team in one pool.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// The past usage at `anchored`, in units of 2⁻³² thousandths by resource number.
    anchor: Vec<i128>,
    anchored: Time,
    /// What the team has borrowed ever since `anchored`.
    borrowed: Vector,
    /// The past usage up to the last step.
    amounts: Vector,
    /// What was last written in the status of the team, and the time up to which it was decayed.
    written: Option<(Vector, Time)>,
    /// The same, decayed up to the last step.
    counted: Vector,
}

impl Past {
    /// The past usage with all that was observed, to be written.
    #[must_use]
    pub fn amounts(&self) -> &Vector {
        &self.amounts
    }

    /// The past usage that counts in fair shares: as it was last written, so that every replica counts the same. Before
    /// the first write it is the engine's own.
    #[must_use]
    pub fn counted(&self) -> &Vector {
        if self.written.is_some() { &self.counted } else { &self.amounts }
    }

    /// Lets time pass up to `now`; the team has borrowed `borrowed` since the last step, at `last`.
    pub(super) fn accrue(&mut self, borrowed: &Vector, last: Time, now: Time, half_life: Duration) {
        if !self.borrowed.equals(borrowed) {
            self.anchor = self.at(last, half_life);
            (self.anchored, self.borrowed) = (last, borrowed.clone());
        }
        for (index, past) in self.at(now, half_life).into_iter().enumerate() {
            self.amounts.set(index, i64::try_from(past >> 32).unwrap_or(i64::MAX));
        }
        self.count(now, half_life);
    }

    /// Takes note of what was written in the status of the team, decayed up to `at`.
    pub(super) fn note_written(&mut self, written: Vector, at: Time, now: Time, half_life: Duration) {
        self.written = Some((written, at));
        self.count(now, half_life);
    }

    /// Goes on from what was written; since then the team has borrowed `borrowed`.
    pub(super) fn adopt(
        &mut self,
        written: &Vector,
        borrowed: &Vector,
        at: Time,
        now: Time,
        half_life: Duration,
    ) {
        self.anchor = written.entries().map(|(_, milli)| i128::from(milli) << 32).collect();
        (self.anchored, self.borrowed, self.amounts) = (at, borrowed.clone(), Vector::default());
        self.accrue(borrowed, at, now, half_life);
    }

    /// The past usage at `time`, in units of 2⁻³² thousandths.
    fn at(&self, time: Time, half_life: Duration) -> Vec<i128> {
        let resources = self.anchor.len().max(self.borrowed.len());
        if resources == 0 {
            return Vec::new();
        }
        let remaining = remaining(time.since(self.anchored), half_life);
        let past = |index| {
            let borrowed = i128::from(self.borrowed.get(index)) << 32;
            // Of the difference, so that no product exceeds its type.
            borrowed + scaled(self.anchor.get(index).copied().unwrap_or(0) - borrowed, remaining)
        };
        (0..resources).map(past).collect()
    }

    fn count(&mut self, now: Time, half_life: Duration) {
        let Some((written, at)) = &self.written else { return };
        self.counted = Vector::default();
        if written.len() > 0 {
            let remaining = remaining(now.since(*at), half_life);
            for (index, milli) in written.entries() {
                let left = (i128::from(milli) * remaining) >> 32;
                self.counted.set(index, i64::try_from(left).unwrap_or(i64::MAX));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decay_is_exponential_and_has_no_steps() {
        let left = |seconds| remaining(Duration::from_secs(seconds), Duration::from_secs(600));
        assert_eq!(left(0), 1 << 32);
        assert_eq!(left(600), 1 << 31);
        // 2³² ÷ √2 and 2³² × 2^(−3/2)
        assert!((left(300) - 3_037_000_499).abs() <= 1, "{}", left(300));
        assert!((left(900) - 1_518_500_249).abs() <= 1, "{}", left(900));
        assert_eq!(left(u64::MAX), 0);
        assert!((0..6_000).all(|second| left(second) > left(second + 1)));
    }

    #[test]
    fn the_number_of_steps_changes_nothing() {
        let half_life = Duration::from_secs(600);
        let start = Time::default();
        let mut borrowed = Vector::default();
        borrowed.set(0, 4_000);
        let (mut one, mut many) = (Past::default(), Past::default());
        let end = start.after(Duration::from_secs(700));
        one.accrue(&borrowed, start, end, half_life);
        for second in 0..700 {
            let at = |second| start.after(Duration::from_secs(second));
            many.accrue(&borrowed, at(second), at(second + 1), half_life);
        }
        assert!(one.amounts().get(0) > 2_000);
        assert!(one.amounts().equals(many.amounts()), "{one:?} {many:?}");
    }
}
