//! Whether the victims of a set, queued again, would preempt in turn (laws 4 and 8). Each victim is a search of its
//! own, in the state to which the set leads.
//!
//! The victims are tried one after another, in the order of the queue. A victim that starts again at once takes its
//! capacity before the next one is tried. So if only one of two siblings can start again, the other one is judged as
//! if it were the only victim.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::placement::waiting::find_pool;
use crate::placement::{self, Capacity, Placement, Request};
use crate::preemption::cache::Cache;
use crate::preemption::feasibility::{Outcome, Part};
use crate::preemption::preemptor::{Preemptor, SearchInput};
use crate::preemption::search::{Assumptions, Basis, Search, request_of};
use crate::state::lending::{self, Loan};
use crate::state::rules::{min_runtime_end, occupy};
use crate::state::workload::WorkloadInfo;
use crate::types::ids::{NodeId, PoolId, TeamId};
use crate::types::ratio::Ratio;
use crate::types::submission::SubmissionOrder;
use crate::types::vector::Vector;
use crate::types::{PodShape, WorkloadId};

/// The effect of a victim that is queued again, from the mildest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequeueEffect {
    /// It starts without a preemption, or waits until other workloads end.
    NoPreemption,
    /// It preempts in another pool of its list.
    PreemptsElsewhere,
    /// It preempts siblings once they have run for their minimum run time.
    PreemptsLater,
    /// It preempts at once, but only by leaving a team below its guarantee.
    LeavesBelowGuarantee,
    /// It preempts at once.
    Preempts,
}

/// The state to which a set leads while its victims are queued again one after another.
pub struct RequeueState<'a> {
    outcome: &'a Outcome,
    /// With the preemptor and the victims that have started again.
    assumptions: Rc<Assumptions>,
    /// The victims that have started again, with their placements.
    restarted: Vec<(RequeuedVictim<'a>, Placement)>,
    /// The victims that have not been tried yet, by team; the first in the queue of each team is last.
    untried: Vec<Vec<&'a Part>>,
}

/// The request of a victim that is queued again: its preferred size, whatever it was granted.
struct RequeuedVictim<'a> {
    info: &'a WorkloadInfo,
    shape: &'a PodShape,
    need: &'a Vector,
    pods: u32,
    total: Vector,
}

impl<'a> RequeuedVictim<'a> {
    fn of(info: &'a WorkloadInfo) -> Self {
        let (pods, (shape, need)) = (info.least_pods(), info.preferred_pod());
        Self { info, shape, need, pods, total: need.times(pods) }
    }
}

