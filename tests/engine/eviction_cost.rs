//! Law 4: of all sets of victims that let a preemptor start, the engine evicts the one with the lowest
//! [`Cost`].
//!
//! The first property tries every set and computes its cost from the world's own state. One part of the cost
//! is *follow-up preemptions*: a victim, queued again, evicts others. Two things about them are not known
//! here, so the cost of a set is a range:
//! * the nodes that the preemptor, and victims that start again beside it, will have: every placement is
//!   tried;
//! * whether a victim that borrows preempts others. This is certain if its own victims have passed their
//!   minimum run time and could not start again beside it; otherwise it is only possible.
//!
//! The engine is wrong if the lowest cost of its set, with certain follow-ups, is above the highest cost of
//! another set, with all possible follow-ups.
//!
//! The second property has too many candidates to try every set. One pod needs one node, so the cheapest set
//! on each node can still be found.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sluice_engine::types::{Action, EvictReason};
use sluice_engine::types::{Admission, Name, Time, WorkloadId};

use super::judge::{
    Against, before_oversize, cost_of_eviction, evict_set_from, exchanges, fair_shares, preemption_sets,
    subsets, usage_after,
};
use super::ops::{Setup, TEAMS, build, ids, setup};
use super::usage::{Usage, charge, guarantees_hold, settled_usage};
use super::world::{Job, Phase, World, team};

/// The nodes of a workload, with its pods on each.
type Placement = BTreeMap<Name, u32>;

/// The victims that would preempt others, each with how many of its victims would fall below their guarantee.
type FollowUps = BTreeMap<WorkloadId, usize>;

/// The cost of a set. The order of the fields is law 4's order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    below_guarantee: usize,
    within_min_runtime: bool,
    follow_ups: usize,
    before_oversize: usize,
    needless_siblings: usize,
    evictions: i64,
    priorities: Vec<i32>,
    pods: u32,
    started: Vec<Reverse<Time>>,
}

/// The same jobs, teams and nodes, without the world's past and reservations.
fn copy(world: &World) -> World {
    let sizes: Vec<i64> = world.nodes.values().map(|(count, _)| *count).collect();
    let mut copy = World::new(&sizes, world.teams.values().cloned().collect());
    copy.now = world.now;
    copy.items = world.items.clone();
    copy
}

/// A copy of the world in which the set is queued again and the preemptor runs in that placement.
fn after(world: &World, set: &[WorkloadId], preemptor: &Job, placement: &Placement) -> World {
    let mut after = copy(world);
    for id in set {
        if let Some(victim) = after.items.get_mut(id) {
            victim.phase = Phase::Queued;
        }
    }
    let admission = Admission {
        pool: "default".into(),
        nodes: placement.clone(),
        pods: preemptor.workload.pods,
        borrowed: false,
        share: None,
        spared: false,
        unfunded: false,
        at: world.now,
    };
    let running = Job { phase: Phase::Running(admission), ..preemptor.clone() };
    after.items.insert(preemptor.workload.id.clone(), running);
    after
}

/// Every placement of the preemptor once a set is evicted.
fn placements(world: &World, set: &[WorkloadId], preemptor: &Job) -> Vec<Placement> {
    let mut placements = vec![BTreeMap::new()];
    for node in world.nodes.keys() {
        let freed: i64 = set
            .iter()
            .filter_map(|id| match &world.items[id].phase {
                Phase::Running(at) => {
                    let pods = at.nodes.get(node).copied().unwrap_or(0);
                    Some(world.items[id].gpus_per_pod * i64::from(pods))
                }
                _ => None,
            })
            .sum();
        let headroom = u32::try_from((world.free(node) + freed) / preemptor.gpus_per_pod).unwrap_or(0);
        let extended = |placement: &Placement| {
            let left = preemptor.workload.pods - placement.values().sum::<u32>();
            let with = |pods: u32| {
                let mut placement = placement.clone();
                if pods > 0 {
                    placement.insert(node.clone(), pods);
                }
                placement
            };
            (0..=left.min(headroom)).map(with).collect::<Vec<_>>()
        };
        placements = placements.iter().flat_map(extended).collect();
    }
    placements.retain(|placement| placement.values().sum::<u32>() == preemptor.workload.pods);
    placements
}

