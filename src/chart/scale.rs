//! Marks on the axes of charts.

use super::units::{DAY, HOUR, MINUTE};

/// Round steps of time, in seconds.
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

/// The most marks on the time axis.
const MOST_TIMES: f64 = 9.0;

/// The most marks on the value axis.
const MOST_AMOUNTS: f64 = 4.0;

/// The times to mark up to `end`, in seconds.
pub fn times(end: f64) -> Vec<f64> {
    let coarse = STEPS.last().copied().unwrap_or(DAY);
    let step = STEPS.into_iter().find(|step| end / step < MOST_TIMES);
    marks(end, step.unwrap_or_else(|| coarse * (end / coarse / MOST_TIMES).ceil()))
}

/// The whole amounts to mark up to `most`.
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
    use super::super::units::span;
    use super::*;

    #[test]
    fn axes_have_marks_at_round_numbers() {
        assert_eq!(times(8.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(times(3_600.0).iter().map(|at| span(*at)).collect::<Vec<_>>()[..3], ["0s", "10m", "20m"]);
        assert_eq!(times(391_482.0).iter().map(|at| span(*at)).collect::<Vec<_>>()[..3], ["0s", "1d", "2d"]);
        assert!(times(1e12).len() <= 10);
        assert_eq!(amounts(1.0), [0.0, 1.0]);
        assert_eq!(amounts(64.0), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!(amounts(1_311.0), [0.0, 500.0, 1000.0]);
    }
}
