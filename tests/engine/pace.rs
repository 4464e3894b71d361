//! Borrowers that search for victims again and again: in a second only some of them do, and each has its turn.

use sluice_engine::types::amount::Amount;
use sluice_engine::types::{Event, Size, Team, Time};

use super::world::{World, gpus, team};

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
    // All are due after the last change, and then decisions come to rest.
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

/// Six teams borrow two GPUs each and wait for four, but the last in order for two; the largest borrower has eight on small nodes. Two
/// of the six search again in a second, and something changes in each. Only the last can have a place of the largest, once that has
/// run for its minimum run time.
#[test]
fn the_last_in_order_has_its_turn_although_something_changes_in_each_second() {
    const MINUTE: i64 = 60_000;
    let names: Vec<String> = (0..6).map(|at| format!("t{at}")).collect();
    let teams = names.iter().map(String::as_str).chain(["large"]);
    let teams = teams.map(|name| team(name, None, 0, None)).collect();
    let mut world = World::new(&[12, 1, 2, 2, 2, 2], teams);
    world.settings.searches_a_second = 2;
    world.add_unmanaged_pod(&"n1".into(), 1);
    for name in &names {
        world.run_on("n0", name, 0, 2);
    }
    for node in ["n2", "n3", "n4", "n5"] {
        let id = world.run_on(node, "large", 0, 2);
        world.edit(&id, |workload| workload.queue = Some("slow".into()));
    }
    world.rebuild();
    for name in &names {
        let last = name == "t5";
        if last {
            // It owns the reservation of its team, which every change wakes; the one behind it is woken for its turn only.
            world.submit(&"t5".into(), "train", 0, 1, 9);
        }
        let id = world.submit(&name.as_str().into(), "train", 0, 1, if last { 2 } else { 4 });
        // With another size in view no condition tells whether it can start, so every change lets it be attempted.
        let smaller = Size { share: Amount::milli(500), requests: gpus(3) };
        world.edit(&id, |workload| workload.sizes = if last { Vec::new() } else { vec![smaller] });
    }
    world.decide();
    while world.now.0 < MINUTE - 1_000 {
        world.now = Time(world.now.0 + 1_000);
        change_something(&mut world);
    }
    assert!(world.log.iter().all(|line| !line.starts_with("Evict")), "{:?}", world.log);
    for _ in 0..4 {
        world.now = Time(world.now.0 + 1_000);
        change_something(&mut world);
    }
    let by_last = |line: &&String| line.starts_with("Evict large/") && line.contains(" for t5/");
    assert!(world.log.iter().any(|line| by_last(&line)), "{:?}", world.log);
}

/// Without its victim a workload is within guarantee, so it never waits for a turn (law 2).
#[test]
fn law_2_what_is_within_guarantee_without_its_victims_waits_for_no_turn() {
    let mut world = World::new(&[2, 2], vec![team("a", None, 2, None), team("b", None, 0, None)]);
    world.settings.searches_a_second = 0;
    let low = world.run_on("n0", "a", 0, 2);
    world.rebuild();
    world.cordon(&"n0".into(), false);
    world.cordon(&"n1".into(), false);
    world.submit(&"a".into(), "train", 1, 1, 2);
    assert!(world.decide().is_empty(), "its node is closed");
    world.cordon(&"n0".into(), true);
    world.decide();
    assert!(world.log.iter().any(|line| line.starts_with(&format!("Evict {low}"))), "{:?}", world.log);
}
