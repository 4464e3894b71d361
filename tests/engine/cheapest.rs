//! Law 4 in worlds in which the cheapest set is not the one that it seems to be.

use std::collections::BTreeSet;

use sluice_engine::types::{Time, WorkloadId};

use super::eviction_cost::no_set_costs_less;
use super::world::{World, team};

/// Submits a workload, and carries out every decision before the next.
fn run(world: &mut World, team: &str, priority: i32, pods: u32, gpus: i64) -> WorkloadId {
    let id = world.submit(&team.into(), "train", priority, pods, gpus);
    world.settle();
    id
}

/// The victims of a workload, of which no set costs less.
fn victims(world: &mut World, preemptor: &WorkloadId) -> BTreeSet<WorkloadId> {
    no_set_costs_less(world, preemptor).expect("no set costs less");
    world.evicted_for.get(preemptor).cloned().unwrap_or_default()
}

#[test]
fn a_victim_would_take_back_what_its_sibling_borrows_from_their_parent() {
    let top = team("top", None, 4, None);
    let mut world = World::new(
        &[6, 4, 3],
        vec![top, team("a", Some("top"), 7, None), team("b", Some("top"), 4, None), team("c", None, 3, None)],
    );
    run(&mut world, "b", 0, 1, 2);
    run(&mut world, "a", 1, 3, 1);
    let large = run(&mut world, "a", 0, 3, 2);
    // The workload of b has fewer pods, but queued again it would evict the large one: its parent would use no more than before.
    let preemptor = world.submit(&"c".into(), "train", 0, 3, 1);
    assert_eq!(victims(&mut world, &preemptor), BTreeSet::from([large]));
}

#[test]
fn of_equal_victims_the_one_that_may_leaves_its_team_below_the_guarantee() {
    let mut world = World::new(
        &[7, 8],
        vec![team("a", None, 4, None), team("b", None, 2, None), team("c", None, 4, None)],
    );
    run(&mut world, "c", 0, 1, 3);
    let high = run(&mut world, "c", 1, 2, 1);
    run(&mut world, "b", 0, 2, 1);
    let low = run(&mut world, "c", 0, 1, 2);
    run(&mut world, "a", 0, 3, 2);
    world.now = Time(1_000);
    // Its guarantee would hold the high one again once lower priorities of its team are gone, so that one must go while the
    // team still borrows all of it.
    let preemptor = world.submit(&"a".into(), "train", 0, 2, 2);
    assert_eq!(victims(&mut world, &preemptor), BTreeSet::from([high, low]));
}
