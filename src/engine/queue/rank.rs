//! The order within a team (law 9): raised workloads first, then queue priority, then PriorityClass, then the order that
//! the managers of the team give, then the smallest usage of the user where the team orders its users by usage, then submission order, in which a user may
//! exchange the places of own workloads.
//!
//! A queue raises workloads that have waited for longer than it allows. An eviction does not change the
//! submission time.

use std::cmp::Reverse;

use crate::state::users::UserShare;
use crate::types::ids::{Priority, WorkloadIndex};
use crate::types::submission::SubmissionOrder;
use crate::types::{Time, Workload, WorkloadId};

/// A workload's rank inside its team. The smaller rank comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    raised: Reverse<bool>,
    priority: Reverse<Priority>,
    /// The order that the managers of the team give.
    team_order: Reverse<i32>,
    /// The usage of its user. Zero inside a class: its workloads have the same user.
    user_usage: UserShare,
    submission_order: SubmissionOrder,
    id: WorkloadId,
    /// The index of its info. Two ranks always differ in a field above.
    index: WorkloadIndex,
}

impl Rank {
    /// The rank of a workload with that queue priority and PriorityClass value.
    #[must_use]
    pub fn new(priority: Priority, workload: &Workload, index: WorkloadIndex) -> Self {
        let (submission_order, id) = (SubmissionOrder::of(workload), workload.id.clone());
        Self {
            raised: Reverse(false),
            priority: Reverse(priority),
            team_order: Reverse(workload.team_order),
            user_usage: 0,
            submission_order,
            id,
            index,
        }
    }

    /// This rank, before all ranks that are not raised if `raised` is set.
    #[must_use]
    pub fn raised(self, raised: bool) -> Self {
        Self { raised: Reverse(raised), ..self }
    }

    /// This rank with that usage of its user.
    #[must_use]
    pub fn with_user_usage(self, user_usage: UserShare) -> Self {
        Self { user_usage, ..self }
    }

    /// This rank in the place of another workload of its user, if it has one.
    #[must_use]
    pub fn in_place(self, place: Option<&SubmissionOrder>) -> Self {
        match place {
            Some(place) => Self { submission_order: place.clone(), ..self },
            None => self,
        }
    }

    /// Whether it comes before another rank whatever their users use, because it is raised, of higher priority or ordered
    /// before it by the managers of the team.
    #[must_use]
    pub fn outranks(&self, other: &Self) -> bool {
        (self.raised, self.priority, self.team_order) < (other.raised, other.priority, other.team_order)
    }

    /// The workload's identity.
    #[must_use]
    pub fn id(&self) -> &WorkloadId {
        &self.id
    }

    /// The index of the workload's info.
    #[must_use]
    pub fn index(&self) -> WorkloadIndex {
        self.index
    }

    /// The submission time.
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
    fn priority_comes_before_age_and_age_before_names() {
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
