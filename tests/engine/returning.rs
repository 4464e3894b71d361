//! Laws 2, 4 and 9 for what comes while workloads of the same team end: they return to their places, and a workload of a higher
//! priority gets what they leave.

use proptest::prelude::*;
use sluice_engine::types::{Action, Time, WorkloadId};

use super::world::{Phase, World, team};

const A: &str = "a";

/// One team with this guarantee.
fn world(nodes: &[i64], guaranteed: i64) -> World {
    World::new(nodes, vec![team(A, None, guaranteed, None)])
}

fn submit(world: &mut World, queue: &str, priority: i32, gpus: i64) -> WorkloadId {
    world.submit(&A.into(), queue, priority, 1, gpus)
}

/// The workloads that these actions evict.
fn evicted(actions: &[Action]) -> Vec<WorkloadId> {
    let evicts = |action: &&Action| matches!(action, Action::Evict { .. });
    actions.iter().filter(evicts).map(|action| action.workload().clone()).collect()
}

/// The user of a workload wants it back in the queue.
fn requeue(world: &mut World, id: &WorkloadId) {
    let now = Time(world.now.0 + 1_000);
    world.now = now;
    world.edit(id, |workload| workload.requeue = Some(now));
    assert_eq!(evicted(&world.decide()), vec![id.clone()]);
}

#[test]
fn law_9_a_sibling_with_a_higher_priority_takes_over_what_is_being_cleared() {
    for guaranteed in [0, 4] {
        let mut world = world(&[4], guaranteed);
        let low = submit(&mut world, "train", -1, 4);
        world.decide();
        let middle = submit(&mut world, "train", 0, 4);
        assert_eq!(evicted(&world.decide()), vec![low.clone()]);
        let high = submit(&mut world, "train", 1, 4);
        assert!(evicted(&world.decide()).is_empty());
        world.end(&low, Phase::Queued);
        assert!(evicted(&world.decide()).is_empty());
        assert_eq!(world.nodes_of(&high), ["n0"], "with a guarantee of {guaranteed}");
        assert!(world.nodes_of(&middle).is_empty());
    }
}

#[test]
fn law_9_a_larger_sibling_takes_over_with_what_is_free_beside_it() {
    let mut world = World::new(&[4], vec![team(A, None, 0, None)]);
    let low = submit(&mut world, "train", -1, 3);
    world.decide();
    let middle = submit(&mut world, "train", 0, 3);
    assert_eq!(evicted(&world.decide()), vec![low.clone()]);
    let high = submit(&mut world, "train", 1, 4);
    assert!(evicted(&world.decide()).is_empty());
    world.end(&low, Phase::Queued);
    assert!(evicted(&world.decide()).is_empty());
    assert_eq!((world.nodes_of(&high), world.nodes_of(&middle)), (vec!["n0"], Vec::new()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Workloads of three priorities of one team, whatever its guarantee: the middle one is not started to be evicted for the highest,
    /// which asks for no more.
    #[test]
    fn law_8_no_preemptor_starts_to_be_evicted_for_a_sibling_that_waits(
        nodes in prop::collection::vec(2..5_i64, 1..3),
        guaranteed in 0..10_i64,
        lows in prop::collection::vec(1..4_i64, 1..6),
        middle in 1..5_i64,
        high in 1..5_i64,
        ended in 0..3_usize,
    ) {
        // What needs further victims as well does not take over where it borrows.
        let high = high.min(middle);
        let mut world = world(&nodes, guaranteed);
        for gpus in lows {
            submit(&mut world, "train", -1, gpus);
            world.settle_now();
        }
        let middle = submit(&mut world, "train", 0, middle);
        let mut victims = evicted(&world.decide());
        for _ in 0..ended {
            let Some(victim) = victims.pop() else { break };
            world.end(&victim, Phase::Queued);
            victims.extend(evicted(&world.decide()));
        }
        let waited = world.nodes_of(&middle).is_empty();
        let high = submit(&mut world, "train", 1, high);
        victims.extend(evicted(&world.decide()));
        while let Some(victim) = victims.pop() {
            world.end(&victim, Phase::Queued);
            let more = evicted(&world.decide());
            prop_assert!(!waited || !more.contains(&middle), "{}", world.log.join("\n"));
            victims.extend(more);
        }
        let fits = nodes.iter().any(|gpus| *gpus >= world.items[&high].total());
        prop_assert_eq!(!world.nodes_of(&high).is_empty(), fits, "{}", world.log.join("\n"));
    }

    /// What a requeued workload leaves is its own again: nothing of its team that stands behind it starts there, not even while
    /// it ends, and work that is never preempted stays within the guarantee all the while.
    #[test]
    fn law_4_what_ends_returns_before_what_stands_behind_it(
        nodes in prop::collection::vec(1..5_i64, 1..4),
        fixed in any::<bool>(),
        guaranteed in 1..10_i64,
        sizes in prop::collection::vec(1..4_i64, 2..7),
        which in any::<prop::sample::Index>(),
        later in 1..4_i64,
    ) {
        let queue = if fixed { "fixed" } else { "train" };
        let mut world = world(&nodes, guaranteed);
        let mut running = Vec::new();
        for gpus in sizes {
            let id = submit(&mut world, queue, 0, gpus);
            world.settle_now();
            if world.nodes_of(&id).is_empty() {
                world.delete(&id);
            } else {
                running.push(id);
            }
        }
        prop_assume!(!running.is_empty());
        let id = which.get(&running).clone();
        // A larger one may have others moved to what is left.
        let later = later.min(world.items[&id].total());
        requeue(&mut world, &id);
        let behind = submit(&mut world, queue, 0, later);
        world.decide();
        let held = |world: &World| -> i64 {
            let holds = |job: &&super::world::Job| !world.nodes_of(&job.workload.id).is_empty() || job.workload.id == id;
            world.items.values().filter(holds).map(super::world::Job::total).sum()
        };
        prop_assert!(!fixed || held(&world) <= guaranteed, "{}", world.log.join("\n"));
        world.end(&id, Phase::Queued);
        world.settle_now();
        let started = !world.nodes_of(&behind).is_empty();
        prop_assert!(!world.nodes_of(&id).is_empty(), "it returns; {behind} started: {started}\n{}", world.log.join("\n"));
    }
}
