//! What a set of victims costs: the order in which sets are preferred.

use std::cmp::Reverse;

use super::super::model::{Time, WorkloadId};
use super::super::seniority::Seniority;
use super::Search;
use super::cascade::Comeback;
use super::outcome::{Outcome, Part};

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
    priorities: Vec<(i32, i32)>,
    /// How many pods are ended.
    pods: u32,
    /// When the victims started, the oldest first; later is better.
    started: Vec<Reverse<Time>>,
    /// When they were submitted and what they are called, who goes first in the queue first; later is better.
    seniority: Vec<Reverse<Seniority>>,
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
    pub fn straddles(&self) -> bool {
        self.straddling > 0
    }
}

impl Search<'_> {
    /// What a set costs if none of its victims would evict in its turn: it costs no less.
    pub fn least_cost(&self, outcome: &Outcome) -> Cost {
        let parts = || outcome.parts.iter().chain(outcome.moved.iter().map(|(part, _)| part));
        let of = |part: &Part| &self.candidates[part.candidate];
        let mut priorities: Vec<(i32, i32)> = parts().map(|part| of(part).priority).collect();
        priorities.sort_unstable_by_key(|priority| Reverse(*priority));
        let mut started: Vec<Reverse<Time>> = parts().map(|part| Reverse(of(part).started)).collect();
        started.sort_unstable_by_key(|Reverse(time)| *time);
        let mut seniority: Vec<Reverse<Seniority>> =
            parts().map(|part| Reverse(Seniority::of(&of(part).entry.workload))).collect();
        seniority.sort_unstable_by(|left, right| right.cmp(left));
        let mut ids: Vec<WorkloadId> = parts().map(|part| of(part).entry.workload.id.clone()).collect();
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
            seniority,
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
            cost.cascades += usize::from(comeback != Comeback::Peaceful);
            cost.straddling +=
                usize::from(comeback == Comeback::Straddling && self.own_unneeded(part, outcome));
        }
        cost
    }

    /// Whether guarantee and limit would hold a victim of the claimant's own team beside it, so that
    /// only the nodes' room asks for it.
    fn own_unneeded(&self, part: &Part, outcome: &Outcome) -> bool {
        let (forest, claimant) = (&self.books.forest, &self.claimant);
        let candidate = &self.candidates[part.candidate];
        if !candidate.own {
            return false;
        }
        let mut kept = outcome.imagined.clone();
        forest.imagine(&mut kept, candidate.entry.team, &part.amount, 1);
        forest.owed(claimant.pool, claimant.team, claimant.total, &kept)
            && forest.over_limit(claimant.pool, claimant.team, claimant.total, &kept, true).is_none()
    }
}
