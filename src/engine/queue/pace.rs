//! How many borrowers search again for victims in a second.
//!
//! A borrower without victims may find some after almost any change, and only a search tells. Where thousands of classes wait in
//! a busy cluster, each end of a workload would make all of them search, and each search costs as much as the decision about the
//! end. So only some of them search again in each second, those first that have not for the longest time.

use std::time::Duration;

use crate::types::{SEARCHES_A_SECOND, Time};

const SECOND: Duration = Duration::from_secs(1);

/// How many classes of borrowers have searched again in the present second.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The most that may in one second.
    most: usize,
    /// When the first of them did, and the second began; `None` before any has.
    began: Option<Time>,
    searched: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self::of(SEARCHES_A_SECOND)
    }
}

impl Pace {
    /// A pace of that many searches in a second.
    pub fn of(most: usize) -> Self {
        Self { most, began: None, searched: 0 }
    }

    /// How many more may search at a time.
    pub fn left(&self, now: Time) -> usize {
        if self.is_over(now) { self.most } else { self.most.saturating_sub(self.searched) }
    }

    /// Notes that some search.
    pub fn note(&mut self, searching: usize, now: Time) {
        if searching == 0 {
            return;
        }
        if self.is_over(now) {
            (self.began, self.searched) = (Some(now), 0);
        }
        self.searched += searching;
    }

    /// When more may search, if none may at a time.
    pub fn next(&self, now: Time) -> Option<Time> {
        self.began.filter(|_| self.left(now) == 0).map(|began| began.after(SECOND))
    }

    /// Whether the second that was counted last is over. A clock that was set back ends it.
    fn is_over(&self, now: Time) -> bool {
        self.began.is_none_or(|began| now < began || now >= began.after(SECOND))
    }
}
