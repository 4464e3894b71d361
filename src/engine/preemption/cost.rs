//! The cost of a set of victims. The order of the fields of [`Cost`] is the policy of law 4.

use std::cmp::Reverse;

use crate::preemption::feasibility::{Outcome, Part};
use crate::preemption::follow_up::RequeueEffect;
use crate::preemption::search::{Basis, Search};
use crate::state::rules::eviction_cost;
use crate::types::ids::Priority;
use crate::types::submission::SubmissionOrder;
use crate::types::{Time, WorkloadId};

/// The cost of a set of victims. Sets are compared field by field, in the order of the fields; less is better.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    /// Law 4, borrowed unadmitted pods first: whether a workload that was admitted is a victim.
    admitted: bool,
    /// Law 4, no team below its guarantee: victims that leave their team below its guarantee. Also counts a victim that
    /// would start again only by leaving a team below its guarantee: evicting it would only be a detour.
    below_guarantee: usize,
    /// Law 4, none under its minimum run time: whether a victim is.
    under_min_runtime: bool,
    /// Law 4, no follow-up preemption: victims that would preempt in turn once they are queued again.
    follow_ups: usize,
    /// Law 2, what is larger than its team's guarantee goes before the rest of the team: victims with such a sibling that
    /// stays.
    before_oversize: usize,
    /// Law 4, the own team only where needed: victims of the preemptor's team that guarantee and limit could hold beside
    /// the preemptor.
    own_unneeded: usize,
    /// Law 4, the least cost of eviction, see [`crate::state::rules::eviction_cost`].
    evictions: i128,
    /// Law 4, lowest priority: the priorities of the victims, the highest first.
    priorities: Vec<Priority>,
    /// Law 4, fewest pods: how many pods end.
    pods: u32,
    /// Law 4, newest: the start times of the victims, the oldest first; later is better.
    started: Vec<Reverse<Time>>,
    /// Law 4, newest, at equal start times: the victims in the order of the queue; later is better.
    submission_order: Vec<Reverse<SubmissionOrder>>,
    /// Law 10: ends every tie, so that the result depends only on the input.
    ids: Vec<WorkloadId>,
}

impl Cost {
    /// Whether a team falls below its guarantee, at once or through a follow-up preemption.
    #[must_use]
    pub fn falls_below_guarantee(&self) -> bool {
        self.below_guarantee > 0
    }
}

impl Search<'_> {
    /// A lower bound of the cost of a set: its cost if no victim preempts in turn.
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
            admitted: parts().any(|part| !of(part).first),
            below_guarantee: outcome.below_guarantee,
            under_min_runtime: parts().any(|part| of(part).under_min_runtime),
            follow_ups: 0,
            before_oversize: outcome
                .parts
                .iter()
                .filter(|part| self.goes_before_oversize(part, outcome))
                .count(),
            own_unneeded: outcome.parts.iter().filter(|part| self.own_unneeded(part, outcome)).count(),
            evictions: parts().map(|part| self.cost_of(part)).fold(0, i128::saturating_add),
            priorities,
            pods: parts().map(|part| part.pods).sum(),
            started,
            submission_order,
            ids,
        }
    }

    /// The cost of ending the pods of a part. A workload that shrinks keeps the work of the pods that stay.
    fn cost_of(&self, part: &Part) -> i128 {
        let candidate = &self.candidates[part.candidate];
        if part.whole || candidate.first {
            return candidate.cost;
        }
        eviction_cost(self.cluster, candidate.info, part.pods, candidate.started, self.now)
    }

    /// The cost of a set, given its lower bound; `None` if the set must last and would not.
    pub fn with_follow_ups(&self, mut cost: Cost, outcome: &Outcome) -> Option<Cost> {
        let must_last = self.must_last(outcome);
        let mut then = self.requeue_victims(outcome);
        while let Some(effect) = self.try_next_victim(&mut then) {
            // What a victim takes in another pool it does not take from the preemptor.
            if must_last && effect > RequeueEffect::PreemptsElsewhere {
                return None;
            }
            cost.follow_ups += usize::from(effect != RequeueEffect::NoPreemption);
            cost.below_guarantee += usize::from(effect == RequeueEffect::LeavesBelowGuarantee);
        }
        Some(cost)
    }

    /// Whether a part of another team is taken within guarantee while a sibling that is larger than the guarantee stays
    /// and could be taken.
    fn goes_before_oversize(&self, part: &Part, outcome: &Outcome) -> bool {
        let candidate = &self.candidates[part.candidate];
        let pool = self.preemptor.pool;
        let has_oversize = |at| self.cluster.quotas.quota_usage(pool, at).has_oversize();
        if candidate.own || candidate.is_oversize() || !candidate.levels.iter().copied().any(has_oversize) {
            return false;
        }
        let stays = |index: &usize| !outcome.parts.iter().any(|part| part.candidate == *index);
        (0..self.candidates.len()).filter(stays).map(|index| &self.candidates[index]).any(|sibling| {
            sibling.info.team == candidate.info.team && sibling.evictable && sibling.is_oversize()
        })
    }

    /// Whether no victim of a set may preempt in turn in the same pool (law 8): a borrowing preemptor takes from other teams.
    fn must_last(&self, outcome: &Outcome) -> bool {
        self.basis == Basis::Borrowing && !self.takes_own_only(outcome)
    }

    /// Whether guarantee and limit could hold a victim of the preemptor's own team beside the preemptor, so that
    /// only capacity on nodes is missing.
    fn own_unneeded(&self, part: &Part, outcome: &Outcome) -> bool {
        let (quotas, preemptor) = (&self.cluster.quotas, &self.preemptor);
        let candidate = &self.candidates[part.candidate];
        if !candidate.own {
            return false;
        }
        let mut beside = outcome.hypothetical.clone();
        self.assume_preemptor(&mut beside);
        let mut with_part = outcome.hypothetical.clone();
        quotas.assume(&mut with_part, candidate.info.account(), &part.amount, 1);
        candidate.info.oversize.is_empty()
            && quotas.within_guarantee(preemptor.pool, candidate.info.team, &part.amount, &beside)
            && quotas.over_limit(preemptor.pool, preemptor.team, preemptor.total, &with_part).is_none()
    }
}
