//! Whether victims, queued again, would evict somebody in their turn: each is a search of its own, in the state
//! of things that the eviction leads to.
//!
//! The victims of a set are tried one after another, in the order in which the queue would: whoever starts again
//! at once beside the claimant has taken its room before the next is tried. So of two mates of whom one can come
//! back the other is judged as if it had gone alone.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::placement::{self, Capacity, Placement, Request};
use crate::preemption::feasibility::{Outcome, Part, request_of};
use crate::preemption::{Ground, Preemptor, Search, State};
use crate::state::rules::{lending_allows, min_runtime_end, occupy};
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{NodeId, TeamId};
use crate::types::ratio::Ratio;
use crate::types::submission::SubmissionOrder;
use crate::types::vector::Vector;
use crate::types::{PodShape, WorkloadId};

/// How a victim would come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequeueEffect {
    /// Without evicting anybody, or not at all before others end.
    Peaceful,
    /// By evicting mates, but only once they have run for their minimum time.
    Later,
    /// At once only by cutting into somebody's guarantee.
    Straddling,
    /// By evicting somebody.
    Evicting,
}

/// What a set leads to, as its victims find it one after another.
pub struct Aftermath<'a> {
    outcome: &'a Outcome,
    /// With the claimant and those in their places who have started again.
    state: Rc<State>,
    /// Who has started again, and where.
    back: Vec<(Again<'a>, Placement)>,
    /// Those who have not been tried yet, team by team, the first of a team last.
    waiting: Vec<Vec<&'a Part>>,
}

/// What a victim asks for when it is queued again: what it wants most, whatever it was granted.
struct Again<'a> {
    info: &'a WorkloadInfo,
    shape: &'a PodShape,
    need: &'a Vector,
    pods: u32,
    total: Vector,
}

impl<'a> Again<'a> {
    fn of(info: &'a WorkloadInfo) -> Self {
        let (pods, (shape, need)) = (info.least_pods(), info.preferred_pod());
        Self { info, shape, need, pods, total: Vector::default().plus(need, i64::from(pods)) }
    }
}

