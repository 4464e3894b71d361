//! Who may be taken for a claimant at all, and what is known of each.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use crate::placement::{self, Capacity};
use crate::preemption::borrowers::{Borrower, Borrowers, Lending};
use crate::preemption::{Ground, Search};
use crate::state::cluster::ClusterState;
use crate::state::freed::Freed;
use crate::state::quotas::Hypothetical;
use crate::state::rules::{free_on, old_enough, scarcest, work_lost, would_be_within_guarantee_again};
use crate::state::workload::{Phase, WorkloadInfo};
use crate::types::ids::{NodeId, PoolId, Priority, TeamId};
use crate::types::ratio::Ratio;
use crate::types::submission::SubmissionOrder;
use crate::types::vector::Vector;
use crate::types::{Admission, Time, WorkloadId};

/// Where no more than so many may have to give something, all of them are looked at.
const FEW: usize = 64;
/// More candidates than this are not looked at; those that look cheapest are.
const MOST: usize = 512;
/// On so many nodes, and so many more for each pod of the claimant, candidates are looked for otherwise.
const NODES: usize = 24;
const NODES_A_POD: usize = 2;
/// So many lenders, those with the largest shares, are looked at for that.
const LENDERS: usize = 24;
/// Of no more than so many nodes each is priced, where the claimant is owed its room.
const PRICED: usize = 2_048;
/// So many of a lender's newest, and so many of its oldest, are looked at to find those nodes.
const LOOKED_AT: usize = 8;
/// One in so many of all that, where it is only asked whether a victim would evict in its turn.
const AHEAD: usize = 3;
/// So many times as many of both, where a first search for somebody who is owed has found nothing.
const WIDER: usize = 4;

/// One that may be taken.
#[derive(Debug)]
pub struct Candidate<'a> {
    /// The workload.
    pub info: &'a WorkloadInfo,
    /// Whether it is of the claimant's own team.
    pub own: bool,
    /// Whether it may be evicted or shrunk; if not, it may only be moved.
    pub takeable: bool,
    /// The levels of its team's path that a claimant from elsewhere must respect.
    pub levels: Rc<[TeamId]>,
    /// What all of it holds.
    pub amount: Vector,
    /// Its priority: the queue's, then its own.
    pub priority: Priority,
    /// When it was admitted.
    pub started: Time,
    /// Whether it is within its minimum run time.
    pub young: bool,
    /// What work would be lost with all of it, in device-milliseconds (thousandths of a device).
    pub lost: i128,
    /// See [`Candidate::covered`]; looked at only where it matters, since that means all its mates.
    covered: OnceCell<bool>,
    /// How many pods it can lose without going.
    pub extra: u32,
}

impl Candidate<'_> {
    /// Whether its team's guarantee holds it once lower priorities of the team yield: they borrow, not it.
    pub fn covered(&self, cluster: &ClusterState) -> bool {
        *self.covered.get_or_init(|| would_be_within_guarantee_again(cluster, self.info, self.priority))
    }

    /// Whether its going, besides what is imagined to be gone, leaves its team below its guarantee.
    pub fn straddles(&self, cluster: &ClusterState, pool: PoolId, hypothetical: &Hypothetical) -> bool {
        !self.own && cluster.quotas.straddles(pool, &self.levels, &self.amount, hypothetical)
    }
}

/// What gathering brought to light besides candidates.
#[derive(Debug, Default)]
pub struct Gathered {
    /// When somebody too young to be taken now will be old enough.
    pub retry_at: Option<Time>,
    /// Whether somebody could not be considered because its start is not confirmed yet.
    pub skipped: bool,
}

/// One on a node that may go, and what that costs and frees there.
struct Going<'a> {
    young: bool,
    /// In device-milliseconds (thousandths of a device).
    lost: i128,
    amount: i64,
    /// The levels of its team's path that the claimant must respect.
    levels: Rc<[TeamId]>,
    info: &'a WorkloadInfo,
}