/// The follow-up preemptions by the waiting workloads of `world`, one map for each order and placement in
/// which they may be served. A workload that fits starts and preempts nothing. Workloads within guarantee are
/// served first and each team in its order; the order between teams is open.
fn follow_ups(world: &World, waiting: &[&WorkloadId], only_certain: bool) -> Vec<FollowUps> {
    let (job, nothing) = (|id: &WorkloadId| &world.items[id], BTreeMap::new());
    let is_before = |other, id| {
        let same_team = job(other).workload.team == job(id).workload.team;
        same_team && World::queue_position(job(other)) < World::queue_position(job(id))
    };
    let mut heads = waiting.to_vec();
    heads.retain(|id| !waiting.iter().any(|other| is_before(other, id)));
    if heads.iter().any(|id| world.within_guarantee(job(id), &nothing)) {
        heads.retain(|id| world.within_guarantee(job(id), &nothing));
    }
    if heads.is_empty() {
        return vec![FollowUps::new()];
    }
    let when_served = |id: &WorkloadId| -> Vec<FollowUps> {
        let job = job(id);
        let rest: Vec<&WorkloadId> = waiting.iter().copied().filter(|other| *other != id).collect();
        if world.within_limits(job, &nothing) && world.fits_after(job, &[]) {
            let started = |placement| follow_ups(&after(world, &[], job, placement), &rest, only_certain);
            return placements(world, &[], job).iter().flat_map(started).collect();
        }
        let follow_up = follow_up(world, job, only_certain);
        let with = |mut others: FollowUps| {
            others.extend(follow_up.map(|below_guarantee| (id.clone(), below_guarantee)));
            others
        };
        follow_ups(world, &rest, only_certain).into_iter().map(with).collect()
    };
    heads.into_iter().flat_map(when_served).collect()
}

/// Whether a waiting workload that does not fit may preempt: the fewest victims that would fall below their
/// guarantee. Siblings within their minimum run time are waited for unless no other set works.
fn follow_up(world: &World, job: &Job, only_certain: bool) -> Option<usize> {
    if may_preempt_while_borrowing(world, job, true) {
        return Some(0);
    }
    let sets = preemption_sets(world, job).unwrap_or_default();
    let fewest_below_guarantee = |any_age: bool| {
        sets.iter()
            .filter(|set| !set.is_empty() && (any_age || !has_sibling_within_min_runtime(world, set, job)))
            .filter_map(|set| below_guarantee(world, set, job))
            .min()
    };
    let possible = || match may_preempt_while_borrowing(world, job, false) {
        true => Some(0),
        false => fewest_below_guarantee(true).or_else(|| fewest_below_guarantee_by_exchange(world, job)),
    };
    fewest_below_guarantee(false).or_else(|| if only_certain { None } else { possible() })
}

/// The fewest victims that would fall below their guarantee where teams below one parent take from each other what it borrows.
fn fewest_below_guarantee_by_exchange(world: &World, job: &Job) -> Option<usize> {
    let below = |set: &Vec<WorkloadId>| {
        let victims: Vec<&Job> = set.iter().map(|id| &world.items[id]).collect();
        let mut usage = settled_usage(world, &BTreeSet::new());
        evict_set_from(world, &victims, job, Against::Guaranteed, &mut usage)
    };
    exchanges(world, job).unwrap_or_default().iter().filter(|set| !set.is_empty()).filter_map(below).min()
}

