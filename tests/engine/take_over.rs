//! Laws 2 and 8 for owners that come while capacity is being cleared for a borrower.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::types::{Action, Observed, Reason, Settings, Time, WorkloadId};

use super::echoes::Cluster;
use super::ops::TEAMS;
use super::world::{Phase, World, team};

/// Teams with these guarantees.
fn world(nodes: &[i64], teams: &[(&str, i64)]) -> World {
    World::new(nodes, teams.iter().map(|(name, guaranteed)| team(name, None, *guaranteed, None)).collect())
}

/// The workloads that these actions evict.
fn evicted(actions: &[Action]) -> Vec<&WorkloadId> {
    let evicts = |action: &&Action| matches!(action, Action::Evict { .. });
    actions.iter().filter(evicts).map(Action::workload).collect()
}

/// One node of four GPUs. A borrower of four waits for one of low priority to end, with three GPUs free.
fn with_three_free() -> (World, WorkloadId, WorkloadId) {
    let mut world = world(&[4], &[("a", 0), ("b", 3)]);
    let low = world.submit(&"a".into(), "train", -10, 1, 1);
    world.decide();
    let large = world.submit(&"a".into(), "train", 0, 1, 4);
    assert_eq!(evicted(&world.decide()), [&low]);
    (world, low, large)
}

#[test]
fn law_2_an_owner_starts_at_once_on_what_is_free_and_held_for_a_borrower() {
    for asks in 1..=3 {
        let (mut world, low, large) = with_three_free();
        let own = world.submit(&"b".into(), "train", 0, 1, asks);
        assert!(evicted(&world.decide()).is_empty());
        assert_eq!(world.nodes_of(&own), ["n0"], "{asks} of 3 GPUs");
        assert_ne!(world.reason(&large).1, Reason::WaitingForEviction, "it fits no more");
        world.end(&low, Phase::Queued);
        assert!(evicted(&world.decide()).is_empty());
        assert_eq!(world.nodes_of(&low), ["n0"], "the victim starts again");
    }
}

#[test]
fn law_2_a_second_owner_starts_at_once_too() {
    let (mut world, ..) = with_three_free();
    let owners = [1, 2].map(|asks| {
        let own = world.submit(&"b".into(), "train", 0, 1, asks);
        world.decide();
        own
    });
    assert!(owners.iter().all(|own| world.nodes_of(own) == ["n0"]));
}

#[test]
fn law_2_an_owner_that_needs_what_comes_free_waits_for_it() {
    let mut world = world(&[4], &[("a", 0), ("b", 4)]);
    let low = world.submit(&"a".into(), "train", -10, 1, 1);
    world.decide();
    world.submit(&"a".into(), "train", 0, 1, 4);
    world.decide();
    let own = world.submit(&"b".into(), "train", 0, 1, 4);
    assert!(world.decide().is_empty());
    assert_eq!(world.reason(&own).1, Reason::WaitingForEviction);
    world.end(&low, Phase::Queued);
    world.decide();
    assert_eq!(world.nodes_of(&own), ["n0"]);
}

#[test]
fn law_9_a_sibling_of_equal_priority_leaves_what_is_free_to_the_preemptor() {
    let mut world = world(&[4], &[("a", 1)]);
    let low = world.submit(&"a".into(), "train", -10, 1, 1);
    world.decide();
    let large = world.submit(&"a".into(), "train", 0, 1, 4);
    assert_eq!(evicted(&world.decide()), [&low]);
    let sibling = world.submit(&"a".into(), "train", 0, 1, 1);
    assert!(world.decide().is_empty());
    world.end(&low, Phase::Queued);
    world.decide();
    assert_eq!((world.nodes_of(&large), world.nodes_of(&sibling)), (vec!["n0"], vec![]));
}