impl<'a> Search<'a> {
    /// Collects the candidates, the cheapest to lose first as far as each can be judged by itself: all of
    /// them where there are few, else those on the most promising nodes, to which the search is then
    /// confined.
    pub fn gather(&mut self, barred: &dyn Fn(&WorkloadId) -> bool) -> Gathered {
        let mut gathered = Gathered::default();
        let (cluster, pool) = (self.cluster, self.preemptor.pool);
        if self.ground == Ground::Owed && !self.may_be_owed() {
            self.candidates.clear();
            return gathered;
        }
        let lending = self.common.lending.get_or_init(|| Lending::of(cluster, pool));
        let lenders = Borrowers::of(self, lending);
        let mut count = 0;
        let confined = lenders.in_order().any(|borrower| {
            count += cluster.totals.count(pool, borrower.team);
            count > FEW
        });
        let (candidates, nodes) = if confined {
            let (candidates, nodes) = self.promising(&lenders, barred, &mut gathered);
            (candidates, Some(nodes))
        } else {
            let all = lenders.in_order().flat_map(|borrower| {
                cluster.reclaimable(pool, borrower.team).map(move |info| (Rc::clone(&borrower), info))
            });
            let candidates =
                all.filter_map(|(borrower, info)| self.consider(&borrower, info, barred, &mut gathered));
            (candidates.collect(), None)
        };
        (self.candidates, self.confined, self.bounded) = (candidates, confined, confined);
        if let Some(nodes) = nodes {
            self.nodes = nodes;
        }
        self.put_in_order();
        if self.candidates.len() > MOST {
            self.candidates.truncate(MOST);
            self.bounded = true;
        }
        gathered
    }

    /// Whether the claimant can be owed its room whoever goes: only its own team's lower priorities make room in
    /// that team's own guarantee, and those below it.
    fn may_be_owed(&self) -> bool {
        let (cluster, preemptor) = (self.cluster, &self.preemptor);
        let quotas = &cluster.quotas;
        let mut hypothetical = self.state.hypothetical.clone();
        let siblings = cluster.reclaimable(preemptor.pool, preemptor.team);
        let lower = siblings.filter(|sibling| cluster.priority_of(sibling) < preemptor.priority);
        for sibling in lower.filter(|sibling| !self.state.gone.contains(&sibling.workload.id)) {
            quotas.assume(&mut hypothetical, sibling.team, &sibling.keeps(), -1);
        }
        quotas.stands_above(preemptor.team)
            || quotas.own_guarantee_would_hold(preemptor.pool, preemptor.team, preemptor.total, &hypothetical)
    }

    /// Those on the nodes where most is to be had for least: of every lender in turn, the nodes of those
    /// whose going loses least.
    fn promising(
        &self,
        lenders: &Borrowers<'_, 'a>,
        barred: &dyn Fn(&WorkloadId) -> bool,
        gathered: &mut Gathered,
    ) -> (Vec<Candidate<'a>>, Vec<NodeId>) {
        let (cluster, preemptor) = (self.cluster, self.preemptor);
        let wanted = NODES + NODES_A_POD * usize::try_from(preemptor.pods).unwrap_or(NODES).min(NODES);
        let wanted = match (self.wide, self.foresees) {
            (true, _) => wanted * WIDER,
            (false, true) => wanted / AHEAD,
            (false, false) => wanted,
        };
        let mut lists: Vec<std::vec::IntoIter<NodeId>> = Vec::new();
        if self.ground == Ground::Owed && !self.foresees && self.nodes.len() <= PRICED {
            lists.push(self.cheapest(lenders, barred, gathered).into_iter());
        } else {
            for borrower in lenders.in_order().take(if self.foresees { LENDERS / AHEAD } else { LENDERS }) {
                lists.push(self.likely(&borrower, barred, gathered).into_iter());
            }
        }
        if self.moves {
            lists.push(self.roomiest(wanted).into_iter());
        }
        let (mut candidates, mut nodes) = (BTreeMap::new(), BTreeSet::new());
        let mut seen = BTreeSet::new();
        while nodes.len() < wanted && !lists.is_empty() {
            lists.retain_mut(|list| {
                if nodes.len() >= wanted {
                    return false;
                }
                let Some(node) = list.find(|node| seen.insert(*node) && self.admits(*node)) else {
                    return false;
                };
                let there: Vec<Candidate<'a>> = cluster
                    .occupants(node)
                    .filter_map(|(info, _)| Some((lenders.get(info.team)?, info)))
                    .filter_map(|(borrower, info)| self.consider(&borrower, info, barred, gathered))
                    .collect();
                if self.gains(node, &there) {
                    nodes.insert(node);
                    candidates.extend(there.into_iter().map(|candidate| (candidate.info.place, candidate)));
                }
                true
            });
        }
        // With the nodes that have room already.
        if preemptor.pods > 1 {
            let room = Capacity::Settled(&self.state.freed);
            let sites = placement::nodes_that_fit(cluster, &self.nodes, &self.request(), room);
            nodes.extend(sites.into_iter().take(wanted));
        }
        let mut chosen: Vec<NodeId> = nodes.into_iter().collect();
        chosen.sort_by_key(|node| cluster.nodes.name(*node));
        (candidates.into_values().collect(), chosen)
    }

