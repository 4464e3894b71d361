//! The latest starts, which say how well earlier forecasts were.

use std::collections::VecDeque;

use crate::types::{Time, WorkloadId};

/// The most starts that are kept.
const MOST: usize = 4096;

/// The latest starts, the oldest first. No decision reads them.
#[derive(Clone, Debug, Default)]
pub struct Starts {
    latest: VecDeque<(WorkloadId, Time)>,
}

impl Starts {
    /// Takes note of a start at that time.
    pub fn note(&mut self, id: &WorkloadId, at: Time) {
        if self.latest.len() == MOST {
            self.latest.pop_front();
        }
        self.latest.push_back((id.clone(), at));
    }

    /// The latest starts, the oldest first.
    pub fn latest(&self) -> impl Iterator<Item = &(WorkloadId, Time)> {
        self.latest.iter()
    }
}
