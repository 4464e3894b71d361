//! Borrowers that search for victims again and again: in a second only some of them do, and each has its turn.

use sluice_engine::types::{Event, Team, Time};

use super::world::{World, team};

/// More teams than search again in one second.
const TEAMS: usize = 130;
const MOST_IN_A_SECOND: u64 = 100;

/// Each team borrows one GPU and waits for another. The largest borrower has two, and no set of victims makes that fairer. A second
/// node is full.
fn equals() -> World {
    let names: Vec<String> = (0..TEAMS).map(|at| format!("t{at:03}")).collect();
    let teams = names.iter().map(String::as_str).chain(["large"]);
    let teams = teams.map(|name| team(name, None, 0, None)).collect();
    let mut world = World::new(&[i64::try_from(TEAMS).expect("few") + 2, 1], teams);
    world.add_unmanaged_pod(&"n1".into(), 1);
    for name in names.iter().map(String::as_str).chain(["large", "large"]) {
        world.run_on("n0", name, 0, 1);
    }
    world.rebuild();
    for name in &names {
        world.submit(&name.as_str().into(), "train", 0, 1, 1);
    }
    world.decide();
    world
}

/// The full node leaves and comes back, after which any workload may start or preempt as far as is known.
fn change_something(world: &mut World) {
    world.cordon(&"n1".into(), false);
    world.decide();
    world.cordon(&"n1".into(), true);
    world.decide();
}

/// Decides whatever time alone brings in the next two seconds.
fn pass_two_seconds(world: &mut World) {
    let end = Time(world.now.0 + 2_000);
    while let Some(next) = world.engine.next_deadline().filter(|next| *next <= end) {
        world.now = next.max(world.now);
        world.decide();
    }
    world.now = end;
}

fn searches(world: &World) -> u64 {
    world.engine.effort().searches
}

#[test]
fn borrowers_search_again_a_hundred_times_a_second_however_often_something_changes() {
    let mut world = equals();
    world.now = Time(world.now.0 + 10_000);
    let before = searches(&world);
    for _ in 0..30 {
        world.now = Time(world.now.0 + 30);
        change_something(&mut world);
    }
    let searched = searches(&world) - before;
    assert_eq!(searched, MOST_IN_A_SECOND, "as many as may, in 900 ms");
    // The others have their turn before those search once more, and then decisions come to rest.
    let before = searches(&world);
    pass_two_seconds(&mut world);
    assert_eq!(searches(&world) - before, TEAMS as u64);
    let before = searches(&world);
    pass_two_seconds(&mut world);
    assert_eq!(searches(&world), before);
}

#[test]
fn law_5_a_search_that_was_put_off_finds_its_victims_in_its_turn() {
    let mut world = equals();
    world.now = Time(world.now.0 + 10_000);
    let before = searches(&world);
    for _ in 0..10 {
        change_something(&mut world);
    }
    assert_eq!(searches(&world) - before, MOST_IN_A_SECOND);
    let greedy = Team { weight: 0, ..team("large", None, 0, None) };
    world.teams.insert(greedy.name.clone(), greedy.clone());
    world.engine.apply(Event::TeamApplied(greedy), world.now);
    let before = searches(&world);
    assert!(world.decide().is_empty(), "no borrower may search again in this second");
    assert_eq!(searches(&world), before);
    pass_two_seconds(&mut world);
    let evicted = world.log.iter().filter(|line| line.starts_with("Evict large/"));
    assert_eq!(evicted.filter(|line| line.ends_with("FairShare")).count(), 2, "{:?}", world.log);
}
