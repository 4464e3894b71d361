//! Law 7: room that is reserved for no predictable time is used by those that end in time, as runs like them did.

use std::time::Duration;

use sluice_engine::types::{Reason, State, WorkloadId};

use super::world::{Phase, World, team};

fn pass(world: &mut World, seconds: u64) {
    world.now = world.now.after(Duration::from_secs(seconds));
    world.plan();
}

/// A workload of one pod runs for so many seconds.
fn run(world: &mut World, gpus: i64, seconds: u64) {
    let id = start(world, "a", gpus);
    pass(world, seconds);
    world.end(&id, Phase::Finished);
    world.settle_now();
}

fn start(world: &mut World, team: &str, gpus: i64) -> WorkloadId {
    let id = submit(world, team, gpus);
    assert!(matches!(world.items[&id].phase, Phase::Running(_)), "{:?}", world.engine.verdict(&id));
    id
}

fn submit(world: &mut World, team: &str, gpus: i64) -> WorkloadId {
    let id = world.submit(&team.into(), "train", 0, 1, gpus);
    world.settle_now();
    id
}

/// One node of four GPUs. Runs with one GPU took a minute and those with three 1,000 to 4,000 s, so that no end can be
/// predicted. One with three GPUs, which is returned, runs for 700 s, and one with all four has had a reservation since 100 s.
fn reserved() -> (World, WorkloadId) {
    let mut world = World::new(&[4], vec![team("a", None, 0, None), team("b", None, 0, None)]);
    for _ in 0..4 {
        run(&mut world, 1, 60);
    }
    for seconds in [1_000, 2_000, 3_000, 4_000] {
        run(&mut world, 3, seconds);
    }
    let in_the_way = start(&mut world, "a", 3);
    let owner = submit(&mut world, "a", 4);
    pass(&mut world, 700);
    world.settle_now();
    let reservations = world.engine.reservations();
    assert_eq!(reservations.len(), 1, "{:?}", world.engine.verdict(&owner));
    assert_eq!((&reservations[0].owner, reservations[0].start), (&owner, None));
    (world, in_the_way)
}

#[test]
fn a_workload_that_ends_in_time_as_runs_like_it_did_uses_reserved_room() {
    start(&mut reserved().0, "a", 1);
}

#[test]
fn a_workload_of_which_nothing_is_known_leaves_reserved_room_free() {
    let (mut world, _) = reserved();
    let id = submit(&mut world, "b", 1);
    let verdict = world.engine.verdict(&id).expect("a verdict");
    assert_eq!((verdict.state, verdict.reason), (State::Pending, Reason::Reserved));
}

#[test]
fn no_workload_uses_reserved_room_once_nothing_is_known_of_those_in_the_way() {
    let (mut world, _) = reserved();
    // The one in the way has run for 1,950 s, and too few runs like it took longer to expect its end.
    pass(&mut world, 1_250);
    let id = submit(&mut world, "a", 1);
    let verdict = world.engine.verdict(&id).expect("a verdict");
    assert_eq!((verdict.state, verdict.reason), (State::Pending, Reason::Reserved));
}

/// It has run for longer than all of its size did, so its end is expected when large runs end, and small ones end before: each of
/// them would let in the next.
#[test]
fn no_workload_uses_reserved_room_because_of_one_that_did_so_before() {
    let (mut world, in_the_way) = reserved();
    start(&mut world, "a", 1);
    pass(&mut world, 70);
    world.end(&in_the_way, Phase::Finished);
    world.settle_now();
    let id = submit(&mut world, "a", 1);
    let verdict = world.engine.verdict(&id).expect("a verdict");
    assert_eq!((verdict.state, verdict.reason), (State::Pending, Reason::Reserved));
}

/// The owner needs four of eight GPUs and waits for a workload of three, not for a long one of two. Once that of three has ended,
/// small ones hold what the owner needs. They end soon; the long one is no reason to let in more of them.
#[test]
fn no_workload_uses_reserved_room_because_of_one_that_leaves_enough() {
    let mut world = World::new(&[8], vec![team("a", None, 0, None), team("b", None, 0, None)]);
    for _ in 0..4 {
        run(&mut world, 1, 60);
    }
    for seconds in [1_000, 2_000, 3_000, 4_000] {
        run(&mut world, 3, seconds);
        run(&mut world, 2, 20 * seconds);
    }
    start(&mut world, "a", 2);
    let in_the_way = start(&mut world, "a", 3);
    let owner = submit(&mut world, "a", 4);
    pass(&mut world, 700);
    assert_eq!(world.engine.reservations()[0].start, None);
    let fillers = [(); 3].map(|()| start(&mut world, "a", 1));
    world.end(&in_the_way, Phase::Finished);
    world.settle_now();
    let next = submit(&mut world, "a", 1);
    let verdict = world.engine.verdict(&next).expect("a verdict");
    assert_eq!((verdict.state, verdict.reason), (State::Pending, Reason::Reserved));
    world.end(&fillers[0], Phase::Finished);
    world.settle_now();
    assert!(matches!(world.items[&owner].phase, Phase::Running(_)), "{:?}", world.engine.verdict(&owner));
}

#[test]
fn law_11_room_is_reserved_as_long_as_its_start_is_foreseen_and_then_from_its_due_time_on() {
    let mut world = World::new(&[4], vec![team("a", None, 0, None), team("b", None, 0, None)]);
    for _ in 0..32 {
        run(&mut world, 3, 60);
    }
    start(&mut world, "a", 3);
    let owner = submit(&mut world, "a", 4);
    let reserved = |world: &World| -> Vec<(WorkloadId, bool)> {
        let all = world.engine.reservations().into_iter();
        all.map(|reservation| (reservation.owner, reservation.start.is_some())).collect()
    };
    assert_eq!(reserved(&world), [(owner.clone(), true)]);
    // It runs for longer than any like it did, and the owner has not waited for its queue's ten minutes.
    pass(&mut world, 200);
    assert_eq!(
        reserved(&world),
        [],
        "a replica that takes over now cannot know that there was a reservation"
    );
    pass(&mut world, 401);
    assert_eq!(reserved(&world), [(owner, false)]);
}
