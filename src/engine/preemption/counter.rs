//! Whether a claim on the surplus would put its own head on the block: because somebody waits who is owed
//! what it would take.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::BTreeMap;

use crate::placement::{self, Capacity};
use crate::preemption::Search;
use crate::preemption::feasibility::{Part, request_of};
use crate::queue::class::Demand;
use crate::state::freed::Freed;
use crate::state::quotas::Hypothetical;
use crate::state::rules::free_pods;
use crate::state::workload::WorkloadInfo;
use crate::types::ids::TeamId;
use crate::types::vector::Vector;

/// Those who ask for the same and wait although the guarantees of their teams hold them.
#[derive(Debug)]
pub struct Alike {
    wanted: Demand,
    /// What each of them asks for.
    total: Vector,
    /// Their teams, once somebody has asked.
    teams: OnceCell<Teams>,
}

/// Teams whose own guarantees hold one more of a kind.
#[derive(Debug, Default)]
struct Teams {
    /// By the team at the top.
    all: BTreeMap<TeamId, Vec<TeamId>>,
    /// By the team at the top too, those of which all above can hold one more as well.
    outright: BTreeMap<TeamId, Vec<TeamId>>,
}

impl Alike {
    fn teams(&self, search: &Search<'_>) -> &Teams {
        self.teams.get_or_init(|| {
            let (quotas, pool) = (&search.cluster.quotas, search.preemptor.pool);
            let mut teams = Teams::default();
            for team in search.pending.potential_preemptor_teams(&self.wanted) {
                let top = quotas.team(team).path.last().copied();
                let Some(top) = top.filter(|_| quotas.own_guarantee_holds(pool, team, &self.total)) else {
                    continue;
                };
                teams.all.entry(top).or_default().push(team);
                if quotas.within_guarantee(pool, team, &self.total, &Hypothetical::new()) {
                    teams.outright.entry(top).or_default().push(team);
                }
            }
            teams
        })
    }

    /// The teams of which one might be owed its room once this has come to pass.
    fn within_guarantee<'s>(
        &'s self,
        search: &'s Search<'_>,
        hypothetical: &'s Hypothetical,
    ) -> impl Iterator<Item = TeamId> + 's {
        let teams = self.teams(search);
        // Where nothing is imagined to change it is known already.
        let untouched = teams.outright.iter().filter(|(top, _)| !hypothetical.contains_key(top));
        let dirty = hypothetical.keys().filter_map(|top| teams.all.get(top)).flatten();
        let quotas = &search.cluster.quotas;
        let within_guarantee = |team: &&TeamId| {
            quotas.within_guarantee(search.preemptor.pool, **team, &self.total, hypothetical)
        };
        untouched.flat_map(|(_, teams)| teams).chain(dirty.filter(within_guarantee)).copied()
    }
}

impl<'a> Search<'a> {
    /// Those who wait although the guarantees of their teams hold them.
    fn owed_waiting(&self) -> &[Alike] {
        self.common.owed_waiting.get_or_init(|| {
            let (cluster, pool) = (self.cluster, self.preemptor.pool);
            let quotas = &cluster.quotas;
            let kinds = self.pending.potential_preemptors().filter_map(|(wanted, first, mut among)| {
                let total = cluster.at(first)?.least_total();
                among.any(|team| quotas.own_guarantee_holds(pool, team, &total)).then(|| Alike {
                    wanted: wanted.clone(),
                    total,
                    teams: OnceCell::new(),
                })
            });
            kinds.collect()
        })
    }

