//! Times and numbers as people write them.

use std::time::Duration;

use crate::engine::types;

/// The seconds of a minute.
pub const MINUTE: f64 = 60.0;
/// The seconds of an hour.
pub const HOUR: f64 = 60.0 * MINUTE;
/// The seconds of a day.
pub const DAY: f64 = 24.0 * HOUR;

/// Seconds in their two largest units: `8s`, `20.5s`, `1m30s`, `2d3h`.
#[must_use]
pub fn span(seconds: f64) -> String {
    if seconds < MINUTE {
        return format!("{}s", number(seconds));
    }
    // Rounded first, or 59.9 s would remain of a minute.
    Duration::try_from_secs_f64(seconds.round()).map(types::span).unwrap_or_default()
}

/// Whole seconds in their two largest units, nothing less than zero: `40m`, `3d7h`.
#[must_use]
pub fn whole_span(seconds: i64) -> String {
    span(float(seconds.max(0)))
}

/// Seconds as a number for charts.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "seconds that people read")]
pub fn float(whole: i64) -> f64 {
    whole as f64
}

/// GPU-seconds, from an hour on as GPU-hours: `24 GPU-s`, `708.6 GPU-h`.
#[must_use]
pub fn gpu_time(gpu_seconds: f64) -> String {
    if gpu_seconds < HOUR {
        format!("{gpu_seconds:.0} GPU-s")
    } else {
        format!("{} GPU-h", number(gpu_seconds / HOUR))
    }
}

/// A count as a floating-point number, for means and charts.
#[expect(clippy::cast_precision_loss, reason = "a count of workloads, shown to people")]
pub fn count(number: usize) -> f64 {
    number as f64
}

/// A number with at most one decimal.
pub fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(ToOwned::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        for (seconds, text) in [
            (0.0, "0s"),
            (20.5, "20.5s"),
            (60.0, "1m"),
            (90.0, "1m30s"),
            (3_599.7, "1h"),
            (7_260.0, "2h1m"),
            (391_482.0, "4d12h"),
        ] {
            assert_eq!(span(seconds), text, "{seconds}");
        }
        for (seconds, text) in [(-5, "0s"), (59, "59s"), (2_400, "40m"), (7_200, "2h"), (287_174, "3d7h")] {
            assert_eq!(whole_span(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn gpu_time_is_in_hours_from_one_hour_on() {
        for (seconds, text) in [(0.0, "0 GPU-s"), (24.2, "24 GPU-s"), (2_550_853.0, "708.6 GPU-h")] {
            assert_eq!(gpu_time(seconds), text);
        }
    }
}
