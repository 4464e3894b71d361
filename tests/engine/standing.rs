//! Laws 4, 7 and 14 for a preemptor that is within guarantee only without its victims, and for one that a reservation of its own
//! team keeps waiting.

use std::collections::BTreeSet;
use std::time::Duration;

use sluice_engine::types::{Reason, Time, WorkloadId};

use super::exchange::{cluster, runs};
use super::world::{World, team};

/// Submits a job of one pod at a time, in seconds, with a time limit or without, and carries out what follows at once.
fn job(
    world: &mut World,
    (team, at): (&str, i64),
    priority: i32,
    gpus: i64,
    limit: Option<u64>,
) -> WorkloadId {
    world.now = Time(at * 1_000);
    let id = world.submit(&team.into(), "train", priority, 1, gpus);
    world.edit(&id, |workload| workload.time_limit = limit.map(Duration::from_secs));
    world.settle_now();
    id
}

#[test]
fn law_7_a_borrowers_reservation_costs_no_victim_of_a_preemptor_within_guarantee() {
    for (reserved, queue) in [(true, "train"), (true, "fixed"), (false, "train")] {
        let mut world = cluster(4, vec![team("a", None, 3, None), team("c", None, 0, None)]);
        let [first, second] = [0, 0].map(|at| job(&mut world, ("c", at), 0, 1, None));
        let t = job(&mut world, ("a", 0), 0, 2, Some(200));
        if reserved {
            job(&mut world, ("c", 1), 0, 1, None);
            assert_eq!(world.engine.reservations().len(), 1, "on the end of t");
        }
        world.now = Time(30_000);
        let n = world.submit(&"a".into(), queue, 10, 1, 3);
        world.settle_now();
        let case = format!("{queue}, reserved: {reserved}");
        assert_eq!(world.evicted_for.get(&n), Some(&BTreeSet::from([t, second])), "{case}");
        assert!(runs(&world, &n) && runs(&world, &first), "{case}");
    }
}

#[test]
fn law_7_a_borrowers_reservation_of_quota_keeps_no_preemptor_within_guarantee_waiting() {
    let teams =
        vec![team("p", None, 3, Some(4)), team("a", Some("p"), 3, None), team("c", Some("p"), 0, None)];
    let mut world = cluster(6, teams);
    let [first, second] = [0, 0].map(|at| job(&mut world, ("c", at), 0, 1, None));
    let t = job(&mut world, ("a", 0), 0, 2, Some(200));
    let w = job(&mut world, ("c", 1), 0, 1, None);
    assert_eq!(world.engine.reservations()[0].owner, w, "of the limit of p");
    let n = job(&mut world, ("a", 30), 10, 3, None);
    assert_eq!(world.evicted_for.get(&n), Some(&BTreeSet::from([t, second])));
    assert!(runs(&world, &n) && runs(&world, &first));
}

#[test]
fn law_4_no_sibling_is_evicted_where_only_a_borrowers_reservation_is_in_the_way() {
    let mut world = World::new(&[1, 4], vec![team("c", None, 3, None), team("b", None, 0, None)]);
    let sibling = job(&mut world, ("c", 0), 0, 1, None);
    job(&mut world, ("b", 0), 0, 1, Some(200));
    let big = job(&mut world, ("b", 1), 0, 4, None);
    assert_eq!(world.engine.reservations()[0].owner, big, "of the node on which 3 GPUs are free");
    let n = job(&mut world, ("c", 30), 10, 3, None);
    assert_eq!(world.reason(&n).1, Reason::Reserved);
    assert!(runs(&world, &sibling) && world.evicted_for.is_empty());
}

#[test]
fn law_14_a_preemptor_that_a_siblings_reservation_keeps_waiting_names_it() {
    let mut world = cluster(4, vec![team("a", None, 3, None), team("c", None, 0, None)]);
    let x = job(&mut world, ("c", 0), 0, 2, None);
    let big = job(&mut world, ("a", 1), 5, 4, None);
    world.now = Time(700_000);
    world.settle_now();
    assert_eq!(world.engine.reservations().len(), 1, "of big");
    let z = job(&mut world, ("a", 1_800), 0, 3, None);
    let verdict = world.engine.verdict(&z).expect("a verdict");
    assert_eq!(verdict.reason, Reason::Reserved, "{}", verdict.message);
    let name = &world.items[&big].workload.name;
    assert!(verdict.message.contains(&**name), "{}", verdict.message);
    assert!(runs(&world, &x));
    // Without it z has its victim.
    world.delete(&big);
    world.settle_now();
    assert!(runs(&world, &z) && !runs(&world, &x));
}
