//! Judges of the laws. Each works out from the world's own state, not from the engine's, which decisions a
//! law allows.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sluice_engine::types::{Name, WorkloadId};

use super::ops::ids;
use super::usage::{Usage, charge, current_usage, guarantees_hold, is_oversize, settled_usage};
use super::world::{Job, Phase, World};

/// Every set of these jobs, the empty one first.
pub fn subsets<'a>(jobs: &[&'a Job]) -> impl Iterator<Item = Vec<&'a Job>> {
    (0_u32..1 << jobs.len())
        .map(|mask| (0..jobs.len()).filter(|i| mask & (1 << i) != 0).map(|i| jobs[i]).collect())
}

/// Law 1: nodes and limits hold the present usage.
pub fn never_over_admitted(world: &World) -> Result<(), TestCaseError> {
    for node in world.nodes.keys() {
        prop_assert!(world.free(node) >= 0, "{node} is over-admitted:\n{}", world.log.join("\n"));
    }
    for name in world.teams.keys() {
        if let Some(limit) = world.limit(name) {
            prop_assert!(world.used(name) <= limit, "team {name} exceeds its limit of {limit}");
        }
    }
    Ok(())
}

/// The levels above a victim that law 3 protects from a preemptor: those that the two do not share.
fn protected_levels(world: &World, victim: &Job, preemptor: &Job) -> Vec<Name> {
    let shared = world.path(&preemptor.workload.team);
    world.path(&victim.workload.team).into_iter().filter(|team| !shared.contains(team)).collect()
}

/// Whether the guarantees on its path hold `job` once lower priorities of its team are evicted. Then these
/// are the borrowers, and evicting `job` for another team would only make the two evict each other again and
/// again.
fn is_covered(world: &World, job: &Job, usage: &Usage, evicted: &BTreeSet<WorkloadId>) -> bool {
    let running = world.running();
    let lower: Vec<&&Job> = running
        .iter()
        .filter(|sibling| sibling.workload.team == job.workload.team && sibling.preemptible())
        .filter(|sibling| !evicted.contains(&sibling.workload.id))
        .filter(|sibling| sibling.workload.priority < job.workload.priority)
        .collect();
    let mut without = usage.clone();
    for sibling in lower {
        charge(world, &mut without, sibling, -sibling.total());
    }
    let path = world.path(&job.workload.team);
    guarantees_hold(world, &without, job, 0) && path.iter().all(|team| !is_oversize(world, job, team))
}

/// Whether a team guarantees more to the teams below it than it is guaranteed itself.
fn promises_too_much(world: &World, team: &Name) -> bool {
    let below = world.teams.values().filter(|other| other.parent.as_ref() == Some(team));
    below.map(|other| world.guaranteed(&other.name)).sum::<i64>() > world.guaranteed(team)
}

/// The kind of preemptor against which a guarantee protects (laws 2 and 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// One within guarantee: jobs that are larger than the guarantee are left out of it.
    Guaranteed,
    /// One that borrows: a job that is larger than the guarantee is protected with the whole usage of its team.
    Borrower,
}

/// Takes victims of other teams off `usage` one by one, those that fall below their team's guarantee last.
/// Returns the number of these, or `None` if law 3 protects one. `usage` is settled usage; `evicted` are
/// victims of the same plan.
pub fn evict_from(
    world: &World,
    victims: &[&Job],
    preemptor: &Job,
    against: Against,
    usage: &mut Usage,
    evicted: &BTreeSet<WorkloadId>,
) -> Option<usize> {
    let mut left: Vec<&Job> = victims.to_vec();
    let (before, mut below_guarantee) = (usage.clone(), 0);
    // Only one victim can leave its team below the guarantee: the largest of those that may.
    left.sort_by_key(|victim| (!is_covered(world, victim, &before, evicted), victim.total()));
    while !left.is_empty() {
        let is_allowed = |victim: &Job, usage: &Usage, may_fall_below: bool| {
            let levels = protected_levels(world, victim, preemptor);
            let counted = |team: &Name| match against {
                Against::Borrower if is_oversize(world, victim, team) => usage[team],
                _ => usage.counted(team),
            };
            let last_resort = may_fall_below && !is_covered(world, victim, &before, evicted);
            let is_exempt = |team: &Name| against == Against::Guaranteed && is_oversize(world, victim, team);
            let is_beyond = |team: &Name| counted(team) > world.guaranteed(team);
            levels.iter().enumerate().all(|(at, team)| {
                // The smallest guarantee on the path protects.
                let promised_too_much = levels[at + 1..]
                    .iter()
                    .any(|above| promises_too_much(world, above) && (is_exempt(above) || is_beyond(above)));
                is_exempt(team)
                    || is_beyond(team)
                        && (last_resort || counted(team) - victim.total() >= world.guaranteed(team))
                    || last_resort && against == Against::Guaranteed && promised_too_much
            })
        };
        let next = left.iter().position(|victim| is_allowed(victim, usage, false)).or_else(|| {
            below_guarantee += 1;
            left.iter().position(|victim| is_allowed(victim, usage, true))
        })?;
        let victim = left.remove(next);
        charge(world, usage, victim, -victim.total());
    }
    Some(below_guarantee)
}