impl Search<'_> {
    /// What a set leads to before any victim has been tried. What has only shrunk never evicts to grow again.
    pub fn aftermath<'a>(&'a self, outcome: &'a Outcome) -> Aftermath<'a> {
        let preemptor = &self.preemptor;
        let mut state = State {
            hypothetical: outcome.hypothetical.clone(),
            freed: self.unhidden(&outcome.freed),
            gone: self.state.gone.clone(),
            started: vec![preemptor.id.clone()],
        };
        self.cluster.quotas.assume(&mut state.hypothetical, preemptor.team, preemptor.total, 1);
        let whole = || outcome.parts.iter().filter(|part| part.whole);
        let moved = outcome.moved.iter().map(|(part, _)| part);
        let info = |part: &Part| self.candidates[part.candidate].info;
        state.gone.extend(whole().chain(moved).map(|part| info(part).workload.id.clone()));
        let mut teams: BTreeMap<TeamId, Vec<&Part>> = BTreeMap::new();
        for part in whole() {
            teams.entry(info(part).team).or_default().push(part);
        }
        for siblings in teams.values_mut().filter(|siblings| siblings.len() > 1) {
            siblings.sort_by_cached_key(|part| {
                let candidate = &self.candidates[part.candidate];
                (candidate.priority, Reverse(SubmissionOrder::of(&candidate.info.workload)))
            });
        }
        Aftermath { outcome, state: Rc::new(state), back: Vec::new(), waiting: teams.into_values().collect() }
    }

    /// Tries the victim whose turn it is: who it is and how it would come back.
    pub fn try_next<'a>(&'a self, then: &mut Aftermath<'a>) -> Option<(&'a Part, RequeueEffect)> {
        let turn = |siblings: &Vec<&Part>| {
            let again = Again::of(self.candidates[siblings.last()?.candidate].info);
            Some(self.turn(again.info, &again.total, &then.state.hypothetical))
        };
        let next = match then.waiting.len() {
            0 => return None,
            1 => 0,
            teams => (0..teams).min_by_key(|team| turn(&then.waiting[*team]))?,
        };
        let part = then.waiting[next].pop()?;
        if then.waiting[next].is_empty() {
            then.waiting.swap_remove(next);
        }
        let again = Again::of(self.candidates[part.candidate].info);
        let reclaims = self.may_reclaim(&again, &then.state);
        if reclaims && self.passes_a_promise(again.info) {
            return Some((part, RequeueEffect::Evicting));
        }
        let nodes = placement::eligible(self.cluster, &self.asks(&again));
        // Whether it starts matters to those who come after it as well.
        if (reclaims || !then.waiting.is_empty())
            && let Some(place) = self.starts_again(&again, &nodes, &then.state)
        {
            self.settle(&again, &place, Rc::make_mut(&mut then.state));
            then.back.push((again, place));
            return Some((part, RequeueEffect::Peaceful));
        }
        let comeback = if reclaims { self.evicts(&again, &nodes, then) } else { RequeueEffect::Peaceful };
        Some((part, comeback))
    }

    /// Where a victim starts again without anybody leaving.
    fn starts_again(&self, again: &Again<'_>, nodes: &[NodeId], state: &State) -> Option<Placement> {
        let (cluster, pool, Again { info, total, .. }) = (self.cluster, self.preemptor.pool, again);
        let quotas = &cluster.quotas;
        let allowed = quotas.over_limit(pool, info.team, total, &state.hypothetical, true).is_none()
            && (quotas.within_guarantee(pool, info.team, total, &state.hypothetical)
                || lending_allows(cluster, info.team, pool, total, &state.freed));
        let room = Capacity::Settled(&state.freed);
        allowed.then(|| placement::place(cluster, nodes, &self.asks(again), room)).flatten()
    }

    fn asks<'a>(&self, again: &Again<'a>) -> Request<'a> {
        let Again { info, shape, need, pods, .. } = *again;
        Request { shape, need, ..request_of(info, self.preemptor.pool, pods) }
    }

    /// Imagines that a victim runs again. Where that is as before, it might as well not have gone, and may be
    /// taken by others; elsewhere it may not: the books would look for it in its old place.
    fn settle(&self, again: &Again<'_>, place: &Placement, state: &mut State) {
        let Again { info, need, total, .. } = again;
        self.cluster.quotas.assume(&mut state.hypothetical, info.team, total, 1);
        if place != info.usage.staying() || info.is_reduced() {
            occupy(&mut state.freed, need, place);
            return;
        }
        let id = &info.workload.id;
        state.gone.retain(|gone| gone != id);
        for (node, pods) in place {
            state.freed.revert(*node, id, need, *pods);
        }
    }

    /// How a victim that finds no room would come back.
    fn evicts(&self, victim: &Again<'_>, nodes: &[NodeId], then: &Aftermath<'_>) -> RequeueEffect {
        let (cluster, preemptor) = (self.cluster, &self.preemptor);
        let quotas = &cluster.quotas;
        let Again { info, shape, need, pods, ref total } = *victim;
        let nobody = BTreeSet::new();
        let again = Preemptor {
            id: &info.workload.id,
            team: info.team,
            pool: preemptor.pool,
            shape,
            topology: &info.workload.topology,
            need,
            total,
            pods,
            priority: cluster.priority_of(info),
            preemptible: true,
            nodes,
            taken: Some(&nobody),
        };
        let comeback = |ground: Ground, state: &Rc<State>| {
            let mut search = Search {
                cluster,
                pending: self.pending,
                run_times: self.run_times,
                nominated: self.nominated,
                masked: &[],
                preemptor: again,
                ground,
                moves: false,
                state: Rc::clone(state),
                nodes: nodes.to_vec(),
                candidates: Vec::new(),
                common: self.common,
                wide: false,
                foresees: true,
                confined: false,
                bounded: false,
                tried: Cell::new(0),
                looked_at: Cell::new(0),
                now: self.now,
            };
            search.gather(&|_: &WorkloadId| false);
            let comeback = search.comeback_of_claimant();
            self.tried.set(self.tried.get() + search.effort());
            comeback
        };
        let within_guarantee = comeback(Ground::Owed, &then.state);
        let best = if within_guarantee == RequeueEffect::Evicting {
            within_guarantee
        } else {
            comeback(Ground::Surplus, &then.state).max(within_guarantee)
        };
        if best != RequeueEffect::Peaceful {
            return best;
        }
        // A mate is of lower priority than the claimant, which so does not yield to it.
        if self.ground == Ground::Owed || !preemptor.preemptible || info.team == preemptor.team {
            return RequeueEffect::Peaceful;
        }
        // It might have the claimant itself evicted, with others or without.
        let mut state = State {
            hypothetical: then.outcome.hypothetical.clone(),
            freed: self.unhidden(&then.outcome.unfilled),
            gone: then.state.gone.clone(),
            started: then.state.started.clone(),
        };
        then.back.iter().for_each(|(sibling, place)| self.settle(sibling, place, &mut state));
        let state = Rc::new(state);
        let alone = quotas.within_guarantee(preemptor.pool, info.team, total, &state.hypothetical)
            && placement::place(cluster, nodes, &self.asks(victim), Capacity::Settled(&state.freed))
                .is_some();
        if alone { RequeueEffect::Evicting } else { comeback(Ground::Owed, &state) }
    }

    /// A quick test that rules most victims out: it would be owed its room, or lower priorities of its
    /// team run, or its team would have a smaller share than another.
    fn may_reclaim(&self, again: &Again<'_>, state: &State) -> bool {
        let (cluster, pool, Again { info, total, .. }) = (self.cluster, self.preemptor.pool, again);
        let quotas = &cluster.quotas;
        let priority = cluster.priority_of(info);
        if self.passes_a_promise(info) {
            return true;
        }
        let yields =
            |sibling: &WorkloadInfo| self.evictable(sibling) && cluster.priority_of(sibling) < priority;
        let lowest = cluster.totals.lowest(pool, info.team);
        if lowest.is_some_and(|lowest| lowest < priority)
            && cluster
                .reclaimable(pool, info.team)
                .any(|sibling| yields(sibling) && !state.gone.contains(&sibling.workload.id))
            || quotas.within_guarantee(pool, info.team, total, &state.hypothetical)
        {
            return true;
        }
        let mut with = state.hypothetical.clone();
        quotas.assume(&mut with, info.team, total, 1);
        let share = |at: TeamId| quotas.level_share(pool, at, with.get(&at));
        let mine: BTreeMap<TeamId, Ratio> =
            quotas.team(info.team).path.iter().map(|at| (*at, share(*at))).collect();
        cluster.teams_holding(pool).filter(|team| *team != info.team).any(|team| {
            let theirs = quotas.levels_below_common(team, info.team).map(share).max();
            let levels = quotas.levels_below_common(info.team, team);
            theirs >= levels.filter_map(|at| mine.get(&at).copied()).max()
        })
    }

    /// Whether a mate of lower priority has been promised room: it will run soon, and yield.
    fn passes_a_promise(&self, info: &WorkloadInfo) -> bool {
        let priority = self.cluster.priority_of(info);
        self.nominated.iter().any(|sibling| sibling.team == info.team && sibling.priority < priority)
    }

    /// Whether somebody runs who may be evicted by somebody. Who is about to start counts: it will run by the
    /// time that anybody comes back.
    pub fn evictable(&self, info: &WorkloadInfo) -> bool {
        matches!(info.phase, Phase::Running(_) | Phase::Starting(_)) && self.cluster.preemptible(info)
    }

    /// Whether some set makes the claimant start, and whether one does that cuts into nobody's guarantee.
    fn comeback_of_claimant(&mut self) -> RequeueEffect {
        let mut comeback = RequeueEffect::Peaceful;
        for items in self.proposals() {
            let outcome = self.outcome(&items, &self.nodes).filter(|outcome| self.is_fair(outcome));
            let Some(outcome) = outcome else { continue };
            let by_this = match outcome.straddling {
                0 if !self.takes_young_mates(&outcome) => return RequeueEffect::Evicting,
                0 => RequeueEffect::Later,
                _ => RequeueEffect::Straddling,
            };
            comeback = comeback.max(by_this);
        }
        comeback
    }

    /// Whether a mate is to go who has yet to run for its minimum time.
    fn takes_young_mates(&self, outcome: &Outcome) -> bool {
        outcome.parts.iter().map(|part| &self.candidates[part.candidate]).any(|candidate| {
            candidate.own && self.now < min_runtime_end(self.cluster, candidate.info, candidate.started)
        })
    }
}
