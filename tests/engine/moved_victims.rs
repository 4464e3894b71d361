//! Laws 3 and 4 for workloads that move to let an owner start, and lose their new nodes meanwhile.

use proptest::prelude::*;
use sluice_engine::types::{Action, EvictReason, Name, Reason, WorkloadId};

use super::world::{Phase, World, team};

/// Nodes of 2 and 1 GPUs. What runs on the first one moves to the second for a workload of 2 GPUs.
fn moving(teams: &[(&str, i64)], mover: (&str, i32)) -> (World, WorkloadId, WorkloadId) {
    let teams = teams.iter().map(|(name, guaranteed)| team(name, None, *guaranteed, None)).collect();
    let mut world = World::new(&[2, 1], teams);
    let moved = world.run_on("n0", mover.0, mover.1, 1);
    world.rebuild();
    let large = world.submit(&"a".into(), "train", 0, 1, 2);
    let actions = world.decide();
    assert!(
        matches!(&actions[..], [Action::Evict { workload, reason: EvictReason::Moved, .. }] if *workload == moved),
        "{actions:?}"
    );
    (world, moved, large)
}

/// Teams with their guarantees, and team and priority of what moves.
type Case = (&'static [(&'static str, i64)], (&'static str, i32));

/// What moves is of another team, of equal priority in the same team, and of a higher one.
const CASES: [Case; 3] =
    [(&[("a", 2), ("b", 1)], ("b", 0)), (&[("a", 4)], ("a", 0)), (&[("a", 4)], ("a", 9))];

#[test]
fn laws_3_and_4_what_moves_keeps_its_place_where_the_new_one_is_lost() {
    for (teams, mover) in CASES {
        let (mut world, moved, large) = moving(teams, mover);
        world.cordon(&"n1".into(), false);
        assert!(world.decide().is_empty());
        assert_eq!(world.reason(&large).1, Reason::NoRoom, "its plan does not hold any more");
        world.end(&moved, Phase::Queued);
        world.decide();
        assert_eq!((world.nodes_of(&moved), world.nodes_of(&large)), (vec!["n0"], vec![]), "{mover:?}");
        // Once the node is open again, the workload moves after all.
        world.cordon(&"n1".into(), true);
        world.decide();
        world.end(&moved, Phase::Queued);
        world.decide();
        assert_eq!((world.nodes_of(&moved), world.nodes_of(&large)), (vec!["n1"], vec!["n0"]), "{mover:?}");
    }
}

#[test]
fn law_8_what_moves_goes_where_the_plan_says_if_that_lasts() {
    for (teams, mover) in CASES {
        let (mut world, moved, large) = moving(teams, mover);
        world.cordon(&"n0".into(), true);
        assert!(world.decide().is_empty());
        world.end(&moved, Phase::Queued);
        world.decide();
        assert_eq!((world.nodes_of(&moved), world.nodes_of(&large)), (vec!["n1"], vec!["n0"]), "{mover:?}");
    }
}

#[test]
fn law_8_what_moves_goes_to_another_node_where_the_new_one_is_lost() {
    let teams = vec![team("a", None, 2, None), team("b", None, 1, None)];
    let mut world = World::new(&[2, 1, 1], teams);
    let moved = world.run_on("n0", "b", 0, 1);
    world.rebuild();
    let large = world.submit(&"a".into(), "train", 0, 1, 2);
    world.decide();
    for lost in ["n1", "n2"] {
        world.cordon(&lost.into(), false);
        assert!(world.decide().is_empty());
        world.cordon(&lost.into(), true);
        assert!(world.decide().is_empty());
        assert_eq!(world.reason(&large).1, Reason::WaitingForEviction);
    }
    world.end(&moved, Phase::Queued);
    world.decide();
    assert_eq!(world.nodes_of(&large), ["n0"]);
    assert!(!world.nodes_of(&moved).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Nodes close on which nothing has run, while workloads within guarantee move for another team. None of them is lost.
    #[test]
    fn law_3_what_moves_runs_again_whatever_becomes_of_its_new_nodes(
        nodes in prop::collection::vec(1..5_i64, 2..6),
        movers in prop::collection::vec(1..3_i64, 1..5),
        asks in prop::collection::vec((1..3_u32, 1..5_i64), 1..3),
        closed in prop::collection::vec(any::<bool>(), 6),
        before in any::<bool>(),
    ) {
        let (all, held): (i64, i64) = (nodes.iter().sum(), movers.iter().sum());
        prop_assume!(held <= all);
        let teams = vec![team("a", None, all - held, None), team("b", None, held, None)];
        let mut world = World::new(&nodes, teams);
        let mut ids = Vec::new();
        for (at, gpus) in movers.iter().enumerate() {
            // Each on the first node with room from its own number on.
            let names: Vec<Name> = world.nodes.keys().cloned().collect();
            let from = at % names.len();
            let mut turned = names[from..].iter().chain(&names[..from]);
            let Some(node) = turned.find(|node| world.free(node) >= *gpus) else { continue };
            ids.push(world.run_on(node, "b", 0, *gpus));
        }
        world.rebuild();
        let ran: Vec<Name> = ids.iter().flat_map(|id| world.nodes_of(id)).map(Into::into).collect();
        for (pods, gpus) in asks {
            world.submit(&"a".into(), "train", 0, pods, gpus);
            world.decide();
        }
        let names: Vec<Name> = world.nodes.keys().cloned().collect();
        let close = |world: &mut World| {
            for (name, _) in names.iter().zip(&closed).filter(|(name, close)| **close && !ran.contains(*name)) {
                world.cordon(name, false);
                world.decide();
            }
        };
        if before {
            close(&mut world);
        }
        for _ in 0..20 {
            let stopping: Vec<WorkloadId> = world
                .items
                .values()
                .filter(|job| matches!(job.phase, Phase::Stopping(..)))
                .map(|job| job.workload.id.clone())
                .collect();
            if let Some(id) = stopping.first() {
                world.end(id, Phase::Queued);
                world.decide();
            }
            if !before && stopping.len() > 1 {
                close(&mut world);
            }
        }
        for id in &ids {
            prop_assert!(!world.nodes_of(id).is_empty(), "{id} is lost:\n{}", world.log.join("\n"));
        }
    }
}
