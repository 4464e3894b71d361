//! Points in time, and pauses between tries.

use std::time::Duration;

/// A point in time: milliseconds since the Unix epoch (or since the start of a simulation).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    /// The time `duration` later; the last representable time if that is out of range.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)))
    }

    /// The duration since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A duration as people read it, in its two largest units: `8s`, `1m30s`, `2d3h`. What is less is left out.
#[must_use]
pub fn span(duration: Duration) -> String {
    let whole = duration.as_secs();
    let first = UNITS.iter().position(|(unit, _)| whole >= *unit).unwrap_or(UNITS.len() - 1);
    let mut left = whole;
    let mut text = String::new();
    for (unit, name) in UNITS.iter().skip(first).take(2) {
        let count = left / unit;
        left %= unit;
        if count > 0 || text.is_empty() {
            text.push_str(&format!("{count}{name}"));
        }
    }
    text
}

/// The same of a time that is not to be exceeded: it is rounded up to the second of its units.
#[must_use]
pub fn span_at_most(duration: Duration) -> String {
    let whole = duration.as_secs().saturating_add(u64::from(duration.subsec_nanos() > 0));
    let second = UNITS.iter().skip_while(|(unit, _)| whole < *unit).nth(1).map_or(1, |(unit, _)| *unit);
    span(Duration::from_secs(whole.div_ceil(second).saturating_mul(second)))
}

/// The units of a span, in seconds.
const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];

/// The pause after `times` earlier failures: `first`, doubled with each failure, at most `longest`.
#[must_use]
pub fn backoff(first: Duration, longest: Duration, times: u32) -> Duration {
    first.saturating_mul(1 << times.min(16)).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        for (seconds, shown, at_most) in [
            (0, "0s", "0s"),
            (59, "59s", "59s"),
            (60, "1m", "1m"),
            (3_599, "59m59s", "59m59s"),
            (3_601, "1h", "1h1m"),
            (7_200, "2h", "2h"),
            (86_399, "23h59m", "1d"),
            (183_601, "2d3h", "2d4h"),
        ] {
            let duration = Duration::from_secs(seconds);
            assert_eq!((&*span(duration), &*span_at_most(duration)), (shown, at_most), "{seconds}");
        }
        assert_eq!(span_at_most(Duration::from_millis(59_001)), "1m");
        assert!(!span(Duration::MAX).is_empty() && !span_at_most(Duration::MAX).is_empty());
    }
}
