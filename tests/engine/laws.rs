//! One property a law. The world in [`super::world`] judges by its own books.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sluice::engine::decision::{Action, Reason, State};
use sluice::engine::model::{Name, Time, WorkloadId};

use super::world::{Item, Stage, World, team};

/// What can happen to a cluster.
#[derive(Clone, Debug)]
enum Op {
    Submit {
        team: usize,
        queue: &'static str,
        priority: i32,
        pods: u32,
        gpus: i64,
    },
    Wait(i64),
    Plan,
    Deliver {
        which: usize,
        success: bool,
    },
    PodsGone(usize),
    Finish(usize),
    Delete(usize),
    Foreign {
        node: usize,
        gpus: i64,
    },
    ForeignGone(usize),
    Cordon {
        node: usize,
        open: bool,
    },
    Quota {
        team: usize,
        guaranteed: i64,
    },
    /// The process dies; what it had decided was written, or was not.
    Restart {
        written: bool,
    },
}

fn submit() -> impl Strategy<Value = Op> {
    let queue = prop_oneof![4 => Just("train"), 1 => Just("fixed"), 1 => Just("slow")];
    (0..3_usize, queue, -1..2_i32, 1..4_u32, 1..5_i64)
        .prop_map(|(team, queue, priority, pods, gpus)| Op::Submit { team, queue, priority, pods, gpus })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => submit(),
        2 => (1..90_000_i64).prop_map(Op::Wait),
        6 => Just(Op::Plan),
        8 => (0..8_usize, prop::bool::weighted(0.85))
            .prop_map(|(which, success)| Op::Deliver { which, success }),
        4 => (0..8_usize).prop_map(Op::PodsGone),
        3 => (0..8_usize).prop_map(Op::Finish),
        1 => (0..8_usize).prop_map(Op::Delete),
        1 => (0..3_usize, 1..4_i64).prop_map(|(node, gpus)| Op::Foreign { node, gpus }),
        1 => (0..3_usize).prop_map(Op::ForeignGone),
        1 => (0..3_usize, any::<bool>()).prop_map(|(node, open)| Op::Cordon { node, open }),
        1 => (0..3_usize, 0..9_i64).prop_map(|(team, guaranteed)| Op::Quota { team, guaranteed }),
        1 => any::<bool>().prop_map(|written| Op::Restart { written }),
    ]
}

#[derive(Clone, Debug)]
struct Setup {
    nodes: Vec<i64>,
    guarantees: [i64; 3],
    limits: [Option<i64>; 3],
    /// Whether teams 0 and 1 stand under a parent, and what that is promised.
    parent: Option<i64>,
}

fn setup() -> impl Strategy<Value = Setup> {
    let limit = || prop::option::weighted(0.3, 4..16_i64);
    (
        prop::collection::vec(2..9_i64, 1..4),
        [0..9_i64, 0..9_i64, 0..9_i64],
        [limit(), limit(), limit()],
        prop::option::weighted(0.4, 0..13_i64),
    )
        .prop_map(|(nodes, guarantees, limits, parent)| Setup { nodes, guarantees, limits, parent })
}

const TEAMS: [&str; 3] = ["a", "b", "c"];

fn build(setup: &Setup) -> World {
    let parent_of = |i: usize| (i < 2 && setup.parent.is_some()).then_some("top");
    let cap = |i: usize| setup.limits[i].map(|limit| limit.max(setup.guarantees[i]));
    let mut teams: Vec<_> =
        (0..3).map(|i| team(TEAMS[i], parent_of(i), setup.guarantees[i], cap(i))).collect();
    teams.extend(setup.parent.map(|guaranteed| team("top", None, guaranteed, None)));
    World::new(&setup.nodes, teams)
}

fn nth<T: Clone>(items: Vec<T>, n: usize) -> Option<T> {
    if items.is_empty() { None } else { Some(items[n % items.len()].clone()) }
}

fn ids(items: Vec<&Item>) -> Vec<WorkloadId> {
    items.iter().map(|item| item.workload.id.clone()).collect()
}

fn ending(world: &World) -> Vec<WorkloadId> {
    let ends = |item: &&Item| matches!(item.stage, Stage::Ending(..));
    world.items.values().filter(ends).map(|item| item.workload.id.clone()).collect()
}

