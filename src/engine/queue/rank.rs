//! The order within a team: whoever has waited for longer than a queue that raises it wants, then queue
//! priority, then PriorityClass, then, where users take turns, whose user holds least, then submission time
//! (the place in the queue that an eviction does not take away), then the name in natural order.

use std::cmp::Reverse;

use crate::state::users::UserShare;
use crate::types::ids::{Priority, WorkloadIndex};
use crate::types::submission::SubmissionOrder;
use crate::types::{Time, Workload, WorkloadId};

/// A workload's rank inside its team; compares less when it goes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    raised: Reverse<bool>,
    priority: Reverse<Priority>,
    /// What its user holds; nothing inside a class, where all are of one user.
    held: UserShare,
    submission_order: SubmissionOrder,
    id: WorkloadId,
    /// Where its entry is; ranks differ before this.
    place: WorkloadIndex,
}

impl Rank {
    /// The rank of a workload of that queue priority and PriorityClass value, which is kept in that place.
    #[must_use]
    pub fn new(priority: Priority, workload: &Workload, place: WorkloadIndex) -> Self {
        let (submission_order, id) = (SubmissionOrder::of(workload), workload.id.clone());
        Self { raised: Reverse(false), priority: Reverse(priority), held: 0, submission_order, id, place }
    }

    /// This rank, before all that are not raised if it is.
    #[must_use]
    pub fn raised(self, raised: bool) -> Self {
        Self { raised: Reverse(raised), ..self }
    }

    /// This rank when its user holds so much.
    #[must_use]
    pub fn holding(self, held: UserShare) -> Self {
        Self { held, ..self }
    }

    /// Whose rank it is.
    #[must_use]
    pub fn id(&self) -> &WorkloadId {
        &self.id
    }

    /// Where its entry is kept.
    #[must_use]
    pub fn place(&self) -> WorkloadIndex {
        self.place
    }

    /// When it was submitted.
    #[must_use]
    pub fn submitted(&self) -> Time {
        self.submission_order.submitted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::PodShape;

    #[test]
    fn priority_goes_before_age_and_age_before_names() {
        let job = |time, name: &str| {
            Workload::job(&"team".into(), &name.into(), 1, PodShape::default(), Time(time))
        };
        let rank = |(queue, class), time, name| {
            Rank::new(Priority { queue, class }, &job(time, name), WorkloadIndex::MIN)
        };
        assert!(rank((1, 0), 5, "b") < rank((0, 9), 1, "a"));
        assert!(rank((0, 9), 5, "b") < rank((0, 1), 1, "a"));
        assert!(rank((0, 0), 1, "b") < rank((0, 0), 2, "a"));
        assert!(rank((0, 0), 1, "a") < rank((0, 0), 1, "b"));
    }
}