    /// The nodes of those of a lender whose going loses least, in that order.
    fn likely(
        &self,
        borrower: &Borrower,
        barred: &dyn Fn(&WorkloadId) -> bool,
        gathered: &mut Gathered,
    ) -> Vec<NodeId> {
        let reclaimable = || self.cluster.reclaimable(self.preemptor.pool, borrower.team);
        let looked_at = if self.wide { LOOKED_AT * WIDER } else { LOOKED_AT };
        let mut likely = Vec::new();
        // The newest have least to lose; if they are too new, the oldest may be old enough.
        for info in reclaimable().take(looked_at).chain(reclaimable().rev().take(looked_at)) {
            let Some(admission) = self.admission(info, barred, gathered) else { continue };
            let (takeable, young) = self.may_go(borrower, info, admission, gathered);
            if takeable || self.moves {
                let lost = work_lost(self.cluster, info, admission.at, self.now);
                likely.push(((!takeable, young, self.cluster.priority_of(info), lost), info));
            }
        }
        // Those alike stay in the order in which they were looked at.
        likely.sort_by_key(|(key, _)| *key);
        likely.into_iter().flat_map(|(_, info)| info.usage.staying().keys().copied()).collect()
    }

    /// The nodes on which one pod of the claimant finds room when those go who lose least, in the order of
    /// what is lost.
    fn cheapest(
        &self,
        lenders: &Borrowers<'_, 'a>,
        barred: &dyn Fn(&WorkloadId) -> bool,
        gathered: &mut Gathered,
    ) -> Vec<NodeId> {
        let Some(resource) = scarcest(self.cluster, self.preemptor.need) else { return Vec::new() };
        let mut priced = Vec::new();
        for node in &self.nodes {
            let mut there: Vec<Going<'_>> = self
                .cluster
                .occupants(*node)
                .filter_map(|(info, pods)| Some((lenders.get(info.team)?, info, pods)))
                .filter_map(|(borrower, info, pods)| {
                    let admission = self.admission(info, barred, gathered)?;
                    let (takeable, young) = self.may_go(&borrower, info, admission, gathered);
                    let lost = work_lost(self.cluster, info, admission.at, self.now);
                    let amount = info.need.get(resource).saturating_mul(i64::from(pods));
                    takeable.then_some(Going {
                        young,
                        lost,
                        amount,
                        levels: Rc::clone(&borrower.levels),
                        info,
                    })
                })
                .collect();
            there.sort_by_key(|going| (going.young, going.lost, going.amount));
            let missing = self.preemptor.need.get(resource) - self.free(*node, resource);
            if let Some(price) = self.price(there, missing) {
                priced.push((price, *node));
            }
        }
        priced.sort_unstable();
        priced.into_iter().map(|(_, node)| node).collect()
    }

