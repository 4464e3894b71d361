//! Law 9 within a team, between users. With `fair_users` the user with the least usage is served first among
//! equal priorities; without it, the order is that of submission.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use proptest::prelude::*;
use sluice_engine::types::Action;
use sluice_engine::types::{Event, Name, Team, Time, WorkloadId};

use super::ops::ids;
use super::world::{Job, Phase, World, team};

fn cluster(gpus: i64, fair_users: bool) -> World {
    World::new(&[gpus], vec![Team { fair_users, ..team("t", None, gpus, None) }])
}

/// Submits a job that is not preemptible.
fn submit(world: &mut World, user: &str, priority: i32, gpus: i64) -> WorkloadId {
    let id = world.submit(&"t".into(), "fixed", priority, 1, gpus);
    let job = world.items.get_mut(&id).expect("the submitted job");
    job.workload.user = Some(user.into());
    world.engine.apply(Event::workload(job.workload.clone()), world.now);
    id
}

fn user_of(job: &Job) -> Name {
    job.workload.user.clone().expect("every job here has a user")
}

/// The usage of each user in GPUs.
fn held(world: &World) -> BTreeMap<Name, i64> {
    let mut held = BTreeMap::new();
    for (job, _) in world.admitted() {
        *held.entry(user_of(job)).or_default() += job.total();
    }
    held
}

/// The next job to serve at that usage.
fn first<'a>(waiting: &[&'a Job], held: &BTreeMap<Name, i64>, fair: bool) -> Option<&'a WorkloadId> {
    let rank = |job: &Job| {
        let holds = if fair { held.get(&user_of(job)).copied().unwrap_or(0) } else { 0 };
        let number: u32 = job.workload.name[1..].parse().expect("names are w and a number");
        (Reverse(job.workload.priority), holds, job.workload.submitted, number)
    };
    waiting.iter().min_by_key(|job| rank(job)).map(|job| &job.workload.id)
}

/// An event in the cluster. A number selects among the running jobs.
#[derive(Clone, Debug)]
enum Step {
    Submit { user: usize, priority: i32, pause: i64 },
    Finish(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3_usize, 0..2_i32, 0..3_i64)
            .prop_map(|(user, priority, pause)| Step::Submit { user, priority, pause }),
        2 => (0..8_usize).prop_map(Step::Finish),
    ]
}

const USERS: [&str; 3] = ["ann", "bob", "cem"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn law_9_the_user_with_the_least_usage_is_served_first(
        gpus in 1..6_i64, fair in any::<bool>(), steps in prop::collection::vec(step(), 1..60)
    ) {
        let mut world = cluster(gpus, fair);
        for step in &steps {
            match *step {
                Step::Submit { user, priority, pause } => {
                    world.now = Time(world.now.0 + pause * 1_000);
                    submit(&mut world, USERS[user], priority, 1);
                }
                Step::Finish(n) => {
                    let running = ids(world.running());
                    if let Some(id) = running.get(n % running.len().max(1)) {
                        world.end(id, Phase::Finished);
                    }
                }
            }
            let (mut held, mut waiting) = (held(&world), world.queued());
            let mut expected = Vec::new();
            while held.values().sum::<i64>() < gpus {
                let Some(next) = first(&waiting, &held, fair).cloned() else { break };
                *held.entry(user_of(&world.items[&next])).or_default() += 1;
                waiting.retain(|job| job.workload.id != next);
                expected.push(next);
            }
            let started: Vec<WorkloadId> = world.plan().iter().map(|action| match action {
                Action::Admit { workload, .. } => workload.clone(),
                other => panic!("not expected here: {other:?}"),
            }).collect();
            prop_assert_eq!(started, expected);
            while !world.in_flight.is_empty() {
                world.deliver(0, true);
            }
        }
    }

    #[test]
    fn law_9_users_with_equal_requests_get_equal_usage(
        gpus in 1..9_i64,
        fair in any::<bool>(),
        order in Just(USERS.repeat(9)).prop_shuffle(),
    ) {
        let mut world = cluster(gpus, fair);
        for user in &order {
            submit(&mut world, user, 0, 1);
        }
        world.settle();
        let counts = held(&world);
        if fair {
            let of = |user: &str| counts.get(user).copied().unwrap_or(0);
            let all = USERS.map(of);
            prop_assert!(all.iter().max() <= all.iter().min().map(|least| least + 1).as_ref(), "{counts:?}");
        } else {
            let mut expected: BTreeMap<Name, i64> = BTreeMap::new();
            for user in order.iter().take(usize::try_from(gpus).expect("a few")) {
                *expected.entry((*user).into()).or_default() += 1;
            }
            prop_assert_eq!(counts, expected);
        }
    }
}

#[test]
fn usage_counts_and_not_the_number_of_jobs() {
    let mut world = cluster(7, true);
    submit(&mut world, "ann", 0, 4);
    for _ in 0..2 {
        submit(&mut world, "bob", 0, 1);
    }
    let last = submit(&mut world, "cem", 0, 1);
    world.settle();
    world.now = Time(1_000);
    let ann = submit(&mut world, "ann", 0, 1);
    world.now = Time(2_000);
    let bob = submit(&mut world, "bob", 0, 1);
    world.end(&last, Phase::Finished);
    world.settle();
    assert!(ids(world.running()).contains(&bob), "two GPUs are less than four");
    assert!(ids(world.queued()).contains(&ann));
}

#[test]
fn a_team_that_turns_fair_users_on_counts_present_usage() {
    let mut world = cluster(2, false);
    let first = submit(&mut world, "ann", 0, 1);
    submit(&mut world, "ann", 0, 1);
    let older = submit(&mut world, "ann", 0, 1);
    let younger = submit(&mut world, "bob", 0, 1);
    world.settle();
    let name: Name = "t".into();
    let changed = Team { fair_users: true, ..world.teams[&name].clone() };
    world.teams.insert(name, changed.clone());
    world.engine.apply(Event::TeamApplied(changed), world.now);
    world.settle();
    world.end(&first, Phase::Finished);
    world.settle();
    assert!(ids(world.running()).contains(&younger));
    assert!(ids(world.queued()).contains(&older));
}