/// Law 2: how many of these victims of a preemptor within guarantee go before a sibling that is larger than a guarantee of
/// their team.
pub fn before_oversize(world: &World, victims: &[&Job], preemptor: &Job) -> usize {
    let mut usage = current_usage(world);
    for victim in victims {
        charge(world, &mut usage, victim, -victim.total());
    }
    if !guarantees_hold(world, &usage, preemptor, preemptor.total()) {
        return 0;
    }
    let is_large =
        |job: &Job| protected_levels(world, job, preemptor).iter().any(|team| is_oversize(world, job, team));
    let running = world.running();
    let stays = |team: &Name| {
        running.iter().any(|other| {
            let taken = victims.iter().any(|victim| victim.workload.id == other.workload.id);
            other.workload.team == *team && !taken && is_large(other)
        })
    };
    let others = victims.iter().filter(|victim| victim.workload.team != preemptor.workload.team);
    others.filter(|victim| !is_large(victim) && stays(&victim.workload.team)).count()
}

/// As [`evict_from`] for a set that may include siblings of the preemptor, which law 3 does not protect.
pub fn evict_set_from(
    world: &World,
    set: &[&Job],
    preemptor: &Job,
    against: Against,
    usage: &mut Usage,
) -> Option<usize> {
    let (siblings, others): (Vec<&Job>, Vec<&Job>) =
        set.iter().partition(|victim| victim.workload.team == preemptor.workload.team);
    for victim in siblings {
        charge(world, usage, victim, -victim.total());
    }
    evict_from(world, &others, preemptor, against, usage, &BTreeSet::new())
}

/// The fair share of a team, borrowed GPUs ÷ weight, that compares exactly. It is infinite without a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FairShare {
    borrowed: i64,
    weight: i64,
}

impl FairShare {
    fn is_infinite(self) -> bool {
        self.weight == 0 && self.borrowed > 0
    }
}

impl Ord for FairShare {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.is_infinite().cmp(&other.is_infinite()).then_with(|| {
            if self.is_infinite() {
                self.borrowed.cmp(&other.borrowed)
            } else {
                (self.borrowed * other.weight.max(1)).cmp(&(other.borrowed * self.weight.max(1)))
            }
        })
    }
}

