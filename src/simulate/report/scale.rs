//! How times and amounts are written and divided for the eye.

const MINUTE: f64 = 60.0;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;

/// Steps of time that people count in, in seconds.
const STEPS: [f64; 24] = [
    0.1,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    15.0,
    30.0,
    MINUTE,
    2.0 * MINUTE,
    5.0 * MINUTE,
    10.0 * MINUTE,
    15.0 * MINUTE,
    30.0 * MINUTE,
    HOUR,
    2.0 * HOUR,
    3.0 * HOUR,
    6.0 * HOUR,
    12.0 * HOUR,
    DAY,
    2.0 * DAY,
    7.0 * DAY,
    14.0 * DAY,
    28.0 * DAY,
];

/// More marks on the axis of time are hard to read.
const MOST_TIMES: f64 = 9.0;

/// More marks on the axis of amounts are hard to read.
const MOST_AMOUNTS: f64 = 4.0;

/// A span of seconds in its two largest units: `8s`, `20.5s`, `1m30s`, `2d3h`.
pub fn span(seconds: f64) -> String {
    if seconds < MINUTE {
        return format!("{}s", number(seconds));
    }
    // Rounded first, or 59.9 would be left of a minute.
    let whole = seconds.round();
    let units = [(DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (1.0, "s")];
    let first = units.iter().position(|(unit, _)| whole >= *unit).unwrap_or(0);
    let mut text = String::new();
    let mut left = whole;
    for (unit, name) in units.iter().skip(first).take(2) {
        let count = (left / unit).floor();
        left -= count * unit;
        if count > 0.0 {
            text.push_str(&format!("{count}{name}"));
        }
    }
    text
}

/// A number with at most one decimal.
pub fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map(ToOwned::to_owned).unwrap_or(text)
}

/// The times to mark between the beginning and `end`, in seconds.
pub fn times(end: f64) -> Vec<f64> {
    let coarse = STEPS.last().copied().unwrap_or(DAY);
    let step = STEPS.into_iter().find(|step| end / step < MOST_TIMES);
    marks(end, step.unwrap_or_else(|| coarse * (end / coarse / MOST_TIMES).ceil()))
}

/// The whole amounts to mark between nothing and `most`.
pub fn amounts(most: f64) -> Vec<f64> {
    let mut unit = 1.0;
    loop {
        let step =
            [1.0, 2.0, 5.0].into_iter().map(|digit| digit * unit).find(|step| most / step <= MOST_AMOUNTS);
        if let Some(step) = step {
            return marks(most, step);
        }
        unit *= 10.0;
    }
}

fn marks(end: f64, step: f64) -> Vec<f64> {
    (0..=64_u8).map(|index| f64::from(index) * step).take_while(|mark| *mark <= end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_in_two_units() {
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
    }

    #[test]
    fn axes_are_marked_at_round_numbers() {
        assert_eq!(times(8.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(times(3_600.0).iter().map(|at| span(*at)).collect::<Vec<_>>()[..3], ["0s", "10m", "20m"]);
        assert_eq!(times(391_482.0).iter().map(|at| span(*at)).collect::<Vec<_>>()[..3], ["0s", "1d", "2d"]);
        assert!(times(1e12).len() <= 10);
        assert_eq!(amounts(1.0), [0.0, 1.0]);
        assert_eq!(amounts(64.0), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(amounts(1_311.0), [0.0, 500.0, 1000.0]);
    }
}