fn apply(world: &mut World, op: &Op) {
    match op.clone() {
        Op::Submit { team, queue, priority, pods, gpus } => {
            world.submit(&TEAMS[team].into(), queue, priority, pods, gpus);
        }
        Op::Wait(milliseconds) => world.now = Time(world.now.0 + milliseconds),
        Op::Plan => {
            world.plan();
        }
        Op::Deliver { which, success } => {
            if !world.in_flight.is_empty() {
                world.deliver(which % world.in_flight.len(), success);
            }
        }
        Op::PodsGone(n) => {
            if let Some(id) = nth(ending(world), n) {
                world.end(&id, Stage::Queued);
            }
        }
        Op::Finish(n) => {
            let busy: BTreeSet<_> = world.in_flight.iter().map(|a| a.workload().clone()).collect();
            let running = ids(world.running()).into_iter().filter(|id| !busy.contains(id)).collect();
            if let Some(id) = nth(running, n) {
                world.end(&id, Stage::Finished);
            }
        }
        Op::Delete(n) => {
            if let Some(id) = nth(world.items.keys().cloned().collect(), n) {
                world.delete(&id);
            }
        }
        Op::Foreign { node, gpus } => {
            if let Some(node) = nth(world.nodes.keys().cloned().collect(), node) {
                world.add_foreign(&node, gpus);
            }
        }
        Op::ForeignGone(n) => world.remove_foreign(n),
        Op::Cordon { node, open } => {
            if let Some(node) = nth(world.nodes.keys().cloned().collect(), node) {
                world.cordon(&node, open);
            }
        }
        Op::Quota { team, guaranteed } => {
            let name: Name = TEAMS[team].into();
            let mut changed = world.teams[&name].clone();
            if let Some(quota) = changed.quotas.get_mut("default") {
                quota.guaranteed = super::world::gpus(guaranteed);
            }
            world.teams.insert(name, changed.clone());
            world.engine.apply(sluice::engine::model::Event::TeamApplied(changed), world.now);
        }
        Op::Restart { written } => {
            while written && !world.in_flight.is_empty() {
                world.deliver(0, true);
            }
            world.rebuild();
        }
    }
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..60)
}

/// Law 1 as it stands now: nodes and limits hold what is held.
fn never_over_admitted(world: &World) -> Result<(), TestCaseError> {
    for node in world.nodes.keys() {
        prop_assert!(world.free(node) >= 0, "{node} is over-admitted:\n{}", world.log.join("\n"));
    }
    for name in world.teams.keys() {
        if let Some(limit) = world.limit(name) {
            prop_assert!(world.used(name) <= limit, "team {name} holds more than its limit of {limit}");
        }
    }
    Ok(())
}

/// The levels of a victim's team that a claimant from another team must respect.
fn levels(world: &World, victim: &Item, claimant: &Item) -> Vec<Name> {
    let above = world.path(&claimant.workload.team);
    world.path(&victim.workload.team).into_iter().filter(|team| !above.contains(team)).collect()
}

/// Whether the guarantees on its path hold `item` once lower priorities of its team yield: then these
/// are the borrowers, and taking it for another team would only make the two take turns.
fn covered(world: &World, item: &Item, usage: &BTreeMap<Name, i64>, gone: &BTreeSet<WorkloadId>) -> bool {
    let yielding: i64 = world
        .running()
        .iter()
        .filter(|mate| mate.workload.team == item.workload.team && mate.preemptible())
        .filter(|mate| !gone.contains(&mate.workload.id))
        .filter(|mate| mate.workload.priority < item.workload.priority)
        .map(|mate| mate.total())
        .sum();
    world.path(&item.workload.team).iter().all(|team| usage[team] - yielding <= world.guaranteed(team))
}

/// Takes victims one by one, those that straddle last; the number that straddle, or `None` if some
/// may not be taken at all. `usage` is what every team holds for good.
fn take(
    world: &World,
    victims: &[&Item],
    claimant: &Item,
    usage: &mut BTreeMap<Name, i64>,
    gone: &BTreeSet<WorkloadId>,
) -> Option<usize> {
    let mut left: Vec<&Item> = victims.to_vec();
    left.sort_by_key(|item| item.total());
    let (before, mut straddling) = (usage.clone(), 0);
    while !left.is_empty() {
        let may = |item: &Item, usage: &BTreeMap<Name, i64>, straddle: bool| {
            levels(world, item, claimant).iter().all(|team| {
                usage[team] > world.guaranteed(team)
                    && (straddle && !covered(world, item, &before, gone)
                        || usage[team] - item.total() >= world.guaranteed(team))
            })
        };
        let next = left.iter().position(|item| may(item, usage, false)).or_else(|| {
            straddling += 1;
            left.iter().position(|item| may(item, usage, true))
        })?;
        let item = left.remove(next);
        for team in world.path(&item.workload.team) {
            *usage.entry(team).or_default() -= item.total();
        }
    }
    Some(straddling)
}