    /// What it costs that so many go as are missing, by the first criteria of a set's cost: those last whose going
    /// would leave their team below its guarantee. `None` if all of them do not do.
    fn price(&self, mut there: Vec<Going<'_>>, mut missing: i64) -> Option<(usize, bool, i128)> {
        let (quotas, preemptor) = (&self.cluster.quotas, &self.preemptor);
        let (mut price, mut hypothetical) = ((0, false, 0_i128), self.state.hypothetical.clone());
        for straddling in [false, true] {
            there.retain(|Going { young, lost, amount, levels, info }| {
                let (held, own) = (info.keeps(), info.team == preemptor.team);
                let straddles = !own && quotas.straddles(preemptor.pool, levels, &held, &hypothetical);
                if missing <= 0 || straddles != straddling {
                    return true;
                }
                missing -= amount;
                price = (price.0 + usize::from(straddles), price.1 | young, price.2.saturating_add(*lost));
                quotas.assume(&mut hypothetical, info.team, &held, -1);
                false
            });
        }
        (missing <= 0).then_some(price)
    }

    /// What of a resource is free on a node in the state of the search.
    pub fn free(&self, node: NodeId, resource: usize) -> i64 {
        let more = self.state.freed.get(&node).map_or(0, |freed| freed.get(resource));
        self.cluster.nodes.get(node).settled().amounts().get(resource) + more
    }

    /// The nodes that have most of what the claimant asks for, though not enough.
    fn roomiest(&self, wanted: usize) -> Vec<NodeId> {
        let resource = scarcest(self.cluster, self.preemptor.need);
        let free = |node: &NodeId| resource.map_or(0, |resource| self.free(*node, resource));
        let mut nodes: Vec<(Reverse<i64>, NodeId)> =
            self.nodes.iter().map(|node| (Reverse(free(node)), *node)).collect();
        nodes.sort_unstable();
        nodes.into_iter().take(wanted).map(|(_, node)| node).collect()
    }

    /// Whether more pods of the claimant find room on a node once these are gone from it.
    fn gains(&self, node: NodeId, there: &[Candidate<'_>]) -> bool {
        let mut freed = self.state.freed.on(node);
        let room = |freed: &Freed| {
            placement::capacity_for(self.cluster, node, self.preemptor.need, Capacity::Settled(freed))
        };
        let before = room(&freed);
        for candidate in there {
            free_on(&mut freed, candidate.info, node);
        }
        room(&freed) > before
    }

    /// Whether the claimant's pods may be placed on a node at all.
    pub fn admits(&self, node: NodeId) -> bool {
        let request = self.request();
        self.cluster.nodes.fitting(request.pool, request.shape, request.need, |fitting| fitting.admits(node))
    }

    /// By what somebody runs of whom something may be decided.
    fn admission(
        &self,
        info: &'a WorkloadInfo,
        barred: &dyn Fn(&WorkloadId) -> bool,
        gathered: &mut Gathered,
    ) -> Option<&'a Admission> {
        self.looked_at.set(self.looked_at.get() + 1);
        let id = &info.workload.id;
        if !self.cluster.preemptible(info) || barred(id) || self.state.gone.contains(id) {
            return None;
        }
        if self.ground == Ground::Surplus && self.preemptor.taken.is_some_and(|taken| taken.contains(id)) {
            return None;
        }
        match &info.phase {
            Phase::Running(admission) => Some(admission),
            // By the time a victim of now asks for its room back, it will run.
            Phase::Starting(admission) if self.foresees => Some(admission),
            Phase::Starting(_) | Phase::Resizing { .. } => {
                gathered.skipped = true;
                None
            }
            _ => None,
        }
    }