#[test]
fn law_2_an_owner_starts_on_the_free_node_of_a_gang_that_waits_for_another_node() {
    let mut world = world(&[4, 4], &[("a", 0), ("b", 4)]);
    let low = world.run_on("n0", "a", -10, 1);
    world.rebuild();
    let gang = world.submit(&"a".into(), "train", 0, 2, 4);
    assert_eq!(evicted(&world.decide()), [&low]);
    let own = world.submit(&"b".into(), "train", 0, 1, 4);
    world.decide();
    assert_eq!(world.nodes_of(&own), ["n1"]);
    assert_ne!(world.reason(&gang).1, Reason::WaitingForEviction);
}

/// A gang of 3 x 1 GPU waits with two free GPUs on n0 and a victim of two on n1.
#[test]
fn law_8_a_preemptor_goes_on_with_the_rest_where_an_owner_takes_what_is_free() {
    let mut world = world(&[4, 4], &[("a", 2), ("b", 0), ("c", 0)]);
    world.run_on("n0", "b", 0, 2);
    world.run_on("n1", "b", 0, 2);
    world.now = Time(90_000);
    let young = world.run_on("n1", "b", 0, 2);
    world.rebuild();
    world.now = Time(100_000);
    let gang = world.submit(&"c".into(), "train", 0, 3, 1);
    assert_eq!(evicted(&world.decide()), [&young]);
    let own = world.submit(&"a".into(), "train", 0, 1, 1);
    assert!(evicted(&world.decide()).is_empty());
    assert_eq!(world.nodes_of(&own), ["n0"]);
    assert_eq!(world.reason(&gang).1, Reason::WaitingForEviction);
    world.end(&young, Phase::Queued);
    assert!(evicted(&world.decide()).is_empty());
    assert_eq!(world.nodes_of(&gang), ["n0", "n1"]);
}

/// A gang of 2 x 2 GPUs has two free on n0 and waits for a victim of two on n2, when an owner starts on n0.
#[test]
fn law_8_as_few_victims_as_possible_are_added_where_an_owner_takes_what_is_free() {
    let mut world = world(&[4, 4], &[("a", 4), ("b", 0), ("c", 0)]);
    world.run_on("n0", "b", 0, 2);
    world.run_on("n1", "b", 0, 2);
    world.now = Time(20_000);
    let first = world.run_on("n1", "b", 0, 2);
    world.rebuild();
    world.now = Time(30_000);
    let gang = world.submit(&"c".into(), "train", 0, 2, 2);
    assert_eq!(evicted(&world.decide()), [&first]);
    world.now = Time(40_000);
    let own = world.submit(&"a".into(), "train", 0, 1, 2);
    let actions = world.decide();
    assert_eq!(world.nodes_of(&own), ["n0"]);
    let [second] = evicted(&actions)[..] else { panic!("one more victim is enough: {actions:?}") };
    let named = actions.iter().any(|action| {
        matches!(action, Action::Evict { message, .. } if message.contains("took over the capacity"))
    });
    assert!(named, "{actions:?}");
    world.end(second, Phase::Queued);
    assert!(world.decide().is_empty());
    world.end(&first, Phase::Queued);
    assert!(evicted(&world.decide()).is_empty());
    assert!(!world.nodes_of(&gang).is_empty(), "the gang runs");
}

