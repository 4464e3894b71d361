//! Laws 4 and 6 where guarantees are not lent in full.

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
