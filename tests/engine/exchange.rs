//! Laws 2, 4 and 6 where teams below one parent share what it borrows, and where guarantees are not lent in full.

use std::collections::BTreeSet;

use sluice_engine::types::{FairShareWindow, Name, Queue, Quota, Reason, Team, Time, WorkloadId};

use super::world::{Phase, World, gpus, team};

/// A team that lends nothing of its guarantee.
fn keeps_all(of: Team) -> Team {
    let keep = |(pool, quota): (Name, Quota)| (pool, Quota { lendable: gpus(0), ..quota });
    Team { quotas: of.quotas.into_iter().map(keep).collect(), ..of }
}

/// A cluster of one node. Borrowers that run are safe from fair shares, so that only guarantees preempt.
pub fn cluster(gpus: i64, teams: Vec<Team>) -> World {
    let settled = |of: Team| {
        let queues = of.queues.into_iter();
        let queues = queues.map(|queue| Queue { fair_share_window: FairShareWindow::Never, ..queue });
        Team { queues: queues.collect(), ..of }
    };
    World::new(&[gpus], teams.into_iter().map(settled).collect())
}

/// Submits a job of one pod a second later, and carries out what follows at once.
fn job(world: &mut World, team: &str, gpus: i64) -> WorkloadId {
    world.now = Time(world.now.0 + 1_000);
    let id = world.submit(&team.into(), "train", 0, 1, gpus);
    world.settle_now();
    id
}

pub fn runs(world: &World, id: &WorkloadId) -> bool {
    matches!(world.items[id].phase, Phase::Running(_))
}

fn evicted(world: &World, preemptor: &WorkloadId) -> BTreeSet<WorkloadId> {
    world.evicted_for.get(preemptor).cloned().unwrap_or_default()
}

#[test]
fn law_6_a_team_that_uses_its_guarantee_with_a_large_workload_keeps_no_more_of_it_free() {
    let mut world = cluster(7, vec![keeps_all(team("c", None, 1, None)), team("d", None, 2, None)]);
    let big = job(&mut world, "c", 4);
    let held = job(&mut world, "d", 2);
    let z = job(&mut world, "d", 1);
    assert!(runs(&world, &z), "{:?}", world.reason(&z));
    assert!(runs(&world, &big) && runs(&world, &held));
    // What is kept free is kept again once the large workload has ended.
    world.end(&big, Phase::Finished);
    world.settle_now();
    let more = [job(&mut world, "d", 3), job(&mut world, "d", 1)];
    assert_eq!(more.each_ref().map(|id| runs(&world, id)), [true, false]);
    assert_eq!(world.reason(&more[1]).1, Reason::LendingLimit);
}

#[test]
fn law_4_no_gang_is_evicted_for_a_sibling_that_fits_the_free_capacity() {
    let teams = vec![
        team("p", None, 2, None),
        keeps_all(team("c", Some("p"), 1, None)),
        team("d", Some("p"), 1, None),
    ];
    let mut world = cluster(3, teams);
    let big = job(&mut world, "c", 2);
    let began = world.log.len();
    let z = job(&mut world, "d", 1);
    assert!(runs(&world, &z) && runs(&world, &big));
    assert_eq!(world.log.len() - began, 1, "one start and no eviction: {:?}", &world.log[began..]);
}

/// Parent p with a sibling that borrows (a) and an owner (b), and an idle team that lends (c).
fn siblings(guaranteed: i64) -> Vec<Team> {
    vec![
        team("p", None, guaranteed, None),
        team("a", Some("p"), 0, None),
        team("b", Some("p"), guaranteed, None),
        team("c", None, guaranteed, None),
    ]
}

#[test]
fn law_4_an_exchange_between_siblings_takes_no_more_than_free_capacity_lacks() {
    // GPUs, the guarantee of p, how many jobs of a run, how large each is, the size of b's job, and how many go.
    for (all, guaranteed, borrowers, each, asked, victims) in
        [(4, 2, 3, 1, 2, 1), (8, 4, 3, 2, 3, 1), (8, 4, 7, 1, 2, 1), (8, 4, 8, 1, 3, 3), (8, 4, 6, 1, 4, 2)]
    {
        let mut world = cluster(all, siblings(guaranteed));
        let ids: Vec<WorkloadId> = (0..borrowers).map(|_| job(&mut world, "a", each)).collect();
        let began = world.log.len();
        let z = job(&mut world, "b", asked);
        let case = format!("{asked} of {all}: {:?}", &world.log[began..]);
        assert!(runs(&world, &z), "{case}");
        assert_eq!(evicted(&world, &z).len(), victims, "{case}");
        assert_eq!(ids.iter().filter(|id| runs(&world, id)).count(), ids.len() - victims, "{case}");
        assert_eq!(world.log.len() - began, victims + 1, "no victim starts again: {case}");
    }
}

#[test]
fn law_5_what_a_parent_borrows_in_an_exchange_is_free_and_lent() {
    // Free capacity that c keeps for itself is no part of it.
    let keeps = [siblings(2), vec![keeps_all(team("k", None, 1, None))]].concat();
    let mut world = cluster(4, keeps);
    let borrowers = [(); 3].map(|()| job(&mut world, "a", 1));
    let z = job(&mut world, "b", 2);
    assert_eq!(evicted(&world, &z).len(), 2, "{:?}", world.log);
    assert_eq!(borrowers.iter().filter(|id| runs(&world, id)).count(), 1);
    // Nor is the place of a borrower that is not below p, although it has started last.
    let others = [siblings(2), vec![team("e", None, 0, None)]].concat();
    let mut world = cluster(4, others);
    let below = [(); 2].map(|()| job(&mut world, "a", 1));
    let beside = [(); 2].map(|()| job(&mut world, "e", 1));
    let z = job(&mut world, "b", 2);
    assert_eq!(evicted(&world, &z), BTreeSet::from(below), "{:?}", world.log);
    assert!(beside.iter().all(|id| runs(&world, id)));
}

#[test]
fn law_4_a_gang_takes_the_free_capacity_before_its_siblings_places_as_its_pods_would() {
    // The parent promises its teams more than it has: a uses 1 beyond its guarantee, and b asks for 2.
    for pods in [2, 1] {
        let teams =
            vec![team("p", None, 2, None), team("a", Some("p"), 1, None), team("b", Some("p"), 2, None)];
        let mut world = cluster(3, teams);
        let held = [(); 2].map(|()| job(&mut world, "a", 1));
        for _ in 0..pods {
            job(&mut world, "b", 2 / pods);
        }
        let running = held.iter().filter(|id| runs(&world, id)).count();
        assert_eq!((running, world.used(&"b".into())), (1, 2), "{:?}", world.log);
    }
}
