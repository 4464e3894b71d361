//! Reported misplaced pods, and until when nodes are avoided.

use std::collections::{BTreeMap, BTreeSet};

use crate::types::{MisplacedPods, Time, WorkloadId};

/// Who has strayed, and until when nodes are avoided.
#[derive(Clone, Debug, Default)]
pub struct Misplaced {
    /// Told and not decided on yet.
    pub told: BTreeMap<WorkloadId, MisplacedPods>,
    /// When who may go back to the nodes it keeps off; may be out of date.
    pub until: BTreeSet<(Time, WorkloadId)>,
}

impl Misplaced {
    /// When the next may go back.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        self.until.first().map(|(until, _)| *until)
    }
}