impl PartialOrd for FairShare {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The fair shares of all teams at that usage, the largest first.
pub fn fair_shares(world: &World, usage: &Usage) -> Vec<FairShare> {
    let of = |(team, used): (&Name, &i64)| FairShare {
        borrowed: (used - world.guaranteed(team)).max(0),
        weight: i64::from(world.teams[team].weight),
    };
    let mut shares: Vec<FairShare> = usage.iter().map(of).collect();
    shares.sort_unstable_by(|left, right| right.cmp(left));
    shares
}

/// Law 2: the sets of running workloads of which one must be evicted for `job`, since it would start within
/// its guarantee. A set without a sibling does not count while a sibling's reservation is in the way of
/// `job`; none counts while a sibling's reservation of quota is.
pub fn preemptions_due(world: &World, job: &Job) -> Vec<Vec<WorkloadId>> {
    if world.is_limited_by_sibling(job) {
        return Vec::new();
    }
    let mut sets = preemption_sets(world, job).unwrap_or_default();
    if world.is_masked_by_sibling(job) {
        let is_sibling = |id: &WorkloadId| world.items[id].workload.team == job.workload.team;
        sets.retain(|set| set.iter().any(is_sibling));
    }
    sets
}

/// Every set of running workloads that may be evicted and without which `job` starts within its guarantee.
/// `None` if there are too many candidates to try every set.
pub fn preemption_sets(world: &World, job: &Job) -> Option<Vec<Vec<WorkloadId>>> {
    preemption_sets_where(world, job, |_, [_, after]| guarantees_hold(world, after, job, job.total()))
}

/// The same for sets that [`are_exchanged`].
pub fn exchanges(world: &World, job: &Job) -> Option<Vec<Vec<WorkloadId>>> {
    preemption_sets_where(world, job, |victims, usages| {
        are_exchanged(world, job, victims, usages, job.total())
    })
}

/// Whether the guarantee of a job's own team holds `more` of it without these victims, and a team above that does not uses no more
/// than before, or borrows what is free: then it takes nothing from teams that are not below it.
pub fn are_exchanged(
    world: &World,
    job: &Job,
    victims: &[&Job],
    [before, after]: [&Usage; 2],
    more: i64,
) -> bool {
    world.path(&job.workload.team).iter().all(|team| {
        let is_below = |victim: &&Job| world.path(&victim.workload.team).contains(team);
        after.counted(team) + more <= world.guaranteed(team)
            || *team != job.workload.team
                && (after[team] + more <= before[team] || victims.iter().all(is_below))
    })
}

/// Whether the guarantee of a job's own team holds `more` of it, and each team above stays within its guarantee or uses no more than
/// before. Then a victim may leave its team below the guarantee, as for a workload that all guarantees on the path hold.
pub fn are_exchanged_in_full(world: &World, job: &Job, [before, after]: [&Usage; 2], more: i64) -> bool {
    world.path(&job.workload.team).iter().all(|team| {
        after.counted(team) + more <= world.guaranteed(team)
            || *team != job.workload.team && after[team] + more <= before[team]
    })
}

/// Every set of running workloads that may be evicted and without which `job` starts, if `holds` says so of the usage before
/// and after.
fn preemption_sets_where(
    world: &World,
    job: &Job,
    holds: impl Fn(&[&Job], [&Usage; 2]) -> bool,
) -> Option<Vec<Vec<WorkloadId>>> {
    let mut candidates = world.running();
    candidates.retain(|other| {
        let sibling = other.workload.team == job.workload.team;
        other.preemptible() && (!sibling || other.workload.priority < job.workload.priority)
    });
    if candidates.len() > 9 {
        return None;
    }
    let before = settled_usage(world, &BTreeSet::new());
    let starts = |set: &Vec<&Job>| {
        let mut usage = before.clone();
        if evict_set_from(world, set, job, Against::Guaranteed, &mut usage).is_none() {
            return false;
        }
        let path = world.path(&job.workload.team);
        let limited = path.iter().any(|t| world.limit(t).is_some_and(|l| usage[t] + job.total() > l));
        holds(set, [&before, &usage]) && !limited && world.fits_after(job, set)
    };
    Some(subsets(&candidates).filter(starts).map(ids).collect())
}

/// The usage once the victims are evicted and the preemptor runs.
pub fn usage_after(world: &World, victims: &[&Job], preemptor: &Job) -> Usage {
    let mut usage = current_usage(world);
    for victim in victims {
        charge(world, &mut usage, victim, -victim.total());
    }
    charge(world, &mut usage, preemptor, preemptor.total());
    usage
}

/// Whether a set has a sibling of the preemptor that returns for the same capacity: the guarantees hold it beside the
/// preemptor, once it has preempted the borrowers below them in turn.
fn evicts_sibling_needlessly(world: &World, preemptor: &Job, set: &[WorkloadId]) -> bool {
    let victims: Vec<&Job> = set.iter().map(|id| &world.items[id]).collect();
    let usage = usage_after(world, &victims, preemptor);
    let returns = |sibling: &&Job| {
        let path = world.path(&sibling.workload.team);
        path.iter().all(|team| {
            let reclaimable = borrowed_beside(world, &usage, team, &path);
            usage.counted(team) + sibling.total() - reclaimable <= world.guaranteed(team)
        })
    };
    victims.iter().filter(|victim| victim.workload.team == preemptor.workload.team).any(returns)
}

/// What the teams directly below `team` use beyond their guarantees, but for the one on `path`.
fn borrowed_beside(world: &World, usage: &Usage, team: &Name, path: &[Name]) -> i64 {
    let below = world
        .teams
        .iter()
        .filter(|(name, child)| child.parent.as_ref() == Some(team) && !path.contains(name));
    below.map(|(name, _)| (usage.counted(name) - world.guaranteed(name)).max(0)).sum()
}

/// How many victims of other teams fall below their guarantee; `None` if law 3 protects one.
fn below_guarantee<'a>(
    world: &World,
    set: impl IntoIterator<Item = &'a WorkloadId>,
    preemptor: &Job,
) -> Option<usize> {
    let victims = set.into_iter().map(|id| &world.items[id]);
    let others: Vec<&Job> =
        victims.filter(|victim| victim.workload.team != preemptor.workload.team).collect();
    evict_from(world, &others, preemptor, Against::Guaranteed, &mut current_usage(world), &BTreeSet::new())
}

