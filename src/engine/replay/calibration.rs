//! How forecasts came true, and so how the next one is to be corrected.
//!
//! The quotient of the wait that came and the wait that was foretold is kept by the length of the predicted wait, of the
//! latest starts. A wait that already lasts longer than foretold counts as long as it lasts. The range of a forecast
//! is stretched to the first and ninth decile of the quotients. The likely start is moved only as far as needed for
//! one in four to be later, and one in four to be earlier: quotients of a few hundred starts say no more than that.

use std::collections::{BTreeMap, VecDeque};

use crate::engine::Engine;
use crate::replay::play::Eta;
use crate::types::{Time, WorkloadId};

/// The number of bands of foretold waits.
const BANDS: usize = 6;
/// The longest foretold wait of the first band, in milliseconds; each further band reaches to four times the last.
const FIRST: u64 = 40 * 60 * 1000;
/// Shorter waits count as one of this length, in milliseconds.
const SHORTEST: u64 = 60 * 1000;
/// How many quotients of a band are kept.
const KEPT: usize = 256;
/// The fewest quotients that correct a forecast.
const FEWEST: usize = 16;
/// The most waiting workloads of which forecasts are remembered.
const MOST_OPEN: usize = 8192;

/// A band, or all bands.
type Group = Option<usize>;

/// A forecast that has not come true yet.
#[derive(Clone, Debug)]
struct Promise {
    band: usize,
    asked: Time,
    /// The foretold wait, in milliseconds.
    wait: u64,
}

/// How forecasts came true.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    /// The first forecast of each band, of workloads that wait.
    open: BTreeMap<WorkloadId, Vec<Promise>>,
    /// Thousandths of the predicted waits.
    quotients: BTreeMap<Group, VecDeque<u64>>,
}

/// The quotients of one group: first decile, first and third quartile, ninth decile.
type Quantiles = Option<[u64; 4]>;

/// The corrections at one time.
#[derive(Debug)]
pub struct Corrections(BTreeMap<Group, Quantiles>);

impl Calibration {
    /// Takes note of the starts that the engine has seen.
    pub fn learn(&mut self, engine: &Engine) {
        for (id, at) in engine.latest_starts() {
            // A forecast made after that start is about the next one.
            let is_over = |promise: &Promise| promise.asked < *at;
            let Some(promises) = self.open.get_mut(id) else { continue };
            for promise in promises.extract_if(.., |promise| is_over(promise)) {
                let quotient = quotient(&promise, *at);
                for group in groups(promise.band) {
                    let kept = self.quotients.entry(group).or_default();
                    if kept.len() == KEPT {
                        kept.pop_front();
                    }
                    kept.push_back(quotient);
                }
            }
        }
        self.open.retain(|id, promises| !promises.is_empty() && engine.workload(id).is_some());
    }

    /// Remembers what was predicted at `now`, before its correction.
    pub fn remember(&mut self, id: &WorkloadId, eta: Eta, now: Time) {
        let Some(likely) = eta.likely else { return };
        if self.open.len() >= MOST_OPEN && !self.open.contains_key(id) {
            return;
        }
        let wait = wait_until(likely, now);
        let promise = Promise { band: band(wait), asked: now, wait };
        let promises = self.open.entry(id.clone()).or_default();
        if promises.iter().all(|known| known.band != promise.band) {
            promises.push(promise);
        }
    }

    /// The corrections of forecasts that are made at `now`.
    #[must_use]
    pub fn corrections(&self, now: Time) -> Corrections {
        let mut all: BTreeMap<Group, Vec<u64>> =
            self.quotients.iter().map(|(group, kept)| (*group, kept.iter().copied().collect())).collect();
        for promise in
            self.open.values().flatten().filter(|promise| wait_until(now, promise.asked) > promise.wait)
        {
            for group in groups(promise.band) {
                all.entry(group).or_default().push(quotient(promise, now));
            }
        }
        Corrections(
            all.into_iter().map(|(group, mut quotients)| (group, quantiles(&mut quotients))).collect(),
        )
    }
}