/// What every team holds once evictions under way have ended and claimants have started.
fn settled_usage(world: &World, claims: &BTreeSet<WorkloadId>) -> BTreeMap<Name, i64> {
    let mut usage: BTreeMap<Name, i64> = world.teams.keys().map(|team| (team.clone(), 0)).collect();
    let stops: BTreeSet<_> = world
        .in_flight
        .iter()
        .filter(|action| matches!(action, Action::Evict { .. }))
        .map(|action| action.workload().clone())
        .collect();
    let mut add = |item: &Item| {
        for team in world.path(&item.workload.team) {
            *usage.entry(team).or_default() += item.total();
        }
    };
    for (item, _) in world.holders() {
        if !matches!(item.stage, Stage::Ending(..)) && !stops.contains(&item.workload.id) {
            add(item);
        }
    }
    claims.iter().filter_map(|id| world.items.get(id)).for_each(&mut add);
    usage
}

fn claims(world: &World) -> BTreeSet<WorkloadId> {
    let waits = |id: &WorkloadId| world.reason(id) == (State::Pending, Reason::WaitingForEviction);
    ids(world.queued()).into_iter().filter(waits).collect()
}

/// Law 3 for everything one plan decided, action by action in its order.
fn owners_keep_theirs(
    world: &World,
    actions: &[Action],
    mut usage: BTreeMap<Name, i64>,
    claimed: &BTreeSet<WorkloadId>,
) -> Result<(), TestCaseError> {
    let decided_before = &world.in_flight[..world.in_flight.len() - actions.len()];
    let mut gone: BTreeSet<WorkloadId> = decided_before
        .iter()
        .filter(|action| matches!(action, Action::Evict { .. }))
        .map(|action| action.workload().clone())
        .collect();
    let mut at = 0;
    while at < actions.len() {
        let claimant = match &actions[at] {
            Action::Admit { workload, .. } => {
                at += 1;
                workload
            }
            Action::Evict { claimant, .. } => {
                let same = |a: &&Action| matches!(a, Action::Evict { claimant: c, .. } if c == claimant);
                let group: Vec<&Item> =
                    actions[at..].iter().take_while(same).map(|a| &world.items[a.workload()]).collect();
                at += group.len();
                let item = &world.items[claimant];
                let (own, others): (Vec<&Item>, Vec<&Item>) =
                    group.iter().partition(|victim| victim.workload.team == item.workload.team);
                for victim in &own {
                    prop_assert!(victim.workload.priority < item.workload.priority, "equal priority yielded");
                    for team in world.path(&victim.workload.team) {
                        *usage.entry(team).or_default() -= victim.total();
                    }
                }
                let straddling = take(world, &others, item, &mut usage, &gone);
                gone.extend(group.iter().map(|victim| victim.workload.id.clone()));
                prop_assert!(straddling.is_some(), "taken from a team within its guarantee: {group:?}");
                let path = world.path(&item.workload.team);
                // Room that was promised to the claimant before is in the usage already.
                let more = if claimed.contains(claimant) { 0 } else { item.total() };
                let owed = path.iter().all(|team| usage[team] + more <= world.guaranteed(team));
                prop_assert!(owed || others.is_empty(), "{claimant} is not owed what it took");
                prop_assert!(group.iter().all(|victim| victim.preemptible()), "not preemptible");
                claimant
            }
        };
        if !claimed.contains(claimant) {
            for team in world.path(&world.items[claimant].workload.team) {
                *usage.entry(team).or_default() += world.items[claimant].total();
            }
        }
    }
    Ok(())
}

