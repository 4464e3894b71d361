//! Law 4's order of sets, held against every set there is.
//!
//! Everything is worked out from the world's own books, cascades too. Where the preemptor will lie, and victims
//! that start again beside it, is the one thing they do not know, so a set counts as better only if it is so
//! wherever they lie. Nor do they know whether a claim on the surplus pays in the end if those it takes could
//! start again beside it, or are yet to run for their minimum time. Such a claim is counted against the others,
//! not against what was chosen.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sluice_engine::types::{Action, EvictReason};
use sluice_engine::types::{Admission, Name, Time, WorkloadId};

use super::judge::{could_be_made_room, settled_usage, shares, take};
use super::ops::{TEAMS, build, ids, setup};
use super::world::{Item, Stage, World, team};

/// What a set costs, in the order of the law.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    straddling: usize,
    young: bool,
    cascades: usize,
    mates_unneeded: usize,
    lost: i64,
    priorities: Vec<i32>,
    pods: u32,
    started: Vec<Reverse<Time>>,
}

/// The same world, not its past, when these are gone and the preemptor lies there.
fn after(world: &World, set: &[WorkloadId], preemptor: &Item, nodes: &BTreeMap<Name, u32>) -> World {
    let sizes: Vec<i64> = world.nodes.values().map(|(count, _)| *count).collect();
    let mut then = World::new(&sizes, world.teams.values().cloned().collect());
    then.now = world.now;
    then.items = world.items.iter().map(|(id, item)| (id.clone(), item.clone())).collect();
    for id in set {
        if let Some(item) = then.items.get_mut(id) {
            item.stage = Stage::Queued;
        }
    }
    let admission = Admission {
        pool: "default".into(),
        nodes: nodes.clone(),
        pods: preemptor.workload.pods,
        borrowed: false,
        share: None,
        at: world.now,
    };
    let running = Item { stage: Stage::Running(admission), ..preemptor.clone() };
    then.items.insert(preemptor.workload.id.clone(), running);
    then
}

/// Every way in which the preemptor may lie once a set is gone.
fn places(world: &World, set: &[WorkloadId], preemptor: &Item) -> Vec<BTreeMap<Name, u32>> {
    let mut places = vec![BTreeMap::new()];
    for node in world.nodes.keys() {
        let freed: i64 = set
            .iter()
            .filter_map(|id| match &world.items[id].stage {
                Stage::Running(at) => {
                    Some(world.items[id].gpus * i64::from(at.nodes.get(node).copied().unwrap_or(0)))
                }
                _ => None,
            })
            .sum();
        let slots = u32::try_from((world.free(node) + freed) / preemptor.gpus).unwrap_or(0);
        let more = |place: &BTreeMap<Name, u32>| {
            let left = preemptor.workload.pods - place.values().sum::<u32>();
            let with = |pods: u32| {
                let mut place = place.clone();
                if pods > 0 {
                    place.insert(node.clone(), pods);
                }
                place
            };
            (0..=left.min(slots)).map(with).collect::<Vec<_>>()
        };
        places = places.iter().flat_map(more).collect();
    }
    places.retain(|place| place.values().sum::<u32>() == preemptor.workload.pods);
    places
}

/// Which of those who wait in `world` could start only by evicting others, and may, with the fewest of these that
/// straddle their teams' guarantees; in every way in which it may come. They are tried one after another, and who
/// can start takes its room, wherever that lies. The owed go first, and each team's in order; between teams it may
/// be any.
fn comebacks(world: &World, waiting: &[&WorkloadId], sure: bool) -> Vec<BTreeMap<WorkloadId, usize>> {
    let (item, nobody) = (|id: &WorkloadId| &world.items[id], BTreeMap::new());
    let rank = |id: &WorkloadId| (Reverse(item(id).workload.priority), World::age(item(id)));
    let before = |mate, id| item(mate).workload.team == item(id).workload.team && rank(mate) < rank(id);
    let mut firsts = waiting.to_vec();
    firsts.retain(|id| !waiting.iter().any(|mate| before(mate, id)));
    if firsts.iter().any(|id| world.owed(item(id), &nobody)) {
        firsts.retain(|id| world.owed(item(id), &nobody));
    }
    if firsts.is_empty() {
        return vec![BTreeMap::new()];
    }
    let from = |id: &WorkloadId| -> Vec<BTreeMap<WorkloadId, usize>> {
        let item = item(id);
        let rest: Vec<&WorkloadId> = waiting.iter().copied().filter(|other| *other != id).collect();
        if world.within_limits(item, &nobody) && world.fits_without(item, &[]) {
            let started = |place| comebacks(&after(world, &[], item, place), &rest, sure);
            return places(world, &[], item).iter().flat_map(started).collect();
        }
        let evicted = would_evict(world, item, sure);
        let with = |mut ways: BTreeMap<WorkloadId, usize>| {
            ways.extend(evicted.map(|straddling| (id.clone(), straddling)));
            ways
        };
        comebacks(world, &rest, sure).into_iter().map(with).collect()
    };
    firsts.into_iter().flat_map(from).collect()
}