/// As before, but a second owner takes what the second victim has left: what is missing then is judged alone.
#[test]
fn law_5_a_plan_that_is_amended_counts_no_more_than_its_preemptor_starts_on() {
    let mut world = world(&[4, 4], &[("a", 4), ("b", 0), ("c", 0)]);
    let other = world.run_on("n0", "b", 0, 2);
    let old = world.run_on("n1", "b", 0, 2);
    world.now = Time(20_000);
    let first = world.run_on("n1", "b", 0, 2);
    world.rebuild();
    world.now = Time(30_000);
    let gang = world.submit(&"c".into(), "train", 0, 2, 2);
    assert_eq!(evicted(&world.decide()), [&first]);
    world.submit(&"a".into(), "train", 0, 1, 2);
    let actions = world.decide();
    let [second] = evicted(&actions)[..] else { panic!("one more victim is enough: {actions:?}") };
    world.end(second, Phase::Queued);
    world.decide();
    let own = world.submit(&"a".into(), "train", 0, 1, 2);
    assert!(evicted(&world.decide()).is_empty(), "no share would become smaller");
    assert!(!world.nodes_of(&own).is_empty());
    world.end(&first, Phase::Queued);
    world.decide();
    assert!(world.nodes_of(&gang).is_empty());
    let running = [&other, &old, &first].iter().filter(|id| !world.nodes_of(id).is_empty()).count();
    assert_eq!(running, 2, "four GPUs are left beside the owners");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// One team borrows all GPUs, a second one preempts some of it for its fair share, and a third one asks for a part of its
    /// guarantee before that capacity is free. What waits then for its victims is not started to be evicted for the owner.
    #[test]
    fn law_8_no_preemptor_starts_to_be_evicted_for_an_owner_that_waits(
        nodes in prop::collection::vec(2..5_i64, 1..3),
        sizes in prop::collection::vec(1..3_i64, 8),
        preempts in 1..4_i64,
        asks in 1..5_i64,
        steps in 0..6_usize,
        seed in any::<u64>(),
    ) {
        let all: i64 = nodes.iter().sum();
        let teams = (0..3).map(|i| team(TEAMS[i], None, if i == 0 { all } else { 0 }, None)).collect();
        let mut cluster = Cluster::new(&nodes, teams, Settings::default(), seed);
        for (at, gpus) in sizes.iter().enumerate() {
            let borrower = cluster.job(TEAMS[1], &format!("b{at}"), 1, *gpus);
            cluster.submit(borrower);
        }
        cluster.settle();
        cluster.now = cluster.now.after(Duration::from_secs(5));
        let preemptor = cluster.job(TEAMS[2], "preemptor", 1, preempts);
        cluster.submit(preemptor);
        for _ in 0..steps {
            cluster.step();
        }
        let began = cluster.log.len();
        let owner = cluster.job(TEAMS[0], "owner", 1, asks);
        let owner = cluster.submit(owner);
        cluster.settle();
        let mut started = BTreeSet::new();
        for action in &cluster.log[began..] {
            match action {
                Action::Admit { workload, .. } => {
                    started.insert(workload.clone());
                }
                Action::Evict { workload, preemptor: Some(by), .. } => prop_assert!(
                    !started.contains(workload) || *by != owner,
                    "{workload} starts and goes for {by}, which waited: {:?}",
                    &cluster.log[began..]
                ),
                _ => {}
            }
        }
        let runs = matches!(cluster.objects[&owner].state, Observed::Admitted(_));
        prop_assert_eq!(runs, nodes.iter().any(|gpus| asks <= *gpus), "the owner starts where a node is large enough");
    }

    /// An owner never waits while a node has enough GPUs that no pod holds, whoever they are held for.
    #[test]
    fn law_2_no_owner_waits_beside_what_is_free(
        nodes in prop::collection::vec(2..6_i64, 1..4),
        borrowers in prop::collection::vec((1..4_i64, -1..1_i32), 1..8),
        preemptors in prop::collection::vec((2..4_usize, 1..3_u32, 1..4_i64), 1..4),
        asks in 1..5_i64,
    ) {
        let all: i64 = nodes.iter().sum();
        let mut world = world(&nodes, &[("a", all), ("b", 0), ("c", 0), ("d", 0)]);
        for (gpus, priority) in borrowers {
            world.submit(&"b".into(), "train", priority, 1, gpus);
            world.settle();
        }
        for (team, pods, gpus) in preemptors {
            world.submit(&["a", "b", "c", "d"][team].into(), "train", 0, pods, gpus);
            world.decide();
        }
        let own = world.submit(&"a".into(), "train", 0, 1, asks);
        let fits = world.nodes.keys().any(|node| world.free(node) >= asks);
        let actions = world.decide();
        let other_starts =
            actions.iter().any(|action| matches!(action, Action::Admit { .. }) && *action.workload() != own);
        let runs = !world.nodes_of(&own).is_empty();
        prop_assert!(runs == fits || fits && other_starts, "{}", world.log.join("\n"));
    }
}
