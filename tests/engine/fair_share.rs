//! Laws 5 and 8: the order of starts between teams agrees with preemption for fair shares, so no workload
//! starts only to be evicted at once.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use sluice_engine::types::Action;
use sluice_engine::types::amount::Amount;
use sluice_engine::types::{Event, Name, PastUsage, Team, Time, WorkloadId};

use super::ops::ids;
use super::world::{Phase, World, team};

/// A team's guarantee and weight.
type Terms = (i64, u32);

#[derive(Clone, Debug)]
enum Step {
    /// A team, and whether its job may not be preempted.
    Submit(usize, bool),
    Delete(usize),
}

fn world_of(gpus: i64, teams: &[Terms]) -> World {
    let named = |(index, (guaranteed, weight)): (usize, &Terms)| Team {
        weight: *weight,
        ..team(&format!("t{index}"), None, *guaranteed, None)
    };
    World::new(&[gpus], teams.iter().enumerate().map(named).collect())
}

/// Carries out every decision at the present time. Fails if a workload starts and is evicted in the course.
fn settle_without_vain_starts(world: &mut World) -> Result<(), TestCaseError> {
    let mut started: BTreeSet<WorkloadId> = BTreeSet::new();
    loop {
        let actions = world.plan();
        if actions.is_empty() && !world.engine.has_more() {
            return Ok(());
        }
        for action in &actions {
            match action {
                Action::Admit { workload, .. } => {
                    started.insert(workload.clone());
                }
                Action::Evict { workload, preemptor, .. } => prop_assert!(
                    !started.contains(workload),
                    "{workload} started and is evicted for {preemptor:?}:\n{}",
                    world.log.join("\n")
                ),
                other => panic!("not expected here: {other:?}"),
            }
        }
        while !world.in_flight.is_empty() {
            world.deliver(0, true);
        }
        let stopping = world.items.values().filter(|job| matches!(job.phase, Phase::Stopping(..)));
        let stopping: Vec<WorkloadId> = stopping.map(|job| job.workload.id.clone()).collect();
        for id in stopping {
            world.end(&id, Phase::Queued);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn law_8_no_workload_starts_only_to_be_evicted_for_one_of_the_same_size(
        gpus in 1..9_i64,
        size in 1..3_i64,
        teams in prop::collection::vec((0..4_i64, 0..4_u32), 2..5),
        waiting in prop::collection::vec((0..5_usize, prop::bool::weighted(0.2)), 2..25),
        steps in prop::collection::vec(prop_oneof![
            (0..5_usize, prop::bool::weighted(0.2)).prop_map(|(team, fixed)| Step::Submit(team, fixed)),
            (0..9_usize).prop_map(Step::Delete)
        ], 0..20),
    ) {
        let mut world = world_of(gpus, &teams);
        let submit = |world: &mut World, team: usize, fixed: bool| {
            let name: Name = format!("t{}", team % teams.len()).into();
            world.submit(&name, if fixed { "fixed" } else { "train" }, 0, 1, size);
        };
        for (team, fixed) in &waiting {
            submit(&mut world, *team, *fixed);
        }
        settle_without_vain_starts(&mut world)?;
        for step in &steps {
            world.now = Time(world.now.0 + 1_000);
            match step {
                Step::Submit(team, fixed) => submit(&mut world, *team, *fixed),
                Step::Delete(n) => {
                    let running = ids(world.running());
                    if let Some(id) = running.get(n % running.len().max(1)) {
                        // A deletion teaches no run time, so no end is predicted and nothing is reserved.
                        world.delete(id);
                    }
                }
            }
            settle_without_vain_starts(&mut world)?;
        }
    }
}

#[test]
fn law_8_a_workload_that_has_just_started_counts_as_a_follow_up_preemptor() {
    // Otherwise c's six GPUs, b's four and c's three would be evicted for each other every minute.
    let teams = vec![team("b", None, 2, None), team("c", None, 2, None)];
    let mut world = World::new(&[3, 6, 6], teams);
    let jobs =
        [("b", "slow", 0, 1, 3), ("b", "slow", 0, 2, 2), ("c", "slow", -1, 1, 3), ("b", "train", 0, 1, 2)];
    for (team, queue, priority, pods, gpus) in jobs {
        world.submit(&team.into(), queue, priority, pods, gpus);
        world.settle();
    }
    world.submit(&"c".into(), "train", 0, 3, 2);
    world.settle();
    let evictions: Vec<&String> = world.log.iter().filter(|line| line.starts_with("Evict")).collect();
    assert_eq!(evictions, ["Evict c/w3 for c/w5 Preempted"]);
}

/// The world after these jobs, submitted one after the other: team, queue, priority, pods and GPUs per pod.
/// All but the last are settled; the last comes a second later.
fn after(mut world: World, jobs: &[(&str, &str, i32, u32, i64)]) -> World {
    for (place, (team, queue, priority, pods, gpus)) in jobs.iter().enumerate() {
        if place + 1 == jobs.len() {
            world.now = Time(world.now.0 + 1_000);
        }
        world.submit(&(*team).into(), queue, *priority, *pods, *gpus);
        if place + 1 < jobs.len() {
            world.settle();
        }
    }
    world.log.clear();
    world
}

#[test]
fn law_8_no_victim_is_evicted_twice_for_a_preemptor_without_an_event() {
    // Capacity freed by a's victims is reserved for a's next workload before c's next one is served. The
    // shares end less fair than predicted, so c's first workload would evict the same two again.
    let teams = vec![team("a", None, 0, None), team("b", None, 2, None), team("c", None, 0, Some(9))];
    let jobs = [
        ("b", "train", 0, 1, 1),
        ("c", "train", 0, 3, 3),
        ("a", "train", 0, 2, 2),
        ("a", "train", 0, 1, 4),
        ("c", "train", 0, 3, 2),
        ("a", "train", 1, 1, 2),
    ];
    let mut world = after(World::new(&[6, 7, 2], teams), &jobs);
    world.settle();
    let mut seen = BTreeSet::new();
    let twice: Vec<&String> =
        world.log.iter().filter(|line| line.starts_with("Evict") && !seen.insert(*line)).collect();
    assert!(twice.is_empty(), "{:#?}", world.log);
}

/// What each team borrowed in the past, as a leader writes it.
fn past_usage(world: &World) -> Vec<PastUsage> {
    let views = world.engine.teams().into_iter();
    let usage = views.map(|view| PastUsage {
        team: view.team,
        pools: [(view.pool, view.past)].into(),
        at: world.now,
    });
    usage.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Law 11: a new engine that reads what was written serves the teams in the same order as the old one.
    #[test]
    fn the_order_of_teams_is_the_same_after_past_usage_was_read_back(
        steps in prop::collection::vec((0_usize..3, 0_u64..900), 1..12),
        later in 0_u64..1_200,
        others in prop::collection::vec(0_u64..1_200, 0..8),
    ) {
        let mut world = world_of(2, &[(0, 1), (0, 1), (0, 2)]);
        world.settings.usage_half_life = Some(Duration::from_secs(600));
        world.rebuild();
        for (team, pause) in steps {
            let id = world.submit(&format!("t{team}").as_str().into(), "train", 0, 1, 1);
            world.settle_now();
            world.now = world.now.after(Duration::from_secs(pause));
            if matches!(world.items[&id].phase, Phase::Running(_)) && pause % 2 == 0 {
                world.end(&id, Phase::Finished);
            }
        }
        for id in world.items.keys().cloned().collect::<Vec<_>>() {
            if matches!(world.items[&id].phase, Phase::Queued) {
                world.delete(&id);
            } else if matches!(world.items[&id].phase, Phase::Running(_)) {
                world.end(&id, Phase::Finished);
            }
        }
        world.plan();
        let written = past_usage(&world);
        let mut old = world.engine.clone();
        world.rebuild();
        // The old one reads its own write at once and makes plans in between, the new one reads it later.
        for past in written.clone() {
            old.apply(Event::PastUsage(past), world.now);
        }
        let mut others: Vec<u64> = others.into_iter().filter(|other| *other < later).collect();
        others.sort_unstable();
        for other in others {
            old.plan(world.now.after(Duration::from_secs(other)));
        }
        world.now = world.now.after(Duration::from_secs(later));
        for past in written {
            world.engine.apply(Event::PastUsage(past), world.now);
        }
        for team in ["t0", "t1", "t2"] {
            world.submit(&team.into(), "train", 0, 1, 1);
        }
        for job in world.items.values().filter(|job| matches!(job.phase, Phase::Queued)) {
            old.apply(Event::workload(job.workload.clone()), world.now);
        }
        prop_assert_eq!(world.engine.plan(world.now).actions, old.plan(world.now).actions);
    }
}

#[test]
fn past_usage_outlives_a_change_of_the_team_and_many_short_steps() {
    let mut world = world_of(4, &[(0, 1), (0, 1)]);
    world.settings.usage_half_life = Some(Duration::from_secs(600));
    world.rebuild();
    let id = world.submit(&"t0".into(), "train", 0, 4, 1);
    world.settle_now();
    // Steps in which less than a thousandth of a GPU is counted.
    for _ in 0..60_000 {
        world.now = world.now.after(Duration::from_millis(10));
        world.engine.plan(world.now);
    }
    world.end(&id, Phase::Finished);
    let gpus =
        |world: &World| past_usage(world)[0].pools.values().flat_map(|usage| usage.values()).next().copied();
    let counted = gpus(&world).expect("it has borrowed");
    assert!(counted > Amount::milli(1_500), "{counted} of 4 GPUs after one half-life");
    world.engine.apply(Event::TeamApplied(Team { weight: 3, ..team("t0", None, 0, None) }), world.now);
    assert_eq!(gpus(&world), Some(counted), "an edit of the team forgets nothing");
}

#[test]
fn law_2_what_is_larger_than_a_guarantee_goes_first_also_where_a_smaller_sibling_would_make_shares_fairer() {
    let teams = vec![team("a", None, 3, None), team("c", None, 6, Some(6))];
    let mut world = World::new(&[3, 6, 7], teams);
    world.submit(&"a".into(), "train", 1, 1, 3);
    let own = world.submit(&"c".into(), "train", 0, 1, 1);
    world.submit(&"a".into(), "train", 1, 1, 2);
    let large = world.submit(&"a".into(), "train", 1, 2, 3);
    world.settle();
    // The limit holds it only without its sibling, and then its guarantee does too: it does not borrow.
    let preemptor = world.submit(&"c".into(), "train", 1, 2, 3);
    world.settle();
    assert_eq!(world.evicted_for.get(&preemptor), Some(&BTreeSet::from([own, large])), "{:?}", world.log);
}

/// The victims of the last of these jobs, submitted one after the other, and how many jobs were evicted in all.
fn victims(world: World, jobs: &[(&str, &str, i32, u32, i64)]) -> (Vec<String>, usize) {
    let mut world = after(world, jobs);
    world.settle_now();
    let last = WorkloadId(format!("{}/w{}", jobs[jobs.len() - 1].0, jobs.len()).into());
    let victims = world.evicted_for.get(&last).into_iter().flatten().map(ToString::to_string);
    (victims.collect(), world.log.iter().filter(|line| line.starts_with("Evict")).count())
}

#[test]
fn laws_4_and_5_what_is_never_preempted_takes_another_teams_borrower_where_shares_get_fairer() {
    let job = |team, priority| (team, "train", priority, 1, 1);
    let fixed = |gpus| ("t0", "fixed", 1, 1, gpus);
    let world = |gpus| world_of(gpus, &[(1, 1), (0, 1)]);
    // The sibling of lower priority would preempt one of the other team in turn.
    let three = [job("t0", 0), job("t1", 0), job("t1", 0), job("t1", 0), fixed(1)];
    assert_eq!(victims(world(4), &three), (vec!["t1/w4".into()], 1));
    // The same where no sibling may be preempted, and where none runs.
    let equal = [job("t0", 1), job("t1", 0), job("t1", 0), job("t1", 0), fixed(1)];
    assert_eq!(victims(world(4), &equal), (vec!["t1/w4".into()], 1));
    let nothing = [job("t1", 0), job("t1", 0), fixed(1)];
    assert_eq!(victims(world(2), &nothing), (vec!["t1/w2".into()], 1), "within guarantee");
    // With one GPU the other team borrows no more than the sibling would in its place.
    let one = [job("t0", 0), job("t1", 0), fixed(1)];
    assert_eq!(victims(world(2), &one), (vec!["t0/w1".into()], 1));
    assert_eq!(victims(world(2), &[job("t0", 1), job("t1", 0), fixed(1)]), (Vec::new(), 0));
    // What its guarantee does not hold beside other work that is never preempted takes nothing.
    let two = [("t0", "fixed", 1, 1, 1), job("t1", 0), job("t1", 0), job("t1", 0), fixed(1)];
    assert_eq!(victims(world(4), &two), (Vec::new(), 0));
    assert_eq!(victims(world(4), &[job("t0", 0), job("t1", 0), job("t1", 0), job("t1", 0), fixed(2)]).1, 0);
    // The minimum run time holds against it.
    let young = [job("t0", 0), ("t1", "slow", 0, 1, 3), fixed(1)];
    assert_eq!(victims(world(4), &young), (vec!["t0/w1".into()], 1));
}

#[test]
fn law_5_what_is_never_preempted_is_attempted_again_once_another_team_borrows_more() {
    let mut world = world_of(4, &[(1, 1), (3, 1)]);
    for (team, queue) in [("t0", "train"), ("t1", "train"), ("t1", "train"), ("t1", "train"), ("t0", "fixed")]
    {
        world.submit(&team.into(), queue, 0, 1, 1);
        world.settle_now();
    }
    assert!(world.evicted_for.is_empty(), "no team borrows: {:?}", world.log);
    world.engine.apply(Event::TeamApplied(team("t1", None, 0, None)), world.now);
    world.settle_now();
    assert_eq!(world.evicted_for.len(), 1, "{:?}", world.log);
    let fixed = WorkloadId("t0/w5".into());
    assert!(matches!(world.items[&fixed].phase, Phase::Running(_)), "{:?}", world.log);
}