/// Whether somebody who waits in `world` and finds no room may evict others: the fewest of them that straddle
/// their teams' guarantees. Who has to run for its minimum time first is waited for only if nobody else will do.
fn would_evict(world: &World, item: &Item, sure: bool) -> Option<usize> {
    if could_claim_surplus(world, item, true) {
        return Some(0);
    }
    let sets = could_be_made_room(world, item).unwrap_or_default();
    let fewest = |young: bool| {
        sets.iter()
            .filter(|set| !set.is_empty() && (young || !has_young_mate(world, set, item)))
            .filter_map(|set| straddling(world, set, item))
            .min()
    };
    let later = || if could_claim_surplus(world, item, false) { Some(0) } else { fewest(true) };
    fewest(false).or_else(|| if sure { None } else { later() })
}

/// How many of a set straddle their teams' guarantees; `None` if it may not be taken.
fn straddling(world: &World, set: &[WorkloadId], preemptor: &Item) -> Option<usize> {
    let mut usage = settled_usage(world, &BTreeSet::new());
    let (own, others): (Vec<&Item>, Vec<&Item>) = set
        .iter()
        .map(|id| &world.items[id])
        .partition(|victim| victim.workload.team == preemptor.workload.team);
    for level in world.path(&preemptor.workload.team) {
        *usage.entry(level).or_default() -= own.iter().map(|victim| victim.total()).sum::<i64>();
    }
    take(world, &others, preemptor, &mut usage, &BTreeSet::new())
}

/// Whether some set may go for somebody who is not owed its room: mates of lower priority, and borrowers if
/// that makes the shares of the surplus fairer; `sure` if none
/// of them could start again beside it, or has yet to run for its minimum time.
fn could_claim_surplus(world: &World, item: &Item, sure: bool) -> bool {
    let team = &item.workload.team;
    let mine = |other: &Item| other.workload.team == *team;
    let running: Vec<&Item> = world
        .running()
        .into_iter()
        .filter(|other| {
            other.preemptible() && (!mine(other) || other.workload.priority < item.workload.priority)
        })
        .filter(|other| !sure || !is_young(world, other))
        .collect();
    (1_u32..1 << running.len()).any(|mask| {
        let set: Vec<&Item> =
            (0..running.len()).filter(|i| mask & (1 << i) != 0).map(|i| running[i]).collect();
        let before = settled_usage(world, &BTreeSet::new());
        let mut usage = before.clone();
        let (own, others): (Vec<&Item>, Vec<&Item>) = set.iter().partition(|victim| mine(victim));
        for level in world.path(team) {
            *usage.entry(level).or_default() -= own.iter().map(|victim| victim.total()).sum::<i64>();
        }
        if take(world, &others, item, &mut usage, &BTreeSet::new()) != Some(0) {
            return false;
        }
        for level in world.path(team) {
            *usage.entry(level).or_default() += item.total();
        }
        let capped = world.path(team).iter().any(|t| world.limit(t).is_some_and(|limit| usage[t] > limit));
        // However little a team without weight has beyond its guarantee, its share is infinite.
        let infinite =
            |level: &Name| world.teams[level].weight == 0 && usage[level] > world.guaranteed(level);
        let fairer = others.is_empty()
            || !world.path(team).iter().any(infinite)
                && shares(world, &usage) < shares(world, &before)
                && (!sure || shares(world, &leaves(world, &usage)) < shares(world, &leaves(world, &before)));
        let stays_out = || {
            let set = ids(set.clone());
            places(world, &set, item).iter().all(|place| {
                let then = after(world, &set, item, place);
                set.iter().all(|id| !then.fits_without(&then.items[id], &[]))
            })
        };
        fairer && !capped && world.fits_without(item, &set) && (!sure || stays_out())
    })
}