    /// Those of them of a team other than the claimant's that are not imagined to have started.
    fn of_kind(&self, alike: &Alike, team: TeamId) -> impl Iterator<Item = &'a WorkloadInfo> {
        let other = team != self.preemptor.team;
        let (cluster, pending) = (self.cluster, self.pending);
        let firsts =
            other.then(|| pending.potential_preemptors_of(&alike.wanted, team)).into_iter().flatten();
        let waiting = firsts.filter_map(|place| cluster.at(place));
        waiting.filter(|waiting| !self.state.started.contains(&waiting.workload.id))
    }

    /// Whether somebody of another team waits who is owed what the claimant would take, so that the
    /// claimant would be evicted in turn.
    ///
    /// Where not everybody is looked at, it counts only what mates free: the room of borrowers the other
    /// could have had before.
    pub fn exposed(&self, taken: &[Part], hypothetical: &Hypothetical, freed: &Freed) -> bool {
        let own = |part: &Part| self.candidates[part.candidate].own;
        if !self.confined {
            return self.exposed_with_borrowers(hypothetical, freed);
        }
        // Where one finds room others do who ask for the same, so one of each kind is asked.
        taken.iter().any(own)
            && self.owed_waiting().iter().any(|alike| {
                let one = self
                    .pending
                    .one_potential_preemptor(&alike.wanted)
                    .and_then(|place| self.cluster.at(place));
                one.is_some_and(|one| self.would_fit(one, freed, std::iter::empty()))
                    && alike
                        .within_guarantee(self, hypothetical)
                        .any(|team| self.of_kind(alike, team).next().is_some())
            })
    }

    /// The same where the other may have borrowers evicted besides.
    fn exposed_with_borrowers(&self, hypothetical: &Hypothetical, freed: &Freed) -> bool {
        let (cluster, preemptor) = (self.cluster, &self.preemptor);
        let quotas = &cluster.quotas;
        let mut with = hypothetical.clone();
        quotas.assume(&mut with, preemptor.team, preemptor.total, 1);
        let teams =
            |alike: &'_ Alike| alike.teams(self).all.values().flatten().copied().collect::<Vec<TeamId>>();
        let mut others_within_guarantee = self
            .owed_waiting()
            .iter()
            .flat_map(|alike| teams(alike).into_iter().flat_map(|team| self.of_kind(alike, team)))
            .peekable();
        if others_within_guarantee.peek().is_none() {
            return false;
        }
        let lenders: Vec<TeamId> = cluster.teams_holding(preemptor.pool).collect();
        others_within_guarantee.any(|waiting| {
            let others = lenders.iter().copied().filter(|team| *team != waiting.team);
            let others: Vec<(TeamId, Vec<TeamId>)> = others
                .map(|team| (team, quotas.levels_below_common(team, waiting.team).collect::<Vec<_>>()))
                .filter(|(_, levels)| {
                    quotas.any_beyond_guarantee(preemptor.pool, levels.iter().copied(), &with)
                })
                .collect();
            // The claimant's room is free again here, as if it had been evicted with all borrowers.
            let borrowers = || {
                others.iter().flat_map(|(team, levels)| {
                    let evictable = |other: &&WorkloadInfo| {
                        self.evictable(other)
                            && quotas.beyond_guarantee(preemptor.pool, levels, &other.keeps(), &with)
                    };
                    cluster.holders(preemptor.pool, *team).filter(evictable)
                })
            };
            self.would_be_within_guarantee(waiting, hypothetical, borrowers())
                && self.would_fit(waiting, freed, borrowers())
        })
    }

    /// Whether somebody who waits is owed its room once these are gone.
    fn would_be_within_guarantee<'e>(
        &self,
        waiting: &WorkloadInfo,
        hypothetical: &Hypothetical,
        mut gone: impl Iterator<Item = &'e WorkloadInfo>,
    ) -> bool {
        let (quotas, pool, total) = (&self.cluster.quotas, self.preemptor.pool, waiting.least_total());
        let root = |team: TeamId| quotas.team(team).path.last().copied();
        // Nobody makes room in a guarantee who does not stand under the same team.
        let mut without = hypothetical.clone();
        loop {
            if quotas.within_guarantee(pool, waiting.team, &total, &without) {
                return true;
            }
            let Some(next) = gone.find(|other| root(other.team) == root(waiting.team)) else { return false };
            quotas.assume(&mut without, next.team, &next.keeps(), -1);
        }
    }

    /// Whether somebody who waits finds room once `freed` is free and these are gone.
    pub fn would_fit<'e>(
        &self,
        waiting: &WorkloadInfo,
        freed: &Freed,
        gone: impl Iterator<Item = &'e WorkloadInfo>,
    ) -> bool {
        let (mut freed, mut gone) = (Cow::Borrowed(freed), gone.peekable());
        let request = request_of(waiting, self.preemptor.pool, waiting.least_pods());
        let nodes = placement::eligible(self.cluster, &request);
        // More room never hurts, so it is looked for again whenever twice as many are gone.
        let mut more = 1;
        loop {
            if placement::most(self.cluster, &nodes, &request, Capacity::Settled(&freed)) >= request.pods {
                return true;
            }
            if gone.peek().is_none() {
                return false;
            }
            for other in gone.by_ref().take(more) {
                free_pods(freed.to_mut(), other, other.usage.staying());
            }
            more *= 2;
        }
    }
}