/// Law 4: of `sets`, which all let the preemptor start, none is a part of the chosen one, and none takes
/// fewer workloads below their guarantee.
pub fn the_chosen_set_is_minimal(
    world: &World,
    preemptor: &Job,
    chosen: &BTreeSet<WorkloadId>,
    sets: &[Vec<WorkloadId>],
) -> Result<(), TestCaseError> {
    let is_part = |set: &Vec<WorkloadId>| set.len() < chosen.len() && set.iter().all(|v| chosen.contains(v));
    prop_assert!(!sets.iter().any(is_part), "{chosen:?} has a needless victim: {sets:?}");
    // A sibling that the guarantee holds beside the preemptor would return for the same capacity.
    let comparable = sets.iter().filter(|set| !evicts_sibling_needlessly(world, preemptor, set));
    let best = comparable.filter_map(|set| below_guarantee(world, set, preemptor)).min();
    let chosen_below = below_guarantee(world, chosen, preemptor);
    prop_assert!(best.is_none() || chosen_below <= best, "{chosen:?} cuts into a guarantee needlessly");
    Ok(())
}

/// Law 4: every preemptor has started, by the log from that line on.
pub fn preemptors_have_started(world: &World, log_from: usize) -> Result<(), TestCaseError> {
    for (preemptor, victims) in &world.evicted_for {
        let admission = format!("Admit {preemptor} ");
        let started = world.log[log_from..].iter().any(|line| line.starts_with(&admission));
        prop_assert!(started, "{victims:?} were evicted for {preemptor}, which did not start");
    }
    Ok(())
}

/// Law 4: no workload is evicted twice for the same preemptor, by the log from that line on.
pub fn victims_are_evicted_once(world: &World, log_from: usize) -> Result<(), TestCaseError> {
    let mut evicted = BTreeSet::new();
    for line in world.log[log_from..].iter().filter(|line| line.starts_with("Evict")) {
        prop_assert!(evicted.insert(line), "evicted twice: {line}");
    }
    Ok(())
}

/// Law 4: without any one of its victims the preemptor would not fit.
pub fn every_victim_is_needed(
    world: &World,
    preemptor: &Job,
    victims: &BTreeSet<WorkloadId>,
) -> Result<(), TestCaseError> {
    for spared in victims {
        let others: Vec<&Job> =
            victims.iter().filter(|victim| *victim != spared).map(|victim| &world.items[victim]).collect();
        prop_assert!(!world.fits_after(preemptor, &others), "{spared} is a needless victim of {victims:?}");
    }
    Ok(())
}

/// Law 4: the time that is lost, in milliseconds, × the square root of the GPUs that lose it, in thousandths.
pub fn cost_of_eviction(gpus: i64, lost: i64) -> i64 {
    (gpus * 1_000_000).isqrt() * lost
}

/// The cost of evicting the running workloads of a set, counted from their admission.
pub fn costs<'a>(world: &World, set: impl IntoIterator<Item = &'a WorkloadId>) -> i64 {
    let lost = |id: &WorkloadId| match &world.items[id].phase {
        Phase::Running(admission) => cost_of_eviction(world.items[id].total(), world.now.0 - admission.at.0),
        _ => 0,
    };
    set.into_iter().map(lost).sum()
}

/// Law 5: moving one GPU from any team to any other makes the list of shares, largest first, no smaller.
pub fn no_division_is_fairer(used: &[i64], weights: &[u32]) -> Result<(), TestCaseError> {
    for from in 0..used.len() {
        for to in 0..used.len() {
            let mut other = used.to_vec();
            other[from] -= 1;
            other[to] += 1;
            let is_fair =
                used[from] == 0 || weighted_shares(&other, weights) >= weighted_shares(used, weights);
            prop_assert!(is_fair, "{used:?} with weights {weights:?} is less fair than {other:?}");
        }
    }
    Ok(())
}

/// Shares times the product of all weights, the largest first.
fn weighted_shares(used: &[i64], weights: &[u32]) -> Vec<i64> {
    let product: i64 = weights.iter().map(|weight| i64::from(*weight)).product();
    let mut shares: Vec<i64> =
        used.iter().zip(weights).map(|(used, weight)| used * product / i64::from(*weight)).collect();
    shares.sort_unstable_by_key(|share| -share);
    shares
}

/// Law 6: whether `job` may start as things are, without any eviction.
pub fn could_start(world: &World, job: &Job) -> bool {
    let nothing = BTreeMap::new();
    world.within_limits(job, &nothing)
        && (job.preemptible() || holds_fixed(world, job))
        && world.fits_after(job, &[])
}

/// Law 2: whether the guarantees on its path hold a job beside all work there that is never preempted.
fn holds_fixed(world: &World, job: &Job) -> bool {
    world.path(&job.workload.team).iter().all(|team| {
        let fixed = |other: &Job| !other.preemptible() && world.path(&other.workload.team).contains(team);
        let held: i64 =
            world.admitted().iter().filter(|(other, _)| fixed(other)).map(|(other, _)| other.total()).sum();
        held + job.total() <= world.guaranteed(team)
    })
}