/// How many victims of a set would fall below their guarantee; `None` if law 3 protects one.
fn below_guarantee(world: &World, set: &[WorkloadId], preemptor: &Job) -> Option<usize> {
    let victims: Vec<&Job> = set.iter().map(|id| &world.items[id]).collect();
    let mut usage = settled_usage(world, &BTreeSet::new());
    let mut without = usage.clone();
    for victim in &victims {
        charge(world, &mut without, victim, -victim.total());
    }
    let against = match guarantees_hold(world, &without, preemptor, preemptor.total()) {
        true => Against::Guaranteed,
        false => Against::Borrower,
    };
    evict_set_from(world, &victims, preemptor, against, &mut usage)
}

/// Whether some set may be evicted for a job that would borrow: siblings of lower priority, and borrowers of
/// other teams if shares get fairer. `certain` leaves out sets with a victim that could start again beside
/// the job, or that is within its minimum run time.
fn may_preempt_while_borrowing(world: &World, job: &Job, certain: bool) -> bool {
    let mut candidates = world.running();
    candidates.retain(|other| {
        let sibling = other.workload.team == job.workload.team;
        other.preemptible() && (!sibling || other.workload.priority < job.workload.priority)
    });
    candidates.retain(|other| !certain || !is_within_min_runtime(world, other));
    // Once is enough between teams (law 5).
    let spared = |other: &Job| matches!(&other.phase, Phase::Running(admission) if admission.spared);
    candidates.retain(|other| other.workload.team == job.workload.team || !spared(other));
    subsets(&candidates).filter(|set| !set.is_empty()).any(|set| {
        let before = settled_usage(world, &BTreeSet::new());
        let mut usage = before.clone();
        if evict_set_from(world, &set, job, Against::Borrower, &mut usage) != Some(0) {
            return false;
        }
        charge(world, &mut usage, job, job.total());
        let path = world.path(&job.workload.team);
        let limited = path.iter().any(|team| world.limit(team).is_some_and(|limit| usage[team] > limit));
        let only_siblings = set.iter().all(|victim| victim.workload.team == job.workload.team);
        let pays = only_siblings || makes_shares_fairer(world, job, [&before, &usage], certain);
        let stay_out = || {
            let set = ids(set.clone());
            placements(world, &set, job).iter().all(|placement| {
                let then = after(world, &set, job, placement);
                set.iter().all(|id| !then.fits_after(&then.items[id], &[]))
            })
        };
        pays && !limited && world.fits_after(job, &set) && (!certain || stay_out())
    })
}

/// Whether shares get fairer by a preemption, from the usage before to the usage after. `certain` asks the
/// same of the shares of teams without children.
fn makes_shares_fairer(world: &World, job: &Job, [before, after]: [&Usage; 2], certain: bool) -> bool {
    // The share of a team without weight is infinite as soon as it borrows anything.
    let is_infinite = |team: &Name| world.teams[team].weight == 0 && after[team] > world.guaranteed(team);
    let is_fairer = |before: &Usage, after: &Usage| fair_shares(world, after) < fair_shares(world, before);
    !world.path(&job.workload.team).iter().any(is_infinite)
        && is_fairer(before, after)
        && (!certain || is_fairer(&without_parents(world, before), &without_parents(world, after)))
}

/// The usage of teams without children.
fn without_parents(world: &World, usage: &Usage) -> Usage {
    let parents: BTreeSet<&Name> = world.teams.values().filter_map(|team| team.parent.as_ref()).collect();
    usage.only(|team| !parents.contains(team))
}

/// Every set of siblings of lower priority without which the job starts, within its guarantee or borrowing.
fn sibling_sets(world: &World, job: &Job) -> Vec<Vec<WorkloadId>> {
    let mut siblings = world.running();
    siblings.retain(|sibling| {
        sibling.workload.team == job.workload.team
            && sibling.preemptible()
            && sibling.workload.priority < job.workload.priority
            && !is_within_min_runtime(world, sibling)
    });
    let lets_it_start = |set: &Vec<&Job>| {
        let freed: i64 = set.iter().map(|sibling| sibling.total()).sum();
        let freed = world.path(&job.workload.team).into_iter().map(|team| (team, freed)).collect();
        world.within_limits(job, &freed) && world.fits_after(job, set)
    };
    subsets(&siblings).filter(|set| !set.is_empty()).filter(lets_it_start).map(ids).collect()
}

