//! Whether a borrowing preemptor would be preempted in turn, by a waiting workload within guarantee that can use the
//! same capacity (law 8).

use std::borrow::Cow;

use crate::placement::{self, Capacity};
use crate::preemption::cache::WaitingGroup;
use crate::preemption::search::{Search, request_of};
use crate::state::freed::Freed;
use crate::state::quotas::{Hypothetical, Protection};
use crate::state::rules::free_pods;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::TeamId;

impl<'a> Search<'a> {
    fn guaranteed_waiting(&self) -> &[WaitingGroup] {
        self.cache.guaranteed_waiting(self.cluster, self.pending, self.preemptor.pool)
    }

    /// The first waiting workload of each class of a group in a team. Empty for the preemptor's own team; workloads
    /// that are assumed to have started are left out.
    fn waiting_of(&self, group: &WaitingGroup, team: TeamId) -> impl Iterator<Item = &'a WorkloadInfo> {
        let other = team != self.preemptor.team;
        let (cluster, pending) = (self.cluster, self.pending);
        let firsts =
            other.then(|| pending.potential_preemptors_of(&group.wanted, team)).into_iter().flatten();
        let waiting = firsts.filter_map(|index| cluster.at(index));
        waiting.filter(|waiting| !self.assumptions.started.contains(&waiting.workload.id))
    }

    /// Whether a workload of another team waits that is within guarantee with the capacity that the preemptor would
    /// take, so that it would preempt the preemptor.
    ///
    /// In a confined search only capacity that siblings free counts: the other workload could have preempted the
    /// borrowers before. `takes_own` tells whether a victim is a sibling.
    pub fn would_be_preempted(
        &self,
        takes_own: impl FnOnce() -> bool,
        hypothetical: &Hypothetical,
        freed: &Freed,
    ) -> bool {
        if !self.confined {
            return self.would_be_preempted_with_borrowers(hypothetical, freed);
        }
        let (cluster, pool) = (self.cluster, self.preemptor.pool);
        // All workloads of a group have the same request, so one of them stands for all.
        takes_own()
            && self.guaranteed_waiting().iter().any(|group| {
                let one = self.pending.one_potential_preemptor(&group.wanted);
                one.and_then(|index| cluster.at(index))
                    .is_some_and(|one| self.would_fit(one, freed, std::iter::empty()))
                    && group
                        .teams_within_guarantee(cluster, self.pending, pool, hypothetical)
                        .any(|team| self.waiting_of(group, team).next().is_some())
            })
    }

    /// The same if the waiting workload may preempt borrowers besides the preemptor.
    fn would_be_preempted_with_borrowers(&self, hypothetical: &Hypothetical, freed: &Freed) -> bool {
        let (cluster, preemptor) = (self.cluster, &self.preemptor);
        let (quotas, pool) = (&cluster.quotas, preemptor.pool);
        let mut with = hypothetical.clone();
        self.assume_preemptor(&mut with);
        let mut others_waiting = self
            .guaranteed_waiting()
            .iter()
            .flat_map(|group| {
                let teams = group.teams(cluster, self.pending, pool);
                teams.flat_map(move |team| self.waiting_of(group, team))
            })
            .peekable();
        if others_waiting.peek().is_none() {
            return false;
        }
        let root = |team: TeamId| quotas.root_of(team);
        // The preemptor's capacity counts as free again, as if it had been evicted with all borrowers.
        others_waiting.any(|waiting| {
            // Only workloads under the same root team free quota in a guarantee.
            let is_related = |team: TeamId| root(team) == root(waiting.team);
            self.would_be_within_guarantee(
                waiting,
                hypothetical,
                self.evictable_for(waiting, &with, is_related),
            ) && self.would_fit(waiting, freed, self.evictable_for(waiting, &with, |_| true))
        })
    }

    /// The workloads of borrowing teams that may be evicted for a waiting workload after hypothetical changes, of the teams for
    /// which `which` is true.
    fn evictable_for<'s>(
        &'s self,
        waiting: &'s WorkloadInfo,
        with: &'s Hypothetical,
        which: impl Fn(TeamId) -> bool + 's,
    ) -> impl Iterator<Item = &'a WorkloadInfo> + 's {
        let (cluster, quotas, pool) = (self.cluster, &self.cluster.quotas, self.preemptor.pool);
        let holding = cluster.teams_holding(pool).filter(move |team| *team != waiting.team && which(*team));
        holding.flat_map(move |team| {
            let levels: Vec<TeamId> = quotas.levels_below_common(team, waiting.team).collect();
            let borrows = quotas.each_beyond_guarantee(pool, levels.iter().copied(), with);
            let evictable = move |other: &&WorkloadInfo| {
                let (levels, oversize) = (&levels, &other.oversize);
                let protection = Protection { levels, oversize, from_borrower: false };
                self.runs_preemptible(other)
                    && quotas.beyond_guarantee(pool, protection, &other.staying_total(), with)
            };
            borrows.then(|| cluster.holders(pool, team).filter(evictable)).into_iter().flatten()
        })
    }

    /// Whether a waiting workload is within guarantee once these workloads are gone.
    fn would_be_within_guarantee<'e>(
        &self,
        waiting: &WorkloadInfo,
        hypothetical: &Hypothetical,
        mut gone: impl Iterator<Item = &'e WorkloadInfo>,
    ) -> bool {
        let (quotas, pool, total) = (&self.cluster.quotas, self.preemptor.pool, waiting.least_total());
        let mut without = hypothetical.clone();
        loop {
            if quotas.within_guarantee(pool, waiting.team, &total, &without) {
                return true;
            }
            let Some(next) = gone.next() else { return false };
            quotas.assume(&mut without, next.account(), &next.staying_total(), -1);
        }
    }

    /// Whether a waiting workload fits on nodes once `freed` is free and these workloads are gone.
    pub fn would_fit<'e>(
        &self,
        waiting: &WorkloadInfo,
        freed: &Freed,
        gone: impl Iterator<Item = &'e WorkloadInfo>,
    ) -> bool {
        let (mut freed, mut gone) = (Cow::Borrowed(freed), gone.peekable());
        let request = request_of(waiting, self.preemptor.pool, waiting.least_pods());
        let nodes = placement::eligible(self.cluster, &request);
        // More free capacity never hurts, so the workloads are removed in batches of doubling size.
        let mut batch = 1;
        loop {
            if placement::most(self.cluster, &nodes, &request, Capacity::Settled(&freed)) >= request.pods {
                return true;
            }
            if gone.peek().is_none() {
                return false;
            }
            for other in gone.by_ref().take(batch) {
                free_pods(freed.to_mut(), other, other.usage.staying());
            }
            batch *= 2;
        }
    }
}
