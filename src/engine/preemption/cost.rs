//! What a set of victims costs: the order in which sets are preferred.

use std::cmp::Reverse;

use crate::preemption::Search;
use crate::preemption::feasibility::{Outcome, Part};
use crate::preemption::follow_up::RequeueEffect;
use crate::types::ids::Priority;
use crate::types::submission::SubmissionOrder;
use crate::types::{Time, WorkloadId};

/// What a set of victims costs; compares less when it is to be preferred, criterion by criterion.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// Victims whose going leaves their team below its guarantee. Also those of the claimant's own team whose
    /// room its guarantee holds beside the claimant, and who would come back for it at such a victim's expense:
    /// taking them would only be a longer way there.
    straddling: usize,
    /// Whether somebody is still within the minimum run time.
    young: bool,
    /// Victims that, queued again, would themselves evict.
    cascades: usize,
    /// Victims of the claimant's own team that its guarantee and limit could hold beside it.
    own_unneeded: usize,
    /// Device-milliseconds (in thousandths) of work lost.
    lost: i128,
    /// The victims' priorities, the highest first.
    priorities: Vec<Priority>,
    /// How many pods are ended.
    pods: u32,
    /// When the victims started, the oldest first; later is better.
    started: Vec<Reverse<Time>>,
    /// When they were submitted and what they are called, who goes first in the queue first; later is better.
    submission_order: Vec<Reverse<SubmissionOrder>>,
    /// Ties end here, so that the answer never depends on anything unseen.
    ids: Vec<WorkloadId>,
}

impl Cost {
    /// Whether a victim would evict somebody in its turn.
    #[must_use]
    pub fn cascades(&self) -> bool {
        self.cascades > 0
    }

    /// Whether somebody's guarantee is cut into, or would be in the end.
    #[must_use]
    pub fn would_fall_below_guarantee(&self) -> bool {
        self.straddling > 0
    }
}

impl Search<'_> {
    /// What a set costs if none of its victims would evict in its turn: it costs no less.
    pub fn least_cost(&self, outcome: &Outcome) -> Cost {
        let parts = || outcome.parts.iter().chain(outcome.moved.iter().map(|(part, _)| part));
        let of = |part: &Part| &self.candidates[part.candidate];
        let mut priorities: Vec<Priority> = parts().map(|part| of(part).priority).collect();
        priorities.sort_unstable_by_key(|priority| Reverse(*priority));
        let mut started: Vec<Reverse<Time>> = parts().map(|part| Reverse(of(part).started)).collect();
        started.sort_unstable_by_key(|Reverse(time)| *time);
        let mut submission_order: Vec<Reverse<SubmissionOrder>> =
            parts().map(|part| Reverse(SubmissionOrder::of(&of(part).info.workload))).collect();
        submission_order.sort_unstable_by(|left, right| right.cmp(left));
        let mut ids: Vec<WorkloadId> = parts().map(|part| of(part).info.workload.id.clone()).collect();
        ids.sort();
        Cost {
            straddling: outcome.straddling,
            young: parts().any(|part| of(part).young),
            cascades: 0,
            own_unneeded: outcome.parts.iter().filter(|part| self.own_unneeded(part, outcome)).count(),
            // A workload that shrinks goes on with what it has done.
            lost: parts().filter(|part| part.whole).map(|part| of(part).lost).sum(),
            priorities,
            pods: parts().map(|part| part.pods).sum(),
            started,
            submission_order,
            ids,
        }
    }

    /// What a set costs, given what it costs at least.
    pub fn with_comebacks(&self, mut cost: Cost, outcome: &Outcome) -> Cost {
        // Of a claim that must last no more is asked than whether it does.
        let must_last = self.must_last(outcome);
        let mut then = self.aftermath(outcome);
        while !(must_last && cost.cascades())
            && let Some((part, comeback)) = self.try_next(&mut then)
        {
            cost.cascades += usize::from(comeback != RequeueEffect::Peaceful);
            cost.straddling +=
                usize::from(comeback == RequeueEffect::Straddling && self.own_unneeded(part, outcome));
        }
        cost
    }

    /// Whether guarantee and limit would hold a victim of the claimant's own team beside it, so that
    /// only the nodes' room asks for it.
    fn own_unneeded(&self, part: &Part, outcome: &Outcome) -> bool {
        let (quotas, preemptor) = (&self.cluster.quotas, &self.preemptor);
        let candidate = &self.candidates[part.candidate];
        if !candidate.own {
            return false;
        }
        let mut kept = outcome.hypothetical.clone();
        quotas.assume(&mut kept, candidate.info.team, &part.amount, 1);
        quotas.within_guarantee(preemptor.pool, preemptor.team, preemptor.total, &kept)
            && quotas.over_limit(preemptor.pool, preemptor.team, preemptor.total, &kept, true).is_none()
    }
}