/// Whether some set of running workloads that may be taken would let `item` start.
fn could_be_made_room(world: &World, item: &Item) -> Option<Vec<Vec<WorkloadId>>> {
    let running: Vec<&Item> = world
        .running()
        .into_iter()
        .filter(|other| {
            let own = other.workload.team == item.workload.team;
            other.preemptible() && (!own || other.workload.priority < item.workload.priority)
        })
        .collect();
    if running.len() > 9 {
        return None;
    }
    let mut sets = Vec::new();
    for mask in 0_u32..1 << running.len() {
        let set: Vec<&Item> =
            (0..running.len()).filter(|i| mask & (1 << i) != 0).map(|i| running[i]).collect();
        let mut usage = settled_usage(world, &BTreeSet::new());
        let (own, others): (Vec<&Item>, Vec<&Item>) =
            set.iter().partition(|victim| victim.workload.team == item.workload.team);
        for victim in own {
            for team in world.path(&victim.workload.team) {
                *usage.entry(team).or_default() -= victim.total();
            }
        }
        if take(world, &others, item, &mut usage, &BTreeSet::new()).is_none() {
            continue;
        }
        let path = world.path(&item.workload.team);
        let owed = path.iter().all(|team| usage[team] + item.total() <= world.guaranteed(team));
        let capped = path.iter().any(|t| world.limit(t).is_some_and(|l| usage[t] + item.total() > l));
        if owed && !capped && world.fits_without(item, &set) {
            sets.push(set.iter().map(|victim| victim.workload.id.clone()).collect());
        }
    }
    Some(sets)
}

