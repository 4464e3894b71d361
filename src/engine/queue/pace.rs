//! How many borrowers search again for victims in a second.
//!
//! A borrower without victims may find some after almost any change, and only a search tells. Where thousands of classes wait in
//! a busy cluster, each end of a workload would make all of them search, and each search costs as much as the decision about the
//! end. So only some of them search again in each second, those first that have not for the longest time. Where they try many sets of
//! victims, fewer search in the next second, but always one. The second itself keeps its number: each that is among those first has
//! its turn in it, in whatever order they are attempted.

use std::time::Duration;

use crate::types::{SEARCHES_A_SECOND, Time};

const SECOND: Duration = Duration::from_secs(1);
/// So many sets count as a search: each takes about 25 µs of a processor.
const SETS_OF_A_SEARCH: u64 = 40;

/// How many classes of borrowers have searched again in the present second.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The most that may in one second.
    most: usize,
    /// When the first of them did, and the second began; `None` before any has.
    began: Option<Time>,
    /// How many may in this second.
    allowed: usize,
    searched: usize,
    /// How many sets of victims they have tried.
    sets: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self::of(SEARCHES_A_SECOND)
    }
}

impl Pace {
    /// A pace of that many searches in a second.
    pub fn of(most: usize) -> Self {
        Self { most, began: None, allowed: most, searched: 0, sets: 0 }
    }

    /// How many more may search at a time.
    pub fn left(&self, now: Time) -> usize {
        if self.is_over(now) { self.allowed_next() } else { self.allowed.saturating_sub(self.searched) }
    }

    /// Notes that some search.
    pub fn note(&mut self, searching: usize, now: Time) {
        if searching == 0 {
            return;
        }
        if self.is_over(now) {
            *self = Self {
                most: self.most,
                began: Some(now),
                allowed: self.allowed_next(),
                searched: 0,
                sets: 0,
            };
        }
        self.searched += searching;
    }

    /// Notes how many sets of victims one of them has tried.
    pub fn note_sets(&mut self, tried: u64) {
        self.sets = self.sets.saturating_add(tried);
    }

    /// When more may search, if none may at a time.
    pub fn next(&self, now: Time) -> Option<Time> {
        self.began.filter(|_| self.left(now) == 0).map(|began| began.after(SECOND))
    }

    /// How many may search in the next second: as many as cost what the most do, if they try as many sets as those of this second.
    fn allowed_next(&self) -> usize {
        let as_many = usize::try_from(self.sets / SETS_OF_A_SEARCH).unwrap_or(usize::MAX);
        let counted = self.searched.max(as_many);
        let fewer = self.most.saturating_mul(self.searched).checked_div(counted);
        fewer.map_or(self.most, |fewer| fewer.max(1).min(self.most))
    }

    /// Whether the second that was counted last is over. A clock that was set back ends it.
    fn is_over(&self, now: Time) -> bool {
        self.began.is_none_or(|began| now < began || now >= began.after(SECOND))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many may search in the second after one in which so many did, each with that many sets.
    fn after(searched: usize, sets: u64) -> usize {
        let mut pace = Pace::of(100);
        for _ in 0..searched {
            pace.note(1, Time(0));
            pace.note_sets(sets);
        }
        assert_eq!(pace.left(Time(999)), 100 - searched, "the second itself keeps its number");
        pace.left(Time(1_000))
    }

    #[test]
    fn fewer_search_after_a_second_in_which_each_has_tried_many_sets() {
        assert_eq!(after(100, 1), 100);
        assert_eq!(after(100, SETS_OF_A_SEARCH), 100);
        assert_eq!(after(100, 4 * SETS_OF_A_SEARCH), 25);
        assert_eq!(after(3, 4 * SETS_OF_A_SEARCH), 25);
        assert_eq!(after(100, u64::from(u32::MAX)), 1);
    }

    #[test]
    fn none_searches_again_at_a_pace_of_none() {
        let mut pace = Pace::of(0);
        pace.note(1, Time(0));
        pace.note_sets(1_000);
        assert_eq!(pace.left(Time(2_000)), 0);
    }
}
