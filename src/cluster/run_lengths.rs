//! The run lengths in the status of a Team: written, compared and read back.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::team::{RunLength, TeamStatus};
use crate::engine::types::{ClassLengths, Name, QUANTILES, RunLengths};

/// The most runs that one class stands for.
const MOST_RUNS: i64 = 1_000_000;

/// The classes as a status has them.
#[must_use]
pub fn written(lengths: &RunLengths) -> Vec<RunLength> {
    let whole = |value: u64, unit: u64| i64::try_from(value.div_ceil(unit)).unwrap_or(i64::MAX);
    let class = |class: &ClassLengths| RunLength {
        queue: class.queue.as_ref().map(ToString::to_string),
        milli_devices: class.devices,
        runs: i64::try_from(class.runs).unwrap_or(i64::MAX),
        seconds: class.lengths.iter().map(|millis| whole(*millis, 1000)).collect(),
        limited: i64::try_from(class.limited).unwrap_or(i64::MAX),
        per_mille_of_limit: class.fractions.iter().map(|millionths| whole(*millionths, 1000)).collect(),
    };
    lengths.classes.iter().map(class).collect()
}

/// The run lengths of a status; `None` before the first write. What cannot be read there counts as none.
#[must_use]
pub fn read(team: &str, status: &TeamStatus) -> Option<RunLengths> {
    status.run_lengths_at.as_ref()?;
    let values = |values: &[i64]| {
        let read = values.iter().take(QUANTILES).filter_map(|value| u64::try_from(*value).ok());
        read.map(|value| value.saturating_mul(1000)).collect::<Vec<u64>>()
    };
    let count = |count: i64| usize::try_from(count.clamp(0, MOST_RUNS)).unwrap_or_default();
    let class = |class: &RunLength| ClassLengths {
        queue: class.queue.as_deref().map(Name::from),
        devices: class.milli_devices.map(|devices| devices.max(0)),
        runs: count(class.runs),
        lengths: values(&class.seconds),
        limited: count(class.limited),
        fractions: values(&class.per_mille_of_limit),
    };
    Some(RunLengths { team: team.into(), classes: status.run_lengths.iter().map(class).collect() })
}

/// Whether a decile of a class has moved by one per cent, or a class has come or gone.
#[must_use]
pub fn moved(before: &TeamStatus, now: &TeamStatus) -> bool {
    type Key<'a> = (Option<&'a str>, Option<i64>);
    fn by_class(status: &TeamStatus) -> BTreeMap<Key<'_>, &RunLength> {
        status
            .run_lengths
            .iter()
            .map(|class| ((class.queue.as_deref(), class.milli_devices), class))
            .collect()
    }
    let (was, is) = (by_class(before), by_class(now));
    was.len() != is.len()
        || is.iter().any(|(key, is)| {
            was.get(key).is_none_or(|was| {
                apart(&was.seconds, &is.seconds) || apart(&was.per_mille_of_limit, &is.per_mille_of_limit)
            })
        })
}

/// Whether a decile of one list differs by one per cent from that of the other.
fn apart(was: &[i64], is: &[i64]) -> bool {
    let decile = |values: &[i64], tenths: usize| {
        let rank = (values.len() * tenths).div_ceil(10).max(1) - 1;
        values.get(rank).copied().map(i128::from)
    };
    [1, 5, 9].into_iter().any(|tenths| match (decile(was, tenths), decile(is, tenths)) {
        (Some(was), Some(is)) => was != is && (is - was).abs() * 100 >= was.abs(),
        (was, is) => was != is,
    })
}

/// Leaves the run lengths of a status as they were written last, with their time.
pub fn keep(status: &mut TeamStatus, before: &TeamStatus) {
    status.run_lengths = before.run_lengths.clone();
    status.run_lengths_at = before.run_lengths_at.clone();
}

/// Fills in the run lengths of a team at `now`.
pub fn fill_in(status: &mut TeamStatus, lengths: Option<&RunLengths>, now: &Time) {
    let Some(lengths) = lengths.filter(|lengths| !lengths.classes.is_empty()) else { return };
    status.run_lengths = written(lengths);
    status.run_lengths_at = Some(now.clone());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(lengths: &[u64]) -> TeamStatus {
        let lengths: Vec<u64> = lengths.iter().map(|seconds| seconds * 1000).collect();
        let class = ClassLengths {
            queue: Some("train".into()),
            devices: Some(8000),
            runs: lengths.len(),
            lengths,
            ..ClassLengths::default()
        };
        let mut status = TeamStatus::default();
        let at = Time(k8s_openapi::jiff::Timestamp::default());
        let lengths = RunLengths { team: "vision".into(), classes: vec![class] };
        fill_in(&mut status, Some(&lengths), &at);
        assert_eq!(read("vision", &status), Some(lengths));
        status
    }

    #[test]
    fn a_decile_that_moves_by_a_hundredth_is_written() {
        let first = status(&[1000, 2000, 3000]);
        assert!(!moved(&first, &first));
        assert!(!moved(&first, &status(&[1009, 2000, 3000])));
        assert!(moved(&first, &status(&[1010, 2000, 3000])));
        assert!(moved(&first, &status(&[1000, 2000, 2900])));
        assert!(moved(&first, &TeamStatus::default()));
        assert!(moved(&TeamStatus::default(), &first));
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        assert_eq!(read("vision", &TeamStatus::default()), None);
        let mut status = status(&[5, 6]);
        status.run_lengths[0].seconds = vec![-1, 7];
        status.run_lengths[0].runs = -3;
        let read = read("vision", &status).expect("written");
        assert_eq!((read.classes[0].runs, read.classes[0].lengths.clone()), (0, vec![7000]));
    }
}
