//! Background defragmentation: what is moved, when, and what never is.

use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::types::{Action, EvictReason};
use sluice_engine::types::{Defragmentation, Settings, Time, WorkloadId};

use super::judge::never_over_admitted;
use super::ops::{build, nth, setup, submissions};
use super::world::{Stage, World, team};

const EVERY: Duration = Duration::from_secs(600);

fn budgeted(mut world: World, most_lost: Duration) -> World {
    let defragmentation = Some(Defragmentation { every: EVERY, most_lost });
    world.settings = Settings { defragmentation, ..Settings::default() };
    world.rebuild();
    world
}

/// A node with one GPU in use beside one with three, four on each; the workload that could go there.
fn scattered(queue: &str, most_lost: Duration) -> (World, WorkloadId) {
    let teams = vec![team("a", None, 8, None)];
    let mut world = budgeted(World::new(&[4, 4], teams), most_lost);
    let first = world.submit(&"a".into(), queue, 0, 1, 3);
    world.settle_now();
    world.submit(&"a".into(), queue, 0, 1, 3);
    world.settle_now();
    let small = world.submit(&"a".into(), queue, 0, 1, 1);
    world.settle_now();
    // Whoever lies beside it goes.
    let node = place(&world, &small);
    let beside = if place(&world, &first) == node { first } else { WorkloadId("a/w2".into()) };
    world.delete(&beside);
    world.settle_now();
    (world, small)
}

fn place(world: &World, id: &WorkloadId) -> String {
    match &world.items[id].stage {
        Stage::Running(admission) => admission.nodes.keys().map(ToString::to_string).collect(),
        stage => format!("{stage:?}"),
    }
}

fn moves(actions: &[Action]) -> Vec<&WorkloadId> {
    let moved = |action: &&Action| {
        matches!(action, Action::Evict { preemptor: None, reason: EvictReason::Moved, .. })
    };
    actions.iter().filter(moved).map(Action::workload).collect()
}

/// The sum of the squares of what is free on each node.
fn in_one_piece(world: &World) -> i64 {
    world.nodes.keys().map(|node| world.free(node).pow(2)).sum()
}

#[test]
fn what_is_free_is_brought_together_once_the_budget_allows_it() {
    let (mut world, small) = scattered("train", Duration::from_secs(3600));
    let (before, began) = (place(&world, &small), world.now);
    let due = world.engine.next_deadline().expect("the budget grows");
    world.now = Time(due.0 - 1);
    assert!(world.plan().is_empty(), "before it is time");
    world.now = due;
    assert_eq!(moves(&world.plan()), [&small]);
    assert!(due.since(began) <= EVERY);
    world.settle_now();
    assert_ne!(place(&world, &small), before);
    assert_eq!(in_one_piece(&world), 16, "a whole node is free");
    world.now = world.now.after(10 * EVERY);
    assert!(world.plan().is_empty(), "there is nothing left to gain");
    assert_eq!(world.engine.next_deadline(), None);
}

#[test]
fn one_moves_at_a_time() {
    let teams = vec![team("a", None, 64, None)];
    let mut world = budgeted(World::new(&[4; 8], teams), Duration::from_secs(36_000));
    let ids: Vec<WorkloadId> = (0..32).map(|_| world.submit(&"a".into(), "train", 0, 1, 1)).collect();
    world.settle_now();
    for id in ids.iter().enumerate().filter(|(i, _)| i % 4 != 0).map(|(_, id)| id) {
        world.delete(id);
    }
    world.settle_now();
    let (mut last, mut times) = (None, Vec::new());
    while let Some(due) = world.engine.next_deadline() {
        assert!(last != Some(due), "it asks to be planned again for nothing");
        last = Some(due);
        world.now = due.max(world.now);
        let actions = world.plan();
        let moved = moves(&actions);
        assert!(moved.len() <= 1, "{moved:?}");
        times.extend(moved.first().map(|_| world.now));
        world.settle_now();
    }
    assert!(times.windows(2).all(|pair| pair[1].since(pair[0]) >= EVERY), "{times:?}");
    assert_eq!(in_one_piece(&world), 6 * 16, "eight GPUs in use fill two nodes");
}

#[test]
fn nobody_is_moved_who_may_not_be() {
    let hour = Duration::from_secs(3600);
    let idle = |mut world: World, why: &str| {
        world.now = world.now.after(2 * EVERY);
        assert!(world.plan().is_empty(), "{why}");
    };
    idle(scattered("fixed", hour).0, "it is not preemptible");
    idle(scattered("train", Duration::from_secs(60)).0, "it would lose too much");
    let (mut world, _) = scattered("train", hour);
    world.settings = Settings::default();
    world.rebuild();
    idle(world, "there is no budget");
}

#[test]
fn saved_work_is_not_lost() {
    let (mut world, small) = scattered("train", Duration::from_secs(60));
    world.now = world.now.after(2 * EVERY);
    assert!(world.plan().is_empty());
    world.save(&small);
    assert_eq!(moves(&world.plan()), [&small]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn every_move_pays_and_moves_come_to_an_end(
        setup in setup(), ops in submissions(12), gone in prop::collection::vec(0..8_usize, 0..4)
    ) {
        let mut world = budgeted(build(&setup), Duration::from_secs(100_000));
        for op in &ops {
            super::ops::apply(&mut world, op);
            world.settle();
        }
        for n in gone {
            if let Some(id) = nth(super::ops::ids(world.running()), n) {
                world.delete(&id);
            }
            for _ in 0..100 {
                world.settle_now();
                never_over_admitted(&world)?;
                let Some(due) = world.engine.next_deadline() else { break };
                world.now = due.max(world.now);
                let before = in_one_piece(&world);
                let actions = world.plan();
                let moved: Vec<WorkloadId> = moves(&actions).into_iter().cloned().collect();
                let alone = actions.len() == 1;
                let log = world.log.len();
                world.settle_now();
                for id in &moved {
                    prop_assert!(matches!(world.items[id].stage, Stage::Running(_)), "{id} lost its place");
                    let others = world.log[log..].len() > 1;
                    prop_assert!(others || !alone || in_one_piece(&world) > before, "{id} moved for nothing");
                }
            }
            prop_assert!(world.engine.next_deadline().is_none(), "it never comes to rest");
        }
    }
}