impl Search<'_> {
    /// The state to which a set leads before any victim has been tried. Shrunk workloads are not tried: they never
    /// preempt to grow again.
    pub fn requeue_victims<'a>(&'a self, outcome: &'a Outcome) -> RequeueState<'a> {
        let preemptor = &self.preemptor;
        let mut assumptions = Assumptions {
            hypothetical: outcome.hypothetical.clone(),
            freed: self.unmasked(&outcome.freed),
            gone: self.assumptions.gone.clone(),
            started: vec![preemptor.id.clone()],
        };
        self.assume_preemptor(&mut assumptions.hypothetical);
        let whole = || outcome.parts.iter().filter(|part| part.whole);
        let moved = outcome.moved.iter().map(|(part, _)| part);
        let info = |part: &Part| self.candidates[part.candidate].info;
        assumptions.gone.extend(whole().chain(moved).map(|part| info(part).workload.id.clone()));
        let mut teams: BTreeMap<TeamId, Vec<&Part>> = BTreeMap::new();
        // A pod that was never admitted does not return to the queue.
        for part in whole().filter(|part| info(part).unadmitted.is_none()) {
            teams.entry(info(part).team).or_default().push(part);
        }
        for siblings in teams.values_mut().filter(|siblings| siblings.len() > 1) {
            siblings.sort_by_cached_key(|part| {
                let candidate = &self.candidates[part.candidate];
                (candidate.priority, Reverse(SubmissionOrder::of(&candidate.info.workload)))
            });
        }
        RequeueState {
            outcome,
            assumptions: Rc::new(assumptions),
            restarted: Vec::new(),
            untried: teams.into_values().collect(),
        }
    }

    /// Tries the victim that is next in the queue. Returns its effect; `None` after the last.
    pub fn try_next_victim<'a>(&'a self, then: &mut RequeueState<'a>) -> Option<RequeueEffect> {
        let part = self.next_victim(then)?;
        let victim = RequeuedVictim::of(self.candidates[part.candidate].info);
        let may_preempt = self.may_preempt(&victim, &then.assumptions);
        if may_preempt && self.outranks_a_nomination(victim.info) {
            return Some(RequeueEffect::Preempts);
        }
        let nodes = placement::eligible(self.cluster, &self.request_for(&victim));
        let others = self.other_pools(&victim);
        // A start also matters to the victims that are tried later.
        if (may_preempt || !then.untried.is_empty() || !others.is_empty())
            && let Some(placement) = self.place_again(&victim, &nodes, &then.assumptions)
        {
            self.assume_restarted(&victim, &placement, Rc::make_mut(&mut then.assumptions));
            then.restarted.push((victim, placement));
            return Some(RequeueEffect::NoPreemption);
        }
        // Capacity in any pool of its list comes before a preemption.
        let Some(elsewhere) = self.effect_elsewhere(&victim, others) else {
            return Some(RequeueEffect::NoPreemption);
        };
        let effect =
            if may_preempt { self.effect_of(&victim, &nodes, then) } else { RequeueEffect::NoPreemption };
        Some(effect.max(elsewhere))
    }

    /// The other pools in which a victim may start.
    fn other_pools(&self, victim: &RequeuedVictim<'_>) -> Vec<PoolId> {
        let pools = victim.info.workload.pools.iter().filter_map(|name| find_pool(self.cluster, name));
        pools.filter(|pool| *pool != self.preemptor.pool).collect()
    }

    /// The effect of a victim in other pools of its list, in which the set changes nothing; `None` if it starts in one of them
    /// without a preemption.
    fn effect_elsewhere(&self, victim: &RequeuedVictim<'_>, others: Vec<PoolId>) -> Option<RequeueEffect> {
        let mut effect = RequeueEffect::NoPreemption;
        for pool in others {
            let (cache, preemptor) = (Cache::default(), Preemptor { pool, ..self.preemptor });
            let there = Search::new(self.input(), preemptor, self.basis, &cache, self.now);
            let started = vec![preemptor.id.clone()];
            let assumptions = Rc::new(Assumptions { started, ..Assumptions::default() });
            let nodes = placement::eligible(self.cluster, &there.request_for(victim));
            if there.place_again(victim, &nodes, &assumptions).is_some() {
                return None;
            }
            if there.may_preempt(victim, &assumptions) {
                let by = |basis| there.effect_on(victim, &nodes, basis, &assumptions);
                effect = effect.max(match by(Basis::WithinGuarantee).max(by(Basis::Borrowing)) {
                    RequeueEffect::Preempts | RequeueEffect::PreemptsLater => {
                        RequeueEffect::PreemptsElsewhere
                    }
                    other => other,
                });
            }
            self.tried.set(self.tried.get() + there.tried.get());
        }
        Some(effect)
    }

    /// Removes and returns the untried victim that is next in the queue.
    fn next_victim<'a>(&self, then: &mut RequeueState<'a>) -> Option<&'a Part> {
        let position = |siblings: &Vec<&Part>| {
            let victim = RequeuedVictim::of(self.candidates[siblings.last()?.candidate].info);
            Some(self.queue_position(victim.info, &victim.total, &then.assumptions.hypothetical))
        };
        let team = match then.untried.len() {
            0 => return None,
            1 => 0,
            teams => (0..teams).min_by_key(|team| position(&then.untried[*team]))?,
        };
        let part = then.untried[team].pop()?;
        if then.untried[team].is_empty() {
            then.untried.swap_remove(team);
        }
        Some(part)
    }

    /// The nodes on which a victim starts again without a preemption.
    fn place_again(
        &self,
        victim: &RequeuedVictim<'_>,
        nodes: &[NodeId],
        assumptions: &Assumptions,
    ) -> Option<Placement> {
        let (cluster, pool) = (self.cluster, self.preemptor.pool);
        let (quotas, RequeuedVictim { info, total, .. }) = (&cluster.quotas, victim);
        let Assumptions { hypothetical, freed, .. } = assumptions;
        let loan = Loan { pool, team: info.team, total };
        let allowed = quotas.over_limit(pool, info.team, total, hypothetical).is_none()
            && (quotas.within_guarantee(pool, info.team, total, hypothetical)
                || lending::allows(cluster, loan, freed, hypothetical));
        let capacity = Capacity::Settled(freed);
        allowed.then(|| placement::place(cluster, nodes, &self.request_for(victim), capacity)).flatten()
    }

    fn request_for<'a>(&self, victim: &RequeuedVictim<'a>) -> Request<'a> {
        let RequeuedVictim { info, shape, need, pods, .. } = *victim;
        Request { shape, need, ..request_of(info, self.preemptor.pool, pods) }
    }

    /// Assumes that a victim runs again. In its old placement it counts as never evicted and may be a victim again.
    /// In another placement it may not: the cluster state has it in its old placement.
    fn assume_restarted(
        &self,
        victim: &RequeuedVictim<'_>,
        placement: &Placement,
        assumptions: &mut Assumptions,
    ) {
        let RequeuedVictim { info, need, total, .. } = victim;
        self.cluster.quotas.assume(&mut assumptions.hypothetical, info.account(), total, 1);
        if placement != info.usage.staying() || info.is_reduced() {
            occupy(&mut assumptions.freed, need, &info.workload.profile, placement);
            return;
        }
        let id = &info.workload.id;
        assumptions.gone.retain(|gone| gone != id);
        for (node, pods) in placement {
            assumptions.freed.revert(*node, id, need, *pods);
        }
    }

    /// The effect of a victim that does not fit without a preemption.
    fn effect_of(
        &self,
        victim: &RequeuedVictim<'_>,
        nodes: &[NodeId],
        then: &RequeueState<'_>,
    ) -> RequeueEffect {
        let (preemptor, team) = (&self.preemptor, victim.info.team);
        let mut effect = self.effect_on(victim, nodes, Basis::WithinGuarantee, &then.assumptions);
        if effect != RequeueEffect::Preempts {
            effect = self.effect_on(victim, nodes, Basis::Borrowing, &then.assumptions).max(effect);
        }
        if effect != RequeueEffect::NoPreemption {
            return effect;
        }
        // A sibling among the victims has a lower priority than the preemptor, so it cannot preempt the preemptor.
        if self.basis == Basis::WithinGuarantee || !preemptor.preemptible || team == preemptor.team {
            return RequeueEffect::NoPreemption;
        }
        // The victim may preempt the preemptor itself, alone or with other workloads.
        let mut assumptions = Assumptions {
            hypothetical: then.outcome.hypothetical.clone(),
            freed: self.unmasked(&then.outcome.freed_in_all),
            gone: then.assumptions.gone.clone(),
            started: then.assumptions.started.clone(),
        };
        for (other, placement) in &then.restarted {
            self.assume_restarted(other, placement, &mut assumptions);
        }
        let Assumptions { hypothetical, freed, .. } = &assumptions;
        let (quotas, capacity) = (&self.cluster.quotas, Capacity::Settled(freed));
        let alone = quotas.within_guarantee(preemptor.pool, team, &victim.total, hypothetical)
            && placement::place(self.cluster, nodes, &self.request_for(victim), capacity).is_some();
        if alone {
            RequeueEffect::Preempts
        } else {
            self.effect_on(victim, nodes, Basis::WithinGuarantee, &Rc::new(assumptions))
        }
    }

    /// The effect of a victim that preempts on one basis, by a search of its own.
    fn effect_on(
        &self,
        victim: &RequeuedVictim<'_>,
        nodes: &[NodeId],
        basis: Basis,
        assumptions: &Rc<Assumptions>,
    ) -> RequeueEffect {
        let RequeuedVictim { info, shape, need, pods, ref total } = *victim;
        let none = BTreeSet::new();
        let preemptor = Preemptor {
            id: &info.workload.id,
            team: info.team,
            pool: self.preemptor.pool,
            shape,
            topology: &info.workload.topology,
            profile: &info.workload.profile,
            need,
            total,
            pods,
            priority: self.cluster.priority_of(info),
            preemptible: true,
            nodes,
            preempted_before: Some(&none),
            ending: &[],
        };
        let mut search = Search::new(self.input(), preemptor, basis, self.cache, self.now);
        (search.assumptions, search.follow_up) = (Rc::clone(assumptions), true);
        search.collect_candidates(&|_: &WorkloadId| false);
        let effect = search.effect_of_preemptor();
        self.tried.set(self.tried.get() + search.effort());
        effect
    }

    /// The state in which the searches of its victims are made.
    fn input(&self) -> SearchInput<'_> {
        SearchInput {
            cluster: self.cluster,
            pending: self.pending,
            reclaimable: self.reclaimable,
            run_times: self.run_times,
            nominated: self.nominated,
            masked: &[],
        }
    }

    /// A cheap test that rules most victims out. A victim may preempt if its team's own guarantee holds it, if lower
    /// priorities of its team run or have a nomination, or if its team's share is not larger than that of another team.
    fn may_preempt(&self, victim: &RequeuedVictim<'_>, assumptions: &Assumptions) -> bool {
        let (cluster, pool) = (self.cluster, self.preemptor.pool);
        let (quotas, RequeuedVictim { info, total, .. }) = (&cluster.quotas, victim);
        let priority = cluster.priority_of(info);
        if self.outranks_a_nomination(info) {
            return true;
        }
        let lower = |sibling: &WorkloadInfo| {
            self.runs_preemptible(sibling) && cluster.priority_of(sibling) < priority
        };
        let lowest = cluster.totals.lowest(pool, info.team);
        if lowest.is_some_and(|lowest| lowest < priority)
            && cluster
                .reclaimable(pool, info.team)
                .any(|sibling| lower(sibling) && !assumptions.gone.contains(&sibling.workload.id))
            || quotas.own_guarantee_would_hold(pool, info.team, total, &assumptions.hypothetical)
        {
            return true;
        }
        let mut with = assumptions.hypothetical.clone();
        quotas.assume(&mut with, info.account(), total, 1);
        let share = |at: TeamId| quotas.level_share(pool, at, with.get(&at));
        let own: BTreeMap<TeamId, Ratio> =
            quotas.team(info.team).path.iter().map(|at| (*at, share(*at))).collect();
        cluster.teams_holding(pool).filter(|team| *team != info.team).any(|team| {
            let other = quotas.levels_below_common(team, info.team).map(share).max();
            let levels = quotas.levels_below_common(info.team, team);
            other >= levels.filter_map(|at| own.get(&at).copied()).max()
        })
    }

    /// Whether a sibling of lower priority has a nomination: it will run soon, and can then be preempted.
    fn outranks_a_nomination(&self, info: &WorkloadInfo) -> bool {
        let priority = self.cluster.priority_of(info);
        let lower = |sibling: &WorkloadInfo| self.cluster.priority_of(sibling) < priority;
        let mut siblings = self.nominated.iter().filter(|sibling| sibling.team == info.team);
        siblings.any(|sibling| sibling.info(self.cluster).is_some_and(lower))
    }

    /// The strongest effect that any set allows the preemptor of this search.
    fn effect_of_preemptor(&mut self) -> RequeueEffect {
        let mut effect = RequeueEffect::NoPreemption;
        for steps in self.candidate_sets() {
            let outcome = self.outcome(&steps, &self.nodes).filter(|outcome| self.is_fair(outcome));
            let Some(outcome) = outcome else { continue };
            let by_this = match outcome.below_guarantee {
                0 if !self.takes_young_siblings(&outcome) => return RequeueEffect::Preempts,
                0 => RequeueEffect::PreemptsLater,
                _ => RequeueEffect::LeavesBelowGuarantee,
            };
            effect = effect.max(by_this);
        }
        effect
    }

    /// Whether a set takes a sibling that has not run for its minimum run time yet.
    fn takes_young_siblings(&self, outcome: &Outcome) -> bool {
        outcome.parts.iter().map(|part| &self.candidates[part.candidate]).any(|candidate| {
            candidate.own && self.now < min_runtime_end(self.cluster, candidate.info, candidate.started)
        })
    }
}
