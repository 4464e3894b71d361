//! Whether a preemption between borrowing teams makes the fair shares fairer for good (law 5), once waiting workloads
//! have backfilled the capacity that is left over.

use std::cmp::Reverse;

use crate::placement::{self, Capacity, Placement, Request};
use crate::preemption::feasibility::Outcome;
use crate::preemption::preemptor::Masked;
use crate::preemption::search::{Basis, Search, request_of};
use crate::state::freed::Freed;
use crate::state::lending::{self, Loan};
use crate::state::quotas::{Account, Hypothetical};
use crate::state::rules::{free, free_on, occupy, oversize_in};
use crate::state::workload::WorkloadInfo;
use crate::types::WorkloadId;
use crate::types::submission::SubmissionOrder;
use crate::types::vector::Vector;

/// This many starts into left-over capacity are simulated; later ones are too small to matter.
const MAX_STARTS: usize = 8;
/// This many pods of growth are simulated.
const MAX_GROWN_PODS: usize = 32;
/// The first workload of this many classes is considered.
const MAX_CLASSES: usize = 16;

impl Search<'_> {
    /// Whether a set respects law 5: if a borrowing preemptor takes capacity from other teams, the fair shares must
    /// become fairer. The state after backfill counts: if waiting workloads of greedy teams used the left-over
    /// capacity, the victims would preempt them in turn.
    pub fn is_fair(&self, outcome: &Outcome) -> bool {
        if self.basis == Basis::WithinGuarantee || self.takes_own_only(outcome) {
            return true;
        }
        let (quotas, preemptor) = (&self.cluster.quotas, &self.preemptor);
        let before = &*self.before(outcome);
        let mut with = outcome.hypothetical.clone();
        self.assume_preemptor(&mut with);
        !quotas.is_weightless(preemptor.pool, preemptor.team, &with)
            && quotas.fairer_than(preemptor.pool, before, &with)
            && !self.loses_to_a_sibling(outcome)
            && {
                self.backfill(outcome, &mut with);
                quotas.fairer_than(preemptor.pool, before, &with)
            }
    }

    /// Whether a waiting sibling of higher priority would take the capacity from the preemptor. The sibling could
    /// not have preempted the victims itself, so they would preempt in turn.
    fn loses_to_a_sibling(&self, outcome: &Outcome) -> bool {
        let (cluster, preemptor) = (self.cluster, &self.preemptor);
        let mut above = self
            .pending
            .firsts_of(preemptor.team)
            .filter(|id| *id != preemptor.id && !self.assumptions.started.contains(id))
            .filter_map(|id| cluster.get(id))
            .filter(|sibling| cluster.priority_of(sibling) > preemptor.priority)
            .peekable();
        if above.peek().is_none() {
            return false;
        }
        let gone: Vec<&WorkloadId> =
            outcome.parts.iter().map(|part| &self.candidates[part.candidate].info.workload.id).collect();
        let unmasked = self.unmasked(&outcome.freed_in_all);
        above.any(|sibling| {
            let below = cluster.priority_of(sibling);
            let lower = |other: &WorkloadInfo| {
                other.team == preemptor.team
                    && self.runs_preemptible(other)
                    && cluster.priority_of(other) < below
                    && !gone.contains(&&other.workload.id)
            };
            let mut freed = unmasked.clone();
            if self.confined {
                // Elsewhere the sibling could have preempted before, so only these nodes make a difference.
                for node in &self.nodes {
                    let there = cluster.occupants(*node).filter(|(other, _)| lower(other));
                    there.for_each(|(other, _)| free_on(&mut freed, other, *node));
                }
            } else {
                let holders = cluster.holders(preemptor.pool, preemptor.team);
                holders.filter(|other| lower(other)).for_each(|other| free(&mut freed, other));
            }
            self.would_fit(sibling, &freed, std::iter::empty())
        })
    }

    /// Assumes that the preemptor has started.
    pub fn assume_preemptor(&self, hypothetical: &mut Hypothetical) {
        let preemptor = &self.preemptor;
        match self.cluster.get(preemptor.id) {
            Some(info) => self.assume_start(hypothetical, info, preemptor.total),
            None => self.cluster.quotas.assume(hypothetical, preemptor.team, preemptor.total, 1),
        }
    }

    /// Assumes that a workload that waits now holds `amount` more.
    fn assume_start(&self, hypothetical: &mut Hypothetical, info: &WorkloadInfo, amount: &Vector) {
        let oversize = oversize_in(self.cluster, info, self.preemptor.pool);
        let account = Account { team: info.team, oversize: &oversize };
        self.cluster.quotas.assume(hypothetical, account, amount, 1);
    }

    /// Whether a workload is within guarantee with `more` under the hypothetical changes.
    fn within_guarantee_with(&self, info: &WorkloadInfo, more: &Vector, hypothetical: &Hypothetical) -> bool {
        let (cluster, pool) = (self.cluster, self.preemptor.pool);
        cluster.quotas.within_guarantee(pool, info.team, more, hypothetical)
            && oversize_in(cluster, info, pool).is_empty()
    }

    /// The freed capacity together with the masked capacity, which other workloads than the preemptor may use.
    pub fn unmasked(&self, freed: &Freed) -> Freed {
        let mut freed = freed.clone();
        for Masked { owner, need, placement } in self.masked {
            for (node, pods) in placement {
                freed.give(*node, owner, need, *pods);
            }
        }
        freed
    }

    /// The place of a workload in the order between teams (law 9), if it asks for `more`; the smallest is first.
    pub fn queue_position(
        &self,
        info: &WorkloadInfo,
        more: &Vector,
        hypothetical: &Hypothetical,
    ) -> impl Ord + use<> {
        let (quotas, pool) = (&self.cluster.quotas, self.preemptor.pool);
        let within_guarantee = self.within_guarantee_with(info, more, hypothetical);
        let share = quotas.level_share(pool, info.team, hypothetical.get(&info.team));
        (Reverse(within_guarantee), share, SubmissionOrder::of(&info.workload), info.workload.id.clone())
    }

    /// Lets waiting workloads start in the left-over capacity, and then the started elastic workloads grow.
    fn backfill(&self, outcome: &Outcome, hypothetical: &mut Hypothetical) {
        let mut freed = self.unmasked(&outcome.freed);
        let mut waiting = self.waiting_after(outcome);
        let preemptor = self.cluster.get(self.preemptor.id);
        let mut started: Vec<(&WorkloadInfo, Placement)> =
            preemptor.map(|info| (info, outcome.placement.clone())).into_iter().collect();
        for _ in 0..MAX_STARTS {
            let mut order: Vec<usize> = (0..waiting.len()).filter(|index| waiting[*index].1 > 0).collect();
            order.sort_by_cached_key(|index| {
                let info = waiting[*index].0;
                self.queue_position(info, &info.least_total(), hypothetical)
            });
            let mut start = None;
            for index in order {
                let (info, count) = &mut waiting[index];
                start = self.place_waiting(info, hypothetical, &freed).map(|placement| (*info, placement));
                // A workload that cannot start now cannot start with less free capacity either.
                *count = if start.is_some() { *count - 1 } else { 0 };
                if start.is_some() {
                    break;
                }
            }
            let Some((info, placement)) = start else { break };
            occupy(&mut freed, &info.need, &info.workload.profile, &placement);
            self.assume_start(hypothetical, info, &info.least_total());
            started.push((info, placement));
        }
        self.grow(started, freed, hypothetical);
    }

    /// The workloads that wait after the preemption, with how many there are like each: the victims, workloads that
    /// are stopping and will be queued again, and the first of each waiting class.
    fn waiting_after(&self, outcome: &Outcome) -> Vec<(&WorkloadInfo, usize)> {
        let pool = self.preemptor.pool;
        let victims = outcome.parts.iter().filter(|part| part.whole);
        let mut waiting: Vec<(&WorkloadInfo, usize)> =
            victims.map(|part| (self.candidates[part.candidate].info, 1)).collect();
        let nominated = |info: &WorkloadInfo| {
            self.nominated.iter().any(|other| other.index == info.index && *other.id == info.workload.id)
        };
        let stopping = self.cluster.stopping().filter(|info| info.usage.pool == pool && !nominated(info));
        waiting.extend(stopping.take(MAX_CLASSES).map(|info| (info, 1)));
        waiting.extend(self.waiting_classes().take(MAX_CLASSES));
        waiting
    }

    /// The first waiting workload of each class, with how many there are in the class without the preemptor and
    /// without the workloads that are assumed to have started.
    fn waiting_classes(&self) -> impl Iterator<Item = (&WorkloadInfo, usize)> {
        self.pending.firsts().filter_map(|(id, count)| {
            let class = self.pending.class_of(id);
            let in_class = |id: &WorkloadId| self.pending.class_of(id) == class;
            let preemptor = usize::from(in_class(self.preemptor.id));
            let started =
                self.assumptions.started.iter().filter(|id| *id != self.preemptor.id && in_class(id)).count();
            let left = count.saturating_sub(preemptor + started);
            if left == 0 { None } else { Some((self.cluster.get(id)?, left)) }
        })
    }

    /// Lets started elastic workloads grow towards the pods that they want, one pod at a time.
    fn grow(
        &self,
        mut started: Vec<(&WorkloadInfo, Placement)>,
        mut freed: Freed,
        hypothetical: &mut Hypothetical,
    ) {
        started.retain(|(info, _)| info.workload.pods > info.least_pods());
        for _ in 0..MAX_GROWN_PODS {
            let next = (0..started.len()).min_by_key(|index| {
                let info = started[*index].0;
                self.queue_position(info, &info.need, hypothetical)
            });
            let Some(next) = next else { return };
            let (info, there) = &mut started[next];
            match self.place_one_more(info, there, hypothetical, &freed) {
                Some(placement) => {
                    occupy(&mut freed, &info.need, &info.workload.profile, &placement);
                    self.assume_start(hypothetical, info, &info.need);
                    placement.into_iter().for_each(|(node, pods)| *there.entry(node).or_default() += pods);
                }
                None => _ = started.swap_remove(next),
            }
        }
    }

    /// The node for one more pod of a workload that runs `there`; `None` if it has all pods that it wants.
    fn place_one_more(
        &self,
        info: &WorkloadInfo,
        there: &Placement,
        hypothetical: &Hypothetical,
        freed: &Freed,
    ) -> Option<Placement> {
        let (cluster, pool) = (self.cluster, self.preemptor.pool);
        let allowed = there.values().sum::<u32>() < info.workload.pods
            && self.quota_allows(info, &info.need, hypothetical, freed);
        let request = Request { beside: Some(there), ..request_of(info, pool, 1) };
        let nodes = || placement::eligible(cluster, &request);
        allowed.then(|| placement::place(cluster, &nodes(), &request, Capacity::Settled(freed))).flatten()
    }

    /// The nodes on which a waiting workload could start.
    fn place_waiting(
        &self,
        info: &WorkloadInfo,
        hypothetical: &Hypothetical,
        freed: &Freed,
    ) -> Option<Placement> {
        if !self.quota_allows(info, &info.least_total(), hypothetical, freed) {
            return None;
        }
        let request = request_of(info, self.preemptor.pool, info.least_pods());
        let nodes = placement::eligible(self.cluster, &request);
        placement::place(self.cluster, &nodes, &request, Capacity::Settled(freed))
    }

    /// Whether limits, guarantees and lending rules let a workload hold `more` under the hypothetical changes.
    fn quota_allows(
        &self,
        info: &WorkloadInfo,
        more: &Vector,
        hypothetical: &Hypothetical,
        freed: &Freed,
    ) -> bool {
        let (cluster, quotas, pool) = (self.cluster, &self.cluster.quotas, self.preemptor.pool);
        let within_guarantee = self.within_guarantee_with(info, more, hypothetical);
        let loan = Loan { pool, team: info.team, total: more };
        quotas.over_limit(pool, info.team, more, hypothetical).is_none()
            && (within_guarantee
                || (cluster.preemptible(info) || quotas.holds_fixed(pool, info.team, more))
                    && lending::allows(cluster, loan, freed, hypothetical))
    }
}
