//! One property a law. The world in [`super::world`] judges by its own books.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sluice_engine::types::{Action, Reason, State};
use sluice_engine::types::{Team, Time, WorkloadId};

use super::judge::{
    claims, could_be_made_room, never_over_admitted, owners_keep_theirs, settled_usage, settled_usage_before,
    take, takes_mates_needlessly,
};
use super::ops::{TEAMS, apply, build, ids, ops, setup, submissions, submit};
use super::world::{Item, Stage, World, team};

/// Three teams that are promised nothing, on one node.
fn borrowers(weights: &[u32; 3], capacity: i64) -> World {
    let teams =
        TEAMS.iter().zip(weights).map(|(name, weight)| Team { weight: *weight, ..team(name, None, 0, None) });
    World::new(&[capacity], teams.collect())
}

/// Lets every team ask for all there is, a GPU at a time.
fn crowd(world: &mut World, queue: &str, capacity: i64) {
    for _ in 0..capacity {
        for name in TEAMS {
            world.submit(&name.into(), queue, 0, 1, 1);
        }
    }
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
            let mut sets = could_be_made_room(&world, item);
            // What its team keeps free for a mate before it is no reason for others to leave.
            if let Some(sets) = sets.as_mut().filter(|_| world.has_kept_room(item)) {
                let mate = |id: &WorkloadId| world.items[id].workload.team == item.workload.team;
                sets.retain(|set| set.iter().any(mate));
            }
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
            // Whose place is kept elsewhere goes on holding as much.
            let mut usage = settled_usage(&world, &world.moving);
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
        // Where all go on elsewhere nobody is taken, and what follows is about those who are.
        let moved = chosen.iter().flatten().any(|victim| world.moving.contains(victim));
        if let (Some(chosen), Some(sets), false) = (&chosen, &sets, moved) {
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
            // A mate whom the guarantee holds beside the preemptor would come back for the same room.
            let mates = |set: &Vec<WorkloadId>| takes_mates_needlessly(&world, &newest, set);
            let better = sets.iter().filter(|set| !mates(set));
            let best = better.filter_map(|set| straddles(&mut set.iter())).min();
            prop_assert!(best.is_none() || mine <= best, "{chosen:?} cuts into a guarantee needlessly");
        }
        world.settle();
        for (preemptor, victims) in &world.evicted_for {
            let admission = format!("Admit {preemptor} ");
            let started = world.log[before..].iter().any(|line| line.starts_with(&admission));
            prop_assert!(started, "{victims:?} went for {preemptor}, which did not start");
        }
        // A victim goes once for a preemptor. Having started anew it may go again, but for another one.
        let mut gone = BTreeSet::new();
        for line in world.log[before..].iter().filter(|line| line.starts_with("Evict")) {
            prop_assert!(gone.insert(line), "evicted twice: {line}");
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
    fn law_4_nobody_goes_in_vain_among_many(
        nodes in prop::collection::vec(4..9_i64, 2..6),
        jobs in prop::collection::vec((1..4_i64, 1..30_i64), 12..40),
        pods in 1..4_u32,
        wanted in 1..7_i64,
    ) {
        // Too many candidates to try every set: whoever is taken must still be needed.
        let total: i64 = nodes.iter().sum();
        let mut world = World::new(&nodes, vec![team("a", None, 0, None), team("b", None, total, None)]);
        for (gpus, pause) in &jobs {
            world.now = Time(world.now.0 + pause * 1_000);
            world.submit(&"a".into(), "train", 0, 1, *gpus);
            world.settle();
        }
        world.now = Time(world.now.0 + 60_000);
        let id = world.submit(&"b".into(), "train", 0, pods, wanted);
        world.plan();
        let item = world.items[&id].clone();
        let chosen: Vec<WorkloadId> = world.evicted_for.get(&id).into_iter().flatten().cloned().collect();
        for spared in &chosen {
            let gone: Vec<&Item> =
                chosen.iter().filter(|victim| *victim != spared).map(|victim| &world.items[victim]).collect();
            prop_assert!(!world.fits_without(&item, &gone), "{spared} went in vain: {chosen:?}");
        }
        world.settle();
        let possible = nodes.iter().map(|gpus| gpus / wanted).sum::<i64>() >= i64::from(pods);
        prop_assert_eq!(matches!(world.items[&id].stage, Stage::Running(_)), possible);
    }

    #[test]
    fn law_5_no_other_division_of_the_surplus_is_fairer(
        weights in [1..4_u32, 1..4_u32, 1..4_u32], capacity in 3..20_i64
    ) {
        let mut world = borrowers(&weights, capacity);
        crowd(&mut world, "train", capacity);
        world.settle();
        let held: Vec<i64> = TEAMS.iter().map(|name| world.used(&(*name).into())).collect();
        prop_assert_eq!(held.iter().sum::<i64>(), capacity);
        // Shares times the weights' product, from the largest.
        let shares = |held: &[i64]| {
            let product: i64 = weights.iter().map(|weight| i64::from(*weight)).product();
            let mut shares: Vec<i64> =
                held.iter().zip(&weights).map(|(held, weight)| held * product / i64::from(*weight)).collect();
            shares.sort_unstable_by_key(|share| -share);
            shares
        };
        for from in 0..3 {
            for to in 0..3 {
                let mut other = held.clone();
                other[from] -= 1;
                other[to] += 1;
                let fair = held[from] == 0 || shares(&other) >= shares(&held);
                prop_assert!(fair, "{held:?} with weights {weights:?} is less fair than {other:?}");
            }
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
        let mut world = borrowers(&weights, capacity);
        // In their queue nobody goes for a claim on the surplus so soon: what is seen is the order alone.
        crowd(&mut world, "slow", capacity);
        world.plan();
        for (i, left) in TEAMS.iter().enumerate() {
            for (j, right) in TEAMS.iter().enumerate() {
                let (mine, theirs) = (world.used(&(*left).into()), world.used(&(*right).into()));
                // All ask for as much: nobody's share is larger than another's would be with one more.
                let fair = mine * i64::from(weights[j]) <= (theirs + 1) * i64::from(weights[i]);
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