impl Corrections {
    /// A forecast made at `now`, as people are shown it.
    #[must_use]
    pub fn corrected(&self, eta: Eta, now: Time) -> Eta {
        let (Some(early), Some(likely), Some(late)) = (eta.early, eta.likely, eta.late) else { return eta };
        if likely <= now {
            return eta;
        }
        let wait = wait_until(likely, now);
        let found = groups(band(wait)).into_iter().find_map(|group| self.0.get(&group).copied().flatten());
        let Some([low, quarter, three_quarters, high]) = found else { return eta };
        let after = |thousandths: u64| {
            let wait = i64::try_from(wait.saturating_mul(thousandths) / 1000).unwrap_or(i64::MAX);
            Time(now.0.saturating_add(wait))
        };
        let likely = match (quarter > 1000, three_quarters < 1000) {
            (true, _) => after(quarter),
            (_, true) => after(three_quarters),
            _ => likely,
        };
        Eta {
            early: Some(early.min(after(low)).min(likely)),
            likely: Some(likely),
            late: Some(late.max(after(high)).max(likely)),
        }
    }
}

/// The groups of a forecast, the closest first.
fn groups(band: usize) -> [Group; 2] {
    [Some(band), None]
}

/// The wait of a forecast made at `now`, in milliseconds.
fn wait_until(likely: Time, now: Time) -> u64 {
    u64::try_from(likely.since(now).as_millis()).unwrap_or(u64::MAX).max(SHORTEST)
}

fn band(wait: u64) -> usize {
    let longest = |band: &usize| FIRST << (2 * band);
    (0..BANDS - 1).find(|band| wait <= longest(band)).unwrap_or(BANDS - 1)
}

/// Thousandths of the predicted wait that had passed at that time.
fn quotient(promise: &Promise, at: Time) -> u64 {
    let passed = u64::try_from(at.since(promise.asked).as_millis()).unwrap_or(u64::MAX);
    passed.saturating_mul(1000) / promise.wait
}

fn quantiles(quotients: &mut [u64]) -> Quantiles {
    quotients.sort_unstable();
    let at = |percent: usize| quotients[(quotients.len() * percent).div_ceil(100).max(1) - 1];
    (quotients.len() >= FEWEST).then(|| [10, 25, 75, 90].map(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: i64) -> Time {
        Time(seconds * 1000)
    }

    fn exactly(at: Time) -> Eta {
        Eta { early: Some(at), likely: Some(at), late: Some(at) }
    }

    fn of(quotients: impl Iterator<Item = u64>) -> Corrections {
        let group = Some(band(3_600_000));
        Corrections([(group, quantiles(&mut quotients.collect::<Vec<u64>>()))].into())
    }

    #[test]
    fn the_range_is_stretched_and_the_likely_start_moved_as_little_as_needed() {
        let told = |quotients: std::ops::Range<u64>| {
            let step = usize::try_from(quotients.end - quotients.start).expect("small") / 100;
            let corrections = of(quotients.step_by(step));
            let eta = corrections.corrected(exactly(seconds(3_600)), seconds(0));
            [eta.early, eta.likely, eta.late].map(|time| time.map_or(0, |time| time.0 / 3_600))
        };
        assert_eq!(told(500..1500), [590, 1000, 1390]);
        assert_eq!(told(2000..3000), [1000, 2240, 2890]);
        assert_eq!(told(0..400), [36, 296, 1000]);
    }

    #[test]
    fn a_few_starts_correct_nothing() {
        let eta = exactly(seconds(3_600));
        assert_eq!(of(std::iter::repeat_n(3000, FEWEST - 1)).corrected(eta, seconds(0)), eta);
        assert_ne!(of(std::iter::repeat_n(3000, FEWEST)).corrected(eta, seconds(0)), eta);
    }

    #[test]
    fn a_wait_that_outlasts_its_forecast_counts_before_it_ends() {
        let mut calibration = Calibration::default();
        for id in 0..FEWEST {
            let id = WorkloadId(id.to_string().into());
            calibration.remember(&id, exactly(seconds(3_600)), seconds(0));
        }
        let told = |now| {
            let eta = exactly(Time(now + 3_600_000));
            calibration.corrections(Time(now)).corrected(eta, Time(now)).likely
        };
        assert_eq!(told(3_600_000), Some(seconds(2 * 3_600)));
        assert_eq!(told(7_200_000), Some(seconds(4 * 3_600)));
    }
}