    /// What is known of somebody, if it may be taken.
    fn consider(
        &self,
        borrower: &Borrower,
        info: &'a WorkloadInfo,
        barred: &dyn Fn(&WorkloadId) -> bool,
        gathered: &mut Gathered,
    ) -> Option<Candidate<'a>> {
        let admission = self.admission(info, barred, gathered)?;
        let (takeable, young) = self.may_go(borrower, info, admission, gathered);
        if !takeable && !self.moves {
            return None;
        }
        let cluster = self.cluster;
        let own = info.team == self.preemptor.team;
        let (amount, priority) = (info.keeps(), cluster.priority_of(info));
        Some(Candidate {
            info,
            own,
            takeable,
            levels: Rc::clone(&borrower.levels),
            amount,
            priority,
            started: admission.at,
            young,
            lost: work_lost(cluster, info, admission.at, self.now),
            covered: OnceCell::new(),
            extra: info.extra_pods(),
        })
    }

    /// Whether somebody who runs may be evicted or shrunk, and whether it is within its minimum run time.
    fn may_go(
        &self,
        borrower: &Borrower,
        info: &WorkloadInfo,
        admission: &Admission,
        gathered: &mut Gathered,
    ) -> (bool, bool) {
        let (cluster, preemptor, hypothetical) = (self.cluster, &self.preemptor, &self.state.hypothetical);
        let started = admission.at;
        let own = info.team == preemptor.team;
        let mut takeable = borrower.takeable
            && if own {
                cluster.priority_of(info) < preemptor.priority
            } else {
                cluster.quotas.beyond_guarantee(preemptor.pool, &borrower.levels, &info.need, hypothetical)
            };
        let old_enough = old_enough(cluster, info, started);
        let young = self.now < old_enough && !(self.foresees && self.lasts_until(info, started, old_enough));
        // Within a team, and against a claim on the surplus, the minimum run time holds.
        if takeable && young && (own || self.ground == Ground::Surplus) {
            gathered.retry_at = [gathered.retry_at, Some(old_enough)].into_iter().flatten().min();
            takeable = false;
        }
        (takeable, young)
    }

    /// Whether somebody may still run by then: nine of ten like it do not take that long. Of whom that is
    /// not known, it may.
    fn lasts_until(&self, info: &WorkloadInfo, started: Time, then: Time) -> bool {
        let length = self.run_times.length(self.cluster, info, Duration::ZERO);
        length.is_none_or(|length| started.after(length.late) >= then)
    }

    /// Sorts the candidates: the cheapest to lose first, judged one by one.
    fn put_in_order(&mut self) {
        let (cluster, preemptor) = (self.cluster, self.preemptor);
        let own_needed = self.ground == Ground::Owed
            && !cluster.quotas.within_guarantee(
                preemptor.pool,
                preemptor.team,
                preemptor.total,
                &self.state.hypothetical,
            );
        let mut lowest: BTreeMap<TeamId, Priority> = BTreeMap::new();
        let mut shares: BTreeMap<TeamId, Ratio> = BTreeMap::new();
        for candidate in &self.candidates {
            let team = candidate.info.team;
            let low = lowest.entry(team).or_insert(candidate.priority);
            *low = (*low).min(candidate.priority);
            shares.entry(team).or_insert_with(|| {
                cluster.quotas.level_share(preemptor.pool, team, self.state.hypothetical.get(&team))
            });
        }
        let state = &self.state;
        self.candidates.sort_by_cached_key(|c| {
            let lower = lowest.get(&c.info.team).is_some_and(|low| *low < c.priority);
            let share = shares.get(&c.info.team).copied().unwrap_or(Ratio::ZERO);
            (
                (
                    !c.takeable,
                    c.takeable && c.straddles(cluster, preemptor.pool, &state.hypothetical),
                    c.young,
                    lower,
                    c.own && !own_needed,
                ),
                (c.lost, Reverse(share), c.priority, c.info.usage.staying_pods(), Reverse(c.started)),
                Reverse(SubmissionOrder::of(&c.info.workload)),
                c.info.workload.id.clone(),
            )
        });
    }
}
