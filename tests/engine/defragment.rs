//! Background defragmentation: which workloads move, when, and which never do.

use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::types::{Action, EvictReason};
use sluice_engine::types::{Defragmentation, Settings, Time, WorkloadId};

use super::judge::never_over_admitted;
use super::ops::{apply, build, ids, nth, setup, submissions};
use super::world::{Phase, World, team};

const EVERY: Duration = Duration::from_secs(600);

/// The world with a budget for defragmentation.
fn budgeted(mut world: World, most_lost: Duration) -> World {
    let defragmentation = Some(Defragmentation { every: EVERY, most_lost });
    world.settings = Settings { defragmentation, ..Settings::default() };
    world.rebuild();
    world
}

/// Two nodes of four GPUs, one and three of them in use. Returns the workload of one GPU, which fits beside
/// the other.
fn fragmented(queue: &str, most_lost: Duration) -> (World, WorkloadId) {
    let teams = vec![team("a", None, 8, None)];
    let mut world = budgeted(World::new(&[4, 4], teams), most_lost);
    let first = world.submit(&"a".into(), queue, 0, 1, 3);
    world.settle_now();
    world.submit(&"a".into(), queue, 0, 1, 3);
    world.settle_now();
    let small = world.submit(&"a".into(), queue, 0, 1, 1);
    world.settle_now();
    // The workload beside it is deleted.
    let node = node_of(&world, &small);
    let beside = if node_of(&world, &first) == node { first } else { WorkloadId("a/w2".into()) };
    world.delete(&beside);
    world.settle_now();
    (world, small)
}

fn node_of(world: &World, id: &WorkloadId) -> String {
    match &world.items[id].phase {
        Phase::Running(admission) => admission.nodes.keys().map(ToString::to_string).collect(),
        phase => format!("{phase:?}"),
    }
}

fn moves(actions: &[Action]) -> Vec<&WorkloadId> {
    let moved = |action: &&Action| {
        matches!(action, Action::Evict { preemptor: None, reason: EvictReason::Moved, .. })
    };
    actions.iter().filter(moved).map(Action::workload).collect()
}

/// The sum of the squares of the free GPUs of each node: it grows as free capacity comes in larger pieces.
fn free_in_one_piece(world: &World) -> i64 {
    world.nodes.keys().map(|node| world.free(node).pow(2)).sum()
}

#[test]
fn a_workload_moves_once_the_budget_allows_it_and_frees_a_node() {
    let (mut world, small) = fragmented("train", Duration::from_secs(3600));
    let (before, began) = (node_of(&world, &small), world.now);
    let due = world.engine.next_deadline().expect("the budget grows");
    world.now = Time(due.0 - 1);
    assert!(world.plan().is_empty(), "the budget does not allow a move yet");
    world.now = due;
    assert_eq!(moves(&world.plan()), [&small]);
    assert!(due.since(began) <= EVERY);
    world.settle_now();
    assert_ne!(node_of(&world, &small), before);
    assert_eq!(free_in_one_piece(&world), 16, "a whole node is free");
    world.now = world.now.after(10 * EVERY);
    assert!(world.plan().is_empty(), "no move gains anything");
    assert_eq!(world.engine.next_deadline(), None);
}

#[test]
fn one_workload_moves_at_a_time() {
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
        assert!(last != Some(due), "the deadline {due:?} comes twice");
        last = Some(due);
        world.now = due.max(world.now);
        let actions = world.plan();
        let moved = moves(&actions);
        assert!(moved.len() <= 1, "{moved:?}");
        times.extend(moved.first().map(|_| world.now));
        world.settle_now();
    }
    assert!(times.windows(2).all(|pair| pair[1].since(pair[0]) >= EVERY), "{times:?}");
    assert_eq!(free_in_one_piece(&world), 6 * 16, "eight used GPUs fill two nodes");
}

#[test]
fn no_workload_moves_without_a_budget_for_its_loss_or_if_not_preemptible() {
    let hour = Duration::from_secs(3600);
    let idle = |mut world: World, why: &str| {
        world.now = world.now.after(2 * EVERY);
        assert!(world.plan().is_empty(), "{why}");
    };
    idle(fragmented("fixed", hour).0, "the workload is not preemptible");
    idle(fragmented("train", Duration::from_secs(60)).0, "the move would lose too much work");
    let (mut world, _) = fragmented("train", hour);
    world.settings = Settings::default();
    world.rebuild();
    idle(world, "no budget");
}

#[test]
fn work_before_a_checkpoint_is_not_lost() {
    let (mut world, small) = fragmented("train", Duration::from_secs(60));
    world.now = world.now.after(2 * EVERY);
    assert!(world.plan().is_empty());
    world.checkpoint(&small);
    assert_eq!(moves(&world.plan()), [&small]);
}

/// Carries out one plan. Every workload that it moves runs again, and a move that is the only decision leaves
/// free capacity in larger pieces.
fn every_move_gains(world: &mut World) -> Result<(), TestCaseError> {
    let before = free_in_one_piece(world);
    let actions = world.plan();
    let moved: Vec<WorkloadId> = moves(&actions).into_iter().cloned().collect();
    let log_from = world.log.len();
    world.settle_now();
    for id in &moved {
        prop_assert!(matches!(world.items[id].phase, Phase::Running(_)), "{id} does not run again");
        let is_alone = actions.len() == 1 && world.log[log_from..].len() <= 1;
        prop_assert!(!is_alone || free_in_one_piece(world) > before, "{id} moved for nothing");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn law_8_every_move_gains_and_moves_come_to_an_end(
        setup in setup(), ops in submissions(12), gone in prop::collection::vec(0..8_usize, 0..4)
    ) {
        let mut world = budgeted(build(&setup), Duration::from_secs(100_000));
        for op in &ops {
            apply(&mut world, op);
            world.settle();
        }
        for n in gone {
            if let Some(id) = nth(ids(world.running()), n) {
                world.delete(&id);
            }
            for _ in 0..100 {
                world.settle_now();
                never_over_admitted(&world)?;
                let Some(due) = world.engine.next_deadline() else { break };
                world.now = due.max(world.now);
                every_move_gains(&mut world)?;
            }
            prop_assert!(world.engine.next_deadline().is_none(), "moves never end");
        }
    }
}