/// Every set from which the engine should choose: those that let the preemptor start within its guarantee,
/// siblings within their minimum run time left out, and those of siblings alone.
fn eligible_sets(world: &World, preemptor: &Job) -> Vec<Vec<WorkloadId>> {
    let mut sets = preemption_sets(world, preemptor).unwrap_or_default();
    sets.retain(|set| !has_sibling_within_min_runtime(world, set, preemptor));
    let more: Vec<_> = sibling_sets(world, preemptor).into_iter().filter(|set| !sets.contains(set)).collect();
    sets.extend(more);
    sets
}

/// The sets other than `chosen` without a superfluous victim.
fn minimal_others<'a>(
    sets: &'a [Vec<WorkloadId>],
    chosen: &'a [WorkloadId],
) -> impl Iterator<Item = &'a Vec<WorkloadId>> {
    let is_part = |less: &&Vec<WorkloadId>, set: &Vec<WorkloadId>| {
        less.len() < set.len() && less.iter().all(|victim| set.contains(victim))
    };
    sets.iter().filter(move |set| **set != chosen && !sets.iter().any(|less| is_part(&less, set)))
}

fn started(job: &Job) -> Time {
    match &job.phase {
        Phase::Running(admission) => admission.at,
        _ => Time(0),
    }
}

/// The time since which work would be lost: the last checkpoint, or the start.
fn last_saved(job: &Job) -> Time {
    job.workload.last_checkpoint.unwrap_or_default().max(started(job))
}

/// The queue `slow` has a minimum run time of 60 s.
fn is_within_min_runtime(world: &World, job: &Job) -> bool {
    job.workload.queue.as_deref() == Some("slow") && world.now.0 - started(job).0 < 60_000
}

/// Whether a set has a sibling of the preemptor within its minimum run time, which holds within a team.
fn has_sibling_within_min_runtime(world: &World, set: &[WorkloadId], preemptor: &Job) -> bool {
    let victims = set.iter().map(|id| &world.items[id]);
    let mut siblings = victims.filter(|victim| victim.workload.team == preemptor.workload.team);
    siblings.any(|sibling| is_within_min_runtime(world, sibling))
}

/// Of these victims, the siblings of the preemptor that guarantees and limits hold beside it.
fn needless_siblings<'a>(world: &World, victims: &[&'a Job], preemptor: &Job) -> Vec<&'a Job> {
    let usage = usage_after(world, victims, preemptor);
    let is_held = |sibling: &Job| {
        world.path(&sibling.workload.team).iter().all(|team| {
            usage.counted(team) + sibling.total() <= world.guaranteed(team)
                && world.limit(team).is_none_or(|limit| usage[team] + sibling.total() <= limit)
        })
    };
    let siblings = victims.iter().filter(|victim| victim.workload.team == preemptor.workload.team);
    siblings.copied().filter(|sibling| is_held(sibling)).collect()
}