/// The sets of mates of lower priority that let somebody start, be it that its team borrows then.
fn mates_who_make_room(world: &World, item: &Item) -> Vec<Vec<WorkloadId>> {
    let mates: Vec<&Item> = world
        .running()
        .into_iter()
        .filter(|mate| mate.workload.team == item.workload.team && mate.preemptible())
        .filter(|mate| mate.workload.priority < item.workload.priority && !is_young(world, mate))
        .collect();
    let set = |mask: u32| -> Vec<&Item> {
        (0..mates.len()).filter(|i| mask & (1 << i) != 0).map(|i| mates[i]).collect()
    };
    let makes_room = |set: &Vec<&Item>| {
        let less: i64 = set.iter().map(|mate| mate.total()).sum();
        let less = world.path(&item.workload.team).into_iter().map(|team| (team, less)).collect();
        world.within_limits(item, &less) && world.fits_without(item, set)
    };
    (1..1 << mates.len()).map(set).filter(makes_room).map(ids).collect()
}

/// The usage of those teams that have none below them.
fn leaves(world: &World, usage: &BTreeMap<Name, i64>) -> BTreeMap<Name, i64> {
    let parents: BTreeSet<&Name> = world.teams.values().filter_map(|team| team.parent.as_ref()).collect();
    usage
        .iter()
        .filter(|(team, _)| !parents.contains(team))
        .map(|(team, used)| (team.clone(), *used))
        .collect()
}

fn started(item: &Item) -> Time {
    match &item.stage {
        Stage::Running(admission) => admission.at,
        _ => Time(0),
    }
}

/// Since when its work is not saved.
fn saved(item: &Item) -> Time {
    item.workload.last_checkpoint.unwrap_or_default().max(started(item))
}

fn is_young(world: &World, item: &Item) -> bool {
    item.workload.queue.as_deref() == Some("slow") && world.now.0 - started(item).0 < 60_000
}

/// Whether a set has a mate of the preemptor within its minimum run time, which holds within a team.
fn has_young_mate(world: &World, set: &[WorkloadId], preemptor: &Item) -> bool {
    let mates = set.iter().map(|id| &world.items[id]);
    mates.filter(|mate| mate.workload.team == preemptor.workload.team).any(|mate| is_young(world, mate))
}

/// Of a set's victims, those of the preemptor's own team whom guarantees and limits hold beside it.
fn unneeded<'a>(world: &'a World, set: &[WorkloadId], preemptor: &Item) -> Vec<&'a Item> {
    let victims: Vec<&Item> = set.iter().map(|id| &world.items[id]).collect();
    let held = |level: &Name| {
        let gone = victims.iter().filter(|victim| world.path(&victim.workload.team).contains(level));
        world.used(level) - gone.map(|victim| victim.total()).sum::<i64>() + preemptor.total()
    };
    let holds = |mate: &&Item| {
        world.path(&mate.workload.team).iter().all(|level| {
            let with = held(level) + mate.total();
            with <= world.guaranteed(level) && world.limit(level).is_none_or(|limit| with <= limit)
        })
    };
    victims
        .iter()
        .copied()
        .filter(|victim| victim.workload.team == preemptor.workload.team)
        .filter(holds)
        .collect()
}