fn submissions(count: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(prop_oneof![6 => submit(), 1 => (1..90_000_i64).prop_map(Op::Wait)], 1..count)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn law_1_never_over_admit(setup in setup(), ops in ops()) {
        let mut world = build(&setup);
        for op in &ops {
            apply(&mut world, op);
            world.plan();
            never_over_admitted(&world)?;
        }
    }

    #[test]
    fn law_2_an_owed_workload_starts_as_soon_as_borrowers_can_make_room(
        setup in setup(), ops in submissions(12)
    ) {
        let mut world = build(&setup);
        for op in &ops {
            apply(&mut world, op);
            world.settle();
        }
        for item in world.queued() {
            let sets = could_be_made_room(&world, item);
            prop_assert!(
                sets.as_ref().is_none_or(Vec::is_empty),
                "{} waits though it is owed room and these would make it: {sets:?}", item.workload.id
            );
        }
    }

    #[test]
    fn law_3_owners_keep_what_is_theirs(setup in setup(), ops in ops()) {
        let mut world = build(&setup);
        for op in &ops {
            apply(&mut world, op);
            let mut usage = settled_usage(&world, &BTreeSet::new());
            let mut claimed = claims(&world);
            let actions = world.plan();
            // A promise that had to be given up counts for nothing.
            let started: BTreeSet<_> = actions.iter().map(|action| action.workload().clone()).collect();
            let kept = claims(&world);
            claimed.retain(|id| kept.contains(id) || started.contains(id));
            for item in claimed.iter().filter_map(|id| world.items.get(id)) {
                for team in world.path(&item.workload.team) {
                    *usage.entry(team).or_default() += item.total();
                }
            }
            owners_keep_theirs(&world, &actions, usage, &claimed)?;
        }
    }

    #[test]
    fn law_4_an_eviction_pays_and_takes_nobody_needlessly(
        setup in setup(), ops in submissions(10), last in submit()
    ) {
        let mut world = build(&setup);
        for op in &ops {
            apply(&mut world, op);
            world.settle();
        }
        world.evicted_for.clear();
        world.now = Time(world.now.0 + 1_000);
        apply(&mut world, &last);
        let before = world.log.len();
        let Some(newest) = world.queued().into_iter().cloned().max_by_key(|i| i.workload.submitted)
            else { return Ok(()) };
        let sets = could_be_made_room(&world, &newest);
        world.plan();
        let chosen = world.evicted_for.get(&newest.workload.id).cloned();
        if let (Some(chosen), Some(sets)) = (&chosen, &sets) {
            // By the order of the law, no set that leaves owners whole loses to one that does not, and
            // of two sets none is a part of the other.
            let part = |set: &Vec<WorkloadId>| set.len() < chosen.len() && set.iter().all(|v| chosen.contains(v));
            prop_assert!(!sets.iter().any(part), "{chosen:?} takes more than needed: {sets:?}");
            let straddles = |set: &mut dyn Iterator<Item = &WorkloadId>| {
                let items: Vec<&Item> = set.map(|id| &world.items[id])
                    .filter(|item| item.workload.team != newest.workload.team).collect();
                take(&world, &items, &newest, &mut settled_usage_before(&world), &BTreeSet::new())
            };
            let mine = straddles(&mut chosen.iter());
            let best = sets.iter().filter_map(|set| straddles(&mut set.iter())).min();
            prop_assert!(sets.is_empty() || mine <= best, "{chosen:?} cuts into a guarantee needlessly");
        }
        world.settle();
        for (claimant, victims) in &world.evicted_for {
            let admission = format!("Admit {{ workload: {claimant:?}");
            let started = world.log[before..].iter().any(|line| line.starts_with(&admission));
            prop_assert!(started, "{victims:?} went for {claimant}, which did not start");
        }
        let mut gone = BTreeSet::new();
        for line in world.log[before..].iter().filter(|line| line.starts_with("Evict")) {
            let victim = line.split("claimant").next().unwrap_or_default().to_owned();
            prop_assert!(gone.insert(victim), "evicted twice: {line}");
        }
    }

    #[test]
    fn law_4_the_set_that_loses_least_work_is_chosen(
        nodes in prop::collection::vec(4..9_i64, 1..3),
        jobs in prop::collection::vec((1..4_i64, 1..50_i64), 2..9),
        wanted in 1..6_i64,
    ) {
        // One team borrows everything, another claims: nothing but the work lost tells sets apart.
        let total: i64 = nodes.iter().sum();
        let mut world = World::new(&nodes, vec![team("a", None, 0, None), team("b", None, total, None)]);
        for (gpus, pause) in &jobs {
            world.now = Time(world.now.0 + pause * 1_000);
            world.submit(&"a".into(), "train", 0, 1, *gpus);
            world.settle();
        }
        world.now = Time(world.now.0 + 60_000);
        let id = world.submit(&"b".into(), "train", 0, 1, wanted);
        let item = world.items[&id].clone();
        let sets = could_be_made_room(&world, &item).unwrap_or_default();
        let now = world.now;
        world.plan();
        let lost = |set: &mut dyn Iterator<Item = &WorkloadId>| -> i64 {
            set.map(|id| match &world.items[id].stage {
                Stage::Running(admission) => world.items[id].total() * (now.0 - admission.at.0),
                _ => 0,
            }).sum()
        };
        match world.evicted_for.get(&id) {
            Some(chosen) => {
                let best = sets.iter().map(|set| lost(&mut set.iter())).min();
                prop_assert_eq!(Some(lost(&mut chosen.iter())), best, "{:?} of {:?}", chosen, sets);
            }
            None => prop_assert!(
                sets.is_empty() || sets.contains(&Vec::new()),
                "nobody was evicted, but {sets:?} would make room"
            ),
        }
    }

    #[test]
    fn law_6_nothing_waits_while_it_could_run(setup in setup(), ops in ops()) {
        let mut world = build(&setup);
        for op in &ops {
            apply(&mut world, op);
        }
        world.settle();
        for item in world.queued() {
            let nothing = BTreeMap::new();
            let may = world.within_limits(item, &nothing)
                && (item.preemptible() || world.owed(item, &nothing));
            prop_assert!(
                !(may && world.fits_without(item, &[])),
                "{} waits though it fits: {:?}", item.workload.id, world.engine.verdict(&item.workload.id)
            );
        }
    }

    #[test]
    fn law_8_decisions_come_to_rest(setup in setup(), ops in ops()) {
        let mut world = build(&setup);
        for op in &ops {
            apply(&mut world, op);
        }
        world.settle();
        for _ in 0..5 {
            world.now = Time(world.now.0 + 1_000);
            prop_assert!(world.plan().is_empty(), "moves without a cause:\n{}", world.log.join("\n"));
        }
    }

    #[test]
    fn law_9_a_team_is_served_in_order(
        jobs in prop::collection::vec((-1..2_i32, 0..3_i64), 2..12)
    ) {
        let mut world = World::new(&[1], vec![team("a", None, 1, None)]);
        world.submit(&"a".into(), "fixed", 9, 1, 1);
        world.settle();
        for (priority, pause) in &jobs {
            world.now = Time(world.now.0 + pause * 1_000);
            world.submit(&"a".into(), "fixed", *priority, 1, 1);
        }
        let rank = |item: &Item| {
            let number: u32 = item.workload.name[1..].parse().expect("names are w and a number");
            (-item.workload.priority, item.workload.submitted, number)
        };
        let mut expected: Vec<_> = world.queued().into_iter().map(rank).collect();
        expected.sort_unstable();
        let mut served = Vec::new();
        while let Some(running) = ids(world.running()).first().cloned() {
            world.end(&running, Stage::Finished);
            world.settle();
            served.extend(world.running().into_iter().map(rank));
        }
        prop_assert_eq!(served, expected);
    }

    #[test]
    fn law_9_the_smallest_share_goes_first(weights in [1..4_u32, 1..4_u32, 1..4_u32], capacity in 3..20_i64) {
        let teams = (0..3).map(|i| sluice::engine::model::Team {
            weight: weights[i], ..team(TEAMS[i], None, 0, None)
        }).collect();
        let mut world = World::new(&[capacity], teams);
        for _ in 0..capacity {
            for name in TEAMS {
                world.submit(&name.into(), "train", 0, 1, 1);
            }
        }
        world.settle();
        for (i, left) in TEAMS.iter().enumerate() {
            for (j, right) in TEAMS.iter().enumerate() {
                let (mine, theirs) = (world.used(&(*left).into()), world.used(&(*right).into()));
                // Without its last one, nobody's share is larger than another's.
                let fair = (mine - 1) * i64::from(weights[j]) <= theirs * i64::from(weights[i]);
                prop_assert!(fair, "{left} holds {mine}, {right} {theirs}, weights {weights:?}");
            }
        }
    }

    #[test]
    fn law_9_owed_goes_before_surplus(capacity in 1..8_i64, owner_first in any::<bool>()) {
        let teams = vec![team("a", None, 0, None), team("b", None, capacity, None)];
        let mut world = World::new(&[capacity], teams);
        for i in 0..2 * capacity {
            let who = if (i % 2 == 0) == owner_first { "b" } else { "a" };
            world.submit(&who.into(), "train", 0, 1, 1);
        }
        world.plan();
        prop_assert_eq!(world.used(&"b".into()), capacity);
    }

    #[test]
    fn law_10_the_same_events_give_the_same_decisions(setup in setup(), ops in ops()) {
        let run = || {
            let mut world = build(&setup);
            for op in &ops {
                apply(&mut world, op);
                world.plan();
            }
            world.log
        };
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn law_11_nothing_is_lost_or_started_twice_over_restarts(setup in setup(), ops in ops()) {
        let mut world = build(&setup);
        for op in &ops {
            apply(&mut world, op);
            world.rebuild();
            let actions = world.plan();
            for action in &actions {
                if let Action::Admit { workload, .. } = action {
                    prop_assert_eq!(&world.items[workload].stage, &Stage::Queued);
                }
            }
            never_over_admitted(&world)?;
        }
        // Whatever fits an empty cluster by itself runs to its end.
        for name in world.nodes.keys().cloned().collect::<Vec<_>>() {
            world.cordon(&name, true);
        }
        while !world.foreign.is_empty() {
            world.remove_foreign(0);
        }
        loop {
            world.settle();
            let running = ids(world.running());
            if running.is_empty() {
                break;
            }
            for id in running {
                world.end(&id, Stage::Finished);
            }
        }
        for item in world.queued() {
            let nothing = BTreeMap::new();
            let may = world.within_limits(item, &nothing)
                && (item.preemptible() || world.owed(item, &nothing));
            prop_assert!(!(may && world.fits_without(item, &[])), "{} was lost", item.workload.id);
        }
    }

    #[test]
    fn law_12_a_decision_is_made_once(setup in setup(), ops in ops()) {
        let mut world = build(&setup);
        for op in &ops {
            apply(&mut world, op);
            let decided: BTreeSet<_> = world.in_flight.iter().map(|a| a.workload().clone()).collect();
            for action in world.plan() {
                prop_assert!(!decided.contains(action.workload()), "decided again: {action:?}");
            }
        }
    }

    #[test]
    fn law_14_every_verdict_has_its_reason(setup in setup(), ops in ops()) {
        let mut world = build(&setup);
        for op in &ops {
            apply(&mut world, op);
        }
        world.settle();
        for item in world.items.values() {
            let (state, reason) = world.reason(&item.workload.id);
            let expected = match item.stage {
                Stage::Queued => State::Pending,
                Stage::Running(_) => State::Running,
                Stage::Ending(..) => State::Evicting,
                Stage::Finished => State::Finished,
            };
            prop_assert_eq!(state, expected);
            prop_assert_ne!(reason, Reason::NotYetConsidered);
        }
    }
}

/// What teams held before the evictions that are in flight.
fn settled_usage_before(world: &World) -> BTreeMap<Name, i64> {
    world.teams.keys().map(|team| (team.clone(), world.used(team))).collect()
}