/// The costs that a set may have, over all placements of the preemptor and all follow-ups. Empty if law 3
/// protects a victim.
fn costs(world: &World, set: &[WorkloadId], preemptor: &Job, only_certain: bool) -> Vec<Cost> {
    let Some(below_guarantee) = below_guarantee(world, set, preemptor) else { return Vec::new() };
    let victims: Vec<&Job> = set.iter().map(|id| &world.items[id]).collect();
    let needless = needless_siblings(world, &victims, preemptor);
    let mut priorities: Vec<i32> = victims.iter().map(|victim| victim.workload.priority).collect();
    priorities.sort_unstable_by_key(|priority| Reverse(*priority));
    let mut starts: Vec<Reverse<Time>> = victims.iter().map(|victim| Reverse(started(victim))).collect();
    starts.sort_unstable_by_key(|Reverse(time)| *time);
    let cost = |follow_ups: FollowUps| {
        // A victim that then takes another workload below its guarantee counts as that workload.
        let takes_below = follow_ups.values().filter(|below| **below > 0).count();
        Cost {
            below_guarantee: below_guarantee + takes_below,
            within_min_runtime: victims.iter().any(|victim| is_within_min_runtime(world, victim)),
            follow_ups: follow_ups.len(),
            before_oversize: before_oversize(world, &victims, preemptor),
            needless_siblings: needless.len(),
            evictions: victims
                .iter()
                .map(|victim| cost_of_eviction(victim.total(), world.now.0 - last_saved(victim).0))
                .sum(),
            priorities: priorities.clone(),
            pods: victims.iter().map(|victim| victim.workload.pods).sum(),
            started: starts.clone(),
        }
    };
    let waiting: Vec<&WorkloadId> = set.iter().collect();
    placements(world, set, preemptor)
        .iter()
        .flat_map(|placement| follow_ups(&after(world, set, preemptor, placement), &waiting, only_certain))
        .map(cost)
        .collect()
}

/// A job, and the milliseconds since the one before it.
#[derive(Clone, Debug)]
struct Arrival {
    team: usize,
    queue: &'static str,
    priority: i32,
    pods: u32,
    gpus: i64,
    after: i64,
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let queue = prop_oneof![2 => Just("train"), 1 => Just("slow")];
    let after = prop_oneof![Just(0), Just(1_000), Just(50_000)];
    (0..3_usize, queue, -1..2_i32, 1..4_u32, 1..4_i64, after).prop_map(
        |(team, queue, priority, pods, gpus, after)| Arrival { team, queue, priority, pods, gpus, after },
    )
}

fn submit(world: &mut World, job: &Arrival) -> WorkloadId {
    world.now = Time(world.now.0 + job.after);
    world.submit(&TEAMS[job.team].into(), job.queue, job.priority, job.pods, job.gpus)
}

/// A world in which these jobs have come one after the other. Those that wait in the end are deleted, so that
/// the next job is the only one that waits.
fn without_waiting(setup: &Setup, jobs: &[Arrival]) -> World {
    let mut world = build(setup);
    for job in jobs {
        submit(&mut world, job);
        world.settle();
    }
    delete_waiting(&mut world);
    world
}

fn delete_waiting(world: &mut World) {
    for id in ids(world.queued()) {
        world.delete(&id);
    }
    world.settle();
    world.evicted_for.clear();
}

/// Plans, and returns the victims of the preemptor. `None` if there are none, or if one only moves.
fn chosen_set(world: &mut World, preemptor: &WorkloadId) -> Option<Vec<WorkloadId>> {
    let actions = world.plan();
    let moves = |action: &Action| matches!(action, Action::Evict { reason: EvictReason::Moved, .. });
    let chosen = world.evicted_for.get(preemptor)?;
    if actions.iter().any(moves) { None } else { Some(chosen.iter().cloned().collect()) }
}