/// What a set may cost if the preemptor lies there; nothing if it may not be taken. `sure` counts those cascades
/// alone that are beyond doubt.
fn costs(
    world: &World,
    set: &[WorkloadId],
    preemptor: &Item,
    at: &BTreeMap<Name, u32>,
    sure: bool,
) -> Vec<Cost> {
    let Some(straddling) = straddling(world, set, preemptor) else { return Vec::new() };
    let victims: Vec<&Item> = set.iter().map(|id| &world.items[id]).collect();
    let unneeded = unneeded(world, set, preemptor);
    let mut priorities: Vec<i32> = victims.iter().map(|victim| victim.workload.priority).collect();
    priorities.sort_unstable_by_key(|priority| Reverse(*priority));
    let mut starts: Vec<Reverse<Time>> = victims.iter().map(|victim| Reverse(started(victim))).collect();
    starts.sort_unstable_by_key(|Reverse(time)| *time);
    let cost = |evicting: BTreeMap<WorkloadId, usize>| Cost {
        // A mate that would come back at a straddling one's expense is a longer way to the same end.
        straddling: straddling
            + unneeded.iter().filter(|mate| evicting.get(&mate.workload.id).is_some_and(|n| *n > 0)).count(),
        young: victims.iter().any(|victim| is_young(world, victim)),
        cascades: evicting.len(),
        mates_unneeded: unneeded.len(),
        lost: victims.iter().map(|victim| victim.total() * (world.now.0 - saved(victim).0)).sum(),
        priorities: priorities.clone(),
        pods: victims.iter().map(|victim| victim.workload.pods).sum(),
        started: starts.clone(),
    };
    let then = after(world, set, preemptor, at);
    let waiting: Vec<&WorkloadId> = set.iter().collect();
    comebacks(&then, &waiting, sure).into_iter().map(cost).collect()
}

/// A Job that comes some time after the one before it.
#[derive(Clone, Debug)]
struct Coming {
    team: usize,
    queue: &'static str,
    priority: i32,
    pods: u32,
    gpus: i64,
    after: i64,
}

fn job() -> impl Strategy<Value = Coming> {
    let queue = prop_oneof![2 => Just("train"), 1 => Just("slow")];
    let after = prop_oneof![Just(0), Just(1_000), Just(50_000)];
    (0..3_usize, queue, -1..2_i32, 1..4_u32, 1..4_i64, after).prop_map(
        |(team, queue, priority, pods, gpus, after)| Coming { team, queue, priority, pods, gpus, after },
    )
}

fn start(world: &mut World, job: &Coming) {
    world.now = Time(world.now.0 + job.after);
    world.submit(&TEAMS[job.team].into(), job.queue, job.priority, job.pods, job.gpus);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn law_4_no_set_is_better_than_the_one_chosen(
        setup in setup(),
        jobs in prop::collection::vec(job(), 2..7),
        pause in prop_oneof![Just(0), 1..120_000_i64],
        saved in any::<bool>(),
        last in job(),
    ) {
        let mut world = build(&setup);
        for job in &jobs {
            start(&mut world, job);
            world.settle();
        }
        // Only the preemptor waits, so that nobody else has a part in what follows.
        for id in ids(world.queued()) {
            world.delete(&id);
        }
        world.settle();
        world.evicted_for.clear();
        world.now = Time(world.now.0 + pause);
        for id in ids(world.running()).iter().filter(|_| saved) {
            world.save(id);
        }
        start(&mut world, &last);
        let preemptor = world.queued().into_iter().next().cloned().expect("it has just been submitted");
        let mut sets = could_be_made_room(&world, &preemptor).unwrap_or_default();
        sets.retain(|set| !has_young_mate(&world, set, &preemptor));
        let borrowing = mates_who_make_room(&world, &preemptor).into_iter().filter(|set| !sets.contains(set));
        sets.extend(borrowing.collect::<Vec<_>>());
        let mut scene = after(&world, &[], &preemptor, &BTreeMap::new());
        let actions = world.plan();
        let moved = |action: &Action| matches!(action, Action::Evict { reason: EvictReason::Moved, .. });
        let Some(chosen) = world.evicted_for.get(&preemptor.workload.id).cloned() else { return Ok(()) };
        let chosen: Vec<WorkloadId> = chosen.into_iter().collect();
        if actions.iter().any(moved) || !sets.contains(&chosen) {
            return Ok(());
        }
        if let Some(item) = scene.items.get_mut(&preemptor.workload.id) {
            item.stage = Stage::Queued;
        }
        let all_costs = |set: &[WorkloadId], sure: bool| -> Vec<Cost> {
            let places = places(&scene, set, &preemptor);
            places.iter().flat_map(|place| costs(&scene, set, &preemptor, place, sure)).collect()
        };
        let mine = all_costs(&chosen, true).into_iter().min().expect("what was chosen makes room");
        // A set with somebody who need not go is none.
        let part = |less: &&Vec<WorkloadId>, set: &Vec<WorkloadId>| {
            less.len() < set.len() && less.iter().all(|victim| set.contains(victim))
        };
        let minimal = sets.iter().filter(|set| **set != chosen && !sets.iter().any(|less| part(&less, set)));
        for set in minimal {
            let theirs = all_costs(set, false).into_iter().max();
            prop_assert!(
                theirs.as_ref().is_none_or(|theirs| mine <= *theirs),
                "{} takes {chosen:?} at {mine:?}, but {set:?} costs {theirs:?}\n{}",
                preemptor.workload.id, world.log.join("\n")
            );
        }
    }
}

