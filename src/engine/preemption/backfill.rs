//! Whether a fairer state stays so: who waits takes the room that a claim leaves over.

use std::cmp::Reverse;

use crate::placement::{self, Capacity, Placement, Request};
use crate::preemption::feasibility::{Outcome, request_of};
use crate::preemption::{Ground, Masked, Search};
use crate::state::freed::Freed;
use crate::state::quotas::Hypothetical;
use crate::state::rules::{free, lending_allows, occupy};
use crate::state::workload::WorkloadInfo;
use crate::types::WorkloadId;
use crate::types::submission::SubmissionOrder;
use crate::types::vector::Vector;

/// So many starts into left-over room are thought through; by then nothing worth mentioning is left.
const STARTS: usize = 8;
/// So many pods more are thought through.
const GROWTH: usize = 32;
/// Of so many kinds of waiting workloads the first is considered.
const KINDS: usize = 16;

impl Search<'_> {
    /// Whether a set makes the shares of the surplus fairer, if it takes from other teams for a claim
    /// that lives off the surplus. Asked is the state in which things come to rest: if those who wait
    /// used what is left over to become the greedy ones themselves, the victims would come back for it.
    pub fn is_fair(&self, outcome: &Outcome) -> bool {
        if self.ground == Ground::Owed || self.takes_own_only(outcome) {
            return true;
        }
        let (quotas, preemptor) = (&self.cluster.quotas, &self.preemptor);
        let mut with = outcome.hypothetical.clone();
        quotas.assume(&mut with, preemptor.team, preemptor.total, 1);
        !quotas.is_weightless(preemptor.pool, preemptor.team, &with)
            && quotas.fairer_than(preemptor.pool, &self.state.hypothetical, &with)
            && !self.yields_to_a_mate(outcome)
            && {
                self.refill(outcome, &mut with);
                quotas.fairer_than(preemptor.pool, &self.state.hypothetical, &with)
            }
    }

    /// Whether a waiting mate of higher priority would take the room from the claimant: it could not
    /// have taken it from the victims itself, so they would come back for it.
    fn yields_to_a_mate(&self, outcome: &Outcome) -> bool {
        let (cluster, preemptor) = (self.cluster, &self.preemptor);
        let mut above = self
            .pending
            .firsts_of(preemptor.team)
            .filter(|id| *id != preemptor.id && !self.state.started.contains(id))
            .filter_map(|id| cluster.get(id))
            .filter(|sibling| cluster.priority_of(sibling) > preemptor.priority)
            .peekable();
        if above.peek().is_none() {
            return false;
        }
        let gone: Vec<&WorkloadId> =
            outcome.parts.iter().map(|part| &self.candidates[part.candidate].info.workload.id).collect();
        above.any(|sibling| {
            let mut freed = self.unhidden(&outcome.unfilled);
            for other in cluster.holders(preemptor.pool, preemptor.team) {
                let lower =
                    self.evictable(other) && cluster.priority_of(other) < cluster.priority_of(sibling);
                if lower && !gone.contains(&&other.workload.id) {
                    free(&mut freed, other);
                }
            }
            self.would_fit(sibling, &freed, std::iter::empty())
        })
    }

    /// Such room with the room that is kept for somebody: others than the claimant may start in it.
    pub fn unhidden(&self, freed: &Freed) -> Freed {
        let mut freed = freed.clone();
        for Masked { owner, need, placement } in self.masked {
            for (node, pods) in placement {
                freed.give(*node, owner, need, *pods);
            }
        }
        freed
    }

    /// Whose turn it is among teams that ask for so much, by the order of the queue: less goes first.
    pub fn turn(&self, info: &WorkloadInfo, more: &Vector, hypothetical: &Hypothetical) -> impl Ord + use<> {
        let (quotas, pool) = (&self.cluster.quotas, self.preemptor.pool);
        let within_guarantee = quotas.within_guarantee(pool, info.team, more, hypothetical);
        let share = quotas.level_share(pool, info.team, hypothetical.get(&info.team));
        (Reverse(within_guarantee), share, SubmissionOrder::of(&info.workload), info.workload.id.clone())
    }

    /// Lets those who wait start in the room that is left over, and then those grow who have started.
    fn refill(&self, outcome: &Outcome, hypothetical: &mut Hypothetical) {
        let (quotas, pool) = (&self.cluster.quotas, self.preemptor.pool);
        let mut freed = self.unhidden(&outcome.freed);
        let victims = outcome.parts.iter().filter(|part| part.whole);
        let mut waiting: Vec<(&WorkloadInfo, usize)> =
            victims.map(|part| (self.candidates[part.candidate].info, 1)).collect();
        // Whoever leaves for somebody else will wait as well.
        let nominated = |info: &WorkloadInfo| self.nominated.iter().any(|other| other.id == info.workload.id);
        let going = self.cluster.stopping().filter(|info| info.usage.pool == pool && !nominated(info));
        waiting.extend(going.take(KINDS).map(|info| (info, 1)));
        waiting.extend(self.waiting().take(KINDS));
        let preemptor = self.cluster.get(self.preemptor.id);
        let mut started: Vec<(&WorkloadInfo, Placement)> =
            preemptor.map(|info| (info, outcome.placement.clone())).into_iter().collect();
        for _ in 0..STARTS {
            let mut order: Vec<usize> = (0..waiting.len()).filter(|place| waiting[*place].1 > 0).collect();
            order.sort_by_cached_key(|place| {
                let info = waiting[*place].0;
                self.turn(info, &info.least_total(), hypothetical)
            });
            let mut room = None;
            for place in order {
                let (info, count) = &mut waiting[place];
                room = self.starts(info, hypothetical, &freed).map(|room| (*info, room));
                // Who cannot start now cannot when there is less room either.
                *count = if room.is_some() { *count - 1 } else { 0 };
                if room.is_some() {
                    break;
                }
            }
            let Some((info, room)) = room else { break };
            occupy(&mut freed, &info.need, &room);
            quotas.assume(hypothetical, info.team, &info.least_total(), 1);
            started.push((info, room));
        }
        self.grow(started, freed, hypothetical);
    }

    /// Lets those take more pods who have started with fewer than they want, one pod at a time.
    fn grow(
        &self,
        mut started: Vec<(&WorkloadInfo, Placement)>,
        mut freed: Freed,
        hypothetical: &mut Hypothetical,
    ) {
        let quotas = &self.cluster.quotas;
        started.retain(|(info, _)| info.workload.pods > info.least_pods());
        for _ in 0..GROWTH {
            let next = (0..started.len()).min_by_key(|place| {
                let info = started[*place].0;
                self.turn(info, &info.need, hypothetical)
            });
            let Some(next) = next else { return };
            let (info, there) = &mut started[next];
            match self.one_more(info, there, hypothetical, &freed) {
                Some(room) => {
                    occupy(&mut freed, &info.need, &room);
                    quotas.assume(hypothetical, info.team, &info.need, 1);
                    room.into_iter().for_each(|(node, pods)| *there.entry(node).or_default() += pods);
                }
                None => _ = started.swap_remove(next),
            }
        }
    }

    /// Where one more pod of somebody finds room beside those that are there; `None` if it has all it wants.
    fn one_more(
        &self,
        info: &WorkloadInfo,
        there: &Placement,
        hypothetical: &Hypothetical,
        freed: &Freed,
    ) -> Option<Placement> {
        let (cluster, pool) = (self.cluster, self.preemptor.pool);
        let allowed = there.values().sum::<u32>() < info.workload.pods
            && self.may_hold(info, &info.need, hypothetical, freed);
        let request = Request { beside: Some(there), ..request_of(info, pool, 1) };
        let nodes = || placement::eligible(cluster, &request);
        allowed.then(|| placement::place(cluster, &nodes(), &request, Capacity::Settled(freed))).flatten()
    }

    /// Where somebody who waits could start in what is imagined.
    fn starts(&self, info: &WorkloadInfo, hypothetical: &Hypothetical, freed: &Freed) -> Option<Placement> {
        let allowed = self.may_hold(info, &info.least_total(), hypothetical, freed);
        allowed.then(|| self.find_room(info, info.least_pods(), freed)).flatten()
    }

    /// Whether limits and lenders let somebody hold so much more in what is imagined.
    fn may_hold(
        &self,
        info: &WorkloadInfo,
        more: &Vector,
        hypothetical: &Hypothetical,
        freed: &Freed,
    ) -> bool {
        let (cluster, quotas, pool) = (self.cluster, &self.cluster.quotas, self.preemptor.pool);
        let within_guarantee = quotas.within_guarantee(pool, info.team, more, hypothetical);
        quotas.over_limit(pool, info.team, more, hypothetical, true).is_none()
            && (within_guarantee
                || cluster.preemptible(info) && lending_allows(cluster, info.team, pool, more, freed))
    }
}