/// Lets the engine decide on a waiting workload; fails if a set costs less than the one that it evicts for it.
pub fn no_set_costs_less(world: &mut World, id: &WorkloadId) -> Result<(), TestCaseError> {
    let preemptor = world.items[id].clone();
    let sets = eligible_sets(world, &preemptor);
    let before = copy(world);

    let Some(chosen) = chosen_set(world, id) else { return Ok(()) };

    if !sets.contains(&chosen) {
        return Ok(());
    }
    let lowest = costs(&before, &chosen, &preemptor, true).into_iter().min();
    let lowest = lowest.expect("the preemptor fits without the chosen set");
    for set in minimal_others(&sets, &chosen) {
        let highest = costs(&before, set, &preemptor, false).into_iter().max();
        prop_assert!(
            highest.as_ref().is_none_or(|highest| lowest <= *highest),
            "{chosen:?} is evicted for {id} at {lowest:?}, but {set:?} costs {highest:?}\n{}",
            world.log.join("\n")
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn law_4_no_set_costs_less_than_the_chosen_one(
        setup in setup(),
        jobs in prop::collection::vec(arrival(), 2..7),
        pause in prop_oneof![Just(0), 1..120_000_i64],
        saved in any::<bool>(),
        last in arrival(),
    ) {
        let mut world = without_waiting(&setup, &jobs);
        world.now = Time(world.now.0 + pause);
        for id in ids(world.running()).iter().filter(|_| saved) {
            world.checkpoint(id);
        }
        let id = submit(&mut world, &last);
        no_set_costs_less(&mut world, &id)?;
    }
}

/// The lowest cost on any one node of a set that takes no victim below its guarantee: whether one is within
/// its minimum run time, then the cost of eviction.
fn lowest_on_a_node(world: &World, preemptor: &Job) -> Option<(bool, usize, i64)> {
    let on = |node: &Name| -> Option<(bool, usize, i64)> {
        let mut candidates = world.running();
        candidates.retain(|job| {
            let is_there = matches!(&job.phase, Phase::Running(at) if at.nodes.contains_key(node));
            is_there && job.preemptible() && job.workload.team != preemptor.workload.team
        });
        let sets = subsets(&candidates).filter(|set| !set.is_empty()).filter(|set| {
            let freed: i64 = set.iter().map(|victim| victim.total()).sum();
            let fits = world.free(node) + freed >= preemptor.gpus_per_pod;
            fits && below_guarantee(world, &ids(set.clone()), preemptor) == Some(0)
        });
        sets.map(|set| age_and_loss(world, &set, preemptor)).min()
    };
    world.nodes.keys().filter_map(on).min()
}

/// Whether a victim is within its minimum run time, how many go before a larger sibling, and the cost of eviction
/// since the starts.
fn age_and_loss(world: &World, victims: &[&Job], preemptor: &Job) -> (bool, usize, i64) {
    let cost =
        victims.iter().map(|victim| cost_of_eviction(victim.total(), world.now.0 - started(victim).0)).sum();
    let young = victims.iter().any(|victim| is_within_min_runtime(world, victim));
    (young, before_oversize(world, victims, preemptor), cost)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn law_4_one_pod_costs_the_least_among_many_candidates_too(
        jobs in prop::collection::vec((any::<bool>(), 0..4_u32, 0..2_000_i64), 150),
        guaranteed in 0..60_i64,
        gpus in 1..9_i64,
    ) {
        // With one borrowing team there are no follow-up preemptions.
        let [owner, borrower] = [TEAMS[0], TEAMS[1]];
        let teams = vec![team(owner, None, 64, None), team(borrower, None, guaranteed, None)];
        let mut world = World::new(&[8; 16], teams);
        for (slow, size, after) in jobs {
            world.now = Time(world.now.0 + after);
            let queue = if slow { "slow" } else { "train" };
            world.submit(&borrower.into(), queue, 0, 1, 1 << size);
            world.settle();
        }
        delete_waiting(&mut world);
        let id = world.submit(&owner.into(), "train", 0, 1, gpus);
        let preemptor = world.items[&id].clone();
        let before = copy(&world);
        let Some(lowest) = lowest_on_a_node(&before, &preemptor) else { return Ok(()) };

        world.plan();

        let Some(chosen) = world.evicted_for.get(&id) else { return Ok(()) };
        let chosen: Vec<WorkloadId> = chosen.iter().cloned().collect();
        prop_assert_eq!(below_guarantee(&before, &chosen, &preemptor), Some(0));
        let victims: Vec<&Job> = chosen.iter().map(|id| &before.items[id]).collect();
        prop_assert_eq!(age_and_loss(&before, &victims, &preemptor), lowest);
    }
}