/// What the cheapest victims on one node lose, nobody of whom straddles: those beyond their minimum run time if
/// they do, else any.
fn least_lost_on_a_node(world: &World, preemptor: &Item) -> Option<(bool, i64)> {
    let victims = |node: &Name| -> Vec<&Item> {
        let there = |item: &&Item| matches!(&item.stage, Stage::Running(at) if at.nodes.contains_key(node));
        let mut there: Vec<&Item> = world.running().into_iter().filter(there).collect();
        there.retain(|item| item.preemptible() && item.workload.team != preemptor.workload.team);
        there
    };
    let on = |node: &Name| -> Option<(bool, i64)> {
        let there = victims(node);
        let sets = (1_u32..1 << there.len()).filter_map(|mask| {
            let set: Vec<&Item> =
                (0..there.len()).filter(|i| mask & (1 << i) != 0).map(|i| there[i]).collect();
            let freed: i64 = set.iter().map(|item| item.total()).sum();
            let young = set.iter().any(|item| is_young(world, item));
            let lost = set.iter().map(|item| item.total() * (world.now.0 - started(item).0)).sum();
            let enough = world.free(node) + freed >= preemptor.gpus;
            (enough && straddling(world, &ids(set), preemptor) == Some(0)).then_some((young, lost))
        });
        sets.min()
    };
    world.nodes.keys().filter_map(on).min()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    /// Where there are too many who might go to try every set, the search is confined to the nodes that look
    /// cheapest; one pod needs one node only, and so must be sent to the cheapest of all. With one borrower, no
    /// victim would evict in turn.
    #[test]
    fn law_4_one_pod_costs_the_least_also_among_many(
        jobs in prop::collection::vec((any::<bool>(), 0..4_u32, 0..2_000_i64), 150),
        guaranteed in 0..60_i64,
        gpus in 1..9_i64,
    ) {
        let teams = [(TEAMS[0], 64), (TEAMS[1], guaranteed)];
        let teams = teams.iter().map(|(name, gpus)| team(name, None, *gpus, None)).collect();
        let mut world = World::new(&[8; 16], teams);
        for (slow, size, after) in jobs {
            world.now = Time(world.now.0 + after);
            let queue = if slow { "slow" } else { "train" };
            world.submit(&TEAMS[1].into(), queue, 0, 1, 1 << size);
            world.settle();
        }
        for id in ids(world.queued()) {
            world.delete(&id);
        }
        world.settle();
        world.evicted_for.clear();
        let preemptor = world.submit(&TEAMS[0].into(), "train", 0, 1, gpus);
        let preemptor = world.items[&preemptor].clone();
        let scene = after(&world, &[], &preemptor, &BTreeMap::new());
        let Some(least) = least_lost_on_a_node(&scene, &preemptor) else { return Ok(()) };
        world.plan();
        let Some(chosen) = world.evicted_for.get(&preemptor.workload.id) else { return Ok(()) };
        let chosen: Vec<WorkloadId> = chosen.iter().cloned().collect();
        prop_assert_eq!(straddling(&scene, &chosen, &preemptor), Some(0));
        let chosen: Vec<&Item> = chosen.iter().map(|id| &scene.items[id]).collect();
        let lost = chosen.iter().map(|item| item.total() * (scene.now.0 - started(item).0)).sum();
        prop_assert_eq!((chosen.iter().any(|item| is_young(&scene, item)), lost), least);
    }
}
