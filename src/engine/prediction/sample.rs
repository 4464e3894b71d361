//! The latest runs of one class, and their quantiles.

use std::collections::VecDeque;

use crate::types::QUANTILES;

/// How many runs of a class are kept.
pub const KEPT: usize = 64;

/// The latest runs of a class, in milliseconds or in millionths of their limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    recent: VecDeque<u64>,
    sorted: Vec<u64>,
}

impl Sample {
    /// Adds a run; beyond [`KEPT`] the oldest one is dropped.
    pub fn add(&mut self, run: u64) {
        if self.recent.len() == KEPT
            && let Some(oldest) = self.recent.pop_front()
        {
            self.sorted.remove(self.sorted.partition_point(|known| *known < oldest));
        }
        self.recent.push_back(run);
        self.sorted.insert(self.sorted.partition_point(|known| *known < run), run);
    }

    /// The number of runs.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// The runs longer than `elapsed`, the shortest first.
    pub fn longer_than(&self, elapsed: u64) -> &[u64] {
        &self.sorted[self.sorted.partition_point(|known| *known <= elapsed)..]
    }

    /// At most [`QUANTILES`] runs that stand for all, the shortest first: the middle of each of as many groups of equal size.
    pub fn quantiles(&self) -> Vec<u64> {
        let (all, groups) = (self.sorted.len(), self.sorted.len().min(QUANTILES));
        let first = |group: usize| (group * all).div_ceil(groups);
        (0..groups).map(|group| self.sorted[usize::midpoint(first(group), first(group + 1) - 1)]).collect()
    }

    /// The sample of that many runs for which the quantiles stand.
    pub fn of_quantiles(runs: usize, quantiles: &[u64]) -> Self {
        let runs = runs.min(KEPT);
        let mut quantiles: Vec<u64> = quantiles.iter().copied().take(QUANTILES.min(runs)).collect();
        quantiles.sort_unstable();
        if quantiles.is_empty() {
            return Self::default();
        }
        let sorted: Vec<u64> = (0..runs).map(|run| quantiles[run * quantiles.len() / runs]).collect();
        // Spread over the order of their ends, so that what is dropped first is no end of the range.
        let recent = (0..7.min(runs)).flat_map(|first| sorted.iter().skip(first).step_by(7)).copied();
        Self { recent: recent.collect(), sorted }
    }
}

/// The smallest of the sorted values that at least `numerator` of `denominator` values do not exceed.
pub fn quantile(sorted: &[u64], numerator: usize, denominator: usize) -> u64 {
    let rank = (sorted.len() * numerator).div_ceil(denominator).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let values: Vec<u64> = (1..=10).collect();
        assert_eq!(quantile(&values, 1, 2), 5);
        assert_eq!(quantile(&values, 9, 10), 9);
        assert_eq!(quantile(&values[..1], 9, 10), 1);
        assert_eq!(quantile(&values[..5], 1, 2), 3);
    }

    #[test]
    fn only_the_latest_runs_are_kept() {
        let mut runs = Sample::default();
        for run in 0..200 {
            runs.add(run % 100);
        }
        let expected: Vec<u64> = (36..100).collect();
        assert_eq!(runs.sorted, expected);
        assert_eq!(runs.longer_than(95), &[96, 97, 98, 99]);
        assert!(runs.longer_than(99).is_empty());
    }

    #[test]
    fn few_runs_survive_their_quantiles_and_many_nearly() {
        for count in 0..=KEPT {
            let mut runs = Sample::default();
            (0..count as u64).for_each(|run| runs.add(run * 100));
            let back = Sample::of_quantiles(runs.len(), &runs.quantiles());
            assert_eq!(back.len(), count);
            let off = runs.sorted.iter().zip(&back.sorted).map(|(one, other)| one.abs_diff(*other)).max();
            assert!(off.unwrap_or(0) <= if count <= QUANTILES { 0 } else { 200 }, "{count}: {off:?}");
            let mut recent: Vec<u64> = back.recent.iter().copied().collect();
            recent.sort_unstable();
            assert_eq!(recent, back.sorted);
            assert_eq!(Sample::of_quantiles(count, &back.quantiles()).sorted, back.sorted);
        }
        assert_eq!(Sample::of_quantiles(5, &[]), Sample::default());
    }
}
